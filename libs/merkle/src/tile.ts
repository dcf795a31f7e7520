import { MerkleError } from './error.js';
import { HASH_SIZE, type Hash, nodeHash } from './hash.js';
import { MAX_SIZE, type NodeId, requireCount } from './range.js';

/** Hashes in a full tile, entries in a full bundle (C2SP tlog-tiles). */
export const TILE_WIDTH = 256;

/** Tree levels that one tile level spans: 256 = 2^8. */
const TILE_HEIGHT = 8;

/** Highest tile level that the format can name. */
const MAX_TILE_LEVEL = 63;

/** Longest entry that a bundle can carry, in bytes. */
export const MAX_BUNDLE_ENTRY = 65_535;

/** A tile or an entry bundle, as its path names it. `width` is 256 when the path has no `.p/`. */
export interface TilePath {
  readonly kind: 'tile' | 'entries';
  /** Tile level; 0 for bundles, which lie under the tiles of level 0. */
  readonly level: number;
  readonly n: bigint;
  readonly width: number;
}

/** Path of a tile below a log's prefix, `tile/<L>/<N>[.p/<W>]`. `width` is 1 to 256. */
export function tilePath(level: number, n: bigint, width: number = TILE_WIDTH): string {
  if (!Number.isInteger(level) || level < 0 || level > MAX_TILE_LEVEL) throw badTile('level', level);
  return `tile/${level}/${numbered(n, width)}`;
}

/** Path of an entry bundle below a log's prefix, `tile/entries/<N>[.p/<W>]`. */
export function entriesPath(n: bigint, width: number = TILE_WIDTH): string {
  return `tile/entries/${numbered(n, width)}`;
}

/** Reads what `tilePath` and `entriesPath` write, and nothing else: one tile has one path. */
export function parseTilePath(text: string): TilePath {
  const match =
    text.length <= 80
      ? /^tile\/(entries|\d{1,2})\/((?:x\d{3}\/)*\d{3})(?:\.p\/(\d{1,3}))?$/.exec(text)
      : null;
  if (match === null) throw badTile('path', text.slice(0, 80));
  const entries = match[1] === 'entries';
  const level = entries ? 0 : Number(match[1]);
  const n = BigInt((match[2] as string).replace(/[x/]/g, ''));
  const width = match[3] === undefined ? TILE_WIDTH : Number(match[3]);
  const again = entries ? entriesPath(n, width) : tilePath(level, n, width);
  // Leading zeros, superfluous groups and `.p/256` all read as something that is written another way.
  if (again !== text) throw badTile('path', text);
  return { kind: entries ? 'entries' : 'tile', level, n, width };
}

/**
 * Hashes in the partial tile at the right edge of `level` in a tree of `size`, 0 to 255. 0 means that there is
 * no partial tile. Full tiles below it: `size >> (8 · (level + 1))`.
 */
export function partialWidth(level: number, size: bigint): number {
  requireCount(size, 'size');
  return Number((size >> BigInt(TILE_HEIGHT * level)) & 0xffn);
}

/** Where a perfect subtree is found: fold hashes `first` to `first + count - 1` of that tile. */
export interface TileSpan {
  readonly level: number;
  readonly n: bigint;
  readonly first: number;
  /** A power of two, 1 to 128. */
  readonly count: number;
}

/** The tile that a node can be computed from. */
export function tileOf(id: NodeId): TileSpan {
  const level = Math.floor(id.level / TILE_HEIGHT);
  const rise = id.level % TILE_HEIGHT;
  const at = id.index << BigInt(rise);
  return { level, n: at >> BigInt(TILE_HEIGHT), first: Number(at & 0xffn), count: 1 << rise };
}

/**
 * The node over `count` hashes of a tile, from the hash numbered `first`. `count` is a power of two and `first`
 * a multiple of it, as `tileOf` gives them; the tile is its raw bytes, full or partial.
 */
export function hashTile(tile: Uint8Array, first: number, count: number): Hash {
  if (tile.length % HASH_SIZE !== 0 || tile.length > TILE_WIDTH * HASH_SIZE)
    throw badTile('length', tile.length);
  const wellFormed =
    Number.isInteger(first) &&
    Number.isInteger(count) &&
    count >= 1 &&
    (count & (count - 1)) === 0 &&
    first >= 0 &&
    first % count === 0;
  if (!wellFormed) throw badTile('span', `${first}+${count}`);
  if ((first + count) * HASH_SIZE > tile.length) throw badTile('span', `${first}+${count}`);
  const bytes = Buffer.from(tile.buffer, tile.byteOffset, tile.length);
  let hashes: Hash[] = [];
  for (let i = first; i < first + count; i++) hashes.push(bytes.subarray(i * HASH_SIZE, (i + 1) * HASH_SIZE));
  while (hashes.length > 1) {
    const above: Hash[] = [];
    for (let i = 0; i < hashes.length; i += 2) above.push(nodeHash(hashes[i] as Hash, hashes[i + 1] as Hash));
    hashes = above;
  }
  return Buffer.from(hashes[0] as Hash);
}

/** Bytes of an entry bundle: each entry after its length as an unsigned big-endian 16-bit number. */
export function entryBundle(entries: readonly Uint8Array[]): Buffer {
  let length = 0;
  for (const entry of entries) {
    if (entry.length > MAX_BUNDLE_ENTRY) throw badTile('entry length', entry.length);
    length += 2 + entry.length;
  }
  const bundle = Buffer.allocUnsafe(length);
  let at = 0;
  for (const entry of entries) {
    at = bundle.writeUInt16BE(entry.length, at);
    bundle.set(entry, at);
    at += entry.length;
  }
  return bundle;
}

/** The entries of a bundle, sharing its memory. Refuses bytes that are left over and more than 256 entries. */
export function parseEntryBundle(bundle: Uint8Array): Buffer[] {
  const bytes = Buffer.from(bundle.buffer, bundle.byteOffset, bundle.length);
  const entries: Buffer[] = [];
  let at = 0;
  while (at < bytes.length) {
    if (entries.length === TILE_WIDTH) throw badTile('bundle', 'more than 256 entries');
    const end = at + 2 <= bytes.length ? at + 2 + bytes.readUInt16BE(at) : Infinity;
    if (end > bytes.length) throw badTile('bundle', 'ends inside an entry');
    entries.push(bytes.subarray(at + 2, end));
    at = end;
  }
  return entries;
}

function numbered(n: bigint, width: number): string {
  if (typeof n !== 'bigint' || n < 0n || n > MAX_SIZE) throw badTile('number', String(n));
  if (!Number.isInteger(width) || width < 1 || width > TILE_WIDTH) throw badTile('width', width);
  const digits = n.toString();
  const padded = digits.padStart(Math.ceil(digits.length / 3) * 3, '0');
  const groups = padded.match(/\d{3}/g) as string[];
  const path = groups.map((group, i) => (i < groups.length - 1 ? `x${group}` : group)).join('/');
  return width === TILE_WIDTH ? path : `${path}.p/${width}`;
}

function badTile(what: string, value: string | number): MerkleError {
  return new MerkleError('tile', `malformed tile ${what}: ${value}`, { what, value: String(value) });
}
