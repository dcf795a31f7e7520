import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { epochStatus, isFilterRule, SharedEpoch, SPOOL_LIMITS } from '@belay/client';
import { type EnvelopeKind, parseEnvelope } from '@belay/envelope';
import { SmallCollector } from '@belay/testkit';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { rangeOfLines, treeOfLines } from '../src/epoch-record.js';
import { filterOf } from '../src/line-filter.js';
import { CompactRange } from '@belay/merkle';
import { forwarder, freshState, openEpoch } from './setup.js';

let collector: SmallCollector;
let url: string;
let state: string;
beforeEach(async () => {
  collector = new SmallCollector();
  url = await collector.listen();
  state = freshState();
});
afterEach(() => collector.close());

const envelopesOf = (dir: string) =>
  readFileSync(join(dir, 'lines'))
    .toString()
    .split('\n')
    .slice(0, -1)
    .map((line) => parseEnvelope(Buffer.from(line)));

test.each<[string, boolean]>([
  ['x.frame', true],
  ['call', true],
  ['hook/x.hook', true],
  ['hook/*', true],
  ['x.*', true],
  ['*', true],
  ['epoch.open', false],
  ['session.close', false],
  ['heartbeat', false],
  ['gap', false],
  ['denial', false],
  ['a/b/c', false],
  ['hook/', false],
  ['', false],
])('rule %j: %j', (rule, ok) => {
  expect(isFilterRule(rule)).toBe(ok);
});

test('a rule is for its sink, or for all, and never for what holds an epoch together', () => {
  const kinds: EnvelopeKind[] = [
    'call',
    'x.frame',
    'x.hook',
    'epoch.open',
    'gap',
    'heartbeat',
    'session.close',
  ];
  const left = (rules: string[], sink: string): string[] =>
    kinds.filter((kind) => filterOf(rules, sink)?.(kind));
  expect(left(['x.frame', 'hook/x.hook'], 'proxy')).toEqual(['x.frame']);
  expect(left(['x.frame', 'hook/x.hook'], 'hook')).toEqual(['x.frame', 'x.hook']);
  expect(left(['*'], 'hook')).toEqual(['call', 'x.frame', 'x.hook']);
  expect(filterOf(['other/*'], 'hook')).toBeUndefined();
});

test('what is left out keeps its numbers; a gap line speaks of them, and what is stated counts them', async () => {
  const epoch = await openEpoch(state, collector, { filter: ['x.frame'] });
  const say = (kind: EnvelopeKind): number => epoch.append({ kind, content: Buffer.from('c') });
  expect(
    ['call', 'x.frame', 'x.frame', 'result', 'x.frame'].map((kind) => say(kind as EnvelopeKind)),
  ).toEqual([2, 3, 4, 6, 7]);
  epoch.heartbeat();
  say('x.frame');
  epoch.close();
  const lines = envelopesOf(epoch.dir);
  expect(lines.map(({ seq, kind }) => `${seq} ${kind}`)).toEqual([
    '1 epoch.open',
    '2 call',
    '5 gap',
    '6 result',
    '8 gap',
    '9 heartbeat',
    '11 gap',
    '12 epoch.close',
  ]);
  expect(lines[2]?.attrs).toMatchObject({ first: 3, last: 4, reason: 'filtered' });
  expect(lines[5]?.attrs).toMatchObject({ size: 8, dropped: 0, filtered: 3 });
  expect(lines[7]?.attrs).toMatchObject({ size: 11, dropped: 0, filtered: 4 });
  expect(epochStatus(epoch.dir)).toMatchObject({ lines: 12, dropped: 0, filtered: 4, pending: 8 });
  const { forwarder: f } = forwarder(state, url, collector);
  expect(await f.follow(epoch.dir, () => true)).toBe(true);
  epoch.release();
  expect(epochStatus(epoch.dir)).toMatchObject({ acked: 8, dropped: 0, filtered: 4, state: 'settled' });
});

test('a shared epoch goes on with what its last process left out', () => {
  const options = {
    state,
    log: collector.origin,
    sink: 'hook',
    sinkKind: 'hook',
    filter: ['hook/x.hook'],
  } as const;
  const say = (kind: EnvelopeKind): string =>
    SharedEpoch.use(options, (epoch) => {
      epoch.append({ kind, content: Buffer.from('c') });
      return epoch.dir;
    });
  const dir = say('x.hook');
  expect(epochStatus(dir)).toMatchObject({ lines: 2, dropped: 0, filtered: 1 });
  say('x.hook');
  say('call');
  SharedEpoch.use(options, (epoch) => epoch.close());
  expect(envelopesOf(dir).map(({ seq, kind }) => `${seq} ${kind}`)).toEqual([
    '1 epoch.open',
    '4 gap',
    '5 call',
    '6 epoch.close',
  ]);
  expect(envelopesOf(dir).at(-1)?.attrs).toMatchObject({ size: 5, filtered: 2, dropped: 0 });
});

test('with any mixture of lines, reserved or not, under any limit: the numbers and the tree are whole', async () => {
  const step = fc.record({ kind: fc.constantFrom<EnvelopeKind>('call', 'x.frame'), reserved: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 40 }),
      fc.constantFrom(1_000, 4_000, 1 << 20),
      async (steps, bytes) => {
        const limits = { ...SPOOL_LIMITS, bytes };
        const epoch = await openEpoch(freshState(), collector, { filter: ['x.frame'], limits });
        const numbers = steps.map(({ kind, reserved }) => {
          const draft = { kind, content: Buffer.from('c') };
          return reserved ? epoch.reserve(() => draft) : epoch.append(draft);
        });
        epoch.close();
        expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
        const text = readFileSync(join(epoch.dir, 'lines'));
        const last = envelopesOf(epoch.dir).at(-1);
        const { size, root, dropped, filtered } = (last?.attrs ?? {}) as Record<string, number | string>;
        const before = text.subarray(0, text.lastIndexOf(0x0a, text.length - 2) + 1);
        expect(treeOfLines(before).stated()).toEqual({ size, root });
        const gaps = envelopesOf(epoch.dir).flatMap(({ kind, attrs }) =>
          kind === 'gap' ? [attrs as never] : [],
        );
        const missing = (...reasons: string[]): number =>
          gaps
            .filter(({ reason }) => reasons.includes(reason))
            .reduce((sum, gap: { first: number; last: number }) => sum + gap.last - gap.first + 1, 0);
        expect([filtered, dropped]).toEqual([missing('filtered'), missing('overflow', 'lost')]);
        for (const { attrs } of envelopesOf(epoch.dir).filter(({ kind }) => kind === 'x.frame'))
          expect(attrs).toBe('never');
        expect(Number(rangeOfLines(text, CompactRange.empty()).end)).toBe((size as number) + 1);
        epoch.release();
      },
    ),
    { numRuns: 60 },
  );
});
