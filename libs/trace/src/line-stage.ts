import { writeSync } from 'node:fs';
import { DATA } from './record.js';

/** Where lines are put together; longer ones are written in pieces of this size. Bytes. */
const STAGE = 256 * 1024;
/** Content is encoded in pieces of this size: strings of more than 128 KiB are allocated one by one, and slowly. Bytes. */
const PIECE = 72 * 1024;

/** Writes lines with their content in base64, without holding more of it than a piece. */
export class LineStage {
  readonly #stage = Buffer.allocUnsafeSlow(STAGE);
  #staged = 0;
  #written = 0;

  /** Bytes of the last line that the file has got. */
  get written(): number {
    return this.#written;
  }

  /** Appends a record: `line` without its content and LF. Throws what the disk says; `written` tells how far it came. */
  write(fd: number, line: string, data: Buffer | readonly Buffer[] | undefined): void {
    this.#staged = 0;
    this.#written = 0;
    if (data === undefined) {
      this.#put(fd, `${line}\n`);
    } else {
      this.#put(fd, line.slice(0, -1) + DATA);
      this.#putBase64(fd, Buffer.isBuffer(data) ? [data] : data);
      this.#put(fd, '"}\n');
    }
    this.#flush(fd);
  }

  #put(fd: number, text: string): void {
    // What UTF-8 can take at most.
    if (text.length * 3 > STAGE) {
      this.#flush(fd);
      this.#writeAll(fd, Buffer.from(text, 'utf8'));
      return;
    }
    if (text.length * 3 > STAGE - this.#staged) this.#flush(fd);
    this.#staged += this.#stage.write(text, this.#staged, 'utf8');
  }

  /** Three bytes are four characters: what is left of a part goes in front of the next one. */
  #putBase64(fd: number, parts: readonly Buffer[]): void {
    let rest: Buffer = Buffer.alloc(0);
    for (const part of parts) {
      let at = 0;
      if (rest.length > 0) {
        at = Math.min(3 - rest.length, part.length);
        rest = Buffer.concat([rest, part.subarray(0, at)]);
        if (rest.length < 3) continue;
        this.#encode(fd, rest);
      }
      const end = part.length - ((part.length - at) % 3);
      for (; at < end; at += PIECE) {
        this.#encode(fd, part.subarray(at, Math.min(end, at + PIECE)));
      }
      rest = part.subarray(end);
    }
    this.#encode(fd, rest);
  }

  #encode(fd: number, bytes: Buffer): void {
    if (Math.ceil(bytes.length / 3) * 4 > STAGE - this.#staged) this.#flush(fd);
    this.#staged += this.#stage.write(bytes.toString('base64'), this.#staged, 'latin1');
  }

  #flush(fd: number): void {
    const staged = this.#stage.subarray(0, this.#staged);
    this.#staged = 0;
    this.#writeAll(fd, staged);
  }

  #writeAll(fd: number, bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      const written = writeSync(fd, bytes, at, bytes.length - at);
      at += written;
      this.#written += written;
    }
  }
}
