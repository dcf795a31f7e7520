/** A command made ready to run inside a policy's boundary. */

import type { Denial } from './denial.js';
import { SandboxError } from './error.js';
import type { SandboxPolicy } from './policy.js';
import type { SandboxRecord } from './record.js';

/** What to run; `env` is the whole environment. */
export interface SandboxCommand {
  readonly argv: readonly [string, ...string[]];
  /** Absolute. */
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** What of this machine the library works with. Everything has a default. */
export interface SandboxHost {
  /** Home of the user whose credentials are hidden. */
  readonly home?: string | undefined;
  /** Folder that private files of a run are made in; must not be inside a root. */
  readonly scratch?: string | undefined;
  /** PATH that bwrap and strace are looked for in. */
  readonly path?: string | undefined;
  /** Whether to try the boundary before the run. Default true. */
  readonly canary?: boolean | undefined;
}

/**
 * Spawn `argv` with `env`, `cwd`, and at each number from 3 on the descriptor that `fds` has there, in a process group
 * of its own; then call `started` with its pid (undefined where it could not be started), and `dispose` when it is gone.
 */
export interface Prepared {
  readonly argv: readonly [string, ...string[]];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Descriptors for number 3 and up. They are closed on our side by `started`. */
  readonly fds: readonly number[];
  readonly record: SandboxRecord;
  started(pid: number | undefined): void;
  /** Called for each refusal, in the order in which they were made, those before the call included. */
  onDenial(listener: (denial: Denial) => void): void;
  /** Numbers, on this machine, of the processes that live inside now. */
  live(): number[];
  /** Resolves when all refusals that were made before the call have been told. */
  flush(): Promise<void>;
  /** Ends what still listens and removes private files. Does not end the command. */
  dispose(): Promise<void>;
}

/**
 * Throws SandboxError where the policy can't be had on this machine: nothing is ever run with less than was asked for.
 */
export async function prepare(
  policy: SandboxPolicy,
  command: SandboxCommand,
  host: SandboxHost = {},
): Promise<Prepared> {
  throw new SandboxError(
    'BACKEND_UNAVAILABLE',
    `no back end for ${command.argv[0]} (${policy.backend}, ${host.home})`,
  );
}
