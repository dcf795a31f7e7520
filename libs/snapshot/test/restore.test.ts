import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { loadNative, type Native } from '../src/native.js';
import { restore, RestoreError } from '../src/restore.js';
import { Store } from '../src/store.js';
import { SlowCapturer } from './states.js';
import { Chance, grow, isRoot, picture } from './trees.js';

const base = realpathSync(mkdtempSync(join(tmpdir(), 'belay-restore-')));
afterAll(() => {
  // Directories that not even their owner may write to.
  execFileSync('chmod', ['-R', 'u+rwx', base]);
  rmSync(base, { recursive: true, force: true });
});
const native = loadNative() as Native;

let [root, into, folder] = ['', '', ''];
let capturer: SlowCapturer;
let n = 0;
beforeEach(() => {
  folder = join(base, String(n++));
  root = join(folder, 'work');
  into = join(folder, 'restored');
  mkdirSync(root, { recursive: true });
  capturer = new SlowCapturer(Store.open(join(folder, 'store')), [root]);
  return () => capturer.close();
});

const refusedWith = async (code: string, work: Promise<unknown>): Promise<RestoreError> => {
  const error: unknown = await work.then(
    () => undefined,
    (caught: unknown) => caught,
  );
  expect(error).toBeInstanceOf(RestoreError);
  expect(error).toMatchObject({ code });
  return error as RestoreError;
};

const partials = (): string[] => readdirSync(folder).filter((name) => name.startsWith('.belay-partial-'));

it.each([11, 12, 13, 14, 15, 16, 17, 18])('a random tree comes back as it was (seed %i)', async (seed) => {
  grow(Buffer.from(root), new Chance(seed), 500);
  const digest = capturer.capture();
  const before = picture(Buffer.from(root));
  const { roots, gaps } = await restore(capturer.store, digest, into);
  expect(picture(Buffer.from(into))).toEqual(before);
  expect(gaps).toEqual([]);
  expect(roots).toEqual([
    expect.objectContaining({
      root: 0,
      from: Buffer.from(root),
      at: Buffer.from(into),
      entries: Object.keys(before).length,
    }),
  ]);
  // Captured again at its new place, it is the same tree.
  const again = new SlowCapturer(Store.open(join(folder, 'again')), [into]);
  const state = (capturer.store.manifest(digest).state.roots[0] as { tree: Buffer }).tree;
  const digestAgain = again.capture();
  expect(again.store.manifest(digestAgain).state.roots[0]?.tree).toEqual(state);
  again.close();
});

it('brings back modes, times, links, attributes, odd names and nothing else', async () => {
  const name = (text: string): string => join(root, text);
  for (const [file, mode] of Object.entries({
    a: 0o755,
    b: 0o600,
    c: 0o444,
    d: 0o4755,
    e: 0o2711,
  })) {
    writeFileSync(name(file), file);
    chmodSync(name(file), mode);
  }
  // Unreadable to all but root: a tree of somebody else's that has one is no state at all.
  if (isRoot) writeFileSync(name('f'), 'f', { mode: 0o000 });
  mkdirSync(name('empty'));
  mkdirSync(name('locked'));
  writeFileSync(join(name('locked'), 'in'), 'x');
  chmodSync(name('locked'), 0o555);
  mkdirSync(name('sticky'));
  chmodSync(name('sticky'), 0o3777);
  for (const [link, target] of Object.entries({
    dangling: 'no',
    abs: '/etc/passwd',
    loop: 'loop',
    out: '../..',
  })) {
    symlinkSync(target, name(link));
    native.setMtime(Buffer.from(name(link)), 1_234_567_890_123_456_789n);
  }
  native.setMtime(Buffer.from(name('a')), -1n);
  native.setMtime(Buffer.from(name('empty')), 999_999_999n);
  native.setMtime(Buffer.from(root), 42n);
  if (isRoot)
    native.setXattr(Buffer.from(name('dangling')), Buffer.from('trusted.note'), Buffer.from('on a link'));
  const digest = capturer.capture();
  await restore(capturer.store, digest, into);
  expect(picture(Buffer.from(into))).toEqual(picture(Buffer.from(root)));
  expect(lstatSync(into, { bigint: true }).mtimeNs).toBe(42n);
});

it('several roots go beside each other, one can be asked for', async () => {
  const [one, two] = [join(folder, 'one'), join(folder, 'two')];
  for (const each of [one, two]) mkdirSync(each);
  writeFileSync(join(one, 'f'), '1');
  writeFileSync(join(two, 'f'), '2');
  const both = new SlowCapturer(Store.open(join(folder, 'both')), [one, two]);
  const digest = both.capture();
  const { roots } = await restore(both.store, digest, into);
  expect(roots.map(({ from, at }) => [String(from), String(at)])).toEqual([
    [one, join(into, '0')],
    [two, join(into, '1')],
  ]);
  expect(readFileSync(join(into, '1', 'f'), 'utf8')).toBe('2');
  await restore(both.store, digest, join(folder, 'only'), { roots: [Buffer.from(two)] });
  expect(readdirSync(join(folder, 'only'))).toEqual(['f']);
  await refusedWith(
    'unknown-root',
    restore(both.store, digest, join(folder, 'x'), { roots: [Buffer.from('/nowhere')] }),
  );
  both.close();
});

describe("the user's own trees are left alone", () => {
  it('nothing in them changes: not a byte, not a time', async () => {
    grow(Buffer.from(root), new Chance(5), 200);
    const digest = capturer.capture();
    const looks = (): unknown => ({
      picture: picture(Buffer.from(root)),
      change: readdirSync(root, { recursive: true })
        .map((name) => lstatSync(join(root, String(name)), { bigint: true, throwIfNoEntry: false })?.ctimeNs)
        .map(String),
    });
    const before = looks();
    await restore(capturer.store, digest, into);
    expect(looks()).toEqual(before);
  });

  it('no place in, at or around a captured tree is taken, under whatever name', async () => {
    writeFileSync(join(root, 'f'), '');
    mkdirSync(join(root, 'sub'));
    const digest = capturer.capture();
    symlinkSync(join(root, 'sub'), join(folder, 'alias'));
    const before = picture(Buffer.from(root));
    await refusedWith('not-empty', restore(capturer.store, digest, root));
    await refusedWith('inside-source', restore(capturer.store, digest, join(root, 'sub')));
    await refusedWith('inside-source', restore(capturer.store, digest, join(root, 'new', 'deep')));
    await refusedWith('inside-source', restore(capturer.store, digest, join(folder, 'alias', 'new')));
    await refusedWith('not-empty', restore(capturer.store, digest, folder));
    await refusedWith('inside-source', restore(capturer.store, digest, join(folder, 'store', 'x')));
    expect(picture(Buffer.from(root))).toEqual(before);
    // By name it is allowed to go inside, but never in place of the tree.
    await restore(capturer.store, digest, join(root, 'sub', 'copy'), { insideSource: true });
    expect(existsSync(join(root, 'sub', 'copy', 'f'))).toBe(true);
    await refusedWith(
      'inside-source',
      restore(capturer.store, digest, join(folder, 'store', 'x'), { insideSource: true }),
    );
    rmSync(root, { recursive: true });
    mkdirSync(root);
    await refusedWith('inside-source', restore(capturer.store, digest, root, { insideSource: true }));
  });
});

describe('a place', () => {
  it('may be an empty directory, and is none that is not', async () => {
    writeFileSync(join(root, 'f'), 'x');
    const digest = capturer.capture();
    mkdirSync(into);
    await restore(capturer.store, digest, into);
    await refusedWith('not-empty', restore(capturer.store, digest, into));
    writeFileSync(join(folder, 'file'), '');
    await refusedWith('not-a-directory', restore(capturer.store, digest, join(folder, 'file')));
    expect(partials()).toEqual([]);
  });

  it('is made with the directories it is in', async () => {
    const digest = capturer.capture();
    await restore(capturer.store, digest, join(folder, 'a', 'b', 'c'));
    expect(readdirSync(join(folder, 'a', 'b'))).toEqual(['c']);
  });

  it('in a directory that hands down its group gets the state’s own', async () => {
    mkdirSync(join(folder, 'shared'));
    chmodSync(join(folder, 'shared'), 0o2777);
    mkdirSync(join(root, 'd'));
    writeFileSync(join(root, 'd', 'f'), 'x');
    const digest = capturer.capture();
    await restore(capturer.store, digest, join(folder, 'shared', 'x'));
    expect(picture(Buffer.from(join(folder, 'shared', 'x')))).toEqual(picture(Buffer.from(root)));
  });
});

describe('what the store gives is not believed', () => {
  it('a damaged content ends the restore, and nothing of it is left', async () => {
    writeFileSync(join(root, 'f'), 'the content');
    const digest = capturer.capture();
    const pack = readdirSync(join(folder, 'store')).find((name) => name.endsWith('.pack')) as string;
    const bytes = readFileSync(join(folder, 'store', pack));
    bytes[3] = (bytes[3] as number) ^ 1;
    writeFileSync(join(folder, 'store', pack), bytes);
    await expect(restore(capturer.store, digest, into)).rejects.toMatchObject({ code: 'content-damaged' });
    truncateSync(join(folder, 'store', pack), 3);
    await expect(restore(capturer.store, digest, into)).rejects.toMatchObject({ code: 'content-damaged' });
    expect(existsSync(into)).toBe(false);
    expect(partials()).toEqual([]);
  });

  it('a file larger than is held at once is checked as well', async () => {
    writeFileSync(join(root, 'f'), Buffer.alloc(9 * 1024 * 1024 + 5, 'abc'));
    const digest = capturer.capture();
    await restore(capturer.store, digest, into);
    expect(readFileSync(join(into, 'f')).equals(readFileSync(join(root, 'f')))).toBe(true);
  });

  it('an unknown state is none', async () => {
    capturer.capture();
    await expect(restore(capturer.store, `sha256:${'0'.repeat(64)}`, into)).rejects.toMatchObject({
      code: 'unknown-state',
    });
  });
});

it('can be given up, and then leaves nothing', async () => {
  for (let i = 0; i < 1500; i++) writeFileSync(join(root, `f${i}`), String(i));
  const digest = capturer.capture();
  const controller = new AbortController();
  const work = restore(capturer.store, digest, into, {
    signal: controller.signal,
    onProgress: () => controller.abort(new Error('enough')),
  });
  await expect(work).rejects.toThrow('enough');
  expect(existsSync(into)).toBe(false);
  expect(partials()).toEqual([]);
});

it('killed in the middle, it leaves what nobody takes for a state', async () => {
  for (let i = 0; i < 3000; i++) writeFileSync(join(root, `f${i}`), String(i));
  const digest = capturer.capture();
  const program = fileURLToPath(new URL('restore-program.mjs', import.meta.url));
  const child = spawn(process.execPath, [program, join(folder, 'store'), digest, into], { stdio: 'ignore' });
  const closed = once(child, 'close');
  await vi.waitUntil(() => partials().length > 0, { timeout: 20_000, interval: 1 });
  child.kill('SIGKILL');
  await closed;
  expect(existsSync(into)).toBe(false);
  expect(partials()).toEqual([expect.stringMatching(new RegExp(`^\\.belay-partial-${child.pid}-`))]);
  await restore(capturer.store, digest, into);
  expect(picture(Buffer.from(into))).toEqual(picture(Buffer.from(root)));
});

it('tells how far it is', async () => {
  for (let i = 0; i < 1500; i++) writeFileSync(join(root, `f${i}`), String(i));
  const phases: string[] = [];
  await restore(capturer.store, capturer.capture(), into, {
    onProgress: ({ phase, done, total }) => {
      phases.push(phase);
      expect(done).toBeLessThan(total);
    },
  });
  expect(phases[0]).toBe('writing');
  expect(phases.at(-1)).toBe('checking');
});

it('without koffi: the same, but attributes and a fraction of a microsecond, which are named', async () => {
  grow(Buffer.from(root), new Chance(21), 200);
  native.setXattr(Buffer.from(root), Buffer.from('user.lost'), Buffer.from('1'));
  const digest = capturer.capture();
  const { gaps } = await restore(capturer.store, digest, into, { plain: true });
  expect(gaps.map(({ gap }) => gap).toSorted()).toEqual(['mtime-below-microseconds', 'xattrs']);
  const withoutThose = (lines: Record<string, string>): string[] =>
    Object.entries(lines).map(([path, line]) => `${path} ${line.replace(/\[.*\]/, '')}`);
  expect(withoutThose(picture(Buffer.from(into), { mtimes: false }))).toEqual(
    withoutThose(picture(Buffer.from(root), { mtimes: false })),
  );
});

if (isRoot)
  it('who is not root gets everything but the owners, and is told so', () => {
    writeFileSync(join(root, 'f'), 'x', { mode: 0o640 });
    mkdirSync(join(root, 'd'));
    symlinkSync('f', join(root, 'l'));
    native.setXattr(Buffer.from(join(root, 'f')), Buffer.from('user.kept'), Buffer.from('1'));
    native.setXattr(Buffer.from(join(root, 'd')), Buffer.from('trusted.note'), Buffer.from('1'));
    const digest = capturer.capture();
    const nobody = 65_534;
    const place = join(folder, 'theirs');
    mkdirSync(place);
    execFileSync('chown', ['-R', `${nobody}:${nobody}`, join(folder, 'store'), place]);
    chmodSync(base, 0o711);
    const program = fileURLToPath(new URL('restore-program.mjs', import.meta.url));
    const args = [program, join(folder, 'store'), digest, join(place, 'into')];
    const output = execFileSync(process.execPath, args, { uid: nobody, gid: nobody, encoding: 'utf8' });
    expect(JSON.parse(output)).toEqual([
      ['ownership', 4],
      ['xattrs', 1],
    ]);
    const [before, after] = [root, join(place, 'into')].map((each) =>
      JSON.stringify(picture(Buffer.from(each)))
        .replaceAll(`${nobody}:${nobody}`, '0:0')
        .replace('trusted.note=31', ''),
    );
    expect(after).toBe(before);
  });
