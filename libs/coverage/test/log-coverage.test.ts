import {
  type ChainState,
  type EpochState,
  formatStatement,
  type KeptStates,
  LogCoverage,
  type LogState,
  policyDigest,
  readPolicy,
  type SentEntry,
  type SessionState,
} from '@belay/coverage';
import type { PolicySet } from '@belay/envelope';
import { type LogSink, SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

const ADMIN = 'adm_01kdvdna00040g2081040g2081';
const SESSIONS = ['run-1', 'run-2', 'run-3'];
const POLICY = { sessions: [{ kind: 'agent', opens: ['proxy'], required: ['proxy', 'hook'] }], lateness: 5 };

const setPolicy = (log: SessionLog, policy: unknown): number =>
  log.state({ kind: 'policy.set', v: 1, policy: readPolicy(policy) as never, by: ADMIN } satisfies PolicySet);

const namedIn = (log: SessionLog, session: string): SentEntry[] =>
  log.sent().filter(({ envelope }) => envelope.session === session);

const all = (log: SessionLog): LogCoverage => {
  const coverage = new LogCoverage({ log: log.entries[0]?.line.log as string });
  for (const entry of log.entries) coverage.apply(entry);
  return coverage;
};

type Act = readonly [sink: number, session: number, what: number, lose: boolean];

function act(sinks: readonly LogSink[], [which, of, what, lose]: Act): void {
  const sink = sinks[which % sinks.length] as LogSink;
  const session = SESSIONS[of % SESSIONS.length] as string;
  if (sink.epoch === '' || what === 0) sink.open(lose);
  else if (what === 1) sink.say('session.open', { session }, lose);
  else if (what === 2) sink.stated('session.close', { session }, lose);
  else if (what === 3) sink.stated('heartbeat', {}, lose);
  else if (what === 4) sink.stated('epoch.close', {}, lose);
  else if (what === 5 && sink.size > 1) {
    sink.log.append(sink.line('x.twice', { session }, 2), sink.by, sink.log.entries.length - 1);
  } else
    sink.say(what % 2 === 0 ? 'call' : 'result', { session, call: 'hmac-sha256:' + 'a'.repeat(64) }, lose);
}

const acts: fc.Arbitrary<Act[]> = fc.array(
  fc.tuple(
    fc.nat(2),
    fc.nat(2),
    fc.nat(9),
    fc.boolean().map((lose) => lose),
  ),
  { maxLength: 60 },
);

/** What a database keeps: text. */
class Kept implements KeptStates {
  readonly epochs = new Map<string, string>();
  readonly chains = new Map<string, string>();
  readonly sessions = new Map<string, string>();
  log: string | undefined;

  save(coverage: LogCoverage): void {
    const touched = coverage.takeTouched();
    for (const each of touched.epochs)
      this.epochs.set(`${each.sink} ${each.epoch}`, JSON.stringify(each.state()));
    for (const each of touched.chains) this.chains.set(each.sink, JSON.stringify(each.state()));
    for (const each of touched.sessions) this.sessions.set(each.session, JSON.stringify(each.state()));
    this.log = JSON.stringify(coverage.state());
  }

  epoch(sink: string, epoch: string): EpochState | undefined {
    const text = this.epochs.get(`${sink} ${epoch}`);
    return text === undefined ? undefined : (JSON.parse(text) as EpochState);
  }

  chain(sink: string): ChainState | undefined {
    const text = this.chains.get(sink);
    return text === undefined ? undefined : (JSON.parse(text) as ChainState);
  }

  session(session: string): SessionState | undefined {
    const text = this.sessions.get(session);
    return text === undefined ? undefined : (JSON.parse(text) as SessionState);
  }
}

function setUp(): { log: SessionLog; sinks: LogSink[] } {
  const log = new SessionLog(POLICY);
  setPolicy(log, POLICY);
  const sinks = [
    log.sink('proxy', { kind: 'proxy', required: true }),
    log.sink('hook', { kind: 'hook' }),
    log.sink('other', { keyed: false }),
  ];
  return { log, sinks };
}

describe('coverage of a log', () => {
  test('is that of its parts, whatever came in whatever order', () => {
    fc.assert(
      fc.property(acts, fc.nat(200), (script, later) => {
        const { log, sinks } = setUp();
        for (const each of script) act(sinks, each);
        const coverage = all(log);
        for (const session of SESSIONS) {
          if (namedIn(log, session).length === 0) continue;
          const expected = log.statements(session, later);
          const { asOf } = expected.session;
          const found = coverage.sessionStatement(session, asOf, namedIn(log, session));
          expect(found).toEqual(expected.session);
          for (const epoch of expected.epochs)
            expect(coverage.epochStatement(epoch.sink, epoch.epoch, asOf)).toEqual(epoch);
          for (const sink of expected.sinks) expect(coverage.sinkStatement(sink.sink, asOf)).toEqual(sink);
        }
      }),
      { numRuns: 150 },
    );
  });

  test('goes on from what was kept, wherever it stopped', () => {
    fc.assert(
      fc.property(acts, fc.array(fc.nat(70), { maxLength: 6 }), (script, stops) => {
        const { log, sinks } = setUp();
        for (const each of script) act(sinks, each);
        const origin = log.entries[0]?.line.log as string;
        const kept = new Kept();
        let coverage = new LogCoverage({ log: origin }, kept);
        const cuts = new Set(stops);
        for (const [index, entry] of log.entries.entries()) {
          coverage.apply(entry);
          if (!cuts.has(index)) continue;
          kept.save(coverage);
          if (index % 2 === 0) coverage.forget();
          else coverage = new LogCoverage(JSON.parse(kept.log as string) as LogState, kept);
          // A job that is run twice does no harm.
          coverage.apply(entry);
        }
        const whole = all(log);
        const asOf = { size: log.entries.length, time: '2026-01-01T02:00:00.000Z' };
        for (const session of SESSIONS) {
          const named = namedIn(log, session);
          if (named.length === 0) continue;
          expect(formatStatement(coverage.sessionStatement(session, asOf, named))).toEqual(
            formatStatement(whole.sessionStatement(session, asOf, named)),
          );
        }
        expect(coverage.state()).toEqual(whole.state());
      }),
      { numRuns: 150 },
    );
  });
});

describe('the rules of a session', () => {
  test('are those in force when it began; a sink declared later is not missed in it', () => {
    const { log, sinks } = setUp();
    const [proxy, hook] = sinks as [LogSink, LogSink, LogSink];
    for (const sink of [proxy, hook]) {
      sink.open();
      sink.say('session.open', { session: 'run-1' });
    }
    const stricter = setPolicy(log, { ...POLICY, sessions: [], closeTimeout: 7 });
    log.sink('late', { required: true });
    proxy.say('session.open', { session: 'run-2' });
    const coverage = all(log);
    const asOf = { size: log.entries.length, time: new Date(log.now + 10_000).toISOString() };
    const first = coverage.sessionStatement('run-1', asOf);
    expect(first.policy).toBe(policyDigest(readPolicy(POLICY)));
    expect(first.kinds).toEqual(['agent']);
    expect(first.members.map(({ sink }) => sink)).toEqual(['hook', 'proxy']);
    const second = coverage.sessionStatement('run-2', asOf);
    expect(second.policy).toBe(policyDigest(coverage.policyAt(stricter + 1).policy));
    expect(second.members.find(({ sink }) => sink === 'late')).toMatchObject({
      required: true,
      status: 'silent',
      reasons: [{ reason: 'never_spoke' }],
    });
  });

  test.each([
    ['an agent of a sink without a key', { role: 'agent', keyed: false }],
    ['an agent of a sink with one', { role: 'agent' }],
    ['who has not the key', {}],
  ] as const)('cannot be moved back by %s', (_, options) => {
    const log = new SessionLog();
    setPolicy(log, {});
    const early = log.sink('early', { kind: 'forward', ...options });
    const { signed: _key, ...unsigned } = early.by;
    early.epoch = log.ulid();
    log.append(early.line('claim', { session: 'run-1' }, 1), unsigned);
    const alone = all(log);
    expect(alone.beganAt('run-1')).toBe(log.entries.length - 1);
    const set = setPolicy(log, POLICY);
    const proxy = log.sink('proxy', { kind: 'proxy' });
    proxy.open();
    const began = proxy.say('session.open', { session: 'run-1' });
    const coverage = all(log);
    expect(coverage.beganAt('run-1')).toBe(began);
    expect(coverage.policyAt(began).index).toBe(set);
  });

  test('cannot be moved back by one who is no declared sink', () => {
    const log = new SessionLog();
    setPolicy(log, {});
    const stranger = log.sink('stranger', { declared: false, role: 'agent' });
    stranger.open();
    stranger.say('x.hello', { session: 'run-1' });
    const set = setPolicy(log, POLICY);
    const proxy = log.sink('proxy', { kind: 'proxy' });
    log.sink('hook', { kind: 'hook' });
    proxy.open();
    proxy.say('session.open', { session: 'run-1' });
    const coverage = all(log);
    expect(coverage.policyAt(coverage.beganAt('run-1')).index).toBe(set);
    const asOf = { size: log.entries.length, time: new Date(log.now + 60_000).toISOString() };
    expect(coverage.sessionStatement('run-1', asOf).members).toMatchObject([
      { sink: 'hook', required: true, status: 'silent' },
      { sink: 'proxy', required: true },
    ]);
  });

  test('a policy that is named by its digest only leaves the one before in force', () => {
    const log = new SessionLog();
    const set = setPolicy(log, POLICY);
    log.state({ kind: 'policy.set', v: 1, policy: `sha256:${'0'.repeat(64)}`, by: ADMIN });
    expect(all(log).policyAt(10).index).toBe(set);
  });
});
