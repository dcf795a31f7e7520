import { type EpochState, LogCoverage } from '@belay/coverage';
import type { AccountTurn, SessionOutcome } from '@belay/db';
import { type LogSink, SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Lane } from '../src/lane.js';
import { openStored, type Stored, StoredLog } from './stored-log.js';

const ORIGIN = 'belay.example/acme/agents';
const ADMIN = 'adm_01kdvdna00040g2081040g2081';

let stored: Stored;
beforeAll(async () => {
  stored = await openStored();
});
afterAll(async () => stored?.close());

/** Goes through a log in batches of this many entries; a lane in memory lasts for so many of them. */
async function reconcile(log: StoredLog, batch: number, lasting = Number.POSITIVE_INFINITY): Promise<void> {
  let lane: Lane | undefined;
  for (let done = 0; ; done++) {
    if (done % lasting === 0) lane = undefined;
    const more = await stored.store.turn(log.record, async (turn) => {
      lane ??= await Lane.open(turn);
      const to = Math.min(lane.size + batch, log.size);
      await lane.step(turn, to, new Date('2026-01-02T00:00:00Z'), Math.min(to + batch, log.size));
      return lane.size < log.size;
    });
    if (more !== true) return;
  }
}

/** What is stored of a log, as JSON. */
async function kept(
  log: StoredLog,
): Promise<{ epochs: EpochState[]; chains: unknown[]; sessions: unknown[]; began: unknown[] }> {
  const read = async (table: string, order: string): Promise<never[]> =>
    (
      await stored.pool.query(`select state from ${table} where log = $1 order by ${order}`, [log.record.log])
    ).rows.map(({ state }) => state as never);
  return {
    epochs: await read('epoch_states', 'sink collate "C", epoch collate "C"'),
    chains: (await read('sink_states', `sink collate "C"`)).map(placeless),
    sessions: await read('sessions', 'session collate "C"'),
    began: (
      await stored.pool.query(
        `select session, began_index::int as index, began from sessions
         where log = $1 and state->'began' <> '[]' order by session collate "C"`,
        [log.record.log],
      )
    ).rows.map(({ session, index, began }) => [session, index, (began as Date).toISOString()]),
  };
}

/** A chain is written when it changed: which of the sink's entries was looked at last is not kept. */
const placeless = (state: object): unknown => ({ ...state, through: 0 });

function expected(log: SessionLog): Awaited<ReturnType<typeof kept>> {
  const coverage = new LogCoverage({ log: ORIGIN });
  for (const entry of log.entries) coverage.apply(entry);
  const json = (states: Iterable<{ state(): unknown }>, key: (state: never) => string): never[] =>
    (JSON.parse(JSON.stringify([...states].map((one) => one.state()))) as never[]).sort((a, b) =>
      key(a) < key(b) ? -1 : 1,
    );
  return {
    epochs: json(coverage.epochs, ({ sink, epoch }: EpochState) => `${sink} ${epoch}`),
    chains: json(coverage.chains, ({ sink }: { sink: string }) => sink).map(placeless),
    sessions: json(coverage.sessions, ({ session }: { session: string }) => session),
    // Not the first entry that names it: the one by which its rules are chosen, which a stranger can't move.
    began: [...coverage.sessions]
      .flatMap((named) => {
        const index = coverage.beganAt(named.session);
        const began = named.beginnings().find((each) => each.index === index);
        return began === undefined ? [] : [[named.session, index, began.received] as const];
      })
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  };
}

/** What happens in a log, a step at a time. */
type Step =
  | { readonly kind: 'say'; readonly sink: number; readonly session: number; readonly lost: boolean }
  | {
      readonly kind: 'close' | 'begin' | 'intrude';
      readonly sink: number;
      readonly session: number;
      readonly lost: boolean;
    }
  | {
      readonly kind: 'heartbeat' | 'epoch.close' | 'open' | 'forget';
      readonly sink: number;
      readonly lost: boolean;
    }
  | { readonly kind: 'late' | 'forge' | 'gap'; readonly sink: number; readonly at: number }
  | { readonly kind: 'declare' | 'policy' | 'wait' };

const lost = fc.boolean();
const sink = fc.nat(2);
const session = fc.nat(2);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('say' as const), sink, session, lost }) },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constantFrom('close' as const, 'begin' as const), sink, session, lost }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('heartbeat' as const, 'epoch.close' as const, 'open' as const),
      sink,
      lost,
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom('late' as const, 'forge' as const, 'gap' as const),
      sink,
      at: fc.nat(20),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom('declare' as const, 'policy' as const, 'wait' as const) }),
  },
);

/** One sink that is started again and again, and loses a line now and then, which may come later. */
const restarting: fc.Arbitrary<Step> = fc
  .record({
    kind: fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom('say' as const, 'open' as const) },
      {
        weight: 2,
        arbitrary: fc.constantFrom(
          'begin' as const,
          'close' as const,
          'epoch.close' as const,
          'forget' as const,
          'intrude' as const,
        ),
      },
      { weight: 3, arbitrary: fc.constant('late' as const) },
    ),
    session: fc.nat(2),
    lost: fc.oneof({ weight: 4, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
    at: fc.nat(20),
  })
  .map((one) => ({ ...one, sink: 0 }));

/** A log in which these steps happened. */
function play(steps: readonly Step[]): SessionLog {
  const log = new SessionLog();
  const sinks = [
    log.sink('proxy', { kind: 'proxy', required: true }),
    log.sink('hook', { kind: 'hook' }),
    log.sink('stranger', { declared: false }),
  ];
  for (const one of sinks) one.open();
  const missing = sinks.map(
    (): { readonly epoch: string; readonly seq: number; readonly body: Buffer }[] => [],
  );
  const sent = sinks.map((): { readonly body: Buffer; readonly index: number }[] => []);
  for (const one of steps) {
    switch (one.kind) {
      case 'wait':
        log.now += 400_000;
        continue;
      case 'policy':
        log.state({ kind: 'policy.set', v: 1, policy: { lateness: 1 + (log.bytes.length % 60) }, by: ADMIN });
        continue;
      case 'declare':
        log.state({ kind: 'sink.declared', v: 1, sink: 'stranger', required: false, by: ADMIN });
        continue;
      default:
        break;
    }
    const talker = sinks[one.sink] as LogSink;
    const lacking = missing[one.sink] as (typeof missing)[number];
    const known = sent[one.sink] as (typeof sent)[number];
    const said = 'session' in one ? { session: `run-${one.session}` } : {};
    switch (one.kind) {
      case 'late': {
        const [late] = lacking.splice(one.at % Math.max(1, lacking.length), 1);
        if (late !== undefined) log.append(late.body, talker.by);
        break;
      }
      case 'gap': {
        const lacks = lacking[one.at % Math.max(1, lacking.length)];
        if (lacks?.epoch !== talker.epoch) break;
        talker.say('gap', { attrs: { first: lacks.seq, last: lacks.seq, reason: 'lost' } });
        break;
      }
      case 'forge': {
        const first = known[one.at % Math.max(1, known.length)];
        if (first === undefined) break;
        const { epoch, seq } = JSON.parse(first.body.toString()) as { epoch: string; seq: number };
        const forged = talker.line('x.forged', { session: 'run-0' }, seq).toString();
        log.append(Buffer.from(forged.replace(talker.epoch, epoch)), talker.by, first.index);
        break;
      }
      case 'open':
        talker.open(one.lost);
        break;
      case 'forget':
        talker.forget();
        talker.open(one.lost);
        break;
      case 'intrude': {
        // By who has a token and not the key: a line of this run, or what may have opened it.
        const { signed: _, ...stranger } = talker.by;
        const body = one.lost
          ? talker.line('epoch.open', { attrs: { counter: 7, sink_kind: 'proxy' } }, 1)
          : talker.line('call', said, 90);
        log.append(body, stranger);
        break;
      }
      case 'close':
        talker.stated('session.close', said, one.lost);
        break;
      case 'heartbeat':
      case 'epoch.close':
        talker.stated(one.kind, {}, one.lost);
        break;
      default: {
        const kind = one.kind === 'begin' ? 'session.open' : 'call';
        const body = talker.line(kind, said);
        const index = talker.say(kind, said, one.lost);
        if (one.lost) lacking.push({ epoch: talker.epoch, seq: talker.size, body });
        else known.push({ body, index });
      }
    }
  }
  return log;
}

describe('a log that is reconciled in batches', () => {
  it('comes to the same states as one that is read from entry 0', async () => {
    const made = new SessionLog();
    const proxy = made.sink('proxy', { kind: 'proxy', required: true });
    const hook = made.sink('hook', { kind: 'hook' });
    for (let run = 0; run < 3; run++) {
      proxy.open(run === 1);
      hook.open();
      for (let at = 0; at < 4; at++) {
        const session = `run-${run}-${at % 2}`;
        proxy.say('session.open', { session });
        hook.say('call', { session }, at === 2);
        proxy.say('call', { session });
        proxy.say('result', { session }, run === 2 && at === 1);
        proxy.stated('session.close', { session });
      }
      proxy.stated('epoch.close');
      if (run !== 1) hook.stated('epoch.close');
    }
    for (const [batch, lasting] of [
      [1, 1],
      [3, 2],
      [1_000, 1],
    ] as const) {
      const log = await StoredLog.create(stored.pool, ORIGIN);
      await log.write(made.entries);
      await reconcile(log, batch, lasting);
      expect(await kept(log)).toEqual(expected(made));
    }
  });

  it('comes to the same states whatever happened, and looks again at every session that came to something else', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.array(step, { minLength: 5, maxLength: 60 }),
          fc.array(restarting, { minLength: 5, maxLength: 40, size: 'max' }),
        ),
        fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 1, max: 4 }),
        async (steps, batches, lasting) => {
          const made = play(steps);
          const log = await StoredLog.create(stored.pool, ORIGIN);
          await log.write(made.entries);
          const coverage = new LogCoverage({ log: ORIGIN });
          let lane: Lane | undefined;
          for (let done = 0; coverage.size < log.size; done++) {
            if (done % lasting === 0) lane = undefined;
            // What is found in the statement on an epoch depends on time too, which a lane does not look at.
            const now = new Date(made.now);
            const time = now.toISOString();
            const before = statementsOf(coverage, time);
            let dirty: readonly string[] = [];
            await stored.store.turn(log.record, async (turn) => {
              lane ??= await Lane.open(turn);
              const [batch, next] = [done, done + 1].map((at) => batches[at % batches.length] as number);
              const to = Math.min(lane.size + (batch as number), log.size);
              // What was read ahead may be more than the next step takes, and then is read again.
              await lane.step(turn, to, now, Math.min(to + (next as number) + (done % 2), log.size));
              for (const entry of made.entries.slice(coverage.size, lane.size)) coverage.apply(entry);
              dirty = await lookedAt(turn, lane, log, now);
            });
            for (const [name, statement] of statementsOf(coverage, time)) {
              if (statement !== before.get(name))
                expect(dirty, `${name} after ${coverage.size}`).toContain(name);
            }
          }
          expect(await kept(log)).toEqual(expected(made));
        },
      ),
      { numRuns: Number(process.env['BELAY_RUNS'] ?? 40) },
    );
  });
});

it('a run of a sink that lost its state is news to sessions that runs near it left open, and to no earlier ones', async () => {
  const made = new SessionLog();
  const proxy = made.sink('proxy', { required: true });
  const log = await StoredLog.create(stored.pool, ORIGIN);
  const dirty = async (): Promise<string[]> => {
    await log.write(made.entries.slice(log.size));
    let names: string[] = [];
    await stored.store.turn(log.record, async (turn) => {
      const lane = await Lane.open(turn);
      await lane.step(turn, log.size, new Date(made.now));
      names = await lookedAt(turn, lane, log, new Date(made.now));
    });
    return names;
  };
  for (let run = 0; run < 10; run++) {
    proxy.forget();
    // Every second one loses its opening, too.
    proxy.open(run % 2 === 1);
    proxy.say('session.open', { session: `run-${run}` });
    await dirty();
  }
  proxy.forget();
  proxy.open();
  // After the run that begins before it; and those to which that one, and what came since, may be what followed.
  const near = ['run-6', 'run-7', 'run-8', 'run-9'];
  expect(await dirty()).toEqual(near);
  proxy.say('x.note');
  expect(await dirty()).toEqual(near);
  proxy.forget();
  proxy.open(true);
  proxy.say('x.note');
  expect(await dirty()).toEqual(near.slice(1));
});

it('a session with a receipt names the statement that it was made from, before that one’s entry is reconciled', async () => {
  const made = new SessionLog();
  const proxy = made.sink('proxy', { required: true });
  proxy.open();
  proxy.say('session.open', { session: 'run-1' });
  proxy.stated('session.close', { session: 'run-1' });
  const log = await StoredLog.create(stored.pool, ORIGIN);
  await log.write(made.entries);
  await reconcile(log, made.entries.length);
  const digest = 'ab'.repeat(32);
  const statedOf = async (): Promise<unknown> =>
    (
      await stored.pool.query(
        `select receipt, stated_index::int, encode(stated_digest, 'hex') as stated from sessions where log = $1`,
        [log.record.log],
      )
    ).rows[0];
  const settle = (outcome: Pick<SessionOutcome, 'receipt' | 'stated'>): Promise<unknown> =>
    stored.store.turn(log.record, async (turn) => {
      const { fence } = await Lane.open(turn);
      const session = { session: 'run-1', coverage: 'complete', closed: true, due: null };
      await turn.settle(fence, [{ ...session, beside: [], deliveries: [], ...outcome }], new Date(made.now));
    });
  await settle({ receipt: 'rcp_1', stated: { index: made.entries.length, digest } });
  const expected = { receipt: 'rcp_1', stated_index: made.entries.length, stated: digest };
  expect(await statedOf()).toEqual(expected);
  // Nor does a look that comes to nothing new take it away.
  await settle({ receipt: 'rcp_1' });
  expect(await statedOf()).toEqual(expected);
});

/** Settles what waits to be looked at, as the evaluator does once it has looked. Returns which that was. */
async function lookedAt(turn: AccountTurn, lane: Lane, log: StoredLog, now: Date): Promise<string[]> {
  const { rows } = await stored.pool.query(
    'select session from sessions where log = $1 and dirty is not null',
    [log.record.log],
  );
  const names = (rows as { session: string }[]).map(({ session }) => session);
  await lane.load(turn, names);
  const outcomes = names.map((name) => ({
    session: name,
    coverage: 'open',
    closed: false,
    due: null,
    beside: lane.beside(name),
    deliveries: [],
  }));
  await turn.settle(lane.fence, outcomes, now);
  return names;
}

/** What the sessions in memory come to, but for how much of the log was looked at. */
function statementsOf(coverage: LogCoverage, time: string): Map<string, string> {
  const names = [...coverage.sessions].map(({ session }) => session);
  return new Map(
    names.map((name): [string, string] => {
      const { asOf: _asOf, ...rest } = coverage.sessionStatement(name, { size: coverage.size, time });
      // Of a session that goes on, every line of its epoch moves the end: nothing comes to something else by that.
      const members = rest.members.map((member) => ({
        ...member,
        epochs: member.epochs.map(({ to: _to, ...epoch }) => epoch),
      }));
      return [name, JSON.stringify({ ...rest, members })];
    }),
  );
}
