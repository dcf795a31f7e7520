import { createHash } from 'node:crypto';
import {
  type CoverageStated,
  type Entry,
  type EntryMaker,
  keyFingerprint,
  parseEntry,
  type ReceiptIssued,
} from '@belay/envelope';
import { CompactRange, EMPTY_ROOT, type Hash, leafHash, TILE_WIDTH } from '@belay/merkle';
import { formatVkey, ed25519Verifier, openCheckpoint } from '@belay/note';
import type { Anchor } from './anchor.js';
import { entryMakerOf } from './entries.js';
import { type LogRecord, type LogStore, type Run, scopeText, type StoredCheckpoint } from './store.js';

/** What the whole-log checker can find wrong. */
export type FindingCode =
  | 'hole'
  | 'run'
  | 'entry'
  | 'seq'
  | 'conflict'
  | 'time'
  | 'token'
  | 'sink'
  | 'state'
  | 'tile'
  | 'head'
  | 'anchor'
  | 'checkpoint'
  | 'late'
  | 'statement'
  | 'receipt'
  | 'genesis';

export interface Finding {
  readonly code: FindingCode;
  /** Index of the entry it is about, when it is about one. */
  readonly index?: number;
  readonly message: string;
}

export interface LogReport {
  readonly origin: string;
  readonly size: number;
  readonly root: string;
  readonly entries: number;
  readonly tiles: number;
  readonly checkpoints: number;
  readonly epochs: number;
  /** At most `LIMIT`; `more` counts the rest. */
  readonly findings: readonly Finding[];
  readonly more: number;
}

const LIMIT = 100;
const CHUNK = 4_096;

export interface CheckOptions {
  readonly anchor?: Pick<Anchor, 'last'>;
  readonly onProgress?: (done: number, total: number) => void;
}

/**
 * Checks a whole log against itself: entries dense and well formed, runs exact, seqs unique, conflicts real, times
 * never backwards, nothing late without a close before it, tokens used only between their issue and their revocation,
 * state rows equal to what the entries say, statements and receipts stored as they were recorded, receipts of a session
 * or period each after the last, full tiles, head and frontier equal to the recomputed tree, every checkpoint signed and
 * consistent, the anchor not ahead. Memory: O(tokens + sinks + epochs + labels + sessions with a receipt + one chunk).
 * Reads a log that may grow meanwhile up to the head it found first.
 *
 * Commits have times of their own only since collectors see to it: in an older log two may share one, which is no fault.
 */
export async function checkLog(
  store: LogStore,
  log: LogRecord,
  options: CheckOptions = {},
): Promise<LogReport> {
  const check = new Check(store, log);
  return check.run(options);
}

class Check {
  readonly #store: LogStore;
  readonly #log: LogRecord;
  readonly #findings: Finding[] = [];
  #more = 0;
  readonly #range = CompactRange.empty();
  #tile: Hash[][] = [];
  #tiles = 0;
  #received = 0;
  readonly #tokens = new Map<
    string,
    {
      role: string;
      sinks: readonly string[] | undefined;
      expires: number;
      issued: number;
      revoked: number | null;
    }
  >();
  readonly #sinks = new Map<string, { key: string | undefined; declared: number | null }>();
  /** Per `<sink> <epoch>`: covered seq ranges, sorted and merged. */
  readonly #seqs = new Map<string, [from: number, to: number][]>();
  /** Per `<sink> <epoch>`: when its last `epoch.close` came. */
  readonly #closed = new Map<string, number>();
  readonly #auditors = new Map<string, 'issued' | 'revoked'>();
  readonly #policies = new Set<number>();
  /** By index: what the row of a label has to say. */
  readonly #labels = new Map<number, string>();
  /** Digest of the last receipt of each session and period, by `scopeText`. */
  readonly #issued = new Map<string, string>();

  constructor(store: LogStore, log: LogRecord) {
    this.#store = store;
    this.#log = log;
  }

  async run(options: CheckOptions): Promise<LogReport> {
    const store = this.#store;
    const log = this.#log;
    const head = await store.head(log);
    const config = await store.config(log);
    const names = new Map([...config.sinks.values()].map((sink) => [sink.sink, sink.name]));
    const checkpoints = await this.#checkpoints(head.size);
    let entries = 0;
    let nextCheckpoint = 0;
    const compareCheckpoint = (): void => {
      while (
        nextCheckpoint < checkpoints.length &&
        (checkpoints[nextCheckpoint] as StoredCheckpoint).size <= entries
      ) {
        const checkpoint = checkpoints[nextCheckpoint++] as StoredCheckpoint;
        const root = entries === 0 ? EMPTY_ROOT : this.#range.root();
        if (checkpoint.size === entries && !checkpoint.root.equals(root)) {
          this.#add(
            'checkpoint',
            `the checkpoint of size ${checkpoint.size} has another root than the entries`,
          );
        }
      }
    };
    const anchored = options.anchor?.last(log.origin) ?? null;
    if (anchored && anchored.size > head.size) {
      this.#add('anchor', `the log key signed size ${anchored.size}; the database holds ${head.size}`);
    }
    for (let from = 0; from < head.size; from += CHUNK) {
      const to = Math.min(head.size, from + CHUNK);
      const runs = await store.runs(log, from, to);
      const lines = await store.lines(log, from, to);
      let at = 0;
      let maker: EntryMaker | null = null;
      for (let index = from, next = 0; index < to; index++) {
        const stored = lines[next];
        if (stored?.index !== index) {
          this.#add('hole', 'there is no entry', index);
          return this.#report(head.size, head.root, entries, checkpoints.length);
        }
        next++;
        let run = runs[at];
        while (run && index >= run.first + run.count) {
          const after: Run | undefined = runs[++at];
          if (after && after.first < run.first + run.count)
            this.#add('run', 'two runs hold one entry', after.first);
          run = after;
          maker = null;
        }
        if (!run || index < run.first) {
          this.#add('run', 'no run holds the entry', index);
          return this.#report(head.size, head.root, entries, checkpoints.length);
        }
        maker ??= entryMakerOf(log.origin, run, names.get(run.sink));
        const bytes = maker.entry(index, stored.line, run.conflict ?? undefined);
        await this.#entry(run, index, bytes);
        this.#grow(leafHash(bytes));
        entries++;
        if (run.conflict !== null) await this.#conflict(run, index, stored.line);
        compareCheckpoint();
        if (anchored && anchored.size === entries && !anchored.root.equals(this.#range.root())) {
          this.#add('anchor', `the log key signed another root at size ${entries}`);
        }
      }
      await this.#flushTiles(to);
      options.onProgress?.(to, head.size);
    }
    const root = entries === 0 ? EMPTY_ROOT : this.#range.root();
    if (!root.equals(head.root)) this.#add('head', 'the head row has another root than the entries');
    const frontier = this.#range.hashes;
    if (
      frontier.length !== head.frontier.length ||
      frontier.some((hash, at) => !hash.equals(head.frontier[at] as Hash))
    ) {
      this.#add('head', 'the frontier of the head row is not that of the entries');
    }
    if (head.received < this.#received) this.#add('head', 'the head row is older than the last entry');
    await this.#state(head.size);
    return this.#report(head.size, head.root, entries, checkpoints.length);
  }

  async #entry(run: Run, index: number, bytes: Buffer): Promise<void> {
    let entry: Entry;
    try {
      entry = parseEntry(bytes);
    } catch (error) {
      this.#add('entry', error instanceof Error ? error.message : String(error), index);
      return;
    }
    if (run.received < this.#received) this.#add('time', 'received before the entry in front of it', index);
    this.#received = Math.max(this.#received, run.received);
    if (index === 0 && (entry.by !== 'collector' || entry.statement.kind !== 'log.genesis')) {
      this.#add('genesis', 'entry 0 is not the genesis entry', 0);
    }
    if (entry.by === 'collector') {
      await this.#statement(entry, index);
      return;
    }
    const { envelope, line } = entry;
    const token = this.#tokens.get(line.token ?? '');
    if (!token) this.#add('token', `token ${line.token} was never issued`, index);
    else {
      if (token.revoked !== null)
        this.#add('token', `token ${line.token} was revoked by entry ${token.revoked}`, index);
      if (token.role !== line.role)
        this.#add('token', `token ${line.token} has role ${token.role}, not ${line.role}`, index);
      if (token.sinks && !token.sinks.includes(envelope.sink))
        this.#add('token', `token ${line.token} is not for sink ${envelope.sink}`, index);
      if (run.received >= token.expires) this.#add('token', `token ${line.token} had expired`, index);
    }
    const sink = this.#sinks.get(envelope.sink) ?? { key: undefined, declared: null };
    this.#sinks.set(envelope.sink, sink);
    const fingerprint = sink.key === undefined ? undefined : keyFingerprint(Buffer.from(sink.key, 'base64'));
    if (line.signed !== fingerprint)
      this.#add(
        'sink',
        `signed by ${line.signed ?? 'nobody'}, the sink's key is ${fingerprint ?? 'none'}`,
        index,
      );
    const key = `${run.sink} ${run.epoch}`;
    if (run.late && (this.#closed.get(key) ?? Infinity) >= run.received)
      this.#add('late', 'is said to be late, and no close of its epoch came before it', index);
    if (run.conflict !== null) return;
    if (envelope.kind === 'epoch.close') this.#closed.set(key, run.received);
    const seq = run.firstSeq + (index - run.first);
    if (envelope.seq !== seq || envelope.epoch !== run.epoch) {
      this.#add('run', `the run says ${run.epoch}/${seq}, the line ${envelope.epoch}/${envelope.seq}`, index);
    }
    if (!this.#cover(key, seq)) this.#add('seq', `seq ${seq} of epoch ${run.epoch} stands twice`, index);
  }

  async #statement(entry: Extract<Entry, { by: 'collector' }>, index: number): Promise<void> {
    const { statement } = entry;
    switch (statement.kind) {
      case 'log.genesis':
        if (index !== 0) this.#add('genesis', 'a second genesis entry', index);
        if (statement.vkey !== formatVkey(this.#log.origin, this.#log.publicKey))
          this.#add('genesis', 'names another key than the log row', index);
        this.#policies.add(index);
        return;
      case 'token.issued':
        this.#tokens.set(statement.token, {
          role: statement.role,
          sinks: statement.sinks,
          expires: statement.expires === undefined ? Infinity : Date.parse(statement.expires),
          issued: index,
          revoked: null,
        });
        return;
      case 'token.revoked': {
        const token = this.#tokens.get(statement.token);
        if (!token) this.#add('token', `revokes ${statement.token}, which was never issued`, index);
        else token.revoked ??= index;
        return;
      }
      case 'sink.declared':
        this.#sinks.set(statement.sink, { key: statement.key, declared: index });
        return;
      case 'auditor.issued':
        this.#auditors.set(statement.auditor, 'issued');
        return;
      case 'auditor.revoked':
        this.#auditors.set(statement.auditor, 'revoked');
        return;
      case 'policy.set':
        this.#policies.add(index);
        return;
      case 'label.set': {
        const { session, call, says, by } = statement;
        if (this.#auditors.get(by) !== 'issued')
          this.#add('state', `auditor ${by} was not one when the label was set`, index);
        this.#labels.set(index, JSON.stringify([session, call ?? null, says, by]));
        return;
      }
      case 'coverage.stated':
        await this.#stated(statement, index);
        return;
      case 'receipt.issued': {
        const { scope, receipt, supersedes } = statement;
        await this.#issuedAs(statement, index);
        if (scope.type !== 'session' && scope.type !== 'period') return;
        const last = this.#issued.get(scopeText(scope));
        if (supersedes !== last)
          this.#add(
            'receipt',
            `supersedes ${supersedes ?? 'nothing'}, the last was ${last ?? 'none'}`,
            index,
          );
        this.#issued.set(scopeText(scope), receipt);
      }
    }
  }

  async #issuedAs({ receipt, scope, asOf }: ReceiptIssued, index: number): Promise<void> {
    const stored = await this.#store.receipt(this.#log, scopeText(scope), asOf);
    if (!stored) this.#add('receipt', `the receipt ${receipt} is not stored`, index);
    else if (stored.index !== index || `sha256:${stored.digest.toString('hex')}` !== receipt)
      this.#add('receipt', `the row of the receipt of ${scopeText(scope)} is of another`, index);
    else if (!createHash('sha256').update(stored.bytes).digest().equals(stored.digest))
      this.#add('receipt', `what is stored as ${receipt} has another digest`, index);
  }

  async #stated({ statement, size }: CoverageStated, index: number): Promise<void> {
    if (size > index) this.#add('statement', `looked at ${size} entries, more than there were`, index);
    const stored = await this.#store.statement(this.#log, Buffer.from(statement.slice(7), 'hex'));
    if (!stored) this.#add('statement', `the statement ${statement} is not stored`, index);
    else if (stored.index !== index)
      this.#add('statement', `the row of ${statement} names entry ${stored.index}`, index);
    else if (`sha256:${createHash('sha256').update(stored.bytes).digest('hex')}` !== statement)
      this.#add('statement', `what is stored as ${statement} has another digest`, index);
  }

  async #conflict(run: Run, index: number, line: Buffer): Promise<void> {
    const first = run.conflict as number;
    if (run.count !== 1 || first >= index)
      this.#add('conflict', 'is not one line after the one it differs from', index);
    const [other] = await this.#store.lines(this.#log, first, first + 1);
    const [otherRun] = await this.#store.runs(this.#log, first, first + 1);
    if (!other || !otherRun) return this.#add('conflict', `entry ${first} is missing`, index);
    const seq = otherRun.firstSeq + (first - otherRun.first);
    if (otherRun.sink !== run.sink || otherRun.epoch !== run.epoch || seq !== run.firstSeq) {
      this.#add('conflict', `entry ${first} is of another sink, epoch or seq`, index);
    }
    if (other.line.equals(line)) this.#add('conflict', `has the same bytes as entry ${first}`, index);
  }

  /** False when the seq was covered already. Seqs mostly arrive in order, so the last range grows. */
  #cover(key: string, seq: number): boolean {
    const ranges = this.#seqs.get(key);
    if (!ranges) {
      this.#seqs.set(key, [[seq, seq + 1]]);
      return true;
    }
    let at = ranges.length - 1;
    while (at >= 0 && (ranges[at] as [number, number])[0] > seq) at--;
    const before = ranges[at];
    if (before && seq < before[1]) return false;
    const after = ranges[at + 1];
    if (before && before[1] === seq) {
      before[1]++;
      if (after && after[0] === before[1]) {
        before[1] = after[1];
        ranges.splice(at + 1, 1);
      }
    } else if (after && after[0] === seq + 1) after[0] = seq;
    else ranges.splice(at + 1, 0, [seq, seq + 1]);
    return true;
  }

  #grow(leaf: Hash): void {
    this.#range.append(leaf, (id, hash) => {
      if (id.level % 8 === 0) (this.#tile[id.level / 8] ??= []).push(hash);
    });
  }

  async #flushTiles(size: number): Promise<void> {
    for (let level = 0; level < this.#tile.length; level++) {
      const hashes = this.#tile[level] as Hash[];
      let n = Math.floor(size / TILE_WIDTH ** (level + 1)) - Math.floor(hashes.length / TILE_WIDTH);
      while (hashes.length >= TILE_WIDTH) {
        const expected = Buffer.concat(hashes.splice(0, TILE_WIDTH));
        const stored = await this.#store.tile(this.#log, level, n);
        if (!stored) this.#add('tile', `tile ${level}/${n} is missing`);
        else if (!stored.equals(expected)) this.#add('tile', `tile ${level}/${n} is not that of the entries`);
        this.#tiles++;
        n++;
      }
    }
  }

  async #checkpoints(size: number): Promise<StoredCheckpoint[]> {
    const verifier = ed25519Verifier(formatVkey(this.#log.origin, this.#log.publicKey));
    const found: StoredCheckpoint[] = [];
    for (let below = Number.MAX_SAFE_INTEGER; ;) {
      const checkpoint = await this.#store.checkpoint(this.#log, below);
      if (!checkpoint) break;
      found.push(checkpoint);
      try {
        const opened = openCheckpoint(checkpoint.note, verifier);
        if (Number(opened.size) !== checkpoint.size || !opened.root.equals(checkpoint.root)) {
          this.#add(
            'checkpoint',
            `the note of the checkpoint of size ${checkpoint.size} says otherwise than its row`,
          );
        }
      } catch (error) {
        this.#add(
          'checkpoint',
          `size ${checkpoint.size}: ${error instanceof Error ? error.message : String(error)}`,
        );
      }
      if (checkpoint.size > size)
        this.#add(
          'checkpoint',
          `a checkpoint of size ${checkpoint.size} was published; the head is at ${size}`,
        );
      if (checkpoint.size === 0) break;
      below = checkpoint.size - 1;
    }
    return found.reverse();
  }

  /** State rows against what the entries said. */
  async #state(size: number): Promise<void> {
    const config = await this.#store.config(this.#log);
    for (const [id, row] of config.tokens) {
      if (row.issuedIndex >= size) continue;
      const token = this.#tokens.get(id);
      if (!token || token.issued !== row.issuedIndex || token.role !== row.role)
        this.#add('state', `the row of token ${id} is not what its entry says`);
      else if (token.revoked !== row.revokedIndex && (row.revokedIndex ?? 0) < size) {
        this.#add(
          'state',
          `the row of token ${id} is ${row.revokedIndex === null ? 'not ' : ''}revoked, the log says otherwise`,
        );
      }
    }
    for (const id of this.#tokens.keys())
      if (!config.tokens.has(id)) this.#add('state', `token ${id} has an entry and no row`);
    for (const [name, sink] of this.#sinks) {
      const row = config.sinks.get(name);
      if (!row) this.#add('state', `sink ${name} has entries and no row`);
      else if ((row.declared ?? 0) < size && (row.key?.toString('base64') ?? undefined) !== sink.key) {
        this.#add('state', `the key of sink ${name} is not what the log says`);
      }
    }
    for (const [key, ranges] of this.#seqs) {
      const [sink, epoch] = key.split(' ') as [string, string];
      const { nextSeq: next, closed } = await this.#store.epoch(this.#log, Number(sink), epoch);
      const last = ranges[ranges.length - 1] as [number, number];
      if (next < last[1])
        this.#add('seq', `the watermark of epoch ${epoch} is ${next}, entries reach ${last[1] - 1}`);
      // A collector that did not mark late lines did not keep when an epoch was closed; one that still writes may have
      // closed it since.
      if (closed !== null && closed <= this.#received && closed !== this.#closed.get(key))
        this.#add('state', `epoch ${epoch} was not closed when its row says`);
    }
    const policies = new Set(await this.#store.policies(this.#log));
    for (const index of this.#policies)
      if (!policies.delete(index)) this.#add('state', 'the policy set here has no row', index);
    for (const index of policies) if (index < size) this.#add('state', 'a policy has no entry', index);
    for (const label of await this.#store.labels(this.#log)) {
      if (label.index >= size) continue;
      const { index, session, call, says, auditor } = label;
      if (this.#labels.get(index) !== JSON.stringify([session, call, says, auditor]))
        this.#add('state', 'the row of the label is not what its entry says', index);
      this.#labels.delete(index);
    }
    for (const index of this.#labels.keys()) this.#add('state', 'the label set here has no row', index);
  }

  #add(code: FindingCode, message: string, index?: number): void {
    if (this.#findings.length >= LIMIT) this.#more++;
    else this.#findings.push({ code, message, ...(index === undefined ? {} : { index }) });
  }

  #report(size: number, root: Hash, entries: number, checkpoints: number): LogReport {
    return {
      origin: this.#log.origin,
      size,
      root: root.toString('base64'),
      entries,
      tiles: this.#tiles,
      checkpoints,
      epochs: this.#seqs.size,
      findings: this.#findings,
      more: this.#more,
    };
  }
}
