/** The policy of a run: a file's, options over it, and over both what no command inside may ever see of us. */

import { readFileSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, resolve } from 'node:path';
import {
  DEFAULT_POLICY,
  normalPolicy,
  parseNetwork,
  readPolicyFile,
  SandboxError,
  type SandboxPolicy,
} from '@belay/sandbox';
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { CliConfig } from './config.js';
import { badInput, type CliError, unavailable } from './exit.js';

export interface BoundaryOptions {
  readonly profile?: SandboxPolicy['profile'];
  readonly backend?: SandboxPolicy['backend'];
  readonly network?: SandboxPolicy['network'];
  readonly hide?: readonly string[];
  readonly show?: readonly string[];
  readonly policy?: string;
}

const also = (value: string, before?: readonly string[]): string[] => [...(before ?? []), resolve(value)];

function network(text: string): SandboxPolicy['network'] {
  try {
    return parseNetwork(text);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

/** The options of commands that run something inside a boundary. */
export function boundaryOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--profile <profile>', 'strict also refuses unix sockets').choices(['default', 'strict']),
    )
    .addOption(
      new Option('--backend <backend>', 'what enforces (default: the best that is here)').choices([
        'auto',
        'bwrap',
        'landlock',
        'seatbelt',
        'none',
      ]),
    )
    .option(
      '--network <network>',
      'deny-all, loopback, allow-ports:8080,9000, allow-all (BELAY_SANDBOX_NETWORK)',
      network,
    )
    .option('--hide <path>', 'neither read nor written inside; may be given again', also)
    .option(
      '--show <path>',
      'of what is hidden by default, to be seen all the same; may be given again',
      also,
    )
    .option('--policy <file>', 'the `sandbox` section of a YAML or JSON file');
}

/** Sections of a policy file that other commands read. */
const OTHERS = ['invariants', 'snapshot'];

/**
 * What the options, the environment and the file say of a run with these writable folders. Evidence and credentials of
 * ours are hidden whatever they say. Throws CliError.
 */
export function policyFrom(
  options: BoundaryOptions,
  config: CliConfig,
  roots: readonly string[],
): SandboxPolicy {
  try {
    const file = options.policy === undefined ? {} : fromFile(resolve(options.policy));
    const said = config.sandboxNetwork === undefined ? undefined : parseNetwork(config.sandboxNetwork);
    const base: SandboxPolicy = { ...DEFAULT_POLICY, ...file };
    const ours = [config.state, dirname(config.credentials), config.traceDir, config.snapshotDir].flatMap(
      (path) => (path === undefined ? [] : resolve(path)),
    );
    return normalPolicy({
      ...base,
      profile: options.profile ?? base.profile,
      backend: options.backend ?? base.backend,
      network: options.network ?? said ?? base.network,
      roots: [...roots, ...base.roots],
      hide: [...base.hide, ...(options.hide ?? []), ...ours],
      show: [...base.show, ...(options.show ?? [])],
    });
  } catch (error) {
    if (error instanceof SandboxError) throw sandboxTrouble(error);
    throw error;
  }
}

function fromFile(file: string): Partial<SandboxPolicy> {
  // Reading it would fail with an error that has no path.
  if (statSync(file).isDirectory()) throw badInput('policy_invalid', `${file} is a folder`);
  return readPolicyFile(readFileSync(file, 'utf8'), { file, home: homedir(), others: OTHERS });
}

/** What a person is told when a boundary can't be had. */
export function sandboxTrouble(error: SandboxError): CliError {
  const place = error.line === undefined ? '' : `line ${error.line}: `;
  const make = error.code === 'BACKEND_UNAVAILABLE' ? unavailable : badInput;
  return make(error.code.toLowerCase(), `${place}${error.message}`, error.next, error);
}
