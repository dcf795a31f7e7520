import type { ProjectPolicy } from '@belay/coverage';
import type { CoverageStated } from '@belay/envelope';

/**
 * What the gateway and the worker ask of the collector, the one process that writes and signs.
 *
 * Two carriers implement `CollectorApi`: a direct call (single process) and NATS (fleet). Nothing here carries a
 * secret: the gateway makes credentials and sends the SHA-256 of their secret part only, and composes the
 * credential's text from the reply.
 */

export type TokenRole = 'agent' | 'sink' | 'verifier';

/** One refused line; `line` counts from 0 over the request's non-empty lines. */
export interface LineRefusal {
  readonly line: number;
  readonly code: string;
  readonly field?: string;
  readonly message: string;
}

/** One request's lines of one sink and one epoch, authenticated and validated by the gateway. */
export interface AppendRequest {
  readonly project: string;
  readonly token: string;
  readonly sink: string;
  readonly epoch: string;
  /** The request's non-empty lines as received, without LF; refused ones included (a batch signature covers them). */
  readonly lines: readonly Buffer[];
  /** `seq` of each line; null where the gateway refused it. Same length as `lines`. */
  readonly seqs: readonly (number | null)[];
  readonly refused: readonly LineRefusal[];
  /** 64 bytes, from `Belay-Signature`. */
  readonly signature?: Buffer;
  /** Size of the last head the sender verified, from `Belay-Head`. */
  readonly head?: number;
}

export interface RangeHashes {
  readonly left: readonly string[];
  readonly right: readonly string[];
}

/** libs/envelope/FORMAT.md section 7. */
export interface AckRun {
  readonly disposition: 'appended' | 'duplicate' | 'conflict';
  readonly lines: readonly [from: number, to: number];
  readonly index: number;
  readonly received: string;
  readonly token: string;
  readonly role: TokenRole;
  readonly signed?: string;
  readonly conflict?: number;
  readonly late?: true;
  readonly range: RangeHashes;
}

export interface Ack {
  readonly log: string;
  readonly size: number;
  readonly root: string;
  readonly signature: string;
  readonly runs: readonly AckRun[];
  readonly refused: readonly LineRefusal[];
  readonly consistency?: readonly string[];
}

/** State changes of a project; each becomes an entry of its log in the same transaction. `tenant.create` has no log. */
export type Change =
  | {
      readonly kind: 'tenant.create';
      readonly tenant: string;
      readonly name: string;
      readonly admin: string;
      readonly secretHash: Buffer;
      readonly by: string;
    }
  | {
      readonly kind: 'project.create';
      readonly tenant: string;
      readonly by: string;
      readonly project: string;
      readonly name: string;
      readonly public: boolean;
      readonly token: { readonly id: string; readonly secretHash: Buffer };
      readonly auditor: { readonly id: string; readonly secretHash: Buffer };
    }
  | {
      readonly kind: 'token.issue';
      readonly tenant: string;
      readonly by: string;
      readonly project: string;
      readonly token: string;
      readonly secretHash: Buffer;
      readonly role: TokenRole;
      readonly sinks?: readonly string[];
      /** RFC 3339, three fractional digits, UTC. */
      readonly expires?: string;
      readonly domain?: string;
      /** Lines a minute. */
      readonly rate?: number;
    }
  | {
      readonly kind: 'token.revoke';
      readonly tenant: string;
      readonly by: string;
      readonly project: string;
      readonly token: string;
    }
  | {
      readonly kind: 'auditor.issue';
      readonly tenant: string;
      readonly by: string;
      readonly project: string;
      readonly auditor: string;
      readonly secretHash: Buffer;
    }
  | {
      readonly kind: 'auditor.revoke';
      readonly tenant: string;
      readonly by: string;
      readonly project: string;
      readonly auditor: string;
    }
  | {
      readonly kind: 'sink.declare';
      readonly tenant: string;
      readonly by: string;
      readonly project: string;
      readonly sink: string;
      readonly sinkKind?: string;
      readonly required?: boolean;
      readonly domain?: string;
      /** 32 bytes, Ed25519. */
      readonly key?: Buffer;
      /** Seconds between heartbeats. */
      readonly heartbeat?: number;
    }
  | {
      readonly kind: 'policy.set';
      readonly tenant: string;
      readonly by: string;
      readonly project: string;
      /** Whole: what was not given has its default written out. */
      readonly policy: ProjectPolicy;
    }
  | {
      readonly kind: 'label.set';
      /** An auditor is of one project; a tenant that is named has to be the project's. */
      readonly tenant?: string;
      /** `aud_...`, of this project and not revoked. */
      readonly by: string;
      readonly project: string;
      readonly session: string;
      readonly call?: string;
      readonly says: 'violated' | 'not_violated';
    };

/** `index` is where the change stands in the log (null for `tenant.create`). */
export interface ChangeReply {
  readonly index: number | null;
  readonly size: number | null;
  /** Only for `project.create`. */
  readonly log?: {
    readonly id: string;
    readonly origin: string;
    readonly vkey: string;
    readonly publicKey: Buffer;
  };
}

export interface CheckpointReply {
  readonly size: number;
  readonly root: string;
  /** The signed note, ready to be stored and served as it is. */
  readonly note: string;
}

export type ReceiptScope =
  | { readonly type: 'event'; readonly index: number }
  | { readonly type: 'range'; readonly first: number; readonly count: number };

export interface ReceiptReply {
  readonly id: string;
  readonly asOf: number;
  /** SHA-256 of the bytes, hex. */
  readonly digest: string;
  /** The DSSE envelope, canonical JSON. */
  readonly bytes: string;
}

/** A statement and what its entry says of it. */
export interface StatementRecord {
  readonly body: CoverageStated;
  /** JCS, whose digest is `body.statement`; at most MAX_RECORD_BYTES of `@belay/contracts/rpc`. */
  readonly bytes: Buffer;
}

/** Where each of the statements stands in the log, in their order, and the size after the commit. */
export interface RecordReply {
  readonly indexes: readonly number[];
  readonly size: number;
}

/** `index` is that of the entry `receipt.issued`. */
export interface IssueReply extends ReceiptReply {
  readonly index: number;
}

export interface ExportReply {
  /** The DSSE envelope, canonical JSON. */
  readonly bytes: string;
}

/** Sorted by what the caller does next. */
export type CollectorFault =
  /** Nothing happened, or it can't be known; send the same request again. */
  | {
      readonly kind: 'retry';
      readonly code: 'unavailable' | 'overloaded' | 'shutting_down';
      readonly message: string;
      readonly retryAfter: number;
    }
  /** The request is wrong and stays wrong. */
  | {
      readonly kind: 'refused';
      readonly code:
        | 'not_found'
        | 'token_revoked'
        | 'token_expired'
        | 'sink_not_allowed'
        | 'signature_required'
        | 'signature_invalid'
        | 'head_ahead'
        | 'exists'
        | 'rate_limited'
        | 'invalid';
      readonly message: string;
      readonly field?: string;
      readonly retryAfter?: number;
    }
  /** True in a moment: the checkpoint that covers it is not published yet. */
  | {
      readonly kind: 'not_yet';
      readonly code: 'not_published';
      readonly message: string;
      readonly retryAfter: number;
    }
  /** The log must not be written: state and anchor disagree. A person is needed. */
  | { readonly kind: 'halted'; readonly code: 'log_halted'; readonly message: string };

/** A receipt does not name the last one of its scope: look at what is stored, and make it anew. */
export interface StaleFault {
  readonly kind: 'refused';
  readonly code: 'stale';
  readonly message: string;
  readonly field?: string;
}

export type Outcome<T, F = CollectorFault> =
  { readonly ok: true; readonly value: T } | { readonly ok: false; readonly fault: F };

export interface CollectorApi {
  append(request: AppendRequest): Promise<Outcome<Ack>>;
  change(change: Change): Promise<Outcome<ChangeReply>>;
  /** Signs the present head of a log as a checkpoint; the worker stores it. `log` is the public log identifier. */
  checkpoint(log: string): Promise<Outcome<CheckpointReply>>;
  /** `asOf` is a published size; absent: the receipt that exists for this scope, else one as of the last published size. */
  receipt(request: {
    readonly project: string;
    readonly scope: ReceiptScope;
    readonly asOf?: number;
  }): Promise<Outcome<ReceiptReply>>;
  /**
   * Writes that coverage statements were made, all of them in one commit, and keeps their bytes. One that is recorded
   * already is answered with the index it has. Their form is checked, and that they say what their entries say; that
   * they are true of the log is the worker's word.
   */
  record(request: {
    readonly project: string;
    readonly statements: readonly StatementRecord[];
  }): Promise<Outcome<RecordReply>>;
  /**
   * Signs and stores the receipt of a session or a period. `payload` is its in-toto statement, JCS. Of one scope and
   * one `asOf` there is one receipt: asked again, the stored one is the answer, whatever the payload.
   */
  issue(request: {
    readonly project: string;
    readonly payload: Buffer;
  }): Promise<Outcome<IssueReply, CollectorFault | StaleFault>>;
  /** Signs the manifest of an export. `payload` is its in-toto statement, JCS. Nothing of it is kept. */
  signExport(request: { readonly project: string; readonly payload: Buffer }): Promise<Outcome<ExportReply>>;
}
