/** What a trace keeps of the boundary that a run had. */

import type { Backend, Limits, Network, Profile } from './policy.js';

/**
 * What the back end does not hold, by name. A verdict that depends on one of these is capped.
 * `chmod`, `utime`, `xattr`: metadata outside the roots can be changed; `udp`, `network`: can be sent; `unix-socket`:
 * sockets of the host can be connected to; `read`: hidden paths can be read; `signal`: processes of the host can be
 * signalled; `io_uring`: not filtered; `host-process`: processes of the host are seen.
 */
export type Hole =
  | 'chmod'
  | 'utime'
  | 'xattr'
  | 'udp'
  | 'network'
  | 'unix-socket'
  | 'read'
  | 'signal'
  | 'host-process'
  | 'io_uring'
  | 'not-measured';

/** A limit of the policy and what holds it: `rlimit` per process, `cgroup` together; `none`: nothing does. */
export interface HeldLimit {
  readonly limit: keyof Limits;
  readonly value: number;
  readonly by: 'rlimit' | 'cgroup' | 'none';
}

/** Outcome of the self-test before the run: what should have been refused, and whether it was. */
export interface Canary {
  readonly read: boolean;
  readonly write: boolean;
  readonly connect: boolean;
}

export interface SandboxRecord {
  readonly profile: Profile;
  /** What the run is labelled: `none` also where the boundary did not hold. */
  readonly backend: Backend;
  /** What was asked to enforce, where `backend` is `none` because the canary escaped. */
  readonly attempted?: Backend | undefined;
  readonly policy: string;
  readonly network: Network['mode'];
  readonly ports?: readonly number[] | undefined;
  readonly roots: readonly string[];
  readonly hidden: readonly string[];
  readonly holes: readonly Hole[];
  readonly limits: readonly HeldLimit[];
  /** How refusals are told. */
  readonly naming: 'named' | 'unnamed' | 'off';
  readonly canary?: Canary | undefined;
}
