import { constants, createReadStream, readSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { ContentReader } from './beside.js';
import { formatRecord, NO_RECORD, parseRecord, RecordError, type TraceRecord } from './record.js';

/** Longer lines are no records: content of 16 MiB in base64 and its members. */
const MAX_LINE = 24 * 1024 * 1024;
const LF = 0x0a;

export type TraceProblemCode =
  | 'empty'
  | 'not_json'
  | 'not_a_record'
  | 'content_changed'
  | 'content_missing'
  | 'edited'
  | 'deleted'
  | 'swapped'
  | 'duplicated'
  | 'torn_tail'
  | 'missing_open'
  | 'missing_close'
  | 'after_close'
  | 'close_wrong';

/** One thing that is wrong with a file; `line` counts from 1, `n` is the number of the record, where it has one. */
export interface TraceProblem {
  readonly code: TraceProblemCode;
  readonly line?: number;
  readonly n?: number;
  readonly message: string;
}

/** What a trace holds and what is wrong with it. */
export interface TraceReport {
  readonly records: number;
  readonly frames: number;
  readonly open: (TraceRecord & { type: 'open' }) | undefined;
  readonly close: (TraceRecord & { type: 'close' }) | undefined;
  /** The `gap` records: what the recorder itself says is missing. */
  readonly gaps: readonly (TraceRecord & { type: 'gap' })[];
  /** Hash of the last record in order, 64 hex digits. */
  readonly head: string;
  /** Empty when the chain holds from `open` to `close`. */
  readonly problems: readonly TraceProblem[];
  /** A chain alone proves nothing against the file's owner. */
  readonly integrity: 'local-only';
}

/** A line of a trace: a record, or the reason why it is none. */
export type TraceLine = {
  readonly line: number;
  /** Offset of its first byte in the file. */
  readonly offset: number;
  /** Whether it ended in LF. */
  readonly whole: boolean;
} & (
  | {
      readonly record: TraceRecord;
      readonly hash: string;
      readonly intact: boolean;
      /** Its content is in the file beside the trace, and not there: `intact` is false. */
      readonly missing?: true;
    }
  | { readonly error: RecordError }
);

/** The lines of a trace file, in file order, one in memory at a time. */
export async function* readTrace(path: string): AsyncGenerator<TraceLine> {
  let line = 0;
  const beside = new ContentReader(path);
  try {
    for await (const { bytes, offset, whole } of fileLines(path)) {
      line++;
      const place = { line, offset, whole };
      let item: TraceLine;
      try {
        if (bytes === undefined)
          throw new RecordError('not_a_record', `the line is longer than ${MAX_LINE} bytes`);
        item = { ...place, ...parseRecord(bytes, beside) };
      } catch (error) {
        if (!(error instanceof RecordError)) throw error;
        item = { ...place, error };
      }
      yield item;
    }
  } finally {
    beside.close();
  }
}

/**
 * The record whose line begins at `offset` of an open file, as `readTrace` said; for content that is wanted after its
 * record went by. Undefined when there is no intact record there. Waits for the disk: lines that were just read come
 * from the page cache, and a hop to a thread and back costs more than they do.
 */
export function readRecordAt(fd: number, offset: number, beside?: ContentReader): TraceRecord | undefined {
  const parts: Buffer[] = [];
  let length = 0;
  while (length <= MAX_LINE) {
    const piece = Buffer.allocUnsafe(length === 0 ? 2 * 1024 : length < 64 * 1024 ? 64 * 1024 : 1024 * 1024);
    const count = readSync(fd, piece, 0, piece.length, offset + length);
    if (count === 0) return undefined;
    const lf = piece.subarray(0, count).indexOf(LF);
    parts.push(piece.subarray(0, lf < 0 ? count : lf));
    length += count;
    if (lf >= 0) return intactRecord(Buffer.concat(parts), beside);
  }
  return undefined;
}

function intactRecord(line: Buffer, beside: ContentReader | undefined): TraceRecord | undefined {
  try {
    const { record, intact } = parseRecord(line, beside);
    return intact ? record : undefined;
  } catch (error) {
    if (error instanceof RecordError) return undefined;
    throw error;
  }
}

/**
 * Reads a whole trace and names everything that is wrong with it. In constant memory as long as the numbers are in
 * order; only to say what happened to numbers that are not is the file read again, remembering every record.
 */
export async function checkTrace(path: string): Promise<TraceReport> {
  return (await checkInOrder(path)) ?? (await checkAnyOrder(path));
}

/** The report on a file whose records are numbered 0, 1, 2 ... as they stand; undefined when they are not. */
async function checkInOrder(path: string): Promise<TraceReport | undefined> {
  const found = new Findings();
  let last: { readonly hash: string } | undefined;
  let next = 0;
  for await (const item of readTrace(path)) {
    const known = found.take(item);
    if (known === undefined) continue;
    const { record, hash } = known;
    if (record.n !== next++) return undefined;
    if (record.prev !== (last?.hash ?? NO_RECORD)) found.problems.push(brokenLink(record.n, item.line));
    found.place(record, item.line);
    last = { hash };
  }
  return found.report(next, last?.hash ?? NO_RECORD);
}

async function checkAnyOrder(path: string): Promise<TraceReport> {
  const found = new Findings();
  const { problems } = found;
  /** By number of the record: its hash, the hash it follows, and where it stands. */
  const seen = new Map<number, { hash: string; prev: string; line: number }>();
  let next = 0;
  for await (const item of readTrace(path)) {
    const known = found.take(item);
    if (known === undefined) continue;
    const { record, hash } = known;
    const { line } = item;
    const { n } = record;
    const before = seen.get(n);
    if (before !== undefined) {
      const message = `record ${n} stands in line ${before.line} and ${line}`;
      problems.push({ code: 'duplicated', line, n, message });
      continue;
    }
    if (n < next)
      problems.push({ code: 'swapped', line, n, message: `record ${n} stands after record ${next - 1}` });
    next = Math.max(next, n + 1);
    seen.set(n, { hash, prev: record.prev, line });
    found.place(record, line);
  }
  problems.push(...chainProblems(seen, next));
  return found.report(seen.size, seen.get(next - 1)?.hash ?? NO_RECORD);
}

/** What a pass over a file comes to, apart from how its records hang together. */
class Findings {
  readonly problems: TraceProblem[] = [];
  readonly #gaps: (TraceRecord & { type: 'gap' })[] = [];
  #open: (TraceRecord & { type: 'open' }) | undefined;
  #close: (TraceRecord & { type: 'close' }) | undefined;
  #frames = 0;
  #torn: TraceLine | undefined;

  /** The record of a line, whose content is judged here; undefined for a line that is none. */
  take(item: TraceLine): { readonly record: TraceRecord; readonly hash: string } | undefined {
    const { line } = item;
    if (!item.whole) this.#torn = item;
    if ('error' in item) {
      if (item.whole) this.problems.push({ code: item.error.code, line, message: item.error.message });
      return undefined;
    }
    const { record, hash, intact, missing } = item;
    if (missing) {
      const message = `record ${record.n}: its content is not in the file beside the trace`;
      this.problems.push({ code: 'content_missing', line, n: record.n, message });
    } else if (!intact) {
      const message = `record ${record.n}: the content is not what its hash says`;
      this.problems.push({ code: 'content_changed', line, n: record.n, message });
    }
    return { record, hash };
  }

  /** Counts a record that is the only one of its number. */
  place(record: TraceRecord, line: number): void {
    const { n } = record;
    if (this.#close !== undefined && n > this.#close.n) {
      this.problems.push({ code: 'after_close', line, n, message: `record ${n} comes after the close` });
    }
    if (record.type === 'open' && n === 0) this.#open = record;
    else if (record.type === 'close') this.#close ??= record;
    else if (record.type === 'gap') this.#gaps.push(record);
    else if (record.type === 'frame') this.#frames++;
  }

  report(records: number, head: string): TraceReport {
    const { problems } = this;
    const [open, close, torn] = [this.#open, this.#close, this.#torn];
    if (records === 0) problems.push({ code: 'empty', message: 'there is no record in the file' });
    else if (open === undefined)
      problems.push({ code: 'missing_open', message: 'the trace does not begin with `open`' });
    if (torn !== undefined) {
      problems.push({
        code: 'torn_tail',
        line: torn.line,
        message: 'the last line is not whole: its writer was stopped',
      });
    }
    if (records > 0 && close === undefined) {
      problems.push({
        code: 'missing_close',
        message: 'the trace has no close: its writer was stopped, or its end was cut off',
      });
    }
    if (close !== undefined && (close.count !== close.n || close.head !== close.prev)) {
      problems.push({
        code: 'close_wrong',
        n: close.n,
        message: 'the close states another count or head than it follows',
      });
    }
    const frames = this.#frames;
    return { records, frames, open, close, gaps: this.#gaps, head, problems, integrity: 'local-only' };
  }
}

function brokenLink(n: number, line: number): TraceProblem {
  const message =
    n === 0
      ? 'record 0 claims to follow another'
      : `record ${n - 1} is not the one that record ${n} was written after`;
  return { code: 'edited', line, n: Math.max(0, n - 1), message };
}

function chainProblems(
  seen: ReadonlyMap<number, { hash: string; prev: string; line: number }>,
  end: number,
): TraceProblem[] {
  const problems: TraceProblem[] = [];
  let missing: [number, number] | undefined;
  const report = (): void => {
    if (missing === undefined) return;
    const [first, last] = missing;
    const what = first === last ? `record ${first} is` : `records ${first} to ${last} are`;
    problems.push({ code: 'deleted', n: first, message: `${what} missing` });
    missing = undefined;
  };
  for (let n = 0; n < end; n++) {
    const record = seen.get(n);
    if (record === undefined) {
      missing = [missing?.[0] ?? n, n];
      continue;
    }
    report();
    const before = n === 0 ? NO_RECORD : seen.get(n - 1)?.hash;
    if (before !== undefined && record.prev !== before) problems.push(brokenLink(n, record.line));
  }
  return problems;
}

/** What `repairTrace` did: bytes that were cut off as no record, 0 when the file was whole. */
export interface TraceRepair {
  readonly removed: number;
}

/**
 * Cuts a torn tail off a trace whose writer was stopped, and says so in a `gap` record that continues the chain. The
 * tail is lost, the file is not. Only for files that no process writes any more. Records that are whole are never
 * touched, whatever else is wrong with the file.
 */
export async function repairTrace(path: string, now: string): Promise<TraceRepair> {
  let last: { record: TraceRecord; hash: string } | undefined;
  let torn: number | undefined;
  for await (const item of readTrace(path)) {
    if (!item.whole) torn = item.offset;
    else if ('record' in item) last = item;
  }
  if (torn === undefined) return { removed: 0 };
  const file = await open(path, constants.O_RDWR);
  try {
    const { size } = await file.stat();
    await file.truncate(torn);
    await appendGap(file, torn, last, { removed: size - torn, now });
    await file.datasync();
    return { removed: size - torn };
  } finally {
    await file.close();
  }
}

async function appendGap(
  file: FileHandle,
  end: number,
  last: { record: TraceRecord; hash: string } | undefined,
  { removed, now }: { removed: number; now: string },
): Promise<void> {
  const stamp = {
    n: (last?.record.n ?? -1) + 1,
    time: now,
    at: last?.record.at ?? 0,
    prev: last?.hash ?? NO_RECORD,
  };
  const { line } = formatRecord(stamp, { type: 'gap', reason: 'torn', count: removed }, undefined);
  await file.write(`${line}\n`, end);
}

/** A line of a file without its LF; `bytes` is undefined when it is longer than any record may be. */
export interface FileLine {
  readonly bytes: Buffer | undefined;
  /** Of its first byte in the file. */
  readonly offset: number;
  /** Whether it ended in LF. */
  readonly whole: boolean;
}

/** The lines of a file, one in memory at a time. */
export async function* fileLines(path: string): AsyncGenerator<FileLine> {
  let parts: Buffer[] = [];
  let length = 0;
  let offset = 0;
  const take = (whole: boolean): FileLine => {
    const bytes = length > MAX_LINE ? undefined : parts.length === 1 ? parts[0] : Buffer.concat(parts);
    const item = { bytes, offset, whole };
    offset += length + 1;
    parts = [];
    length = 0;
    return item;
  };
  const add = (piece: Buffer): void => {
    length += piece.length;
    if (length > MAX_LINE) parts = [];
    else parts.push(piece);
  };
  for await (const chunk of createReadStream(path, { highWaterMark: 256 * 1024 }) as AsyncIterable<Buffer>) {
    let start = 0;
    for (let lf = chunk.indexOf(LF); lf >= 0; lf = chunk.indexOf(LF, start)) {
      add(chunk.subarray(start, lf));
      yield take(true);
      start = lf + 1;
    }
    if (start < chunk.length) add(chunk.subarray(start));
  }
  if (length > 0) yield take(false);
}
