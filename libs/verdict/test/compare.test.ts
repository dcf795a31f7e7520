import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compare, type Run } from '../src/index.js';

const T0 = Date.UTC(2026, 0, 1, 12, 0, 0);
const run = (now: number, made: readonly string[] = []): Run => ({
  now,
  since: now - 60_000,
  made: (hash) => made.some((each) => each.startsWith(hash)),
  temporary: ['/tmp'],
});
const RUNS = { recorded: run(T0), replays: [run(T0 + 86_400_000), run(T0 + 86_403_000)] };

const outcome = (recorded: unknown, ...replayed: unknown[]): string =>
  compare(recorded, replayed.length === 1 ? [replayed[0], replayed[0]] : replayed, RUNS).outcome;
const classes = (recorded: unknown, a: unknown, b: unknown = a): string[] =>
  compare(recorded, [a, b], RUNS).volatile.map((each) => each.class);

describe('tokens that may differ', () => {
  test.each([
    ['time', 'at 2026-01-01T12:00:00.123Z', 'at 2026-01-02T12:00:03.9Z'],
    ['time', 'Thu Jan  1 12:00:00 2026 +0000', 'Fri Jan  2 12:00:00 2026 +0000'],
    ['time', 'Thu, 01 Jan 2026 12:00:00 GMT', 'Fri, 02 Jan 2026 12:00:00 GMT'],
    [
      'time',
      'Thu Jan 01 2026 12:00:00 GMT+0000 (Coordinated Universal Time)',
      'Fri Jan 02 2026 12:00:00 GMT+0000 (Coordinated Universal Time)',
    ],
    ['time', 'now=12:00:01', 'now=12:00:04'],
    ['time', '-rw-r--r-- 1 root root 5 Jan 1 12:00 a', '-rw-r--r-- 1 root root 5 Jan 2 12:00 a'],
    ['time', `epoch ${T0 / 1000}`, `epoch ${T0 / 1000 + 86_400}`],
    ['time', `epoch ${T0}`, `epoch ${T0 + 86_400_000}`],
    ['duration', '12 passed in 0.8s', '12 passed in 1.23s'],
    ['duration', 'took 3 ms', 'took 1.5 seconds'],
    ['duration', 'took 1 min 3 s', 'took 59 s'],
    ['duration', 'real\t0m1.203s', 'real\t0m0.950s'],
    ['duration', 'took 1.2s', 'took 950ms'],
    ['pid', 'started (pid 4711)', 'started (pid 12)'],
    ['inode', 'Inode: 3778913     Links: 1', 'Inode: 3852392     Links: 1'],
    ['port', 'listening on http://127.0.0.1:40123/', 'listening on http://127.0.0.1:41234/'],
  ])('%s: %s', (kind, recorded, replayed) => {
    expect(classes(recorded, replayed)).toEqual([kind]);
    expect(outcome(recorded, replayed)).toBe('volatile');
  });

  test('a commit is excused only where each run made its own', () => {
    const [a, b] = ['1f'.repeat(20), '2e'.repeat(20)] as [string, string];
    const runs = { recorded: run(T0, [a]), replays: [run(T0, [b]), run(T0, [b])] };
    const text = (hash: string): string => `[main ${hash.slice(0, 7)}] message`;
    expect(compare(text(a), [text(b), text(b)], runs).outcome).toBe('volatile');
    expect(compare(text('3d'.repeat(20)), [text(b), text(b)], runs).outcome).toBe('different');
  });

  test.each([
    ['uuid', (n: number) => `id 123e4567-e89b-12d3-a456-42661417400${n}`],
    ['temp-name', (n: number) => `wrote /tmp/tmpab1${n}cd34/out.txt`],
  ])('%s, where replays differ in it, too', (kind, text) => {
    expect(classes(text(1), text(2), text(3))).toEqual([kind]);
    expect(classes(text(1), text(1), text(3))).toEqual([kind]);
    expect(outcome(text(1), text(2), text(2))).toBe('different');
  });

  test('a number that is measured is not at fault for the half of it that two replays share', () => {
    expect(outcome('load 7.31', 'load 6.91', 'load 6.88')).toBe('unstable');
    expect(outcome('1,234,567 bytes free', '1,239,567 bytes free', '1,239,001 bytes free')).toBe('unstable');
    expect(outcome('at 5,2026-01-01T12:00:00Z', 'at 5,2026-01-02T12:00:03Z')).toBe('volatile');
  });

  test('a duration that replays measure anew is at fault for nothing, however long the recorded one is', () => {
    // As of processor time on many cores: longer than its run.
    expect(outcome('12 passed in 3600.5s', '12 passed in 0.81s', '12 passed in 0.82s')).toBe('unstable');
    expect(outcome({ duration_ms: 9e6 }, { duration_ms: 12 }, { duration_ms: 13 })).toBe('unstable');
    // Replays that read the same, to the last digit, have read it and not measured it.
    expect(outcome('kept for 3600s', 'kept for 30s', 'kept for 30s')).toBe('different');
    expect(outcome('12 passed in 3600.5s', '3 failed in 0.81s', '3 failed in 0.82s')).toBe('different');
    expect(outcome('12 passed in no time', '12 passed in 0.81s', '12 passed in 0.82s')).toBe('different');
  });

  test('by the name of a member, for numbers', () => {
    expect(outcome({ ino: 12, dev: 1 }, { ino: 13, dev: 2 })).toBe('volatile');
    expect(outcome({ pid: 12 }, { pid: 13 })).toBe('volatile');
    expect(outcome({ port: 40_000 }, { port: 40_001 })).toBe('volatile');
    expect(outcome({ duration_ms: 12 }, { duration_ms: 13.5 })).toBe('volatile');
    expect(outcome({ createdAt: T0 }, { createdAt: T0 + 86_400_000 })).toBe('volatile');
    expect(outcome({ count: 12 }, { count: 13 })).toBe('different');
    expect(outcome('{"pid":12,"count":1}', '{"pid":13,"count":1}')).toBe('volatile');
    expect(outcome('{"pid":12,"count":1}', '{"pid":13,"count":2}')).toBe('different');
  });

  test('padding is excused only in a line that a token of another length has shifted', () => {
    const line = (text: string): string => text.padStart(30, '=').padEnd(40, '=');
    expect(outcome(line(' 3 passed in 0.8s '), line(' 3 passed in 10.25s '))).toBe('volatile');
    expect(outcome('a ==== b', 'a ===== b')).toBe('different');
    expect(outcome(`==== 0.8s`, `===== 10.25s`)).toBe('different');
  });
});

describe('what is not excused', () => {
  test.each([
    ['12 passed in 0.8s', '3 failed in 1.23s'],
    ['12 passed in 0.8s', '11 passed in 0.9s'],
    ['id 123e4567-e89b-12d3-a456-426614174000 ok', 'id 00000000-e89b-12d3-a456-426614174000 failed'],
    ['the answer is 42', 'the answer is 43'],
    ['number 1234567', 'number 7654321'],
    ['id 1234567890123456', 'id 6543210987654321'],
    ['/tmp/a.txt', '/tmp/b.txt'],
    ['wrote /work/aaaaaaaa', 'wrote /work/bbbbbbbb'],
    ['port 80', 'port 443'],
    ['a\nb', 'a\nb\nc'],
    ['', 'x'],
  ])('%j against %j', (recorded, replayed) => {
    expect(outcome(recorded, replayed)).toBe('different');
  });

  test('one replay, or replays that disagree, prove nothing', () => {
    const one = { recorded: RUNS.recorded, replays: [run(T0)] };
    expect(compare('a', ['b'], one).outcome).toBe('unstable');
    expect(outcome('nonce 1', 'nonce 2', 'nonce 3')).toBe('unstable');
    expect(outcome('nonce 1', 'nonce 1', 'nonce 3')).toBe('unstable');
  });

  test('a place where the replays agree is a fault beside one where they do not', () => {
    expect(outcome('nonce 1: 12 passed', 'nonce 2: 3 passed', 'nonce 3: 3 passed')).toBe('different');
    expect(outcome({ nonce: 'a', n: 1 }, { nonce: 'b', n: 2 }, { nonce: 'c', n: 2 })).toBe('different');
  });

  test('another order is neither', () => {
    expect(outcome('a\nb\nc', 'c\na\nb')).toBe('reordered');
    expect(outcome(['a', 'b'], ['b', 'a'])).toBe('reordered');
    expect(outcome(['a', 'b'], ['b', 'b'])).toBe('different');
  });

  test('members may stand in another order, be missing or have another type', () => {
    expect(outcome({ a: 1, b: 2 }, { b: 2, a: 1 })).toBe('reproduced');
    expect(outcome({ a: 1 }, {})).toBe('different');
    expect(outcome({ a: 1 }, { a: '1' })).toBe('different');
    expect(outcome({ a: null }, {})).toBe('different');
    expect(compare({ 'a/b': 1 }, [{ 'a/b': 2 }, { 'a/b': 2 }], RUNS).different).toEqual([
      { path: '/a~1b', recorded: '1', replayed: '2' },
    ]);
  });
});

describe('properties', () => {
  const word = fc.constantFrom('alpha', 'beta', '12', '0.5', '-', ' ', '\n', '{', '=', 'é', '\u{1f600}');
  const text = fc.array(word, { maxLength: 30 }).map((words) => words.join(' '));
  const json = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      text,
      fc.integer(),
      fc.boolean(),
      fc.constant(null),
      tie('list'),
      tie('object'),
    ),
    list: fc.array(tie('value'), { maxLength: 4 }),
    object: fc.dictionary(fc.string({ maxLength: 4 }), tie('value'), { maxKeys: 4 }),
  })).value;

  test('a value is reproduced by itself', () => {
    fc.assert(
      fc.property(json, (value) => {
        expect(outcome(value, value)).toBe('reproduced');
      }),
      { numRuns: 300 },
    );
  });

  test('volatile tokens change nothing about what is beside them', () => {
    const volatile = fc.constantFrom(
      ['2026-01-01T12:00:00Z', '2026-01-02T12:00:05Z'],
      ['0.8s', '1.23s'],
      ['2026-01-01', '2026-01-02'],
    );
    fc.assert(
      fc.property(text, volatile, text, text, (before, [a = '', b = ''], after, other) => {
        const line = (token: string, rest: string): string => `${before} <${token}> ${rest}`;
        expect(outcome(line(a, after), line(b, after))).toBe('volatile');
        if (other !== after) {
          expect(['different', 'reordered']).toContain(outcome(line(a, after), line(b, other)));
        }
      }),
      { numRuns: 300 },
    );
  });

  test('a changed letter is never reproduced nor volatile', () => {
    fc.assert(
      fc.property(
        text.filter((each) => /[a-z]/.test(each)),
        (value) => {
          const changed = value.replace(/[a-z]/, (letter) => (letter === 'a' ? 'b' : 'a'));
          expect(outcome(value, changed)).toBe('different');
        },
      ),
      { numRuns: 300 },
    );
  });

  test('large texts are compared in time that grows with them', () => {
    const lines = (token: string): string =>
      Array.from({ length: 20_000 }, (_, i) => `line ${i} took ${token}`).join('\n');
    expect(outcome(lines('1ms'), lines('2ms'))).toBe('volatile');
  });
});
