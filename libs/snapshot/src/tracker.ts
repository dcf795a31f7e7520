/**
 * One root's tree as it is followed: what is known of it, what has to be looked at, and what has changed since the
 * last state. Nothing here decides when; `capture.ts` does.
 */

import { createHash, hash as digestOf } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readdirSync, readlinkSync, readSync } from 'node:fs';
import { type IgnoreRules, joinPath } from './ignore.js';
import type { Change } from './journal.js';
import { DIGEST_BYTES, type Entry, entrySize, readEntry, writeEntry } from './manifest.js';
import { IN, type Native, plainLstat, type Stat } from './native.js';
import type { StoreWriter } from './store.js';
import { KIND, kindOf, NONE, ROOT, TreeIndex } from './tree-index.js';
import type { Watches } from './watches.js';

/** Why there is no state of what is there. Closed; the trace keeps it by name. */
export type UnrestorableCause =
  /** Things that no state can have, by what they are. */
  | 'fifo'
  | 'socket'
  | 'device'
  /** Another file system begins inside the root. */
  | 'mount'
  /** It is there and can't be read, or its path is longer than the system takes. */
  | 'unreadable'
  /** The root is not there any more, or is no directory. */
  | 'root-gone'
  /** Limits. */
  | 'entries-limit'
  | 'bytes-limit'
  | 'file-limit'
  | 'time-limit'
  /** Something kept changing while it was looked at, the server's processes stopped or not. */
  | 'changing'
  /** A process of the server may not be looked at, so what it has mapped is not known. */
  | 'process'
  /** The store could not be written. */
  | 'store'
  /** A system call failed in a way that nothing here expects. */
  | 'system';

export interface CaptureLimits {
  readonly entries: number;
  /** Of all files together, and of one; bytes. */
  readonly bytes: number;
  readonly fileBytes: number;
  /** Of the first capture and of `verify`, and of every other; milliseconds. */
  readonly firstMs: number;
  readonly captureMs: number;
}

/** A reason and what it is about. */
export interface Obstacle {
  readonly cause: UnrestorableCause;
  /** Absolute, raw bytes. */
  readonly path?: Buffer;
  readonly detail: string;
}

/** Ends a pass; what was to be done stays to be done. */
export class Obstructed extends Error {
  readonly obstacle: Obstacle;

  constructor(obstacle: Obstacle) {
    super(obstacle.detail);
    this.name = 'Obstructed';
    this.obstacle = obstacle;
  }
}

/** What a tracker is given; shared by the trackers of one capturer. */
export interface TrackerContext {
  readonly native: Native | undefined;
  readonly rules: IgnoreRules;
  readonly limits: CaptureLimits;
  /** Where contents go as they are read. */
  readonly writer: Pick<StoreWriter, 'add' | 'stream'>;
  /** Entries and bytes of all trackers together. */
  readonly totals: { entries: number; bytes: number };
  /** Undefined: nobody tells what changed, every capture looks at everything. */
  watches: Watches | undefined;
}

/** Something may have changed in a file although it looks the same: read it. */
const FORCE = 1;
/** It is among those to be looked at, or to be read. */
const LOOK = 2;
const READ = 4;
/** Seen while its directory was listed. */
const SEEN = 8;
const FIRM = FORCE | LOOK | READ;
/** A directory whose children are known, unless it is another than it was. */
const LISTED = 16;

/** Read in one piece up to this; bytes. */
const PIECE = 1024 * 1024;
/** So often a file is read again in one pass because it changed meanwhile. */
const MAX_READS = 2;
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const NAMED = IN.CREATE | IN.DELETE | IN.MOVED_FROM | IN.MOVED_TO;

/** What was known of a root before, all of which is to be looked at. */
export interface Known {
  readonly index: TreeIndex;
  /** Wall clock, nanoseconds: what changed later is to be read. */
  readonly since: bigint;
  /** Whether a content can still be had. */
  readonly has: (hash: Buffer) => boolean;
}

export class Tracker {
  /** Absolute, resolved. */
  readonly root: Buffer;
  readonly index: TreeIndex;
  readonly #context: TrackerContext;
  readonly #buffer: Buffer;
  #device = 0;

  #looks: number[] = [];
  #names: { readonly parent: number; readonly name: Buffer }[] = [];
  readonly #named = new Set<string>();
  #lists: number[] = [];
  #reads: number[] = [];
  /** Found changing while they were read. */
  #restless: number[] = [];
  /** There has been a state: what is new from now on was made while somebody looked. */
  #begun = false;
  /** Lists go down into directories that are known. */
  #deep = false;
  #links: { readonly dev: number; readonly ino: bigint }[] = [];
  /** Content of files that were taken out in this pass: a directory that was renamed is not read again. */
  readonly #left = new Map<string, { size: number; mtime: bigint; ctime: bigint; content: Buffer }>();

  /** What stands in the way, by entry. */
  readonly obstacles = new Map<number, { readonly cause: UnrestorableCause; readonly detail: string }>();
  /** Inodes with names outside of the root. */
  readonly outside = new Set<string>();
  /** Inodes that have or had several names: whoever writes to them need not use one that is watched. */
  readonly #watched = new Set<string>();
  /** Since the last state: entries that changed, as they were, undefined for new ones. */
  readonly #touched = new Map<number, Buffer | undefined>();
  /** Paths (each byte a character) that were taken out, as they were. */
  readonly #gone = new Map<string, Buffer>();
  /** Entries whose leaf is to be taken anew. */
  readonly #dirty = new Set<number>();
  /** Differences seen, and files read, ever. */
  found = 0;
  rehashed = 0;

  constructor(root: Buffer, context: TrackerContext, buffer: Buffer, known?: Known) {
    this.root = root;
    this.#context = context;
    this.#buffer = buffer;
    this.index = known?.index ?? new TreeIndex();
    if (known) this.#resume(known);
  }

  /** Bytes that the buffer shared by trackers has to have. */
  static readonly BUFFER = PIECE + 1;

  get pending(): boolean {
    return (
      this.#looks.length > 0 ||
      this.#names.length > 0 ||
      this.#lists.length > 0 ||
      this.#reads.length > 0 ||
      this.#restless.length > 0 ||
      this.#links.length > 0
    );
  }

  /** Whether anything is different from the last state, as far as was looked. */
  get changed(): boolean {
    return this.#touched.size > 0 || this.#gone.size > 0 || this.#dirty.size > 0;
  }

  #resume({ since, has }: Known): void {
    const { index } = this;
    const { totals } = this.#context;
    this.#begun = true;
    this.#device = index.dev[ROOT] as number;
    totals.entries += index.count;
    totals.bytes += this.bytes();
    for (const id of index.all()) {
      const kind = index.kind[id] as number;
      // What changed in the moment in which it was last looked at looks the same.
      const firm = (index.ctime[id] as bigint) < since;
      if (kind === KIND.DIR) {
        if (firm) this.#flag(id, LISTED);
        continue;
      }
      if ((index.nlink[id] as number) > 1)
        this.#links.push({ dev: index.dev[id] as number, ino: index.ino[id] as bigint });
      if (kind === KIND.FILE && !(firm && has(index.content(id)))) this.#flag(id, FORCE);
    }
    this.walk(false);
  }

  /** Of all files together. */
  bytes(): number {
    let bytes = 0;
    for (const id of this.index.all())
      if (this.index.kind[id] === KIND.FILE) bytes += this.index.size[id] as number;
    return bytes;
  }

  /** Looks at the root itself; the first time, begins. */
  lookAtRoot(): void {
    const stat = this.#stat(this.root);
    if (stat === undefined || kindOf(stat.mode) !== KIND.DIR)
      throw new Obstructed({ cause: 'root-gone', path: this.root, detail: 'the root is not there' });
    if (this.index.count === 0) {
      this.#device = stat.dev;
      this.#add(NONE, Buffer.alloc(0), KIND.DIR, stat, false);
      return;
    }
    if (stat.ino !== this.index.ino[ROOT] || stat.dev !== this.index.dev[ROOT])
      throw new Obstructed({
        cause: 'root-gone',
        path: this.root,
        detail: 'the root is another directory now',
      });
    this.#see(ROOT, stat);
  }

  /** Everything is to be looked at again; with `force` every file is to be read, whatever it looks like. */
  walk(force: boolean): void {
    if (this.index.count === 0) return;
    if (force) {
      for (const id of this.index.all()) this.index.flags[id] = (this.index.flags[id] as number) | FORCE;
    }
    this.#deep = true;
    this.#lists.push(ROOT);
    this.#look(ROOT);
  }

  /** An event of the entry's watch: of itself, or of `name` in it. */
  event(id: number, mask: number, name: Buffer): void {
    const { index } = this;
    const kind = index.kind[id];
    if (kind === KIND.FREE || kind === undefined) return;
    if (kind !== KIND.DIR) {
      for (const link of index.linksOf(id)) this.#force(link);
      return;
    }
    if (name.length === 0) {
      this.#look(id);
      return;
    }
    if (this.#context.rules.ignores(name, () => this.absolute(id))) {
      // It is not part of the state, but its directory's time is.
      if ((mask & NAMED) !== 0) this.#look(id);
      return;
    }
    if ((mask & NAMED) !== 0) this.#look(id);
    const child = index.child(id, name);
    if (child === NONE) this.#lookName(id, name);
    else if (index.kind[child] === KIND.DIR || index.kind[child] === KIND.OTHER) this.#look(child);
    else for (const link of index.linksOf(child)) this.#force(link);
  }

  /** A file that a process can write to: read again if it may be changing now, else looked at. */
  held(ino: bigint, force: boolean): void {
    for (const id of this.index.inode(undefined, ino)) {
      if (this.index.kind[id] !== KIND.FILE) continue;
      if (force) this.#force(id);
      else this.#look(id);
      // The name by which it was opened may be gone, and then what is written is told to the file's own watch only.
      this.#watchWriters(id);
    }
  }

  /** The watch on an entry has ended by itself: its inode is gone. Another may have come with its name and number. */
  lost(id: number): void {
    const { index } = this;
    const watch = index.watch[id] as number;
    index.watch[id] = NONE;
    if (index.kind[id] === KIND.FREE) return;
    if (index.kind[id] === KIND.DIR) {
      this.#look(id);
      this.#lists.push(id);
      return;
    }
    this.#watched.delete(this.#inodeKey(id));
    if ((index.nlink[id] as number) > 1) this.#linked(id);
    for (const link of index.linksOf(id)) {
      if (index.watch[link] === watch) index.watch[link] = NONE;
      this.#force(link);
    }
  }

  /**
   * Does what is to be done, until nothing is left but what changes faster than it can be read. Throws `Obstructed` at
   * a limit; what was to be done stays to be done.
   */
  settle(deadline: number): void {
    for (const id of this.#restless.splice(0)) this.#force(id);
    const reads = new Map<number, number>();
    for (;;) {
      this.#survey(deadline);
      this.#checkLimits();
      const id = this.#reads.at(-1);
      if (id === undefined) {
        if (!this.#settleLinks()) break;
        continue;
      }
      this.#checkTime(deadline);
      this.#reads.pop();
      this.#unflag(id, READ);
      if (this.index.kind[id] !== KIND.FILE) continue;
      const count = (reads.get(id) ?? 0) + 1;
      if (count > 1) reads.set(id, count);
      if (this.#read(id)) continue;
      reads.set(id, count);
      // It was another before it was read to its end.
      if (count < MAX_READS) this.#force(id);
      else this.#restless.push(id);
    }
    this.#deep = false;
    this.#left.clear();
  }

  /** Digest of the tree as it is known. Costs what changed since the last state. */
  digest(): Buffer {
    return this.index.digest(this.#dirty);
  }

  /** What changed since the last state, in order of paths; each path once. */
  changes(root: number): { changes: Change[]; counts: ChangeCounts } {
    const counts = { created: 0, modified: 0, deleted: 0, metadata: 0 };
    const changes: { key: string; change: Change }[] = [];
    const gone = new Map(this.#gone);
    for (const [id, known] of this.#touched) {
      if (this.index.kind[id] === KIND.FREE) continue;
      const entry = this.index.entry(id);
      const key = entry.path.toString('latin1');
      const before = known ?? gone.get(key);
      gone.delete(key);
      if (before?.equals(encode(entry)) === true) continue;
      changes.push({ key, change: { root, path: entry.path, entry } });
      counts[howDifferent(before, entry)]++;
    }
    for (const key of gone.keys()) {
      counts.deleted++;
      changes.push({ key, change: { root, path: Buffer.from(key, 'latin1'), entry: undefined } });
    }
    changes.sort((a, b) => (a.key < b.key ? -1 : 1));
    return { changes: changes.map(({ change }) => change), counts };
  }

  /** The state that was just kept is the last one. */
  kept(): void {
    this.#touched.clear();
    this.#gone.clear();
    this.#dirty.clear();
    this.#begun = true;
    this.index.reuse();
  }

  /** What was read since the last state did not get into the store: it is to be read again. */
  unkept(): void {
    for (const id of this.#touched.keys()) {
      if (this.index.kind[id] !== KIND.FILE) continue;
      this.index.content(id).fill(0);
      this.#force(id);
    }
  }

  absolute(id: number): Buffer {
    return joinPath(this.root, this.index.path(id));
  }

  // What is to be done.

  #flag(id: number, flag: number): boolean {
    const flags = this.index.flags[id] as number;
    this.index.flags[id] = flags | flag;
    return (flags & flag) === 0;
  }

  #unflag(id: number, flag: number): void {
    this.index.flags[id] = (this.index.flags[id] as number) & ~flag;
  }

  #look(id: number): void {
    if (this.#flag(id, LOOK)) this.#looks.push(id);
  }

  #force(id: number): void {
    this.#flag(id, FORCE);
    this.#look(id);
  }

  #lookName(parent: number, name: Buffer): void {
    const key = `${parent}/${name.toString('latin1')}`;
    if (this.#named.has(key)) return;
    this.#named.add(key);
    this.#names.push({ parent, name: Buffer.from(name) });
  }

  #queueRead(id: number): void {
    if (this.#flag(id, READ)) this.#reads.push(id);
  }

  // Looking.

  /** Looks at everything that is to be looked at; what is to be read is then known. */
  #survey(deadline: number): void {
    const { index } = this;
    for (let count = 0; ; count++) {
      if (count % 64 === 0) this.#checkTime(deadline);
      const id = this.#looks.pop();
      if (id !== undefined) {
        this.#unflag(id, LOOK);
        if (index.kind[id] !== KIND.FREE) this.#lookAt(id);
        continue;
      }
      const named = this.#names.pop();
      if (named) {
        this.#named.delete(`${named.parent}/${named.name.toString('latin1')}`);
        if (index.kind[named.parent] === KIND.DIR) this.#lookAtName(named.parent, named.name, true);
        continue;
      }
      const list = this.#lists.pop();
      if (list === undefined) return;
      if (index.kind[list] === KIND.DIR) this.#list(list);
    }
  }

  #lookAt(id: number): void {
    if (id === ROOT) {
      this.lookAtRoot();
      return;
    }
    const stat = this.#statIn(this.index.parent[id] as number, this.absolute(id));
    if (stat) this.#seeAs(id, stat, true);
    else if (stat === undefined) this.#remove(id);
  }

  /** `named`: an event named it, so what it looks like proves nothing. */
  #lookAtName(parent: number, name: Buffer, named: boolean): void {
    const id = this.index.child(parent, name);
    const stat = this.#statIn(parent, joinPath(this.absolute(parent), name));
    if (stat === null) return;
    if (stat === undefined) {
      if (id !== NONE) this.#remove(id);
    } else if (id === NONE) {
      this.#add(parent, Buffer.from(name), kindOf(stat.mode), stat, named);
    } else {
      if (named) this.#flag(id, FORCE);
      this.#seeAs(id, stat, named);
    }
  }

  /** As `#see`, for what may have become another thing altogether. */
  #seeAs(id: number, stat: Stat, named: boolean): void {
    const kind = kindOf(stat.mode);
    const known = this.index.kind[id];
    if (known === kind && (kind !== KIND.DIR || this.index.ino[id] === stat.ino)) {
      this.#see(id, stat);
      // It may have been known before anybody watched, or be watched no more.
      if (kind === KIND.FILE) this.#watchFile(id);
      return;
    }
    const parent = this.index.parent[id] as number;
    const name = Buffer.from(this.index.name(id));
    this.#remove(id);
    this.#add(parent, name, kind, stat, named);
  }

  #see(id: number, stat: Stat): void {
    const { index } = this;
    const kind = index.kind[id] as number;
    const forced = ((index.flags[id] as number) & FORCE) !== 0;
    const other = index.differs(id, stat);
    if (!other && !forced) return;
    if (other) {
      this.#touch(id);
      this.#unflag(id, LISTED);
      this.found++;
      const before = {
        ino: index.ino[id] as bigint,
        dev: index.dev[id] as number,
        nlink: index.nlink[id] as number,
      };
      if (kind === KIND.FILE) this.#context.totals.bytes += stat.size - (index.size[id] as number);
      const another = kind !== KIND.DIR && (before.ino !== stat.ino || before.dev !== stat.dev);
      // While it is still known as the inode that it was: another of its names may take the watch over.
      if (another) this.#unwatch(id);
      index.update(id, stat);
      if (kind !== KIND.DIR) {
        if (another) {
          if (index.inode(before.dev, before.ino).next().done === true)
            this.#watched.delete(`${before.dev}:${before.ino}`);
          if (before.nlink > 1) this.#links.push(before);
          this.#watchFile(id);
        }
        if (stat.nlink > 1 || before.nlink > 1) this.#linked(id);
      }
    }
    this.#readXattrs(id);
    if (kind === KIND.FILE) this.#queueRead(id);
    else {
      if (kind === KIND.LINK) this.#readTarget(id);
      // It may be readable now.
      if (kind === KIND.DIR && this.obstacles.get(id)?.cause === 'unreadable') this.#lists.push(id);
      this.#unflag(id, FORCE);
    }
  }

  #add(parent: number, name: Buffer, kind: number, stat: Stat, named: boolean): void {
    const { index } = this;
    const { totals, limits } = this.#context;
    if (totals.entries >= limits.entries)
      throw new Obstructed({
        cause: 'entries-limit',
        path: this.root,
        detail: `more than ${limits.entries} entries`,
      });
    totals.entries++;
    const id = index.add(parent, name, kind, stat);
    this.found++;
    this.#touched.set(id, undefined);
    this.#dirty.add(id);
    if (kind === KIND.OTHER) {
      this.obstacles.set(id, { cause: specialCause(stat.mode), detail: 'can not be part of a state' });
      return;
    }
    this.#readXattrs(id);
    if (kind === KIND.DIR) {
      if (stat.dev !== this.#device) {
        this.obstacles.set(id, { cause: 'mount', detail: 'another file system begins here' });
        return;
      }
      this.#lists.push(id);
      return;
    }
    if (stat.nlink > 1) this.#linked(id);
    if (kind === KIND.LINK) {
      this.#readTarget(id);
      return;
    }
    totals.bytes += stat.size;
    this.#watchFile(id);
    const content = named ? undefined : this.#leftContent(stat);
    if (content) index.setContent(id, content);
    else this.#queueRead(id);
  }

  #leftContent(stat: Stat): Buffer | undefined {
    const left = this.#left.get(`${stat.dev}:${stat.ino}`);
    return left?.size === stat.size && left.mtime === stat.mtime && left.ctime === stat.ctime
      ? left.content
      : undefined;
  }

  /** With all that is in it. */
  #remove(top: number): void {
    const { index } = this;
    const order: number[] = [];
    const stack = [top];
    for (let id = stack.pop(); id !== undefined; id = stack.pop()) {
      order.push(id);
      if (index.kind[id] === KIND.DIR) for (const child of index.childrenOf(id)) stack.push(child);
    }
    const parent = index.parent[top] as number;
    if (parent !== NONE) this.#dirty.add(parent);
    this.found++;
    for (const id of order.reverse()) this.#removeOne(id);
  }

  #removeOne(id: number): void {
    const { index } = this;
    const { totals } = this.#context;
    const kind = index.kind[id] as number;
    const isNew = this.#touched.has(id) && this.#touched.get(id) === undefined;
    if (!isNew && kind !== KIND.OTHER) {
      const key = index.path(id).toString('latin1');
      if (!this.#gone.has(key)) this.#gone.set(key, this.#touched.get(id) ?? encode(index.entry(id)));
    }
    this.#touched.delete(id);
    this.#dirty.delete(id);
    this.obstacles.delete(id);
    totals.entries--;
    if (kind === KIND.FILE) {
      totals.bytes -= index.size[id] as number;
      if (((index.flags[id] as number) & FIRM) === 0) {
        this.#left.set(this.#inodeKey(id), {
          size: index.size[id] as number,
          mtime: index.mtime[id] as bigint,
          ctime: index.ctime[id] as bigint,
          content: Buffer.from(index.content(id)),
        });
      }
    }
    if (kind !== KIND.DIR && (index.nlink[id] as number) > 1) this.#linked(id, true);
    this.#unwatch(id);
    const inode = this.#inodeKey(id);
    index.remove(id);
    // Its number may soon be another's, of whom nothing is known.
    if (kind === KIND.FILE && index.linksOf(id).next().done === true) this.#watched.delete(inode);
  }

  #list(id: number): void {
    const { index } = this;
    const path = this.absolute(id);
    if (!this.#watchDirectory(id, path)) return;
    if (this.#deep && this.#isListed(id, path)) {
      for (const child of index.childrenOf(id)) {
        this.#lookAt(child);
        if (index.kind[child] === KIND.DIR && !this.obstacles.has(child)) this.#lists.push(child);
      }
      return;
    }
    let names: Buffer[];
    try {
      names = readdirSync(path, { encoding: 'buffer' });
    } catch (error) {
      if (this.#unreadable(id, error)) return;
      throw error;
    }
    this.obstacles.delete(id);
    const { rules } = this.#context;
    for (const name of names) {
      if (!rules.none && rules.ignores(name, () => path)) continue;
      const known = index.child(id, name);
      this.#lookAtName(id, name, false);
      const child = index.child(id, name);
      if (child === NONE) continue;
      this.#flag(child, SEEN);
      // A new one is to be listed already.
      if (this.#deep && child === known && index.kind[child] === KIND.DIR && !this.obstacles.has(child))
        this.#lists.push(child);
    }
    for (const child of index.childrenOf(id)) {
      if (((index.flags[child] as number) & SEEN) === 0) this.#remove(child);
      else this.#unflag(child, SEEN);
    }
  }

  /** Looks at it once more, because from now on it is watched. */
  #isListed(id: number, path: Buffer): boolean {
    if (((this.index.flags[id] as number) & LISTED) === 0) return false;
    this.#unflag(id, LISTED);
    const stat = this.#stat(path);
    return stat !== undefined && !this.index.differs(id, stat);
  }

  // Contents.

  /** Reads a file into the store. False: it changed meanwhile. */
  #read(id: number): boolean {
    const { index } = this;
    const size = index.size[id] as number;
    if (size > this.#context.limits.fileBytes) {
      this.obstacles.set(id, { cause: 'file-limit', detail: `${size} bytes` });
      this.#unflag(id, FORCE);
      return true;
    }
    let fd: number;
    try {
      fd = openSync(this.absolute(id), READ_FLAGS);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // It is gone, or became a link or a socket: looking at it again will tell.
      if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP' || code === 'ENXIO') return false;
      if (this.#unreadable(id, error)) return true;
      throw error;
    }
    try {
      const content = this.#readContent(fd, size, index.content(id));
      const stat = fstatSync(fd, { bigint: true });
      this.rehashed++;
      if (
        content === undefined ||
        stat.ino !== index.ino[id] ||
        stat.mtimeNs !== index.mtime[id] ||
        stat.ctimeNs !== index.ctime[id] ||
        Number(stat.size) !== size
      )
        return false;
      this.obstacles.delete(id);
      this.#unflag(id, FORCE);
      if (content.equals(index.content(id))) return true;
      this.#touch(id);
      this.found++;
      index.setContent(id, content);
      return true;
    } finally {
      closeSync(fd);
    }
  }

  /** The hash of what is there; undefined: it is not as long as it was. */
  #readContent(fd: number, size: number, known: Buffer): Buffer | undefined {
    const buffer = this.#buffer;
    const { writer } = this.#context;
    if (size <= PIECE) {
      const length = readSome(fd, buffer, size + 1, 0);
      if (length !== size) return undefined;
      const bytes = buffer.subarray(0, size);
      const content = digestOf('sha256', bytes, 'buffer');
      writer.add(content, bytes);
      return content;
    }
    // Most of what is read again is the same: that is found out without writing it.
    if (!known.equals(NO_CONTENT)) {
      const digest = createHash('sha256');
      const read = this.#pieces(fd, size, (bytes) => digest.update(bytes));
      if (read !== size) return undefined;
      const content = digest.digest();
      if (content.equals(known)) return content;
    }
    const stream = writer.stream();
    return this.#pieces(fd, size, (bytes) => stream.push(bytes)) === size ? stream.end() : undefined;
  }

  /** How many bytes there were, from the beginning; stops beyond `size`. */
  #pieces(fd: number, size: number, take: (bytes: Buffer) => void): number {
    let read = 0;
    while (read <= size) {
      const length = readSome(fd, this.#buffer, PIECE, read);
      if (length === 0) break;
      read += length;
      take(this.#buffer.subarray(0, length));
    }
    return read;
  }

  #readTarget(id: number): void {
    try {
      const target = readlinkSync(this.absolute(id), { encoding: 'buffer' });
      if (this.index.target.get(id)?.equals(target) === true) return;
      this.#touch(id);
      this.index.target.set(id, target);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // Gone or something else: an event follows.
      if (code !== 'ENOENT' && code !== 'EINVAL' && code !== 'ENOTDIR') throw error;
      this.#restless.push(id);
    }
  }

  #readXattrs(id: number): void {
    const { native } = this.#context;
    if (!native) return;
    try {
      const xattrs = native.xattrs(this.absolute(id));
      const known = this.index.xattrs.get(id);
      if (xattrs.length === 0 && known === undefined) return;
      if (
        known?.length === xattrs.length &&
        known.every(([name, value], i) => xattrs[i]?.[0].equals(name) === true && xattrs[i][1].equals(value))
      )
        return;
      this.#touch(id);
      if (xattrs.length === 0) this.index.xattrs.delete(id);
      else this.index.xattrs.set(id, xattrs);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ENOTDIR') this.#restless.push(id);
      else if (!this.#unreadable(id, error)) throw error;
    }
  }

  // Hard links.

  /** Something with several names: the others are the same, and how many are inside may have changed. */
  #linked(id: number, gone = false): void {
    const { index } = this;
    for (const link of index.linksOf(id)) {
      const same =
        !gone &&
        index.ctime[link] === index.ctime[id] &&
        index.nlink[link] === index.nlink[id] &&
        index.size[link] === index.size[id];
      if (link !== id && !same) this.#look(link);
    }
    this.#links.push({ dev: index.dev[id] as number, ino: index.ino[id] as bigint });
  }

  /** Works out groups and watches what can be written to from outside. False: nothing was left to do. */
  #settleLinks(): boolean {
    if (this.#links.length === 0) return false;
    const { index } = this;
    const links = new Map(this.#links.map((each) => [`${each.dev}:${each.ino}`, each]));
    this.#links = [];
    for (const [key, { dev, ino }] of links) {
      const names = [...index.inode(dev, ino)];
      const first =
        names.length < 2
          ? undefined
          : names.map((id) => index.path(id)).sort((a, b) => Buffer.compare(a, b))[0];
      for (const id of names) {
        const group = index.linkGroup.get(id);
        if (group === first || (first && group?.equals(first) === true)) continue;
        this.#touch(id);
        if (first) index.linkGroup.set(id, first);
        else index.linkGroup.delete(id);
      }
      const [some] = names;
      if (some === undefined || (index.nlink[some] as number) <= names.length) this.outside.delete(key);
      else this.outside.add(key);
      if (some === undefined) this.#watched.delete(key);
      else if ((index.nlink[some] as number) > 1) this.#watchWriters(some);
    }
    return true;
  }

  // Watches.

  /** False: it is not there any more. */
  #watchDirectory(id: number, path: Buffer): boolean {
    const { watches } = this.#context;
    if (!watches || this.index.watch[id] !== NONE) return true;
    try {
      this.index.watch[id] = watches.directory(this, id, path);
      // It was looked at before it was watched: of what got into it in between, its own time tells, and nobody else.
      this.#look(id);
      return true;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') {
        if (id === ROOT) throw error;
        this.#look(id);
        return false;
      }
      if (this.#unreadable(id, error)) return false;
      throw error;
    }
  }

  /**
   * Of a file with one name: so that another is noticed. One that is new may have had another before it was seen, and
   * be open by it.
   */
  #watchFile(id: number): void {
    const { watches } = this.#context;
    if (watches?.files !== true || this.index.kind[id] !== KIND.FILE || this.index.watch[id] !== NONE) return;
    const watch = watches.file(this, id, this.absolute(id), this.#begun);
    if (watch !== undefined) this.index.watch[id] = watch;
  }

  /** Of a file that can be written to under a name that nobody watches. */
  #watchWriters(id: number): void {
    const { watches } = this.#context;
    const { index } = this;
    const key = this.#inodeKey(id);
    if (!watches || index.kind[id] !== KIND.FILE || this.#watched.has(key)) return;
    for (const link of index.linksOf(id)) {
      const path = this.absolute(link);
      const ino = index.ino[link];
      // Of its names some may have gone, or be another file's, of which nobody has looked yet.
      const watch = watches.linkedFile(this, link, path, () => this.#stat(path)?.ino === ino);
      if (watch === undefined) continue;
      index.watch[link] = watch;
      this.#watched.add(key);
      break;
    }
    // Before the watch was there it may have been written to.
    for (const link of index.linksOf(id)) this.#force(link);
  }

  #inodeKey(id: number): string {
    return `${this.index.dev[id]}:${this.index.ino[id]}`;
  }

  #unwatch(id: number): void {
    const watch = this.index.watch[id] as number;
    if (watch === NONE) return;
    this.index.watch[id] = NONE;
    this.#context.watches?.leave(watch, this, id);
  }

  // What changed.

  /** Before it is changed: how it was in the last state. */
  #touch(id: number): void {
    this.#dirty.add(id);
    if (this.#touched.has(id)) return;
    this.#touched.set(id, this.index.kind[id] === KIND.OTHER ? undefined : encode(this.index.entry(id)));
  }

  #stat(path: Buffer): Stat | undefined {
    const { native } = this.#context;
    return native ? native.lstatIfThere(path) : plainLstat(path, false);
  }

  /** Null: it can't be looked at, which is then the directory's obstacle. */
  #statIn(parent: number, path: Buffer): Stat | undefined | null {
    try {
      return this.#stat(path);
    } catch (error) {
      if (this.#unreadable(parent, error)) return null;
      throw error;
    }
  }

  /** Whether the error is one of those that make an entry an obstacle. */
  #unreadable(id: number, error: unknown): boolean {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== 'EACCES' && code !== 'EPERM' && code !== 'ENAMETOOLONG' && code !== 'EIO') return false;
    this.obstacles.set(id, { cause: 'unreadable', detail: message });
    return true;
  }

  #checkTime(deadline: number): void {
    if (performance.now() > deadline)
      throw new Obstructed({
        cause: 'time-limit',
        path: this.root,
        detail: 'there was no time to look at everything',
      });
  }

  #checkLimits(): void {
    const { totals, limits } = this.#context;
    if (totals.bytes > limits.bytes)
      throw new Obstructed({ cause: 'bytes-limit', path: this.root, detail: `${totals.bytes} bytes` });
  }
}

export interface ChangeCounts {
  created: number;
  /** Content, size, target or type. */
  modified: number;
  deleted: number;
  /** Anything else: mode, owner, time, attributes, links. */
  metadata: number;
}

/** An entry's canonical bytes. */
function encode(entry: Entry): Buffer {
  const bytes = Buffer.allocUnsafe(entrySize(entry));
  writeEntry(entry, bytes);
  return bytes;
}

const NO_PATH = Buffer.alloc(0);
const NO_CONTENT = Buffer.alloc(DIGEST_BYTES);

/** What a change is counted as; `before` are an entry's canonical bytes. */
function howDifferent(before: Buffer | undefined, entry: Entry): keyof ChangeCounts {
  if (before === undefined) return 'created';
  const { entry: old } = readEntry(NO_PATH, before);
  const same =
    old.type === entry.type &&
    (old.content ?? NO_CONTENT).equals(entry.content ?? NO_CONTENT) &&
    (old.target ?? NO_PATH).equals(entry.target ?? NO_PATH);
  return same ? 'metadata' : 'modified';
}

/** Reads until there is no more, or `most` bytes. */
function readSome(fd: number, into: Buffer, most: number, position: number): number {
  let length = 0;
  while (length < most) {
    const count = readSync(fd, into, length, most - length, position + length);
    if (count === 0) break;
    length += count;
  }
  return length;
}

const [S_IFMT, S_IFIFO, S_IFSOCK] = [0o170000, 0o010000, 0o140000];

function specialCause(mode: number): UnrestorableCause {
  const format = mode & S_IFMT;
  if (format === S_IFIFO) return 'fifo';
  return format === S_IFSOCK ? 'socket' : 'device';
}
