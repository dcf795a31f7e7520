/** What a proxy is told of the boundary that its server is to run in. Loads nothing of what makes one. */

import { type Command, Option } from 'commander';
import type { CliConfig } from './config.js';

export interface SandboxChoice {
  readonly sandbox?: 'default' | 'strict' | 'none';
  readonly policy?: string;
  readonly hide?: readonly string[];
  readonly workspace?: readonly string[];
  readonly state?: string;
  readonly trace?: string;
  readonly snapshots?: string | false;
}

const also = (value: string, before?: readonly string[]): string[] => [...(before ?? []), value];

export function sandboxOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--sandbox <profile>', 'run the server inside a boundary').choices([
        'default',
        'strict',
        'none',
      ]),
    )
    .option('--policy <file>', 'what the boundary allows: the `sandbox` section of a YAML or JSON file')
    .option('--hide <path>', 'neither read nor written inside the boundary; may be given again', also);
}

/** Whether a boundary is asked for: by option, by a policy, or by the folder that the environment names. */
export function wantsBoundary({ sandbox, policy, hide }: SandboxChoice, config: CliConfig): boolean {
  return (
    sandbox !== undefined || policy !== undefined || hide !== undefined || config.sandboxScope !== undefined
  );
}
