import { randomBytes } from 'node:crypto';
import { constants, openSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { SinkKind } from '@belay/envelope';
import { newUlid } from '@belay/envelope/sink';
import {
  type EpochRecord,
  isLocked,
  LINES,
  readEpochRecord,
  treeOfLines,
  writeEpochRecord,
} from './epoch-record.js';
import type { LineFilter } from './line-filter.js';
import { LineWriter } from './line-writer.js';
import { rememberLog, waitingBytes } from './spools.js';
import { SPOOL_LIMITS, type SpoolLimits, SpoolRoom } from './spool-room.js';
import { type Chain, makeDir, readChain, writeJson } from './state.js';

/** Larger spools are not read again only to state the root of an epoch that was killed. Bytes. */
const MAX_REREAD = 64 * 1024 * 1024;

export interface EpochOptions {
  readonly state: string;
  /** Origin of the log. */
  readonly log: string;
  readonly sink: string;
  readonly sinkKind: SinkKind;
  /** Ed25519 public key of a keyed sink, 32 bytes. */
  readonly key?: Buffer | undefined;
  readonly limits?: SpoolLimits | undefined;
  /** Lines that are not to be sent. */
  readonly filter?: LineFilter | undefined;
  readonly now?: () => Date;
}

/**
 * Makes the next epoch of a sink and appends its `epoch.open`, which names the one before. The caller holds the lock of
 * `folder`, the sink's. `prepare` is called with the new spool's directory before anything is in it.
 */
export function openNext(
  folder: string,
  options: EpochOptions,
  prepare: (dir: string) => void,
  shared?: true,
): { readonly dir: string; readonly record: EpochRecord; readonly writer: LineWriter } {
  const { state, log, sink, sinkKind } = options;
  const now = options.now ?? (() => new Date());
  rememberLog(state, log);
  const before = readChain(folder);
  const counter = before === undefined ? 0 : before.counter + 1;
  const epoch = newUlid(now().getTime(), randomBytes(10));
  const dir = join(folder, epoch);
  makeDir(dir);
  const others = waitingBytes(state, log);
  const record: EpochRecord = {
    v: 1,
    log,
    sink,
    epoch,
    counter,
    secret: randomBytes(32).toString('base64'),
    opened: now().toISOString(),
    others,
    shared,
  };
  let fd: number;
  try {
    prepare(dir);
    writeEpochRecord(dir, record);
    fd = openSync(
      join(dir, LINES),
      constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND,
      0o600,
    );
  } catch (error) {
    // A disk that is full must not gather a folder for every try.
    rmSync(dir, { recursive: true, force: true });
    throw error;
  }
  const room = new SpoolRoom(dir, options.limits ?? SPOOL_LIMITS, others);
  const writer = new LineWriter(record, fd, room, now, options.filter);
  const previous = before === undefined ? undefined : stateOfPrevious(join(folder, before.epoch));
  writer.open({
    counter,
    prev_epoch: before?.epoch,
    prev_size: previous?.size,
    prev_root: previous?.root,
    key: options.key?.toString('base64'),
    sink_kind: sinkKind,
  });
  // The counter moves last: a crash before this line leaves an epoch that the next one will not name, and whose
  // number it takes again; its lines are sent all the same.
  writeJson(join(folder, 'chain.json'), { counter, epoch } satisfies Chain);
  return { dir, record, writer };
}

/** What the next `epoch.open` can say of the epoch before: nothing while that is still running. */
function stateOfPrevious(dir: string): { readonly size: number; readonly root: string } | undefined {
  try {
    const record = readEpochRecord(dir);
    if (record?.closed !== undefined) return record.closed;
    // A shared epoch has no owner; what holds its directory is who sends it.
    if (record === undefined || (record.shared !== true && isLocked(dir))) return undefined;
    const path = join(dir, LINES);
    return statSync(path).size > MAX_REREAD ? undefined : treeOfLines(readFileSync(path)).stated();
  } catch {
    return undefined;
  }
}
