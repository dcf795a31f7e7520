import { describe, expect, test } from 'vitest';
import { compare, type Run } from '../src/index.js';

const T0 = Date.UTC(2026, 10, 30, 19, 3, 0);
const DAY = 86_400_000;
const run = (now: number): Run => ({
  now,
  since: now - 20_000,
  until: now + 1_000,
  made: () => false,
  temporary: ['/tmp'],
});
const RUNS = { recorded: run(T0), replays: [run(T0 + 3 * DAY), run(T0 + 3 * DAY + 2_000)] };
const outcome = (recorded: unknown, a: unknown, b: unknown = a): string =>
  compare(recorded, [a, b], RUNS).outcome;

describe('content that looks like a time is content', () => {
  test.each([
    ['due 2031-12-31', 'due 2026-01-01'],
    ['expires 2031-12-31T10:00:00Z', 'expires 2026-01-01T00:00:00Z'],
    ['born 3/4/1999', 'born 3/4/1989'],
    ['signed Thu Jan  1 12:00:00 2026', 'signed Thu Jan  1 12:00:00 2025'],
    ['released 4 Jul 2020', 'released 4 Jul 2019'],
    ['meeting at 09:37', 'meeting at 10:40'],
    ['ratio 3:55', 'ratio 9:10'],
    ['id 1764530000', 'id 1780000000'],
    ['timeout 30 minutes', 'timeout 3 hours'],
    ['wait 4000 s', 'wait 3600 s'],
    // True of the day it was recorded on, and not what the file says.
    ['due 2026-11-30', 'due 2026-01-01'],
  ])('%s, where it is %s', (recorded, replayed) => {
    expect(outcome(recorded, replayed)).toBe('different');
  });

  test('numbers of a document, too', () => {
    expect(outcome({ price: 1_764_530_000 }, { price: 1_780_000_000 })).toBe('different');
    expect(outcome({ timeoutMs: 5 }, { timeoutMs: 500_000 })).toBe('different');
    expect(outcome({ took: 5 }, { took: 7.5 })).toBe('volatile');
    expect(outcome({ now: T0 }, { now: T0 + 3 * DAY })).toBe('volatile');
    expect(outcome({ n: T0 * 1e6 }, { n: (T0 + 3 * DAY) * 1e6 })).toBe('volatile');
  });
});

describe('what a program may have read off its clock', () => {
  test.each([
    ['the clock', '2026-11-30T19:03:00.1Z', '2026-12-03T19:03:01Z'],
    ['without a zone', '2026-11-30 20:03:00', '2026-12-03 20:03:01'],
    ['in another zone', 'Tue Dec  1 04:03:00 2026 +0900', 'Fri Dec  4 04:03:00 2026 +0900'],
    ['in a zone by name', 'Mon Nov 30 14:03:00 EST 2026', 'Thu Dec  3 14:03:00 EST 2026'],
    ['of half a day', '11/30/2026, 7:03:00 PM', '12/3/2026, 7:03:01 PM'],
    ['a day', 'today is 2026-11-30', 'today is 2026-12-03'],
    ['a day by name', 'Mon, 30 Nov 2026 19:03:00 GMT', 'Thu, 03 Dec 2026 19:03:00 GMT'],
    ['as of a listing', 'Nov 30 19:03 a.txt', 'Dec 3 19:03 a.txt'],
    ['when a server began', 'up since 19:02:41', 'up since 19:02:43'],
    // The workspace of a replay was made for it; what stands in a file's inode can't be brought back.
    ['of a file that was there before', 'created 2024-02-01T00:00:00Z', 'created 2026-12-03T19:02:50Z'],
    ['when something will expire', 'valid until 2026-11-30T20:03:00Z', 'valid until 2026-12-03T20:03:01Z'],
    ['by the hour alone', 'valid until 20:03', 'valid until 20:03:'],
    ['the age of something', 'up 500 hours', 'up 572 hours'],
    ['a duration', 'in 1.02s', 'in 0.98s'],
  ])('%s', (_, recorded, replayed) => {
    expect(outcome(recorded, replayed.replace(/:$/, ''))).toMatch(/^(volatile|reproduced)$/);
  });
});

test('a document in a text hides nothing beside what is volatile in it', () => {
  const text = (at: number, rest: string): string => `{"now":${at},${rest}}`;
  const [then, again] = [T0, T0 + 3 * DAY];
  expect(outcome(text(then, '"a":1'), text(again, '"a":1'))).toBe('volatile');
  expect(outcome(text(then, '"a":"made up","a":"real"'), text(again, '"a":"real"'))).toBe('different');
  expect(outcome(text(then, '"n":9007199254740993'), text(again, '"n":9007199254740992'))).toBe('different');
});

test('nesting without end is compared all the same', () => {
  const deep = (core: string): string => `${'['.repeat(50_000)}${core}${']'.repeat(50_000)}`;
  expect(outcome(deep('1'), deep('1'))).toBe('reproduced');
  expect(outcome(deep('1'), deep('2'))).toBe('different');
  expect(outcome(JSON.parse(deep('1')), JSON.parse(deep('1')))).toBe('reproduced');
  expect(outcome([JSON.parse(deep('1'))], [JSON.parse(deep('2'))])).toBe('different');
});
