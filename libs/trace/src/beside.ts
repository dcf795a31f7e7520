/**
 * Content of large frames, as it was received, one after the other in a file beside the trace: encoding 10 MB and
 * writing a third more of them is most of what recording such a frame would cost. FORMAT.md, section 1.
 */

import { closeSync, constants, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';

/** Most bytes of one content: what is longer is not kept at all. */
const MAX_BESIDE = 16 * 1024 * 1024;

/** Bytes of one write: more in one does not make it faster, and the page cache takes them as they come. */
const PIECE = 1024 * 1024;

/** Name of the file that the content of large frames of a trace is in. */
export function contentPath(trace: string): string {
  return trace.endsWith('.jsonl') ? `${trace.slice(0, -'.jsonl'.length)}.content` : `${trace}.content`;
}

/** The writer's end. Owner: the thread that writes large frames; nobody else ever writes to the file. */
export class ContentWriter {
  readonly fd: number;
  #end = 0;

  private constructor(fd: number) {
    this.fd = fd;
  }

  /** Makes the file, 0600; undefined when it can't be made, or is there already. */
  static create(trace: string): ContentWriter | undefined {
    try {
      return new ContentWriter(
        openSync(contentPath(trace), constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600),
      );
    } catch {
      return undefined;
    }
  }

  /**
   * Appends content and returns where it begins. Throws what the disk says, having cut off what it took of it. A crash
   * after this and before the record is written leaves bytes that no record speaks of.
   */
  append(data: Buffer): number {
    const offset = this.#end;
    try {
      for (let at = 0; at < data.length;) {
        at += writeSync(this.fd, data, at, Math.min(PIECE, data.length - at), offset + at);
      }
    } catch (error) {
      ftruncateSync(this.fd, offset);
      throw error;
    }
    this.#end = offset + data.length;
    return offset;
  }
}

/** A reader's end; the file is opened when it is first asked for. */
export class ContentReader {
  readonly #path: string;
  #fd: number | null | undefined;

  constructor(trace: string) {
    this.#path = contentPath(trace);
  }

  /** Undefined when the file, or that part of it, is not there. */
  at(offset: number, size: number): Buffer | undefined {
    if (size > MAX_BESIDE) return undefined;
    this.#fd ??= this.#open();
    if (this.#fd === null) return undefined;
    const bytes = Buffer.allocUnsafe(size);
    for (let at = 0; at < size;) {
      const count = readSync(this.#fd, bytes, at, size - at, offset + at);
      if (count === 0) return undefined;
      at += count;
    }
    return bytes;
  }

  close(): void {
    if (typeof this.#fd === 'number') closeSync(this.#fd);
    this.#fd = null;
  }

  #open(): number | null {
    try {
      return openSync(this.#path, 'r');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'EACCES') return null;
      throw error;
    }
  }
}
