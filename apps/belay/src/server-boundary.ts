/** The boundary that a proxy's server runs in, where one is asked for. */

import { realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { resolve } from 'node:path';
import {
  type Prepared,
  prepare,
  SandboxError,
  type SandboxCommand,
  type SandboxPolicy,
} from '@belay/sandbox';
import type { CliConfig } from './config.js';
import type { Boundary } from './recorder.js';
import { policyFrom, sandboxTrouble } from './sandbox-policy.js';
import type { SandboxChoice } from './sandbox-options.js';
import { isWithin } from './workspace-scope.js';

export interface ServerBoundary {
  readonly prepared: Prepared;
  /** For whoever records the run. */
  readonly told: Boundary;
}

/**
 * Makes a server's command ready to run inside. Throws CliError where what is asked for can't be had: then nothing is
 * started. `warn` is told what the person should know of the boundary.
 */
export async function openBoundary(
  choice: SandboxChoice,
  config: CliConfig,
  command: SandboxCommand,
  warn: (message: string) => void,
): Promise<ServerBoundary> {
  const roots = choice.workspace ?? (config.sandboxScope === undefined ? [] : [config.sandboxScope]);
  const ours: CliConfig = {
    ...config,
    state: choice.state ?? config.state,
    traceDir: choice.trace ?? config.traceDir,
    snapshotDir: typeof choice.snapshots === 'string' ? choice.snapshots : config.snapshotDir,
  };
  const policy = policyFrom(
    {
      ...(choice.sandbox === undefined ? {} : profileOf(choice.sandbox)),
      ...(choice.policy === undefined ? {} : { policy: choice.policy }),
      ...(choice.hide === undefined ? {} : { hide: choice.hide.map((path) => resolve(path)) }),
    },
    ours,
    roots.map((folder) => resolve(command.cwd, folder)),
  );
  try {
    const prepared = await prepare(policy, command, { home: homedir(), path: command.env['PATH'] });
    const { record } = prepared;
    if (record.attempted !== undefined) {
      warn(`the boundary does not hold: ${record.attempted} let something through that it has to refuse`);
    }
    if (policy.backend === 'auto' && record.backend === 'landlock') {
      warn(
        `bubblewrap is not here or does not work: Landlock in its place, which does not hold ${record.holes.join(', ')}`,
      );
    }
    if (record.naming === 'unnamed') {
      warn('what is refused has no name: strace is not here, or nobody may trace');
    }
    if (
      choice.policy !== undefined &&
      record.roots.some((root) => isWithin(realpathSync(choice.policy as string), root))
    ) {
      warn('the policy lies in a folder that the server may write: the next run may have another');
    }
    if (policy.roots.length === 0 && policy.binds.length === 0 && record.backend !== 'none') {
      warn('the server can write nowhere but in its own /tmp: no --workspace was named');
    }
    const { backend, attempted, policy: digest } = record;
    return {
      prepared,
      told: {
        sandbox: backend,
        network: attempted === undefined ? record.network : 'allow',
        policy: digest,
        said: { policy },
        onDenial: (listener) => prepared.onDenial(listener),
        drain: () => prepared.drain(),
      },
    };
  } catch (error) {
    if (error instanceof SandboxError) throw sandboxTrouble(error);
    throw error;
  }
}

/** `none` is no profile: it is the back end that enforces nothing. */
function profileOf(
  sandbox: NonNullable<SandboxChoice['sandbox']>,
): Partial<Pick<SandboxPolicy, 'profile' | 'backend'>> {
  return sandbox === 'none' ? { backend: 'none' } : { profile: sandbox };
}
