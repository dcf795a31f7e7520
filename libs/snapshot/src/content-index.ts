/** Where each content lies: a hash table in flat memory, because there is one entry per different file. */

import { DIGEST_BYTES } from './manifest.js';

export interface ContentPlace {
  /** Number of the pack, as its store counts them. */
  readonly pack: number;
  readonly offset: number;
  readonly size: number;
}

const EMPTY = -1;
const REMOVED = -2;

export class ContentIndex {
  #hashes = Buffer.alloc(1024 * DIGEST_BYTES);
  #packs = new Uint32Array(1024);
  #offsets = new Float64Array(1024);
  #sizes = new Float64Array(1024);
  #table = new Int32Array(2048).fill(EMPTY);
  /** Slots ever filled; some may have been removed again. */
  #count = 0;

  has(hash: Buffer): boolean {
    return this.#find(hash) !== EMPTY;
  }

  get(hash: Buffer): ContentPlace | undefined {
    const slot = this.#find(hash);
    if (slot === EMPTY) return undefined;
    return {
      pack: this.#packs[slot] as number,
      offset: this.#offsets[slot] as number,
      size: this.#sizes[slot] as number,
    };
  }

  /** The first place of a content stays its place. */
  add(hash: Buffer, pack: number, offset: number, size: number): void {
    if (this.has(hash)) return;
    if (this.#count === this.#packs.length) this.#grow();
    const slot = this.#count++;
    hash.copy(this.#hashes, slot * DIGEST_BYTES);
    this.#packs[slot] = pack;
    this.#offsets[slot] = offset;
    this.#sizes[slot] = size;
    this.#insert(slot);
  }

  remove(hash: Buffer): void {
    const mask = this.#table.length - 1;
    for (let at = hash.readUInt32LE(0) & mask; ; at = (at + 1) & mask) {
      const slot = this.#table[at] as number;
      if (slot === EMPTY) return;
      if (slot === REMOVED || !this.#is(slot, hash)) continue;
      this.#table[at] = REMOVED;
      return;
    }
  }

  clear(): void {
    this.#table.fill(EMPTY);
    this.#count = 0;
  }

  #find(hash: Buffer): number {
    const mask = this.#table.length - 1;
    for (let at = hash.readUInt32LE(0) & mask; ; at = (at + 1) & mask) {
      const slot = this.#table[at] as number;
      if (slot === EMPTY) return EMPTY;
      if (slot !== REMOVED && this.#is(slot, hash)) return slot;
    }
  }

  #is(slot: number, hash: Buffer): boolean {
    const start = slot * DIGEST_BYTES;
    return hash.compare(this.#hashes, start, start + DIGEST_BYTES) === 0;
  }

  #insert(slot: number): void {
    const mask = this.#table.length - 1;
    let at = this.#hashes.readUInt32LE(slot * DIGEST_BYTES) & mask;
    while ((this.#table[at] as number) !== EMPTY) at = (at + 1) & mask;
    this.#table[at] = slot;
  }

  /** Twice the memory; half of the table stays empty, so that a search ends. */
  #grow(): void {
    const capacity = this.#packs.length * 2;
    const hashes = Buffer.alloc(capacity * DIGEST_BYTES);
    this.#hashes.copy(hashes);
    this.#hashes = hashes;
    const packs = new Uint32Array(capacity);
    packs.set(this.#packs);
    this.#packs = packs;
    const offsets = new Float64Array(capacity);
    offsets.set(this.#offsets);
    this.#offsets = offsets;
    const sizes = new Float64Array(capacity);
    sizes.set(this.#sizes);
    this.#sizes = sizes;
    const live = this.#table.filter((slot) => slot >= 0);
    this.#table = new Int32Array(capacity * 2).fill(EMPTY);
    for (const slot of live) this.#insert(slot);
  }
}
