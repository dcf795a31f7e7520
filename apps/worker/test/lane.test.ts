import { type EpochState, LogCoverage } from '@belay/coverage';
import { SessionLog } from '@belay/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Lane } from '../src/lane.js';
import { openStored, type Stored, StoredLog } from './stored-log.js';

const ORIGIN = 'belay.example/acme/agents';

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
      await lane.step(turn, Math.min(lane.size + batch, log.size), new Date('2026-01-02T00:00:00Z'));
      return lane.size < log.size;
    });
    if (more !== true) return;
  }
}

/** What is stored of a log, as JSON. */
async function kept(
  log: StoredLog,
): Promise<{ epochs: EpochState[]; chains: unknown[]; sessions: unknown[] }> {
  const read = async (table: string, order: string): Promise<never[]> =>
    (
      await stored.pool.query(`select state from ${table} where log = $1 order by ${order}`, [log.record.log])
    ).rows.map(({ state }) => state as never);
  return {
    epochs: await read('epoch_states', 'sink collate "C", epoch collate "C"'),
    chains: (await read('sink_states', `sink collate "C"`)).map(placeless),
    sessions: await read('sessions', 'session collate "C"'),
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
  };
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
});
