import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  existsSync,
  fstatSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import type { Difference } from '../src/diff.js';
import { loadNative, type Native } from '../src/native.js';
import { isScratch, Scratch, type ScratchOptions } from '../src/scratch.js';
import { Store } from '../src/store.js';
import { SlowCapturer } from './states.js';
import { Chance, disturb, grow, isRoot, picture } from './trees.js';

const base = realpathSync(mkdtempSync(join(tmpdir(), 'belay-scratch-')));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const native = loadNative() as Native;

let [root, dir, folder] = ['', '', ''];
let capturer: SlowCapturer;
const open: Scratch[] = [];
let n = 0;
beforeEach(() => {
  folder = join(base, String(n++));
  root = join(folder, 'work');
  dir = join(folder, 'scratch');
  mkdirSync(root, { recursive: true });
  capturer = new SlowCapturer(Store.open(join(folder, 'store')), [root]);
  return () => {
    for (const scratch of open.splice(0)) scratch.close();
    capturer.close();
  };
});

async function scratchOf(digest: string, options: ScratchOptions = {}): Promise<Scratch> {
  const scratch = await Scratch.open(capturer.store, digest, dir, options);
  open.push(scratch);
  return scratch;
}

const at = (...names: string[]): string => join(dir, '0', ...names);
const told = (differences: readonly Difference[]): string[] =>
  differences.map(({ path, what, fields, special }) =>
    [path.toString('latin1'), what, ...fields, ...(special === undefined ? [] : [special])].join(' '),
  );
const pictured = (where: string): Record<string, string> => picture(Buffer.from(where));

/** What two pictures say is different, in the words of `what`, without the code that is tested. */
function differentIn(before: Record<string, string>, after: Record<string, string>): string[] {
  const paths = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...paths]
    .filter((path) => before[path] !== after[path])
    .map(
      (path) =>
        `${path} ${before[path] === undefined ? 'created' : after[path] === undefined ? 'deleted' : 'changed'}`,
    )
    .toSorted();
}
const inThoseWords = (differences: readonly Difference[]): string[] =>
  differences
    .map(
      ({ path, what }) =>
        `${path.toString('latin1')} ${what === 'created' || what === 'deleted' ? what : 'changed'}`,
    )
    .toSorted();

/** Thirty times as many in the long form (`npm run soak`). */
const seeds = (first: number, count: number): number[] =>
  Array.from({ length: process.env.BELAY_KILLS === undefined ? count : 30 * count }, (_, i) => first + i);

describe.each([
  ['events', false],
  ['walk', true],
])('by %s', (_, plain) => {
  const options: ScratchOptions = { plain };
  // Without koffi there are neither attributes nor the last digits of times.
  const pick = (lines: Record<string, string>): Record<string, string> =>
    plain
      ? Object.fromEntries(
          Object.entries(lines).map(([path, line]) => [
            path,
            line
              .replace(/ \d+ /, ' ')
              .replace(/ -\d+ /, ' ')
              .replace(/\[.*?\]/, ''),
          ]),
        )
      : lines;

  it.each(seeds(31, plain ? 1 : 5))(
    'follows any sequence of states as if each were restored anew (seed %i)',
    async (seed) => {
      const chance = new Chance(seed);
      grow(Buffer.from(root), chance, 150);
      const states = [{ digest: capturer.capture(), picture: pictured(root) }];
      for (let i = 0; i < 25; i++) {
        for (let steps = 1 + chance.below(6); steps > 0; steps--) disturb(Buffer.from(root), chance);
        states.push({ digest: capturer.capture({ whole: chance.below(6) === 0 }), picture: pictured(root) });
      }
      const first = states[0] as (typeof states)[0];
      const scratch = await scratchOf(first.digest, options);
      expect(scratch.method).toBe(plain ? 'walk' : 'events');
      expect(pick(pictured(at()))).toEqual(pick(first.picture));
      // In order, then anywhere; sometimes something was done to it in between.
      const order = [...states, ...Array.from({ length: 10 }, () => chance.one(states))];
      for (const state of order) {
        if (chance.below(3) === 0)
          for (let steps = chance.below(5); steps > 0; steps--) disturb(Buffer.from(at()), chance);
        scratch.advance(state.digest);
        expect(scratch.digest).toBe(state.digest);
        expect(pick(pictured(at()))).toEqual(pick(state.picture));
        expect(scratch.drift()).toEqual([]);
      }
    },
    60_000,
  );

  it.each(seeds(1041, plain ? 1 : 4))(
    'tells what was done to it (seed %i)',
    async (seed) => {
      const chance = new Chance(seed);
      grow(Buffer.from(root), chance, 200);
      const digest = capturer.capture();
      const scratch = await scratchOf(digest, options);
      const clean = pick(pictured(at()));
      let last = clean;
      for (let turn = 0; turn < 40; turn++) {
        for (let steps = chance.below(8); steps > 0; steps--) disturb(Buffer.from(at()), chance);
        const now = pick(pictured(at()));
        const looked = scratch.look();
        if (!plain) expect(inThoseWords(looked)).toEqual(differentIn(last, now));
        const drift = scratch.drift();
        if (!plain) expect(inThoseWords(drift)).toEqual(differentIn(clean, now));
        last = now;
        if (chance.below(6) === 0) {
          scratch.reset();
          last = pick(pictured(at()));
          expect(last).toEqual(clean);
          expect(scratch.drift()).toEqual([]);
        }
      }
    },
    60_000,
  );
});

describe('what is in use stays in use', () => {
  it('a file that changes is the same inode, for whoever has it open', async () => {
    writeFileSync(join(root, 'db'), 'one, and quite long');
    chmodSync(join(root, 'db'), 0o444);
    const one = capturer.capture();
    chmodSync(join(root, 'db'), 0o644);
    writeFileSync(join(root, 'db'), 'two');
    const two = capturer.capture();
    const scratch = await scratchOf(one);
    const fd = openSync(at('db'), 'r');
    const { ino } = fstatSync(fd);
    scratch.advance(two);
    const buffer = Buffer.alloc(100);
    expect(buffer.toString('utf8', 0, readSync(fd, buffer, 0, 100, 0))).toBe('two');
    scratch.advance(one);
    expect(buffer.toString('utf8', 0, readSync(fd, buffer, 0, 100, 0))).toBe('one, and quite long');
    expect(lstatSync(at('db')).ino).toBe(ino);
    expect(lstatSync(at('db')).mode & 0o7777).toBe(0o444);
    closeSync(fd);
  });

  it('names of one file stay names of one file, and go their ways when they do', async () => {
    writeFileSync(join(root, 'a'), 'x');
    linkSync(join(root, 'a'), join(root, 'b'));
    const together = capturer.capture();
    unlinkSync(join(root, 'b'));
    writeFileSync(join(root, 'b'), 'x');
    const apart = capturer.capture();
    writeFileSync(join(root, 'a'), 'new');
    const changed = capturer.capture();
    const scratch = await scratchOf(together);
    const fd = openSync(at('a'), 'r');
    for (const [digest, same] of [
      [apart, false],
      [changed, false],
      [together, true],
      [changed, false],
    ] as const) {
      scratch.advance(digest);
      expect(lstatSync(at('a')).ino === lstatSync(at('b')).ino).toBe(same);
      expect(lstatSync(at('a')).ino).toBe(fstatSync(fd).ino);
      expect(readFileSync(at('b'), 'utf8')).toBe('x');
    }
    closeSync(fd);
  });

  it('a program that is being executed is replaced instead', async () => {
    const program = join(root, 'program');
    writeFileSync(program, readFileSync('/bin/sleep'), { mode: 0o755 });
    const one = capturer.capture();
    writeFileSync(program, '#!/bin/sh\n');
    const two = capturer.capture();
    const scratch = await scratchOf(one);
    const child = spawn(at('program'), ['60']);
    try {
      await once(child, 'spawn');
      scratch.advance(two);
      expect(readFileSync(at('program'), 'utf8')).toBe('#!/bin/sh\n');
    } finally {
      child.kill('SIGKILL');
      await once(child, 'close');
    }
  });
});

describe('a turn of a replay', () => {
  it('is left alone where it went as it was recorded, but for times', async () => {
    writeFileSync(join(root, 'a'), '1');
    const before = capturer.capture();
    writeFileSync(join(root, 'a'), '2');
    writeFileSync(join(root, 'new'), 'n');
    const after = capturer.capture();
    const scratch = await scratchOf(before);
    // The server does again what it did.
    writeFileSync(at('a'), '2');
    writeFileSync(at('new'), 'n');
    expect(told(scratch.look())).toEqual([' metadata mtime', 'a modified content mtime', 'new created']);
    const left = scratch.compare(after);
    expect(told(left)).toEqual([' metadata mtime', 'a metadata mtime', 'new metadata mtime']);
    const onlyTime = ({ fields }: Difference): boolean => fields.length === 1 && fields[0] === 'mtime';
    const times = lstatSync(at('a'), { bigint: true }).mtimeNs;
    expect(scratch.advance(after, onlyTime)).toEqual([]);
    expect(lstatSync(at('a'), { bigint: true }).mtimeNs).toBe(times);
    expect(scratch.digest).toBe(after);
    expect(told(scratch.drift())).toEqual(told(left));
    expect(scratch.look()).toEqual([]);
    // And what is not kept is made.
    expect(told(scratch.advance(after))).toEqual(told(left));
    expect(scratch.drift()).toEqual([]);
    expect(pictured(at())).toEqual(pictured(root));
  });

  it('that went another way is put right where it differs, and nowhere else', async () => {
    for (const name of ['a', 'b', 'c']) writeFileSync(join(root, name), name);
    const before = capturer.capture();
    writeFileSync(join(root, 'a'), 'recorded');
    const after = capturer.capture();
    const scratch = await scratchOf(before);
    writeFileSync(at('a'), 'replayed');
    unlinkSync(at('b'));
    mkdirSync(at('stray'));
    const untouched = lstatSync(at('c'), { bigint: true }).ctimeNs;
    expect(told(scratch.compare(after)).toSorted()).toEqual([
      ' metadata mtime',
      'a modified content mtime',
      'b created',
      'stray deleted',
    ]);
    scratch.advance(after);
    expect(pictured(at())).toEqual(pictured(root));
    expect(lstatSync(at('c'), { bigint: true }).ctimeNs).toBe(untouched);
  });
});

describe('what no stat tells', () => {
  it('a rewrite with the same size and time is seen', async () => {
    writeFileSync(join(root, 'f'), 'aaaa');
    utimesSync(join(root, 'f'), 1000, 1000);
    const scratch = await scratchOf(capturer.capture());
    writeFileSync(at('f'), 'bbbb');
    utimesSync(at('f'), 1000, 1000);
    expect(told(scratch.drift())).toEqual(['f modified content']);
  });

  it('a write through a shared mapping is seen while there is one, and once after', async () => {
    writeFileSync(join(root, 'f'), Buffer.alloc(4096, 'a'));
    const pids: number[] = [];
    const scratch = await scratchOf(capturer.capture(), {
      processes: () => pids,
    });
    const running = spawn('python3', [
      '-c',
      `import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 4096)
os.close(fd)
for line in sys.stdin:
    if line == 'unmap\\n': m.close()
    else: m[0:1] = line[0:1].encode()
    print('done', flush=True)`,
      at('f'),
    ]);
    await once(running, 'spawn');
    pids.push(running.pid as number);
    const say = async (text: string): Promise<void> => {
      running.stdin.write(`${text}\n`);
      await once(running.stdout, 'data');
    };
    try {
      await say('b');
      expect(told(scratch.drift())[0]).toMatch(/^f modified content/);
      scratch.reset();
      await say('c');
      await say('unmap');
      expect(told(scratch.drift())[0]).toMatch(/^f modified content/);
    } finally {
      running.kill('SIGKILL');
      await once(running, 'close');
    }
  });

  it('more events than the kernel keeps', async () => {
    mkdirSync(join(root, 'd'));
    const scratch = await scratchOf(capturer.capture());
    const most = Number(readFileSync('/proc/sys/fs/inotify/max_queued_events', 'utf8'));
    writeFileSync(at('d', 'x'), '');
    // Two events of one file in turn are not merged.
    for (let i = 0; i < most / 2 + 100; i++) {
      chmodSync(at('d', 'x'), 0o600);
      chmodSync(at('d'), i % 2 === 0 ? 0o700 : 0o755);
    }
    writeFileSync(at('d', 'last'), '');
    expect(told(scratch.look()).filter((each) => each.endsWith('created'))).toEqual([
      'd/last created',
      'd/x created',
    ]);
  });

  it('a directory that was moved, and then written to', async () => {
    mkdirSync(join(root, 'd', 'e'), { recursive: true });
    writeFileSync(join(root, 'd', 'e', 'f'), 'x');
    const scratch = await scratchOf(capturer.capture());
    renameSync(at('d'), at('moved'));
    scratch.look();
    writeFileSync(at('moved', 'e', 'f'), 'y');
    expect(told(scratch.look())).toEqual(['moved/e/f modified content mtime']);
    scratch.reset();
    expect(pictured(at())).toEqual(pictured(root));
  });
});

it('a directory that is made again is looked into, whatever its number', async () => {
  mkdirSync(join(root, 'd'));
  const scratch = await scratchOf(capturer.capture());
  // Some file systems give a number again at once, some later, some never.
  const { ino } = lstatSync(at('d'));
  for (let i = 0; i < 100; i++) {
    rmSync(at('d'), { recursive: true });
    mkdirSync(at('d'));
    writeFileSync(at('d', `f${i}`), '');
    const found = told(scratch.look()).filter((each) => each.endsWith('created'));
    expect(found).toEqual([`d/f${i} created`]);
    if (i > 0 && lstatSync(at('d')).ino === ino) break;
  }
});

it('what can be in no state is told, and taken away', async () => {
  writeFileSync(join(root, 'f'), 'x');
  const scratch = await scratchOf(capturer.capture());
  unlinkSync(at('f'));
  execFileSync('mkfifo', [at('f')]);
  execFileSync('mkfifo', [at('pipe')]);
  expect(told(scratch.drift()).toSorted()).toEqual([
    ' metadata mtime',
    'f created fifo',
    'f deleted',
    'pipe created fifo',
  ]);
  scratch.reset();
  expect(pictured(at())).toEqual(pictured(root));
});

it('a server that puts a link in the place of a directory leads nobody out of the scratch', async () => {
  const victim = join(folder, 'victim');
  mkdirSync(victim);
  writeFileSync(join(victim, 'f'), 'precious');
  mkdirSync(join(root, 'd'));
  writeFileSync(join(root, 'd', 'f'), 'one');
  const one = capturer.capture();
  writeFileSync(join(root, 'd', 'f'), 'two');
  const two = capturer.capture();
  const scratch = await scratchOf(one);
  rmSync(at('d'), { recursive: true });
  symlinkSync(victim, at('d'));
  scratch.advance(two);
  expect(readFileSync(join(victim, 'f'), 'utf8')).toBe('precious');
  expect(pictured(at())).toEqual(pictured(root));
});

it('finds out anew what there is when it was not as it had been found', async () => {
  writeFileSync(join(root, 'f'), 'one');
  const one = capturer.capture();
  writeFileSync(join(root, 'f'), 'two');
  writeFileSync(join(root, 'g'), 'new');
  const two = capturer.capture();
  const scratch = await scratchOf(one);
  let intrusions = 0;
  const done = scratch.advance(two, ({ path }) => {
    // Between the look and what is done about it.
    if (path.toString() === 'g' && intrusions++ === 0) writeFileSync(at('g'), 'somebody');
    return false;
  });
  expect(pictured(at())).toEqual(pictured(root));
  expect(done.map(({ path, what }) => `${what} ${path.toString()}`).sort()).toContain('modified g');
});

it('two swaps while it advances: refused or right, never outside', async () => {
  const victim = join(folder, 'victim');
  mkdirSync(victim);
  mkdirSync(join(root, 'd'));
  writeFileSync(join(root, 'd', 'f'), 'one');
  const one = capturer.capture();
  writeFileSync(join(root, 'd', 'f'), 'two');
  writeFileSync(join(root, 'd', 'g'), 'new');
  const two = capturer.capture();
  const scratch = await scratchOf(one);
  const swapper = spawn(process.execPath, [
    '-e',
    `const fs = require('fs'); const [d, v] = process.argv.slice(1);
     process.stdout.write('go');
     for (;;) { try { fs.renameSync(d, d + '~'); fs.symlinkSync(v, d); fs.unlinkSync(d); fs.renameSync(d + '~', d); } catch {} }`,
    at('d'),
    victim,
  ]);
  try {
    await once(swapper.stdout, 'data');
    for (let i = 0; i < 60; i++) {
      try {
        scratch.advance(i % 2 === 0 ? two : one);
      } catch (error) {
        expect(error).toHaveProperty('code');
      }
      expect(readdirSync(victim)).toEqual([]);
    }
  } finally {
    swapper.kill('SIGKILL');
    await once(swapper, 'close');
  }
  scratch.advance(two);
  expect(pictured(at())).toEqual(pictured(root));
});

describe('its directory', () => {
  it('says what it is, and goes when it is closed', async () => {
    writeFileSync(join(root, 'f'), 'x');
    chmodSync(root, 0o555);
    const scratch = await Scratch.open(capturer.store, capturer.capture(), dir);
    expect(isScratch(dir)).toBe(true);
    expect(lstatSync(dir).mode & 0o7777).toBe(0o700);
    expect(scratch.roots).toEqual([{ from: Buffer.from(root), at: Buffer.from(at()) }]);
    scratch.close();
    expect(existsSync(dir)).toBe(false);
    chmodSync(root, 0o755);
  });

  it('is never one of the user’s', async () => {
    const digest = capturer.capture();
    await expect(Scratch.open(capturer.store, digest, join(root, 'in'))).rejects.toMatchObject({
      code: 'inside-source',
    });
    expect(readdirSync(root)).toEqual([]);
    await expect(Scratch.open(capturer.store, digest, folder)).rejects.toMatchObject({ code: 'not-empty' });
  });

  it('is gone when it could not be filled', async () => {
    writeFileSync(join(root, 'f'), 'the content');
    const digest = capturer.capture();
    const pack = readdirSync(join(folder, 'store')).find((name) => name.endsWith('.pack')) as string;
    writeFileSync(join(folder, 'store', pack), 'tHe content');
    await expect(Scratch.open(capturer.store, digest, dir)).rejects.toMatchObject({
      code: 'content-damaged',
    });
    expect(existsSync(dir)).toBe(false);
  });
});

it('several roots are followed together', async () => {
  const other = join(folder, 'other');
  mkdirSync(other);
  const chance = new Chance(8);
  const both = new SlowCapturer(Store.open(join(folder, 'both')), [other, root]);
  grow(Buffer.from(root), chance, 60);
  grow(Buffer.from(other), chance, 60);
  const states = [{ digest: both.capture(), pictures: [pictured(other), pictured(root)] }];
  for (let i = 0; i < 12; i++) {
    for (const each of [root, other]) disturb(Buffer.from(each), chance);
    states.push({ digest: both.capture(), pictures: [pictured(other), pictured(root)] });
  }
  const scratch = await Scratch.open(both.store, (states[0] as { digest: string }).digest, dir);
  open.push(scratch);
  expect(scratch.roots.map(({ from }) => from.toString())).toEqual([other, root]);
  for (const { digest, pictures } of states) {
    writeFileSync(join(dir, '1', 'stray'), digest);
    scratch.advance(digest);
    expect([pictured(join(dir, '0')), pictured(join(dir, '1'))]).toEqual(pictures);
  }
  writeFileSync(join(dir, '1', 'stray'), '');
  expect(scratch.drift().map(({ root: number, path }) => `${number} ${path.toString()}`)).toEqual([
    '1 ',
    '1 stray',
  ]);
  both.close();
});

it('a state of other roots is refused', async () => {
  const other = join(folder, 'other');
  mkdirSync(other);
  const scratch = await scratchOf(capturer.capture());
  const elsewhere = new SlowCapturer(Store.open(join(folder, 'store')), [other]);
  const digest = elsewhere.capture();
  elsewhere.close();
  capturer.store.refresh();
  expect(() => scratch.advance(digest)).toThrow(expect.objectContaining({ code: 'unknown-root' }));
});

if (isRoot)
  it('owners are as they were', async () => {
    writeFileSync(join(root, 'f'), 'x');
    const one = capturer.capture();
    execFileSync('chown', ['1000:1000', join(root, 'f')]);
    chmodSync(join(root, 'f'), 0o4755);
    const two = capturer.capture();
    const scratch = await scratchOf(one);
    expect(told(scratch.advance(two))).toEqual(['f metadata mode uid gid']);
    expect(lstatSync(at('f'))).toMatchObject({ uid: 1000, gid: 1000 });
    expect(pictured(at())).toEqual(pictured(root));
    expect(native.lstat(Buffer.from(at('f'))).mode & 0o7777).toBe(0o4755);
  });
