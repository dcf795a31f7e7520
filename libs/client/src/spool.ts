import {
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  fsyncSync,
  writeSync,
} from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { AckRun } from '@belay/contracts';
import { acquire, type DirLock, DirLocked } from '@belay/dirlock';
import type { SignedHead, VerifiedAck } from './ack.js';
import { CompactRange, leafHash } from '@belay/merkle';
import {
  ACKS,
  type EpochRecord,
  filteredIn,
  type Forgotten,
  LINES,
  rangeOfLines,
  readEpochRecord,
  treeOfLines,
  writeEpochRecord,
} from './epoch-record.js';
import { keepLines, restoreLines } from './kept-lines.js';
import { appendProof, PROOFS } from './proofs.js';
import { settledEnd, timeOfLine } from './spool-room.js';
import { readChain } from './state.js';
import { openWhole } from './whole-lines.js';

const LF = 0x0a;

/** One line of `acks`: what became of consecutive lines of the spool. `end` is the offset in `lines` after them. */
export type Settlement = {
  readonly first: number;
  readonly count: number;
  readonly end: number;
} & (
  | (Pick<
      AckRun,
      'disposition' | 'index' | 'received' | 'token' | 'role' | 'signed' | 'conflict' | 'late'
    > & {
      readonly size: number;
    })
  | { readonly disposition: 'refused'; readonly code: string; readonly field?: string | undefined }
  /** Too old to be kept: the spool now begins with the `gap` line that says so, and `end` is 0. */
  | { readonly disposition: 'expired' }
  /** The log has started over: what was settled before is not any more, and `count` and `end` are 0. */
  | { readonly disposition: 'again' }
);

/** Consecutive lines, as they are sent. */
export interface Batch {
  /** Each without LF. */
  readonly lines: readonly Buffer[];
  /** `seq` of each line. */
  readonly seqs: readonly number[];
  /** Offsets in `lines` before the first and after each line. */
  readonly start: number;
  readonly ends: readonly number[];
}

export interface BatchLimits {
  readonly lines: number;
  readonly bytes: number;
}

/**
 * The sending side of one epoch's spool. A line is settled once its ack was verified (or the collector refused it
 * with a code), and never before: what is not settled is sent again by whoever opens the spool next, and is found to
 * be a duplicate if it had arrived. One at a time per directory: the lock is the epoch's, or taken by `adopt`.
 */
export class Spool {
  readonly dir: string;
  readonly record: EpochRecord;
  readonly #lock: DirLock | undefined;
  #file: FileHandle | undefined;
  #acks: number | undefined;
  #proofs: number | undefined;
  /** Offset in `lines` up to which everything is settled. */
  #settled: number;

  private constructor(dir: string, record: EpochRecord, lock: DirLock | undefined) {
    this.dir = dir;
    this.record = record;
    this.#lock = lock;
    this.#settled = settledEnd(join(dir, ACKS));
  }

  /** The spool of an epoch that this process writes and has locked. */
  static ofOwn(dir: string): Spool {
    const record = readEpochRecord(dir);
    if (record === undefined) throw new Error(`${dir} is not a spool`);
    return new Spool(dir, record, undefined);
  }

  /** Takes over the spool of a process that died; undefined when its owner lives or there is nothing to send. */
  static adopt(dir: string): Spool | undefined {
    return existsSync(join(dir, LINES)) ? Spool.#adopt(dir, () => existsSync(join(dir, LINES))) : undefined;
  }

  /** The same of a spool that may have nothing left to send. */
  static adoptKept(dir: string): Spool | undefined {
    return Spool.#adopt(dir, () => true);
  }

  static #adopt(dir: string, wanted: () => boolean): Spool | undefined {
    let lock: DirLock;
    try {
      lock = acquire(dir);
    } catch (error) {
      if (error instanceof DirLocked) return undefined;
      throw error;
    }
    const record = readEpochRecord(dir);
    if (record !== undefined && wanted()) return new Spool(dir, record, lock);
    lock.release();
    return undefined;
  }

  /** The next lines that are not settled, or undefined when there is none (yet). A half-written line does not count. */
  async next(limits: BatchLimits): Promise<Batch | undefined> {
    const pending = await this.pendingBytes();
    if (pending === 0 || this.#file === undefined) return undefined;
    const buffer = Buffer.allocUnsafe(Math.min(limits.bytes, pending));
    const { bytesRead } = await this.#file.read(buffer, 0, buffer.length, this.#settled);
    const lines: Buffer[] = [];
    const ends: number[] = [];
    let from = 0;
    for (let lf = buffer.indexOf(0x0a); lf >= 0 && lf < bytesRead && lines.length < limits.lines;) {
      lines.push(buffer.subarray(from, lf));
      from = lf + 1;
      ends.push(this.#settled + from);
      lf = buffer.indexOf(0x0a, from);
    }
    if (lines.length === 0) return undefined;
    return { lines, seqs: lines.map(seqOf), start: this.#settled, ends };
  }

  /** Bytes that are not settled, the half-written tail of a killed writer included. */
  async pendingBytes(): Promise<number> {
    this.#file ??= await open(join(this.dir, LINES), 'r');
    return (await this.#file.stat()).size - this.#settled;
  }

  /** Writes down what became of a batch's lines. A crash before costs a resend that comes back as duplicates. */
  settle(batch: Batch, ack: VerifiedAck): void {
    this.#proofs ??= openWhole(join(this.dir, PROOFS));
    // First: a proof without its settlement is one more, a settlement without its proof could not be shown to anybody.
    appendProof(this.#proofs, batch.seqs, ack);
    this.#note(settlementsOf(batch, ack.runs, ack.refused, ack.head));
    this.#settled = batch.ends.at(-1) as number;
  }

  /** Bytes of lines that are settled. */
  get settledBytes(): number {
    return this.#settled;
  }

  /** Whether no more lines come: it was closed, or its writer died, or its sink has gone on to another epoch. */
  get over(): boolean {
    const record = readEpochRecord(this.dir) ?? this.record;
    if (record.closed !== undefined || record.shared !== true) return true;
    return readChain(dirname(this.dir))?.epoch !== record.epoch;
  }

  /**
   * Everything is settled and the writer is done: compacts the lines. They are kept until a published checkpoint covers
   * them, and after that as long as there is room (`tendKept`). A disk that refuses that is told in the record.
   */
  async finish(): Promise<void> {
    const record = readEpochRecord(this.dir) ?? this.record;
    const abandoned = record.closed === undefined;
    const forgotten = await this.#keep();
    writeEpochRecord(this.dir, {
      ...record,
      ...(abandoned ? { closed: this.#abandoned(), abandoned } : {}),
      filtered: this.#filtered(record),
      settled: true,
      forgotten,
    });
    rmSync(join(this.dir, LINES));
  }

  /** Lines that are settled, as if they had never been sent: for a log that has started over. */
  async again(): Promise<void> {
    // In this order: a crash in between leaves lines that are kept, and is made good by the next try.
    this.#note([{ first: 1, count: 0, end: 0, disposition: 'again' }]);
    const {
      settled: _settled,
      published: _published,
      filtered: _filtered,
      ...record
    } = readEpochRecord(this.dir) ?? this.record;
    writeEpochRecord(this.dir, record);
    await restoreLines(this.dir);
    this.#settled = 0;
  }

  #note(settlements: readonly Settlement[]): void {
    this.#acks ??= openWhole(join(this.dir, ACKS));
    writeSync(this.#acks, settlements.map((each) => `${JSON.stringify(each)}\n`).join(''));
  }

  #filtered(record: EpochRecord): number | undefined {
    const sum = (record.filtered ?? 0) + filteredIn(readFileSync(join(this.dir, LINES)));
    return sum === 0 ? undefined : sum;
  }

  async #keep(): Promise<Forgotten | undefined> {
    try {
      await keepLines(this.dir, this.#settled);
      return undefined;
    } catch {
      return { reason: 'disk', published: false, time: new Date().toISOString() };
    }
  }

  /**
   * Gives up lines of a run that is over when the first that is not settled is older than `age`: in their place a `gap`
   * line takes the next number, with the hashes of what is missing. It may follow an `epoch.close`. Returns how many
   * lines were given up.
   */
  async expire(age: number, now: Date): Promise<number> {
    const path = join(this.dir, LINES);
    let record = readEpochRecord(this.dir) ?? this.record;
    const oldest = timeOfLine(path, this.#settled);
    if (record.expired !== undefined || oldest === undefined || now.getTime() - oldest <= age) return 0;
    const bytes = readFileSync(path);
    const waiting = bytes.subarray(this.#settled, bytes.lastIndexOf(LF) + 1);
    const first = firstOf(waiting);
    const missing = rangeOfLines(waiting, CompactRange.empty(BigInt(first - 1)));
    const last = Number(missing.end);
    const line = JSON.stringify({
      v: 1,
      log: record.log,
      sink: record.sink,
      epoch: record.epoch,
      seq: last + 1,
      kind: 'gap',
      time: now.toISOString(),
      attrs: {
        first,
        last,
        reason: 'overflow',
        hashes: missing.hashes.map((hash) => hash.toString('base64')),
      },
    });
    const whole = rangeOfLines(bytes.subarray(0, this.#settled + waiting.length), CompactRange.empty());
    whole.append(leafHash(Buffer.from(line, 'latin1')));
    const abandoned = record.closed === undefined;
    const closed = { size: Number(whole.end), root: whole.root().toString('base64') };
    // In this order: a crash in between makes the old lines be sent again from the start, as duplicates.
    const forgotten = await this.#keep();
    record = { ...record, forgotten, filtered: this.#filtered(record) };
    writeEpochRecord(this.dir, {
      ...record,
      ...(abandoned ? { closed, abandoned } : {}),
      expired: last - first + 1,
    });
    const mark: Settlement = { first, count: last - first + 1, end: 0, disposition: 'expired' };
    this.#note([mark]);
    await this.#file?.close();
    this.#file = undefined;
    replaceWhole(path, `${line}\n`);
    this.#settled = 0;
    return mark.count;
  }

  /** Closes files and gives the directory back if it was adopted. */
  async release(): Promise<void> {
    await this.#file?.close();
    this.#file = undefined;
    for (const fd of [this.#acks, this.#proofs]) if (fd !== undefined) closeSync(fd);
    this.#acks = this.#proofs = undefined;
    this.#lock?.release();
  }

  /** Size and root of an epoch that was never closed, for the next one of its sink to name. */
  #abandoned(): { size: number; root: string } | undefined {
    try {
      return treeOfLines(readFileSync(join(this.dir, LINES))).stated();
    } catch {
      return undefined;
    }
  }
}

/** `seq` of the first number that lines speak of: a leading `gap` speaks of the ones before it. */
function firstOf(lines: Buffer): number {
  const { seq, kind, attrs } = JSON.parse(lines.toString('latin1', 0, lines.indexOf(LF))) as {
    seq: number;
    kind: string;
    attrs?: { first: number };
  };
  return kind === 'gap' ? (attrs?.first ?? seq) : seq;
}

function replaceWhole(path: string, text: string): void {
  const fresh = `${path}.new`;
  const fd = openSync(fresh, 'w', 0o600);
  try {
    writeSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(fresh, path);
}

function seqOf(line: Buffer): number {
  return (JSON.parse(line.toString('latin1')) as { seq: number }).seq;
}

function settlementsOf(
  batch: Batch,
  runs: readonly AckRun[],
  refused: VerifiedAck['refused'],
  head: SignedHead,
): Settlement[] {
  const settlements: Settlement[] = [];
  const place = (from: number, to: number): Pick<Settlement, 'first' | 'count' | 'end'> => ({
    first: batch.seqs[from] as number,
    count: to - from,
    end: batch.ends[to - 1] as number,
  });
  for (const run of runs) {
    const { disposition, index, received, token, role, signed, conflict, late } = run;
    settlements.push({
      ...place(...run.lines),
      disposition,
      index,
      received,
      token,
      role,
      ...(signed === undefined ? {} : { signed }),
      ...(conflict === undefined ? {} : { conflict }),
      ...(late === undefined ? {} : { late }),
      size: head.size,
    });
  }
  for (const { line, code, field } of refused) {
    settlements.push({ ...place(line, line + 1), disposition: 'refused', code, field });
  }
  return settlements.sort((a, b) => a.end - b.end);
}
