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
        // What the stranger wrote stands for nothing; that it may be all there is of the run keeps it from complete, too.
        expect(member?.reasons.map(({ reason }) => reason)).toContain('lost_epoch');
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

test('what is beside the epochs of a session is what the page says, however they are linked', () => {
  interface Told {
    /** The epoch it names; one that never came, or none. */
    readonly previous: number | undefined;
    readonly counter: number | undefined;
    readonly opened: boolean;
    /** It has said something else, too. */
    readonly spoke: boolean;
    /** Whether its opening, and the other line, are by who has the key. */
    readonly signed: readonly [boolean, boolean];
    readonly ours: boolean;
    readonly opens: boolean;
    readonly closes: boolean;
  }
  const link: fc.Arbitrary<Told> = fc.record({
    previous: fc.option(fc.nat(11), { nil: undefined, freq: 8 }),
    counter: fc.option(fc.nat(4)).map((counter) => counter ?? undefined),
    opened: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.boolean() }),
    signed: fc.oneof(
      { weight: 6, arbitrary: fc.constant([true, true] as const) },
      { weight: 1, arbitrary: fc.tuple(fc.boolean(), fc.boolean()) },
    ),
    spoke: fc.boolean(),
    ours: fc.boolean(),
    opens: fc.boolean(),
    closes: fc.boolean(),
  });
  /** Most follow the one before, some another. */
  const chain = fc
    .array(fc.tuple(link, fc.boolean(), fc.boolean()), { minLength: 1, maxLength: 10 })
    .map((all) => all.map(([one, a, b], n) => (n > 0 && (a || b) ? { ...one, previous: n - 1 } : one)));

  /** The page, word for word: each question asked again of all epochs. */
  function oracle(told: readonly Told[]): { epochs: number[]; lost: number[] } {
    // What is not signed counts for nothing.
    const all = told.map(({ opened, spoke, signed: [first, other], previous, counter, ...ends }) => ({
      ...ends,
      opened: opened && first,
      spoke: (spoke || !opened) && other,
      // Number 1 is there, and by who has not the key.
      odd: opened && !first,
      ...(opened && first ? { previous, counter } : {}),
    }));
    const has = (n: number | undefined): n is number => n !== undefined && n < all.length;
    const at = (n: number): (typeof all)[number] => all[n] as (typeof all)[number];
    const isOwn = (n: number): boolean => at(n).opened || at(n).spoke;
    const isLost = (n: number): boolean => {
      const { opened, previous, counter } = at(n);
      return opened && (previous === undefined ? (counter ?? 0) > 0 : !has(previous) || !isOwn(previous));
    };
    const back = (from: number): { passed: number[]; end: string; at: number } => {
      const passed: number[] = [];
      for (let n = from; ;) {
        if (!at(n).opened) return { passed, end: 'unopened', at: n };
        if (isLost(n)) return { passed, end: 'lost', at: n };
        const next = at(n).previous;
        if (next === undefined) return { passed, end: 'none', at: n };
        if (at(next).ours) return { passed, end: 'ours', at: next };
        if (passed.includes(next)) return { passed, end: 'again', at: n };
        passed.push(next);
        n = next;
      }
    };
    const epochs = new Set<number>();
    const lost = new Set<number>();
    const every = all.map((_, n) => n);
    for (const e of every.filter((n) => at(n).ours)) {
      const { opens, closes, opened, previous } = at(e);
      const { passed, end, at: last } = back(e);
      const several = every.filter((n) => at(n).ours).length > 1;
      if (several && end === 'ours' && (!opens || !at(last).closes)) for (const n of passed) epochs.add(n);
      if (!opens && isLost(e)) lost.add(e);
      if (!opens && opened && !isLost(e) && has(previous)) epochs.add(previous);
      const earlier = every.filter((n) => at(n).ours && n < e);
      const may = earlier.length > 0 && (!opens || earlier.some((n) => !at(n).closes));
      if (end === 'lost' && may) lost.add(last);
      if (end === 'unopened' && may) epochs.add(last);
      if (closes) continue;
      const naming = every.filter((n) => at(n).opened && at(n).previous === e);
      for (const n of naming) epochs.add(n);
      if (naming.some((n) => at(n).spoke)) continue;
      const comesFrom = (n: number): boolean => {
        const been = new Set([e]);
        for (let one = at(e).previous; has(one) && !been.has(one); one = at(one).previous) {
          if (one === n) return isOwn(one);
          been.add(one);
          if (!isOwn(one)) return false;
        }
        return false;
      };
      const begins = every.filter(
        (n) => n > e && at(n).opened && at(n).previous === undefined && !comesFrom(n),
      );
      const more = begins.findIndex((n) => at(n).spoke);
      for (const n of more < 0 ? begins : begins.slice(0, more + 1)) epochs.add(n);
      const loose = every.filter((n) => n > e && !at(n).opened && at(n).spoke);
      const enough = loose.findIndex((n) => !at(n).odd);
      for (const n of enough < 0 ? loose : loose.slice(0, enough + 1)) epochs.add(n);
    }
    const shown = every.filter((n) => isLost(n));
    const named = every.filter((n) => at(n).ours);
    for (const [place, e] of named.entries()) {
      const next = named[place + 1];
      const follows = every.some((n) => at(n).opened && at(n).previous === e && at(n).spoke);
      if (at(e).closes || (next !== undefined && follows)) continue;
      for (const n of shown) {
        // Its opening is its first entry, but where somebody without the key wrote that.
        if (n > e && (next === undefined || n <= next)) lost.add(n);
      }
    }
    return {
      epochs: [...epochs].filter((n) => !at(n).ours).sort((a, b) => a - b),
      lost: [...lost].sort((a, b) => a - b),
    };
  }

  const seen = { epochs: 0, lost: 0 };
  fc.assert(
    fc.property(chain, (all) => {
      const log = new SessionLog();
      const sink = log.sink('proxy', {});
      const name = (n: number): string => `01J0000000000000000000000${'0123456789AB'.charAt(n)}`;
      all.forEach(({ previous, counter, opened, signed, spoke }, n) => {
        const attrs = {
          sink_kind: 'proxy',
          ...(counter === undefined ? {} : { counter }),
          ...(previous === undefined ? {} : { prev_epoch: name(previous) }),
        };
        const body = opened ? sink.line('epoch.open', { attrs }, 1) : sink.line('x.note', {}, 2);
        const bodies = opened && spoke ? [body, sink.line('x.note', {}, 2)] : [body];
        for (const [at, each] of bodies.entries()) {
          const isSigned = signed[opened ? at : 1];
          const mine = Buffer.from(each.toString().replace(/"epoch":"[^"]*"/, `"epoch":"${name(n)}"`));
          log.append(mine, { ...sink.by, signed: isSigned ? sink.by.signed : undefined });
        }
      });
      const made = new SinkChain({ log: log.entries[0]?.line.log as string, sink: 'proxy' });
      for (const entry of log.sent()) made.apply(entry, () => true);
      const ours = new Map(all.flatMap(({ ours: is, ...ends }, n) => (is ? [[name(n), ends] as const] : [])));
      if (ours.size === 0) return;
      const right = oracle(all);
      const { epochs, lost } = made.beside(ours);
      expect(epochs).toEqual(right.epochs.map(name));
      expect([...lost].sort()).toEqual(right.lost.map(name));
      seen.epochs += epochs.length;
      seen.lost += lost.size;
    }),
    { numRuns: Number(process.env['BELAY_RUNS'] ?? 300) },
  );
  expect(Math.min(seen.epochs, seen.lost)).toBeGreaterThan(50);
});
