import { readSync } from 'node:fs';
import { parseCollectorBody, parseCollectorLine, type CoverageStated } from '@belay/envelope';
import { Carry } from './carry.js';

const LF = 0x0a;
const CHUNK = 65_536;
const BLOCK = 64 * 1024;
/** Blocks kept in memory: 4 MiB. */
const MOST_BLOCKS = 64;

/**
 * Entries by their index, read from where they stand in the file: ten bytes of memory for each. Reads synchronously,
 * because who judges a session asks in the middle of a computation.
 */
export class EvidenceFile {
  readonly #fd: number;
  readonly #offset: number;
  readonly #size: number;
  /** Where each entry begins, plus one, so that 0 is one that is not here. */
  readonly #places: Float64Array[] = [];
  readonly #lengths: Uint16Array[] = [];
  readonly #blocks = new Map<number, Buffer>();

  /** A part of a file: the content of `entries.ndjson`. */
  constructor(fd: number, part: { readonly offset: number; readonly size: number }) {
    this.#fd = fd;
    this.#offset = part.offset;
    this.#size = part.size;
  }

  /** Remembers where an entry is. */
  place(index: number, at: number, length: number): void {
    const chunk = Math.floor(index / CHUNK);
    let places = this.#places[chunk];
    let lengths = this.#lengths[chunk];
    if (places === undefined || lengths === undefined) {
      places = this.#places[chunk] = new Float64Array(CHUNK);
      lengths = this.#lengths[chunk] = new Uint16Array(CHUNK);
    }
    places[index % CHUNK] = at + 1;
    lengths[index % CHUNK] = length;
  }

  /** The bytes of an entry, copied: a block's memory is used again. Undefined for one that was left out. */
  readonly at = (index: number): Buffer | undefined => {
    const chunk = Math.floor(index / CHUNK);
    const place = this.#places[chunk]?.[index % CHUNK] ?? 0;
    if (place === 0) return undefined;
    const begin = place - 1;
    const end = begin + (this.#lengths[chunk]?.[index % CHUNK] ?? 0);
    const first = Math.floor(begin / BLOCK);
    const last = Math.floor((end - 1) / BLOCK);
    if (first === last) {
      return Buffer.from(this.#block(first).subarray(begin - first * BLOCK, end - first * BLOCK));
    }
    return Buffer.concat([
      this.#block(first).subarray(begin - first * BLOCK),
      this.#block(last).subarray(0, end - last * BLOCK),
    ]);
  };

  #block(number: number): Buffer {
    const known = this.#blocks.get(number);
    if (known !== undefined) {
      // Moved to the end: the first is the one that was not used for longest.
      this.#blocks.delete(number);
      this.#blocks.set(number, known);
      return known;
    }
    const at = number * BLOCK;
    const block = this.#free() ?? Buffer.allocUnsafeSlow(BLOCK);
    readAt(this.#fd, block.subarray(0, Math.min(BLOCK, this.#size - at)), this.#offset + at);
    this.#blocks.set(number, block);
    return block;
  }

  /** The memory of the block that was not used for longest, once there are as many as may be. */
  #free(): Buffer | undefined {
    if (this.#blocks.size < MOST_BLOCKS) return undefined;
    for (const [oldest, block] of this.#blocks) {
      this.#blocks.delete(oldest);
      return block;
    }
    return undefined;
  }
}

/** Fills the buffer from a position of a file. Throws RangeError when the file ends before. */
export function readAt(fd: number, bytes: Buffer, position: number): void {
  for (let done = 0; done < bytes.length;) {
    const read = readSync(fd, bytes, done, bytes.length - done, position + done);
    if (read === 0) throw new RangeError('the file became shorter while it was read');
    done += read;
  }
}

/** A coverage statement that an entry names, and the index of the entry. */
export interface StatedAt {
  readonly index: number;
  readonly stated: CoverageStated;
}

const NEEDLE = Buffer.from('"kind":"coverage.stated"');
/** Two lines of an entry and their ends. */
const LONGEST = 6 * 1024;

/**
 * Finds the statements that the entries name before the entries are read in order: one is made again when as many
 * entries were taken in as it looked at, and that is before the entry that names it. Only ever a hint: what is found here
 * is held to the entry itself when that comes.
 */
export class StatedFinder {
  readonly found: StatedAt[] = [];
  readonly #rest = new Carry();
  #skip = 0;

  /** Bytes that wait for the next block: never more than two entries. */
  get kept(): number {
    return this.#rest.size;
  }

  push(block: Buffer): void {
    const bytes = this.#rest.join(block);
    let from = this.#skip;
    let whole = bytes.length;
    for (;;) {
      const hit = bytes.indexOf(NEEDLE, from);
      if (hit < 0) break;
      const length = bytes.subarray(hit, hit + LONGEST).indexOf(LF);
      if (length < 0) {
        if (bytes.length - hit >= LONGEST) {
          // In no line of an entry. To wait for its end could be to keep the rest of the file.
          from = hit + NEEDLE.length;
          continue;
        }
        whole = hit;
        break;
      }
      const end = hit + length;
      this.#take(bytes, bytes.lastIndexOf(LF, hit) + 1, end);
      from = end;
    }
    const keep = Math.max(0, Math.min(whole, bytes.length) - LONGEST);
    this.#rest.drop(keep);
    this.#skip = Math.max(0, Math.min(whole, Math.max(from, bytes.length - NEEDLE.length)) - keep);
  }

  #take(bytes: Buffer, begin: number, end: number): void {
    if (begin < 2) return;
    try {
      const before = bytes.lastIndexOf(LF, begin - 2) + 1;
      const { index } = parseCollectorLine(bytes.subarray(before, begin - 1));
      const stated = parseCollectorBody(bytes.subarray(begin, end));
      if (stated.kind === 'coverage.stated') this.found.push({ index, stated });
    } catch {
      // No entry of the collector: whoever reads the entries in order says what is wrong with it.
    }
  }
}
