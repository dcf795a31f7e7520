import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { ACKS, LINES } from './epoch-record.js';

/** How much may wait on this machine for one log, and how long. What does not fit is disclosed as a gap. */
export interface SpoolLimits {
  /** Bytes of lines without an acknowledgement, over all spools of the log. */
  readonly bytes: number;
  /** Age of the oldest line without an acknowledgement, in milliseconds. */
  readonly age: number;
}

export const SPOOL_LIMITS: SpoolLimits = { bytes: 256 * 1024 * 1024, age: 30 * 24 * 3_600_000 };

/** How often a spool that is full, or may be too old, is looked at again. Milliseconds. */
const LOOK_EVERY = 250;
const AGE_EVERY = 60_000;
/** Of a full spool, this share has to be free before lines are taken again: else every second line is a gap. */
const FREE_SHARE = 0.25;
const MAX_LINE = 4_097;

/** Whether another line fits into the spool of one epoch. Costs nothing while the spool is far from its limits. */
export class SpoolRoom {
  readonly #dir: string;
  readonly #limits: SpoolLimits;
  /** Bytes that wait in other spools of the log. */
  readonly #others: number;
  #settled = 0;
  #looked = Number.NEGATIVE_INFINITY;
  #aged = Number.NEGATIVE_INFINITY;
  #old = false;
  #full: boolean;

  constructor(dir: string, limits: SpoolLimits, others: number, full = false) {
    this.#dir = dir;
    this.#limits = limits;
    this.#others = others;
    this.#full = full;
  }

  /** Whether a spool that ends at `end` may be that long at `now` (milliseconds). */
  has(end: number, now: number): boolean {
    const { bytes, age } = this.#limits;
    const allowed = this.#full ? bytes * (1 - FREE_SHARE) : bytes;
    const fits = (): boolean => end - this.#settled + this.#others <= allowed;
    if (!fits() && now - this.#looked >= LOOK_EVERY) {
      this.#looked = now;
      this.#settled = settledEnd(join(this.#dir, ACKS));
    }
    this.#full = !fits();
    if (now - this.#aged >= (this.#old ? LOOK_EVERY : Math.min(AGE_EVERY, age / 4))) {
      this.#aged = now;
      this.#settled = settledEnd(join(this.#dir, ACKS));
      const oldest = timeOfLine(join(this.#dir, LINES), this.#settled);
      this.#old = oldest !== undefined && now - oldest > age;
    }
    return !this.#full && !this.#old;
  }
}

/** Offset in `lines` after the last settled line. A torn last line of `acks` is as good as none. */
export function settledEnd(path: string): number {
  const text = endOf(path, 8_192);
  const whole = text.slice(0, text.lastIndexOf('\n') + 1).trimEnd();
  const last = whole.slice(whole.lastIndexOf('\n') + 1);
  return last === '' ? 0 : (JSON.parse(last) as { end: number }).end;
}

/** The last bytes of a file as text; empty where there is none. */
function endOf(path: string, length: number): string {
  let fd;
  try {
    fd = openSync(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
  try {
    const { size } = fstatSync(fd);
    const bytes = Buffer.alloc(Math.min(length, size));
    const read = readSync(fd, bytes, 0, bytes.length, size - bytes.length);
    return bytes.toString('latin1', 0, read);
  } finally {
    closeSync(fd);
  }
}

/** `time` of the line at an offset, in milliseconds; undefined when no whole line stands there. */
export function timeOfLine(path: string, offset: number): number | undefined {
  let fd;
  try {
    fd = openSync(path, 'r');
  } catch {
    return undefined;
  }
  try {
    const bytes = Buffer.alloc(MAX_LINE);
    const read = readSync(fd, bytes, 0, bytes.length, offset);
    const lf = bytes.subarray(0, read).indexOf(0x0a);
    if (lf < 0) return undefined;
    const { time } = JSON.parse(bytes.toString('latin1', 0, lf)) as { time: string };
    const ms = Date.parse(time);
    return Number.isNaN(ms) ? undefined : ms;
  } finally {
    closeSync(fd);
  }
}
