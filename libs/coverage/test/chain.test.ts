import { type ChainState, LogCoverage, SinkChain } from '@belay/coverage';
import { SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ORIGIN, type World, worldOf, worlds } from './world.js';

function chainsOf(world: World): Map<string, SinkChain> {
  const chains = new Map<string, SinkChain>();
  for (const { entry } of world.arrivals) {
    const { sink } = entry.envelope;
    let chain = chains.get(sink) ?? new SinkChain({ log: ORIGIN, sink });
    chain.apply(entry);
    // Every entry by a process of its own.
    chain = new SinkChain(JSON.parse(JSON.stringify(chain.state())) as ChainState);
    chains.set(sink, chain);
  }
  return chains;
}

test('every epoch that was lost whole between others is a hole with its counter, and nothing else is', () => {
  let holes = 0;
  fc.assert(
    fc.property(worlds(true), (script) => {
      const world = worldOf(script);
      const arrived = new Set(world.arrivals.map(({ line }) => line.epoch));
      const opened = new Set(
        world.arrivals.filter(({ line }) => line.seq === 1).map(({ line }) => line.epoch),
      );
      for (const [sink, chain] of chainsOf(world)) {
        const source = world.epochs.filter((epoch) => epoch.sink === sink);
        const { lost, branches, miscounted, beginnings, unopened } = chain.findings();
        expect({ branches, miscounted }).toEqual({ branches: [], miscounted: [] });
        expect(beginnings).toEqual(
          source.filter(({ counter, epoch }) => counter === 0 && opened.has(epoch)).map(({ epoch }) => epoch),
        );
        expect([...unopened].sort()).toEqual(
          [...arrived]
            .filter((epoch) => source.some((each) => each.epoch === epoch) && !opened.has(epoch))
            .sort(),
        );
        // An epoch shows the loss of those right before it when its own opening arrived.
        const expected = source.flatMap(({ epoch, counter }) => {
          if (!opened.has(epoch)) return [];
          let from = counter;
          while (from > 0 && !arrived.has(source[from - 1]?.epoch as string)) from--;
          return from < counter ? [{ before: epoch, from, to: counter }] : [];
        });
        holes += expected.length;
        const known = lost.map(({ before, counters }) => ({ before, ...counters }));
        // Where an epoch before them lost its opening, its counter is not known, and the first of the lost neither.
        const exact = expected.filter(
          ({ from }) => from === 0 || opened.has(source[from - 1]?.epoch as string),
        );
        expect(known.map(({ before }) => before).sort()).toEqual(expected.map(({ before }) => before).sort());
        for (const hole of exact) {
          const before = source.slice(0, hole.from);
          if (before.every(({ epoch }) => !arrived.has(epoch) || opened.has(epoch)))
            expect(known).toContainEqual(hole);
        }
      }
    }),
    { numRuns: 400 },
  );
  expect(holes).toBeGreaterThan(20);
});

test('goes on from its stored state as if it had never stopped, whatever the sinks say', () => {
  fc.assert(
    fc.property(worlds(false), (script) => {
      const world = worldOf(script);
      for (const [sink, resumed] of chainsOf(world)) {
        const whole = new SinkChain({ log: ORIGIN, sink });
        for (const { entry } of world.arrivals) if (entry.envelope.sink === sink) whole.apply(entry);
        expect(resumed.findings()).toEqual(whole.findings());
        expect(JSON.stringify(resumed.state())).toBe(JSON.stringify(whole.state()));
        for (const { epoch } of world.epochs) expect(resumed.account(epoch)).toEqual(whole.account(epoch));
      }
    }),
    { numRuns: 150 },
  );
});

test('a copied state is a branch, an opening that was killed is not', () => {
  const log = new SessionLog();
  const sink = log.sink('proxy');
  sink.open();
  sink.stated('epoch.close');
  const before = { epoch: sink.epoch, size: sink.size };
  const twin = (counter: number, speaks: boolean): void => {
    sink.epoch = log.ulid();
    const attrs = { counter, prev_epoch: before.epoch, prev_size: before.size };
    log.append(sink.line('epoch.open', { attrs }, 1), sink.by);
    if (speaks) log.append(sink.line('x.note', {}, 2), sink.by);
  };
  const findings = (): ReturnType<SinkChain['findings']> => {
    const first = log.sent()[0];
    const chain = new SinkChain({ log: first?.envelope.log as string, sink: 'proxy' });
    for (const entry of log.sent()) chain.apply(entry);
    return chain.findings();
  };
  twin(1, false);
  twin(1, true);
  expect(findings().branches).toEqual([]);
  twin(1, true);
  expect(findings().branches).toHaveLength(1);
  twin(3, false);
  expect(findings().miscounted).toEqual([{ epoch: sink.epoch, index: log.entries.length - 1 }]);
});

test('who has a token and not the key can not take the place of an epoch that was lost', () => {
  for (const early of [false, true]) {
    for (const keyed of [true, false]) {
      const log = new SessionLog();
      const sink = log.sink('proxy', { keyed, required: true });
      const session = 'run-1';
      sink.open();
      sink.say('session.open', { session });
      const first = { epoch: sink.epoch, size: sink.size + 1 };
      sink.stated('epoch.close');
      sink.open(true);
      const { epoch } = sink;
      sink.say('call', { session }, true);
      sink.stated('epoch.close', {}, true);
      // What the first line of the lost epoch may have said, by somebody else.
      const attrs = { counter: 1, prev_epoch: first.epoch, prev_size: first.size };
      const body = sink.line('epoch.open', { attrs }, 1);
      const { signed: _, ...stranger } = sink.by;
      const forge = (): unknown =>
        log.append(Buffer.from(body.toString().replace(/"epoch":"[^"]*"/, `"epoch":"${epoch}"`)), stranger);
      if (early) forge();
      sink.open();
      if (!early) forge();
      const coverage = new LogCoverage({ log: log.entries[0]?.line.log as string });
      for (const entry of log.entries) coverage.apply(entry);
      const { lost } = coverage.chain('proxy').findings();
      const asOf = { size: log.entries.length, time: new Date(log.now).toISOString() };
      const [member] = coverage.sessionStatement(session, asOf).members;
      if (keyed) {
        expect(lost).toMatchObject([{ before: sink.epoch, epoch }]);
        expect(member).toMatchObject({ status: 'silent', reasons: [{ reason: 'lost_epoch' }] });
      } else {
        // Without a key nobody can tell; and what is not signed affirms nothing.
        expect(lost).toEqual([]);
        expect(member).toMatchObject({ signed: false });
      }
      const state = JSON.parse(JSON.stringify(coverage.chain('proxy').state())) as ChainState;
      expect(new SinkChain(state).findings()).toEqual(coverage.chain('proxy').findings());
    }
  }
});
