import { entryMakerOf, Sequencer } from '@belay/log';
import { DEFAULT_POLICY, EpochCoverage, timingOf } from '@belay/coverage';
import { type Entry, parseEntry } from '@belay/envelope';
import {
  ADMIN,
  closing,
  epoch,
  line,
  MemoryLogStore,
  mustBeSound,
  PROJECT,
  request,
  setUp,
  type Setup,
  TENANT,
  value,
  verifyAck,
} from '@belay/testkit';
import { describe, expect, it } from 'vitest';

const LATENESS = DEFAULT_POLICY.lateness * 1_000;
const RUN = epoch(1);

async function send(setup: Setup, ...sent: Buffer[]) {
  const asked = request(setup.log.origin, 's', RUN, sent);
  const ack = value(await setup.sequencer.append(asked));
  verifyAck(setup.log, asked, ack);
  return ack.runs;
}

const one = (setup: Setup, seq: number, content?: string): Buffer =>
  line(setup.log.origin, 's', RUN, seq, content);
const close = (setup: Setup, seq: number): Buffer => closing(setup.log.origin, 's', RUN, seq);

async function entries(setup: Setup): Promise<Entry[]> {
  const read: Entry[] = [];
  const lines = await setup.store.lines(setup.log, 0, 1_000);
  const { sinks } = await setup.store.config(setup.log);
  const names = new Map([...sinks.values()].map((sink) => [sink.sink, sink.name]));
  for (const run of await setup.store.runs(setup.log, 0, 1_000)) {
    const maker = entryMakerOf(setup.log.origin, run, names.get(run.sink));
    for (const stored of lines.slice(run.first, run.first + run.count)) {
      read.push(parseEntry(maker.entry(stored.index, stored.line, run.conflict ?? undefined)));
    }
  }
  return read;
}

describe('a line that comes after the close of its epoch', () => {
  it('is late from the policy on, in its leaf, its ack and every answer after it', async () => {
    const setup = await setUp();
    await send(setup, one(setup, 1), one(setup, 2), close(setup, 5));
    setup.clock.now += LATENESS;
    expect(await send(setup, one(setup, 3))).toMatchObject([{ disposition: 'appended' }]);
    setup.clock.now += 10;
    const late = await send(setup, one(setup, 4), one(setup, 2, 'b'));
    expect(late).toMatchObject([
      { disposition: 'appended', late: true },
      { disposition: 'conflict', late: true },
    ]);
    expect(await send(setup, one(setup, 1), one(setup, 2), one(setup, 3), one(setup, 4))).toMatchObject([
      { lines: [0, 2] },
      { lines: [2, 3] },
      { lines: [3, 4], disposition: 'duplicate', late: true },
    ]);
    const marked = (await entries(setup)).filter(({ line: { late: is } }) => is === true);
    expect(marked.map(({ line: { index } }) => index)).toEqual([7, 8]);
    await mustBeSound(setup);
  });

  it('is late whoever committed the close, and whatever this process was told of it', async () => {
    const store = new MemoryLogStore();
    const setup = await setUp(store);
    await send(setup, one(setup, 1));
    for (const fault of ['before', 'after', undefined] as const) {
      store.faults.push(fault);
      const asked = request(setup.log.origin, 's', RUN, [close(setup, 2)]);
      const outcome = await setup.sequencer.append(asked);
      expect(outcome.ok).toBe(fault === undefined);
      expect(outcome.ok && outcome.value.runs[0]?.disposition).toBe(fault === undefined && 'duplicate');
    }
    setup.clock.now += LATENESS + 10;
    const other = new Sequencer(setup.parts);
    const asked = request(setup.log.origin, 's', RUN, [one(setup, 3)]);
    expect(value(await other.append(asked)).runs[0]?.late).toBe(true);
    expect((await send(setup, one(setup, 4)))[0]?.late).toBe(true);
    await mustBeSound(setup);
  });

  it('is not late by a close that contradicts another line, nor before anything closed', async () => {
    const setup = await setUp();
    await send(setup, one(setup, 1), one(setup, 2));
    expect(await send(setup, close(setup, 2))).toMatchObject([{ disposition: 'conflict' }]);
    setup.clock.now += 10 * LATENESS;
    expect((await send(setup, one(setup, 3)))[0]?.late).toBeUndefined();
    await mustBeSound(setup);
  });

  it('counts from the close that came last, one that fills a hole and one in other letters too', async () => {
    const setup = await setUp();
    const escaped = Buffer.from(String(close(setup, 3)).replace('epoch.close', 'epoch\\u002eclose'));
    await send(setup, one(setup, 1), close(setup, 9));
    setup.clock.now += LATENESS + 10;
    expect((await send(setup, escaped))[0]?.late).toBe(true);
    expect((await send(setup, one(setup, 2)))[0]?.late).toBeUndefined();
    setup.clock.now += LATENESS + 10;
    // A line that only speaks of it, and one that could be anything.
    expect((await send(setup, one(setup, 4, 'epoch.close')))[0]?.late).toBe(true);
    expect((await send(setup, one(setup, 5)))[0]?.late).toBe(true);
    await mustBeSound(setup);
  });

  it('is judged by the policy in force', async () => {
    const setup = await setUp();
    await send(setup, close(setup, 1));
    setup.clock.now += 5_000;
    const change = { kind: 'policy.set', tenant: TENANT, by: ADMIN, project: PROJECT } as const;
    value(await setup.sequencer.change({ ...change, policy: { ...DEFAULT_POLICY, lateness: 4 } }));
    expect((await send(setup, one(setup, 2)))[0]?.late).toBe(true);
    value(await setup.sequencer.change({ ...change, policy: { ...DEFAULT_POLICY, lateness: 10 } }));
    expect((await send(setup, one(setup, 3)))[0]?.late).toBeUndefined();
    await mustBeSound(setup);
  });

  it('is never one that coverage would not call late', async () => {
    const setup = await setUp();
    await send(setup, one(setup, 1), close(setup, 8));
    for (const [seq, wait] of [
      [2, 60_000],
      [3, 60_000],
      [4, 2],
      [5, 100_000],
    ] as const) {
      setup.clock.now += wait;
      await send(setup, one(setup, seq));
    }
    const coverage = new EpochCoverage({ log: setup.log.origin, sink: 's', epoch: RUN });
    const marked: number[] = [];
    for (const entry of await entries(setup)) {
      if (entry.by !== 'sender') continue;
      if (entry.line.late) marked.push(entry.envelope.seq);
      coverage.apply({ ...entry, line: { ...entry.line, late: undefined } }, timingOf(DEFAULT_POLICY));
    }
    expect(marked).toEqual([4, 5]);
    expect(coverage.findings().late).toEqual([{ from: 4, to: 6 }]);
  });
});
