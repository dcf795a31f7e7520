/** What `belay verify` found of one trace: the shape that every report is made of, and that `--json` prints. */

import type { Cause, Tally, Verdict } from '@belay/verdict';

/** A change of a path, as a report shows it. */
export interface ShownChange {
  /** Relative to its root, bytes that are no UTF-8 escaped. */
  readonly path: string;
  readonly what: 'created' | 'deleted' | 'modified' | 'metadata' | 'type';
  /** Unified diff, where both sides are text and small enough. */
  readonly diff?: string;
  /** Why there is none: `binary`, `large`, `unknown`. */
  readonly without?: 'binary' | 'large' | 'unknown';
}

/** What the record of a trace is worth, and why. */
export interface Integrity {
  /** `broken`: the chain does not hold; `local-only`: it holds, and its owner could have written another. */
  readonly kind: 'broken' | 'local-only' | 'attested';
  /** Of how many envelopes an acknowledgement was checked, and how many there are; with `--acks`. */
  readonly attested?: { readonly count: number; readonly of: number };
  /** What is wrong, one line each. */
  readonly problems: readonly string[];
}

/** One call of a tool. */
export interface TurnPart {
  readonly type: 'turn';
  /** Counts the calls of tools from 1. */
  readonly turn: number;
  readonly tool: string | undefined;
  /** Where the call's record stands in the trace: bytes from its beginning. */
  readonly record: number;
  /** Wall clock of the record, RFC 3339. */
  readonly time: string;
  /** Turns that overlapped with it and share its states, itself among them. */
  readonly group: readonly number[];
  readonly verdict: Verdict;
  readonly replays: number;
  /** The workspace had to be changed before the replay was where the record was. */
  readonly driftApplied: boolean;
  /** `sha256:` digests of the states before and after. */
  readonly pre?: string;
  readonly post?: string;
  /** Why the record has no state before or after, by the name that it gives (FORMAT.md of the trace, section 12). */
  readonly missing?: { readonly pre?: string; readonly post?: string };
  readonly changes: readonly ShownChange[];
  /** Numbers of the envelopes, in the recorder's epoch, that the state before, the call and its answer became. */
  readonly seqs: { readonly pre?: number; readonly call?: number; readonly result?: number };
  /** Milliseconds that judging it took. */
  readonly ms: number;
}

/** What happened to the workspace between two turns. */
export interface DriftPart {
  readonly type: 'drift';
  /** The turn it came before; absent after the last one. */
  readonly before?: number;
  /** Who may have done it: the server still had processes, or only others could. */
  readonly by: 'server' | 'outside' | 'unknown';
  readonly verdict: Verdict;
  readonly changes: readonly ShownChange[];
}

/** The net change of the whole session, from its first state to its last. */
export interface SessionPart {
  readonly type: 'session';
  readonly verdict: Verdict;
  readonly changes: readonly ShownChange[];
}

export type Part = TurnPart | DriftPart | SessionPart;

export interface Verification {
  readonly trace: string;
  readonly session: string;
  readonly epoch: string;
  readonly sink: string;
  /** The command line that was run again. */
  readonly server: readonly string[];
  readonly integrity: Integrity;
  readonly policy: {
    readonly digest: string;
    /** The file it came from; absent for the defaults. */
    readonly file?: string;
  };
  readonly mode: 'session' | 'isolated';
  /** Why no part can be better than UNVERIFIED. */
  readonly caps: readonly Cause[];
  /** In the order of the record; the session last. */
  readonly parts: readonly Part[];
  readonly tally: Tally;
  readonly timing: {
    /** Milliseconds: starting the server, the first restore, and all. */
    readonly start: number;
    readonly restore: number;
    readonly total: number;
  };
}
