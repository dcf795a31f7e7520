import { createHash } from 'node:crypto';
import { type AsOf, LogCoverage, readPolicy } from '@belay/coverage';
import { privateKeyObject, rawPublicKey } from '@belay/keys';
import { CompactRange, leafHash } from '@belay/merkle';
import { ackName, formatCheckpoint, formatVkey, signNote } from '@belay/note';
import {
  derivePeriod,
  deriveSession,
  type LogIdentity,
  periodEvidence,
  type PeriodFacts,
  periodReceiptPayload,
  type PeriodSession,
  type PublishedHead,
  type SessionFacts,
  type SessionReceipt,
  sessionReceipt,
  sessionReceiptPayload,
  signPayload,
  Standing,
} from '@belay/receipt';
import { keyed, type LogSink, SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { KEY, ORIGIN, SEED, signer, X5C } from './sample.js';

type SinkOptions = NonNullable<Parameters<SessionLog['sink']>[1]>;

export const SESSION = 'run-1';
export const ADMIN = 'adm_01kdvdna00040g2081040g2081';
export const AUDITOR = 'aud_01kdvdna00040g2081040g2081';
export const IDENTITY: LogIdentity = { origin: ORIGIN, vkey: KEY, x5c: X5C };

/** A log that begins as every log does, with the policy in it. */
export function begun(policy: object = {}): SessionLog {
  const log = new SessionLog(policy);
  log.state({
    kind: 'log.genesis',
    v: 1,
    log: ORIGIN,
    vkey: KEY,
    ackKey: formatVkey(ackName(ORIGIN), rawPublicKey(privateKeyObject(SEED))),
    project: 'prj_01kdvdna00040g2081040g2081',
    name: 'Agents',
    x5c: [],
    policy: { ...readPolicy(policy) } as never,
  });
  return log;
}

export function label(log: SessionLog, says: 'violated' | 'not_violated', call?: string): number {
  return log.state({
    kind: 'label.set',
    v: 1,
    session: SESSION,
    ...(call === undefined ? {} : { call: keyed(call) }),
    says,
    by: AUDITOR,
  });
}

/** What the log shows of a session, so many seconds after its last entry. */
export function factsOf(log: SessionLog, session: string = SESSION, later = 0): SessionFacts {
  const coverage = new LogCoverage({ log: ORIGIN });
  for (const entry of log.entries) coverage.apply(entry);
  const asOf: AsOf = {
    size: log.entries.length,
    time: new Date(log.now + later * 1_000).toISOString(),
  };
  const indexes = log.entries.flatMap((entry, index) =>
    entry.by === 'sender' && entry.envelope.session === session ? index : [],
  );
  return deriveSession(coverage, new Standing(log.entries), session, asOf, {
    indexes,
    at: (index) => log.bytes[index],
  });
}

/** The published head of the log as it is. */
export function headOf(log: SessionLog): PublishedHead {
  const range = CompactRange.empty();
  for (const bytes of log.bytes) range.append(leafHash(bytes));
  const size = log.entries.length;
  return {
    size,
    checkpoint: signNote(formatCheckpoint({ origin: ORIGIN, size: BigInt(size), root: range.root() }), [
      signer,
    ]),
    time: new Date(log.now + 500).toISOString(),
  };
}

export interface Issued {
  readonly facts: SessionFacts;
  readonly receipt: SessionReceipt;
  readonly payload: Buffer;
  readonly bytes: Buffer;
}

/** As the service does it: coverage entry, head, receipt. */
export function issue(log: SessionLog, later = 0, supersedes?: string): Issued {
  const facts = factsOf(log, SESSION, later);
  const { statement, statementDigest } = facts;
  const index = log.state({
    kind: 'coverage.stated',
    v: 1,
    type: 'session',
    session: SESSION,
    statement: statementDigest,
    size: statement.asOf.size,
    time: statement.asOf.time,
    status: statement.status,
    policy: statement.policy,
  });
  const given = [facts, IDENTITY, headOf(log), { index, statement: statementDigest }, supersedes] as const;
  const payload = sessionReceiptPayload(...given);
  return { facts, receipt: sessionReceipt(...given), payload, bytes: signPayload(payload, signer) };
}

export const DAY = { from: '2026-01-01T00:00:00.000Z', to: '2026-01-01T00:10:00.000Z' };

/** What a log shows of a period, so many seconds after its last entry. */
export function periodOf(
  log: SessionLog,
  { from, to }: { readonly from: string; readonly to: string } = DAY,
  sessions: readonly PeriodSession[] = [],
  later = 3_600,
): PeriodFacts {
  const coverage = new LogCoverage({ log: ORIGIN });
  for (const entry of log.entries) coverage.apply(entry);
  const asOf = { size: log.entries.length, time: new Date(log.now + later * 1_000).toISOString() };
  const before = (time: string): number => log.entries.filter(({ line }) => line.received < time).length;
  const entries = { first: before(from), count: before(to) - before(from) };
  const sinks = new Set(log.sent().map(({ envelope }) => envelope.sink));
  return derivePeriod(periodEvidence(coverage, asOf, { from, to, sessions, entries }, sinks));
}

/** The receipt of the ten minutes in which the session of `gapped` took place, after the receipt of that was issued. */
export function gappedPeriod(log: SessionLog, { bytes, receipt }: Issued): Buffer {
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const scope = { type: 'session', session: SESSION } as const;
  log.state({ kind: 'receipt.issued', v: 1, receipt: digest, scope, asOf: receipt.asOf.size });
  log.now += 600_000;
  const facts = periodOf(log, DAY, [{ session: SESSION, receipt: { digest, receipt } }], 0);
  return signPayload(periodReceiptPayload(facts, IDENTITY, headOf(log)), signer);
}

/** Three sinks of one session: two that see its calls, and who runs them again. */
export class Desk {
  readonly log: SessionLog;
  readonly proxy: LogSink;
  readonly hook: LogSink;
  readonly verifier: LogSink;
  #calls = 0;

  constructor(policy: object = {}, hook: SinkOptions = {}) {
    this.log = begun(policy);
    this.proxy = this.log.sink('proxy', { kind: 'proxy', domain: 'desk', required: true });
    this.hook = this.log.sink('hook', { kind: 'hook', domain: 'vendor', ...hook });
    this.verifier = this.log.sink('verifier', { kind: 'verifier', domain: 'lab', role: 'verifier' });
    this.#begin();
  }

  #begin(): void {
    for (const sink of [this.proxy, this.hook]) {
      sink.open();
      sink.say('session.open', { session: SESSION });
    }
  }

  /** A call that both see; the verifier's word on it comes with `close`. */
  call(
    status: 'PASS' | 'WARN' | 'FAIL' | 'UNVERIFIED' | 'none' = 'PASS',
    name = `call ${this.#calls++}`,
  ): void {
    const state = { state: keyed(`state ${name}`), phase: 'pre' };
    const pre = this.proxy.say('state', { session: SESSION, attrs: state });
    const said = { session: SESSION, call: keyed(name), match: keyed(`${name} args`) };
    const call = this.proxy.say('call', said);
    this.hook.say('call', said);
    const ended = { ...said, match: keyed(`${name} result`) };
    const result = this.proxy.say('result', ended);
    this.hook.say('result', ended);
    if (status === 'none') return;
    this.#words.push(() => {
      const { log } = this;
      const ran = status !== 'UNVERIFIED';
      this.verifier.say('verdict', {
        session: SESSION,
        call: keyed(name),
        attrs: {
          status,
          ...(status === 'PASS' ? {} : { cause: `${status}_CAUSE` }),
          mode: ran ? 'isolated' : 'none',
          replays: ran ? 2 : 0,
          pre_index: pre,
          pre_leaf: log.leaf(pre),
          call_index: call,
          call_leaf: log.leaf(call),
          result_index: result,
          result_leaf: log.leaf(result),
        },
      });
    });
  }
  readonly #words: (() => void)[] = [];

  close(): this {
    for (const sink of [this.proxy, this.hook]) {
      sink.stated('session.close', { session: SESSION });
      sink.stated('epoch.close');
    }
    this.verifier.open();
    for (const word of this.#words) word();
    this.verifier.stated('epoch.close');
    return this;
  }
}

/** A session as good as they come. */
export function affirmed(): Desk {
  const desk = new Desk();
  desk.call('PASS');
  desk.call('WARN');
  return desk.close();
}

/** A proxy that lost two lines on the way. */
export function gapped(): Desk {
  const desk = new Desk();
  desk.call('none');
  desk.proxy.say('x.note', { session: SESSION }, true);
  desk.proxy.say('x.note', { session: SESSION }, true);
  return desk.close();
}

/** Sessions whose receipts are kept as fixtures, by what they came to. */
export const MORE: Readonly<Record<string, () => Issued>> = {
  affirmed: () => issue(affirmed().log),
  contested: () => {
    const { log, hook } = affirmed();
    label(log, 'violated', 'call 0');
    log.append(hook.line('x.note', { session: SESSION }, 2), hook.by, 5);
    return issue(log);
  },
  violated: () => {
    const desk = new Desk({ sessions: [{ kind: 'desk', opens: ['proxy'], required: ['proxy', 'hook'] }] });
    for (let n = 0; n < 30; n++) desk.call(n % 7 === 0 ? 'FAIL' : n % 3 === 0 ? 'UNVERIFIED' : 'PASS');
    return issue(desk.close().log, 0, `sha256:${'ab'.repeat(32)}`);
  },
  open: () => {
    const desk = new Desk();
    desk.call('PASS');
    return issue(desk.log);
  },
  unverified: () => {
    const desk = new Desk({}, { keyed: false });
    for (let n = 0; n < 12; n++) desk.call(n % 3 === 0 ? 'UNVERIFIED' : n % 4 === 0 ? 'none' : 'PASS');
    return issue(desk.close().log);
  },
};

type Act = readonly [sink: number, what: number, call: number, lose: boolean];

export interface Adversity {
  readonly acts: readonly Act[];
  readonly policy: object;
  readonly hook: SinkOptions;
  /** Seconds after the last entry. */
  readonly later: number;
}

/** What sinks do, honest and not; with labels, silence, unsigned sinks, other policies. */
export const adversity: fc.Arbitrary<Adversity> = fc.record<Adversity>({
  acts: fc.array(
    fc.tuple(
      fc.nat(3),
      fc.nat(18),
      fc.nat(3),
      fc.integer({ min: 0, max: 4 }).map((n) => n === 0),
    ) as fc.Arbitrary<Act>,
    { maxLength: 50 },
  ),
  policy: fc.constantFrom(
    {},
    { lateness: 2, closeTimeout: 5, heartbeat: 1 },
    { sessions: [{ kind: 'desk', opens: ['proxy'], required: ['proxy', 'hook'] }] },
    { sessions: [{ kind: 'desk', opens: ['hook'], required: ['proxy'], members: ['verifier'] }] },
    { sessions: [{ kind: 'far', opens: ['proxy'], required: ['never'], members: ['proxy'] }], lateness: 1 },
  ),
  hook: fc.constantFrom<SinkOptions>(
    {},
    { required: true },
    { keyed: false },
    { declared: false },
    { kind: 'otlp', domain: 'desk' },
  ),
  later: fc.constantFrom(0, 10, 10_000),
});

/** The log that comes of it. */
export function happened({ acts, policy, hook }: Adversity): SessionLog {
  const desk = new Desk(policy, hook);
  const sinks = [desk.proxy, desk.hook, desk.verifier, desk.proxy];
  for (const [which, what, call, lose] of acts) act(desk, sinks[which] as LogSink, what, call, lose);
  return desk.log;
}

const STATUSES = ['PASS', 'WARN', 'FAIL', 'UNVERIFIED'] as const;

function act(desk: Desk, sink: LogSink, what: number, call: number, lose: boolean): void {
  const { log } = desk;
  const said = { session: SESSION, call: keyed(`call ${call}`), match: keyed(`match ${call} ${lose}`) };
  if (sink.epoch === '' || what === 0) sink.open(lose);
  else if (what === 1) sink.stated('session.close', { session: SESSION }, lose);
  else if (what === 2) sink.stated('epoch.close', {}, lose);
  else if (what === 3) sink.stated('heartbeat', {}, lose);
  else if (what === 4 && sink.size > 1) {
    const at = log.entries.findIndex(
      (entry) => entry.by === 'sender' && entry.envelope.epoch === sink.epoch && entry.envelope.seq === 2,
    );
    if (at >= 0) log.append(sink.line('x.twice', { session: SESSION }, 2), sink.by, at);
  } else if (what === 5)
    label(log, lose ? 'violated' : 'not_violated', call === 0 ? undefined : `call ${call}`);
  else if (what === 6) desk.call(STATUSES[call]);
  else if (what === 7) desk.close();
  else if (what === 8) sink.say('call', { session: SESSION }, lose);
  else if (what === 9) sink.say('call', { ...said, call: `weak:${keyed(`weak ${call % 2}`)}` }, lose);
  else if (what === 10) sink.say('session.open', { session: SESSION }, lose);
  else if (what === 11) {
    sink.say('verdict', {
      session: SESSION,
      attrs: { status: STATUSES[call], cause: 'CI_WEAKENED', mode: 'none' },
    });
  } else if (what === 12) {
    const next = sink.size + 1;
    sink.say('gap', {
      attrs: { first: Math.max(1, next - 1), last: Math.max(1, next - 1), reason: 'overflow' },
    });
  } else if (what === 14) {
    // A root that is not that of its lines, or of another number of lines.
    sink.say('heartbeat', {
      attrs: { size: sink.size - (lose ? 1 : 0), root: 'A'.repeat(43) + '=', dropped: 0, filtered: 0 },
    });
  } else if (what === 15) sink.stated('heartbeat', { attrs: { dropped: call, filtered: 1 } });
  else if (what === 16) {
    // Another run that says it follows the one that goes on, and says something.
    const epoch = log.ulid();
    const line = (seq: number, kind: string, more: object): Buffer =>
      Buffer.from(
        JSON.stringify({
          v: 1,
          log: ORIGIN,
          sink: sink.by.sink,
          epoch,
          seq,
          kind,
          time: '2026-01-01T00:00:00Z',
          ...more,
        }),
      );
    const opening = {
      counter: call,
      prev_epoch: sink.epoch,
      prev_size: call + 1,
      prev_root: 'A'.repeat(43) + '=',
    };
    log.append(line(1, 'epoch.open', { attrs: opening }), sink.by);
    log.append(line(2, 'x.note', { session: SESSION }), sink.by);
  } else sink.say(what === 13 ? 'call' : 'result', said, lose);
}
