import {
  type MemberStatement,
  formatStatement,
  parseStatement,
  type SessionStatement,
  SessionCoverage,
} from '@belay/coverage';
import { CompactRange, leafHash, nodeHash } from '@belay/merkle';
import { keyed, type LogSink, SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

const S = 'run-1';

/** A proxy and a hook that both have to see a session, and what else a test asks for. */
function setUp(policy: unknown = {}): { log: SessionLog; proxy: LogSink; hook: LogSink } {
  const log = new SessionLog(policy);
  const proxy = log.sink('proxy', { kind: 'proxy', domain: 'desk', required: true });
  const hook = log.sink('hook', { kind: 'hook', domain: 'desk', required: true });
  proxy.open();
  hook.open();
  return { log, proxy, hook };
}

const member = (statement: SessionStatement, sink: string): MemberStatement =>
  statement.members.find((each) => each.sink === sink) as MemberStatement;

const call = (sink: LogSink, name: string, result = name): void => {
  sink.say('call', { session: S, call: keyed(name), match: keyed(`${name} args`) });
  sink.say('result', { session: S, call: keyed(name), match: keyed(`${result} result`) });
};

/** The `session.close` that a sink is about to write, which has said only what the log ends with. */
function statedLine(sink: LogSink, size: number): Buffer {
  const bodies = sink.log
    .sent()
    .filter(({ envelope }) => envelope.epoch === sink.epoch)
    .map(({ body }) => body);
  const range = CompactRange.empty();
  for (const body of bodies.slice(0, size)) range.append(leafHash(body));
  const attrs = { size, root: range.root().toString('base64'), dropped: 0, filtered: 0 };
  return sink.line('session.close', { session: S, attrs });
}

function canonicalOf(statement: SessionStatement): SessionStatement {
  const bytes = formatStatement(statement);
  const again = parseStatement(bytes);
  expect(formatStatement(again)).toEqual(bytes);
  return statement;
}

test('two sinks that saw a session whole cover it, though their epochs go on', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) {
    sink.say('session.open', { session: S });
    call(sink, 'a');
    sink.stated('session.close', { session: S });
    sink.say('session.open', { session: 'run-2' });
  }
  const statement = canonicalOf(log.coverage(S));
  expect(statement).toMatchObject({ status: 'complete', closed: true });
  expect(statement.members.map(({ sink, status, signed }) => [sink, status, signed])).toEqual([
    ['hook', 'complete', true],
    ['proxy', 'complete', true],
  ]);
  expect(statement.calls).toMatchObject([{ weak: false, arguments: 'same', outcome: 'same' }]);
  expect(canonicalOf(log.coverage('run-2'))).toMatchObject({ status: 'open', closed: false });
});

test('a line lost on the way is named by its number; the session before it and the one after are not blamed', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) {
    sink.say('session.open', { session: 'run-0' });
    sink.stated('session.close', { session: 'run-0' });
    sink.say('session.open', { session: S });
    sink.say('call', { session: S, call: keyed('a') }, sink === proxy);
    sink.say('result', { session: S, call: keyed('a') });
    sink.stated('session.close', { session: S });
  }
  const statement = canonicalOf(log.coverage(S));
  expect(statement.status).toBe('gap');
  expect(member(statement, 'proxy').reasons).toContainEqual({
    reason: 'missing',
    epoch: proxy.epoch,
    from: 5,
    to: 6,
  });
  expect(log.coverage('run-0').status).toBe('complete');
});

test('a hole before a session leaves its root without comparison, and that is said', () => {
  const { log, proxy, hook } = setUp();
  proxy.say('x.note', {}, true);
  for (const sink of [proxy, hook]) {
    sink.say('session.open', { session: S });
    sink.stated('session.close', { session: S });
  }
  expect(member(canonicalOf(log.coverage(S)), 'proxy')).toMatchObject({
    status: 'gap',
    reasons: [{ reason: 'root_not_compared', epoch: proxy.epoch }],
  });
});

test('a restart in the middle of a session is no hole; a lost epoch is one', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) {
    sink.say('session.open', { session: S });
    call(sink, 'a');
  }
  proxy.open();
  hook.open(true);
  hook.say('call', { session: S, call: keyed('b') }, true);
  hook.open();
  for (const sink of [proxy, hook]) {
    call(sink, 'c');
    sink.stated('session.close', { session: S });
  }
  const statement = canonicalOf(log.coverage(S));
  expect(member(statement, 'proxy')).toMatchObject({ status: 'complete', closed: true });
  expect(member(statement, 'proxy').epochs).toHaveLength(2);
  const found = member(statement, 'hook');
  expect(found.status).toBe('silent');
  expect(found.reasons).toContainEqual(
    expect.objectContaining({
      reason: 'lost_epoch',
      lost: expect.objectContaining({ size: 2, counters: { from: 1, to: 2 } }) as unknown,
    }),
  );
});

test('a lost epoch after the last of a session that was not closed may have held more of it', () => {
  for (const [closed, status] of [
    [false, 'silent'],
    [true, 'complete'],
  ] as const) {
    const { log, proxy, hook } = setUp();
    for (const sink of [proxy, hook]) sink.say('session.open', { session: S });
    hook.stated('session.close', { session: S });
    if (closed) proxy.stated('session.close', { session: S });
    proxy.stated('epoch.close');
    proxy.open(true);
    proxy.open();
    const found = member(canonicalOf(log.coverage(S)), 'proxy');
    expect(found.status).toBe(status);
    expect(found.reasons.map(({ reason }) => reason)).toEqual(closed ? [] : ['lost_epoch']);
  }
});

test('a run of which every line about the session was lost keeps it from being complete, where that may have gone on in it', () => {
  /** The proxy's runs: what each says of the session, and whether a line of its own that says more is lost. */
  type Run = {
    readonly says: readonly ('session.open' | 'x.note' | 'session.close')[];
    readonly loses?: boolean;
  };
  const run = (...says: Run['says']): Run => ({ says });
  const loses: Run = { says: [], loses: true };
  const statusOf = (...runs: readonly Run[]): [status: string, missing: number] => {
    const { log, proxy, hook } = setUp();
    hook.say('session.open', { session: S });
    hook.stated('session.close', { session: S });
    runs.forEach(({ says, loses: lose = false }, at) => {
      if (at > 0) proxy.open();
      for (const kind of says) {
        if (kind === 'session.close') proxy.stated(kind, { session: S });
        else proxy.say(kind, { session: S });
      }
      if (lose) proxy.say('call', { session: S, call: keyed('lost') }, true);
      proxy.stated('epoch.close');
    });
    const { status, reasons } = member(canonicalOf(log.coverage(S)), 'proxy');
    return [status, reasons.filter(({ reason }) => reason === 'missing').length];
  };
  const whole = run('session.open', 'session.close');
  // Between two runs of it, after one that it did not close, before one that it did not open.
  expect(statusOf(run('session.open'), loses, run('x.note', 'session.close'))).toEqual(['gap', 1]);
  expect(statusOf(run('session.open'), loses, run(), loses, run('session.close'))).toEqual(['gap', 2]);
  expect(statusOf(run('session.open'), loses, whole)).toEqual(['gap', 1]);
  expect(statusOf(run('session.open', 'x.note'), loses, run())).toEqual(['gap', 1]);
  expect(statusOf(loses, run('x.note', 'session.close'))).toEqual(['gap', 1]);
  // Where it can't have gone on.
  expect(statusOf(loses, whole, loses)).toEqual(['complete', 0]);
  expect(statusOf(whole, loses, whole)).toEqual(['complete', 0]);
  expect(statusOf(run('session.open'), run(), run('session.close'))).toEqual(['complete', 0]);
  // What a receipt says that it does not prove: a run of it that is not next to one of which a line came.
  expect(statusOf(run('session.open'), run(), loses)).toEqual(['complete', 0]);
});

test('a run that can not say what it follows may have followed that of a session which was not closed', () => {
  for (const [closed, status] of [
    [false, 'gap'],
    [true, 'complete'],
  ] as const) {
    const { log, proxy, hook } = setUp();
    for (const sink of [proxy, hook]) sink.say('session.open', { session: S });
    hook.stated('session.close', { session: S });
    if (closed) proxy.stated('session.close', { session: S });
    proxy.stated('epoch.close');
    proxy.open(true);
    proxy.say('x.note');
    expect(member(canonicalOf(log.coverage(S)), 'proxy').status).toBe(status);
    // Once it is told what followed, it is that.
    proxy.stated('epoch.close');
    proxy.open();
    expect(member(canonicalOf(log.coverage(S)), 'proxy').status).toBe(status);
  }
});

test('a run that was killed in opening does not stand for the one that followed', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) sink.say('session.open', { session: S });
  hook.stated('session.close', { session: S });
  proxy.stated('epoch.close');
  proxy.open();
  expect(member(canonicalOf(log.coverage(S)), 'proxy').status).toBe('complete');
  proxy.open(true);
  proxy.say('call', { session: S, call: keyed('lost') }, true);
  proxy.stated('heartbeat');
  expect(member(canonicalOf(log.coverage(S)), 'proxy').status).toBe('gap');
});

test('a root that does not fit is a conflict of the sessions it is about, and of no other', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) {
    sink.say('session.open', { session: 'run-0' });
    sink.stated('session.close', { session: 'run-0' });
    sink.stated('heartbeat');
    sink.say('session.open', { session: S });
    const other = sink === proxy ? { root: Buffer.alloc(32, 7).toString('base64') } : {};
    sink.stated('heartbeat', { attrs: other });
    sink.stated('session.close', { session: S });
  }
  const statement = canonicalOf(log.coverage(S));
  expect(member(statement, 'proxy')).toMatchObject({
    status: 'conflict',
    reasons: [{ reason: 'conflict', kind: 'root', epoch: proxy.epoch, from: 4, to: 6 }],
  });
  expect(member(statement, 'hook').status).toBe('complete');
  expect(log.coverage('run-0').status).toBe('complete');
});

test('lines that came after they were given up are there, and said not to be held to a root', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) sink.say('session.open', { session: S });
  const lines = [1, 2].map(() => {
    const body = proxy.line('x.note', { session: S });
    proxy.say('x.note', { session: S }, true);
    return body;
  }) as [Buffer, Buffer];
  const hashes = [nodeHash(leafHash(lines[0]), leafHash(lines[1])).toString('base64')];
  proxy.say('gap', { attrs: { first: 3, last: 4, reason: 'overflow', hashes } });
  for (const sink of [proxy, hook]) sink.stated('session.close', { session: S });
  log.append(lines[1], proxy.by);
  expect(member(canonicalOf(log.coverage(S)), 'proxy')).toMatchObject({
    status: 'gap',
    reasons: [
      { reason: 'missing', from: 3, to: 4, gap: { reason: 'overflow', hashed: true } },
      { reason: 'unbound', from: 4, to: 5 },
    ],
  });
  log.append(lines[0], proxy.by);
  expect(log.coverage(S).status).toBe('complete');
});

test('a session that goes on after its close is not closed, in whatever order its lines come', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) {
    sink.say('session.open', { session: S });
    sink.stated('session.close', { session: S });
  }
  expect(log.coverage(S)).toMatchObject({ status: 'complete', closed: true });
  const [more, close] = ['x.note', 'x.note'].map(() => {
    const body = proxy.line('x.note', { session: S });
    proxy.say('x.note', { session: S }, true);
    return body;
  }) as [Buffer, Buffer];
  log.append(more, proxy.by);
  expect(log.coverage(S)).toMatchObject({ status: 'open', closed: false });
  log.append(close, proxy.by);
  proxy.stated('session.close', { session: S });
  expect(log.coverage(S)).toMatchObject({ status: 'complete', closed: true });

  const late = setUp();
  for (const sink of [late.proxy, late.hook]) sink.say('session.open', { session: S });
  late.hook.stated('session.close', { session: S });
  const { log: other, proxy: reordered } = late;
  const first = statedLine(reordered, 2);
  reordered.stated('session.close', { session: S }, true);
  reordered.stated('session.close', { session: S });
  other.append(first, reordered.by);
  expect(member(other.coverage(S), 'proxy')).toMatchObject({
    status: 'complete',
    epochs: [{ from: 2, to: 5 }],
  });
});

test('a required sink that never spoke is silent once it is late; one that is not required is not missed', () => {
  const { log, proxy } = setUp({ lateness: 10 });
  log.sink('otlp', { kind: 'otlp' });
  proxy.say('session.open', { session: S });
  proxy.stated('session.close', { session: S });
  expect(canonicalOf(log.coverage(S, 9))).toMatchObject({ status: 'open', closed: false });
  const later = canonicalOf(log.coverage(S, 11));
  expect(later.status).toBe('silent');
  expect(member(later, 'hook').reasons).toEqual([{ reason: 'never_spoke' }]);
  expect(later.members.map(({ sink }) => sink)).toEqual(['hook', 'proxy']);
});

test('silence and going away are told by the clock of the collector', () => {
  const { log, proxy, hook } = setUp({ heartbeat: 60, lateness: 30, closeTimeout: 600 });
  for (const sink of [proxy, hook]) sink.say('session.open', { session: S });
  expect(log.coverage(S, 89).status).toBe('open');
  expect(log.coverage(S, 91).status).toBe('silent');
  expect(log.coverage(S, 602).status).toBe('unclosed');
  // The next epoch accounts for the one that was killed.
  for (const sink of [proxy, hook]) sink.open();
  expect(log.coverage(S, 598)).toMatchObject({ status: 'complete', closed: true });
  // And when that is gone too, it may have had more of a session that was not closed.
  const gone = canonicalOf(log.coverage(S, 602));
  expect(gone).toMatchObject({ status: 'unclosed', closed: true });
  expect(member(gone, 'proxy').reasons).toEqual([
    { reason: 'overdue', epoch: proxy.epoch, what: 'close', beside: true },
  ]);
});

test('a sink that lost its state between two runs: the first run that follows none counts, and no later one', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) sink.say('session.open', { session: S });
  hook.stated('session.close', { session: S });
  // It was taken away before it could say that the session was over, and the container is made anew.
  proxy.stated('epoch.close');
  expect(member(log.coverage(S), 'proxy').status).toBe('complete');
  const restarted = (lose: boolean): string => {
    proxy.forget();
    proxy.open();
    proxy.say('call', { session: S }, lose);
    proxy.stated('epoch.close');
    return proxy.epoch;
  };
  const next = restarted(true);
  const reasons = [
    { reason: 'missing', epoch: next, from: 2, to: 3, beside: true },
    { reason: 'root_not_compared', epoch: next, beside: true },
  ];
  expect(canonicalOf(log.coverage(S)).members.find(({ sink }) => sink === 'proxy')).toMatchObject({
    status: 'gap',
    reasons,
    epochs: [{ status: 'complete' }],
  });
  restarted(true);
  expect(member(log.coverage(S), 'proxy').reasons).toEqual(reasons);
});

test('a run without its opening counts, whatever the run after it says of its number', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) sink.say('session.open', { session: S });
  hook.stated('session.close', { session: S });
  proxy.stated('epoch.close');
  // One run is lost whole, and of the next one its opening: the sink's third and fourth.
  proxy.open(true);
  proxy.say('call', { session: S }, true);
  proxy.open(true);
  proxy.say('x.note');
  const { epoch } = proxy;
  const blamed = (): boolean =>
    member(log.coverage(S), 'proxy').reasons.some((why) => 'epoch' in why && why.epoch === epoch);
  expect(blamed()).toBe(true);
  proxy.open();
  expect(blamed()).toBe(true);
});

test('an opening that came late begins nothing after the run that names it', () => {
  const { log, proxy, hook } = setUp({ heartbeat: 0 });
  hook.say('session.open', { session: S });
  hook.stated('session.close', { session: S });
  proxy.forget();
  proxy.open(true);
  const opening = proxy.line('epoch.open', { attrs: { counter: 0, sink_kind: 'proxy' } }, 1);
  proxy.open();
  proxy.say('session.open', { session: S });
  proxy.stated('epoch.close');
  log.append(opening, proxy.by);
  proxy.forget();
  proxy.open();
  proxy.say('call', { session: S }, true);
  proxy.stated('epoch.close');
  expect(member(log.coverage(S), 'proxy').reasons).toMatchObject([
    { reason: 'missing', epoch: proxy.epoch, from: 2, to: 3, beside: true },
    { reason: 'root_not_compared', beside: true },
  ]);
});

test('a run that was lost whole counts after the run that did not close, whatever speaks of the session later', () => {
  const { log, proxy, hook } = setUp({ heartbeat: 0 });
  hook.say('session.open', { session: S });
  hook.stated('session.close', { session: S });
  proxy.say('session.open', { session: S });
  proxy.stated('epoch.close');
  proxy.forget();
  proxy.open(true);
  proxy.say('call', { session: S }, true);
  proxy.stated('epoch.close', {}, true);
  proxy.open();
  proxy.stated('epoch.close');
  const shown = proxy.epoch;
  proxy.forget();
  proxy.open();
  proxy.say('call', { session: S });
  proxy.stated('session.close', { session: S });
  proxy.stated('epoch.close');
  expect(member(log.coverage(S), 'proxy')).toMatchObject({
    status: 'silent',
    reasons: [{ reason: 'lost_epoch', lost: { before: shown } }],
  });
});

test('a root over no lines concerns the line that states it', () => {
  const { log, hook } = setUp();
  hook.say('session.open', { session: S });
  const sink = log.sink('odd', { kind: 'proxy', required: true });
  sink.epoch = log.ulid();
  const root = leafHash(Buffer.from('other')).toString('base64');
  sink.stated('session.close', { session: S, attrs: { root } });
  const found = canonicalOf(log.coverage(S));
  expect(member(found, 'odd')).toMatchObject({
    status: 'conflict',
    reasons: [{ reason: 'conflict', kind: 'root', from: 1, to: 2 }],
  });
});

test('which sinks a session has to have depends on who opened it; nobody else can ask for less', () => {
  const policy = {
    sessions: [
      { kind: 'desk', opens: ['hook'], required: ['hook', 'proxy'], members: [] },
      { kind: 'batch', opens: ['proxy'], required: ['proxy'], members: [] },
    ],
  };
  const { log, proxy, hook } = setUp(policy);
  const stranger = log.sink('stranger', { keyed: false, declared: false, role: 'agent' });
  const other = log.sink('other', { kind: 'other' });
  stranger.open();
  other.open();
  for (const sink of [stranger, other, proxy]) sink.say('session.open', { session: S });
  proxy.stated('session.close', { session: S });
  expect(canonicalOf(log.coverage(S))).toMatchObject({ kinds: ['batch'], status: 'complete' });
  expect(log.coverage(S).members.map(({ sink }) => sink)).toEqual(['proxy']);
  hook.say('session.open', { session: S });
  expect(log.coverage(S)).toMatchObject({ kinds: ['desk', 'batch'], status: 'open' });
});

test('a thief of a token without the key opens nothing in the name of a keyed sink', () => {
  const { log, proxy, hook } = setUp({ sessions: [{ kind: 'k', opens: ['proxy'], required: ['proxy'] }] });
  log.append(proxy.line('session.open', { session: S }, 90), { ...proxy.by, signed: undefined });
  hook.say('session.open', { session: S });
  expect(log.coverage(S).kinds).toEqual([]);
});

test('a call that only one sink saw, one they differ on, and identical ones that can not be told apart', () => {
  const { log, proxy, hook } = setUp();
  const weak = (n: number): string => `weak:${keyed(`ls ${n}`)}`;
  const same = { session: S, match: keyed('ls args'), attrs: { tool: 'ls' } };
  for (const sink of [proxy, hook]) {
    sink.say('session.open', { session: S });
    call(sink, 'a', sink === proxy ? 'a' : 'other');
    for (const n of sink === proxy ? [1, 2, 3] : [1, 2]) {
      sink.say('call', { ...same, call: weak(n) });
      // The hook's second is the proxy's third: nobody can know.
      const result = keyed(sink === proxy || n === 1 ? `result ${n}` : 'result 3');
      sink.say('result', { session: S, call: weak(n), match: result });
    }
  }
  call(hook, 'b');
  hook.say('call', { session: S });
  const { calls, unnamed } = canonicalOf(log.coverage(S));
  expect(calls).toMatchObject([
    { calls: [keyed('a')], arguments: 'same', outcome: 'different' },
    { calls: [weak(1), weak(2), weak(3)], weak: true, identical: 3, arguments: 'same', outcome: 'same' },
    { calls: [keyed('b')], arguments: 'one', outcome: 'one', seen: [{ sink: 'hook' }] },
  ]);
  expect(unnamed).toEqual({ hook: 1 });
  // A result that the other sink had for none of them.
  hook.say('call', { ...same, call: weak(3) });
  hook.say('result', { session: S, call: weak(3), match: keyed('result 9') });
  expect(log.coverage(S).calls[1]).toMatchObject({ identical: 3, outcome: 'different' });
});

test('of identical calls, each outcome counts as often as it was seen', () => {
  const { log, proxy, hook } = setUp();
  for (const [sink, results] of [
    [proxy, ['x', 'y', 'z']],
    [hook, ['x', 'x']],
  ] as const) {
    results.forEach((result, n) => {
      const same = { session: S, call: `weak:${keyed(`ls ${n}`)}` };
      sink.say('call', { ...same, match: keyed('ls args') });
      sink.say('result', { ...same, match: keyed(result) });
    });
  }
  expect(log.coverage(S).calls).toMatchObject([{ identical: 3, arguments: 'same', outcome: 'different' }]);
});

test('an agent opens no session, whatever sink it writes as', () => {
  const { log } = setUp({ sessions: [{ kind: 'k', opens: ['plain'], required: ['plain'] }] });
  const plain = log.sink('plain', { keyed: false });
  plain.open();
  log.append(plain.line('session.open', { session: S }), { ...plain.by, role: 'agent' });
  expect(log.coverage(S).kinds).toEqual([]);
  log.append(plain.line('session.open', { session: S }, 3), plain.by);
  expect(log.coverage(S).kinds).toEqual(['k']);
});

test('goes on from its stored state', () => {
  const { log, proxy, hook } = setUp();
  for (const sink of [proxy, hook]) {
    sink.say('session.open', { session: S });
    call(sink, 'a');
    sink.stated('session.close', { session: S });
  }
  const whole = new SessionCoverage({ log: log.sent()[0]?.envelope.log as string, session: S });
  let resumed = whole;
  const entries = log.sent().filter(({ envelope }) => envelope.session === S);
  for (const entry of entries) whole.apply(entry);
  resumed = new SessionCoverage({ log: whole.log, session: S });
  for (const entry of entries) {
    resumed = new SessionCoverage(
      JSON.parse(JSON.stringify(resumed.state())) as ReturnType<SessionCoverage['state']>,
    );
    resumed.apply(entry);
    resumed.apply(entry);
  }
  expect(resumed.state()).toEqual(whole.state());
});

describe('over any course of things', () => {
  const act = fc.record({
    sink: fc.nat(2),
    what: fc.oneof(
      { weight: 6, arbitrary: fc.constantFrom('say', 'other') },
      { weight: 3, arbitrary: fc.constantFrom('session.open', 'session.close', 'heartbeat') },
      { weight: 1, arbitrary: fc.constantFrom('close and restart', 'restart', 'epoch.close') },
    ),
    lose: fc.oneof(
      { weight: 14, arbitrary: fc.constant(false) },
      { weight: 1, arbitrary: fc.constant(true) },
    ),
  });

  test('a member covers a session only when every line that it sent of it is there, and is blamed for no other', () => {
    const reached = new Map<string, number>();
    fc.assert(
      fc.property(
        fc.array(act, { minLength: 4, maxLength: 60 }),
        fc.integer({ min: 0, max: 5_000 }),
        fc.boolean(),
        (acts, later, tidy) => {
          const log = new SessionLog();
          const sinks = ['a', 'b', 'c'].map((name, i) => log.sink(name, { kind: 'proxy', required: i < 2 }));
          /** Every number of every epoch: whether it arrived, and whether it is the session's. */
          const source: { sink: string; epoch: string; seq: number; arrived: boolean; ours: boolean }[] = [];
          const write = (sink: LogSink, ours: boolean, lose: boolean, say: () => void): void => {
            say();
            source.push({ sink: sink.by.sink, epoch: sink.epoch, seq: sink.size, arrived: !lose, ours });
          };
          const over = new Set<LogSink>(sinks);
          const begun = new Set<LogSink>();
          const step = (sink: LogSink, what: string, lose: boolean): void => {
            if (over.delete(sink)) write(sink, false, lose, () => sink.open(lose));
            switch (what) {
              case 'say':
                // As the format has it: what comes first of a session is that it opens.
                if (!begun.has(sink)) step(sink, 'session.open', false);
                write(sink, true, lose, () => sink.say('x.note', { session: S }, lose));
                break;
              case 'other':
                write(sink, false, lose, () => sink.say('x.note', { session: 'run-2' }, lose));
                break;
              case 'session.open':
                if (begun.has(sink)) break;
                begun.add(sink);
                write(sink, true, lose, () => sink.say(what, { session: S }, lose));
                break;
              case 'session.close':
                if (begun.has(sink)) write(sink, true, lose, () => sink.stated(what, { session: S }, lose));
                break;
              case 'heartbeat':
                write(sink, false, lose, () => sink.stated(what, {}, lose));
                break;
              default:
                if (what !== 'restart') write(sink, false, lose, () => sink.stated('epoch.close', {}, lose));
                over.add(sink);
            }
          };
          for (const { sink, what, lose } of acts) step(sinks[sink] as LogSink, what, lose);
          if (tidy) {
            for (const sink of sinks)
              for (const what of ['session.close', 'epoch.close']) step(sink, what, false);
          }
          const { session, epochs: ends } = log.statements(S, later);
          const statement = canonicalOf(session);
          for (const { sink, status, reasons, epochs } of statement.members) {
            reached.set(status, (reached.get(status) ?? 0) + 1);
            const lines = source.filter((line) => line.sink === sink);
            const lost = lines.filter(({ ours, arrived }) => ours && !arrived);
            const runs = [...new Set(lines.map(({ epoch }) => epoch))];
            /** Where lines may have been lost that nothing says are not the session's; places in `runs`. */
            const places = epochs.map(({ epoch }) => runs.indexOf(epoch)).sort((a, b) => a - b);
            const endsWith = (place: number, kind: string, at: 0 | -1): boolean =>
              log
                .sent()
                .filter(({ envelope: { epoch, session } }) => epoch === runs[place] && session === S)
                .sort((a, b) => a.envelope.seq - b.envelope.seq)
                .at(at)?.envelope.kind === kind;
            const beside = (place: number): boolean => {
              const after = places.find((each) => each > place);
              const before = places.findLast((each) => each < place);
              const opens = after !== undefined && endsWith(after, 'session.open', 0);
              const closes = before !== undefined && endsWith(before, 'session.close', -1);
              if (after === undefined) return !closes && place === (before as number) + 1;
              if (before === undefined) return !opens && place === after - 1;
              return !opens || !closes;
            };
            expect(status).not.toBe('conflict');
            const known = (line: (typeof lines)[0]): boolean =>
              epochs.some(({ epoch, from, to }) => epoch === line.epoch && from <= line.seq && line.seq < to);
            if (status === 'complete') {
              // After the session's last close, or the end that the sink stated, nothing is claimed.
              expect(lost.filter(known)).toEqual([]);
              const spokenOf = ({ epoch, seq }: (typeof lines)[0]): boolean =>
                ends.some((each) => each.epoch === epoch && seq < each.next);
              for (const { epoch } of lost.filter((line) => !known(line) && spokenOf(line))) {
                const place = runs.indexOf(epoch);
                expect(places.includes(place) || !beside(place)).toBe(true);
              }
            }
            // The numbers named are those that did not arrive, each of them, and in the epochs of the session.
            for (const reason of reasons) {
              if (reason.reason !== 'missing') continue;
              const place = runs.indexOf(reason.epoch);
              expect(places.includes(place) || beside(place)).toBe(true);
              for (let seq = reason.from; seq < reason.to; seq++) {
                expect(lines.find((line) => line.epoch === reason.epoch && line.seq === seq)?.arrived).toBe(
                  false,
                );
              }
            }
            for (const line of lost.filter(known)) {
              const named = reasons.some(
                (reason) =>
                  reason.reason === 'missing' &&
                  reason.epoch === line.epoch &&
                  reason.from <= line.seq &&
                  line.seq < reason.to,
              );
              expect(named).toBe(true);
            }
            if (lines.every(({ arrived }) => arrived))
              expect(['complete', 'open', 'silent', 'unclosed']).toContain(status);
          }
          const silent = ['a', 'b'].filter(
            (sink) => !source.some((line) => line.sink === sink && line.ours && line.arrived),
          );
          for (const sink of silent) {
            const found = statement.members.find((each) => each.sink === sink);
            if (statement.began !== undefined && later > 150) expect(found?.status).toBe('silent');
          }
        },
      ),
      { numRuns: Number(process.env['BELAY_RUNS'] ?? 150) },
    );
    expect([...reached.keys()].sort()).toEqual(['complete', 'gap', 'open', 'silent', 'unclosed']);
  });
});
