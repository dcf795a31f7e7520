import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ACKS, filteredIn, type Forgotten, isLocked, LINES, readEpochRecord } from './epoch-record.js';
import { keptBytes } from './kept-lines.js';
import type { WriterState } from './line-writer.js';
import { Slots } from './slots.js';
import type { Settlement } from './spool.js';
import { settledEnd } from './spool-room.js';
import { readChain } from './state.js';

/** One epoch of a sink, as far as its folder tells; counts of lines. */
export interface EpochStatus {
  readonly epoch: string;
  readonly opened: string;
  /**
   * `open`: a process writes it, or may; `waiting`: it is over and not all of it is acknowledged; `abandoned`: its
   * writer was killed; `settled`: it is over and nothing waits.
   */
  readonly state: 'open' | 'waiting' | 'abandoned' | 'settled';
  /** Numbers given. */
  readonly lines: number;
  /** In the spool, without an acknowledgement; and their bytes. */
  readonly pending: number;
  readonly pendingBytes: number;
  readonly acked: number;
  readonly refused: number;
  /** Never sent: the spool or the disk had no room for them, or they became too old. */
  readonly dropped: number;
  /** Never sent because the policy says so. */
  readonly filtered: number;
  readonly conflicts: number;
  /** Index of its last line that is in the log. */
  readonly lastIndex: number | undefined;
  /** Bytes of settled lines that are kept, with the proofs. */
  readonly keptBytes: number;
  /** Size of a published checkpoint that covers all its lines, once one is known. */
  readonly published: number | undefined;
  /** Why its settled lines are not kept any more. */
  readonly forgotten: Forgotten | undefined;
}

/** Undefined for a folder that is no epoch. Changes nothing; what is being written meanwhile may be missing. */
export function epochStatus(dir: string): EpochStatus | undefined {
  const record = readEpochRecord(dir);
  if (record === undefined) return undefined;
  const counts = { acked: 0, refused: 0, conflicts: 0 };
  let lastIndex: number | undefined;
  let settled = 0;
  for (const settlement of settlementsIn(join(dir, ACKS))) {
    settled = Math.max(settled, settlement.first + settlement.count - 1);
    const { disposition, count } = settlement;
    if (disposition === 'again') {
      Object.assign(counts, { acked: 0, refused: 0, conflicts: 0 });
      lastIndex = undefined;
      settled = 0;
    } else if (disposition === 'refused') counts.refused += count;
    else if (disposition !== 'expired') {
      if (disposition === 'conflict') counts.conflicts += count;
      counts.acked += count;
      lastIndex = Math.max(lastIndex ?? 0, settlement.index + count - 1);
    }
  }
  const { pending, bytes, last, ...spool } = waitingIn(dir);
  const writer = record.shared === true ? writerState(dir) : undefined;
  const lines = Math.max(record.closed?.size ?? 0, last, settled, writer?.tree.size ?? 0);
  const hole = writer?.hole?.reason === 'filtered' ? writer.tree.size - writer.hole.first + 1 : 0;
  const filtered = spool.filtered + (record.filtered ?? 0) + hole;
  const open =
    record.closed === undefined && (record.shared === true ? isCurrent(dir, record.epoch) : isLocked(dir));
  return {
    epoch: record.epoch,
    opened: record.opened,
    state: open
      ? 'open'
      : record.abandoned === true || record.closed === undefined
        ? 'abandoned'
        : pending > 0
          ? 'waiting'
          : 'settled',
    lines,
    pending,
    pendingBytes: bytes,
    ...counts,
    // Numbers that are neither settled nor in the spool, and those of a hole that no line speaks of yet.
    dropped: Math.max(writer?.dropped ?? 0, lines - counts.acked - counts.refused - pending - filtered),
    filtered,
    lastIndex,
    keptBytes: keptBytes(dir),
    published: record.published,
    forgotten: record.forgotten,
  };
}

const isCurrent = (dir: string, epoch: string): boolean => readChain(join(dir, '..'))?.epoch === epoch;

function writerState(dir: string): WriterState | undefined {
  try {
    statSync(join(dir, 'writer'));
    const slots = Slots.open<WriterState>(join(dir, 'writer'));
    slots.close();
    return slots.value;
  } catch {
    return undefined;
  }
}

function settlementsIn(path: string): Settlement[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    return [];
  }
  return text.split('\n').flatMap((line) => {
    try {
      return line === '' ? [] : (JSON.parse(line) as Settlement);
    } catch {
      return [];
    }
  });
}

/** Lines after the settled ones; `last` is the highest number in the spool. */
function waitingIn(dir: string): {
  readonly pending: number;
  readonly bytes: number;
  readonly last: number;
  readonly filtered: number;
} {
  let bytes: Buffer;
  let settled: number;
  try {
    bytes = readFileSync(join(dir, LINES));
    settled = settledEnd(join(dir, ACKS));
  } catch {
    return { pending: 0, bytes: 0, last: 0, filtered: 0 };
  }
  let [pending, last, start] = [0, 0, 0];
  for (let lf = bytes.indexOf(0x0a); lf >= 0; lf = bytes.indexOf(0x0a, start)) {
    if (start >= settled) pending++;
    const next = lf + 1;
    if (next === bytes.length || bytes.indexOf(0x0a, next) < 0)
      last = seqIn(bytes.toString('latin1', start, lf));
    start = next;
  }
  return {
    pending,
    bytes: Math.max(0, start - settled),
    last,
    filtered: filteredIn(bytes.subarray(0, start)),
  };
}

function seqIn(line: string): number {
  return (JSON.parse(line) as { seq: number }).seq;
}
