import { type FileHandle, open, unlink } from 'node:fs/promises';
import { blocksOf, readExactly } from './archive.js';

const BLOCK = 1024 * 1024;

/**
 * A file beside the archive that takes what comes before it is known how much it is. Gone after `discard`; a crash leaves
 * it, under the archive's name with a suffix, for whoever cleans up after the job.
 */
export class Spool {
  readonly #path: string;
  readonly #handle: FileHandle;
  #parts: Buffer[] = [];
  #gathered = 0;
  #size = 0;

  private constructor(path: string, handle: FileHandle) {
    this.#path = path;
    this.#handle = handle;
  }

  static async create(path: string): Promise<Spool> {
    return new Spool(path, await open(path, 'w+', 0o600));
  }

  /** Bytes taken so far. */
  get size(): number {
    return this.#size;
  }

  /** For reading what was flushed. */
  get handle(): FileHandle {
    return this.#handle;
  }

  /** Takes bytes, which are not to be changed any more. Await `flush` when `full`. */
  take(bytes: Buffer): void {
    this.#parts.push(bytes);
    this.#gathered += bytes.length;
    this.#size += bytes.length;
  }

  get full(): boolean {
    return this.#gathered >= BLOCK;
  }

  async flush(): Promise<void> {
    if (this.#gathered === 0) return;
    const bytes = Buffer.concat(this.#parts, this.#gathered);
    const at = this.#size - this.#gathered;
    this.#parts = [];
    this.#gathered = 0;
    for (let done = 0; done < bytes.length;) {
      const { bytesWritten } = await this.#handle.write(bytes, done, bytes.length - done, at + done);
      done += bytesWritten;
    }
  }

  /** Keeps these parts of what was flushed, which ascend, and nothing else. */
  async keep(parts: readonly { readonly at: number; readonly length: number }[]): Promise<void> {
    const size = this.#size;
    this.#size = 0;
    for (const { at, length } of parts) {
      if (at + length > size) throw new RangeError('a part that was not written');
      // What moves only ever moves to the front, over what was moved before it.
      this.take(await readExactly(this.#handle, at, length));
      if (this.full) await this.flush();
    }
    await this.flush();
  }

  /** All of it, once flushed. A block is good until the next one is asked for. */
  content(): AsyncGenerator<Buffer> {
    return blocksOf(this.#handle, { offset: 0, size: this.#size });
  }

  async discard(): Promise<void> {
    await this.#handle.close();
    await unlink(this.#path);
  }
}
