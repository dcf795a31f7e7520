import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import type { AckRun } from '@belay/contracts';
import { acquire, type DirLock, DirLocked } from '@belay/dirlock';
import type { SignedHead, VerifiedAck } from './ack.js';
import { type EpochRecord, LINES, readEpochRecord, treeOfLines, writeEpochRecord } from './epoch-record.js';
import { logDir, readJson, writeJson } from './state.js';

/** What became of the lines, in the spool's directory. */
const ACKS = 'acks';

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
    if (!existsSync(join(dir, LINES))) return undefined;
    let lock: DirLock;
    try {
      lock = acquire(dir);
    } catch (error) {
      if (error instanceof DirLocked) return undefined;
      throw error;
    }
    const record = readEpochRecord(dir);
    if (record !== undefined && existsSync(join(dir, LINES))) return new Spool(dir, record, lock);
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
    const settlements = settlementsOf(batch, ack.runs, ack.refused, ack.head);
    this.#acks ??= openSync(join(this.dir, ACKS), 'a', 0o600);
    writeSync(this.#acks, settlements.map((each) => `${JSON.stringify(each)}\n`).join(''));
    this.#settled = batch.ends.at(-1) as number;
  }

  /**
   * Everything is settled and the writer is done: removes the lines, keeps the record and the acks. (Keeping the
   * lines until a published checkpoint covers them is the one thing to change here when that comes.)
   */
  finish(): void {
    const record = readEpochRecord(this.dir) ?? this.record;
    const abandoned = record.closed === undefined;
    writeEpochRecord(this.dir, {
      ...record,
      ...(abandoned ? { closed: this.#abandoned(), abandoned } : {}),
      settled: true,
    });
    rmSync(join(this.dir, LINES));
  }

  /** Closes files and gives the directory back if it was adopted. */
  async release(): Promise<void> {
    await this.#file?.close();
    this.#file = undefined;
    if (this.#acks !== undefined) closeSync(this.#acks);
    this.#acks = undefined;
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

/** Spool directories of a log with lines in them, oldest first. Their owners may be alive: `Spool.adopt` tells. */
export function pendingSpools(state: string, origin: string): string[] {
  const sinks = join(logDir(state, origin), 'sinks');
  return namesIn(sinks)
    .flatMap((sink) => namesIn(join(sinks, sink)).map((epoch) => ({ epoch, dir: join(sinks, sink, epoch) })))
    .filter(({ dir }) => existsSync(join(dir, LINES)))
    .sort((a, b) => (a.epoch < b.epoch ? -1 : 1))
    .map(({ dir }) => dir);
}

/** Origins of the logs that this state directory knows. */
export function knownLogs(state: string): string[] {
  const logs = join(state, 'logs');
  return namesIn(logs).flatMap(
    (name) => (readJson(join(logs, name, 'log.json')) as { origin: string } | undefined)?.origin ?? [],
  );
}

/** Writes down which origin a log's folder is of. */
export function rememberLog(state: string, origin: string): void {
  const folder = logDir(state, origin);
  const path = join(folder, 'log.json');
  if (existsSync(path)) return;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeJson(path, { origin });
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** Offset after the last settled line. A torn last line of `acks` is as good as none. */
function settledEnd(path: string): number {
  if (!existsSync(path)) return 0;
  const text = readFileSync(path, 'utf8');
  const whole = text.slice(0, text.lastIndexOf('\n') + 1).trimEnd();
  const last = whole.slice(whole.lastIndexOf('\n') + 1);
  return last === '' ? 0 : (JSON.parse(last) as Settlement).end;
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
