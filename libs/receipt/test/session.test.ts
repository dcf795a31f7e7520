import type { SeenCall, SessionStatement } from '@belay/coverage';
import type { Entry } from '@belay/envelope';
import {
  CALL_AUTHORITY_LEVELS,
  type CallAuthority,
  callAuthority,
  type Judgement,
  judgeSession,
  type Label,
  SESSION_DISPOSITIONS,
  Standing,
} from '@belay/receipt';
import { keyed, type LogSink, SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

const S = 'run-1';
const AUDITOR = 'aud_01kdvdna00040g2081040g2081';

interface Options {
  readonly calls?: number;
  readonly hookDomain?: string;
  readonly verifierDomain?: string;
  readonly status?: (call: number) => string;
  readonly policy?: unknown;
}

/** A session as good as they come: two keyed sinks of two domains saw every call, and a verifier ran each again. */
class Session {
  readonly log: SessionLog;
  readonly proxy: LogSink;
  readonly hook: LogSink;
  readonly verifier: LogSink;
  readonly labels: Label[] = [];
  /** Sizes at which no head was signed. */
  readonly unsignedSizes = new Set<number>();
  readonly verdicts: number[] = [];

  constructor({
    calls = 2,
    hookDomain = 'vendor',
    verifierDomain = 'lab',
    status = () => 'PASS',
    policy,
  }: Options = {}) {
    this.log = new SessionLog(policy);
    this.proxy = this.log.sink('proxy', { kind: 'proxy', domain: 'desk', required: true });
    this.hook = this.log.sink('hook', { kind: 'hook', domain: hookDomain, required: true });
    this.verifier = this.log.sink('verifier', { kind: 'verifier', domain: verifierDomain, role: 'verifier' });
    for (const sink of [this.proxy, this.hook]) {
      sink.open();
      sink.say('session.open', { session: S });
    }
    const done = Array.from({ length: calls }, (_, n) => this.call(`call ${n}`));
    for (const sink of [this.proxy, this.hook]) {
      sink.stated('session.close', { session: S });
      sink.stated('epoch.close');
    }
    this.verifier.open();
    for (const [n, cited] of done.entries()) this.verdicts.push(this.verdict(cited, { status: status(n) }));
    this.verifier.stated('epoch.close');
  }

  call(name: string): { pre: number; call: number; result: number; name: string } {
    const pre = this.proxy.say('state', {
      session: S,
      attrs: { state: keyed(`state ${name}`), phase: 'pre' },
    });
    const said = { session: S, call: keyed(name), match: keyed(`${name} args`) };
    const call = this.proxy.say('call', said);
    this.hook.say('call', said);
    const ended = { ...said, match: keyed(`${name} result`) };
    const result = this.proxy.say('result', ended);
    this.hook.say('result', ended);
    return { pre, call, result, name };
  }

  verdict(
    cited: { pre: number; call: number; result: number; name: string },
    attrs: Record<string, unknown> = {},
    by = this.verifier,
  ): number {
    const { log } = this;
    return by.say('verdict', {
      session: S,
      call: keyed(cited.name),
      attrs: {
        status: 'PASS',
        mode: 'isolated',
        replays: 2,
        pre_index: cited.pre,
        pre_leaf: log.leaf(cited.pre),
        call_index: cited.call,
        call_leaf: log.leaf(cited.call),
        result_index: cited.result,
        result_leaf: log.leaf(cited.result),
        ...attrs,
      },
    });
  }

  judge(coverage: SessionStatement = this.log.coverage(S)): Judgement {
    const { log } = this;
    return judgeSession(coverage, {
      session: S,
      entryAt: (index) => this.entryAt(index),
      bytesAt: (index) => log.bytes[index],
      standing: new Standing(log.entries),
      verdicts: log.sent(),
      labels: this.labels,
    });
  }

  /** An entry with the time of its commit, which it shares with those after it up to the next signed head. */
  entryAt(index: number): Entry | undefined {
    const entry = this.log.entries[index];
    let last = index;
    while (this.unsignedSizes.has(last + 1) && last + 1 < this.log.entries.length) last++;
    const received = this.log.entries[last]?.line.received;
    return entry && received ? { ...entry, line: { ...entry.line, received } } : entry;
  }
}

const authority = (session: Session, n = 0): CallAuthority =>
  session.judge().calls[n]?.authority as CallAuthority;
const reasonsOf = (judgement: Judgement): readonly unknown[] => {
  const { disposition } = judgement;
  return disposition.status === 'affirmed' ? [] : disposition.reasons.map(({ reason }) => reason);
};

describe('disposition', () => {
  test('an honest session that was replayed is affirmed, and says on what', () => {
    const { disposition } = new Session({ status: (n) => (n === 0 ? 'PASS' : 'WARN') }).judge();
    expect(disposition).toMatchObject({
      status: 'affirmed',
      warnings: 1,
      members: [{ sink: 'hook' }, { sink: 'proxy' }, { sink: 'verifier' }],
      calls: [
        { level: 'replayed', verdicts: [{ status: 'PASS', recorder: 'other domain' }] },
        { level: 'replayed', verdicts: [{ status: 'WARN' }] },
      ],
    });
  });

  test('the worst that is proven comes first', () => {
    const found: string[] = [];
    const session = new Session({ calls: 0 });
    found.push(session.judge().disposition.status);
    const running = new Session({ policy: { lateness: 10 } });
    running.proxy.open();
    running.proxy.say('session.open', { session: S });
    found.push(running.judge().disposition.status);
    running.hook.open();
    running.hook.say('x.note', { session: S }, true);
    running.hook.say('x.note', { session: S });
    found.push(running.judge().disposition.status);
    running.verifier.open();
    const cited = running.call('late');
    running.verdict(cited, { status: 'FAIL', cause: 'TESTS_WEAKENED' });
    expect(running.judge().disposition).toMatchObject({
      status: 'violated',
      reasons: [{ reason: 'fail', cause: 'TESTS_WEAKENED', sink: 'verifier' }],
    });
    found.push(running.judge().disposition.status);
    running.labels.push({ index: 3, auditor: AUDITOR, call: keyed('late'), says: 'not_violated' });
    found.push(running.judge().disposition.status);
    found.push(new Session().judge().disposition.status);
    expect(found).toEqual(['unverified', 'open', 'incomplete', 'violated', 'contested', 'affirmed']);
    expect([...found].sort()).toEqual([...SESSION_DISPOSITIONS].sort());
  });

  test('a FAIL that does not prove what it is about is no violation, and no affirmation either', () => {
    for (const attrs of [
      { call_leaf: new SessionLog().sink('x').log.leaf(0) },
      { call_index: undefined, result_index: 99_999 },
      { call_index: undefined, call_leaf: undefined, pre_leaf: keyed('x').slice(0, 43).padEnd(44, '=') },
    ]) {
      const session = new Session({ calls: 1 });
      session.verifier.open();
      const { entries } = session.log;
      const at = (kind: string): number =>
        entries.findIndex((entry) => entry.by === 'sender' && entry.envelope.kind === kind);
      const cited = { pre: at('state'), call: at('call'), result: at('result'), name: 'call 0' };
      const pre_leaf = session.log.leaf(0);
      session.verdict(cited, { status: 'FAIL', ...attrs, ...('pre_leaf' in attrs ? { pre_leaf } : {}) });
      session.verifier.stated('epoch.close');
      expect(session.judge().disposition.status).toBe('unverified');
      expect(reasonsOf(session.judge())).toEqual(['verdict_rejected']);
    }
    const session = new Session({ calls: 1 });
    session.verifier.open();
    session.verifier.say('verdict', {
      session: S,
      attrs: { status: 'FAIL', mode: 'none', cause: 'CI_WEAKENED' },
    });
    expect(session.judge().disposition.status).toBe('violated');
    const passed = new Session({ calls: 1 });
    passed.verifier.open();
    passed.verifier.say('verdict', { session: S, attrs: { status: 'PASS', mode: 'none' } });
    passed.verifier.stated('epoch.close');
    expect(passed.judge().disposition.status).toBe('affirmed');
  });

  test('what one sink says that another does not is contested', () => {
    const session = new Session();
    session.proxy.open();
    session.hook.open();
    session.proxy.say('result', { session: S, call: keyed('call 0'), match: keyed('something else') });
    expect(session.judge().disposition).toMatchObject({
      status: 'contested',
      reasons: [{ reason: 'sinks_differ', calls: [keyed('call 0')], part: 'outcome' }],
    });
  });

  test('an auditor makes a violation, or contradicts a verdict, or another auditor', () => {
    const label = (says: Label['says'], call?: string): Label => ({
      index: 1,
      auditor: AUDITOR,
      says,
      ...(call === undefined ? {} : { call }),
    });
    const passed = new Session();
    passed.labels.push(label('violated', keyed('call 0')));
    expect(reasonsOf(passed.judge())).toEqual(['auditor_differs']);
    const failed = new Session({ status: () => 'FAIL' });
    failed.labels.push(label('violated', keyed('call 0')));
    expect(failed.judge().disposition.status).toBe('violated');
    expect(authority(failed).level).toBe('adjudicated');
    failed.labels.push(label('not_violated', keyed('call 0')));
    expect(reasonsOf(failed.judge())).toContain('auditors_differ');
    const unjudged = new Session({ calls: 0 });
    unjudged.labels.push(label('violated'));
    expect(unjudged.judge().disposition.status).toBe('violated');
  });
});

describe('authority', () => {
  test('rises from asserted to adjudicated by what the log shows, and says who says so', () => {
    const session = new Session();
    expect(authority(session)).toMatchObject({ level: 'replayed', reasons: [] });
    expect(authority(session).by.map(({ level }) => level)).toEqual(['observed', 'observed', 'replayed']);
    const drop = session.log.entries.findLastIndex(
      (entry) => entry.by === 'sender' && entry.envelope.kind === 'verdict',
    );
    expect(drop).toBeGreaterThan(0);
    const without = new Session({ status: () => 'UNVERIFIED' });
    expect(authority(without)).toMatchObject({ level: 'corroborated' });
    const oneDomain = new Session({ status: () => 'UNVERIFIED', hookDomain: 'desk' });
    expect(authority(oneDomain)).toMatchObject({ level: 'observed' });
    expect(authority(oneDomain).reasons).toContainEqual({ reason: 'one_domain' });
  });

  test('a keyed sink of kind otlp only asserts, and corroborates nothing', () => {
    const log = new SessionLog();
    const session = new Session({ status: () => 'UNVERIFIED', hookDomain: 'desk' });
    const otlp = session.log.sink('spans', { kind: 'otlp', domain: 'vendor' });
    otlp.open();
    const said = { session: S, call: keyed('call 0') };
    otlp.say('call', { ...said, match: keyed('call 0 args') });
    otlp.say('result', { ...said, match: keyed('call 0 result') });
    expect(authority(session)).toMatchObject({ level: 'observed' });
    expect(authority(session).by).toContainEqual(
      expect.objectContaining({ sink: 'spans', level: 'asserted', domain: 'vendor' }),
    );
    expect(authority(session).reasons).toContainEqual({
      reason: 'self_asserted',
      sink: 'spans',
      kind: 'otlp',
    });
    expect(log.entries).toHaveLength(0);
  });

  test('a line signed under another key than the declared one observes nothing, nor does one from before the key', () => {
    const session = new Session({ calls: 0 });
    const said = { session: S, call: keyed('a'), match: keyed('a args') };
    const sink = session.log.sink('extra', { kind: 'proxy', domain: 'desk' });
    sink.open();
    session.log.append(sink.line('call', said), { ...sink.by, signed: '0123456789abcdef' });
    expect(authority(session).level).toBe('asserted');
    const early = new Session({ calls: 0 });
    const late = early.log.sink('extra', { kind: 'proxy', declared: false });
    late.open();
    const signed = session.log.sink('extra', { kind: 'proxy' }).by.signed;
    early.log.append(late.line('call', said), { ...late.by, signed });
    early.log.sink('extra', { kind: 'proxy' });
    expect(authority(early)).toMatchObject({
      level: 'asserted',
      reasons: [{ reason: 'unkeyed' }, { reason: 'not_replayed' }],
    });
  });

  test('is that of the part that rests on least', () => {
    const session = new Session({ calls: 0 });
    const plain = session.log.sink('plain', { kind: 'proxy', domain: 'desk', keyed: false });
    session.proxy.open();
    plain.open();
    session.proxy.say('call', { session: S, call: keyed('a'), match: keyed('a args') });
    expect(authority(session).level).toBe('observed');
    plain.say('result', { session: S, call: keyed('a'), match: keyed('a result') });
    expect(authority(session).level).toBe('asserted');
  });

  test('asks nothing of sinks that are no members, even when they are named', () => {
    const session = new Session({ calls: 1 });
    const { log } = session;
    const call = session.log.coverage(S).calls[0] as SeenCall;
    const found = callAuthority(call, {
      session: S,
      entryAt: (index) => log.entries[index],
      bytesAt: (index) => log.bytes[index],
      standing: new Standing(log.entries),
      members: new Set(['proxy']),
      verdicts: [],
      labels: [],
    });
    expect(found.level).toBe('observed');
    expect(found.by.map((sayer) => 'sink' in sayer && sayer.sink)).toEqual(['proxy']);
  });

  test('of identical calls, a sink that saw fewer corroborates none', () => {
    const session = new Session({ calls: 0 });
    session.proxy.open();
    session.hook.open();
    const said = (n: number): Record<'session' | 'call' | 'match', string> => ({
      session: S,
      call: `weak:${keyed(`ls ${n}`)}`,
      match: keyed('ls'),
    });
    for (const [sink, n] of [
      [session.proxy, 1],
      [session.proxy, 2],
      [session.hook, 1],
    ] as const) {
      sink.say('call', said(n));
      sink.say('result', said(n));
    }
    expect(authority(session)).toMatchObject({ level: 'observed' });
    session.hook.say('call', said(2));
    session.hook.say('result', said(2));
    expect(authority(session)).toMatchObject({ level: 'corroborated' });
  });

  test("a verifier of the recorder's own domain is named as such", () => {
    expect(authority(new Session({ verifierDomain: 'desk' })).by).toContainEqual(
      expect.objectContaining({ level: 'replayed', recorder: 'same domain' }),
    );
  });

  const other = (session: Session): ReturnType<Session['call']> => ({
    ...session.call('other'),
    name: 'call 0',
  });
  test('of calls that can not be told apart, all have to be run again', () => {
    const session = new Session({ calls: 0 });
    session.proxy.open();
    session.verifier.open();
    const done = [1, 2].map((n) => {
      const call = `weak:${keyed(`ls ${n}`)}`;
      const pre = session.proxy.say('state', { session: S, attrs: { state: keyed('s'), phase: 'pre' } });
      const begun = session.proxy.say('call', { session: S, call, match: keyed('ls') });
      return { pre, call: begun, result: session.proxy.say('result', { session: S, call }), name: call };
    });
    session.verdict(done[0] as (typeof done)[0]);
    expect(authority(session)).toMatchObject({ level: 'observed' });
    expect(authority(session).reasons).toContainEqual({ reason: 'one_of_identical', identical: 2 });
    session.verdict(done[0] as (typeof done)[0]);
    expect(authority(session)).toMatchObject({ level: 'observed' });
    session.verdict(done[1] as (typeof done)[0]);
    expect(authority(session)).toMatchObject({ level: 'replayed' });
  });

  const cite = (session: Session, part: string, index: number): Record<string, unknown> => ({
    [`${part}_index`]: index,
    [`${part}_leaf`]: session.log.leaf(index),
  });
  /** A line of another session in place of what a verdict has to cite. */
  const abroad = (session: Session, part: string, kind: string, said: object): Record<string, unknown> =>
    cite(session, part, session.proxy.say(kind, { ...said, session: 'run-2' }));
  const post = (session: Session): Record<string, unknown> => {
    const said = { session: S, attrs: { state: keyed('state call 0'), phase: 'post' } };
    const index = session.proxy.say('state', said);
    session.proxy.say('result', { session: S, call: keyed('call 0'), match: keyed('call 0 result') });
    return { ...cite(session, 'pre', index), ...cite(session, 'result', session.log.entries.length - 1) };
  };
  test.each<[string, Record<string, unknown> | ((session: Session) => Record<string, unknown>)]>([
    ['not_run', { mode: 'none' }],
    ['not_run', { replays: 0 }],
    ['not_cited', { pre_leaf: undefined }],
    ['absent', { result_index: 99_999 }],
    ['leaf', (session) => ({ result_leaf: session.log.leaf(0) })],
    [
      'other',
      (session) => abroad(session, 'pre', 'state', { attrs: { state: keyed('state call 0'), phase: 'pre' } }),
    ],
    ['other', (session) => abroad(session, 'result', 'result', { call: keyed('call 0') })],
    ['other', (session) => post(session)],
    ['other', { pre: `sha256:${'0'.repeat(64)}` }],
    [
      'other',
      (session) => ({
        pre_index: other(session).call,
        pre_leaf: session.log.leaf(session.log.entries.length - 4),
      }),
    ],
    [
      'other',
      (session) => ({
        result_index: other(session).result,
        result_leaf: session.log.leaf(session.log.entries.length - 2),
      }),
    ],
  ])('a verdict that does not hold is no replay: %s', (fault, attrs) => {
    const session = new Session({ calls: 0 });
    session.proxy.open();
    session.hook.open();
    session.verifier.open();
    const cited = session.call('call 0');
    session.verdict(cited, typeof attrs === 'function' ? attrs(session) : attrs);
    expect(authority(session).level).toBe('corroborated');
    expect(authority(session).reasons).toContainEqual(expect.objectContaining({ reason: 'verdict', fault }));
  });

  test('the pre-state has to be in a head that was signed before the result came', () => {
    const session = new Session({ calls: 1 });
    const [pre, result] = ['state', 'result'].map((kind) =>
      session.log.entries.findIndex((entry) => entry.by === 'sender' && entry.envelope.kind === kind),
    ) as [number, number];
    for (let size = pre + 1; size <= result; size++) session.unsignedSizes.add(size);
    expect(authority(session).reasons).toContainEqual(expect.objectContaining({ fault: 'head' }));
    session.unsignedSizes.delete(result);
    expect(authority(session).level).toBe('replayed');
    session.unsignedSizes.add(result).delete(pre + 1);
    expect(authority(session).level).toBe('replayed');
  });

  test.each([
    ['role', { kind: 'verifier', role: 'sink' }],
    ['unkeyed', { kind: 'verifier', role: 'verifier', keyed: false }],
    ['kind', { kind: 'proxy', role: 'verifier' }],
  ] as const)('who is no verifier replays nothing: %s', (fault, options) => {
    const session = new Session({ status: () => 'UNVERIFIED' });
    const sink = session.log.sink('would-be', options);
    sink.open();
    const cited = { pre: 0, call: 0, result: 0, name: 'call 0' };
    session.log.entries.forEach((entry, index) => {
      if (entry.by !== 'sender' || entry.envelope.sink !== 'proxy') return;
      if (entry.envelope.kind === 'state') cited.pre ||= index;
      if (entry.envelope.kind === 'call') cited.call ||= index;
      if (entry.envelope.kind === 'result') cited.result ||= index;
    });
    session.verdict(cited, {}, sink);
    expect(authority(session)).toMatchObject({ level: 'corroborated' });
    expect(authority(session).reasons).toContainEqual(expect.objectContaining({ reason: 'verdict', fault }));
    session.verdict(cited, { status: 'FAIL' }, sink);
    expect(session.judge().disposition.status).not.toBe('violated');
  });
});

/** Lines that a sender may write, whoever it is and whatever it wants to seem. */
const words = fc.record({
  kind: fc.constantFrom(
    'call',
    'result',
    'verdict',
    'state',
    'session.open',
    'session.close',
    'claim',
    'epoch.open',
    'x.note',
  ),
  call: fc.constantFrom<string>('call 0', 'call 1', 'new'),
  match: fc.constantFrom('fit', 'fit', 'fit', 'else', undefined),
  session: fc.constantFrom(S, S, S, 'run-2', undefined),
  status: fc.constantFrom('PASS', 'WARN', 'FAIL', 'UNVERIFIED'),
  kindOfSink: fc.constantFrom('proxy', 'verifier', 'hook'),
  conflict: fc.boolean(),
});
type Words = typeof words extends fc.Arbitrary<infer T> ? T : never;

function write(session: Session, by: LogSink, each: Words): void {
  const { log } = session;
  const index = (kind: string): number =>
    log.entries.findIndex(
      (entry) =>
        entry.by === 'sender' &&
        entry.envelope.kind === kind &&
        (entry.envelope.call === undefined || entry.envelope.call === keyed(each.call)),
    );
  const cite = (part: string, kind: string): Record<string, unknown> =>
    index(kind) < 0 ? {} : { [`${part}_index`]: index(kind), [`${part}_leaf`]: log.leaf(index(kind)) };
  const attrs: Record<string, Record<string, unknown>> = {
    verdict: {
      status: each.status,
      mode: 'isolated',
      replays: 3,
      ...cite('pre', 'state'),
      ...cite('call', 'call'),
      ...cite('result', 'result'),
    },
    state: { state: keyed(each.call), phase: 'pre' },
    'epoch.open': { counter: 0, sink_kind: each.kindOfSink },
    'session.close': { size: 0, root: log.leaf(0), dropped: 0, filtered: 0 },
  };
  const said = {
    session: each.session,
    ...(each.kind === 'x.note' ? {} : { call: keyed(each.call) }),
    match:
      each.match === undefined
        ? undefined
        : keyed(each.match === 'fit' ? `${each.call} ${each.kind}` : each.match),
    attrs: attrs[each.kind],
  };
  const first = log.entries.findIndex((entry) => entry.by === 'sender');
  const body = by.line(each.kind, said);
  if (each.conflict) log.append(body, by.by, first);
  else by.say(each.kind, said);
}

describe('nothing that a sender controls', () => {
  test('raises the authority of a call above what its credentials allow', () => {
    const who = [
      ['agent', { role: 'agent', keyed: false }, 'asserted'],
      ['keyed agent', { role: 'agent', kind: 'proxy', domain: 'e' }, 'asserted'],
      ['unkeyed', { role: 'sink', keyed: false, kind: 'proxy', domain: 'a' }, 'asserted'],
      ['unkeyed verifier', { role: 'verifier', keyed: false, kind: 'verifier', domain: 'b' }, 'asserted'],
      ['otlp', { role: 'sink', kind: 'otlp', domain: 'c' }, 'asserted'],
      ['undeclared kind', { role: 'sink', domain: 'd' }, 'asserted'],
      ['keyed', { role: 'sink', kind: 'proxy', domain: 'desk' }, 'observed'],
      ['twin', { role: 'sink', kind: 'hook', domain: 'desk' }, 'observed'],
      ['abroad', { role: 'sink', kind: 'hook', domain: 'vendor' }, 'corroborated'],
    ] as const;
    const reached = new Set<string>();
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.subarray([...who.keys()], { minLength: 1 }), words), {
          minLength: 1,
          maxLength: 15,
        }),
        fc.integer({ min: 1, max: who.length }),
        (lines, upTo) => {
          const session = new Session({ calls: 0 });
          const sinks = who.map(([name, options]) => session.log.sink(name.replace(' ', '-'), options));
          for (const sink of sinks) sink.open();
          // Something that can be corroborated, by those of these sinks that could.
          for (const kind of ['call', 'result'] as const) {
            for (const n of [6, 7, 8]) {
              const fit = { kind, call: 'base', match: 'fit', session: S, conflict: false } as const;
              if (n < upTo)
                write(session, sinks[n] as LogSink, { ...fit, status: 'PASS', kindOfSink: 'proxy' });
            }
          }
          for (const [some, each] of lines) {
            for (const n of some) if (n < upTo) write(session, sinks[n] as LogSink, each);
          }
          const allowed = CALL_AUTHORITY_LEVELS.indexOf(
            who
              .slice(0, upTo)
              .map(([, , level]) => level)
              .at(-1) as 'asserted',
          );
          for (const { authority } of session.judge().calls) {
            reached.add(authority.level);
            expect(CALL_AUTHORITY_LEVELS.indexOf(authority.level)).toBeLessThanOrEqual(allowed);
          }
        },
      ),
      { numRuns: 80 },
    );
    expect([...reached].sort()).toEqual(['asserted', 'corroborated', 'observed']);
  });

  test('changes a session whose members it is not one of', () => {
    const policy = {
      sessions: [{ kind: 'desk', opens: ['proxy'], required: ['proxy', 'hook'], members: ['verifier'] }],
    };
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(2), words), { minLength: 1, maxLength: 20 }),
        fc.constantFrom<Options['status']>(
          () => 'PASS',
          () => 'FAIL',
          () => 'UNVERIFIED',
          (n) => (n === 0 ? 'PASS' : 'WARN'),
        ),
        (lines, status) => {
          const session = new Session({ policy, status: status as (n: number) => string });
          const { disposition: before } = session.judge();
          const strangers = [
            session.log.sink('agent', { role: 'agent', keyed: false, declared: false }),
            session.log.sink('neighbour', { role: 'sink', kind: 'proxy', domain: 'else' }),
            session.log.sink('other-verifier', { role: 'verifier', kind: 'verifier' }),
          ];
          for (const stranger of strangers) stranger.open();
          for (const [n, each] of lines) write(session, strangers[n] as LogSink, each);
          expect(session.judge().disposition).toEqual(before);
        },
      ),
      { numRuns: 100 },
    );
  });
});

describe('affirmed', () => {
  const expected: Record<string, readonly [status: string, reason: string | undefined]> = {
    'no required sink': ['unverified', 'no_required_sink'],
    'no call': ['unverified', 'no_call'],
    'a verdict is FAIL': ['violated', 'fail'],
    'a verdict is UNVERIFIED': ['unverified', 'verdict_unverified'],
    'a call without a verdict': ['unverified', 'not_replayed'],
    'a lost line': ['incomplete', 'coverage'],
    "a verifier's lost line": ['unverified', 'coverage'],
    'a session that goes on': ['open', 'not_closed'],
    'a required sink that is silent': ['incomplete', 'coverage'],
    'an unsigned line': ['unverified', 'unsigned'],
    'a required sink that is not closed': ['open', 'not_closed'],
    'calls without a name': ['unverified', 'unnamed_calls'],
    'a conflict': ['contested', 'coverage'],
    'a second story that names it': ['contested', 'coverage'],
    'a head that was never signed': ['unverified', 'not_replayed'],
    'an entry that is not shown': ['unverified', 'not_replayed'],
    'a lost epoch': ['incomplete', 'coverage'],
    'an auditor who disagrees': ['contested', 'auditor_differs'],
    'a verdict that does not hold': ['unverified', 'verdict_rejected'],
  };

  /** Each takes one thing away that it needs. */
  const thefts: Record<string, (session: Session, n: number) => Judgement> = {
    'a second story that names it': (session) => {
      session.proxy.open();
      const first = session.proxy.say('x.note', { session: 'run-2' });
      session.log.append(
        session.proxy.line('claim', { session: S }, session.proxy.size),
        session.proxy.by,
        first,
      );
      return session.judge();
    },
    'no required sink': (session) =>
      session.judge({
        ...session.log.coverage(S),
        members: session.log.coverage(S).members.map((each) => ({ ...each, required: false })),
      }),
    'no call': () => new Session({ calls: 0 }).judge(),
    'a verdict is FAIL': (_, n) =>
      new Session({ calls: n + 1, status: (call) => (call === n ? 'FAIL' : 'PASS') }).judge(),
    'a verdict is UNVERIFIED': (_, n) =>
      new Session({ calls: n + 1, status: (call) => (call === n ? 'UNVERIFIED' : 'PASS') }).judge(),
    'a call without a verdict': (session) => {
      session.proxy.open();
      session.hook.open();
      session.call('one more');
      for (const sink of [session.proxy, session.hook]) {
        sink.stated('session.close', { session: S });
        sink.stated('epoch.close');
      }
      return session.judge();
    },
    'a lost line': (session, n) => {
      const sink = n % 2 === 0 ? session.proxy : session.hook;
      sink.open();
      sink.say('x.note', { session: S }, true);
      sink.stated('session.close', { session: S });
      sink.stated('epoch.close');
      return session.judge();
    },
    "a verifier's lost line": (session) => {
      session.verifier.open();
      session.verifier.say('verdict', { session: S, attrs: { status: 'FAIL' } }, true);
      session.verifier.say('x.note', { session: S });
      session.verifier.stated('epoch.close');
      return session.judge();
    },
    'a session that goes on': (session, n) => {
      const sink = n % 2 === 0 ? session.proxy : session.hook;
      sink.open();
      sink.say('x.note', { session: S });
      return session.judge();
    },
    'a required sink that is silent': () => {
      const policy = {
        lateness: 10,
        sessions: [{ kind: 'k', opens: ['proxy'], required: ['proxy', 'hook', 'third'] }],
      };
      return new Session({ policy }).judge(new Session({ policy }).log.coverage(S, 60));
    },
    'an unsigned line': (session) => {
      session.proxy.open();
      session.log.append(session.proxy.line('x.note', { session: S }), {
        ...session.proxy.by,
        signed: undefined,
      });
      session.proxy.say('x.note', { session: S }, true);
      session.proxy.stated('session.close', { session: S });
      session.proxy.stated('epoch.close');
      return session.judge();
    },
    'calls without a name': (session) => {
      session.proxy.open();
      session.proxy.say('call', { session: S });
      session.proxy.stated('session.close', { session: S });
      session.proxy.stated('epoch.close');
      return session.judge();
    },
    'a conflict': (session, n) => {
      const sink = n % 2 === 0 ? session.proxy : session.hook;
      session.log.append(sink.line('x.note', { session: S }, 2), sink.by, 5);
      return session.judge();
    },
    'a head that was never signed': (session) => {
      for (let size = 0; size < session.log.entries.length; size++) session.unsignedSizes.add(size + 1);
      return session.judge();
    },
    'an entry that is not shown': (session, n) => {
      const { log } = session;
      const wanted = log.entries.flatMap((entry, index) =>
        entry.by === 'sender' &&
        /^(?:call|result|state)$/.test(entry.envelope.kind) &&
        entry.envelope.sink === 'proxy'
          ? index
          : [],
      );
      const hidden = wanted[n % wanted.length];
      return judgeSession(log.coverage(S), {
        session: S,
        entryAt: (index) => (index === hidden ? undefined : log.entries[index]),
        bytesAt: (index) => (index === hidden ? undefined : log.bytes[index]),
        standing: new Standing(log.entries),
        verdicts: log.sent(),
        labels: [],
      });
    },
    'a lost epoch': (session) => {
      session.proxy.open(true);
      session.proxy.open();
      session.proxy.say('x.note', { session: S });
      session.proxy.stated('session.close', { session: S });
      session.proxy.stated('epoch.close');
      return session.judge();
    },
    'an auditor who disagrees': (session) => {
      session.labels.push({ index: 1, auditor: AUDITOR, call: keyed('call 0'), says: 'violated' });
      return session.judge();
    },
    'a verdict that does not hold': (session) => {
      session.verifier.open();
      const first = session.log.entries.findIndex(
        (entry) => entry.by === 'sender' && entry.envelope.kind === 'call',
      );
      session.verdict({ pre: first, call: first, result: first, name: 'call 0' });
      session.verifier.stated('epoch.close');
      return session.judge();
    },
    'a required sink that is not closed': (session, n) => {
      const coverage = session.log.coverage(S);
      const members = coverage.members.map((each, i) => (i === n % 2 ? { ...each, closed: false } : each));
      return session.judge({ ...coverage, members });
    },
    'a statement of another member that is not complete': (session, n) => {
      const coverage = session.log.coverage(S);
      const status = (['gap', 'silent', 'unclosed', 'open', 'conflict'] as const)[n % 5] as 'gap';
      return session.judge({
        ...coverage,
        members: coverage.members.map((each, i) =>
          i === n % coverage.members.length ? { ...each, status } : each,
        ),
      });
    },
  };

  test.each(Object.keys(thefts))('can not be had with something missing: %s', (name) => {
    for (let n = 0; n < 6; n++) {
      expect(new Session().judge().disposition.status).toBe('affirmed');
      const judgement = thefts[name]?.(new Session(), n) as Judgement;
      expect(judgement.disposition.status).not.toBe('affirmed');
      const [status, reason] = expected[name] ?? [];
      if (status === undefined) continue;
      expect(judgement.disposition.status).toBe(status);
      expect(reasonsOf(judgement)).toContain(reason);
    }
  });

  test('is never the answer to evidence that was tampered with at random, unless all of it still holds', () => {
    const outcomes = new Map<string, number>();
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(fc.constantFrom('drop', 'hide', 'unsign', 'say', 'head', 'keep'), fc.nat(200), words),
          { maxLength: 3 },
        ),
        (changes) => {
          const session = new Session();
          const { log } = session;
          const hidden = new Set<number>();
          const members: readonly LogSink[] = [session.proxy, session.hook, session.verifier];
          for (const [change, n, each] of changes) {
            const at = n % log.entries.length;
            if (change === 'hide') hidden.add(at);
            else if (change === 'head') session.unsignedSizes.add(at);
            else if (change === 'say') write(session, members[n % 3] as LogSink, each);
          }
          const coverage = log.coverage(S);
          const { disposition, calls } = judgeSession(coverage, {
            session: S,
            entryAt: (index) => (hidden.has(index) ? undefined : session.entryAt(index)),
            bytesAt: (index) => (hidden.has(index) ? undefined : log.bytes[index]),
            standing: new Standing(log.entries),
            verdicts: log.sent(),
            labels: session.labels,
          });
          outcomes.set(disposition.status, (outcomes.get(disposition.status) ?? 0) + 1);
          if (disposition.status !== 'affirmed') return;
          // Told again from the log itself, not from what was derived of it.
          expect(coverage.members.every(({ status, signed }) => status === 'complete' && signed)).toBe(true);
          expect(coverage.members.filter(({ required }) => required).map(({ sink }) => sink)).toEqual([
            'hook',
            'proxy',
          ]);
          expect(coverage.closed).toBe(true);
          const named = new Set<string>();
          for (const { envelope } of log.sent()) {
            if (envelope.session !== S || !/^(?:call|result)$/.test(envelope.kind)) continue;
            named.add(envelope.call as string);
          }
          expect(new Set(calls.flatMap(({ call }) => call.calls))).toEqual(named);
          for (const id of named) {
            const word = log
              .sent()
              .filter(
                ({ envelope, line }) =>
                  envelope.kind === 'verdict' &&
                  envelope.call === id &&
                  line.signed === session.verifier.by.signed,
              );
            expect(word.length).toBeGreaterThan(0);
            for (const { envelope } of word) expect(envelope.attrs?.['status']).toMatch(/^(?:PASS|WARN)$/);
          }
        },
      ),
      { numRuns: 80 },
    );
    expect(outcomes.get('affirmed')).toBeGreaterThan(0);
    expect(outcomes.size).toBeGreaterThan(2);
  });
});

describe('labels of a log', () => {
  test('of an auditor the last about the same counts', () => {
    const log = new SessionLog();
    const auditors = [log.id('aud'), log.id('aud')] as const;
    const label = (by: string, says: 'violated' | 'not_violated', call?: string): number =>
      log.state({ kind: 'label.set', v: 1, session: S, ...(call === undefined ? {} : { call }), says, by });
    label(auditors[0], 'violated');
    const other = label(auditors[1], 'not_violated');
    const call = label(auditors[0], 'violated', keyed('a'));
    const again = label(auditors[0], 'not_violated');
    const standing = new Standing(log.entries);
    expect(standing.labels(S, log.entries.length).map(({ index }) => index)).toEqual([other, call, again]);
    expect(standing.labels(S, again).map(({ index }) => index)).toEqual([0, other, call]);
    expect(standing.labels('run-2', 10)).toEqual([]);
  });
});
