import { deflateSync } from 'node:zlib';
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  type Annotations,
  compareDeltas,
  type Delta,
  judgeTurn,
  type PathChange,
  type Run,
  type TurnEvidence,
} from '../src/index.js';

const T0 = Date.UTC(2026, 0, 1, 12, 0, 0);
const run = (now: number, made: readonly string[] = []): Run => ({
  now,
  made: (hash) => made.some((each) => each.startsWith(hash)),
  temporary: ['/tmp'],
});
const RUNS = { recorded: run(T0), replays: [run(T0 + 86_400_000), run(T0 + 86_403_000)] };

const store = new Map<string, Buffer>();
const keep = (content: Buffer | string): string => {
  const bytes = Buffer.from(content);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  store.set(sha256, bytes);
  return sha256;
};
const contentOf = (sha256: string): Buffer | undefined => store.get(sha256);
const file = (content: Buffer | string): NonNullable<PathChange['after']> => ({
  type: 'file',
  mode: 0o644,
  content: keep(content),
});
const created = (path: string, content: Buffer | string = ''): PathChange => ({
  path,
  what: 'created',
  after: file(content),
});
const modified = (path: string, before: string, after: string): PathChange => ({
  path,
  what: 'modified',
  before: file(before),
  after: file(after),
});
const deleted = (path: string): PathChange => ({ path, what: 'deleted', before: file('gone') });

const evidence = (over: Partial<TurnEvidence> & { delta?: Delta; again?: Delta } = {}): TurnEvidence => ({
  runs: RUNS,
  recorded: { answer: 'ok', delta: over.delta ?? [] },
  replayed: [
    { answer: 'ok', delta: over.again ?? over.delta ?? [] },
    { answer: 'ok', delta: over.again ?? over.delta ?? [] },
  ],
  annotations: {},
  egress: { reached: [], denied: [], forbidden: () => true },
  doubts: [],
  contentOf,
  ...over,
});
const statuses = (over: Parameters<typeof evidence>[0]): string =>
  judgeTurn(evidence(over))
    .map(({ kind, status, cause }) => `${kind} ${cause ?? status}`)
    .join(', ');

describe('a turn', () => {
  test('that was reproduced', () => {
    expect(statuses({})).toBe('result PASS, effect PASS, contract NOT_COVERED, egress PASS');
  });

  test('with a fabricated answer of a tool that writes is a fault of the answer alone', () => {
    const delta = [created('a.txt', 'x')];
    const replayed = [0, 1].map(() => ({ answer: 'failed', delta }));
    expect(statuses({ delta, replayed })).toBe(
      'result RESULT_DIFFERS, effect PASS, contract NOT_COVERED, egress PASS',
    );
  });

  test('in another world proves nothing', () => {
    const replayed = [0, 1].map(() => ({ answer: 'failed', delta: [] }));
    expect(statuses({ replayed, doubts: ['SERVER_CHANGED'] })).toContain('result SERVER_CHANGED');
    expect(statuses({ doubts: ['SERVER_CHANGED'] })).toContain('result PASS');
  });

  test('whose change nobody saw', () => {
    expect(statuses({ recorded: { answer: 'ok' } })).toContain('effect POST_STATE_MISSING');
  });
});

describe('a contract', () => {
  const contract = (annotations: Annotations, delta: Delta): string =>
    statuses({ annotations, delta }).replace(/.*contract (\w+).*/, '$1');

  test.each([
    [{ readOnlyHint: true }, [], 'PASS'],
    [{ readOnlyHint: true }, [created('a')], 'WROTE_THOUGH_READ_ONLY'],
    [{ readOnlyHint: true }, [deleted('a')], 'WROTE_THOUGH_READ_ONLY'],
    [{ readOnlyHint: true }, [created('src/__pycache__/a.pyc')], 'CACHE_WRITTEN'],
    [{ readOnlyHint: true }, [created('src/__pycache__/a.pyc'), created('b')], 'WROTE_THOUGH_READ_ONLY'],
    [{ destructiveHint: false }, [created('a')], 'PASS'],
    [{ destructiveHint: false }, [modified('a', 'one', 'one two')], 'PASS'],
    [{ destructiveHint: false }, [modified('a', '{"a":["x"]}', '{"a":["x","y"],"b":1}')], 'PASS'],
    [
      { destructiveHint: false },
      [modified('a', '{"a":["x"]}', '{"a":["y"],"b":1}')],
      'DESTROYED_THOUGH_ADDITIVE',
    ],
    [{ destructiveHint: false }, [modified('a', 'one\0', 'two\0')], 'CONTENT_UNREADABLE'],
    [{ destructiveHint: false }, [modified('a', 'one', 'two')], 'DESTROYED_THOUGH_ADDITIVE'],
    [{ destructiveHint: false }, [deleted('a')], 'DESTROYED_THOUGH_ADDITIVE'],
    [{ destructiveHint: true }, [deleted('a')], 'NOT_COVERED'],
    [{}, [deleted('a')], 'NOT_COVERED'],
  ] as [Annotations, Delta, string][])('%j and %j', (annotations, delta, expected) => {
    expect(contract(annotations, delta)).toBe(expected);
  });

  test('is held against what was executed: somebody else wrote while a reader ran', () => {
    expect(statuses({ annotations: { readOnlyHint: true }, delta: [created('a')], again: [] })).toBe(
      'result PASS, effect EFFECT_DIFFERS, contract PASS, egress PASS',
    );
  });

  test('is undecided where the content is not at hand', () => {
    const change: PathChange = {
      ...modified('a', 'x', 'y'),
      before: { type: 'file', mode: 0o644, content: 'ff' },
    };
    expect(contract({ destructiveHint: false }, [change])).toBe('CONTENT_UNREADABLE');
  });
});

describe('egress', () => {
  const egress = (over: Partial<TurnEvidence['egress']>): string | undefined =>
    statuses({ egress: { denied: [], forbidden: (each) => each === 'bad:1', ...over } }).split('egress ')[1];

  test('nobody watched, nothing, allowed, refused, forbidden', () => {
    expect(egress({})).toBe('NOT_COVERED');
    expect(egress({ reached: [] })).toBe('PASS');
    expect(egress({ reached: ['good:1'] })).toBe('PASS');
    expect(egress({ reached: [], denied: ['bad:1'] })).toBe('DENIED_EGRESS');
    expect(egress({ reached: ['bad:1'], denied: ['x'] })).toBe('FORBIDDEN_EGRESS');
  });
});

describe('deltas', () => {
  const outcome = (recorded: Delta, replayed: Delta, runs = RUNS): string =>
    compareDeltas(recorded, [replayed, replayed], runs, contentOf).outcome;

  test('by path, kind, mode, target and content', () => {
    const change = created('a', 'x');
    expect(outcome([change], [change])).toBe('reproduced');
    expect(outcome([change], [])).toBe('different');
    expect(outcome([], [change])).toBe('different');
    expect(outcome([change], [created('b', 'x')])).toBe('different');
    expect(outcome([change], [created('a', 'y')])).toBe('different');
    expect(outcome([change], [{ ...change, after: { ...file('x'), mode: 0o755 } }])).toBe('different');
    expect(outcome([change], [deleted('a')])).toBe('different');
  });

  test('text may differ in volatile tokens, a cache in anything', () => {
    expect(outcome([created('log', 'done in 3ms\n')], [created('log', 'done in 14ms\n')])).toBe('volatile');
    expect(outcome([created('log', '3 done in 3ms\n')], [created('log', '4 done in 14ms\n')])).toBe(
      'different',
    );
    expect(outcome([created('.pytest_cache/v/x', 'a')], [created('.pytest_cache/v/x', 'b')])).toBe(
      'volatile',
    );
    expect(outcome([created('a/__pycache__/m.pyc', 'a')], [])).toBe('volatile');
  });

  test('bytes that are no text differ as they do', () => {
    const bytes = (last: number): Buffer => Buffer.from([0xff, 0xfe, 0, last]);
    expect(outcome([created('b', bytes(1))], [created('b', bytes(1))])).toBe('reproduced');
    expect(outcome([created('b', bytes(1))], [created('b', bytes(2))])).toBe('different');
  });

  test('a random name pairs with one of its shape, where replays differ in it, too', () => {
    const delta = (name: string, content = 'x'): Delta => [created(`out/${name}.txt`, content)];
    const among = (a: Delta, b: Delta): string =>
      compareDeltas(delta('tmpab12cd34'), [a, b], RUNS, contentOf).outcome;
    expect(among(delta('tmpzz99yy88'), delta('tmpkk55ll44'))).toBe('volatile');
    expect(among(delta('tmpzz99yy88', 'y'), delta('tmpkk55ll44', 'y'))).toBe('different');
    expect(among(delta('tmpzz99yy88'), delta('tmpzz99yy88'))).toBe('different');
    expect(outcome(delta('report'), delta('result'))).toBe('different');
  });

  test('a commit made at another time: object, reference, log and index', () => {
    const tree = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';
    const commit = (time: number): Buffer =>
      Buffer.from(
        `commit 150\0tree ${tree}\nauthor A <a@b> ${time} +0000\ncommitter A <a@b> ${time} +0000\n\nmessage\n`,
      );
    const hash = (object: Buffer): string => createHash('sha1').update(object).digest('hex');
    const index = (mtime: number, object: string): Buffer => {
      const entry = Buffer.alloc(72);
      entry.writeUInt32BE(mtime, 8);
      entry.writeUInt32BE(0o100644, 24);
      entry.write(object, 40, 'hex');
      entry.writeUInt16BE(5, 60);
      entry.write('a.txt', 62);
      const header = Buffer.from('DIRC\0\0\0\x02\0\0\0\x01', 'latin1');
      return Buffer.concat([header, entry, createHash('sha1').update(entry).digest()]);
    };
    const delta = (time: number, message = commit(time)): Delta => {
      const id = hash(message);
      return [
        { path: `.git/objects/${id.slice(0, 2)}`, what: 'created', after: { type: 'dir', mode: 0o755 } },
        created(`.git/objects/${id.slice(0, 2)}/${id.slice(2)}`, deflateSync(message)),
        modified('.git/refs/heads/main', `${tree}\n`, `${id}\n`),
        modified('.git/logs/HEAD', '', `${tree} ${id} A <a@b> ${time} +0000\tcommit: message\n`),
        { path: '.git/index', what: 'modified', after: file(index(time, tree)) },
      ];
    };
    const [then, later] = [T0 / 1000, T0 / 1000 + 86_400];
    const runs = {
      recorded: run(T0, [hash(commit(then))]),
      replays: [0, 1].map(() => run(T0 + 86_400_000, [hash(commit(later))])),
    };
    expect(outcome(delta(then), delta(later), runs)).toBe('volatile');
    // Whether the folder of an object was there before is chance.
    expect(outcome(delta(then), delta(later).slice(1), runs)).toBe('volatile');
    const other = Buffer.from(commit(later).toString('latin1').replace('message', 'another'), 'latin1');
    expect(outcome(delta(then), delta(later, other), runs)).toBe('different');
  });
});

describe('an answer that claims a file', () => {
  const claims = (text: string, over: object = {}): string =>
    statuses({
      recorded: { answer: { result: { content: [{ type: 'text', text }], ...over } }, delta: [] },
      replayed: [0, 1].map(() => ({
        answer: { result: { content: [{ type: 'text', text }], ...over } },
        delta: [],
      })),
      exists: (path) => (path.startsWith('/w/') ? path === '/w/there' : undefined),
    }).replace(/.*effect (\w+).*/, '$1');

  test.each([
    'Successfully wrote to /w/gone',
    'Successfully created directory /w/gone',
    'Successfully moved /w/there to /w/gone',
    'File "/w/gone" has been written.',
    'wrote 12 bytes to /w/gone',
    'done\nSuccessfully wrote to /w/gone',
  ])('that is not there: %j', (text) => expect(claims(text)).toBe('CLAIMED_PATH_ABSENT'));

  test.each([
    'Successfully wrote to /w/there',
    'Successfully wrote to /elsewhere/gone',
    'I would have written to /w/gone',
    'it says: Successfully wrote to /w/gone today',
    'wrote 12 bytes',
  ])('that is there, or no claim: %j', (text) => expect(claims(text)).toBe('PASS'));

  test('but not one that says it failed', () => {
    expect(claims('Successfully wrote to /w/gone', { isError: true })).toBe('PASS');
  });
});
