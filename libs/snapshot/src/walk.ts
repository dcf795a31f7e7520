/**
 * A whole tree, looked at name by name: the slow way that is always right. It is the first capture, the way back after
 * an overflow of events, and what a restore is checked by.
 */

import { createHash, hash } from 'node:crypto';
import { closeSync, constants, readSync } from 'node:fs';
import { type Beneath, byBytes, type Directory, joinPath, SELF, splitPath } from './beneath.js';
import type { Entry, EntryType } from './manifest.js';
import { PATH_MAX, type Stat } from './native.js';

/** Why a tree has no state. */
export type WalkErrorCode =
  /** A socket, FIFO or device: what it is can't be kept. */
  | 'special-file'
  | 'too-many-entries'
  | 'too-many-bytes'
  /** A path that the system itself takes from nobody. */
  | 'path-too-long'
  /** It may not be read by us. */
  | 'unreadable'
  /** A file that was different each time it was looked at. */
  | 'changing';

export class WalkError extends Error {
  readonly code: WalkErrorCode;
  /** Relative to the root. */
  readonly path: Buffer;
  readonly detail: string;

  constructor(code: WalkErrorCode, path: Buffer, detail: string) {
    super(`${path.length === 0 ? 'the root' : path.toString()}: ${detail}`);
    this.name = 'WalkError';
    this.code = code;
    this.path = path;
    this.detail = detail;
  }
}

/** What a tree may have at most, checked before anything is read. */
export interface WalkLimits {
  readonly entries: number;
  /** Sum of the sizes of its files. */
  readonly bytes: number;
}

const WALK_LIMITS: WalkLimits = { entries: 1_000_000, bytes: 64 * 2 ** 30 };

export interface WalkOptions {
  readonly limits?: WalkLimits;
  /** What is left out, a directory with all it holds. Never asked about the root. */
  readonly ignored?: (path: Buffer, type: EntryType | 'special') => boolean;
  /**
   * SHA-256 of a file's content, 32 bytes; the default reads it. The stat was taken just before; ENOENT means that the
   * file went away meanwhile.
   */
  readonly content?: (directory: Directory, name: Buffer, stat: Stat, path: Buffer) => Buffer;
}

export interface Walked {
  /** Parents before what they hold, names in order of their bytes. */
  readonly entries: Entry[];
  /** Of the entry at the same place. */
  readonly stats: Stat[];
  /** Files that have more names than the tree shows: what is done to them by those is not seen here. */
  readonly outside: Buffer[];
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Looks at everything below the root, or at `from` and all below it. Throws WalkError; other errors are the system's. */
export function walk(beneath: Beneath, options: WalkOptions = {}, from: Buffer = Buffer.alloc(0)): Walked {
  return new Walk(beneath, options).run(from);
}

class Walk {
  readonly #beneath: Beneath;
  readonly #ignored: NonNullable<WalkOptions['ignored']>;
  readonly #content: NonNullable<WalkOptions['content']>;
  readonly #limits: WalkLimits;
  readonly #entries: Mutable<Entry>[] = [];
  readonly #stats: Stat[] = [];
  readonly #linked = new Map<string, { readonly nlink: number; readonly entries: Mutable<Entry>[] }>();
  #bytes = 0;

  constructor(beneath: Beneath, { ignored, content, limits }: WalkOptions) {
    this.#beneath = beneath;
    this.#ignored = ignored ?? (() => false);
    this.#content = content ?? contentHash;
    this.#limits = limits ?? WALK_LIMITS;
  }

  run(from: Buffer): Walked {
    if (from.length === 0) {
      const root = this.#beneath.open(from);
      try {
        this.#add(root, SELF, from);
        this.#fill(root, from);
      } finally {
        root.close();
      }
    } else {
      const { parent, name } = splitPath(from);
      const directory = this.#beneath.open(parent);
      try {
        if (this.#add(directory, name, from) === 'dir') this.#descend(from);
      } finally {
        directory.close();
      }
    }
    return { entries: this.#entries, stats: this.#stats, outside: this.#group() };
  }

  #descend(path: Buffer): void {
    const directory = this.#beneath.openIfThere(path);
    if (!directory) return;
    let below: Buffer[];
    try {
      below = this.#names(directory, path);
    } finally {
      // Before going further down: a tree may be deeper than a process may have files open.
      directory.close();
    }
    for (const each of below) this.#descend(each);
  }

  #fill(directory: Directory, path: Buffer): void {
    for (const each of this.#names(directory, path)) this.#descend(each);
  }

  /** Adds what a directory holds; returns the directories in it. */
  #names(directory: Directory, path: Buffer): Buffer[] {
    const below: Buffer[] = [];
    for (const name of readable(path, () => directory.names())) {
      const each = joinPath(path, name);
      if (each.length >= PATH_MAX)
        throw new WalkError('path-too-long', each, `more than ${PATH_MAX - 1} bytes of path`);
      if (this.#add(directory, name, each) === 'dir') below.push(each);
    }
    return below;
  }

  #add(directory: Directory, name: Buffer, path: Buffer): EntryType | undefined {
    const stat = readable(path, () => directory.stat(name));
    if (!stat) return undefined;
    const type = typeOf(stat.mode);
    if (path.length > 0 && this.#ignored(path, type)) return undefined;
    if (type === 'special') throw specialFile(path, stat);
    if (this.#entries.length >= this.#limits.entries)
      throw new WalkError('too-many-entries', path, `more than ${this.#limits.entries} entries`);
    if (type === 'file') {
      this.#bytes += stat.size;
      if (this.#bytes > this.#limits.bytes)
        throw new WalkError('too-many-bytes', path, `more than ${this.#limits.bytes} bytes of files`);
    }
    let seen: Seen;
    try {
      seen = readable(path, () => lookAt(directory, name, path, stat, this.#content));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ELOOP') return undefined;
      throw error;
    }
    const entry: Mutable<Entry> = seen.entry;
    this.#entries.push(entry);
    this.#stats.push(seen.stat);
    if (type === 'file' && seen.stat.nlink > 1) this.#remember(seen.stat, entry);
    return type;
  }

  #remember(stat: Stat, entry: Mutable<Entry>): void {
    const inode = `${stat.dev}:${stat.ino}`;
    const known = this.#linked.get(inode);
    if (known) known.entries.push(entry);
    else this.#linked.set(inode, { nlink: stat.nlink, entries: [entry] });
  }

  #group(): Buffer[] {
    const outside: Buffer[] = [];
    for (const { nlink, entries } of this.#linked.values()) {
      const paths = entries.map(({ path }) => path).sort(byBytes);
      if (nlink > paths.length) outside.push(...paths);
      if (paths.length > 1) for (const entry of entries) entry.linkGroup = paths[0] as Buffer;
    }
    return outside;
  }
}

interface Seen {
  readonly entry: Entry;
  readonly stat: Stat;
}

/** How often a file that is being written is looked at before it is given up. */
const PATIENCE = 8;

/**
 * One entry, without its link group, and the stat that goes with it: a file is looked at again after it was read, and
 * read again when it had changed.
 */
function lookAt(
  directory: Directory,
  name: Buffer,
  path: Buffer,
  before: Stat,
  content: NonNullable<WalkOptions['content']> = contentHash,
): Seen {
  let stat = before;
  for (let tries = 0; tries < PATIENCE; tries++) {
    const type = typeOf(stat.mode);
    if (type === 'special') throw specialFile(path, stat);
    const xattrs = directory.xattrs(name);
    const hashed = type === 'file' ? content(directory, name, stat, path) : undefined;
    const target = type === 'link' ? directory.readLink(name) : undefined;
    const after = type === 'dir' ? stat : directory.stat(name);
    if (!after) throw gone(path);
    if (sameStat(stat, after)) {
      const entry: Entry = {
        path,
        type,
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        mtime: stat.mtime,
        ...(hashed ? { size: stat.size, content: hashed } : {}),
        ...(target ? { target } : {}),
        ...(xattrs.length > 0 ? { xattrs } : {}),
      };
      return { entry, stat };
    }
    stat = after;
  }
  throw new WalkError('changing', path, `changed ${PATIENCE} times while it was read`);
}

/** What says that a socket, FIFO or device is in the way of a state. */
const specialFile = (path: Buffer, stat: Stat): WalkError =>
  new WalkError('special-file', path, `a ${kindOf(stat.mode)}`);

const gone = (path: Buffer): Error =>
  Object.assign(new Error(`ENOENT: ${path.toString()}`), { code: 'ENOENT' });

/** Whether nothing was done to an inode in between; `nlink` is left out, which changes elsewhere. */
const sameStat = (a: Stat, b: Stat): boolean =>
  a.ino === b.ino &&
  a.ctime === b.ctime &&
  a.mtime === b.mtime &&
  a.size === b.size &&
  a.mode === b.mode &&
  a.dev === b.dev;

const { S_IFMT, S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK } = constants;

export function typeOf(mode: number): EntryType | 'special' {
  const format = mode & S_IFMT;
  return format === S_IFREG ? 'file' : format === S_IFDIR ? 'dir' : format === S_IFLNK ? 'link' : 'special';
}

const KINDS: Readonly<Record<number, string>> = {
  [S_IFIFO]: 'FIFO',
  [S_IFSOCK]: 'socket',
  [S_IFCHR]: 'character device',
  [S_IFBLK]: 'block device',
};

const kindOf = (mode: number): string => KINDS[mode & S_IFMT] ?? 'file of an unknown kind';

function readable<T>(path: Buffer, look: () => T): T {
  try {
    return look();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EACCES' && code !== 'EPERM') throw error;
    throw new WalkError('unreadable', path, `may not be read (${code})`);
  }
}

const chunk = Buffer.alloc(256 * 1024);

/** SHA-256 of what a file holds now, in pieces of 256 KiB. */
function contentHash(directory: Directory, name: Buffer): Buffer {
  const fd = directory.openFile(name, constants.O_RDONLY);
  try {
    return hashOpenFile(fd);
  } finally {
    closeSync(fd);
  }
}

function hashOpenFile(fd: number): Buffer {
  const first = readSync(fd, chunk, 0, chunk.length, 0);
  if (first < chunk.length) {
    // A short read of a file is its end, or nearly always: the one more read says so.
    const more = first === 0 ? 0 : readSync(fd, chunk, first, chunk.length - first, first);
    if (more === 0) return hash('sha256', chunk.subarray(0, first), 'buffer');
  }
  const digest = createHash('sha256');
  for (let at = 0; ;) {
    const length = readSync(fd, chunk, 0, chunk.length, at);
    if (length === 0) return digest.digest();
    digest.update(chunk.subarray(0, length));
    at += length;
  }
}
