import { constants, createReadStream, type ReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { type Holder, Shares } from './admission.js';
import { ProblemError } from './problem.js';

/** Milliseconds without a byte taken after which a reader counts as gone. */
const STALL_MS = 60_000;
/** What a file in the export directory may be called: no separators, no dots in front. */
const FILE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** A file and what the database says of it. */
export interface Stored {
  readonly file: string;
  readonly bytes: number;
}

/** Both ends included. */
export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

/**
 * Files of exports, from one directory, by names that the worker gave them. A few are read at once, and each for only as
 * long as its reader takes something; at the end of the process all of them end, to be gone on with by range.
 */
export class Downloads {
  readonly #directory: string | undefined;
  readonly #shares: Shares;
  readonly #streams = new Set<ReadStream>();

  constructor(directory: string | undefined, most: number) {
    this.#directory = directory;
    this.#shares = new Shares(most, 1);
  }

  get count(): number {
    return this.#shares.inAll;
  }

  /** Throws `unavailable` where no directory is configured. */
  requireDirectory(): string {
    if (this.#directory === undefined) {
      throw new ProblemError('unavailable', 'This service keeps no exports: it has no directory for them.');
    }
    return this.#directory;
  }

  /** Throws `gone` for a file that is not there any more as the database has it, and `overloaded`. */
  async open(holder: Holder, stored: Stored, range: ByteRange): Promise<ReadStream> {
    const directory = this.requireDirectory();
    if (!FILE_NAME.test(stored.file)) throw new Error('the name of an export is none');
    if (!this.#shares.take(holder, 1)) {
      throw new ProblemError('overloaded', 'More files are being read than this service sends at once.', {
        retryAfter: 5,
      });
    }
    let handle: FileHandle | undefined;
    try {
      handle = await open(join(directory, stored.file), constants.O_RDONLY | constants.O_NOFOLLOW);
      const stat = await handle.stat();
      if (!stat.isFile() || stat.size !== stored.bytes) throw gone();
      return this.#stream(holder, handle, range);
    } catch (error) {
      await handle?.close();
      this.#shares.give(holder, 1);
      throw (error as NodeJS.ErrnoException).code === 'ENOENT' ? gone() : error;
    }
  }

  /** Whatever is being read ends where it is. */
  close(): void {
    for (const stream of this.#streams) stream.destroy();
  }

  #stream(holder: Holder, handle: FileHandle, { first, last }: ByteRange): ReadStream {
    const stream = createReadStream('', { fd: handle, start: first, end: last, highWaterMark: 256 * 1024 });
    const stalled = setTimeout(() => stream.destroy(), STALL_MS);
    this.#streams.add(stream);
    stream.on('data', () => stalled.refresh());
    // Listening to `data` made it flow; whoever it is piped to decides that.
    stream.pause();
    stream.once('close', () => {
      clearTimeout(stalled);
      this.#streams.delete(stream);
      this.#shares.give(holder, 1);
    });
    return stream;
  }
}

export function gone(): ProblemError {
  return new ProblemError('gone', 'This export was removed; ask for another one.');
}

/**
 * The one range that a `Range` header asks for, of `bytes` in all. Undefined: the whole file, also for several ranges
 * and for what is no range of bytes (RFC 9110 lets a server pass over those). Throws `range_not_satisfiable`.
 */
export function rangeOf(header: string | undefined, bytes: number): ByteRange | undefined {
  const [, from = '', to = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? '') ?? [];
  if (from === '' && to === '') return undefined;
  if (from === '') {
    const length = Math.min(Number(to), bytes);
    if (length === 0) throw unsatisfiable(bytes);
    return { first: bytes - length, last: bytes - 1 };
  }
  const first = Number(from);
  const last = to === '' ? bytes - 1 : Math.min(Number(to), bytes - 1);
  if (to !== '' && Number(to) < first) return undefined;
  if (first >= bytes) throw unsatisfiable(bytes);
  return { first, last };
}

function unsatisfiable(bytes: number): ProblemError {
  return new ProblemError('range_not_satisfiable', `The file has ${bytes} bytes.`, {
    field: 'Range',
    contentRange: `bytes */${bytes}`,
  });
}
