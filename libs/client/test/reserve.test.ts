import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readEpochRecord } from '@belay/client';
import { parseEnvelope } from '@belay/envelope';
import { SmallCollector } from '@belay/testkit';
import { treeOfLines } from '../src/epoch-record.js';
import { freshState, openEpoch } from './setup.js';

const envelopesOf = (dir: string): ReturnType<typeof parseEnvelope>[] =>
  readFileSync(join(dir, 'lines'))
    .toString()
    .split('\n')
    .slice(0, -1)
    .map((line) => parseEnvelope(Buffer.from(line)));

const collector = new SmallCollector();

test('a number that was given away is that of its line, which stands before whatever comes next', async () => {
  const epoch = await openEpoch(freshState(), collector);
  const made: number[] = [];
  const reserve = (mark: number): number =>
    epoch.reserve(() => {
      made.push(mark);
      return { kind: 'x.event', attrs: { mark } };
    });
  expect([reserve(2), reserve(3), epoch.size, made]).toEqual([2, 3, 3, []]);
  expect(epoch.append({ kind: 'x.event', attrs: { mark: 4 } })).toBe(4);
  expect([reserve(5), made]).toEqual([5, [2, 3]]);
  epoch.heartbeat();
  expect([reserve(7), made]).toEqual([7, [2, 3, 5]]);
  epoch.settle();
  epoch.settle();
  expect(reserve(8)).toBe(8);
  epoch.close();
  epoch.release();
  const envelopes = envelopesOf(epoch.dir);
  expect(envelopes.map(({ seq, attrs }) => attrs?.['mark'] ?? seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(envelopes[5]?.attrs).toMatchObject({ size: 5 });
});

test('in whatever order, also where the spool is full: every number is one line, or in one gap', async () => {
  const steps = fc.array(fc.constantFrom('append', 'reserve', 'settle', 'heartbeat'), { maxLength: 60 });
  await fc.assert(
    fc.asyncProperty(steps, fc.integer({ min: 300, max: 9_000 }), async (order, bytes) => {
      const epoch = await openEpoch(freshState(), collector, { limits: { bytes, age: 1e9 } });
      const given: number[] = [];
      for (const step of order) {
        const draft = { kind: 'x.event', attrs: { mark: given.length } } as const;
        if (step === 'append') given.push(epoch.append(draft));
        else if (step === 'reserve') given.push(epoch.reserve(() => draft));
        else epoch[step]();
      }
      epoch.close();
      epoch.release();
      const envelopes = envelopesOf(epoch.dir);
      const spoken = new Set<number>();
      for (const { seq, kind, attrs } of envelopes) {
        const { first, last } = (kind === 'gap' ? attrs : { first: seq, last: seq }) as Record<
          string,
          number
        >;
        for (let number = first as number; number <= (last as number); number++) {
          expect(spoken.has(number)).toBe(false);
          spoken.add(number);
        }
        if (kind === 'gap') spoken.add(seq);
        if (kind === 'x.event') expect(given[attrs?.['mark'] as number]).toBe(seq);
      }
      expect(given.every((number) => spoken.has(number))).toBe(true);
      expect(spoken.size).toBe(epoch.size);
      expect(treeOfLines(readFileSync(join(epoch.dir, 'lines'))).stated()).toEqual(
        readEpochRecord(epoch.dir)?.closed,
      );
    }),
    { numRuns: 60 },
  );
});
