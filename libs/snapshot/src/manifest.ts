/**
 * What a state is, and its digest. `FORMAT.md` decides the bytes; this file is the only place that makes them.
 */

import { hash } from 'node:crypto';
import { SnapshotError } from './error.js';
import type { Xattr } from './native.js';

export type EntryType = 'file' | 'dir' | 'link';

/** One thing in a tree. Fields that do not apply are absent. */
export interface Entry {
  /** Relative to the root, joined with '/', raw bytes; the root itself is empty. */
  readonly path: Buffer;
  readonly type: EntryType;
  /** The twelve bits 0o7777. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Nanoseconds since 1970. */
  readonly mtime: bigint;
  /** Files: bytes, and SHA-256 of them (32 bytes). */
  readonly size?: number;
  readonly content?: Buffer;
  /** Links: where they point, raw bytes. */
  readonly target?: Buffer;
  /** Where two or more names in the same root are one inode: the first of their paths, on each of them. */
  readonly linkGroup?: Buffer;
  /** In order of the names' bytes; absent when there are none. */
  readonly xattrs?: readonly Xattr[];
}

/**
 * What was not observed, by name. The first four are never observed by anyone; `ownership`: restored only by root;
 * `xattrs` and `mtime-below-microseconds`: captured without koffi; `outside-links`: a file of the state has a name
 * outside of it; `late-outside-links`: such a name that is given later is not noticed, because there are too many files; `git-common-dir`: a linked worktree's repository lies outside of the roots.
 */
export type Gap =
  | 'atime'
  | 'birthtime'
  | 'ctime'
  | 'inode'
  | 'ownership'
  | 'xattrs'
  | 'mtime-below-microseconds'
  | 'outside-links'
  | 'late-outside-links'
  | 'git-common-dir';

const GAPS: ReadonlySet<string> = new Set<Gap>([
  'atime',
  'birthtime',
  'ctime',
  'inode',
  'ownership',
  'xattrs',
  'mtime-below-microseconds',
  'outside-links',
  'late-outside-links',
  'git-common-dir',
]);

const isGap = (text: string): text is Gap => GAPS.has(text);

export interface StateRoot {
  /** Absolute, raw bytes, no '/' at the end. */
  readonly path: Buffer;
  /** Digest of the tree: of its root's entry, 32 bytes. */
  readonly tree: Buffer;
}

/** What a state digest is taken of. */
export interface State {
  /** In order of their paths' bytes; at least one. */
  readonly roots: readonly StateRoot[];
  /** The ignore rules that were in force, as given, in order of their bytes. */
  readonly ignored: readonly string[];
  readonly gaps: readonly Gap[];
}

/** Length of every digest in here, bytes. */
export const DIGEST_BYTES = 32;
/** So many hashes are digested as they are; more are divided by their next four bits. */
const SET_MAX = 64;

const [ENTRY, LEAF, SET, SPLIT, STATE] = [0, 1, 2, 3, 4];
const TYPES: readonly (EntryType | undefined)[] = [undefined, 'file', 'dir', 'link'];
const NO_BYTES = Buffer.alloc(0);

const sha256 = (bytes: Uint8Array): Buffer => hash('sha256', bytes, 'buffer');

/** `sha256:<hex>` */
export const formatDigest = (digest: Buffer): string => `sha256:${digest.toString('hex')}`;

/** The 32 bytes of `sha256:<hex>`. Throws `malformed`. */
export function parseDigest(text: string): Buffer {
  if (!/^sha256:[0-9a-f]{64}$/.test(text)) throw new SnapshotError('malformed', `no state digest: ${text}`);
  return Buffer.from(text.slice(7), 'hex');
}

/** Bytes that `writeEntry` writes. */
export function entrySize(entry: Entry): number {
  let size = 25 + (entry.linkGroup?.length ?? 0);
  for (const [name, value] of entry.xattrs ?? []) size += 6 + name.length + value.length;
  if (entry.type === 'file') size += 8 + DIGEST_BYTES;
  else if (entry.type === 'link') size += 4 + (entry.target?.length ?? 0);
  return size;
}

/** Writes an entry without its path (`FORMAT.md`, Entry); returns where it ends. */
export function writeEntry(entry: Entry, into: Buffer, start = 0): number {
  let at = into.writeUInt8(TYPES.indexOf(entry.type), start);
  at = into.writeUInt16BE(entry.mode, at);
  at = into.writeUInt32BE(entry.uid, at);
  at = into.writeUInt32BE(entry.gid, at);
  at = into.writeBigInt64BE(entry.mtime, at);
  const xattrs = entry.xattrs ?? [];
  at = into.writeUInt16BE(xattrs.length, at);
  for (const [name, value] of xattrs) {
    at = into.writeUInt16BE(name.length, at);
    at += name.copy(into, at);
    at = into.writeUInt32BE(value.length, at);
    at += value.copy(into, at);
  }
  const group = entry.linkGroup ?? NO_BYTES;
  at = into.writeUInt32BE(group.length, at);
  at += group.copy(into, at);
  if (entry.type === 'file') {
    at = into.writeBigUInt64BE(BigInt(entry.size ?? 0), at);
    at += (entry.content ?? NO_BYTES).copy(into, at);
  } else if (entry.type === 'link') {
    const target = entry.target ?? NO_BYTES;
    at = into.writeUInt32BE(target.length, at);
    at += target.copy(into, at);
  }
  return at;
}

/** Reads what `writeEntry` wrote: the entry, and where it ends. Throws `malformed`. */
export function readEntry(path: Buffer, from: Buffer, start = 0): { entry: Entry; end: number } {
  try {
    const reader = new Reader(from, start);
    const type = TYPES[reader.u8()];
    if (type === undefined) throw new RangeError('unknown type');
    const mode = reader.u16();
    const uid = reader.u32();
    const gid = reader.u32();
    const mtime = reader.i64();
    const xattrs: Xattr[] = [];
    for (let left = reader.u16(); left > 0; left--)
      xattrs.push([reader.bytes(reader.u16()), reader.bytes(reader.u32())]);
    const group = reader.bytes(reader.u32());
    const entry: Entry = {
      path,
      type,
      mode,
      uid,
      gid,
      mtime,
      ...(type === 'file' ? { size: reader.size(), content: reader.bytes(DIGEST_BYTES) } : {}),
      ...(type === 'link' ? { target: reader.bytes(reader.u32()) } : {}),
      ...(group.length > 0 ? { linkGroup: group } : {}),
      ...(xattrs.length > 0 ? { xattrs } : {}),
    };
    return { entry, end: reader.at };
  } catch (error) {
    if (error instanceof RangeError) throw new SnapshotError('malformed', `entry: ${error.message}`);
    throw error;
  }
}

/** Reads big-endian numbers and byte strings; throws RangeError before it reads past the end. */
export class Reader {
  readonly #from: Buffer;
  at: number;

  constructor(from: Buffer, at = 0) {
    this.#from = from;
    this.at = at;
  }

  get left(): number {
    return this.#from.length - this.at;
  }

  u8(): number {
    return this.#from.readUInt8(this.#take(1));
  }

  u16(): number {
    return this.#from.readUInt16BE(this.#take(2));
  }

  u32(): number {
    return this.#from.readUInt32BE(this.#take(4));
  }

  i64(): bigint {
    return this.#from.readBigInt64BE(this.#take(8));
  }

  /** A u64 that a double holds. */
  size(): number {
    const size = this.#from.readBigUInt64BE(this.#take(8));
    if (size > BigInt(Number.MAX_SAFE_INTEGER)) throw new RangeError('size out of range');
    return Number(size);
  }

  /** A view, not a copy. */
  bytes(length: number): Buffer {
    const start = this.#take(length);
    return this.#from.subarray(start, start + length);
  }

  #take(length: number): number {
    const start = this.at;
    if (length > this.#from.length - start) throw new RangeError('ends early');
    this.at = start + length;
    return start;
  }
}

/** Digest of an entry; of a directory with the digest of its children's leaves. */
export function entryDigest(entry: Entry, children?: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(1 + entrySize(entry) + (children?.length ?? 0));
  bytes[0] = ENTRY;
  const end = writeEntry(entry, bytes, 1);
  children?.copy(bytes, end);
  return sha256(bytes);
}

/** What a directory holds of a child: its name under its digest. */
export function leafDigest(name: Buffer, digest: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(1 + name.length + DIGEST_BYTES);
  bytes[0] = LEAF;
  name.copy(bytes, 1);
  digest.copy(bytes, 1 + name.length);
  return sha256(bytes);
}

/** Digest of at most `SET_MAX` leaves in order of their bytes. */
function smallSetDigest(sorted: readonly Buffer[]): Buffer {
  const bytes = Buffer.allocUnsafe(1 + sorted.length * DIGEST_BYTES);
  bytes[0] = SET;
  sorted.forEach((leaf, i) => leaf.copy(bytes, 1 + i * DIGEST_BYTES));
  return sha256(bytes);
}

const EMPTY_SET = smallSetDigest([]);

/** The `depth`th four bits of a hash. */
const nibble = (leaf: Buffer, depth: number): number => {
  const byte = leaf[depth >> 1] as number;
  return depth % 2 === 0 ? byte >> 4 : byte & 15;
};

/**
 * A set of different leaves whose digest is a function of the set alone, and costs O(log n) hashes after a change.
 * Owned by one directory of an index.
 */
export class LeafSet {
  #root: SetNode = { count: 0, leaves: [], digest: EMPTY_SET };

  get size(): number {
    return this.#root.count;
  }

  add(leaf: Buffer): void {
    this.#root = add(this.#root, leaf, 0);
  }

  /** False: it was not there. */
  remove(leaf: Buffer): boolean {
    const before = this.#root.count;
    this.#root = remove(this.#root, leaf, 0);
    return this.#root.count < before;
  }

  digest(): Buffer {
    return digestOf(this.#root);
  }

  static of(leaves: Iterable<Buffer>): LeafSet {
    const set = new LeafSet();
    set.#root = divide([...leaves], 0);
    return set;
  }
}

/** Either leaves, in order, or sixteen children. A missing digest is to be taken again. */
interface SetNode {
  count: number;
  leaves?: Buffer[] | undefined;
  children?: SetNode[] | undefined;
  digest?: Buffer | undefined;
}

function divide(leaves: Buffer[], depth: number): SetNode {
  if (leaves.length <= SET_MAX)
    return { count: leaves.length, leaves: leaves.sort((a, b) => Buffer.compare(a, b)) };
  const parts: Buffer[][] = Array.from({ length: 16 }, () => []);
  for (const leaf of leaves) parts[nibble(leaf, depth)]?.push(leaf);
  return { count: leaves.length, children: parts.map((part) => divide(part, depth + 1)) };
}

function add(node: SetNode, leaf: Buffer, depth: number): SetNode {
  node.digest = undefined;
  node.count++;
  if (node.children) {
    const at = nibble(leaf, depth);
    node.children[at] = add(node.children[at] as SetNode, leaf, depth + 1);
    return node;
  }
  const leaves = node.leaves as Buffer[];
  leaves.splice(position(leaves, leaf), 0, leaf);
  return leaves.length > SET_MAX ? divide(leaves, depth) : node;
}

function remove(node: SetNode, leaf: Buffer, depth: number): SetNode {
  if (node.children) {
    const at = nibble(leaf, depth);
    const before = node.children[at] as SetNode;
    const count = before.count;
    const after = remove(before, leaf, depth + 1);
    node.children[at] = after;
    if (after.count === count) return node;
    node.digest = undefined;
    node.count--;
    return node.count <= SET_MAX ? { count: node.count, leaves: [...leavesOf(node)] } : node;
  }
  const leaves = node.leaves as Buffer[];
  const at = position(leaves, leaf);
  if (leaves[at]?.equals(leaf) !== true) return node;
  leaves.splice(at, 1);
  node.digest = undefined;
  node.count--;
  return node;
}

/** In order, because the children are. */
function* leavesOf(node: SetNode): Generator<Buffer> {
  if (node.leaves) yield* node.leaves;
  else for (const child of node.children ?? []) yield* leavesOf(child);
}

function position(sorted: readonly Buffer[], leaf: Buffer): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (Buffer.compare(sorted[middle] as Buffer, leaf) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

function digestOf(node: SetNode): Buffer {
  if (node.digest) return node.digest;
  if (node.leaves) {
    node.digest = node.count === 0 ? EMPTY_SET : smallSetDigest(node.leaves);
    return node.digest;
  }
  const bytes = Buffer.allocUnsafe(1 + 16 * DIGEST_BYTES);
  bytes[0] = SPLIT;
  node.children?.forEach((child, i) => digestOf(child).copy(bytes, 1 + i * DIGEST_BYTES));
  node.digest = sha256(bytes);
  return node.digest;
}

const SLASH = 0x2f;

/**
 * Digest of a whole tree from its entries, in any order: every directory on the way has to be among them, the root
 * too. Throws `malformed` where one is missing, is no directory, or comes twice.
 */
export function treeDigest(entries: Iterable<Entry>): Buffer {
  interface Node {
    readonly entry: Entry;
    readonly children: Node[];
  }
  const nodes = new Map<string, Node>();
  for (const entry of entries) {
    const key = entry.path.toString('latin1');
    if (nodes.has(key)) throw new SnapshotError('malformed', `twice in the tree: ${entry.path.toString()}`);
    nodes.set(key, { entry, children: [] });
  }
  const root = nodes.get('');
  if (root?.entry.type !== 'dir') throw new SnapshotError('malformed', 'a tree has a root, a directory');
  for (const [key, node] of nodes) {
    if (key === '') continue;
    const parent = nodes.get(key.slice(0, Math.max(key.lastIndexOf('/'), 0)));
    if (parent?.entry.type !== 'dir')
      throw new SnapshotError('malformed', `not in a directory: ${node.entry.path.toString()}`);
    parent.children.push(node);
  }
  const digest = ({ entry, children }: Node): Buffer => {
    if (entry.type !== 'dir') return entryDigest(entry);
    const leaves = children.map((child) => leafDigest(nameOf(child.entry.path), digest(child)));
    return entryDigest(entry, LeafSet.of(leaves).digest());
  };
  return digest(root);
}

/** The last part of a path. */
export const nameOf = (path: Buffer): Buffer => path.subarray(path.lastIndexOf(SLASH) + 1);

/** The canonical bytes of a state, which its digest is taken of (`FORMAT.md`, State). */
export function encodeState(state: State): Buffer {
  const parts: Buffer[] = [Buffer.from([STATE])];
  const u32 = (value: number): void => {
    const bytes = Buffer.allocUnsafe(4);
    bytes.writeUInt32BE(value);
    parts.push(bytes);
  };
  const text = (bytes: Buffer): void => {
    u32(bytes.length);
    parts.push(bytes);
  };
  u32(state.roots.length);
  for (const { path, tree } of state.roots) {
    text(path);
    parts.push(tree);
  }
  for (const list of [state.ignored, state.gaps]) {
    u32(list.length);
    for (const each of list) text(Buffer.from(each));
  }
  return Buffer.concat(parts);
}

/** Reads what `encodeState` wrote, and nothing else: what does not encode to the same bytes is `malformed`. */
export function decodeState(bytes: Buffer): State {
  try {
    const reader = new Reader(bytes);
    if (reader.u8() !== STATE) throw new RangeError('not a state');
    const roots: StateRoot[] = [];
    for (let left = reader.u32(); left > 0; left--)
      roots.push({ path: reader.bytes(reader.u32()), tree: reader.bytes(DIGEST_BYTES) });
    const list = (): string[] => {
      const texts: string[] = [];
      for (let left = reader.u32(); left > 0; left--) texts.push(reader.bytes(reader.u32()).toString());
      return texts;
    };
    const ignored = list();
    const gaps = list();
    const state: State = { roots, ignored, gaps: gaps.filter(isGap) };
    if (roots.length === 0 || !encodeState(state).equals(bytes)) throw new RangeError('not canonical');
    return state;
  } catch (error) {
    if (error instanceof RangeError) throw new SnapshotError('malformed', `state: ${error.message}`);
    throw error;
  }
}

/** `sha256:<hex>` of a state. */
export const stateDigest = (state: State): string => formatDigest(sha256(encodeState(state)));

/** A state with its lists in the order that the digest wants. */
export function makeState(
  roots: readonly StateRoot[],
  ignored: readonly string[],
  gaps: Iterable<Gap>,
): State {
  const byBytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));
  return {
    roots: [...roots].sort((a, b) => Buffer.compare(a.path, b.path)),
    ignored: [...new Set(ignored)].sort(byBytes),
    gaps: [...new Set(gaps)].sort(byBytes),
  };
}
