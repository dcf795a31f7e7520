import { createHash } from 'node:crypto';
import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs';

/** A value is kept in one of two places of this many bytes, in turn. */
const SLOT = 8_192;

/**
 * A small JSON value in a file that is written in place, so that it can be replaced on a disk that is full, and cheaply:
 * no file is made, renamed or synced. Two places are written in turn and each says which it is and whether it is whole,
 * so a write that was cut short leaves the value before. One writer at a time is the caller's business.
 */
export class Slots<T> {
  readonly #fd: number;
  #generation: number;
  readonly value: T | undefined;

  private constructor(fd: number, generation: number, value: T | undefined) {
    this.#fd = fd;
    this.#generation = generation;
    this.value = value;
  }

  /** Opens the file, or makes it (0600) with its room on the disk taken. */
  static open<T>(path: string): Slots<T> {
    const fd = openSync(path, constants.O_RDWR | constants.O_CREAT, 0o600);
    try {
      const bytes = Buffer.alloc(2 * SLOT);
      const read = readSync(fd, bytes, 0, bytes.length, 0);
      if (read < bytes.length) writeAll(fd, bytes.subarray(read), read);
      const [a, b] = [0, 1].map((at) => parse(bytes.toString('utf8', at * SLOT, (at + 1) * SLOT)));
      const best = (a?.generation ?? -1) > (b?.generation ?? -1) ? a : b;
      return new Slots(fd, best?.generation ?? 0, best?.value as T | undefined);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  write(value: T): void {
    const generation = this.#generation + 1;
    const json = JSON.stringify(value);
    const bytes = Buffer.from(`${generation} ${checksum(generation, json)} ${json}\n`, 'utf8');
    if (bytes.length > SLOT) throw new RangeError('the value is too large for its file');
    writeAll(this.#fd, bytes, (generation % 2) * SLOT);
    this.#generation = generation;
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** A disk that is full takes a part first, and refuses the rest. */
function writeAll(fd: number, bytes: Buffer, position: number): void {
  let written = 0;
  while (written < bytes.length) {
    written += writeSync(fd, bytes, written, bytes.length - written, position + written);
  }
}

const checksum = (generation: number, json: string): string =>
  createHash('sha256').update(`${generation} ${json}`).digest('hex').slice(0, 16);

function parse(text: string): { readonly generation: number; readonly value: unknown } | undefined {
  const [, digits, sum, json] = /^(\d+) ([0-9a-f]{16}) (.*)\n/.exec(text) ?? [];
  if (digits === undefined || json === undefined || checksum(Number(digits), json) !== sum) return undefined;
  return { generation: Number(digits), value: JSON.parse(json) as unknown };
}
