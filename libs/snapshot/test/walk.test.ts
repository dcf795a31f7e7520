import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { Beneath } from '../src/beneath.js';
import type { Entry } from '../src/manifest.js';
import { loadNative } from '../src/native.js';
import { walk, type Walked, WalkError, type WalkOptions } from '../src/walk.js';
import { Chance, grow, picture } from './trees.js';

const base = mkdtempSync(join(tmpdir(), 'belay-walk-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));

let root: string;
let n = 0;
beforeEach(() => {
  root = join(base, String(n++));
  mkdirSync(root);
});

function walked(options: WalkOptions = {}, plain = false): Walked {
  const beneath = new Beneath(Buffer.from(root), plain ? undefined : loadNative());
  try {
    return walk(beneath, options);
  } finally {
    beneath.close();
  }
}

/** In the words of `picture`. */
function told({ entries }: Pick<Walked, 'entries'>): Record<string, string> {
  const lines: Record<string, string> = {};
  const format = { file: 0o100000, dir: 0o40000, link: 0o120000 };
  for (const entry of entries) {
    const content =
      entry.type === 'file'
        ? `${entry.size} ${entry.content?.toString('hex')}`
        : entry.type === 'link'
          ? `-> ${entry.target?.toString('latin1')}`
          : '';
    const xattrs = (entry.xattrs ?? []).map(([name, value]) => `${name.toString()}=${value.toString('hex')}`);
    lines[entry.path.toString('latin1')] =
      `${(entry.mode | format[entry.type]).toString(8)} ${entry.uid}:${entry.gid} ${entry.mtime} ${content} [${xattrs.join(' ')}]` +
      (entry.linkGroup ? ` one of ${entry.linkGroup.toString('latin1')}` : '');
  }
  return lines;
}

it.each([1, 2, 3, 4, 5, 6])('sees of a random tree what plain calls see (seed %i)', (seed) => {
  grow(Buffer.from(root), new Chance(seed), 600);
  const seen = walked();
  expect(told(seen)).toEqual(picture(Buffer.from(root)));
  expect(seen.entries.length).toBeGreaterThan(20);
});

it('gives parents before what they hold, names in order, and a stat for each', () => {
  for (const name of ['b', 'a', 'a/z', 'a/b', 'a.b']) mkdirSync(join(root, name), { recursive: true });
  const { entries, stats } = walked();
  expect(entries.map(({ path }) => path.toString())).toEqual(['', 'a', 'a.b', 'b', 'a/b', 'a/z']);
  expect(stats).toHaveLength(entries.length);
  expect(stats.map(({ mtime }) => mtime)).toEqual(entries.map(({ mtime }) => mtime));
});

describe('hard links', () => {
  it('are a group under the first of their names, wherever it is met', () => {
    mkdirSync(join(root, 'z'));
    mkdirSync(join(root, 'b'));
    writeFileSync(join(root, 'z', '1'), 'x');
    linkSync(join(root, 'z', '1'), join(root, 'c'));
    linkSync(join(root, 'z', '1'), join(root, 'b', 'q'));
    const { entries, outside } = walked();
    const groups = entries
      .filter(({ linkGroup }) => linkGroup)
      .map((e) => `${e.path.toString()} in ${e.linkGroup?.toString()}`);
    expect(groups.toSorted()).toEqual(['b/q in b/q', 'c in b/q', 'z/1 in b/q']);
    expect(outside).toEqual([]);
  });

  it('to names elsewhere are told', () => {
    writeFileSync(join(base, `outside-${n}`), 'x');
    linkSync(join(base, `outside-${n}`), join(root, 'in'));
    expect(walked().outside.map(String)).toEqual(['in']);
  });
});

describe('links', () => {
  it('are what they are, wherever they point: dangling, absolute, to themselves, out of the root, to directories', () => {
    const targets = { dangling: 'nowhere', absolute: '/etc', loop: 'loop', out: '../../..', self: '.' };
    for (const [name, target] of Object.entries(targets)) symlinkSync(target, join(root, name));
    const found = walked().entries.filter(({ type }) => type === 'link');
    expect(Object.fromEntries(found.map((e: Entry) => [String(e.path), String(e.target)]))).toEqual(targets);
  });

  it('are not followed when one takes the place of a directory meanwhile', () => {
    const secret = join(base, `secret-${n}`);
    mkdirSync(secret);
    writeFileSync(join(secret, 'key'), 'secret');
    mkdirSync(join(root, 'd'));
    writeFileSync(join(root, 'a'), '');
    const seen = walked({
      content: () => {
        // The file beside it is read between the look at the directory and the way into it.
        rmSync(join(root, 'd'), { recursive: true, force: true });
        symlinkSync(secret, join(root, 'd'));
        return Buffer.alloc(32);
      },
    });
    expect(seen.entries.map(({ path }) => String(path))).not.toContain('d/key');
  });
});

describe('refuses by name', () => {
  const refused = (code: string, path: string, options?: WalkOptions): void => {
    let error: unknown;
    try {
      walked(options);
    } catch (caught) {
      error = caught;
    }
    expect(error).toBeInstanceOf(WalkError);
    expect(error).toMatchObject({ code, path: Buffer.from(path) });
  };

  it('a FIFO, without waiting for its other end', () => {
    mkdirSync(join(root, 'd'));
    execFileSync('mkfifo', [join(root, 'd', 'pipe')]);
    refused('special-file', 'd/pipe');
  });

  it('a socket', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(root, 's'), resolve));
    try {
      refused('special-file', 's');
      expect(walked({ ignored: (_, type) => type === 'special' }).entries).toHaveLength(1);
    } finally {
      server.close();
    }
  });

  it('more entries or bytes than are allowed, before reading them', () => {
    for (let i = 0; i < 10; i++) writeFileSync(join(root, `f${i}`), 'xx');
    const content = (): Buffer => Buffer.alloc(32);
    refused('too-many-entries', 'f4', { content, limits: { entries: 5, bytes: 100 } });
    refused('too-many-bytes', 'f2', { content, limits: { entries: 50, bytes: 5 } });
  });

  it('a path that is longer than the system takes', () => {
    // Made from inside, a step at a time: the whole path could not be named.
    execFileSync('sh', ['-c', 'for i in $(seq 20); do d=$(printf "%0250d" 0); mkdir $d; cd -P $d; done'], {
      cwd: root,
    });
    let error: unknown;
    try {
      walked();
    } catch (caught) {
      error = caught;
    }
    expect(error).toMatchObject({ code: 'path-too-long' });
    execFileSync('rm', ['-rf', join(root, '0'.repeat(250))]);
  });
});

it('leaves out what is ignored, and all below it', () => {
  mkdirSync(join(root, 'cache', 'deep'), { recursive: true });
  writeFileSync(join(root, 'cache', 'deep', 'x'), '');
  writeFileSync(join(root, 'kept'), '');
  const { entries } = walked({ ignored: (path) => path.toString() === 'cache' });
  expect(entries.map(({ path }) => String(path))).toEqual(['', 'kept']);
});

it('reads a file again that changed while it was read', () => {
  const file = join(root, 'f');
  writeFileSync(file, 'one');
  let times = 0;
  const seen = walked({
    content: () => {
      if (times++ < 2) writeFileSync(file, 'x'.repeat(times * 10));
      return Buffer.alloc(32, times);
    },
  });
  expect(seen.entries[1]).toMatchObject({ size: 20, content: Buffer.alloc(32, 3) });
  expect(() =>
    walked({
      content: () => {
        writeFileSync(file, 'x'.repeat(times++));
        return Buffer.alloc(32);
      },
    }),
  ).toThrow(expect.objectContaining({ code: 'changing' }));
});

it('hashes files of every length around its piece', () => {
  const piece = 256 * 1024;
  for (const length of [0, 1, piece - 1, piece, piece + 1, 3 * piece + 7]) {
    writeFileSync(join(root, 'f'), Buffer.alloc(length, 'y'));
    const [, entry] = walked().entries;
    expect(entry?.content?.toString('hex')).toBe(
      createHash('sha256').update(Buffer.alloc(length, 'y')).digest('hex'),
    );
  }
});

it('goes deeper than a process may have files open', () => {
  const depth = 1100;
  execFileSync('sh', ['-c', `for i in $(seq ${depth}); do mkdir d; cd -P d; done`], { cwd: root });
  expect(walked().entries).toHaveLength(depth + 1);
  execFileSync('rm', ['-rf', join(root, 'd')]);
});

it('sees the same without koffi, but for attributes', () => {
  grow(Buffer.from(root), new Chance(77), 200);
  const plain = (lines: Record<string, string>): string[] =>
    Object.entries(lines).map(([path, line]) => `${path} ${line.replace(/\[.*\]/, '')}`);
  expect(plain(told(walked({}, true))).sort()).toEqual(plain(picture(Buffer.from(root))).sort());
});

it('reads a file that nobody but its owner may, where it may', () => {
  writeFileSync(join(root, 'f'), 'x');
  chmodSync(join(root, 'f'), 0o200);
  const mayRead = statSync(root).uid === 0 && process.getuid?.() === 0;
  if (mayRead) expect(walked().entries).toHaveLength(2);
  else expect(() => walked()).toThrow(expect.objectContaining({ code: 'unreadable' }));
});
