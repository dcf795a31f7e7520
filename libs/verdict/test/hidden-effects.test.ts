import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { compareDeltas, isCache, judgeTurn, type PathChange, type Run } from '../src/index.js';

const run = (now: number): Run => ({ now, made: () => false, temporary: ['/tmp'] });
const RUNS = { recorded: run(0), replays: [run(10_000), run(12_000)] };
const store = new Map<string, Buffer>();
const file = (content: Buffer): NonNullable<PathChange['after']> => {
  const sha256 = createHash('sha256').update(content).digest('hex');
  store.set(sha256, content);
  return { type: 'file', mode: 0o644, content: sha256 };
};
const created = (path: string, content = 'x'): PathChange => ({
  path,
  what: 'created',
  after: file(Buffer.from(content)),
});
const outcome = (recorded: readonly PathChange[], replayed: readonly PathChange[]): string =>
  compareDeltas(recorded, [replayed, replayed], RUNS, (sha256) => store.get(sha256)).outcome;

test('a cache of Python has what Python compiled, and nothing else', () => {
  expect(isCache('a/__pycache__/m.cpython-312.pyc')).toBe(true);
  expect(isCache('a/__pycache__/m.cpython-312.pyc.140213')).toBe(true);
  expect(isCache('a/__pycache__')).toBe(true);
  expect(isCache('a/__pycache__/m.py')).toBe(false);
  expect(isCache('a/m.pyc')).toBe(false);
  expect(outcome([created('a/__pycache__/m.py', 'one')], [created('a/__pycache__/m.py', 'two')])).toBe(
    'different',
  );
});

test('a file in the place of a folder of objects of git is seen', () => {
  expect(outcome([created('.git/objects/ab')], [])).toBe('different');
  const folder: PathChange = {
    path: '.git/objects/ab',
    what: 'created',
    after: { type: 'dir', mode: 0o755 },
  };
  expect(outcome([folder], [])).toBe('reproduced');
});

/** An index of git with one entry. */
function index(seconds: number, flags: number): Buffer {
  const entry = Buffer.alloc(72);
  entry.writeUInt32BE(seconds, 0);
  entry.writeUInt32BE(0o100644, 24);
  entry.writeUInt16BE(flags | 4, 60);
  entry.write('a.py', 62, 'latin1');
  const head = Buffer.from('DIRC\0\0\0\x02\0\0\0\x01', 'latin1');
  return Buffer.concat([head, entry, Buffer.alloc(20)]);
}

test('to look at an index is no change; to tell git to look away is one', () => {
  const contract = (after: Buffer): string | undefined => {
    const change: PathChange = {
      path: '.git/index',
      what: 'modified',
      before: file(index(1, 0)),
      after: file(after),
    };
    const seen = { answer: 'ok', delta: [change] };
    return judgeTurn({
      runs: RUNS,
      recorded: seen,
      replayed: [seen, seen],
      annotations: { readOnlyHint: true },
      egress: { denied: [], forbidden: () => false },
      doubts: [],
      contentOf: (sha256) => store.get(sha256),
    }).find(({ kind }) => kind === 'contract')?.status;
  };
  expect(contract(index(2, 0))).toBe('PASS');
  expect(contract(index(2, 0x8000))).toBe('FAIL');
});

test('what was made by chance is not known of one replay', () => {
  const judged = (recorded: string, replayed: string): string | undefined =>
    judgeTurn({
      runs: { recorded: run(0), replays: [run(10_000)] },
      recorded: { answer: recorded, delta: [] },
      replayed: [{ answer: replayed, delta: [] }],
      annotations: {},
      egress: { denied: [], forbidden: () => false },
      doubts: [],
      contentOf: () => undefined,
    })[0]?.cause;
  const uuid = (n: number): string => `id 123e4567-e89b-12d3-a456-42661417400${n}`;
  expect(judged(uuid(1), uuid(2))).toBe('ONE_REPLAY');
  expect(judged('alpha', 'omega')).toBe('ONE_REPLAY');
  expect(judged('alpha', 'alpha')).toBeUndefined();
});
