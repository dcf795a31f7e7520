import { collectorLine, entryBytes } from '@belay/envelope';
import { keyed, type LogSink, SessionLog } from '@belay/testkit';
import type { LogQuestion } from '@belay/testkit/second-verifier';
import fc from 'fast-check';

/** Names that a spreadsheet would take for something else. */
const TOOLS = ['ls', '+1', '-x', '@a', '-5', '7'] as const;
const SESSIONS = ['run-1', 'run-2'] as const;
const CALLS = ['a', 'b', 'c'] as const;

/** What every sink of a history may be. */
const who = [
  ['proxy', { kind: 'proxy', domain: 'desk', required: true }],
  ['hook', { kind: 'hook', domain: 'vendor', required: true }],
  ['otlp', { kind: 'otlp', domain: 'vendor' }],
  ['plain', { kind: 'proxy', keyed: false, domain: 'desk' }],
  ['verifier', { kind: 'verifier', role: 'verifier', domain: 'lab' }],
  ['agent', { role: 'agent', keyed: false, declared: false }],
  ['7', { kind: 'other', role: 'sink' }],
  ['judge', { kind: 'verifier', role: 'verifier', domain: 'desk' }],
  ['mute', { kind: 'verifier', role: 'verifier', keyed: false }],
  ['odd', { kind: 'proxy', role: 'verifier' }],
  ['blank', { kind: 'verifier', role: 'verifier' }],
] as const;

const act = fc.record({
  sink: fc.oneof({ weight: 2, arbitrary: fc.nat(1) }, { weight: 1, arbitrary: fc.nat(who.length - 1) }),
  what: fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom('call', 'result') },
    { weight: 3, arbitrary: fc.constantFrom('state', 'verdict', 'replayed', 'replayed', 'both') },
    { weight: 2, arbitrary: fc.constantFrom('session.open', 'session.close', 'heartbeat', 'note', 'claim') },
    {
      weight: 1,
      arbitrary: fc.constantFrom('epoch.close', 'restart', 'copy', 'second', 'unsigned', 'gap', 'commit'),
    },
    { weight: 1, arbitrary: fc.constantFrom('label', 'policy', 'declare', 'issue') },
  ),
  session: fc.constantFrom(...SESSIONS, SESSIONS[0], SESSIONS[0], undefined),
  call: fc.constantFrom(...CALLS, undefined),
  weak: fc.integer({ min: 0, max: 5 }),
  match: fc.constantFrom('fit', 'fit', 'fit', 'else', undefined),
  status: fc.constantFrom('PASS', 'PASS', 'WARN', 'FAIL', 'UNVERIFIED'),
  lose: fc.oneof({ weight: 20, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
  wait: fc.constantFrom(
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    70_000,
    200_000,
    4_000_000,
  ),
  n: fc.nat(1_000),
});
type Act = typeof act extends fc.Arbitrary<infer T> ? T : never;

const policies = [
  {},
  { lateness: 10, heartbeat: 0 },
  { sessions: [{ kind: 'desk', opens: ['proxy'], required: ['proxy'] }] },
  {
    closeTimeout: 100,
    sessions: [
      { kind: 'desk', opens: ['hook', '7'], required: ['hook', 'proxy'], members: ['verifier', '7'] },
      { kind: 'batch', opens: ['plain', 'proxy'], required: ['plain', 'never'], members: [] },
    ],
  },
];

const script = fc.record({
  policy: fc.constantFrom(...policies, undefined),
  /** A session as good as they come, before anything else. */
  good: fc.nat(3),
  acts: fc.oneof(
    { weight: 3, arbitrary: fc.array(act, { maxLength: 80, size: 'max' }) },
    { weight: 1, arbitrary: fc.array(act, { maxLength: 6 }) },
  ),
  later: fc.integer({ min: 0, max: 8_000 }),
  cut: fc.integer({ min: 1, max: 100 }),
  tidy: fc.boolean(),
});
export type Script = typeof script extends fc.Arbitrary<infer T> ? T : never;
export const scripts = script;

/** Runs scripts into a log. */
export class Course {
  readonly log = new SessionLog();
  readonly sinks: LogSink[];
  readonly #auditors: string[];

  /** `begin` writes what a log begins with. */
  constructor(policy: unknown, begin: (log: SessionLog) => void = () => undefined) {
    const { log } = this;
    begin(log);
    this.#auditors = [log.id('aud'), log.id('aud')];
    if (policy !== undefined) this.#policy(policy);
    this.sinks = who.map(([name, options]) => log.sink(name, options));
    for (const sink of this.sinks) sink.open();
  }

  #policy(policy: unknown): void {
    const by = this.log.id('adm');
    this.log.state({ kind: 'policy.set', v: 1, policy: policy as Record<string, never>, by });
  }

  /** Calls that two sinks saw and a verifier ran again. */
  honest(calls: number, session: string): void {
    const [proxy, hook, , , verifier] = this.sinks as [LogSink, LogSink, LogSink, LogSink, LogSink];
    for (const sink of [proxy, hook]) sink.say('session.open', { session });
    const done: Record<string, unknown>[] = [];
    for (let n = 0; n < calls; n++) {
      const said = { session, call: keyed(`good ${n}`) };
      const pre = proxy.say('state', { session, attrs: { state: keyed('s'), phase: 'pre' } });
      const call = proxy.say('call', { ...said, match: keyed('args') });
      hook.say('call', { ...said, match: keyed('args') });
      const result = proxy.say('result', { ...said, match: keyed('result') });
      hook.say('result', { ...said, match: keyed('result') });
      done.push({ ...said, attrs: { status: 'PASS', ...this.#cite({ pre, call, result }) } });
    }
    for (const sink of [proxy, hook]) sink.stated('session.close', { session });
    for (const said of done) verifier.say('verdict', said);
    verifier.stated('session.close', { session });
  }

  #cite(at: Readonly<Record<string, number>>): Record<string, unknown> {
    const cited = Object.entries(at).flatMap(([part, index]) =>
      index < 0
        ? []
        : [
            [`${part}_index`, index],
            [`${part}_leaf`, this.log.leaf(index)],
          ],
    );
    return { mode: 'isolated', replays: 2, ...(Object.fromEntries(cited) as object) };
  }

  /** The next entry has the time of the one before, half a second from which the log goes on. */
  #atOnce(): void {
    this.log.now = Date.parse(this.log.entries.at(-1)?.line.received as string) - 500;
  }

  #last(kind: string, call?: string): number {
    return this.log.entries.findLastIndex(
      (entry) =>
        entry.by === 'sender' &&
        entry.envelope.kind === kind &&
        (call === undefined || entry.envelope.call === call),
    );
  }

  do({ sink: which, what, session, call: word, weak, match, status, lose, wait, n }: Act): void {
    const { log } = this;
    // Now and then several entries of one commit, which share their time.
    if (n % 11 === 0) this.#atOnce();
    else log.now += wait;
    const sink = this.sinks[which] as LogSink;
    const call = word === undefined ? undefined : weak < 2 ? `weak:${keyed(`${word} ${weak}`)}` : keyed(word);
    const said = (kind: string, part = match): Parameters<LogSink['say']>[1] => ({
      session,
      ...(call === undefined ? {} : { call }),
      ...(part === undefined ? {} : { match: keyed(part === 'fit' ? `${word ?? ''} ${kind}` : part) }),
      ...(weak === 1 || weak === 4 ? { attrs: { tool: TOOLS[n % TOOLS.length], bytes: n } } : {}),
    });
    switch (what) {
      case 'call':
        sink.say(what, said(what), lose);
        break;
      case 'result': {
        const failed = { ok: false, error: n % 3 === 0 ? 0 : 32_000 + n, error_negative: n % 2 === 0, ms: n };
        const attrs = { ...said(what)?.attrs, ...(n % 3 === 0 ? failed : { ok: true }) };
        sink.say(what, { ...said(what), attrs }, lose);
        break;
      }
      case 'both':
        for (const each of this.sinks.slice(0, 2)) {
          for (const kind of ['call', 'result']) each.say(kind, said(kind, 'fit'), lose);
        }
        break;
      case 'state':
        sink.say(what, {
          session,
          attrs: { state: keyed(`s ${n % 2}`), phase: n % 3 === 0 ? 'post' : 'pre' },
        });
        break;
      case 'verdict':
      case 'replayed': {
        const by =
          what === 'replayed' ? (this.sinks[[4, 4, 4, 4, 7, 8, 9, 10][n % 8] as number] as LogSink) : sink;
        const at = {
          pre: this.#last('state'),
          call: this.#last('call', call),
          result: this.#last('result', call),
        };
        const odd = [
          {},
          {},
          {},
          { mode: 'none' },
          { replays: 0 },
          { result_index: 99_999 },
          { pre: keyed('s 1') },
          { result_leaf: log.leaf(0) },
        ][(n % 9) % 8];
        const attrs = {
          status,
          ...(n % 5 === 0 ? { cause: `CAUSE_${n % 3}` } : {}),
          ...this.#cite(at),
          ...odd,
        };
        by.say('verdict', { session, ...(call === undefined ? {} : { call }), attrs }, lose);
        break;
      }
      case 'session.open':
      case 'claim':
        sink.say(what, { session }, lose);
        break;
      case 'note':
        sink.say('x.note', { session, attrs: { n } }, lose);
        break;
      case 'session.close':
        sink.stated(what, { session, ...(n % 9 === 0 ? { attrs: { dropped: 3 } } : {}) }, lose);
        break;
      case 'heartbeat':
        sink.stated(what, n % 7 === 0 ? { attrs: { root: log.leaf(0) } } : {}, lose);
        break;
      case 'epoch.close':
        sink.stated(what, {}, lose);
        if (n % 4 !== 0) sink.open(n % 5 === 0);
        break;
      case 'restart':
        if (n % 5 === 1) sink.forget();
        sink.open(lose || n % 3 === 0);
        break;
      case 'copy': {
        // The sink's state was put back: an epoch that says it follows the same one.
        const before = log
          .sent()
          .findLast(({ envelope }) => envelope.sink === sink.by.sink && envelope.kind === 'epoch.open');
        const attrs = { ...before?.envelope.attrs, ...(n % 2 === 0 ? { counter: n % 5 } : {}) };
        sink.epoch = log.ulid();
        log.append(sink.line('epoch.open', { attrs }, 1), sink.by);
        break;
      }
      case 'second': {
        const first = log.sent().find(({ envelope }) => envelope.sink === sink.by.sink);
        if (first === undefined) break;
        const line = sink.line('claim', { session, attrs: { bytes: n } }, first.envelope.seq);
        log.append(line, sink.by, first.line.index);
        break;
      }
      case 'commit': {
        // A state, a call and its result in one commit, or two: then no head was signed in between.
        const proxy = this.sinks[0] as LogSink;
        const own = { session, call: keyed(`commit ${n}`) };
        const pre = proxy.say('state', { session, attrs: { state: keyed('s'), phase: 'pre' } });
        this.#atOnce();
        const begun = proxy.say('call', { ...own, match: keyed('args') });
        if (n % 2 === 0) this.#atOnce();
        const result = proxy.say('result', { ...own, match: keyed('result') });
        const attrs = { status, ...this.#cite({ pre, call: begun, result }) };
        const by = this.sinks[4] as LogSink;
        if (n % 5 === 0) log.append(by.line('verdict', { ...own, attrs }, 1), by.by, pre);
        else by.say('verdict', { ...own, attrs });
        break;
      }
      case 'unsigned':
        if (n % 3 === 0) {
          // What opened the run was lost, and somebody without the key says another thing in its place.
          sink.open(true);
          const attrs = { counter: n % 4, ...(n % 2 === 0 ? {} : { prev_epoch: sink.epoch }) };
          log.append(sink.line('epoch.open', { attrs }, 1), { ...sink.by, signed: undefined });
        }
        log.append(sink.line('session.open', { session }), { ...sink.by, signed: undefined });
        sink.say('x.note', { session }, true);
        break;
      case 'gap': {
        const first = Math.max(1, sink.size - (n % 4));
        sink.say('gap', {
          attrs: { first, last: sink.size, reason: 'overflow', hashes: n % 2 ? [log.leaf(0)] : [] },
        });
        break;
      }
      case 'label':
        log.state({
          kind: 'label.set',
          v: 1,
          session: session ?? 'run-1',
          ...(call === undefined ? {} : { call: n % 3 === 0 ? keyed('good 0') : call }),
          says: n % 2 === 0 ? 'violated' : 'not_violated',
          by: this.#auditors[n % 2] as string,
        });
        break;
      case 'policy':
        this.#policy([...policies, { nonsense: n }, `sha256:${'0'.repeat(64)}`][n % (policies.length + 2)]);
        break;
      case 'declare':
        log.state({
          kind: 'sink.declared',
          v: 1,
          sink: n % 2 === 0 ? 'new' : sink.by.sink,
          required: n % 3 === 0,
          ...(n % 5 === 0 ? { heartbeat: 30 } : {}),
          ...(n % 4 === 0 ? { sinkKind: 'hook', domain: `dom${n % 3}` } : {}),
          by: log.id('adm'),
        });
        break;
      case 'issue': {
        const role = (['agent', 'sink', 'verifier'] as const)[n % 3] as 'agent';
        const domain = n % 2 === 0 ? { domain: 'vendor' } : {};
        const by = log.id('adm');
        const { token } = sink.by;
        const auditor = this.#auditors[n % 2] as string;
        const receipt = `sha256:${'1'.repeat(64)}`;
        const all: Parameters<SessionLog['state']>[0][] = [
          { kind: 'token.issued', v: 1, token, role, ...domain, sinks: ['a', 'b'], by },
          { kind: 'token.issued', v: 1, token, role, ...domain, expires: '2027-01-01T00:00:00Z', by },
          { kind: 'token.revoked', v: 1, token, by },
          { kind: 'auditor.issued', v: 1, auditor, by },
          { kind: 'auditor.revoked', v: 1, auditor, by },
          { kind: 'receipt.issued', v: 1, receipt, scope: { type: 'event', index: 1 }, asOf: 2 },
        ];
        log.state(all[n % all.length] as (typeof all)[0]);
        break;
      }
    }
  }
}

/** Runs a script: a log of several sinks, good and bad, of sessions, verdicts, labels, policies. */
export function historyOf({ policy, good, acts, later, cut, tidy }: Script): LogQuestion {
  const course = new Course(policy);
  if (good > 0) course.honest(good, 'run-1');
  for (const each of acts) course.do(each);
  if (tidy) for (const sink of course.sinks) sink.stated('epoch.close');
  const { log } = course;
  const size = log.bytes.length;
  const part = Math.max(1, Math.floor((size * cut) / 100));
  const at = (seconds: number): string => new Date(log.now + seconds * 1_000).toISOString();
  const asks = [
    { size: part, time: log.entries[part - 1]?.line.received as string },
    { size, time: at(later / 40) },
    { size, time: at(later) },
  ];
  // Some of what came, the collector marked as late.
  const entries = log.entries.map(({ by, line, body }, index) =>
    by === 'sender' && index % 19 === 0
      ? entryBytes(collectorLine({ ...line, late: true }), body)
      : (log.bytes[index] as Buffer),
  );
  return { log: log.entries[0]?.line.log as string, entries, asks };
}
