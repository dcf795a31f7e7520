import {
  type AuditorState,
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
  type StoredCheckpoint,
  type StoredConflict,
  type StoredLabel,
  type StoredReceipt,
  type StoredStatement,
  StoreRefusal,
  type TokenState,
} from '@belay/log';
import { EMPTY_ROOT } from '@belay/merkle';

/** Where a transaction fails: with nothing applied, or applied and reported as failed. */
export type Fault = 'before' | 'after';

/** A fault that was asked for. */
export class InjectedFault extends Error {
  constructor(fault: Fault) {
    super(fault === 'before' ? 'injected: not applied' : 'injected: applied, but reported as failed');
    this.name = 'InjectedFault';
  }
}

interface MemoryLog {
  readonly record: LogRecord;
  head: Head;
  readonly lines: Buffer[];
  readonly runs: Run[];
  readonly epochs: Map<string, EpochMark>;
  readonly sinks: Map<string, SinkState>;
  readonly tokens: Map<string, TokenState>;
  readonly auditors: Map<string, AuditorState>;
  readonly conflicts: StoredConflict[];
  readonly tiles: Map<string, Buffer>;
  readonly checkpoints: StoredCheckpoint[];
  readonly receipts: StoredReceipt[];
  readonly policies: Map<number, LogPolicy>;
  readonly labels: StoredLabel[];
  /** By digest, in hex. */
  readonly statements: Map<string, StoredStatement>;
  /** The head row's lock. */
  lock: Promise<void>;
}

/**
 * `LogStore` in memory, for tests that need thousands of runs or faults at an exact place. It keeps the contract of
 * the real one: the lock, all-or-nothing writes, reads of committed state only; and it breaks the test, by throwing
 * where the database's constraints would, when the sequencer writes what must not be written.
 */
export class MemoryLogStore implements LogStore {
  readonly #logs: MemoryLog[] = [];
  readonly #tenants = new Set<string>();
  /** Faults for the next transactions, in order; undefined lets one pass. */
  readonly faults: (Fault | undefined)[] = [];
  /** Reads inside transactions so far. */
  queries = 0;
  /** Called between the parts of a transaction, so that a test can interleave others. */
  pause: () => Promise<void> = () => Promise.resolve();

  async createTenant(tenant: { readonly id: string }): Promise<void> {
    if (this.#tenants.has(tenant.id)) throw new StoreRefusal('exists', 'a tenant of this identifier exists');
    this.#tenants.add(tenant.id);
  }

  async find(by: { project: string } | { id: string }): Promise<LogRecord | null> {
    const found = this.#logs.find((log) =>
      'project' in by ? log.record.project === by.project : log.record.id === by.id,
    );
    return found?.record ?? null;
  }

  async list(): Promise<LogRecord[]> {
    return this.#logs.map((log) => log.record);
  }

  async transact<T>(target: LogRecord | NewLog, work: (tx: LogTx) => Promise<T>): Promise<T> {
    const fault = this.faults.shift();
    const fresh = 'log' in target ? null : this.#create(target);
    const log = fresh ?? this.#of(target as LogRecord);
    const before = log.lock;
    let unlock: () => void = () => undefined;
    log.lock = new Promise((resolve) => (unlock = resolve));
    await before;
    try {
      await this.pause();
      let pending: LogWrite | null = null;
      const result = await work(
        new MemoryTx(
          log,
          () => this.queries++,
          (write) => {
            if (pending) throw new Error('write was called twice in one transaction');
            pending = write;
          },
        ),
      );
      await this.pause();
      if (fault === 'before') throw new InjectedFault('before');
      if (pending) applyWrite(log, pending);
      if (fresh) this.#logs.push(fresh);
      if (fault === 'after') throw new InjectedFault('after');
      return result;
    } finally {
      unlock();
    }
  }

  async head(log: LogRecord): Promise<Head> {
    return this.#of(log).head;
  }

  async config(log: LogRecord): Promise<LogConfig> {
    return configOf(this.#of(log));
  }

  async runs(log: LogRecord, from: number, to: number): Promise<Run[]> {
    return overlapping(this.#of(log).runs, from, to);
  }

  async lines(log: LogRecord, from: number, to: number): Promise<{ index: number; line: Buffer }[]> {
    return linesOf(this.#of(log), from, to);
  }

  async tile(log: LogRecord, level: number, n: number): Promise<Buffer | null> {
    return this.#of(log).tiles.get(`${level}/${n}`) ?? null;
  }

  async epoch(log: LogRecord, sink: number, epoch: string): Promise<EpochMark> {
    return this.#of(log).epochs.get(`${sink} ${epoch}`) ?? NEVER_SEEN;
  }

  async policies(log: LogRecord): Promise<number[]> {
    return [...this.#of(log).policies.keys()];
  }

  async labels(log: LogRecord): Promise<StoredLabel[]> {
    return [...this.#of(log).labels];
  }

  async statements(log: LogRecord, digests: readonly Buffer[]): Promise<Map<string, number>> {
    return statementsOf(this.#of(log), digests);
  }

  async statement(log: LogRecord, digest: Buffer): Promise<StoredStatement | null> {
    return this.#of(log).statements.get(digest.toString('hex')) ?? null;
  }

  async checkpoint(log: LogRecord, size = Infinity): Promise<StoredCheckpoint | null> {
    return this.#of(log).checkpoints.findLast((checkpoint) => checkpoint.size <= size) ?? null;
  }

  async receipt(log: LogRecord, scope: string, asOf?: number): Promise<StoredReceipt | null> {
    const found = this.#of(log).receipts.filter((receipt) => receipt.scope === scope);
    return found.findLast((receipt) => asOf === undefined || receipt.asOf === asOf) ?? null;
  }

  /** What the worker does on the real store. */
  publish(log: LogRecord, checkpoint: StoredCheckpoint): void {
    this.#of(log).checkpoints.push(checkpoint);
  }

  /** Raw access for tests that damage a store. */
  raw(log: LogRecord): {
    head: Head;
    readonly lines: Buffer[];
    readonly runs: Run[];
    readonly tiles: Map<string, Buffer>;
    readonly epochs: Map<string, EpochMark>;
    readonly policies: Map<number, LogPolicy>;
    readonly labels: StoredLabel[];
    readonly statements: Map<string, StoredStatement>;
    readonly receipts: StoredReceipt[];
  } {
    return this.#of(log);
  }

  #of(record: LogRecord): MemoryLog {
    const found = this.#logs.find((log) => log.record.log === record.log);
    if (!found) throw new StoreRefusal('not_found', 'no such log');
    return found;
  }

  #create(target: NewLog): MemoryLog {
    if (!this.#tenants.has(target.tenant)) throw new StoreRefusal('not_found', 'no such tenant');
    if (this.#logs.some((log) => log.record.project === target.project)) {
      throw new StoreRefusal('exists', 'a project of this identifier exists');
    }
    const { name: _name, public: _public, ...record } = target;
    return {
      record: { log: this.#logs.length + 1, ...record },
      head: { size: 0, root: EMPTY_ROOT, frontier: [], received: 0, config: 0 },
      lines: [],
      runs: [],
      epochs: new Map(),
      sinks: new Map(),
      tokens: new Map(),
      auditors: new Map(),
      conflicts: [],
      tiles: new Map(),
      checkpoints: [],
      receipts: [],
      policies: new Map(),
      labels: [],
      statements: new Map(),
      lock: Promise.resolve(),
    };
  }
}

class MemoryTx implements LogTx {
  readonly record: LogRecord;
  readonly head: Head;
  readonly #log: MemoryLog;
  readonly #asked: () => void;
  readonly #write: (write: LogWrite) => void;

  constructor(log: MemoryLog, asked: () => void, write: (write: LogWrite) => void) {
    this.#asked = asked;
    this.#log = log;
    this.#write = write;
    this.record = log.record;
    this.head = log.head;
  }
  async config(): Promise<LogConfig> {
    this.#asked();
    return configOf(this.#log);
  }
  async epochs(keys: readonly { sink: number; epoch: string }[]): Promise<EpochMark[]> {
    this.#asked();
    return keys.map((key) => this.#log.epochs.get(`${key.sink} ${key.epoch}`) ?? NEVER_SEEN);
  }
  async runs(sink: number, epoch: string, seqs: readonly number[]): Promise<Run[]> {
    this.#asked();
    return this.#log.runs
      .filter((run) => run.sink === sink && run.epoch === epoch && run.conflict === null)
      .filter((run) => seqs.some((seq) => seq >= run.firstSeq && seq < run.firstSeq + run.count))
      .sort((a, b) => a.firstSeq - b.firstSeq);
  }
  async conflicts(
    sink: number,
    epoch: string,
    lines: readonly { seq: number; hash: Buffer }[],
  ): Promise<StoredConflict[]> {
    this.#asked();
    return this.#log.conflicts.filter(
      (conflict) =>
        conflict.sink === sink &&
        conflict.epoch === epoch &&
        lines.some((line) => line.seq === conflict.seq && line.hash.equals(conflict.hash)),
    );
  }
  async linesAt(indexes: readonly number[]): Promise<Map<number, Buffer>> {
    this.#asked();
    return new Map(
      indexes.flatMap((index) => linesOf(this.#log, index, index + 1).map(({ line }) => [index, line])),
    );
  }
  async runsAt(indexes: readonly number[]): Promise<Run[]> {
    this.#asked();
    return this.#log.runs.filter((run) =>
      indexes.some((index) => index >= run.first && index < run.first + run.count),
    );
  }
  async statements(digests: readonly Buffer[]): Promise<Map<string, number>> {
    this.#asked();
    return statementsOf(this.#log, digests);
  }
  async lastReceipt(scope: string): Promise<StoredReceipt | null> {
    this.#asked();
    const found = this.#log.receipts.filter((receipt) => receipt.scope === scope);
    return found.sort((a, b) => a.asOf - b.asOf).at(-1) ?? null;
  }
  async write(write: LogWrite): Promise<void> {
    this.#write(write);
  }
}

const NEVER_SEEN: EpochMark = { nextSeq: 1, closed: null };

function configOf(log: MemoryLog): LogConfig {
  return {
    policy: [...log.policies.values()].at(-1) ?? { public: false, lateness: 0 },
    tokens: new Map(log.tokens),
    sinks: new Map(log.sinks),
    auditors: new Map(log.auditors),
  };
}

function statementsOf(log: MemoryLog, digests: readonly Buffer[]): Map<string, number> {
  const keys = digests.map((digest) => digest.toString('hex'));
  return new Map(
    keys.flatMap((key) => {
      const stored = log.statements.get(key);
      return stored ? [[key, stored.index] as const] : [];
    }),
  );
}

function linesOf(log: MemoryLog, from: number, to: number): { index: number; line: Buffer }[] {
  return log.lines.slice(from, to).map((line, at) => ({ index: from + at, line }));
}

function overlapping(runs: readonly Run[], from: number, to: number): Run[] {
  return runs.filter((run) => run.first < to && run.first + run.count > from);
}

/** Applies a write, and throws where the real tables' keys and checks would. */
function applyWrite(log: MemoryLog, write: LogWrite): void {
  const base = log.lines.length;
  must(write.head.size === base + write.lines.length, 'the head does not count the lines');
  must(write.head.received > log.head.received, 'two commits share a time');
  let next = base;
  for (const run of write.runs) {
    must(run.first === next && run.count >= 1, 'runs are not dense');
    next += run.count;
    if (run.conflict !== null || run.sink === 0) continue;
    for (const other of log.runs) {
      const same = other.sink === run.sink && other.epoch === run.epoch && other.conflict === null;
      const apart =
        other.firstSeq + other.count <= run.firstSeq || run.firstSeq + run.count <= other.firstSeq;
      must(!same || apart, `seq ${run.firstSeq} of ${run.epoch} is stored twice`);
    }
    log.runs.push(run);
  }
  must(next === write.head.size, 'runs do not cover the lines');
  log.runs.push(...write.runs.filter((run) => run.conflict !== null || run.sink === 0));
  log.runs.sort((a, b) => a.first - b.first);
  for (const conflict of write.conflicts) {
    must(
      !log.conflicts.some(
        (other) =>
          other.sink === conflict.sink &&
          other.epoch === conflict.epoch &&
          other.seq === conflict.seq &&
          other.hash.equals(conflict.hash),
      ),
      'a conflict is stored twice',
    );
    log.conflicts.push(conflict);
  }
  log.lines.push(...write.lines.map((line) => Buffer.from(line)));
  for (const epoch of write.epochs) {
    const key = `${epoch.sink} ${epoch.epoch}`;
    const before = log.epochs.get(key) ?? NEVER_SEEN;
    must(before.nextSeq <= epoch.nextSeq, 'a watermark went back');
    must((before.closed ?? 0) <= (epoch.closed ?? 0), 'a close went back');
    log.epochs.set(key, { nextSeq: epoch.nextSeq, closed: epoch.closed });
  }
  for (const { sink, name } of write.sinks) {
    must(
      !log.sinks.has(name) && [...log.sinks.values()].every((other) => other.sink !== sink),
      'a sink is stored twice',
    );
    log.sinks.set(name, {
      sink,
      name,
      declared: null,
      kind: null,
      required: false,
      domain: null,
      key: null,
      heartbeat: null,
    });
  }
  for (const tile of write.tiles) {
    must(!log.tiles.has(`${tile.level}/${tile.n}`) && tile.hashes.length === 8_192, 'a tile is stored twice');
    log.tiles.set(`${tile.level}/${tile.n}`, tile.hashes);
  }
  for (const change of write.changes) {
    if (change.kind === 'token.issued') log.tokens.set(change.token.id, change.token);
    else if (change.kind === 'auditor.issued') {
      log.auditors.set(change.auditor, { issuedIndex: change.index, revokedIndex: null });
    } else if (change.kind === 'auditor.revoked') {
      const auditor = log.auditors.get(change.auditor);
      must(auditor, 'an auditor key that is not there was revoked');
      log.auditors.set(change.auditor, { ...auditor, revokedIndex: change.index });
    } else if (change.kind === 'sink.declared') log.sinks.set(change.sink.name, change.sink);
    else if (change.kind === 'receipt.issued') {
      const { scope, asOf } = change.receipt;
      must(
        !log.receipts.some((other) => other.scope === scope && other.asOf === asOf),
        'a receipt is stored twice',
      );
      log.receipts.push(change.receipt);
    } else if (change.kind === 'policy.set') {
      must(!log.policies.has(change.index), 'a policy is stored twice');
      log.policies.set(change.index, change.policy);
    } else if (change.kind === 'label.set') log.labels.push(change.label);
    else if (change.kind === 'coverage.stated') {
      const key = change.digest.toString('hex');
      must(!log.statements.has(key), 'a statement is stored twice');
      log.statements.set(key, { index: change.index, bytes: change.bytes });
    } else if (change.kind === 'token.revoked') {
      const token = log.tokens.get(change.token);
      must(token, 'a token that is not there was revoked');
      log.tokens.set(change.token, { ...token, revokedIndex: change.index });
    }
  }
  log.head = write.head;
}

function must(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`MemoryLogStore: ${message}`);
}
