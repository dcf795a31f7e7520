import type { IssuedScope } from '@belay/envelope';
import type { Hash } from '@belay/merkle';

/**
 * The ports of the sequencer. `libs/db` implements them on PostgreSQL, `libs/testkit` in memory with faults; both
 * pass the same suite.
 *
 * Sizes, indexes and seqs are numbers below 2^53; times are milliseconds since the epoch.
 */

export interface LogRecord {
  /** Key of the store's rows; never leaves the service. */
  readonly log: number;
  readonly id: string;
  readonly project: string;
  readonly tenant: string;
  readonly origin: string;
  /** 32 bytes, Ed25519. */
  readonly publicKey: Buffer;
  /** DER certificates, leaf first. */
  readonly x5c: readonly Buffer[];
}

/** The locked row of a log. `frontier` is the compact range of [0, size). */
export interface Head {
  readonly size: number;
  readonly root: Hash;
  readonly frontier: readonly Hash[];
  /** Time of the last commit; every later commit has a later one. */
  readonly received: number;
  /** Counts changes of tokens, sinks and policy. */
  readonly config: number;
}

export type Role = 'agent' | 'sink' | 'verifier';

export interface TokenState {
  readonly id: string;
  readonly role: Role;
  readonly sinks: readonly string[] | null;
  readonly domain: string | null;
  readonly expires: number | null;
  readonly rate: number | null;
  readonly issuedBy: string;
  readonly issuedIndex: number;
  readonly revokedIndex: number | null;
}

export interface SinkState {
  /** Small number, dense from 1 within a log; 0 is the collector. */
  readonly sink: number;
  readonly name: string;
  /** Index of the entry that last declared it; null for a sink that only spoke. */
  readonly declared: number | null;
  readonly kind: string | null;
  readonly required: boolean;
  readonly domain: string | null;
  /** 32 bytes, Ed25519. */
  readonly key: Buffer | null;
  readonly heartbeat: number | null;
}

export interface AuditorState {
  readonly issuedIndex: number;
  readonly revokedIndex: number | null;
}

/**
 * A project's policy, read and with every default written out (`readPolicy` of libs/coverage). The store keeps the whole
 * of it; this is what is looked at here.
 */
export interface LogPolicy {
  readonly public: boolean;
  /** Seconds after the close of an epoch from when its lines are late. */
  readonly lateness: number;
}

/** What a log's head row counts in `config`: reloaded whenever that number moved. */
export interface LogConfig {
  /** The one in force. */
  readonly policy: LogPolicy;
  readonly tokens: ReadonlyMap<string, TokenState>;
  readonly sinks: ReadonlyMap<string, SinkState>;
  readonly auditors: ReadonlyMap<string, AuditorState>;
}

/** The batch signature that vouched for a run's lines. */
export interface BatchSignature {
  readonly fingerprint: string;
  readonly firstSeq: number;
  readonly count: number;
  /** 64 bytes. */
  readonly signature: Buffer;
}

/**
 * Consecutive entries that share everything the collector's line says but the index, with consecutive seqs.
 * Collector entries have sink 0, an empty epoch and token, and role `collector`.
 */
export interface Run {
  readonly first: number;
  readonly count: number;
  readonly sink: number;
  readonly epoch: string;
  readonly firstSeq: number;
  readonly token: string;
  readonly role: Role | 'collector';
  readonly received: number;
  readonly batch: BatchSignature | null;
  /** Index of the line that was there first; such a run has one line. */
  readonly conflict: number | null;
  /** Came longer after the close of its epoch than the policy allows. */
  readonly late: boolean;
}

/** What is known of a (sink, epoch) beside its lines. */
export interface EpochMark {
  /** One past the greatest seq there is; 1 for an epoch never seen. */
  readonly nextSeq: number;
  /** When its `epoch.close` that was appended last came; null: none did. */
  readonly closed: number | null;
}

export interface StoredConflict {
  readonly sink: number;
  readonly epoch: string;
  readonly seq: number;
  /** SHA-256 of the line. */
  readonly hash: Buffer;
  readonly index: number;
}

export interface FullTile {
  readonly level: number;
  readonly n: number;
  /** 8,192 bytes. */
  readonly hashes: Buffer;
}

/** State rows that change with an entry. */
export type StateChange =
  | { readonly kind: 'token.issued'; readonly token: TokenState; readonly secretHash: Buffer }
  | { readonly kind: 'token.revoked'; readonly token: string; readonly index: number }
  | {
      readonly kind: 'auditor.issued';
      readonly auditor: string;
      readonly secretHash: Buffer;
      readonly by: string;
      readonly index: number;
    }
  | { readonly kind: 'auditor.revoked'; readonly auditor: string; readonly index: number }
  | { readonly kind: 'sink.declared'; readonly sink: SinkState }
  | { readonly kind: 'policy.set'; readonly policy: LogPolicy; readonly index: number }
  | { readonly kind: 'label.set'; readonly label: StoredLabel }
  | {
      readonly kind: 'coverage.stated';
      readonly digest: Buffer;
      readonly bytes: Buffer;
      readonly index: number;
    }
  | { readonly kind: 'receipt.issued'; readonly receipt: StoredReceipt };

export interface StoredLabel {
  readonly index: number;
  readonly session: string;
  readonly call: string | null;
  readonly says: 'violated' | 'not_violated';
  readonly auditor: string;
}

/** A coverage statement: its bytes, and the entry that holds its digest. */
export interface StoredStatement {
  readonly index: number;
  readonly bytes: Buffer;
}

/** The text that receipts of one scope are found by. */
export function scopeText(scope: IssuedScope): string {
  switch (scope.type) {
    case 'event':
      return `event:${scope.index}`;
    case 'range':
      return `range:${scope.first}+${scope.count}`;
    case 'session':
      return `session:${scope.session}`;
    case 'period':
      return `period:${scope.from}..${scope.to}`;
  }
}

export interface StoredReceipt {
  readonly id: string;
  /** `scopeText` of its scope. */
  readonly scope: string;
  readonly asOf: number;
  readonly digest: Buffer;
  readonly bytes: string;
  /** Index of the entry that records the digest. */
  readonly index: number;
  readonly created: number;
  /** Of a session's receipt: the disposition it states; else null. */
  readonly disposition: string | null;
}

/** All that one commit writes; the store applies the whole of it or nothing. */
export interface LogWrite {
  readonly head: Head;
  readonly runs: readonly Run[];
  /** Body lines of [previous size, head.size), in order. */
  readonly lines: readonly Buffer[];
  readonly epochs: readonly ({ readonly sink: number; readonly epoch: string } & EpochMark)[];
  readonly sinks: readonly { readonly sink: number; readonly name: string }[];
  readonly conflicts: readonly StoredConflict[];
  readonly tiles: readonly FullTile[];
  readonly changes: readonly StateChange[];
}

export interface NewLog {
  readonly id: string;
  readonly project: string;
  readonly name: string;
  readonly tenant: string;
  readonly origin: string;
  readonly publicKey: Buffer;
  readonly x5c: readonly Buffer[];
  readonly public: boolean;
}

/** Raised by `transact` when what it should create is already there, or its tenant is not. */
export class StoreRefusal extends Error {
  readonly code: 'exists' | 'not_found';
  constructor(code: 'exists' | 'not_found', message: string) {
    super(message);
    this.name = 'StoreRefusal';
    this.code = code;
  }
}

/** Reads inside the transaction that holds the head row. */
export interface LogTx {
  readonly record: LogRecord;
  readonly head: Head;
  config(): Promise<LogConfig>;
  /** Of each (sink, epoch), in order. */
  epochs(keys: readonly { readonly sink: number; readonly epoch: string }[]): Promise<EpochMark[]>;
  /** Non-conflict runs of (sink, epoch) that hold any of these seqs, by seq. */
  runs(sink: number, epoch: string, seqs: readonly number[]): Promise<Run[]>;
  /** Those of these lines that are stored as conflicts. `hash` is SHA-256 of the line. */
  conflicts(
    sink: number,
    epoch: string,
    lines: readonly { readonly seq: number; readonly hash: Buffer }[],
  ): Promise<StoredConflict[]>;
  /** Body lines by index; what is not there is left out. */
  linesAt(indexes: readonly number[]): Promise<Map<number, Buffer>>;
  /** Runs that hold any of these indexes, by first index. */
  runsAt(indexes: readonly number[]): Promise<Run[]>;
  /** Indexes of those of these statements that are stored, by their digest in hex. */
  statements(digests: readonly Buffer[]): Promise<Map<string, number>>;
  /** The receipt of this scope with the greatest `asOf`. */
  lastReceipt(scope: string): Promise<Pick<StoredReceipt, 'asOf' | 'digest'> | null>;
  /** At most once, as the last call. */
  write(write: LogWrite): Promise<void>;
}

/**
 * Durability: when `transact` resolves, what it wrote survives a crash of every process and of the machine. When it
 * rejects, the write may or may not have happened; the caller reads again and never assumes.
 * Isolation: `transact` holds the head row from before `tx.head` is read until the end; two of them on one log never
 * overlap, whichever process they run in. The plain reads see committed state only.
 */
export interface LogStore {
  find(by: { readonly project: string } | { readonly id: string }): Promise<LogRecord | null>;
  /** Every log, in order of creation. */
  list(): Promise<LogRecord[]>;
  transact<T>(log: LogRecord | NewLog, work: (tx: LogTx) => Promise<T>): Promise<T>;
  head(log: LogRecord): Promise<Head>;
  config(log: LogRecord): Promise<LogConfig>;
  /** Runs that overlap [from, to), in order. */
  runs(log: LogRecord, from: number, to: number): Promise<Run[]>;
  /** Body lines of [from, to), in order; fewer when the log is shorter or has a hole. */
  lines(
    log: LogRecord,
    from: number,
    to: number,
  ): Promise<{ readonly index: number; readonly line: Buffer }[]>;
  /** A full tile, or null when it isn't complete. */
  tile(log: LogRecord, level: number, n: number): Promise<Buffer | null>;
  epoch(log: LogRecord, sink: number, epoch: string): Promise<EpochMark>;
  /** Indexes of the entries that set a policy and have a row. */
  policies(log: LogRecord): Promise<number[]>;
  labels(log: LogRecord): Promise<StoredLabel[]>;
  /** As in a transaction. */
  statements(log: LogRecord, digests: readonly Buffer[]): Promise<Map<string, number>>;
  /** By the SHA-256 of its bytes. */
  statement(log: LogRecord, digest: Buffer): Promise<StoredStatement | null>;
  /** The last published checkpoint at or below `size` (default: the last). */
  checkpoint(log: LogRecord, size?: number): Promise<StoredCheckpoint | null>;
  receipt(log: LogRecord, scope: string, asOf?: number): Promise<StoredReceipt | null>;
  createTenant(tenant: {
    readonly id: string;
    readonly name: string;
    readonly admin: string;
    readonly secretHash: Buffer;
  }): Promise<void>;
}

export interface StoredCheckpoint {
  readonly size: number;
  readonly root: Hash;
  readonly note: string;
  readonly published: number;
}
