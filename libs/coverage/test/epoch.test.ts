import {
  type Account,
  EpochCoverage,
  type EpochState,
  type EpochStatement,
  type SentEntry,
  SinkChain,
  epochStatement,
  formatStatement,
  parseStatement,
  readPolicy,
  timingOf,
} from '@belay/coverage';
import { CompactRange, decompose, leafHash } from '@belay/merkle';
import { SessionLog } from '@belay/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { oracle, statusIn } from './oracle.js';
import { type Arrival, ORIGIN, START, type World, worldOf, worlds, type WorldScript } from './world.js';

const policy = readPolicy({ heartbeat: 60, lateness: 120, closeTimeout: 3_600 });
const timing = timingOf(policy);
const runs = Number(process.env['BELAY_RUNS'] ?? 400);

/** What a world's log comes to, by one run over it. */
function reduced(world: World): { epochs: Map<string, EpochCoverage>; chains: Map<string, SinkChain> } {
  const epochs = new Map<string, EpochCoverage>();
  const chains = new Map<string, SinkChain>();
  for (const { entry } of world.arrivals) {
    const { sink, epoch } = entry.envelope;
    if (!epochs.has(epoch)) epochs.set(epoch, new EpochCoverage({ log: ORIGIN, sink, epoch }));
    if (!chains.has(sink)) chains.set(sink, new SinkChain({ log: ORIGIN, sink }));
    epochs.get(epoch)?.apply(entry, timing);
    chains.get(sink)?.apply(entry);
  }
  return { epochs, chains };
}

const arrivalsOf = (world: World, epoch: string): Arrival[] =>
  world.arrivals.filter(({ line }) => line.epoch === epoch);

/** What the opening of a later epoch says, if it arrived. */
function accountIn(
  world: World,
  epoch: string,
): (Account & { readonly size: number; readonly lie: boolean }) | undefined {
  const next = world.epochs.find(({ previous }) => previous === epoch);
  const opening = world.arrivals.find(
    ({ line, second }) => line.epoch === next?.epoch && line.seq === 1 && !second,
  );
  if (next?.account === undefined || opening === undefined) return undefined;
  const { size, lie } = next.account;
  return { epoch: next.epoch, index: opening.entry.line.index, signed: world.keyed, size, lie };
}

/** Lines that came after the sink had given them up, one of them not as it was: rare enough to be asked for. */
const givenUp: WorldScript = {
  sinks: [
    [{ steps: [{ do: 'note' }, { do: 'note' }], end: 'expire', given: 3, account: 'right', lost: false }],
  ],
  fates: (['arrives', 'forged', 'arrives', 'arrives', 'arrives'] as const).map((kind, i) => ({
    kind,
    shift: i > 0 && i < 4 ? 10 : 0,
    after: 500,
    skew: 0,
  })),
  keyed: true,
};

describe('an epoch', () => {
  test.each([
    ['honest sinks, a way that loses and reorders', true],
    ['sinks and a way that lie', false],
  ])('says what the oracle says that saw everything: %s', (_title, honest) => {
    const reached = new Set<string>();
    fc.assert(
      fc.property(worlds(honest), fc.integer({ min: 0, max: 5_000 }), (script, later) => {
        const world = worldOf(script);
        const { epochs, chains } = reduced(world);
        for (const source of world.epochs) {
          const coverage = epochs.get(source.epoch);
          if (coverage === undefined) continue;
          const account = chains.get(source.sink)?.account(source.epoch);
          const known = accountIn(world, source.epoch);
          const { dropped, ...told } = oracle(source, arrivalsOf(world, source.epoch), timing, known);
          const found = coverage.findings(account);
          for (const { kind } of found.conflicts) reached.add(kind);
          for (const { gap } of found.missing) reached.add(gap === undefined ? 'undisclosed' : 'disclosed');
          if (found.unbound.length > 0) reached.add('unbound');
          if (found.late.length > 0) reached.add('late');
          reached.add(`ends by ${found.ending?.by}, ${found.ending?.compared}`);
          expect({
            lines: found.lines,
            next: found.next,
            missing: found.missing,
            unbound: found.unbound,
            late: found.late,
            conflicts: found.conflicts.map(({ kind, from, to, index }) => ({ kind, from, to, index })),
            ending: found.ending,
            matched: found.matched,
          }).toEqual(told);
          const last = arrivalsOf(world, source.epoch).findLast(({ second }) => !second);
          const time = new Date(
            Date.parse(last?.entry.line.received as string) + later * 1_000,
          ).toISOString();
          const asOf = { size: world.arrivals.length, time };
          expect(epochStatement(coverage, { asOf, policy, account }).status).toBe(
            statusIn({ ...told, dropped }, later, policy),
          );
        }
      }),
      { numRuns: runs, examples: honest ? [] : [[givenUp, 0]] },
    );
    // What a generator never makes, its oracle never judges.
    const all = [
      'disclosed',
      'ends by close, false',
      'ends by close, true',
      'ends by successor, false',
      'ends by successor, true',
      'ends by undefined, undefined',
      'late',
      'unbound',
      'undisclosed',
    ];
    const lies = ['gap', 'misstated', 'number', 'rewound', 'root', 'successor'];
    expect([...reached].sort()).toEqual([...all, ...(honest ? [] : lies)].sort());
  });

  test('of an honest sink is never accused, and complete only when all of it is there', () => {
    const seen = new Map<string, number>();
    fc.assert(
      fc.property(worlds(true), fc.integer({ min: 0, max: 8_000 }), (script, later) => {
        const world = worldOf(script);
        const { epochs, chains } = reduced(world);
        const time = Date.parse(world.arrivals.at(-1)?.entry.line.received ?? new Date(START).toISOString());
        const asOf = { size: world.arrivals.length, time: new Date(time + later * 1_000).toISOString() };
        for (const source of world.epochs) {
          const coverage = epochs.get(source.epoch);
          if (coverage === undefined) continue;
          const account = chains.get(source.sink)?.account(source.epoch);
          const statement = epochStatement(coverage, { asOf, policy, account });
          seen.set(statement.status, (seen.get(statement.status) ?? 0) + 1);
          const arrived = new Set(arrivalsOf(world, source.epoch).map(({ line }) => line.seq));
          const whole = source.lines.every(({ seq }) => arrived.has(seq));
          expect(statement.status).not.toBe('conflict');
          if (statement.status === 'complete') {
            const end = statement.ending?.by === 'successor' ? statement.ending.size : source.lines.length;
            const upTo = source.lines.filter(({ seq }) => seq <= end);
            // What may still be under way is a `gap` line after the close, which then says what is there all the same.
            expect(upTo.every(({ seq, kind }) => arrived.has(seq) || kind === 'gap')).toBe(true);
          }
          // Nothing that arrived is missing, and nothing that did not is counted as there.
          for (const { from, to } of statement.missing) {
            for (let seq = from; seq < to; seq++) expect(arrived.has(seq)).toBe(false);
          }
          const listed = statement.missing.reduce((sum, { from, to }) => sum + to - from, 0);
          expect(arrived.size + listed).toBe(statement.next - 1);
          // A close that came only after it was given up is there, and its root is not compared.
          if (whole && statement.unbound.length === 0 && statement.ending?.compared !== false) {
            expect(['complete', 'open', 'silent', 'unclosed']).toContain(statement.status);
          }
          expect(parseStatement(formatStatement(statement))).toEqual(JSON.parse(JSON.stringify(statement)));
        }
      }),
      { numRuns: runs },
    );
    // The generator has to reach all that an honest sink can come to.
    expect([...seen.keys()].sort()).toEqual(['complete', 'gap', 'open', 'silent', 'unclosed']);
  });

  test('goes on from its stored state as if it had never stopped', () => {
    fc.assert(
      fc.property(worlds(false), fc.integer({ min: 1, max: 9 }), (script, every) => {
        const world = worldOf(script);
        const { epochs } = reduced(world);
        for (const [epoch, whole] of epochs) {
          const { sink } = whole;
          let resumed = new EpochCoverage({ log: ORIGIN, sink, epoch });
          let before: Arrival | undefined;
          for (const [i, arrival] of arrivalsOf(world, epoch).entries()) {
            if (i % every === 0) {
              resumed = new EpochCoverage(JSON.parse(JSON.stringify(resumed.state())) as EpochState);
              // A job that is run twice.
              if (before !== undefined) resumed.apply(before.entry, timing);
            }
            resumed.apply(arrival.entry, timing);
            before = arrival;
          }
          expect(JSON.stringify(resumed.state())).toBe(JSON.stringify(whole.state()));
        }
      }),
      { numRuns: Math.ceil(runs / 2) },
    );
  });

  test('of a keyed sink is ended by no word that is not signed', () => {
    const log = new SessionLog();
    const sink = log.sink('proxy');
    sink.open();
    sink.say('x.note');
    const before = { epoch: sink.epoch, size: 2 };
    sink.epoch = log.ulid();
    const attrs = { counter: 1, prev_epoch: before.epoch, prev_size: 9 };
    log.append(sink.line('epoch.open', { attrs }, 1), { ...sink.by, signed: undefined });
    const [first] = log.statements('none').epochs;
    expect(first).toMatchObject({ status: 'open', next: 3, missing: [] });
    expect(first?.ending).toBeUndefined();
    sink.epoch = log.ulid();
    log.append(sink.line('epoch.open', { attrs }, 1), sink.by);
    expect(log.statements('none').epochs[0]).toMatchObject({
      status: 'gap',
      missing: [{ from: 3, to: 10 }],
      ending: { by: 'successor', epoch: sink.epoch, compared: false },
    });
  });

  test('keeps its state small while a line is missing, and is whole when that comes', () => {
    const log = new SessionLog();
    const sink = log.sink('proxy');
    sink.open();
    const lost = sink.line('x.note', {});
    sink.say('x.note', {}, true);
    for (let n = 0; n < 1_500; n++) sink.stated('heartbeat');
    sink.stated('epoch.close');
    const coverage = new EpochCoverage({ log: ORIGIN, sink: 'proxy', epoch: sink.epoch });
    for (const entry of log.sent()) coverage.apply(entry, timing);
    expect(coverage.findings()).toMatchObject({ missing: [{ from: 2, to: 3 }], matched: 0 });
    expect(coverage.state().pending).toHaveLength(1_000);
    log.append(lost, sink.by);
    coverage.apply(log.sent().at(-1) as SentEntry, timing);
    expect(coverage.findings()).toMatchObject({
      missing: [],
      conflicts: [],
      matched: 1_502,
      ending: { by: 'close', compared: true },
    });
    const { tree, pending } = coverage.state();
    expect(pending).toEqual([]);
    expect(tree.held).toEqual([]);
    expect(tree.nodes.length).toBeLessThan(12);
  });

  test('is not whole when a hash of the sink stands over lines that can not be held to it', () => {
    const log = new SessionLog();
    const sink = log.sink('proxy');
    const bodies: Buffer[] = [];
    const held = (kind: string, attrs?: Record<string, unknown>): void => {
      bodies.push(sink.line(kind, { attrs }));
      sink.say(kind, { attrs }, true);
    };
    sink.open();
    for (let n = 0; n < 3; n++) held('x.note');
    const leaves = [
      log.bytes.at(-1)?.subarray((log.bytes.at(-1) as Buffer).indexOf(0x0a) + 1) as Buffer,
      ...bodies,
    ].map(leafHash);
    const whole = CompactRange.empty();
    for (const leaf of leaves) whole.append(leaf);
    held('gap', { first: 3, last: 3, reason: 'lost', hashes: [leaves[2]?.toString('base64')] });
    held('gap', { first: 1, last: 4, reason: 'lost', hashes: [whole.root().toString('base64')] });
    const [second, third, fourth, inner, outer] = bodies as [Buffer, Buffer, Buffer, Buffer, Buffer];
    // The fourth line joins the hash for the third, and the second `gap` line takes both for its own.
    for (const body of [inner, fourth, outer, second, third]) log.append(body, sink.by);
    sink.stated('epoch.close');
    expect(log.statements('none').epochs[0]).toMatchObject({
      status: 'gap',
      missing: [],
      conflicts: [],
      unbound: [{ from: 1, to: 5 }],
      ending: { by: 'close', compared: true },
    });
  });

  test('takes the greatest numbers that a line can have', () => {
    const log = new SessionLog();
    const sink = log.sink('proxy');
    const max = Number.MAX_SAFE_INTEGER - 1;
    sink.open();
    const root = Buffer.alloc(32, 7).toString('base64');
    const hashes = decompose(0n, BigInt(max - 2)).map(() => root);
    for (const [seq, kind, attrs] of [
      [max, 'heartbeat', { size: max - 1, root, dropped: 0, filtered: 0 }],
      [max - 1, 'gap', { first: 1, last: max - 2, reason: 'lost', hashes }],
      [max - 2, 'x.note', {}],
    ] as const) {
      log.append(sink.line(kind, { attrs }, seq), sink.by);
    }
    const before = sink.epoch;
    sink.epoch = log.ulid();
    const attrs = { counter: 1, prev_epoch: before, prev_size: Number.MAX_SAFE_INTEGER, prev_root: root };
    log.append(sink.line('epoch.open', { attrs }, 1), sink.by);
    const [statement] = log.statements('none').epochs as [EpochStatement];
    expect(parseStatement(formatStatement(statement))).toMatchObject({
      status: 'conflict',
      next: max + 1,
      missing: [{ from: 2, to: max - 2 }],
      unbound: [
        { from: 1, to: 2 },
        { from: max - 2, to: max - 1 },
      ],
      conflicts: [{ kind: 'root' }, { kind: 'successor', to: max + 1 }],
    });
  });
});
