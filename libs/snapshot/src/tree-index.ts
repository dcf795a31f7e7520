/**
 * What is known of one root's tree, in flat memory: a number per entry and an array per field, some 180 bytes of each
 * entry, where objects would take a kilobyte. Numbers of removed entries are given out again only after `reuse()`.
 */

import { DIGEST_BYTES, type Entry, entryDigest, type EntryType, leafDigest, LeafSet } from './manifest.js';
import type { Stat, Xattr } from './native.js';

export const NONE = -1;
/** The root's number. */
export const ROOT = 0;

/** Kinds of entries; OTHER has no place in a state. FREE: there is none with this number. */
export const KIND = { FREE: 0, FILE: 1, DIR: 2, LINK: 3, OTHER: 4 } as const;
const TYPES: readonly (EntryType | undefined)[] = [undefined, 'file', 'dir', 'link', undefined];

const [S_IFMT, S_IFREG, S_IFDIR, S_IFLNK] = [0o170000, 0o100000, 0o040000, 0o120000];

export function kindOf(mode: number): number {
  const format = mode & S_IFMT;
  if (format === S_IFREG) return KIND.FILE;
  if (format === S_IFDIR) return KIND.DIR;
  return format === S_IFLNK ? KIND.LINK : KIND.OTHER;
}

type TypedArray =
  Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array | BigInt64Array | BigUint64Array;

/** The arrays, by name, as they are kept in an index file too. */
const COLUMNS = [
  ['kind', Uint8Array],
  ['flags', Uint8Array],
  ['leafed', Uint8Array],
  ['mode', Uint16Array],
  ['nameLength', Uint16Array],
  ['nameAt', Uint32Array],
  ['uid', Uint32Array],
  ['gid', Uint32Array],
  ['nlink', Uint32Array],
  ['parent', Int32Array],
  ['firstChild', Int32Array],
  ['next', Int32Array],
  ['previous', Int32Array],
  ['children', Int32Array],
  ['watch', Int32Array],
  ['sameName', Int32Array],
  ['sameIno', Int32Array],
  ['dev', Float64Array],
  ['size', Float64Array],
  ['mtime', BigInt64Array],
  ['ctime', BigInt64Array],
  ['ino', BigUint64Array],
] as const;

/** What an index file keeps; the rest is worked out or begins anew. */
export const KEPT_COLUMNS = COLUMNS.filter(
  ([name]) => !['flags', 'watch', 'sameName', 'sameIno'].includes(name),
);

const NO_NAME = Buffer.alloc(0);

export class TreeIndex {
  kind = new Uint8Array(64);
  /** For the owner's use. */
  flags = new Uint8Array(64);
  /** Whether its leaf is set. */
  leafed = new Uint8Array(64);
  mode = new Uint16Array(64);
  uid = new Uint32Array(64);
  gid = new Uint32Array(64);
  nlink = new Uint32Array(64);
  parent = new Int32Array(64);
  /** How many children a directory has. */
  children = new Int32Array(64);
  /** Descriptor of the watch on it, or NONE. */
  watch = new Int32Array(64);
  dev = new Float64Array(64);
  size = new Float64Array(64);
  mtime = new BigInt64Array(64);
  ctime = new BigInt64Array(64);
  ino = new BigUint64Array(64);
  readonly target = new Map<number, Buffer>();
  readonly xattrs = new Map<number, readonly Xattr[]>();
  readonly linkGroup = new Map<number, Buffer>();

  nameAt = new Uint32Array(64);
  nameLength = new Uint16Array(64);
  firstChild = new Int32Array(64);
  next = new Int32Array(64);
  previous = new Int32Array(64);
  sameName = new Int32Array(64);
  sameIno = new Int32Array(64);
  /** SHA-256 of each file's content, and each entry's leaf. */
  contents = Buffer.alloc(64 * DIGEST_BYTES);
  leaves = Buffer.alloc(64 * DIGEST_BYTES);
  names = Buffer.alloc(4096);
  namesEnd = 0;
  /** Numbers given out so far. */
  end = 0;
  /** Entries there are. */
  count = 0;
  #byName = new Int32Array(128).fill(NONE);
  #byIno = new Int32Array(128).fill(NONE);
  #removed: number[] = [];
  #free: number[] = [];
  readonly #sets = new Map<number, LeafSet>();

  /** Room for so many entries; it grows. */
  constructor(capacity = 64) {
    if (capacity > 64) this.#grow(capacity);
  }

  /** The columns, contents, leaves, names and extras were filled in from where they were kept. */
  restore(end: number, namesEnd: number): void {
    this.end = end;
    this.namesEnd = namesEnd;
    this.watch.fill(NONE);
    this.count = 0;
    for (let id = 0; id < end; id++) {
      if (this.kind[id] === KIND.FREE) this.#free.push(id);
      else this.count++;
    }
    this.#rehash(this.kind.length * 2);
  }

  /** The name of an entry, a view; the root's is empty. */
  name(id: number): Buffer {
    const at = this.nameAt[id] as number;
    return this.names.subarray(at, at + (this.nameLength[id] as number));
  }

  /** Relative to the root. */
  path(id: number): Buffer {
    if (id === ROOT) return NO_NAME;
    let length = -1;
    for (let at = id; at !== ROOT; at = this.parent[at] as number)
      length += 1 + (this.nameLength[at] as number);
    const path = Buffer.allocUnsafe(length);
    for (let at = id, end = length; at !== ROOT; at = this.parent[at] as number) {
      const size = this.nameLength[at] as number;
      const start = this.nameAt[at] as number;
      this.names.copy(path, end - size, start, start + size);
      end -= size + 1;
      if (end >= 0) path[end] = 0x2f;
    }
    return path;
  }

  child(parent: number, name: Buffer): number {
    for (
      let id = this.#byName[this.#nameSlot(parent, name)] as number;
      id !== NONE;
      id = this.sameName[id] as number
    ) {
      if (this.parent[id] !== parent || this.nameLength[id] !== name.length) continue;
      const at = this.nameAt[id] as number;
      if (name.compare(this.names, at, at + name.length) === 0) return id;
    }
    return NONE;
  }

  *childrenOf(id: number): Generator<number> {
    for (let at = this.firstChild[id] as number; at !== NONE;) {
      const next = this.next[at] as number;
      yield at;
      at = next;
    }
  }

  /** Every entry's number. */
  *all(): Generator<number> {
    for (let id = 0; id < this.end; id++) if (this.kind[id] !== KIND.FREE) yield id;
  }

  /** All names of the inode that an entry is, itself among them. */
  *linksOf(id: number): Generator<number> {
    yield* this.inode(this.dev[id], this.ino[id] as bigint);
  }

  /** All entries, directories excepted, that are this inode. `dev` undefined: on any device. */
  *inode(dev: number | undefined, ino: bigint): Generator<number> {
    for (let id = this.#byIno[this.#inoSlot(ino)] as number; id !== NONE;) {
      const next = this.sameIno[id] as number;
      if (this.ino[id] === ino && (dev === undefined || this.dev[id] === dev)) yield id;
      id = next;
    }
  }

  /** A new entry; the first is the root and has no parent. Its content is to be set. */
  add(parent: number, name: Buffer, kind: number, stat: Stat): number {
    const id = this.#free.pop() ?? this.end++;
    if (id >= this.kind.length) this.#grow(this.kind.length * 2);
    if (this.namesEnd + name.length > this.names.length) this.#growNames(name.length);
    this.nameAt[id] = this.namesEnd;
    this.nameLength[id] = name.length;
    this.namesEnd += name.copy(this.names, this.namesEnd);
    this.kind[id] = kind;
    this.flags[id] = 0;
    this.leafed[id] = 0;
    this.parent[id] = parent;
    this.firstChild[id] = NONE;
    this.previous[id] = NONE;
    this.next[id] = NONE;
    this.children[id] = 0;
    this.watch[id] = NONE;
    this.count++;
    if (parent !== NONE) {
      const first = this.firstChild[parent] as number;
      this.next[id] = first;
      if (first !== NONE) this.previous[first] = id;
      this.firstChild[parent] = id;
      this.children[parent] = (this.children[parent] as number) + 1;
      const slot = this.#nameSlot(parent, name);
      this.sameName[id] = this.#byName[slot] as number;
      this.#byName[slot] = id;
    }
    this.#setStat(id, stat);
    if (kind !== KIND.DIR) this.#linkIno(id);
    return id;
  }

  /** Whether what was seen of an entry is not what is known, even if no state says so. */
  differs(id: number, stat: Stat): boolean {
    return (
      this.ctime[id] !== stat.ctime ||
      this.mtime[id] !== stat.mtime ||
      this.size[id] !== stat.size ||
      this.ino[id] !== stat.ino ||
      this.dev[id] !== stat.dev ||
      this.mode[id] !== (stat.mode & 0o7777) ||
      this.uid[id] !== stat.uid ||
      this.gid[id] !== stat.gid ||
      this.nlink[id] !== stat.nlink
    );
  }

  /** Takes over what was seen of an entry of the same kind. */
  update(id: number, stat: Stat): void {
    const moved = this.kind[id] !== KIND.DIR && this.ino[id] !== stat.ino;
    if (moved) this.#unlinkIno(id);
    this.#setStat(id, stat);
    if (moved) this.#linkIno(id);
  }

  /** Takes one entry without children out. Its number and fields stay readable until `reuse`. */
  remove(id: number): void {
    const parent = this.parent[id] as number;
    if (this.kind[id] !== KIND.DIR) this.#unlinkIno(id);
    if (parent !== NONE) {
      if (this.leafed[id] === 1) this.#sets.get(parent)?.remove(this.leaf(id));
      const [previous, next] = [this.previous[id] as number, this.next[id] as number];
      if (previous === NONE) this.firstChild[parent] = next;
      else this.next[previous] = next;
      if (next !== NONE) this.previous[next] = previous;
      this.children[parent] = (this.children[parent] as number) - 1;
      this.#unlinkName(id, parent);
    }
    this.#sets.delete(id);
    this.target.delete(id);
    this.xattrs.delete(id);
    this.linkGroup.delete(id);
    this.kind[id] = KIND.FREE;
    this.count--;
    this.#removed.push(id);
  }

  /** Numbers of removed entries may be given out again from now on. */
  reuse(): void {
    for (const id of this.#removed) this.#free.push(id);
    this.#removed = [];
  }

  content(id: number): Buffer {
    return this.contents.subarray(id * DIGEST_BYTES, (id + 1) * DIGEST_BYTES);
  }

  setContent(id: number, hash: Buffer): void {
    hash.copy(this.contents, id * DIGEST_BYTES);
  }

  leaf(id: number): Buffer {
    return this.leaves.subarray(id * DIGEST_BYTES, (id + 1) * DIGEST_BYTES);
  }

  /** The entry as a state has it. Its buffers are its own, but for those that never change. */
  entry(id: number): Entry {
    const kind = this.kind[id] as number;
    const linkGroup = this.linkGroup.get(id);
    const xattrs = this.xattrs.get(id);
    return {
      path: this.path(id),
      type: TYPES[kind] as EntryType,
      mode: this.mode[id] as number,
      uid: this.uid[id] as number,
      gid: this.gid[id] as number,
      mtime: this.mtime[id] as bigint,
      ...(kind === KIND.FILE
        ? { size: this.size[id] as number, content: Buffer.from(this.content(id)) }
        : {}),
      ...(kind === KIND.LINK ? { target: this.target.get(id) ?? NO_NAME } : {}),
      ...(linkGroup ? { linkGroup } : {}),
      ...(xattrs ? { xattrs } : {}),
    };
  }

  /** All entries, each directory before what is in it, brothers together. */
  *entries(): Generator<Entry> {
    const stack = [ROOT];
    for (let id = stack.pop(); id !== undefined; id = stack.pop()) {
      yield this.entry(id);
      if (this.kind[id] === KIND.DIR) for (const child of this.childrenOf(id)) stack.push(child);
    }
  }

  /** Digest of the tree, after the entries in `changed` became others, or others were taken out of those directories. */
  digest(changed: Iterable<number>): Buffer {
    const levels: Set<number>[] = [];
    for (const id of changed) {
      if (this.kind[id] === KIND.FREE) continue;
      const depth = this.#depth(id);
      while (levels.length <= depth) levels.push(new Set());
      levels[depth]?.add(id);
    }
    let tree: Buffer | undefined;
    // Deepest first: what changes below is known when a directory's turn comes.
    for (let depth = levels.length - 1; depth >= 0; depth--) {
      for (const id of levels[depth] as Set<number>) {
        const children = this.kind[id] === KIND.DIR ? this.#leavesDigest(id) : undefined;
        const digest = entryDigest(this.entry(id), children);
        if (id === ROOT) {
          tree = digest;
          continue;
        }
        this.#setLeaf(id, leafDigest(this.name(id), digest));
        levels[depth - 1]?.add(this.parent[id] as number);
      }
    }
    return tree ?? entryDigest(this.entry(ROOT), this.#leavesDigest(ROOT));
  }

  #depth(id: number): number {
    let depth = 0;
    for (let at = id; at !== ROOT; at = this.parent[at] as number) depth++;
    return depth;
  }

  #setLeaf(id: number, leaf: Buffer): void {
    const set = this.#sets.get(this.parent[id] as number);
    if (set) {
      if (this.leafed[id] === 1) set.remove(this.leaf(id));
      set.add(Buffer.from(leaf));
    }
    leaf.copy(this.leaves, id * DIGEST_BYTES);
    this.leafed[id] = 1;
  }

  #leavesDigest(id: number): Buffer {
    const known = this.#sets.get(id);
    if (known) return known.digest();
    // The set of a small directory is made anew each time; a large one's is kept, with leaves of its own.
    const keep = (this.children[id] as number) > LARGE;
    const leaves: Buffer[] = [];
    for (const child of this.childrenOf(id))
      leaves.push(keep ? Buffer.from(this.leaf(child)) : this.leaf(child));
    const set = LeafSet.of(leaves);
    if (keep) this.#sets.set(id, set);
    return set.digest();
  }

  #setStat(id: number, stat: Stat): void {
    this.mode[id] = stat.mode & 0o7777;
    this.uid[id] = stat.uid;
    this.gid[id] = stat.gid;
    this.nlink[id] = stat.nlink;
    this.dev[id] = stat.dev;
    this.size[id] = stat.size;
    this.mtime[id] = stat.mtime;
    this.ctime[id] = stat.ctime;
    this.ino[id] = stat.ino;
  }

  #nameSlot(parent: number, name: Buffer): number {
    let hash = Math.imul(parent + 1, 0x9e3779b1) ^ name.length;
    for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ (name[i] as number), 0x01000193);
    hash ^= hash >>> 15;
    return hash & (this.#byName.length - 1);
  }

  #unlinkName(id: number, parent: number): void {
    const slot = this.#nameSlot(parent, this.name(id));
    const after = this.sameName[id] as number;
    let at = this.#byName[slot] as number;
    if (at === id) {
      this.#byName[slot] = after;
      return;
    }
    while ((this.sameName[at] as number) !== id) at = this.sameName[at] as number;
    this.sameName[at] = after;
  }

  #inoSlot(ino: bigint): number {
    return Number(BigInt.asUintN(31, ino ^ (ino >> 31n))) & (this.#byIno.length - 1);
  }

  #linkIno(id: number): void {
    const slot = this.#inoSlot(this.ino[id] as bigint);
    this.sameIno[id] = this.#byIno[slot] as number;
    this.#byIno[slot] = id;
  }

  #unlinkIno(id: number): void {
    const slot = this.#inoSlot(this.ino[id] as bigint);
    const after = this.sameIno[id] as number;
    let at = this.#byIno[slot] as number;
    if (at === id) {
      this.#byIno[slot] = after;
      return;
    }
    while ((this.sameIno[at] as number) !== id) at = this.sameIno[at] as number;
    this.sameIno[at] = after;
  }

  #grow(capacity: number): void {
    const fields = this as unknown as Record<string, TypedArray>;
    for (const [name, Kind] of COLUMNS) {
      const larger = new Kind(capacity);
      (larger as Uint8Array).set(fields[name] as Uint8Array);
      fields[name] = larger;
    }
    for (const name of ['contents', 'leaves'] as const) {
      const larger = Buffer.alloc(capacity * DIGEST_BYTES);
      this[name].copy(larger);
      this[name] = larger;
    }
    this.#rehash(capacity * 2);
  }

  #rehash(wanted: number): void {
    const slots = 2 ** Math.ceil(Math.log2(wanted));
    this.#byName = new Int32Array(slots).fill(NONE);
    this.#byIno = new Int32Array(slots).fill(NONE);
    for (let id = 0; id < this.end; id++) {
      if (this.kind[id] === KIND.FREE) continue;
      if (id !== ROOT) {
        const slot = this.#nameSlot(this.parent[id] as number, this.name(id));
        this.sameName[id] = this.#byName[slot] as number;
        this.#byName[slot] = id;
      }
      if (this.kind[id] !== KIND.DIR) this.#linkIno(id);
    }
  }

  /** Names of removed entries are left behind here. */
  #growNames(needed: number): void {
    // Those that were removed a moment ago may still be asked for their names.
    const kept = [...this.all(), ...this.#removed];
    const used = kept.reduce((sum, id) => sum + (this.nameLength[id] as number), needed);
    const names = Buffer.alloc(used * 2);
    let end = 0;
    for (const id of kept) {
      const at = this.nameAt[id] as number;
      this.nameAt[id] = end;
      end += this.names.copy(names, end, at, at + (this.nameLength[id] as number));
    }
    this.names = names;
    this.namesEnd = end;
  }
}

/** Directories with more children than this keep the set of their leaves. */
const LARGE = 64;
