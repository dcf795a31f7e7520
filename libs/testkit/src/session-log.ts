import { createHash } from 'node:crypto';
import {
  type DeclaredSink,
  EpochCoverage,
  epochStatement,
  type EpochStatement,
  policyDigest,
  type ProjectPolicy,
  readPolicy,
  type SentEntry,
  SessionCoverage,
  type SessionStatement,
  sightingOf,
  SinkChain,
  type SinkStatement,
  sinkStatement,
  timingOf,
} from '@belay/coverage';
import {
  type CollectorBody,
  collectorLine,
  type Entry,
  entryBytes,
  formatCollectorBody,
  keyFingerprint,
  newUlid,
  parseEntry,
  type SenderRole,
  type SinkKind,
  SinkTree,
} from '@belay/envelope';
import { leafHash } from '@belay/merkle';

const ORIGIN = 'belay.example/acme/agents';
const START = Date.parse('2026-01-01T00:00:00.000Z');
const ADMIN = 'adm_01kdvdna00040g2081040g2081';

/** What a line says beside its kind. */
export interface Said {
  readonly session?: string | undefined;
  readonly call?: string | undefined;
  readonly match?: string | undefined;
  readonly attrs?: Readonly<Record<string, unknown>> | undefined;
}

export interface SinkOptions {
  readonly kind?: SinkKind | undefined;
  readonly domain?: string | undefined;
  /** Whether a key is declared and its lines are signed; true unless told otherwise. */
  readonly keyed?: boolean | undefined;
  readonly required?: boolean | undefined;
  readonly role?: SenderRole | undefined;
  /** Whether an admin declares it; true unless told otherwise. */
  readonly declared?: boolean | undefined;
}

/** Keyed digest of a word, as `call` and `match` are written. */
export function keyed(word: string): string {
  return `hmac-sha256:${createHash('sha256').update(word).digest('hex')}`;
}

/**
 * A log as a collector would have written it, of sinks that number, chain and state their lines as the format says, and
 * what coverage makes of it. No service, no signatures: the collector's lines say what it would have verified.
 */
export class SessionLog {
  readonly policy: ProjectPolicy;
  readonly bytes: Buffer[] = [];
  readonly entries: Entry[] = [];
  readonly declared = new Map<string, DeclaredSink>();
  /** Collector's clock, milliseconds since 1970: half a second for each entry. */
  now = START;
  #made = 0;

  constructor(policy: unknown = {}) {
    this.policy = readPolicy(policy);
  }

  id(prefix: string): string {
    return `${prefix}_${this.ulid().toLowerCase()}`;
  }

  ulid(): string {
    return newUlid(START + ++this.#made, Buffer.alloc(10, this.#made));
  }

  /** Appends what the collector states itself. */
  state(body: CollectorBody): number {
    const index = this.entries.length;
    const line = collectorLine({ index, log: ORIGIN, received: this.#received(), role: 'collector' });
    return this.#append(entryBytes(line, formatCollectorBody(body)));
  }

  /** Appends a sender's line, whoever that is. */
  append(
    body: Buffer,
    by: {
      readonly sink: string;
      readonly token: string;
      readonly role: SenderRole;
      readonly signed?: string | undefined;
    },
    conflict?: number,
  ): number {
    const { signed, ...rest } = by;
    const line = collectorLine({
      index: this.entries.length,
      log: ORIGIN,
      received: this.#received(),
      ...rest,
      ...(signed === undefined ? {} : { signed }),
      ...(conflict === undefined ? {} : { conflict }),
    });
    return this.#append(entryBytes(line, body));
  }

  /** Declares a sink, issues its token, and hands out what writes its lines. */
  sink(name: string, options: SinkOptions = {}): LogSink {
    const { kind, domain, keyed = true, required = false, role = 'sink', declared = true } = options;
    const key = createHash('sha256').update(name).digest();
    const fingerprint = keyed ? keyFingerprint(key) : undefined;
    if (declared) {
      this.declared.set(name, { sink: name, required, keyed });
      this.state({
        kind: 'sink.declared',
        v: 1,
        sink: name,
        sinkKind: kind,
        required,
        domain,
        ...(keyed ? { key: key.toString('base64'), fingerprint } : {}),
        by: ADMIN,
      });
    }
    const token = this.id('tok');
    this.state({ kind: 'token.issued', v: 1, token, role, by: ADMIN });
    return new LogSink(
      this,
      { sink: name, token, role, signed: declared ? fingerprint : undefined },
      kind ?? 'other',
    );
  }

  leaf(index: number): string {
    return leafHash(this.bytes[index] as Buffer).toString('base64');
  }

  /** Senders' entries, in order. */
  sent(): SentEntry[] {
    return this.entries.filter((entry): entry is SentEntry => entry.by === 'sender');
  }

  /** What coverage says of a session, so many seconds after the last entry. */
  coverage(session: string, later = 0): SessionStatement {
    return this.statements(session, later).session;
  }

  /** The statements on every epoch and sink, by their first entries, and on a session. */
  statements(
    session: string,
    later = 0,
  ): {
    readonly epochs: readonly EpochStatement[];
    readonly sinks: readonly SinkStatement[];
    readonly session: SessionStatement;
  } {
    const { policy } = this;
    const timing = timingOf(policy);
    const coverages = new Map<string, EpochCoverage>();
    const chains = new Map<string, SinkChain>();
    const reducer = new SessionCoverage({ log: ORIGIN, session });
    for (const entry of this.sent()) {
      const { sink, epoch } = entry.envelope;
      const key = `${sink} ${epoch}`;
      if (!coverages.has(key)) coverages.set(key, new EpochCoverage({ log: ORIGIN, sink, epoch }));
      if (!chains.has(sink)) chains.set(sink, new SinkChain({ log: ORIGIN, sink }));
      coverages.get(key)?.apply(entry, timing);
      chains.get(sink)?.apply(entry);
      if (entry.envelope.session === session) reducer.apply(entry);
    }
    const asOf = { size: this.entries.length, time: new Date(this.now + later * 1_000).toISOString() };
    const epochs = new Map(
      [...coverages].map(([key, coverage]) => {
        const account = chains.get(coverage.sink)?.account(coverage.epoch);
        return [key, epochStatement(coverage, { asOf, policy, account })];
      }),
    );
    const epochOf = (sink: string, epoch: string): EpochStatement =>
      epochs.get(`${sink} ${epoch}`) as EpochStatement;
    const sinks = new Map(
      [...chains].map(([sink, chain]) => [
        sink,
        sinkStatement(chain, { asOf, policy: policyDigest(policy) }, (epoch) => epochOf(sink, epoch)),
      ]),
    );
    return {
      epochs: [...epochs.values()],
      sinks: [...sinks.values()],
      session: reducer.statement({
        asOf,
        policy,
        declared: [...this.declared.values()],
        sightings: this.sent()
          .filter(({ envelope }) => envelope.session === session)
          .flatMap((entry) => sightingOf(entry) ?? []),
        epochOf,
        chainOf: (sink) => chains.get(sink) as SinkChain,
      }),
    };
  }

  #received(): string {
    this.now += 500;
    return new Date(this.now).toISOString();
  }

  #append(bytes: Buffer): number {
    this.bytes.push(bytes);
    return this.entries.push(parseEntry(bytes)) - 1;
  }
}

/** One sink of a `SessionLog`, epoch after epoch. */
export class LogSink {
  readonly log: SessionLog;
  readonly by: Parameters<SessionLog['append']>[1];
  readonly kind: SinkKind;
  epoch = '';
  #tree = new SinkTree();
  #counter = 0;
  #before: { readonly epoch: string; readonly size: number; readonly root: string } | undefined;

  constructor(log: SessionLog, by: Parameters<SessionLog['append']>[1], kind: SinkKind) {
    this.log = log;
    this.by = by;
    this.kind = kind;
  }

  /** Begins the next epoch, which accounts for the one before. `lose` keeps the line from the log. */
  open(lose = false): void {
    if (this.epoch !== '') this.#before = { epoch: this.epoch, ...this.#tree.stated() };
    this.epoch = this.log.ulid();
    this.#tree = new SinkTree();
    const before = this.#before;
    this.say(
      'epoch.open',
      {
        attrs: {
          counter: this.#counter++,
          prev_epoch: before?.epoch,
          prev_size: before?.size,
          prev_root: before?.root,
          sink_kind: this.kind,
        },
      },
      lose,
    );
  }

  /** Loses all that it knew of its epochs: the next one is the first of another chain. */
  forget(): void {
    this.epoch = '';
    this.#counter = 0;
    this.#before = undefined;
  }

  /** Lines so far. */
  get size(): number {
    return this.#tree.size;
  }

  /** Writes the next line; returns its index, or -1 when it is lost on the way. */
  say(kind: string, said: Said = {}, lose = false): number {
    const body = this.line(kind, said);
    this.#tree.append(body);
    return lose ? -1 : this.log.append(body, this.by);
  }

  /** Writes a line that states the tree of those before it. */
  stated(kind: 'heartbeat' | 'session.close' | 'epoch.close', said: Said = {}, lose = false): number {
    const attrs = { ...this.#tree.stated(), dropped: 0, filtered: 0, ...said.attrs };
    return this.say(kind, { ...said, attrs }, lose);
  }

  /** The bytes of a line with the next number, or another. */
  line(kind: string, said: Said, seq = this.#tree.size + 1): Buffer {
    const { sink } = this.by;
    const time = '2026-01-01T00:00:00Z';
    return Buffer.from(
      JSON.stringify({ v: 1, log: ORIGIN, sink, epoch: this.epoch, seq, kind, time, ...said }),
    );
  }
}
