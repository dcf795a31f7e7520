import { createHash, verify as verifySignature } from 'node:crypto';
import {
  batchMessage,
  batchRoot,
  type CollectorBody,
  type CoverageStated,
  type EntryMaker,
  EnvelopeError,
  formatCollectorBody,
  keyFingerprint,
  parseEnvelope,
  type PolicyReference,
  type ReceiptIssued,
} from '@belay/envelope';
import type {
  Ack,
  AckRun,
  AppendRequest,
  Change,
  ChangeReply,
  CheckpointReply,
  CollectorFault,
  Outcome,
  RecordReply,
  StaleFault,
} from '@belay/contracts';
import { foldNodes, type Hash, leafHash } from '@belay/merkle';
import {
  ackHeadText,
  formatCheckpoint,
  formatVkey,
  type NoteSigner,
  publicKeyObject,
  signatureLine,
  signNote,
} from '@belay/note';
import { type Anchor, AnchorConflict } from './anchor.js';
import { entryMakerOf } from './entries.js';
import {
  type BatchSignature,
  type EpochMark,
  type Head,
  type LogConfig,
  type LogPolicy,
  type LogRecord,
  type LogStore,
  type LogTx,
  type LogWrite,
  type NewLog,
  type Run,
  type SinkState,
  type StateChange,
  type StoredConflict,
  type StoredReceipt,
  StoreRefusal,
  type TokenState,
} from './store.js';
import { LogTree, TreeDamaged, type TileReader } from './tree.js';

/** The collector's keys, by origin. Only the process that owns the log keys has one. */
export interface LogKeys {
  /** Makes (or derives) the key of a log and its certificate chain. */
  create(origin: string, now: Date): Promise<{ readonly publicKey: Buffer; readonly x5c: readonly Buffer[] }>;
  /** Signers under the names `<origin>` and `<origin>/ack`. Throws when their public key isn't `publicKey`. */
  signers(origin: string, publicKey: Buffer): { readonly checkpoint: NoteSigner; readonly ack: NoteSigner };
}

export interface SequencerLimits {
  /** Lines of one commit; a longer queue waits for the next. */
  readonly commitLines: number;
  /** Lines waiting per log before `overloaded` is answered. */
  readonly queuedLines: number;
  /** Logs kept in memory. */
  readonly logs: number;
}

export const DEFAULT_LIMITS: SequencerLimits = { commitLines: 20_000, queuedLines: 100_000, logs: 1_000 };

export interface SequencerParts {
  readonly store: LogStore;
  readonly anchor: Anchor;
  readonly keys: LogKeys;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** A fresh identifier for a log: `log_` and a ULID in lower case. */
  readonly newLogId: () => string;
  readonly originPrefix: string;
  readonly limits?: Partial<SequencerLimits>;
  /** Told of every fault that a person may have to look at. */
  readonly report?: (event: SequencerEvent) => void;
}

export type SequencerEvent =
  | { readonly event: 'commit_failed'; readonly origin: string; readonly error: unknown }
  | { readonly event: 'settle_failed'; readonly origin: string; readonly error: unknown }
  | { readonly event: 'halted'; readonly origin: string; readonly reason: string };

/** The database is behind what the log key signed, or shows another tree for it. The service must not start. */
export class LogBehindAnchor extends Error {
  readonly origin: string;
  constructor(origin: string, message: string) {
    super(message);
    this.name = 'LogBehindAnchor';
    this.origin = origin;
  }
}

/** A change of a project that exists. */
type ProjectChange = Exclude<Change, { kind: 'tenant.create' | 'project.create' }>;

/** Entries of another process that are added to the tree in memory; more than this, and it is read anew. */
const CATCH_UP = 20_000;
/** Watermarks remembered per log. */
const WATERMARKS = 10_000;

/** A log is anchored only after its creation was committed: one that the database does not know was lost. */
export function missingLog(origin: string): string {
  return (
    `${origin}: the log key has signed for this log, and the database does not have it. ` +
    'Bring back a database that has it, or use another data directory for another database; never delete the anchor'
  );
}

interface PendingAppend {
  readonly kind: 'append';
  readonly request: AppendRequest;
  readonly resolve: (outcome: Outcome<Ack>) => void;
  /** Fingerprint of the key that `request.signature` was verified under; undefined: not tried yet. */
  verified?: string | false;
}

interface PendingChange {
  readonly kind: 'change';
  readonly change: ProjectChange;
  readonly resolve: (outcome: Outcome<ChangeReply>) => void;
}

interface PendingReceipt {
  readonly kind: 'receipt';
  readonly receipt: Omit<StoredReceipt, 'index'>;
  readonly body: ReceiptIssued;
  readonly resolve: (outcome: Outcome<ChangeReply, CollectorFault | StaleFault>) => void;
}

/** A statement whose bytes lead to the digest that its body states. */
export interface CheckedStatement {
  readonly body: CoverageStated;
  /** The 32 bytes of `body.statement`. */
  readonly digest: Buffer;
  readonly bytes: Buffer;
}

interface PendingRecord {
  readonly kind: 'record';
  readonly statements: readonly CheckedStatement[];
  readonly resolve: (outcome: Outcome<RecordReply>) => void;
}

interface PendingSign {
  readonly kind: 'sign';
  readonly resolve: (outcome: Outcome<CheckpointReply>) => void;
}

/** What is a commit of its own. */
type PendingAlone = PendingChange | PendingReceipt | PendingRecord;
type Pending = PendingAppend | PendingAlone | PendingSign;

/** What became of one line of a request. */
interface Placed {
  readonly disposition: 'appended' | 'duplicate' | 'conflict';
  readonly index: number;
  readonly run: RunFacts;
}

/** The part of a run that the collector's line says. */
type RunFacts = Pick<Run, 'token' | 'role' | 'received' | 'batch' | 'conflict' | 'late'>;

type DraftRun = Omit<Run, 'count'> & { count: number };

/** One commit being put together. Thrown away when the transaction fails. */
class Draft {
  readonly lines: Buffer[] = [];
  readonly leaves: Hash[] = [];
  readonly runs: DraftRun[] = [];
  readonly conflicts: StoredConflict[] = [];
  readonly sinks: { sink: number; name: string }[] = [];
  /** The run that the next line of the same request may lengthen. */
  open: { readonly run: DraftRun; readonly facts: RunFacts } | null = null;
  /** Key: `<sink> <epoch>`. */
  readonly watermarks = new Map<string, Mark>();
  readonly base: number;
  readonly received: number;
  constructor(base: number, received: number) {
    this.base = base;
    this.received = received;
  }
  get size(): number {
    return this.base + this.lines.length;
  }

  /** The drafted run that holds a drafted index. */
  runAt(index: number): Run {
    return lastAtOrBefore(this.runs, index, (run) => run.first) as Run;
  }
}

/** What a draft knows of one (sink, epoch). */
interface Mark {
  readonly sink: number;
  readonly epoch: string;
  /** Next expected seq, the drafted lines counted. */
  next: number;
  /** When the epoch was closed last, the drafted lines counted. */
  closed: number | null;
  /** What the store has. */
  readonly stored: EpochMark;
  /** Index of each drafted line that is not a conflict, by seq. */
  readonly drafted: Map<number, number>;
  /** Index of each drafted conflict, by `conflictKey`. */
  readonly conflicts: Map<string, number>;
}

/** A log in this process. Owner: the sequencer; `tree` and `config` only change between two commits. */
class Lane {
  readonly record: LogRecord;
  readonly signers: { readonly checkpoint: NoteSigner; readonly ack: NoteSigner };
  readonly queue: Pending[] = [];
  queuedLines = 0;
  /** The tree of the last commit this process saw; null: read it again. */
  tree: LogTree | null = null;
  config: { readonly version: number; readonly value: LogConfig } | null = null;
  /** By `<sink> <epoch>`; true as long as `tree` is the locked head. */
  readonly watermarks = new Map<string, EpochMark>();
  committing = false;
  /** Anchor, signature and answers, one commit after the other in commit order. */
  settling: Promise<void> = Promise.resolve();
  /** Commits whose callers are not answered yet. */
  unsettled = 0;
  halted: string | null = null;
  /** Per token with a rate, and per auditor: until when what it appended has used up what it may. Milliseconds. */
  readonly paidUntil = new Map<string, number>();
  constructor(record: LogRecord, signers: Lane['signers']) {
    this.record = record;
    this.signers = signers;
  }
}

/**
 * Orders, commits and signs. One commit at a time per log: what arrives while one is in flight is the next, so the
 * batch size follows the load and no timer is needed.
 */
export class Sequencer {
  readonly #parts: SequencerParts;
  readonly #limits: SequencerLimits;
  readonly #lanes = new Map<string, Promise<Lane | null>>();
  readonly #work = new Set<Promise<void>>();
  #closing = false;

  constructor(parts: SequencerParts) {
    this.#parts = parts;
    this.#limits = { ...DEFAULT_LIMITS, ...parts.limits };
  }

  /**
   * Compares every log with the anchor. Throws LogBehindAnchor when the database lacks what was signed: going on
   * would sign a second tree for a size that somebody already holds.
   */
  async start(): Promise<void> {
    const records = await this.#parts.store.list();
    const known = new Set(records.map((record) => record.origin));
    for (const origin of this.#parts.anchor.origins()) {
      if (!known.has(origin)) throw new LogBehindAnchor(origin, missingLog(origin));
    }
    for (const record of records) {
      this.#parts.keys.signers(record.origin, record.publicKey);
      const anchored = this.#parts.anchor.last(record.origin);
      if (anchored === null) continue;
      const head = await this.#parts.store.head(record);
      if (head.size < anchored.size) {
        throw new LogBehindAnchor(
          record.origin,
          `${record.origin}: the database holds ${head.size} entries, but the log key has signed ${anchored.size}. ` +
            `${anchored.size - head.size} entries are missing. Bring back a database that has them; never delete the anchor`,
        );
      }
      const tree = await this.#load(record, head);
      const root = await tree.rootAt(anchored.size, this.#tiles(record));
      if (!root.equals(anchored.root)) {
        throw new LogBehindAnchor(
          record.origin,
          `${record.origin}: at size ${anchored.size} the database leads to root ${root.toString('hex')}, ` +
            `but the log key has signed ${anchored.root.toString('hex')}. Entries were changed`,
        );
      }
    }
  }

  /** Appends one sink's lines; resolves after they are durable, anchored and signed. Never rejects. */
  async append(request: AppendRequest): Promise<Outcome<Ack>> {
    return this.#submit<Ack>(
      request.project,
      (resolve) => ({ kind: 'append', request, resolve }),
      request.lines.length,
    );
  }

  /** Changes a project's state and logs it, in one transaction. */
  async change(change: ProjectChange): Promise<Outcome<ChangeReply>> {
    const log = await this.#find(change.project);
    if (!log.ok) return log;
    // An auditor's key is of one project, and names no tenant.
    if (change.tenant !== undefined && log.value.tenant !== change.tenant) return notFound('project');
    return this.#submit<ChangeReply>(change.project, (resolve) => ({ kind: 'change', change, resolve }), 1);
  }

  /**
   * Stores an issued receipt together with the entry that holds its digest. Refused: `exists` when there is one of this
   * scope and `asOf`; `stale` when, of a session or a period, `body.supersedes` is not the digest of the last one, or
   * `asOf` not beyond its.
   */
  async recordReceipt(
    project: string,
    receipt: Omit<StoredReceipt, 'index'>,
    body: ReceiptIssued,
  ): Promise<Outcome<ChangeReply, CollectorFault | StaleFault>> {
    return this.#submit<ChangeReply, CollectorFault | StaleFault>(
      project,
      (resolve) => ({ kind: 'receipt', receipt, body, resolve }),
      1,
    );
  }

  /**
   * Writes that statements were made, and stores them, in one commit; those that are stored already keep the index they
   * have. Refused: `invalid` when one looked at more entries than there are.
   */
  async record(project: string, statements: readonly CheckedStatement[]): Promise<Outcome<RecordReply>> {
    return this.#submit<RecordReply>(
      project,
      (resolve) => ({ kind: 'record', statements, resolve }),
      statements.length,
    );
  }

  /** Signs the present head as a checkpoint. It goes through the same queue, anchor and rule as an ack. */
  async checkpoint(logId: string): Promise<Outcome<CheckpointReply>> {
    let record: LogRecord | null;
    try {
      record = await this.#parts.store.find({ id: logId });
    } catch (error) {
      return unavailable(error);
    }
    if (!record) return notFound('log');
    return this.#submit<CheckpointReply>(record.project, (resolve) => ({ kind: 'sign', resolve }), 0);
  }

  /**
   * Creates a project's log: genesis, first append token and auditor key are its first entries. The genesis entry has
   * the whole policy, so that what a default is today says nothing of logs that were made before.
   */
  async createProject(
    change: Extract<Change, { kind: 'project.create' }>,
    policy: LogPolicy,
  ): Promise<Outcome<ChangeReply>> {
    if (this.#closing) return shuttingDown();
    const id = this.#parts.newLogId();
    const origin = `${this.#parts.originPrefix}/${id}`;
    const now = this.#parts.now();
    try {
      const { publicKey, x5c } = await this.#parts.keys.create(origin, new Date(now));
      const log: NewLog = {
        id,
        project: change.project,
        name: change.name,
        tenant: change.tenant,
        origin,
        publicKey,
        x5c,
        public: change.public,
      };
      const { tree, record } = await this.#parts.store.transact(log, async (tx) => {
        const draft = new Draft(0, nextTime(now, tx.head));
        const vkey = formatVkey(origin, publicKey);
        const changes: StateChange[] = [{ kind: 'policy.set', policy, index: 0 }];
        write(draft, tx.record, {
          kind: 'log.genesis',
          v: 1,
          log: origin,
          vkey,
          ackKey: formatVkey(`${origin}/ack`, publicKey),
          project: change.project,
          name: change.name,
          x5c: x5c.map((der) => `sha256:${createHash('sha256').update(der).digest('hex')}`),
          policy: policy as unknown as PolicyReference,
        });
        const token: Extract<Change, { kind: 'token.issue' }> = {
          kind: 'token.issue',
          tenant: change.tenant,
          by: change.by,
          project: change.project,
          token: change.token.id,
          secretHash: change.token.secretHash,
          role: 'sink',
        };
        changes.push(apply(draft, tx.record, token, NOTHING_YET));
        const auditor = {
          ...token,
          kind: 'auditor.issue',
          auditor: change.auditor.id,
          secretHash: change.auditor.secretHash,
        } as const;
        changes.push(apply(draft, tx.record, auditor, NOTHING_YET));
        const grown = LogTree.empty().grow(draft.leaves);
        await tx.write(finish(draft, grown, tx.head.config + 1, changes));
        return { tree: grown, record: tx.record };
      });
      // A crash here leaves a log that nobody was told of and no signature for it: harmless.
      await this.#parts.anchor.record(origin, tree.size, tree.root);
      const vkey = formatVkey(origin, record.publicKey);
      return {
        ok: true,
        value: { index: 0, size: tree.size, log: { id, origin, vkey, publicKey: record.publicKey } },
      };
    } catch (error) {
      return faultOf(error);
    }
  }

  /** The tree of a log at a committed size. Throws TreeDamaged when the store lacks a part of it. */
  async treeOf(record: LogRecord, size: number): Promise<LogTree> {
    const leaves = await this.#leaves(record, size - (size % 256), size);
    return LogTree.load(size, leaves, this.#tiles(record));
  }

  /**
   * Why nothing can be signed at present, in words for an operator; null when it can. Whether the database takes
   * writes is the store's to tell, and a halted log is its own trouble (`halted`): the others go on.
   */
  trouble(): string | null {
    const { trouble } = this.#parts.anchor;
    return trouble ? `the anchor can not be written: ${trouble.message}` : null;
  }

  /** Logs that must not be written until a person has looked at them. */
  async halted(): Promise<{ readonly origin: string; readonly reason: string }[]> {
    const lanes = await Promise.all([...this.#lanes.values()].map((opening) => opening.catch(() => null)));
    return lanes.flatMap((lane) =>
      lane === null || lane.halted === null ? [] : [{ origin: lane.record.origin, reason: lane.halted }],
    );
  }

  /** Answers `shutting_down` from now on; resolves when everything accepted before has been answered. */
  async close(): Promise<void> {
    this.#closing = true;
    while (this.#work.size > 0) await Promise.allSettled(this.#work);
    for (const lane of await Promise.all(this.#lanes.values())) await lane?.settling;
  }

  async #submit<T, F = CollectorFault>(
    project: string,
    make: (resolve: (outcome: Outcome<T, F | CollectorFault>) => void) => Pending,
    lines: number,
  ): Promise<Outcome<T, F | CollectorFault>> {
    if (this.#closing) return shuttingDown();
    let lane: Lane | null;
    try {
      lane = await this.#lane(project);
    } catch (error) {
      return unavailable(error);
    }
    if (!lane) return notFound('project');
    if (lane.halted !== null) return halted(lane.halted);
    if (lane.queuedLines + lines > this.#limits.queuedLines) {
      return {
        ok: false,
        fault: {
          kind: 'retry',
          code: 'overloaded',
          message: 'too many lines are waiting for this log',
          retryAfter: 1,
        },
      };
    }
    return new Promise((resolve) => {
      const pending = make(resolve);
      if (pending.kind === 'append') preverify(lane, pending);
      lane.queue.push(pending);
      lane.queuedLines += lines;
      this.#run(lane);
    });
  }

  async #find(project: string): Promise<Outcome<LogRecord>> {
    try {
      const lane = await this.#lane(project);
      return lane ? { ok: true, value: lane.record } : notFound('project');
    } catch (error) {
      return unavailable(error);
    }
  }

  #lane(project: string): Promise<Lane | null> {
    const known = this.#lanes.get(project);
    if (known) return known;
    const { store, keys } = this.#parts;
    const opening = store.find({ project }).then((record) => {
      if (record === null) return null;
      return new Lane(record, keys.signers(record.origin, record.publicKey));
    });
    this.#lanes.set(project, opening);
    opening.then(
      (lane) => {
        // Projects that don't exist are not remembered: anybody can name any number of them.
        if (lane === null) this.#lanes.delete(project);
        else this.#evict();
      },
      () => this.#lanes.delete(project),
    );
    return opening;
  }

  /** Idle lanes beyond the limit are forgotten, oldest first; what they know is in the store. */
  #evict(): void {
    for (const [project, opening] of this.#lanes) {
      if (this.#lanes.size <= this.#limits.logs) return;
      void opening.then((lane) => {
        if (
          lane &&
          !lane.committing &&
          lane.unsettled === 0 &&
          lane.queue.length === 0 &&
          lane.halted === null
        )
          this.#lanes.delete(project);
      });
    }
  }

  #run(lane: Lane): void {
    if (lane.committing) return;
    lane.committing = true;
    const work = this.#drain(lane).finally(() => {
      lane.committing = false;
      this.#work.delete(work);
    });
    this.#work.add(work);
  }

  async #drain(lane: Lane): Promise<void> {
    while (lane.queue.length > 0) {
      const batch = this.#take(lane);
      if (lane.halted !== null) {
        for (const pending of batch) pending.resolve(halted(lane.halted));
        continue;
      }
      await this.#commit(lane, batch);
    }
    // The next commit of this lane may start at once; answering this one's callers goes on beside it.
    const settling = lane.settling.finally(() => this.#work.delete(settling));
    this.#work.add(settling);
  }

  /** The next commit: one change alone, or as many appends and signatures as fit. */
  #take(lane: Lane): Pending[] {
    const batch: Pending[] = [];
    let lines = 0;
    while (lane.queue.length > 0) {
      const next = lane.queue[0] as Pending;
      const weight = weightOf(next);
      const alone = next.kind !== 'append' && next.kind !== 'sign';
      if (batch.length > 0 && (alone || lines + weight > this.#limits.commitLines)) break;
      lane.queue.shift();
      lane.queuedLines -= weight;
      batch.push(next);
      lines += weight;
      if (alone) break;
    }
    return batch;
  }

  /**
   * The one path on which a log grows:
   *
   *  1. lock the head row, place every line, extend the tree, write, commit  (one transaction)
   *     Crash before the commit: nothing happened. The sender sends again.
   *     Crash after it, or a commit whose outcome is unknown: the lines are in the log and nobody was told. The
   *     sender sends again and gets `duplicate` with the index they have.
   *  2. make (size, root) durable in the anchor
   *     Crash before: the database is ahead of the anchor, which is allowed; nothing was signed for the new size.
   *     Crash after: the same size and root are anchored again at the next signature, a no-op.
   *  3. sign the head once
   *  4. answer every caller
   *     Crash before: as after 1.
   *
   * Recovery is this same path: the next commit finds the head row further on than memory and reads the tree again.
   */
  async #commit(lane: Lane, batch: readonly Pending[]): Promise<void> {
    let committed: { tree: LogTree; answers: Map<Pending, Answer>; draft: Draft };
    try {
      committed = await this.#parts.store.transact(lane.record, async (tx) => {
        const tree = await this.#treeAt(lane, tx.head);
        const config = await this.#configAt(lane, tx);
        const draft = new Draft(tree.size, nextTime(this.#parts.now(), tx.head));
        const answers = new Map<Pending, Answer>();
        const changes: StateChange[] = [];
        await readWatermarks(lane, tx, config, batch);
        for (const pending of batch) {
          if (pending.kind === 'sign') answers.set(pending, { kind: 'sign' });
          else if (pending.kind === 'append')
            answers.set(pending, await place(lane, tx, draft, config, pending));
          else answers.set(pending, await carryOut(lane, tx, draft, config, pending, changes));
        }
        if (draft.lines.length === 0) return { tree, answers, draft };
        const grown = tree.grow(draft.leaves);
        const moved = draft.sinks.length > 0 || changes.some(({ kind }) => CONFIGURES.has(kind));
        await tx.write(finish(draft, grown, tx.head.config + (moved ? 1 : 0), changes));
        return { tree: grown, answers, draft };
      });
    } catch (error) {
      // Whether it was applied is unknown: forget, and let the next commit read the truth.
      lane.tree = null;
      lane.config = null;
      if (error instanceof LogBehindAnchor || error instanceof TreeDamaged) this.#halt(lane, error.message);
      else this.#parts.report?.({ event: 'commit_failed', origin: lane.record.origin, error });
      for (const pending of batch)
        pending.resolve(lane.halted === null ? unavailable(error) : halted(lane.halted));
      return;
    }
    lane.tree = committed.tree;
    for (const [key, { next: nextSeq, closed }] of committed.draft.watermarks)
      lane.watermarks.set(key, { nextSeq, closed });
    lane.unsettled++;
    lane.settling = lane.settling
      .then(() => this.#settle(lane, committed.tree, committed.answers))
      .finally(() => lane.unsettled--);
  }

  /** Steps 2 to 4. Runs beside the next commit's transaction, in commit order. Never rejects. */
  async #settle(lane: Lane, tree: LogTree, answers: ReadonlyMap<Pending, Answer>): Promise<void> {
    const { origin } = lane.record;
    try {
      await this.#parts.anchor.record(origin, tree.size, tree.root);
      const text = ackHeadText(origin, BigInt(tree.size), tree.root);
      let signature: string | undefined;
      for (const [pending, answer] of answers) {
        if (answer.kind === 'fault') {
          // Of a receipt only; what waits for anything else is never told that it is stale.
          pending.resolve({ ok: false, fault: answer.fault as CollectorFault });
        } else if (answer.kind === 'sign') {
          const note = signNote(formatCheckpoint({ origin, size: BigInt(tree.size), root: tree.root }), [
            lane.signers.checkpoint,
          ]);
          (pending as PendingSign).resolve({
            ok: true,
            value: { size: tree.size, root: tree.root.toString('base64'), note },
          });
        } else if (answer.kind === 'changed') {
          (pending as PendingChange | PendingReceipt).resolve({
            ok: true,
            value: { index: answer.index, size: tree.size },
          });
        } else if (answer.kind === 'recorded') {
          (pending as PendingRecord).resolve({
            ok: true,
            value: { indexes: answer.indexes, size: tree.size },
          });
        } else {
          signature ??= signatureLine(text, lane.signers.ack).trimEnd();
          const ack = await this.#ack(
            lane.record,
            tree,
            signature,
            (pending as PendingAppend).request,
            answer.placed,
            answer.refused,
          );
          (pending as PendingAppend).resolve({ ok: true, value: ack });
        }
      }
    } catch (error) {
      if (error instanceof AnchorConflict || error instanceof TreeDamaged) this.#halt(lane, error.message);
      else this.#parts.report?.({ event: 'settle_failed', origin, error });
      // The lines are in the log; a retry finds them. Answering twice is harmless, the first answer counts.
      for (const pending of answers.keys())
        pending.resolve(lane.halted === null ? unavailable(error) : halted(lane.halted));
    }
  }

  async #ack(
    record: LogRecord,
    tree: LogTree,
    signature: string,
    request: AppendRequest,
    placed: readonly (Placed | null)[],
    refused: AppendRequest['refused'],
  ): Promise<Ack> {
    const read = this.#tiles(record);
    const runs: AckRun[] = [];
    for (let at = 0; at < placed.length;) {
      const first = placed[at];
      if (!first) {
        at++;
        continue;
      }
      let to = at + 1;
      while (to < placed.length && continues(placed[to - 1] as Placed, placed[to] ?? null)) to++;
      const { left, right } = await tree.around(first.index, first.index + (to - at), read);
      runs.push({
        disposition: first.disposition,
        lines: [at, to],
        index: first.index,
        received: new Date(first.run.received).toISOString(),
        token: first.run.token,
        role: first.run.role as AckRun['role'],
        ...(first.run.batch ? { signed: first.run.batch.fingerprint } : {}),
        ...(first.run.conflict === null ? {} : { conflict: first.run.conflict }),
        ...(first.run.late ? { late: true } : {}),
        range: { left: left.map(base64), right: right.map(base64) },
      });
      at = to;
    }
    const ack: Ack = {
      log: record.origin,
      size: tree.size,
      root: base64(tree.root),
      signature,
      runs,
      refused,
    };
    if (request.head === undefined) return ack;
    return { ...ack, consistency: (await tree.consistency(request.head, read)).map(base64) };
  }

  /** The tree at the locked head: what this process has, or what the store adds to it, or read anew. */
  async #treeAt(lane: Lane, head: Head): Promise<LogTree> {
    if (lane.tree && lane.tree.size === head.size && lane.tree.root.equals(head.root)) return lane.tree;
    // Somebody else wrote, or this process did and was told that it failed: nothing remembered is true any more.
    const known = lane.tree;
    lane.tree = null;
    lane.watermarks.clear();
    if (known && known.size < head.size && head.size - known.size <= CATCH_UP) {
      const grown = known.grow(await this.#leaves(lane.record, known.size, head.size));
      if (grown.root.equals(head.root)) return grown;
    }
    const tree = await this.#load(lane.record, head);
    const anchored = this.#parts.anchor.last(lane.record.origin);
    if (anchored !== null) {
      const root =
        anchored.size <= tree.size ? await tree.rootAt(anchored.size, this.#tiles(lane.record)) : null;
      if (!root?.equals(anchored.root)) {
        throw new LogBehindAnchor(
          lane.record.origin,
          `the database lacks what was signed at size ${anchored.size}`,
        );
      }
    }
    return tree;
  }

  async #load(record: LogRecord, head: Head): Promise<LogTree> {
    const tree = await this.treeOf(record, head.size);
    const frontier = head.frontier.length === 0 ? tree.root : foldNodes(head.frontier);
    if (!tree.root.equals(head.root) || !frontier.equals(head.root)) {
      throw new TreeDamaged(
        `${record.origin}: entries, tiles and head row disagree at size ${head.size}; run belay log fsck`,
      );
    }
    return tree;
  }

  async #leaves(record: LogRecord, from: number, to: number): Promise<Hash[]> {
    if (from === to) return [];
    const { store } = this.#parts;
    const config = await store.config(record);
    const names = new Map([...config.sinks.values()].map((sink) => [sink.sink, sink.name]));
    const runs = await store.runs(record, from, to);
    const leaves: Hash[] = [];
    let at = 0;
    let maker: EntryMaker | null = null;
    for (const { index, line } of await store.lines(record, from, to)) {
      let run = runs[at];
      while (run && index >= run.first + run.count) {
        run = runs[++at];
        maker = null;
      }
      if (!run || index < run.first) throw new TreeDamaged(`${record.origin}: entry ${index} has no run`);
      maker ??= entryMakerOf(record.origin, run, names.get(run.sink));
      leaves.push(leafHash(maker.entry(index, line, run.conflict ?? undefined)));
    }
    return leaves;
  }

  #tiles(record: LogRecord): TileReader {
    return (level, n) => this.#parts.store.tile(record, level, n);
  }

  async #configAt(lane: Lane, tx: LogTx): Promise<LogConfig> {
    if (lane.config?.version !== tx.head.config) {
      lane.config = { version: tx.head.config, value: await tx.config() };
    }
    return lane.config.value;
  }

  #halt(lane: Lane, reason: string): void {
    if (lane.halted !== null) return;
    lane.halted = reason;
    this.#parts.report?.({ event: 'halted', origin: lane.record.origin, reason });
  }
}

type Answer =
  | { readonly kind: 'fault'; readonly fault: CollectorFault | StaleFault }
  | { readonly kind: 'sign' }
  | { readonly kind: 'changed'; readonly index: number }
  | { readonly kind: 'recorded'; readonly indexes: readonly number[] }
  | {
      readonly kind: 'placed';
      readonly placed: readonly (Placed | null)[];
      readonly refused: AppendRequest['refused'];
    };

/**
 * The time of a commit: later than every commit before it, whatever the clock says. So entries share a time exactly when
 * they share a commit, and the entries alone show the sizes of the heads that acks sign.
 */
function nextTime(now: number, head: Head): number {
  return Math.max(now, head.received + 1);
}

/** What a pending request counts in the queue. */
function weightOf(pending: Pending): number {
  switch (pending.kind) {
    case 'append':
      return pending.request.lines.length;
    case 'record':
      return pending.statements.length;
    case 'sign':
      return 0;
    case 'change':
    case 'receipt':
      return 1;
  }
}

/** Changes after which `LogConfig` is another. */
const CONFIGURES: ReadonlySet<StateChange['kind']> = new Set([
  'token.issued',
  'token.revoked',
  'auditor.issued',
  'auditor.revoked',
  'sink.declared',
  'policy.set',
]);

/** Asks the store once for every watermark that this commit needs and memory does not have. */
async function readWatermarks(
  lane: Lane,
  tx: LogTx,
  config: LogConfig,
  batch: readonly Pending[],
): Promise<void> {
  // Before anything is looked up: what this commit needs must not be forgotten after it was found to be there.
  if (lane.watermarks.size + batch.length > WATERMARKS) lane.watermarks.clear();
  const missing = new Map<string, { sink: number; epoch: string }>();
  for (const pending of batch) {
    if (pending.kind !== 'append') continue;
    const { epoch } = pending.request;
    const sink = config.sinks.get(pending.request.sink)?.sink;
    if (sink !== undefined && !lane.watermarks.has(`${sink} ${epoch}`))
      missing.set(`${sink} ${epoch}`, { sink, epoch });
  }
  if (missing.size === 0) return;
  const next = await tx.epochs([...missing.values()]);
  [...missing.keys()].forEach((key, at) => lane.watermarks.set(key, next[at] as EpochMark));
}

/** Decides for every line of a request whether it is new, and drafts those that are. */
async function place(
  lane: Lane,
  tx: LogTx,
  draft: Draft,
  config: LogConfig,
  pending: PendingAppend,
): Promise<Answer> {
  const { request } = pending;
  const token = config.tokens.get(request.token);
  const gate = mayAppend(token, request, draft.received, tx.head.size);
  if (gate) return { kind: 'fault', fault: gate };
  const known = config.sinks.get(request.sink);
  const batch = vouch(lane, known, pending);
  if (batch !== null && 'kind' in batch) return { kind: 'fault', fault: batch };
  const sink = known?.sink ?? newSink(draft, config, request.sink);
  const key = `${sink} ${request.epoch}`;
  let mark = draft.watermarks.get(key);
  if (!mark) {
    const stored = lane.watermarks.get(key) ?? { nextSeq: 1, closed: null };
    mark = {
      sink,
      epoch: request.epoch,
      next: stored.nextSeq,
      closed: stored.closed,
      stored,
      drafted: new Map(),
      conflicts: new Map(),
    };
    draft.watermarks.set(key, mark);
  }
  const facts: RunFacts = {
    token: request.token,
    role: (token as TokenState).role,
    received: draft.received,
    batch,
    conflict: null,
    late: isLate(mark.stored, draft.received, config.policy),
  };
  const maker = entryMakerOf(lane.record.origin, facts, request.sink);
  const earlier = new Earlier(tx, draft, mark, request);
  const rate = new Meter(lane, token as TokenState, draft.received);
  const placed: (Placed | null)[] = [];
  for (let at = 0; at < request.lines.length; at++) {
    const seq = request.seqs[at] ?? null;
    const line = request.lines[at] as Buffer;
    if (seq === null) {
      placed.push(null);
      continue;
    }
    const before = seq < mark.next ? await earlier.find(seq, line) : null;
    if (before && 'same' in before) {
      placed.push(before.same);
      continue;
    }
    // Asked at the first new line only, so that nothing of this request is drafted when the answer is no.
    const wait = rate.charge();
    if (wait > 0) {
      const message = `the token's ${token?.rate} lines a minute are used up`;
      return { kind: 'fault', fault: { kind: 'refused', code: 'rate_limited', message, retryAfter: wait } };
    }
    placed.push(
      before
        ? draftConflict(draft, maker, facts, mark, seq, line, before.other)
        : draftLine(draft, maker, facts, mark, seq, line),
    );
  }
  rate.keep();
  return { kind: 'placed', placed, refused: request.refused };
}

/**
 * Finds what already stands under a seq below the watermark: in this draft, or in the store. The store is asked at most
 * four times per request, however its seqs are ordered or spread: this runs while the head row is locked.
 */
class Earlier {
  readonly #tx: LogTx;
  readonly #draft: Draft;
  readonly #mark: Mark;
  readonly #request: AppendRequest;
  #loaded = false;
  /** By seq: the stored line that is not a conflict. */
  readonly #lines = new Map<number, { readonly index: number; readonly line: Buffer; readonly run: Run }>();
  /** By `conflictKey`: the stored line that had these other bytes. */
  readonly #told = new Map<string, { readonly index: number; readonly run: Run }>();

  constructor(tx: LogTx, draft: Draft, mark: Mark, request: AppendRequest) {
    this.#tx = tx;
    this.#draft = draft;
    this.#mark = mark;
    this.#request = request;
  }

  async find(seq: number, line: Buffer): Promise<{ same: Placed } | { other: number } | null> {
    const first = this.#drafted(this.#mark.drafted.get(seq)) ?? (await this.#stored(seq));
    if (!first) return null;
    if (first.line.equals(line)) {
      return { same: { disposition: 'duplicate', index: first.index, run: first.run } };
    }
    const key = conflictKey(seq, line);
    const told = this.#drafted(this.#mark.conflicts.get(key)) ?? this.#told.get(key);
    return told
      ? { same: { disposition: 'conflict', index: told.index, run: told.run } }
      : { other: first.index };
  }

  #drafted(index: number | undefined): { index: number; line: Buffer; run: Run } | undefined {
    if (index === undefined) return undefined;
    return {
      index,
      line: this.#draft.lines[index - this.#draft.base] as Buffer,
      run: this.#draft.runAt(index),
    };
  }

  async #stored(seq: number): Promise<{ index: number; line: Buffer; run: Run } | undefined> {
    if (seq >= this.#mark.stored.nextSeq) return undefined;
    if (!this.#loaded) await this.#load();
    return this.#lines.get(seq);
  }

  async #load(): Promise<void> {
    this.#loaded = true;
    const { sink, epoch, stored } = this.#mark;
    const { seqs, lines } = this.#request;
    const low = [...new Set(seqs.filter((seq) => seq !== null && seq < stored.nextSeq))] as number[];
    const runs = await this.#tx.runs(sink, epoch, low);
    const wanted: { seq: number; index: number; run: Run }[] = [];
    for (const seq of low) {
      const run = lastAtOrBefore(runs, seq, (one) => one.firstSeq);
      if (run && seq < run.firstSeq + run.count)
        wanted.push({ seq, index: run.first + (seq - run.firstSeq), run });
    }
    const found = await this.#tx.linesAt(wanted.map((one) => one.index));
    for (const { seq, index, run } of wanted) {
      const line = found.get(index);
      if (!line) throw new TreeDamaged(`entry ${index} is missing`);
      this.#lines.set(seq, { index, line, run });
    }
    const others = new Map<string, { seq: number; hash: Buffer }>();
    seqs.forEach((seq, at) => {
      const line = lines[at] as Buffer;
      if (seq === null || !this.#lines.has(seq) || this.#lines.get(seq)?.line.equals(line)) return;
      others.set(conflictKey(seq, line), { seq, hash: createHash('sha256').update(line).digest() });
    });
    if (others.size === 0) return;
    const told = await this.#tx.conflicts(sink, epoch, [...others.values()]);
    const toldRuns = await this.#tx.runsAt(told.map((one) => one.index));
    for (const { seq, hash, index } of told) {
      const run = lastAtOrBefore(toldRuns, index, (one) => one.first);
      if (!run) throw new TreeDamaged(`entry ${index} has no run`);
      this.#told.set(`${seq} ${hash.toString('hex')}`, { index, run });
    }
  }
}

function conflictKey(seq: number, line: Buffer): string {
  return `${seq} ${createHash('sha256').update(line).digest('hex')}`;
}

/** The last of `sorted` whose key is not above `value`. */
function lastAtOrBefore<T>(sorted: readonly T[], value: number, key: (one: T) => number): T | undefined {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (key(sorted[middle] as T) <= value) low = middle + 1;
    else high = middle;
  }
  return sorted[low - 1];
}

function draftLine(
  draft: Draft,
  maker: EntryMaker,
  facts: RunFacts,
  mark: Mark,
  seq: number,
  line: Buffer,
): Placed {
  const index = draft.size;
  draft.lines.push(line);
  draft.leaves.push(leafHash(maker.entry(index, line)));
  mark.drafted.set(seq, index);
  if (seq >= mark.next) mark.next = seq + 1;
  if (closes(line)) mark.closed = draft.received;
  const open = draft.open;
  // Same facts object: the same request, hence the same token, role, time and signature.
  if (
    open?.facts === facts &&
    open.run.first + open.run.count === index &&
    open.run.firstSeq + open.run.count === seq
  ) {
    open.run.count++;
  } else {
    const run: DraftRun = {
      first: index,
      count: 1,
      sink: mark.sink,
      epoch: mark.epoch,
      firstSeq: seq,
      ...facts,
    };
    draft.runs.push(run);
    draft.open = { run, facts };
  }
  return { disposition: 'appended', index, run: facts };
}

/**
 * By what was there before this commit: all its lines came at one time, so none is later than another. That an epoch
 * which never closed has said nothing for long is not looked at: the times of its lines show it.
 */
function isLate({ closed }: EpochMark, received: number, { lateness }: LogPolicy): boolean {
  return closed !== null && received - closed > lateness * 1_000;
}

const CLOSE = Buffer.from('epoch.close');
const BACKSLASH = 0x5c;

/**
 * Whether a line is an `epoch.close`. Its kind stands there as it is, or with escapes, which nobody needs to write; so
 * nearly every line is told by two searches, and only the few that may be one are read.
 */
function closes(line: Buffer): boolean {
  if (!line.includes(CLOSE) && !line.includes(BACKSLASH)) return false;
  try {
    return parseEnvelope(line).kind === 'epoch.close';
  } catch (error) {
    // The gateway has read it; one of a later version knows more than this collector.
    if (error instanceof EnvelopeError) return false;
    throw error;
  }
}

function draftConflict(
  draft: Draft,
  maker: EntryMaker,
  facts: RunFacts,
  mark: Mark,
  seq: number,
  line: Buffer,
  first: number,
): Placed {
  const index = draft.size;
  const { sink, epoch } = mark;
  const run: DraftRun = { first: index, count: 1, sink, epoch, firstSeq: seq, ...facts, conflict: first };
  draft.lines.push(line);
  draft.leaves.push(leafHash(maker.entry(index, line, first)));
  draft.runs.push(run);
  draft.conflicts.push({ sink, epoch, seq, hash: createHash('sha256').update(line).digest(), index });
  mark.conflicts.set(conflictKey(seq, line), index);
  return { disposition: 'conflict', index, run };
}

function mayAppend(
  token: TokenState | undefined,
  request: AppendRequest,
  received: number,
  size: number,
): CollectorFault | null {
  if (!token) return refused('not_found', 'the token is not one of this project');
  if (token.revokedIndex !== null)
    return refused('token_revoked', `the token was revoked by entry ${token.revokedIndex}`);
  if (token.expires !== null && received >= token.expires) {
    return refused('token_expired', `the token expired at ${new Date(token.expires).toISOString()}`);
  }
  if (token.sinks && !token.sinks.includes(request.sink)) {
    return refused('sink_not_allowed', `the token may append for ${token.sinks.join(', ')} only`, 'sink');
  }
  if (request.head !== undefined && request.head > size) {
    return refused(
      'head_ahead',
      `the log has ${size} entries; a signed head of size ${request.head} was shown before`,
      'Belay-Head',
    );
  }
  return null;
}

/** The signature that vouches for a request; null for a sink without a declared key. */
function vouch(
  lane: Lane,
  sink: SinkState | undefined,
  pending: PendingAppend,
): BatchSignature | CollectorFault | null {
  if (!sink?.key) return null;
  const { request } = pending;
  const fingerprint = keyFingerprint(sink.key);
  const firstSeq = request.seqs[0] ?? null;
  if (!request.signature) {
    return refused(
      'signature_required',
      `sink ${sink.name} is declared with key ${fingerprint}; sign the batch`,
      'Belay-Signature',
    );
  }
  if (firstSeq === null)
    return refused('signature_invalid', 'the first line of a signed batch must be valid', 'Belay-Signature');
  if (pending.verified !== fingerprint) {
    pending.verified = isSigned(lane.record.origin, sink.key, request) ? fingerprint : false;
  }
  if (pending.verified === false) {
    return refused(
      'signature_invalid',
      `not a signature over these lines by key ${fingerprint}`,
      'Belay-Signature',
    );
  }
  return { fingerprint, firstSeq, count: request.lines.length, signature: request.signature };
}

/** Checks a signature before the head row is locked, when the sink's key is known already. */
function preverify(lane: Lane, pending: PendingAppend): void {
  const key = lane.config?.value.sinks.get(pending.request.sink)?.key;
  if (key && pending.request.signature) {
    pending.verified = isSigned(lane.record.origin, key, pending.request) ? keyFingerprint(key) : false;
  }
}

function isSigned(log: string, key: Buffer, request: AppendRequest): boolean {
  const firstSeq = request.seqs[0];
  if (firstSeq === null || firstSeq === undefined || request.signature?.length !== 64) return false;
  const message = batchMessage({
    log,
    sink: request.sink,
    epoch: request.epoch,
    firstSeq,
    count: request.lines.length,
    root: batchRoot(request.lines),
  });
  return verifySignature(null, message, publicKeyObject(key), request.signature);
}

function newSink(draft: Draft, config: LogConfig, name: string): number {
  const drafted = draft.sinks.find((sink) => sink.name === name);
  if (drafted) return drafted.sink;
  const sink = config.sinks.size + draft.sinks.length + 1;
  draft.sinks.push({ sink, name });
  return sink;
}

/** A token or an auditor's key: entries a minute, null for as many as there are. */
interface Metered {
  readonly id: string;
  readonly rate: number | null;
}

/** Labels that one auditor may set in a minute: a label is an entry for ever, and its session is judged again. */
const LABELS_A_MINUTE = 120;

/**
 * Charges an auditor's label, by the rule of a token's lines. Throws `ChangeRefused`. One whose commit fails was
 * charged all the same: at worst an auditor waits half a second longer.
 */
function chargeLabel(lane: Lane, auditor: string, now: number): void {
  const meter = new Meter(lane, { id: auditor, rate: LABELS_A_MINUTE }, now);
  const wait = meter.charge();
  if (wait > 0) {
    const message = `the auditor's ${LABELS_A_MINUTE} labels a minute are used up`;
    throw new ChangeRefused({ kind: 'refused', code: 'rate_limited', message, retryAfter: wait });
  }
  meter.keep();
}

/**
 * The rate of one token, for one request. Whoever has not used up a minute's lines may append one request more, however
 * large; what it goes beyond is paid back before the next. So every request gets through at last, and the average
 * holds. Every stored line is charged, conflicts too; resent ones cost nothing.
 */
class Meter {
  readonly #lane: Lane;
  readonly #token: Metered;
  readonly #now: number;
  #charged = 0;
  constructor(lane: Lane, token: Metered, now: number) {
    this.#lane = lane;
    this.#token = token;
    this.#now = now;
  }

  /** Charges one line; seconds to wait instead, at the first line of a request, when there is nothing left. */
  charge(): number {
    if (this.#token.rate === null) return 0;
    const debt = (this.#lane.paidUntil.get(this.#token.id) ?? 0) - this.#now - 60_000;
    if (this.#charged === 0 && debt >= 0) return Math.max(1, Math.ceil(debt / 1_000));
    this.#charged++;
    return 0;
  }

  /** The request is placed: what it charged counts. */
  keep(): void {
    if (this.#token.rate === null || this.#charged === 0) return;
    const paid = Math.max(this.#now, this.#lane.paidUntil.get(this.#token.id) ?? 0);
    this.#lane.paidUntil.set(this.#token.id, paid + (this.#charged * 60_000) / this.#token.rate);
  }
}

const NOTHING_YET: LogConfig = {
  policy: { public: false, lateness: 0 },
  tokens: new Map(),
  sinks: new Map(),
  auditors: new Map(),
};

class ChangeRefused extends Error {
  readonly fault: CollectorFault | StaleFault;
  constructor(fault: CollectorFault | StaleFault) {
    super(fault.message);
    this.fault = fault;
  }
}

/** Drafts what stands alone in its commit. A refusal drafts nothing. */
async function carryOut(
  lane: Lane,
  tx: LogTx,
  draft: Draft,
  config: LogConfig,
  pending: PendingAlone,
  changes: StateChange[],
): Promise<Answer> {
  try {
    if (pending.kind === 'record') {
      return { kind: 'recorded', indexes: await state(lane.record, tx, draft, pending.statements, changes) };
    }
    const index = draft.size;
    if (pending.kind === 'change') {
      const { change } = pending;
      if (change.kind === 'label.set') chargeLabel(lane, change.by, draft.received);
      changes.push(apply(draft, lane.record, change, config));
    } else {
      await mayIssue(tx, pending);
      write(draft, lane.record, pending.body);
      changes.push({ kind: 'receipt.issued', receipt: { ...pending.receipt, index } });
    }
    return { kind: 'changed', index };
  } catch (error) {
    if (error instanceof ChangeRefused) return { kind: 'fault', fault: error.fault };
    if (error instanceof EnvelopeError) {
      return {
        kind: 'fault',
        fault: { kind: 'refused', code: 'invalid', field: error.field, message: error.message },
      };
    }
    throw error;
  }
}

/** Refuses a receipt that does not follow the last one of its scope. Those of entries follow nothing. */
async function mayIssue(tx: LogTx, { receipt, body }: PendingReceipt): Promise<void> {
  const { type } = body.scope;
  if (type !== 'session' && type !== 'period') return;
  const last = await tx.lastReceipt(receipt.scope);
  if (last?.asOf === receipt.asOf) {
    throw new ChangeRefused(
      refused('exists', `there is a receipt of this ${type} as of ${last.asOf}`, 'asOf'),
    );
  }
  const follows = last === null ? undefined : `sha256:${last.digest.toString('hex')}`;
  if (body.supersedes !== follows || (last !== null && receipt.asOf < last.asOf)) {
    throw new ChangeRefused({
      kind: 'refused',
      code: 'stale',
      field: 'supersedes',
      message:
        last === null
          ? `there is no receipt of this ${type} to supersede`
          : `the last receipt of this ${type} is ${follows}, as of ${last.asOf}`,
    });
  }
}

/** Drafts the entries of those statements that have none, and returns the indexes of all. */
async function state(
  record: LogRecord,
  tx: LogTx,
  draft: Draft,
  statements: readonly CheckedStatement[],
  changes: StateChange[],
): Promise<number[]> {
  const known = await tx.statements(statements.map(({ digest }) => digest));
  for (const { body } of statements) {
    if (body.size > tx.head.size) {
      const message = `the log has ${tx.head.size} entries; a statement about ${body.size} was made of another log`;
      throw new ChangeRefused(refused('invalid', message, 'size'));
    }
    // Before the first is drafted: all of them or none.
    formatCollectorBody(body);
  }
  return statements.map(({ body, digest, bytes }) => {
    const key = digest.toString('hex');
    const index = known.get(key) ?? draft.size;
    if (index === draft.size) {
      write(draft, record, body);
      changes.push({ kind: 'coverage.stated', digest, bytes, index });
      known.set(key, index);
    }
    return index;
  });
}

/** Drafts the entry of a change and returns the rows that go with it. */
function apply(draft: Draft, record: LogRecord, change: ProjectChange, config: LogConfig): StateChange {
  const { by } = change;
  const index = draft.size;
  switch (change.kind) {
    case 'token.issue': {
      if (config.tokens.has(change.token))
        throw new ChangeRefused(refused('exists', 'a token of this identifier exists', 'token'));
      const expires = change.expires === undefined ? null : Date.parse(change.expires);
      if (expires !== null && expires <= draft.received) {
        throw new ChangeRefused(refused('invalid', 'expires lies in the past', 'expires'));
      }
      write(draft, record, {
        kind: 'token.issued',
        v: 1,
        token: change.token,
        role: change.role,
        by,
        ...(change.sinks ? { sinks: change.sinks } : {}),
        ...(change.expires === undefined ? {} : { expires: change.expires }),
        ...(change.domain === undefined ? {} : { domain: change.domain }),
      });
      const token: TokenState = {
        id: change.token,
        role: change.role,
        sinks: change.sinks ?? null,
        domain: change.domain ?? null,
        expires,
        rate: change.rate ?? null,
        issuedBy: by,
        issuedIndex: index,
        revokedIndex: null,
      };
      return { kind: 'token.issued', token, secretHash: change.secretHash };
    }
    case 'token.revoke': {
      const token = config.tokens.get(change.token);
      if (!token) throw new ChangeRefused(refused('not_found', 'no such token', 'token'));
      if (token.revokedIndex !== null)
        throw new ChangeRefused(
          refused('exists', `revoked already, by entry ${token.revokedIndex}`, 'token'),
        );
      write(draft, record, { kind: 'token.revoked', v: 1, token: change.token, by });
      return { kind: 'token.revoked', token: change.token, index };
    }
    case 'auditor.issue':
      write(draft, record, { kind: 'auditor.issued', v: 1, auditor: change.auditor, by });
      return { kind: 'auditor.issued', auditor: change.auditor, secretHash: change.secretHash, by, index };
    case 'auditor.revoke': {
      const auditor = config.auditors.get(change.auditor);
      if (!auditor) throw new ChangeRefused(refused('not_found', 'no such auditor key', 'auditor'));
      if (auditor.revokedIndex !== null) {
        const message = `revoked already, by entry ${auditor.revokedIndex}`;
        throw new ChangeRefused(refused('exists', message, 'auditor'));
      }
      write(draft, record, { kind: 'auditor.revoked', v: 1, auditor: change.auditor, by });
      return { kind: 'auditor.revoked', auditor: change.auditor, index };
    }
    case 'sink.declare': {
      const known = config.sinks.get(change.sink);
      write(draft, record, {
        kind: 'sink.declared',
        v: 1,
        sink: change.sink,
        by,
        ...(change.sinkKind === undefined ? {} : { sinkKind: change.sinkKind as never }),
        ...(change.required === undefined ? {} : { required: change.required }),
        ...(change.domain === undefined ? {} : { domain: change.domain }),
        ...(change.key ? { key: base64(change.key), fingerprint: keyFingerprint(change.key) } : {}),
        ...(change.heartbeat === undefined ? {} : { heartbeat: change.heartbeat }),
      });
      return {
        kind: 'sink.declared',
        sink: {
          sink: known?.sink ?? config.sinks.size + 1,
          name: change.sink,
          declared: index,
          kind: change.sinkKind ?? null,
          required: change.required ?? false,
          domain: change.domain ?? null,
          key: change.key ?? null,
          heartbeat: change.heartbeat ?? null,
        },
      };
    }
    case 'policy.set': {
      const policy = change.policy as unknown as PolicyReference;
      try {
        write(draft, record, { kind: 'policy.set', v: 1, policy, by });
      } catch (error) {
        if (!(error instanceof EnvelopeError) || error.code !== 'too_long') throw error;
        const message = `a policy has to fit one entry: ${error.message}`;
        throw new ChangeRefused(refused('invalid', message, 'policy'));
      }
      return { kind: 'policy.set', policy: change.policy, index };
    }
    case 'label.set': {
      const auditor = config.auditors.get(by);
      if (!auditor) throw new ChangeRefused(refused('not_found', 'no such auditor key', 'by'));
      if (auditor.revokedIndex !== null) {
        const message = `the auditor's key was revoked by entry ${auditor.revokedIndex}`;
        throw new ChangeRefused(refused('token_revoked', message, 'by'));
      }
      const { session, call, says } = change;
      write(draft, record, {
        kind: 'label.set',
        v: 1,
        session,
        says,
        by,
        ...(call === undefined ? {} : { call }),
      });
      return { kind: 'label.set', label: { index, session, call: call ?? null, says, auditor: by } };
    }
  }
}

/** Drafts an entry that the collector writes itself. */
function write(draft: Draft, record: LogRecord, body: CollectorBody): void {
  const line = formatCollectorBody(body);
  const facts: RunFacts = {
    token: '',
    role: 'collector',
    received: draft.received,
    batch: null,
    conflict: null,
    late: false,
  };
  const maker = entryMakerOf(record.origin, facts, undefined);
  const index = draft.size;
  draft.lines.push(line);
  draft.leaves.push(leafHash(maker.entry(index, line)));
  const last = draft.runs[draft.runs.length - 1];
  if (last?.role === 'collector') last.count++;
  else draft.runs.push({ first: index, count: 1, sink: 0, epoch: '', firstSeq: 0, ...facts });
}

function finish(draft: Draft, tree: LogTree, config: number, changes: readonly StateChange[]): LogWrite {
  return {
    head: { size: tree.size, root: tree.root, frontier: tree.frontier, received: draft.received, config },
    runs: draft.runs,
    lines: draft.lines,
    epochs: [...draft.watermarks.values()]
      .filter(({ next, closed, stored }) => next !== stored.nextSeq || closed !== stored.closed)
      .map(({ sink, epoch, next: nextSeq, closed }) => ({ sink, epoch, nextSeq, closed })),
    sinks: draft.sinks,
    conflicts: draft.conflicts,
    tiles: draft.lines.length === 0 ? [] : tree.tiles,
    changes,
  };
}

/** Whether the second of two neighbouring lines goes into the first one's run of the ack. */
function continues(before: Placed, next: Placed | null): boolean {
  if (!next || next.disposition !== before.disposition || next.disposition === 'conflict') return false;
  if (next.index !== before.index + 1) return false;
  const a = before.run;
  const b = next.run;
  return (
    a === b ||
    (a.token === b.token &&
      a.role === b.role &&
      a.received === b.received &&
      a.late === b.late &&
      a.batch?.fingerprint === b.batch?.fingerprint)
  );
}

function base64(bytes: Buffer): string {
  return bytes.toString('base64');
}

type RefusedCode = Extract<CollectorFault, { kind: 'refused' }>['code'];

function refused(code: RefusedCode, message: string, field?: string): CollectorFault {
  return { kind: 'refused', code, message, ...(field === undefined ? {} : { field }) };
}

function notFound<T>(what: string): Outcome<T> {
  return { ok: false, fault: refused('not_found', `no such ${what}`) };
}

function halted<T>(reason: string): Outcome<T> {
  return { ok: false, fault: { kind: 'halted', code: 'log_halted', message: reason } };
}

function shuttingDown<T>(): Outcome<T> {
  return {
    ok: false,
    fault: { kind: 'retry', code: 'shutting_down', message: 'the collector is stopping', retryAfter: 2 },
  };
}

function unavailable<T>(error: unknown): Outcome<T> {
  const detail = error instanceof Error ? error.message : String(error);
  return {
    ok: false,
    fault: {
      kind: 'retry',
      code: 'unavailable',
      message: `the log could not be written: ${detail}`,
      retryAfter: 1,
    },
  };
}

function faultOf<T>(error: unknown): Outcome<T> {
  if (error instanceof StoreRefusal) return { ok: false, fault: refused(error.code, error.message) };
  if (error instanceof EnvelopeError)
    return {
      ok: false,
      fault: { kind: 'refused', code: 'invalid', field: error.field, message: error.message },
    };
  return unavailable(error);
}
