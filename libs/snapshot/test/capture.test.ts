import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Capturer, type Captured, type CaptureOptions, gitCommonDirectory } from '../src/capture.js';
import { Store } from '../src/store.js';
import { CaptureThread } from '../src/thread.js';
import { oracle } from './oracle.js';
import { isRoot } from './trees.js';
import { Holder } from './workload.js';

let base: string;
let root: string;
let dir: string;
const open: Capturer[] = [];
beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'belay-capture-')));
  root = join(base, 'w');
  dir = join(base, 's');
  mkdirSync(root);
});
afterEach(() => {
  for (const capturer of open.splice(0)) capturer.close();
  rmSync(base, { recursive: true, force: true });
});

function capturing(options: Partial<CaptureOptions> = {}): Capturer {
  const capturer = Capturer.open({ store: Store.open(dir), roots: [root], ...options });
  open.push(capturer);
  return capturer;
}

const at = (...path: string[]): string => join(root, ...path);

function expectTrue(captured: Captured, roots = [root]): void {
  expect(captured).toMatchObject({ kind: 'state', ...oracle(roots) });
}

describe('what is told by nobody, or looks as it did', () => {
  let server: Holder;
  let stranger: Holder;
  beforeAll(() => {
    server = new Holder();
    stranger = new Holder();
  });
  afterAll(async () => {
    await server.end();
    await stranger.end();
  });
  const watching = (): Capturer => capturing({ processes: () => [server.process.pid as number] });

  it.each(['inside', 'outside'])(
    'an event of the name %s forces a look into a file that looks the same',
    async (by) => {
      writeFileSync(at('f'), 'x'.repeat(5000));
      linkSync(at('f'), join(base, 'outside'));
      const capturer = watching();
      // A process that is none of the server's: of its mappings nothing is known.
      await stranger.do('map', {
        key: 'm',
        file: by === 'inside' ? at('f') : join(base, 'outside'),
        keep: false,
      });
      await stranger.do('write', { key: 'm', text: 'first' });
      expectTrue(capturer.capture());
      await stranger.do('write', { key: 'm', text: 'SECOND' });
      const before = lstatSync(at('f'), { bigint: true });
      // The last that held the file lets it go, and that is told.
      await stranger.do('unmap', { key: 'm' });
      expect(lstatSync(at('f'), { bigint: true })).toMatchObject({
        mtimeNs: before.mtimeNs,
        ctimeNs: before.ctimeNs,
      });
      expectTrue(capturer.capture());
    },
  );

  it('a write through a mapping of the server, each time', async () => {
    writeFileSync(at('f'), 'x'.repeat(5000));
    const capturer = watching();
    expectTrue(capturer.capture());
    await server.do('map', { key: 'm', file: at('f'), keep: false });
    for (let n = 0; n < 5; n++) {
      await server.do('write', { key: 'm', text: `write ${n}` });
      expectTrue(capturer.capture());
    }
    await server.do('unmap', { key: 'm' });
    expectTrue(capturer.capture());
  });

  it('a last write before a file is unmapped and stays open', async () => {
    writeFileSync(at('f'), 'x'.repeat(5000));
    const capturer = watching();
    await server.do('map', { key: 'm', file: at('f'), keep: true });
    await server.do('write', { key: 'm', text: 'one' });
    expectTrue(capturer.capture());
    await server.do('write', { key: 'm', text: 'TWO' });
    await server.do('unmap', { key: 'm' });
    expectTrue(capturer.capture());
    await server.do('close', { key: 'm' });
    expectTrue(capturer.capture());
  });

  it('a file mapped, written and unmapped between two captures while it stays open', async () => {
    writeFileSync(at('f'), 'x'.repeat(5000));
    const capturer = watching();
    expectTrue(capturer.capture());
    await server.do('map', { key: 'm', file: at('f'), keep: true });
    await server.do('write', { key: 'm', text: 'in between' });
    await server.do('unmap', { key: 'm' });
    expectTrue(capturer.capture());
    await server.do('close', { key: 'm' });
  });

  it('a server that opened a file before, by a name that is gone', async () => {
    writeFileSync(at('a'), 'before');
    await server.do('open', { key: 'k', file: at('a') });
    linkSync(at('a'), at('b'));
    unlinkSync(at('a'));
    const capturer = watching();
    expectTrue(capturer.capture());
    await server.do('pwrite', { key: 'k', text: 'AFTER!' });
    await server.do('close', { key: 'k' });
    expectTrue(capturer.capture());
  });

  it('a process of the server that is gone is no obstacle, nor one that begins', async () => {
    writeFileSync(at('f'), 'x');
    const gone = new Holder();
    const { pid } = gone.process;
    await gone.end();
    const capturer = capturing({ processes: () => [pid as number, server.process.pid as number] });
    expectTrue(capturer.capture());
  });
});

it('a directory that is made again, whatever number it gets', () => {
  const capturer = capturing();
  mkdirSync(at('d'));
  expectTrue(capturer.capture());
  for (let n = 0; n < 20; n++) {
    rmSync(at('d'), { recursive: true });
    mkdirSync(at('d'));
    writeFileSync(at('d', `f${n}`), 'x');
    expectTrue(capturer.capture());
    writeFileSync(at('d', `f${n}`), 'y');
    expectTrue(capturer.capture());
  }
});

it('a name outside is a gap of the state, and what is written by it is seen', () => {
  writeFileSync(at('f'), 'inside');
  const capturer = capturing();
  const without = capturer.capture();
  linkSync(at('f'), join(base, 'outside'));
  const gap = capturer.capture();
  expectTrue(gap);
  expect(gap).not.toMatchObject({ digest: (without as { digest: string }).digest });
  writeFileSync(join(base, 'outside'), 'written outside');
  expectTrue(capturer.capture());
  unlinkSync(join(base, 'outside'));
  expectTrue(capturer.capture());
});

it('counts what changed, by what it was', () => {
  for (const name of ['a', 'b', 'c']) writeFileSync(at(name), name);
  symlinkSync('a', at('l'));
  const capturer = capturing();
  expect(capturer.capture()).toMatchObject({ changed: { created: 5 }, entries: 5, rehashed: 3 });
  expect(capturer.capture()).toMatchObject({
    changed: { created: 0, modified: 0, deleted: 0, metadata: 0 },
    rehashed: 0,
  });
  writeFileSync(at('a'), 'other');
  chmodSync(at('b'), 0o600);
  unlinkSync(at('c'));
  unlinkSync(at('l'));
  symlinkSync('b', at('l'));
  mkdirSync(at('d'));
  // The root's own time is the other piece of metadata.
  expect(capturer.capture()).toMatchObject({
    changed: { created: 1, modified: 2, deleted: 1, metadata: 2 },
  });
});

it('a state that was there before is the same state', () => {
  writeFileSync(at('a'), 'one');
  utimesSync(at('a'), 1, 1);
  const capturer = capturing();
  const first = capturer.capture();
  writeFileSync(at('a'), 'two');
  const second = capturer.capture();
  writeFileSync(at('a'), 'one');
  utimesSync(at('a'), 1, 1);
  const third = capturer.capture();
  expect([second, third]).not.toContainEqual(expect.objectContaining({ kind: 'unrestorable' }));
  expect(third).toMatchObject({ digest: (first as { digest: string }).digest });
  writeFileSync(at('a'), 'three');
  expectTrue(capturer.capture());
});

describe('what is ignored', () => {
  it('by name and by path is not looked at and not kept', () => {
    mkdirSync(at('node_modules', 'x'), { recursive: true });
    mkdirSync(at('deep', 'evidence'), { recursive: true });
    writeFileSync(at('deep', 'a.log'), 'x');
    writeFileSync(at('deep', 'kept'), 'x');
    const ignore = ['node_modules', '*.log', at('deep', 'evidence')];
    const capturer = capturing({ ignore });
    execFileSync('mkfifo', [at('node_modules', 'fifo')]);
    const captured = capturer.capture();
    expect(captured).toMatchObject({ kind: 'state', entries: 3 });
    writeFileSync(at('deep', 'evidence', 'secret'), 'x');
    writeFileSync(at('deep', 'b.log'), 'x');
    rmSync(at('deep', 'b.log'));
    expect(capturer.capture()).toMatchObject({
      changed: { created: 0, modified: 0, deleted: 0 },
      entries: 3,
    });
    const store = Store.open(dir);
    const { state } = store.manifest((captured as { digest: string }).digest);
    expect(state.ignored).toEqual([...ignore].sort());
    store.close();
  });

  it('the store itself, where it lies in a root', () => {
    const capturer = capturing({ store: Store.open(at('.belay')) });
    const first = capturer.capture();
    expect(first).toMatchObject({ kind: 'state', entries: 1 });
    writeFileSync(at('a'), 'x');
    expect(capturer.capture()).toMatchObject({ kind: 'state', entries: 2 });
  });

  it('a rule that means nothing is refused', () => {
    expect(() => capturing({ ignore: ['a/b'] })).toThrow(expect.objectContaining({ code: 'arguments' }));
  });
});

describe('limits end in a name, not in a stall', () => {
  it('entries, for good', () => {
    for (let n = 0; n < 50; n++) writeFileSync(at(`f${n}`), '');
    const capturer = capturing({ limits: { entries: 20 } });
    expect(capturer.capture()).toMatchObject({ kind: 'unrestorable', cause: 'entries-limit' });
    expect(capturer.capture()).toMatchObject({ kind: 'unrestorable', cause: 'entries-limit' });
  });

  it('bytes and a file’s size, while they are above it', () => {
    writeFileSync(at('a'), 'x'.repeat(1000));
    writeFileSync(at('b'), 'x'.repeat(1000));
    const bytes = capturing({ limits: { bytes: 1500 } });
    expect(bytes.capture()).toMatchObject({ kind: 'unrestorable', cause: 'bytes-limit' });
    unlinkSync(at('b'));
    expectTrue(bytes.capture());
    const one = capturing({ store: Store.open(join(base, 's2')), limits: { fileBytes: 500 } });
    expect(one.capture()).toMatchObject({ kind: 'unrestorable', cause: 'file-limit', path: at('a') });
    writeFileSync(at('a'), 'small');
    expectTrue(one.capture());
  });

  it('time; what is left to be looked at is, the next time', () => {
    for (let n = 0; n < 300; n++) writeFileSync(at(`f${n}`), `${n}`);
    const limits = { firstMs: 1, captureMs: 1 };
    const capturer = capturing({ limits });
    let captured = capturer.capture();
    expect(captured).toMatchObject({ kind: 'unrestorable', cause: 'time-limit' });
    for (let n = 0; n < 1000 && captured.kind === 'unrestorable'; n++) captured = capturer.capture();
    expectTrue(captured);
  });
});

describe('roots', () => {
  it('one in another, none, and the whole file system are refused', () => {
    mkdirSync(at('in'));
    for (const roots of [[root, at('in')], [root, root], [], ['/']])
      expect(() => capturing({ roots })).toThrow(expect.objectContaining({ code: 'arguments' }));
    expect(() => capturing({ roots: [at('missing')] })).toThrow(expect.objectContaining({ code: 'ENOENT' }));
  });

  it('that is gone, another directory, or moved and brought back', () => {
    writeFileSync(at('a'), 'x');
    const capturer = capturing();
    expectTrue(capturer.capture());
    renameSync(root, join(base, 'away'));
    expect(capturer.capture()).toMatchObject({ kind: 'unrestorable', cause: 'root-gone' });
    writeFileSync(join(base, 'away', 'a'), 'changed');
    renameSync(join(base, 'away'), root);
    expectTrue(capturer.capture());
    renameSync(root, join(base, 'old'));
    mkdirSync(root);
    writeFileSync(at('b'), 'x');
    expectTrue(capturer.capture());
    writeFileSync(at('b'), 'y');
    expectTrue(capturer.capture());
  });

  it('several are one state', () => {
    const other = join(base, 'v');
    mkdirSync(other);
    writeFileSync(at('a'), 'x');
    const capturer = capturing({ roots: [root, other] });
    expectTrue(capturer.capture(), [other, root]);
    writeFileSync(join(other, 'b'), 'x');
    expectTrue(capturer.capture(), [other, root]);
  });

  it('a linked worktree says where its repository is, and that it is missing', () => {
    const git = (...args: string[]): void =>
      void execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], { cwd: root });
    git('init', '-q');
    writeFileSync(at('a'), 'x');
    git('add', 'a');
    git('commit', '-qm', 'a');
    const tree = join(base, 'tree');
    git('worktree', 'add', '-q', tree);
    expect(gitCommonDirectory(root)).toBeUndefined();
    expect(gitCommonDirectory(tree)).toBe(at('.git'));
    const gaps = (roots: string[], store: string): readonly string[] => {
      const capturer = capturing({ roots, store: Store.open(store) });
      const captured = capturer.capture();
      const reader = Store.open(store);
      const found = reader.manifest((captured as { digest: string }).digest).state.gaps;
      reader.close();
      return found;
    };
    expect(gaps([tree], join(base, 's1'))).toContain('git-common-dir');
    expect(gaps([tree, at('.git')], join(base, 's2'))).not.toContain('git-common-dir');
  });
});

// Root may read everything.
if (!isRoot) {
  it('what may not be read is named, and read when it may', () => {
    writeFileSync(at('a'), 'x');
    mkdirSync(at('d'));
    writeFileSync(at('d', 'b'), 'x');
    const capturer = capturing();
    expectTrue(capturer.capture());
    writeFileSync(at('a'), 'other');
    chmodSync(at('a'), 0);
    expect(capturer.capture()).toMatchObject({ kind: 'unrestorable', cause: 'unreadable', path: at('a') });
    chmodSync(at('a'), 0o600);
    expectTrue(capturer.capture());
    chmodSync(at('d'), 0);
    const next = capturing({ store: Store.open(join(base, 's2')) });
    expect(next.capture()).toMatchObject({ kind: 'unrestorable', cause: 'unreadable', path: at('d') });
    chmodSync(at('d'), 0o755);
    expectTrue(next.capture());
    expectTrue(capturer.capture());
  });
}

describe('the next session', () => {
  it('reads only what looks different', () => {
    for (let n = 0; n < 100; n++) {
      mkdirSync(at(`d${n % 10}`), { recursive: true });
      writeFileSync(at(`d${n % 10}`, `f${n}`), `${n}`);
    }
    // What changed a moment ago is read in any case.
    const later = Date.now() + 10_000;
    const first = capturing({ now: () => later });
    const before = first.capture();
    first.close();
    open.pop();
    const second = capturing({ now: () => later });
    expect(second.capture()).toMatchObject({
      digest: (before as { digest: string }).digest,
      rehashed: 0,
      changed: { created: 0, modified: 0, deleted: 0, metadata: 0 },
    });
    second.close();
    open.pop();
    writeFileSync(at('d3', 'f3'), 'X');
    renameSync(at('d4'), at('moved'));
    rmSync(at('d5'), { recursive: true });
    writeFileSync(at('d6', 'new'), 'X');
    const third = capturing();
    const captured = third.capture();
    expectTrue(captured);
    expect(captured).toMatchObject({ rehashed: 2 });
    writeFileSync(at('moved', 'f4'), 'X');
    expectTrue(third.capture());
  });

  it('does without an index that is damaged, or of a store that lost the content', () => {
    writeFileSync(at('a'), 'x');
    capturing().capture();
    open.pop()?.close();
    const [index] = readdirSync(dir).filter((name) => name.endsWith('.index')) as [string];
    const fd = openSync(join(dir, index), 'r+');
    writeSync(fd, 'damage', 60);
    closeSync(fd);
    expectTrue(capturing().capture());
    open.pop()?.close();
    for (const name of readdirSync(dir)) if (/journal|pack/.test(name)) unlinkSync(join(dir, name));
    expectTrue(capturing().capture());
    open.pop()?.close();
    const store = Store.open(dir);
    for (const { digest } of store.states()) store.check(digest);
    expect(store.states()).toHaveLength(1);
    store.close();
  });
});

it('a thread of its own does the same', async () => {
  writeFileSync(at('a'), 'x');
  const thread = await CaptureThread.open({ store: dir, roots: [root] });
  expectTrue(await thread.capture());
  writeFileSync(at('b'), 'x');
  const [one, two] = await Promise.all([thread.capture(), thread.verify()]);
  expectTrue(one);
  expect(two).toMatchObject({ digest: (one as { digest: string }).digest, rehashed: 2 });
  await thread.close();
  expect(await thread.capture()).toMatchObject({ kind: 'unrestorable', cause: 'system' });
  await expect(CaptureThread.open({ store: dir, roots: [at('missing')] })).rejects.toMatchObject({
    code: 'ENOENT',
  });
});
