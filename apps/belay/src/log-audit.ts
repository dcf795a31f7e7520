/**
 * Reads a log whole through its tiles, as a stranger would, and recomputes everything that its checkpoint claims.
 * Nothing the service says is taken: entries are hashed here, tiles are compared with these hashes, and the root is
 * the one that comes out.
 */

import { type CollectorLine, EnvelopeError, parseEntry } from '@belay/envelope';
import {
  CompactRange,
  entriesPath,
  type Hash,
  hashTile,
  leafHash,
  MerkleError,
  parseEntryBundle,
  partialWidth,
  TILE_WIDTH,
  tilePath,
} from '@belay/merkle';
import { type Checkpoint, NoteError, type NoteVerifier, openCheckpoint } from '@belay/note';
import type { CheckResult } from '@belay/receipt';

/** What is read, below a log's prefix; a missing file is an error of the reader. */
export interface LogReader {
  checkpoint(): Promise<Buffer>;
  file(path: string): Promise<Buffer>;
}

export type AuditCheck = 'checkpoint' | 'kept checkpoint' | 'entries' | 'tiles' | 'root' | 'consistency';

export interface Audit {
  readonly verdict: 'VALID' | 'INVALID';
  readonly origin: string;
  readonly size: number;
  readonly root: string;
  readonly checks: readonly CheckResult<AuditCheck>[];
}

interface Fault {
  readonly check: AuditCheck;
  readonly detail: string;
}

const WIDTH = BigInt(TILE_WIDTH);

/**
 * Checks in order: the checkpoint's signature; each entry (well-formed, of this log, numbered without gaps, times
 * not running backwards); each tile against the hashes below it; the root; and that the tree still contains `kept`,
 * an older checkpoint from the reader's own keeping. Stops a check at its first fault and goes on with the others
 * where they still mean something. `progress` is told how many entries were read.
 */
export async function auditLog(
  reader: LogReader,
  log: NoteVerifier,
  kept: Uint8Array | undefined,
  progress: (done: number, size: number) => void,
): Promise<Audit> {
  const checks: CheckResult<AuditCheck>[] = [];
  const opened = open(await reader.checkpoint(), log, 'checkpoint');
  checks.push(opened.result);
  const keptOpened = kept && open(kept, log, 'kept checkpoint');
  if (keptOpened) checks.push(keptOpened.result);
  const head = opened.checkpoint;
  if (!head) return { verdict: 'INVALID', origin: log.name, size: 0, root: '', checks };

  const { root, rootAt, faults } = await recompute(reader, head, keptOpened?.checkpoint?.size, progress);
  const faultOf = (check: AuditCheck): Fault | undefined => faults.find((fault) => fault.check === check);
  const settle = (check: AuditCheck, detail: string): void => {
    const fault = faultOf(check);
    checks.push({
      name: check,
      status: fault === undefined ? 'ok' : 'failed',
      detail: fault?.detail ?? detail,
    });
  };
  settle('entries', `${head.size} entries, numbered without a gap`);
  settle('tiles', 'every tile is what its entries hash to');
  checks.push({
    name: 'root',
    status: root?.equals(head.root) === true ? 'ok' : 'failed',
    detail: root
      ? `${root.toString('base64')}${root.equals(head.root) ? '' : `, but the checkpoint says ${head.root.toString('base64')}`}`
      : 'could not be computed: an entry is missing',
  });
  const before = keptOpened?.checkpoint;
  if (before) {
    const shrunk = before.size > head.size;
    const same = rootAt?.equals(before.root) === true;
    checks.push({
      name: 'consistency',
      status: !shrunk && same ? 'ok' : 'failed',
      detail: shrunk
        ? `the log has ${head.size} entries, the kept checkpoint ${before.size}: entries were removed`
        : same
          ? `the first ${before.size} entries are those of the kept checkpoint`
          : `the first ${before.size} entries are not those of the kept checkpoint: the past was changed`,
    });
  }
  return {
    verdict: checks.every(({ status }) => status === 'ok') ? 'VALID' : 'INVALID',
    origin: head.origin,
    size: Number(head.size),
    root: head.root.toString('base64'),
    checks,
  };
}

function open(
  note: Uint8Array,
  log: NoteVerifier,
  check: 'checkpoint' | 'kept checkpoint',
): { readonly checkpoint?: Checkpoint; readonly result: CheckResult<AuditCheck> } {
  try {
    const checkpoint = openCheckpoint(note, log);
    const detail = `size ${checkpoint.size}, signed by ${log.name}+${log.keyId}`;
    return { checkpoint, result: { name: check, status: 'ok', detail } };
  } catch (error) {
    if (!(error instanceof NoteError)) throw error;
    return { result: { name: check, status: 'failed', detail: error.message } };
  }
}

async function recompute(
  reader: LogReader,
  head: Checkpoint,
  keptSize: bigint | undefined,
  progress: (done: number, size: number) => void,
): Promise<{
  readonly root: Hash | undefined;
  readonly rootAt: Hash | undefined;
  readonly faults: readonly Fault[];
}> {
  const faults: Fault[] = [];
  const fault = (check: AuditCheck, detail: string): void => {
    if (!faults.some((each) => each.check === check)) faults.push({ check, detail });
  };
  const range = CompactRange.empty();
  let rootAt = keptSize === 0n ? range.root() : undefined;
  let previous: CollectorLine | undefined;
  /** Hashes of full tiles of the level below, waiting to be compared with the level's own tile. */
  const levels: Hash[][] = [];

  const compareTile = async (level: number, n: bigint, hashes: readonly Hash[]): Promise<void> => {
    const path = tilePath(level, n, hashes.length);
    const tile = await reader.file(path);
    if (!tile.equals(Buffer.concat(hashes))) fault('tiles', `${path} is not what its entries hash to`);
  };
  const carry = async (level: number, n: bigint, hash: Hash): Promise<void> => {
    const row = (levels[level] ??= []);
    row.push(hash);
    if (row.length < TILE_WIDTH) return;
    levels[level] = [];
    await compareTile(level, n / WIDTH, row);
    await carry(level + 1, n / WIDTH, hashTile(Buffer.concat(row), 0, TILE_WIDTH));
  };

  for (let first = 0n; first < head.size; first += WIDTH) {
    const count = head.size - first < WIDTH ? Number(head.size - first) : TILE_WIDTH;
    const path = entriesPath(first / WIDTH, count);
    let entries: Buffer[];
    try {
      entries = parseEntryBundle(await reader.file(path));
    } catch (error) {
      if (!(error instanceof MerkleError)) throw error;
      fault('entries', `${path}: ${error.message}`);
      return { root: undefined, rootAt: undefined, faults };
    }
    if (entries.length !== count) {
      fault('entries', `${path} has ${entries.length} entries instead of ${count}`);
      return { root: undefined, rootAt: undefined, faults };
    }
    for (const entry of entries) {
      const index = range.end;
      try {
        const { line } = parseEntry(entry);
        if (line.log !== head.origin) fault('entries', `entry ${index} is of another log: ${line.log}`);
        if (BigInt(line.index) !== index) fault('entries', `entry ${index} says it is ${line.index}`);
        if (previous && line.received < previous.received) {
          fault('entries', `entry ${index} was received before the one in front of it`);
        }
        previous = line;
      } catch (error) {
        if (!(error instanceof EnvelopeError)) throw error;
        fault('entries', `entry ${index}: ${error.message}`);
      }
      const hash = leafHash(entry);
      range.append(hash);
      if (range.end === keptSize) rootAt = range.root();
      await carry(0, index, hash);
    }
    progress(Number(range.end), Number(head.size));
  }
  // The right edge: partial tiles of every level that has one.
  for (const [level, row] of levels.entries()) {
    const width = partialWidth(level, head.size);
    if (row.length === width && width > 0) {
      await compareTile(level, head.size >> BigInt(8 * (level + 1)), row);
    }
  }
  return { root: range.root(), rootAt, faults };
}
