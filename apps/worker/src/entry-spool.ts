import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RawEntry } from '@belay/db';

/** Bytes kept in memory until a file is made. */
const IN_MEMORY = 8 * 1024 * 1024;

/**
 * Entries that a session is judged by, to be read again in any order, synchronously. Past a few MB they are in a file
 * without a name, and memory holds 16 bytes an entry.
 */
export class EntrySpool {
  #indexes = new Float64Array(256);
  #starts = new Float64Array(257);
  #count = 0;
  #parts: Buffer[] = [];
  #file: number | undefined;

  /** Adds entries whose indexes ascend from call to call. */
  add(entries: readonly RawEntry[]): void {
    for (const { index, bytes } of entries) {
      if (this.#count === this.#indexes.length) this.#grow();
      const start = this.#starts[this.#count] as number;
      this.#indexes[this.#count] = index;
      this.#starts[++this.#count] = start + bytes.length;
      this.#parts.push(bytes);
    }
    if (this.#file !== undefined || (this.#starts[this.#count] as number) > IN_MEMORY) this.#spill();
  }

  get count(): number {
    return this.#count;
  }

  *indexes(): Generator<number> {
    for (let at = 0; at < this.#count; at++) yield this.#indexes[at] as number;
  }

  /** The bytes of an entry; undefined for one that was not added. */
  at(index: number): Buffer | undefined {
    const at = this.#find(index);
    if (at === undefined) return undefined;
    if (this.#file === undefined) return this.#parts[at];
    const start = this.#starts[at] as number;
    const bytes = Buffer.allocUnsafe((this.#starts[at + 1] as number) - start);
    for (let done = 0; done < bytes.length;) {
      const read = readSync(this.#file, bytes, done, bytes.length - done, start + done);
      if (read === 0) throw new Error('the spool of a session was cut short');
      done += read;
    }
    return bytes;
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
    this.#parts = [];
    this.#count = 0;
  }

  #find(index: number): number | undefined {
    let low = 0;
    let high = this.#count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#indexes[middle] as number) < index) low = middle + 1;
      else high = middle;
    }
    return low < this.#count && this.#indexes[low] === index ? low : undefined;
  }

  #grow(): void {
    const [indexes, starts] = [this.#indexes, this.#starts];
    this.#indexes = new Float64Array(indexes.length * 2);
    this.#starts = new Float64Array(indexes.length * 2 + 1);
    this.#indexes.set(indexes);
    this.#starts.set(starts);
  }

  #spill(): void {
    if (this.#file === undefined) {
      const dir = mkdtempSync(join(tmpdir(), 'belay-session-'));
      this.#file = openSync(join(dir, 'entries'), 'wx+', 0o600);
      // From here on it is gone with the process, however that ends.
      rmSync(dir, { recursive: true });
    }
    const bytes = Buffer.concat(this.#parts);
    this.#parts = [];
    for (let done = 0; done < bytes.length;) done += writeSync(this.#file, bytes, done);
  }
}
