/** A command made ready to run inside a policy's boundary. */

import { homedir, tmpdir } from 'node:os';
import type { Denial } from './denial.js';
import { keepDescriptors } from './descriptors.js';
import { SandboxError } from './error.js';
import { look } from './hidden.js';
import { prepareLinux } from './linux.js';
import { prepareSeatbelt } from './mac.js';
import { normalPolicy, policyDigest, type SandboxPolicy } from './policy.js';
import { processTree } from './processes.js';
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
    readonly root: boolean;
  };
}

/**
 * Throws SandboxError where the policy can't be had on this machine: nothing is ever run with less than was asked for.
 */
export async function prepare(
  policy: SandboxPolicy,
  command: SandboxCommand,
  host: SandboxHost = {},
): Promise<Prepared> {
  const normal = normalPolicy(policy);
  const preparation: Preparation = {
    policy: { ...normal, roots: normal.roots.map(existingFolder) },
    digest: policyDigest(policy),
    command,
    host: {
      home: look(host.home ?? homedir())?.path,
      scratch: host.scratch ?? tmpdir(),
      path: host.path,
      canary: host.canary ?? true,
      root: process.geteuid?.() === 0,
    },
  };
  for (const { from } of normal.binds) existingFolder(from);
  const { backend } = normal;
  if (backend === 'none') return withoutBoundary(preparation);
  const mac = process.platform === 'darwin';
  if (mac ? backend === 'bwrap' || backend === 'landlock' : backend === 'seatbelt') {
    throw new SandboxError('BACKEND_UNAVAILABLE', `${backend} is not of this platform`);
  }
  keepDescriptors();
  if (mac) return prepareSeatbelt(preparation);
  if (process.platform === 'linux') return prepareLinux(preparation);
  throw new SandboxError('BACKEND_UNAVAILABLE', `there is no sandbox for ${process.platform}`, {
    next: '--sandbox none runs without one, and says so',
  });
}

function existingFolder(path: string): string {
  const seen = look(path);
  if (seen?.folder === true) return seen.path;
  throw new SandboxError('POLICY_REFUSED', `${path} is no folder of this machine`);
}

/** Asked for by name: nothing is enforced, and the record says so. */
function withoutBoundary({ policy, digest, command }: Preparation): Prepared {
  let running: number | undefined;
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(command.env)) if (value !== undefined) env[name] = value;
  return {
    argv: command.argv,
    cwd: command.cwd,
    env,
    fds: [],
    record: {
      profile: policy.profile,
      backend: 'none',
      policy: digest,
      network: 'allow',
      roots: policy.roots,
      hidden: [],
      holes: [
        'chmod',
        'utime',
        'xattr',
        'udp',
        'network',
        'unix-socket',
        'abstract-socket',
        'read',
        'write',
        'signal',
        'host-process',
        'filter',
      ],
      limits: [],
      filter: { told: [], silent: [] },
      naming: 'off',
      environment: [],
    },
    started(pid) {
      running = pid;
    },
    onDenial() {
      // Nothing is refused.
    },
    live: () => (running === undefined ? [] : processTree(running)),
    drain() {
      // Nothing is refused.
    },
    dispose: () => Promise.resolve(),
  };
}
