import { createHash } from 'node:crypto';
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Capturer, Store } from '@belay/snapshot';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Contents, RecordedStates, Workspace } from '../src/index.js';

let folder: string;
let root: string;
let store: Store;
let capturer: Capturer;
let contents: Contents;
let workspace: Workspace;

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
/** Digest of the workspace as it is now. */
const state = (): string => {
  const captured = capturer.capture();
  if (captured.kind !== 'state') throw new Error(captured.cause);
  return captured.digest;
};

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'belay-replay-'));
  root = join(folder, 'w');
  mkdirSync(join(root, 'src'), { recursive: true });
  writeFileSync(join(root, 'src', 'a.txt'), 'one\n');
  writeFileSync(join(root, 'b.txt'), 'two\n');
  store = Store.open(join(folder, 'store'));
  capturer = Capturer.open({ store, roots: [root], ignore: [] });
  contents = new Contents(store);
  workspace = new Workspace(store, join(folder, 'scratch'), contents, () => []);
});

afterEach(() => {
  workspace.close();
  capturer.close();
  store.close();
  rmSync(folder, { recursive: true });
});

test('what the record says happened between two of its states', () => {
  const before = state();
  appendFileSync(join(root, 'src', 'a.txt'), 'more\n');
  rmSync(join(root, 'b.txt'));
  mkdirSync(join(root, 'empty'));
  symlinkSync('src/a.txt', join(root, 'link'));
  const after = state();
  const recorded = new RecordedStates(store);
  expect(recorded.between(before, after)).toEqual([
    {
      path: 'b.txt',
      what: 'deleted',
      before: { type: 'file', mode: 0o644, content: sha256('two\n'), size: 4 },
    },
    { path: 'empty', what: 'created', after: { type: 'dir', mode: 0o755 } },
    { path: 'link', what: 'created', after: { type: 'link', mode: 0o777, target: 'src/a.txt' } },
    {
      path: 'src/a.txt',
      what: 'modified',
      before: { type: 'file', mode: 0o644, content: sha256('one\n'), size: 4 },
      after: { type: 'file', mode: 0o644, content: sha256('one\nmore\n'), size: 9 },
    },
  ]);
  expect(recorded.between(before, before)).toEqual([]);
  // Against the direction of the record, and over more than one step.
  expect(recorded.between(after, before).map(({ path, what }) => `${what} ${path}`)).toEqual([
    'created b.txt',
    'deleted empty',
    'deleted link',
    'modified src/a.txt',
  ]);
});

test('a time alone is no effect', () => {
  const before = state();
  utimesSync(join(root, 'b.txt'), 1, 1);
  const touched = state();
  expect(touched).not.toBe(before);
  expect(new RecordedStates(store).between(before, touched)).toEqual([]);
  chmodSync(join(root, 'b.txt'), 0o600);
  expect(new RecordedStates(store).between(before, state())).toMatchObject([
    { path: 'b.txt', what: 'metadata', after: { mode: 0o600 } },
  ]);
});

test('the scratch follows the record, and says what was done to it', async () => {
  const first = state();
  writeFileSync(join(root, 'c.txt'), 'three\n');
  const second = state();
  await workspace.open(first);
  const at = workspace.roots[0]?.at.toString() ?? '';
  expect(workspace.roots[0]?.from.toString()).toBe(root);
  expect(await workspace.enter(first)).toBe('as-left');

  writeFileSync(join(at, 'c.txt'), 'three\n');
  writeFileSync(join(at, 'made.txt'), 'not in the record\n');
  expect((await workspace.delta()).map(({ path, what }) => `${what} ${path}`)).toEqual([
    'created c.txt',
    'created made.txt',
  ]);
  expect(contents.get(sha256('not in the record\n'))?.toString()).toBe('not in the record\n');

  expect(await workspace.enter(second)).toBe('changed');
  expect(existsSync(join(at, 'made.txt'))).toBe(false);
  expect(readFileSync(join(at, 'c.txt'), 'utf8')).toBe('three\n');
  expect(await workspace.delta()).toEqual([]);
});

test('a scratch that is right but for times is left alone', async () => {
  const first = state();
  writeFileSync(join(root, 'c.txt'), 'three\n');
  const second = state();
  await workspace.open(first);
  const at = workspace.roots[0]?.at.toString() ?? '';
  await workspace.enter(first);
  writeFileSync(join(at, 'c.txt'), 'three\n');
  const { ino, mtimeMs } = statSync(join(at, 'c.txt'));
  await workspace.delta();
  expect(await workspace.enter(second)).toBe('as-left');
  expect(statSync(join(at, 'c.txt'))).toMatchObject({ ino, mtimeMs });
});

test('a state that is not on this machine is not there', () => {
  expect(new RecordedStates(store).has(`sha256:${'0'.repeat(64)}`)).toBe(false);
  expect(contents.get('0'.repeat(64))).toBeUndefined();
});

test('a renamed file is one that went and one that came', () => {
  const before = state();
  renameSync(join(root, 'b.txt'), join(root, 'z.txt'));
  expect(
    new RecordedStates(store).between(before, state()).map(({ path, what }) => `${what} ${path}`),
  ).toEqual(['deleted b.txt', 'created z.txt']);
});
