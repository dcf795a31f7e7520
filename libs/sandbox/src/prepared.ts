/** A command made ready to run inside a boundary: what goes in, and what whoever spawns it is given. */

import type { Denial } from './denial.js';
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
  /** Folder that private files of a run are made in. */
  readonly scratch?: string | undefined;
  /** Where programs are looked for besides the usual places, as in PATH. */
  readonly path?: string | undefined;
  /** Whether to try the boundary before the run. Default true. */
  readonly canary?: boolean | undefined;
  /**
   * For what is run again of a time when others may have listened on this machine's loopback: that nobody listens there
   * now makes no refused connection an ordinary miss. Default false.
   */
  readonly past?: boolean | undefined;
}

/**
 * Spawn `argv` with `env`, `cwd`, at each number from 3 on the descriptor that `fds` has there, and as a process group
 * of its own. Then call `started` with its pid (undefined where it could not be started), and `dispose` when it is gone.
 */
export interface Prepared {
  /** To be asked for right before it is spawned: some of what it hides is looked for then. */
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
  /**
   * Tells, before it returns, of every refusal that was made before anything that has been seen of the command by now:
   * called between reading an answer and recording it, the refusals come first.
   */
  drain(): void;
  /** Ends what still listens and removes private files. Does not end the command. */
  dispose(): Promise<void>;
}

/** What a back end is given: a normal policy, folders that exist, and a machine without defaults left open. */
export interface Preparation {
  readonly policy: SandboxPolicy;
  readonly digest: string;
  readonly command: SandboxCommand;
  readonly host: {
    readonly home: string | undefined;
    readonly scratch: string;
    readonly path: string | undefined;
    readonly canary: boolean;
    readonly past: boolean;
    readonly root: boolean;
  };
}
