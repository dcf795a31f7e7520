export { openExport, type OpenedExport, resigned } from './opened-export.js';
import { formatStatement, LogCoverage } from '@belay/coverage';
import {
  type CollectorBody,
  type Entry,
  newUlid,
  type PeriodScope,
  type PlainJson,
  type SessionScope,
} from '@belay/envelope';
import {
  buildExport,
  type BuiltExport,
  type EpochFacts,
  type ExportRequest,
  type ExportSource,
  type IndexSpan,
} from '@belay/export';
import { renderPdf } from '@belay/export/pdf';
import { privateKeyObject, rawPublicKey } from '@belay/keys';
import { createIssuer, createRoot, issueLogCertificate, toPem } from '@belay/keys/x509';
import { CompactRange, leafHash, type NodeId, nodeHash } from '@belay/merkle';
import { ackName, ed25519Signer, formatCheckpoint, formatVkey, signNote } from '@belay/note';
import {
  derivePeriod,
  deriveSession,
  parseAnyReceipt,
  periodEvidence,
  periodReceiptPayload,
  type PeriodSession,
  type SessionFacts,
  sessionReceiptPayload,
  signPayload,
  Standing,
} from '@belay/receipt';
import { createHash } from 'node:crypto';
import { keyed, type LogSink, SessionLog } from './session-log.js';

const ORIGIN = 'belay.example/acme/agents';
const VALIDITY = { notBefore: new Date('2025-12-31T00:00:00Z'), notAfter: new Date('2046-01-01T00:00:00Z') };
const MADE = 1_767_225_600_000;
const id = (prefix: string, n: number): string =>
  `${prefix}_${newUlid(MADE, Buffer.alloc(10, n)).toLowerCase()}`;

/** An issued receipt of an `ExportLog`. */
interface Issued {
  readonly bytes: Buffer;
  readonly scope: SessionScope | PeriodScope;
}

/** A signed head and when it was published. */
interface Head {
  readonly size: number;
  readonly checkpoint: string;
  readonly time: string;
}

export interface ExportLogOptions {
  readonly policy?: { readonly [key: string]: PlainJson } | undefined;
  /** 32 bytes of this are the seed of the log's key. */
  readonly key?: number | undefined;
}

/**
 * A whole log with its key, certificates, statements and receipts, in memory: what worker and collector would have made
 * of the lines, without either. Everything is derived from constants, so that the same script gives the same bytes.
 */
export class ExportLog {
  readonly log: SessionLog;
  readonly signer: ReturnType<typeof ed25519Signer>;
  readonly x5c: readonly Buffer[];
  /** Root certificate. */
  readonly rootPem: string;
  readonly receipts: Issued[] = [];
  readonly #coverage = new LogCoverage({ log: ORIGIN });
  readonly #standing = new Standing();
  readonly #range = CompactRange.empty();
  readonly #leaves: Buffer[] = [];
  readonly #last = new Map<string, string>();
  readonly #named = new Map<string, number[]>();

  private constructor(
    options: ExportLogOptions,
    signer: ReturnType<typeof ed25519Signer>,
    x5c: readonly Buffer[],
    rootPem: string,
  ) {
    this.signer = signer;
    this.x5c = x5c;
    this.rootPem = rootPem;
    const { policy = {} } = options;
    this.log = new SessionLog(policy);
    const seed = Buffer.alloc(32, options.key ?? 0x0b);
    this.log.state({
      kind: 'log.genesis',
      v: 1,
      log: ORIGIN,
      vkey: signer.vkey,
      ackKey: formatVkey(ackName(ORIGIN), rawPublicKey(privateKeyObject(seed))),
      project: id('prj', 4),
      name: 'Agents',
      x5c: x5c.map((der) => `sha256:${createHash('sha256').update(der).digest('hex')}`),
      policy,
    });
  }

  static async create(options: ExportLogOptions = {}): Promise<ExportLog> {
    const seed = Buffer.alloc(32, options.key ?? 0x0b);
    const root = await createRoot({ name: 'Belay example root', seed: Buffer.alloc(32, 0x15), ...VALIDITY });
    const name = 'Belay example issuer';
    const issuer = await createIssuer({ root, name, seed: Buffer.alloc(32, 0x16), ...VALIDITY });
    const pub = rawPublicKey(privateKeyObject(seed));
    const own = await issueLogCertificate({ issuer, pub, origin: ORIGIN, ...VALIDITY });
    const x5c = [own, issuer.certificate, root.certificate];
    return new ExportLog(options, ed25519Signer(ORIGIN, seed), x5c, toPem(root.certificate));
  }

  get size(): number {
    return this.log.entries.length;
  }

  /** The clock of who makes statements: so many seconds after the last entry. */
  time(later = 0): string {
    return new Date(this.log.now + later * 1_000).toISOString();
  }

  /** What the log shows of a session now. */
  facts(session: string, time = this.time()): SessionFacts {
    this.#catchUp();
    return deriveSession(
      this.#coverage,
      this.#standing,
      session,
      { size: this.size, time },
      { indexes: this.#named.get(session) ?? [], at: (index) => this.log.bytes[index] },
    );
  }

  /**
   * Writes the statement on a session down, and issues the receipt that rests on it. Returns its digest. `lie` is what
   * a worker does that can't be trusted: to the payload before it is signed.
   */
  judge(
    session: string,
    options: { readonly later?: number; readonly lie?: (payload: Buffer) => Buffer } = {},
  ): string {
    const { later = 0, lie = (payload) => payload } = options;
    const time = this.time(later);
    const { size } = this;
    const facts = this.facts(session, time);
    const { status, policy } = facts.statement;
    const statement = facts.statementDigest;
    const stated = { type: 'session', session, statement, size, time, status, policy } as const;
    const index = this.log.state({ kind: 'coverage.stated', v: 1, ...stated });
    const before = this.#last.get(session);
    const head = this.head();
    const identity = { origin: ORIGIN, vkey: this.signer.vkey, x5c: this.x5c };
    const payload = lie(sessionReceiptPayload(facts, identity, head, { index, statement }, before));
    return this.#recordReceipt(signPayload(payload, this.signer), { type: 'session', session }, head, before);
  }

  /** Issues the receipt of the sessions that began in [from, to). Returns its digest. */
  judgePeriod(from: string, to: string): string {
    this.#catchUp();
    const { size } = this;
    const asOf = { size, time: this.time() };
    const { entries } = this.log;
    const first = entries.filter(({ line }) => line.received < from).length;
    const count = entries.filter(({ line }) => line.received < to).length - first;
    const sessions = [...this.#coverage.sessions].flatMap((named): PeriodSession[] => {
      const { session } = named;
      // One of which only second stories came began with the first of these.
      const first = this.log.entries[this.#named.get(session)?.[0] ?? -1]?.line;
      const began =
        named.beginnings().find(({ index }) => index === this.#coverage.beganAt(session)) ?? first;
      if (began === undefined || began.received < from || began.received >= to) return [];
      const digest = this.#last.get(session);
      if (digest === undefined) return [{ session }];
      const issued = this.receipts.findLast(({ bytes }) => digestOf(bytes) === digest) as Issued;
      const opened = parseAnyReceipt(issued.bytes);
      return opened.type === 'session' ? [{ session, receipt: { digest, receipt: opened.receipt } }] : [];
    });
    const sinks = [...this.#coverage.chains].map(({ sink }) => sink);
    const period = { from, to, sessions, entries: { first, count } };
    const facts = derivePeriod(periodEvidence(this.#coverage, asOf, period, sinks));
    const head = this.head();
    const before = this.#last.get(`${from} ${to}`);
    const identity = { origin: ORIGIN, vkey: this.signer.vkey, x5c: this.x5c };
    const bytes = signPayload(periodReceiptPayload(facts, identity, head, before), this.signer);
    return this.#recordReceipt(bytes, { type: 'period', from, to }, head, before);
  }

  /** Writes the statement on an epoch down. */
  stateEpoch(sink: string, epoch: string): void {
    this.#catchUp();
    const asOf = { size: this.size, time: this.time() };
    const statement = this.#coverage.epochStatement(sink, epoch, asOf);
    const { status, policy } = statement;
    const digest = digestOf(formatStatement(statement));
    const stated = { type: 'epoch', sink, epoch, statement: digest, ...asOf, status, policy } as const;
    this.log.state({ kind: 'coverage.stated', v: 1, ...stated });
  }

  label(session: string, says: 'violated' | 'not_violated', call?: string): void {
    const said = call === undefined ? {} : { call: keyed(call) };
    this.log.state({ kind: 'label.set', v: 1, session, ...said, says, by: id('aud', 7) });
  }

  state(body: CollectorBody): number {
    return this.log.state(body);
  }

  /** The head that is published now. */
  head(): Head {
    this.#catchUp();
    const { size } = this;
    const root = this.#range.root();
    const checkpoint = signNote(formatCheckpoint({ origin: ORIGIN, size: BigInt(size), root }), [
      this.signer,
    ]);
    return { size, checkpoint, time: this.time() };
  }

  /** The log as an export is made of it, as of now. */
  source(evaluated = this.size): ExportSource {
    const head = this.head();
    const { bytes, entries } = this.log;
    return {
      head: async () => ({
        log: { origin: ORIGIN, vkey: this.signer.vkey, x5c: this.x5c },
        project: { id: id('prj', 4), name: 'Agents' },
        asOf: { ...head, evaluated },
      }),
      selection: async (request) => selectionOf(entries.slice(0, head.size), request, evaluated),
      entries: async function* (from, to) {
        for (let at = from; at < to; at += 512) yield bytes.slice(at, Math.min(to, at + 512));
      },
      nodes: async (ids) => ids.map((node) => this.#node(node)),
      receipts: async function* (this: ExportLog) {
        for (const { bytes: receipt } of this.receipts) yield receipt;
      }.bind(this),
      sign: async (payload) => signPayload(payload, this.signer),
    };
  }

  /** Makes the export of a request at a path. */
  export(path: string, request: ExportRequest = {}, evaluated?: number): Promise<BuiltExport> {
    return buildExport(this.source(evaluated), request, path, { pdf: renderPdf });
  }

  #recordReceipt(bytes: Buffer, scope: Issued['scope'], head: Head, supersedes: string | undefined): string {
    const receipt = digestOf(bytes);
    this.receipts.push({ bytes, scope });
    this.#last.set(scope.type === 'period' ? `${scope.from} ${scope.to}` : scope.session, receipt);
    const replaced = supersedes === undefined ? {} : { supersedes };
    this.log.state({ kind: 'receipt.issued', v: 1, receipt, scope, asOf: head.size, ...replaced });
    return receipt;
  }

  /** Takes in what the log has and was not looked at yet. */
  #catchUp(): void {
    for (let index = this.#coverage.size; index < this.size; index++) {
      const entry = this.log.entries[index] as Entry;
      this.#coverage.apply(entry);
      this.#standing.apply(entry);
      const leaf = leafHash(this.log.bytes[index] as Buffer);
      this.#leaves.push(leaf);
      this.#range.append(leaf);
      if (entry.by !== 'sender' || entry.envelope.session === undefined) continue;
      const { session } = entry.envelope;
      const before = this.#named.get(session);
      if (before === undefined) this.#named.set(session, [index]);
      else before.push(index);
    }
  }

  #node({ level, index }: NodeId): Buffer {
    if (level === 0) return this.#leaves[Number(index)] as Buffer;
    const left = this.#node({ level: level - 1, index: index * 2n });
    return nodeHash(left, this.#node({ level: level - 1, index: index * 2n + 1n }));
  }
}

/** What `ExportSource.selection` is to tell, read off the entries one by one. */
function selectionOf(
  entries: readonly Entry[],
  { sessions: asked, period }: ExportRequest,
  evaluated: number,
): Awaited<ReturnType<ExportSource['selection']>> {
  const began = new Map<string, { index: number; received: string }>();
  const coverage = new LogCoverage({ log: ORIGIN });
  for (const entry of entries) {
    if (entry.line.index < evaluated) coverage.apply(entry);
    const session = entry.by === 'sender' ? entry.envelope.session : undefined;
    if (session !== undefined && !began.has(session)) began.set(session, entry.line);
  }
  for (const named of coverage.sessions) {
    const index = coverage.beganAt(named.session);
    const counted = named.beginnings().find((each) => each.index === index);
    if (counted !== undefined) began.set(named.session, counted);
  }
  const inOrder = [...began].sort(([, a], [, b]) => a.index - b.index);
  const sessions = inOrder.flatMap(([session, { index, received }]) => {
    if (asked !== undefined) return asked.includes(session) ? session : [];
    if (period === undefined) return [];
    return index < evaluated && received >= period.from && received < period.to ? session : [];
  });
  const chosen = new Set(sessions);
  const collector: IndexSpan[] = [];
  const declared: string[] = [];
  const cited: number[] = [];
  const epochs = new Map<
    string,
    { -readonly [K in keyof EpochFacts]: EpochFacts[K] } & { spans: IndexSpan[] }
  >();
  for (const entry of entries) {
    const { index } = entry.line;
    const one = { from: index, to: index + 1 };
    if (entry.by === 'collector') {
      collector.push(one);
      if (entry.statement.kind === 'sink.declared') declared.push(entry.statement.sink);
      continue;
    }
    const { sink, epoch, session, kind, seq, attrs } = entry.envelope;
    const key = `${sink} ${epoch}`;
    const facts = epochs.get(key) ?? { sink, epoch, named: false, spans: [], previous: undefined };
    epochs.set(key, facts);
    facts.spans.push(one);
    const named = session !== undefined && chosen.has(session);
    facts.named ||= named;
    if (named && kind === 'verdict') {
      for (const name of ['pre_index', 'call_index', 'result_index']) {
        const at = attrs?.[name];
        if (typeof at === 'number') cited.push(at);
      }
    }
    if (entry.line.conflict !== undefined) continue;
    facts.first ??= index;
    if (kind === 'epoch.open' && seq === 1) {
      if (facts.opened === undefined) facts.previous = attrs?.['prev_epoch'] as string | undefined;
      facts.opened ??= index;
    } else facts.spoke ??= index;
  }
  return { sessions, size: entries.length, collector, declared, epochs: [...epochs.values()], cited };
}

const digestOf = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** Two sinks of two trust domains and a verifier, of which scripts of sessions are written with. */
export class ExportCast {
  readonly world: ExportLog;
  readonly proxy: LogSink;
  readonly hook: LogSink;
  readonly verifier: LogSink;

  constructor(world: ExportLog) {
    this.world = world;
    const { log } = world;
    this.proxy = log.sink('proxy', { kind: 'proxy', domain: 'desk', required: true });
    this.hook = log.sink('hook', { kind: 'hook', domain: 'vendor', required: true });
    this.verifier = log.sink('verifier', { kind: 'verifier', domain: 'lab', role: 'verifier' });
  }

  /** One session from its first line to the close of its sinks' epochs; `lose` drops the proxy's line of its first call. */
  session(
    name: string,
    options: {
      readonly calls?: number;
      readonly status?: string;
      readonly lose?: boolean;
      readonly close?: boolean;
    } = {},
  ): void {
    const { calls = 2, status = 'PASS', lose = false, close = true } = options;
    for (const sink of [this.proxy, this.hook]) {
      sink.open();
      sink.say('session.open', { session: name });
    }
    const done = Array.from({ length: calls }, (_, n) => this.#call(name, n, lose && n === 0));
    if (!close) return;
    for (const sink of [this.proxy, this.hook]) {
      sink.stated('session.close', { session: name });
      sink.stated('epoch.close');
    }
    this.verifier.open();
    for (const [n, cited] of done.entries()) this.#verdict(name, n, cited, status);
    this.verifier.stated('epoch.close');
  }

  #call(session: string, n: number, lose: boolean): readonly [pre: number, call: number, result: number] {
    const name = `${session} call ${n}`;
    const state = { state: keyed(`state ${name}`), phase: 'pre' };
    const pre = this.proxy.say('state', { session, attrs: state });
    const said = {
      session,
      call: keyed(name),
      match: keyed(`${name} arguments`),
      attrs: { tool: 'read_file' },
    };
    const call = this.proxy.say('call', said, lose);
    this.hook.say('call', said);
    const ended = { ...said, match: keyed(`${name} result`), attrs: { tool: 'read_file', ok: true, ms: n } };
    const result = this.proxy.say('result', ended);
    this.hook.say('result', ended);
    return [pre, call, result];
  }

  #verdict(
    session: string,
    n: number,
    [pre, call, result]: readonly [number, number, number],
    status: string,
  ): void {
    const { log } = this.world;
    if (call < 0) return;
    this.verifier.say('verdict', {
      session,
      call: keyed(`${session} call ${n}`),
      attrs: {
        status,
        ...(status === 'FAIL' ? { cause: 'TESTS_WEAKENED' } : {}),
        mode: 'isolated',
        replays: 2,
        pre_index: pre,
        pre_leaf: log.leaf(pre),
        call_index: call,
        call_leaf: log.leaf(call),
        result_index: result,
        result_leaf: log.leaf(result),
      },
    });
  }
}

/** Names of the sessions of `exampleLog`, by what they come to. */
export const EXAMPLE_SESSIONS = {
  affirmed: 'run-affirmed',
  violated: 'run-violated',
  incomplete: 'run-incomplete',
  contested: 'run-contested',
  late: 'run-late',
  labelled: 'run-labelled',
  open: 'run-open',
} as const;

/**
 * A log with a session of every kind: affirmed, violated, incomplete for a lost line, contested for a second story,
 * one that was judged, got late lines and was judged again, one of which an auditor looked at a call, and one that goes on.
 */
export async function exampleLog(options: ExportLogOptions = {}): Promise<ExportLog> {
  const world = await ExportLog.create(options);
  const cast = new ExportCast(world);
  const { log } = world;
  const names = EXAMPLE_SESSIONS;
  cast.session(names.affirmed);
  world.judge(names.affirmed);
  world.stateEpoch('proxy', cast.proxy.epoch);
  cast.session(names.violated, { status: 'FAIL' });
  world.judge(names.violated);
  cast.session(names.incomplete, { lose: true });
  world.judge(names.incomplete);
  cast.session(names.contested);
  const first = log.entries.findLastIndex(
    (entry) => entry.by === 'sender' && entry.envelope.sink === 'proxy' && entry.envelope.seq === 3,
  );
  log.append(cast.proxy.line('claim', { session: names.contested }, 3), cast.proxy.by, first);
  world.judge(names.contested);
  cast.session(names.late);
  world.judge(names.late);
  cast.proxy.open();
  cast.proxy.say('claim', { session: names.late });
  cast.proxy.stated('session.close', { session: names.late });
  cast.proxy.stated('epoch.close');
  world.judge(names.late);
  cast.session(names.labelled);
  world.judge(names.labelled);
  world.label(names.labelled, 'not_violated', `${names.labelled} call 0`);
  world.judge(names.labelled);
  cast.session(names.open, { close: false });
  world.judge(names.open);
  world.judgePeriod('2026-01-01T00:00:10.000Z', '2026-01-01T00:01:00.000Z');
  world.judge(names.open, { later: 100_000 });
  world.judgePeriod('2026-01-01T00:00:10.000Z', '2026-01-01T00:01:00.000Z');
  // Of a stranger, and of nobody.
  const agent = log.sink('curl', { role: 'agent', keyed: false, declared: false });
  agent.open();
  agent.say('claim');
  return world;
}
