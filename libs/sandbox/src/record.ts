/** What a trace keeps of the boundary that a run had. */

import type { Backend, Limits, Network, Profile } from './policy.js';
import type { FilterClass } from './seccomp.js';

/**
 * What the boundary does not hold, by name. A verdict that depends on one of these is capped.
 *
 * `chmod`, `utime`, `xattr`: metadata outside the roots can be changed. `udp`, `network`: can be sent. `unix-socket`:
 * sockets of this machine can be connected to; `late-unix-socket`: those made after the start, outside of what is
 * private. `fifo`: named pipes of this machine can be written, read-only mount or not. `abstract-socket`: sockets without
 * a path. `late-mount`: what is mounted on this machine after the start can be
 * written. `late-secret`: a hidden file that is replaced after the start can be read. `read`: what is hidden can be read;
 * `list`: names of what is hidden can be. `host-network`: interfaces of this machine are seen.
 * `signal`, `host-process`: processes of this machine can be signalled, are seen. `filter`: there is no filter for this
 * architecture. `not-measured`: nobody has run this back end on its platform.
 */
export type Hole =
  | 'chmod'
  | 'utime'
  | 'xattr'
  | 'udp'
  | 'network'
  | 'unix-socket'
  | 'late-unix-socket'
  | 'late-mount'
  | 'late-secret'
  | 'abstract-socket'
  | 'fifo'
  | 'read'
  | 'list'
  | 'host-network'
  | 'write'
  | 'signal'
  | 'host-process'
  | 'filter'
  | 'not-measured';

/** A limit of the policy and what holds it: `rlimit` per process, `cgroup` together; `none`: nothing does. */
export interface HeldLimit {
  readonly limit: keyof Limits;
  readonly value: number;
  readonly by: 'rlimit' | 'cgroup' | 'none';
}

/** The self-test before the run: whether what had to be refused was. `connect` is absent where it may succeed. */
export interface Canary {
  readonly read: boolean;
  readonly write: boolean;
  readonly connect?: boolean | undefined;
}

export interface SandboxRecord {
  readonly profile: Profile;
  /** What the run is labelled: `none` also where the boundary did not hold. */
  readonly backend: Backend;
  /** What was to enforce, where `backend` is `none` because something that had to be refused was not. */
  readonly attempted?: Backend | undefined;
  /** Digest of the policy in force. */
  readonly policy: string;
  readonly network: Network['mode'];
  readonly ports?: readonly number[] | undefined;
  readonly roots: readonly string[];
  readonly hidden: readonly string[];
  readonly holes: readonly Hole[];
  readonly limits: readonly HeldLimit[];
  /** Classes of system calls that the filter refuses: each refusal of which is told, and those that nobody gets to see. */
  readonly filter: { readonly told: readonly FilterClass[]; readonly silent: readonly FilterClass[] };
  /** How refusals are told. */
  readonly naming: 'named' | 'unnamed' | 'off';
  /** Names of the environment whose value is another inside. */
  readonly environment: readonly string[];
  readonly canary?: Canary | undefined;
}
