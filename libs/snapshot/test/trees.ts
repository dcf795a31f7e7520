/** Random trees with everything a file system holds, and a picture of a tree taken by Node's plainest calls. */

import { createHash } from 'node:crypto';
import {
  chmodSync,
  lchownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
  writeSync,
  openSync,
  closeSync,
} from 'node:fs';
import { loadNative, type Native } from '../src/native.js';

const native = loadNative() as Native;
export const isRoot = process.getuid?.() === 0;

/** A stream of numbers from a seed (mulberry32). */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  one<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.below(256)));
  }
}

const SLASH = Buffer.from('/');
export const under = (root: Buffer, path: Buffer): Buffer =>
  path.length === 0 ? root : Buffer.concat([root, SLASH, path]);

/**
 * All there is to say of a tree, one line per path: what a person with `stat`, `readlink`, `sha256sum` and `getfattr`
 * would write down. Shares no code with the walk.
 */
export function picture(root: Buffer, { mtimes = true } = {}): Record<string, string> {
  const lines: Record<string, string> = {};
  const inodes = new Map<bigint, string[]>();
  const look = (path: Buffer): void => {
    const full = under(root, path);
    const stat = lstatSync(full, { bigint: true });
    const key = path.toString('latin1');
    const xattrs = native.xattrs(full).map(([name, value]) => `${name.toString()}=${value.toString('hex')}`);
    const content = stat.isFile()
      ? `${stat.size} ${createHash('sha256').update(readFileSync(full)).digest('hex')}`
      : stat.isSymbolicLink()
        ? `-> ${readlinkSync(full, 'buffer').toString('latin1')}`
        : '';
    const time = mtimes ? String(stat.mtimeNs) : '';
    lines[key] = `${stat.mode.toString(8)} ${stat.uid}:${stat.gid} ${time} ${content} [${xattrs.join(' ')}]`;
    if (stat.isFile() && stat.nlink > 1n) inodes.set(stat.ino, [...(inodes.get(stat.ino) ?? []), key]);
    if (stat.isDirectory())
      for (const name of readdirSync(full, { encoding: 'buffer' }))
        look(path.length === 0 ? name : Buffer.concat([path, SLASH, name]));
  };
  look(Buffer.alloc(0));
  for (const names of inodes.values()) {
    if (names.length === 1) continue;
    names.sort();
    for (const name of names) lines[name] += ` one of ${names[0]}`;
  }
  return lines;
}

const ODD_NAMES = [
  'a b',
  'new\nline',
  '-rf',
  'ünïcode',
  '.hidden',
  '"quoted"',
  '\u202etxt.exe',
  'x'.repeat(255),
].map((name) => Buffer.from(name));

interface Known {
  readonly dirs: Buffer[];
  readonly files: Buffer[];
  readonly links: Buffer[];
}

function namesOf(root: Buffer): Known {
  const known: Known = { dirs: [], files: [], links: [] };
  const look = (path: Buffer): void => {
    known.dirs.push(path);
    for (const name of readdirSync(under(root, path), { encoding: 'buffer' })) {
      const each = path.length === 0 ? name : Buffer.concat([path, SLASH, name]);
      const stat = lstatSync(under(root, each));
      if (stat.isDirectory()) look(each);
      else if (stat.isSymbolicLink()) known.links.push(each);
      else known.files.push(each);
    }
  };
  look(Buffer.alloc(0));
  return known;
}

const MODES = [0o644, 0o600, 0o755, 0o444, 0o400, 0o4755, 0o2755, 0o666, 0o6711];
const DIR_MODES = [0o755, 0o700, 0o1777, 0o2775, 0o750];

/** One thing done to a tree, as a program would do it. Returns what it was. */
export function disturb(root: Buffer, chance: Chance): string {
  const { dirs, files, links } = namesOf(root);
  const fresh = (): Buffer => {
    const dir = chance.one(dirs);
    const name =
      chance.below(6) === 0
        ? chance.one(ODD_NAMES)
        : chance.below(12) === 0
          ? Buffer.concat([Buffer.from([0xff, 0x80 + chance.below(64)]), Buffer.from(`${chance.below(50)}`)])
          : Buffer.from(`n${chance.below(400)}`);
    return dir.length === 0 ? name : Buffer.concat([dir, SLASH, name]);
  };
  const any = [...files, ...links, ...dirs.filter(({ length }) => length > 0)];
  const time = (): bigint =>
    BigInt(1_500_000_000 + chance.below(300_000_000)) * 1_000_000_000n + BigInt(chance.below(1_000_000_000));
  const act = chance.below(24);
  try {
    if (act <= 3) {
      writeFileSync(under(root, fresh()), chance.bytes(chance.below(300)), { flag: 'wx' });
      return 'create';
    }
    if (act === 4) {
      mkdirSync(under(root, fresh()));
      return 'mkdir';
    }
    if (act === 5) {
      const target = chance.one([
        'nowhere',
        '/etc/passwd',
        '..',
        '.',
        '../../../../etc',
        'n1',
        '/',
        '\udcff',
      ]);
      symlinkSync(target, under(root, fresh()));
      return 'symlink';
    }
    if (files.length > 0 && act <= 8) {
      const file = under(root, chance.one(files));
      const fd = openSync(file, 'r+');
      try {
        writeSync(fd, chance.bytes(1 + chance.below(20)), 0, null, chance.below(30));
      } finally {
        closeSync(fd);
      }
      return 'write in place';
    }
    if (files.length > 0 && act === 9) {
      const file = under(root, chance.one(files));
      const before = lstatSync(file, { bigint: true });
      const content = readFileSync(file);
      if (content.length > 0) content[0] = ((content[0] as number) + 1) % 256;
      writeFileSync(file, content);
      native.setMtime(file, before.mtimeNs);
      return 'rewrite, same size and mtime';
    }
    if (files.length > 0 && act === 10) {
      truncateSync(under(root, chance.one(files)), chance.below(100));
      return 'truncate';
    }
    if (files.length > 0 && act === 11) {
      const file = chance.one(files);
      const temporary = under(
        root,
        Buffer.concat([file.subarray(0, Math.max(0, file.length - 3)), Buffer.from('~')]),
      );
      writeFileSync(temporary, chance.bytes(50), { flag: 'wx' });
      renameSync(temporary, under(root, file));
      return 'replace by rename';
    }
    if (files.length > 0 && act === 12) {
      linkSync(under(root, chance.one(files)), under(root, fresh()));
      return 'hard link';
    }
    if (any.length > 0 && act === 13) {
      renameSync(under(root, chance.one(any)), under(root, fresh()));
      return 'rename';
    }
    if (act === 14 && dirs.length > 1) {
      renameSync(under(root, chance.one(dirs.slice(1))), under(root, fresh()));
      return 'rename of a directory';
    }
    if (files.length > 0 && act <= 16) {
      unlinkSync(under(root, chance.one([...files, ...links])));
      return 'unlink';
    }
    if (act === 17 && dirs.length > 3) {
      const dir = under(root, chance.one(dirs.slice(1)));
      // Not half the tree at every tenth step.
      if (readdirSync(dir).length > 2) return 'nothing';
      rmSync(dir, { recursive: true });
      return 'rm -r';
    }
    if (files.length > 0 && act === 18) {
      chmodSync(under(root, chance.one(files)), chance.one(MODES));
      return 'chmod';
    }
    if (act === 19) {
      chmodSync(under(root, chance.one(dirs)), chance.one(DIR_MODES));
      return 'chmod of a directory';
    }
    if (files.length > 0 && act === 20) {
      const path = under(root, chance.one([...files, ...dirs]));
      const name = Buffer.from(`user.${chance.one(['a', 'b', 'note'])}`);
      if (chance.below(3) === 0) native.removeXattr(path, name);
      else native.setXattr(path, name, chance.bytes(chance.below(40)));
      return 'xattr';
    }
    if (any.length > 0 && act === 21) {
      native.setMtime(under(root, chance.one([...any, Buffer.alloc(0)])), time());
      return 'utimes';
    }
    if (any.length > 0 && act === 22 && isRoot) {
      lchownSync(under(root, chance.one(any)), chance.below(3) * 1000, chance.below(3) * 1000);
      return 'chown';
    }
    if (any.length > 0 && act === 23) {
      // Something else under the same name.
      const path = under(root, chance.one(chance.below(8) === 0 || files.length === 0 ? any : files));
      rmSync(path, { recursive: true });
      const type = chance.below(3);
      if (type === 0) mkdirSync(path);
      else if (type === 1) symlinkSync('elsewhere', path);
      else writeFileSync(path, chance.bytes(10));
      return 'another type';
    }
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
  return 'nothing';
}

/** A tree grown by so many steps, its times made old and odd. */
export function grow(root: Buffer, chance: Chance, steps: number): void {
  mkdirSync(root, { recursive: true });
  for (let i = 0; i < steps; i++) disturb(root, chance);
}
