import { existsSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import {
  type EpochRecord,
  type Forgotten,
  LINES,
  readEpochRecord,
  writeEpochRecord,
} from './epoch-record.js';
import { forgetLines, hasKeptLines, keptBytes, keptSince } from './kept-lines.js';
import { provedEnd } from './proofs.js';
import type { Published } from './published.js';
import { Spool } from './spool.js';
import type { SpoolLimits } from './spool-room.js';
import { allSpools } from './spools.js';
import { logDir, makeDir, readJson, writeJson } from './state.js';

/** Settled lines of a log's spools that are kept on this machine. */
export interface KeptLines {
  /** Epochs, and the bytes they take. */
  readonly epochs: number;
  readonly bytes: number;
  /** Of these epochs, those that no published checkpoint covers yet. */
  readonly uncovered: number;
}

/**
 * Goes over what is kept of a log: marks what a published checkpoint covers, and gives up what is too much. `bytes`
 * bounds all of it, and what is covered goes first; `age` bounds how long lines wait for a checkpoint. What was given
 * up is told in the epoch's record; it is in the log, so it is no gap.
 */
export async function tendKept(
  state: string,
  origin: string,
  limits: SpoolLimits,
  published: Published | undefined,
  now: Date,
): Promise<KeptLines> {
  const kept: { readonly dir: string; readonly bytes: number; readonly covered: boolean }[] = [];
  for (const dir of allSpools(state, origin)) {
    if (!hasKeptLines(dir) || existsSync(join(dir, LINES))) continue;
    const record = readEpochRecord(dir);
    if (record === undefined) continue;
    const covered = record.published !== undefined || (await cover(dir, published));
    const since = keptSince(dir);
    if (!covered && since !== undefined && now.getTime() - since > limits.age) {
      await forget(dir, { reason: 'age', published: false, time: now.toISOString() });
    } else kept.push({ dir, bytes: keptBytes(dir), covered });
    // Between two epochs others get their turn: an agent's calls may be waiting.
    await new Promise((resolve) => setImmediate(resolve));
  }
  let bytes = kept.reduce((sum, each) => sum + each.bytes, 0);
  const left = new Set(kept);
  for (const each of [...kept.filter(({ covered }) => covered), ...kept.filter(({ covered }) => !covered)]) {
    if (bytes <= limits.bytes) break;
    await forget(each.dir, { reason: 'size', published: each.covered, time: now.toISOString() });
    bytes -= each.bytes;
    left.delete(each);
  }
  return { epochs: left.size, bytes, uncovered: [...left].filter(({ covered }) => !covered).length };
}

async function cover(dir: string, published: Published | undefined): Promise<boolean> {
  if (published === undefined || (provedEnd(dir) ?? 0) > published.size) return false;
  await change(dir, (record) => ({ ...record, published: published.size }));
  return true;
}

async function forget(dir: string, forgotten: Forgotten): Promise<void> {
  const done = await change(dir, (record) => ({ ...record, forgotten }));
  if (done) await forgetLines(dir);
}

/** Writes a record that nobody else writes meanwhile; false when somebody may. */
async function change(dir: string, act: (record: EpochRecord) => EpochRecord): Promise<boolean> {
  const spool = Spool.adoptKept(dir);
  if (spool === undefined) return false;
  try {
    writeEpochRecord(dir, act(readEpochRecord(dir) ?? spool.record));
    return true;
  } finally {
    await spool.release();
  }
}

/** When what is kept of a log was last gone over, in milliseconds since 1970. */
export function lastTended(state: string, origin: string): number | undefined {
  try {
    return (readJson(join(logDir(state, origin), 'kept.json')) as { tended: number } | undefined)?.tended;
  } catch {
    return undefined;
  }
}

export function noteTended(state: string, origin: string, tended: number): void {
  writeJson(join(logDir(state, origin), 'kept.json'), { tended });
}

/**
 * The log has started over, as its operator says: puts the head that was held aside, as evidence, and makes everything
 * that is kept wait to be sent again. What the log still has comes back as duplicates. Spools that a running process
 * holds are left alone and counted as `busy`; doing it again when that has ended is enough, and so it is after a crash.
 */
export async function startOver(
  state: string,
  origin: string,
  now: Date,
): Promise<{ readonly spools: number; readonly busy: number; readonly evidence: string | undefined }> {
  const folder = logDir(state, origin);
  const evidence = join(folder, 'superseded', now.toISOString().replace(/[:.]/g, '-'));
  for (const name of ['head.json', 'published.json']) {
    if (!existsSync(join(folder, name))) continue;
    makeDir(evidence);
    renameSync(join(folder, name), join(evidence, name));
  }
  let [spools, busy] = [0, 0];
  for (const dir of allSpools(state, origin)) {
    const waiting = existsSync(join(dir, LINES));
    if (!waiting && !hasKeptLines(dir)) continue;
    const spool = Spool.adoptKept(dir);
    if (spool === undefined) {
      busy++;
      continue;
    }
    try {
      await spool.again();
      spools++;
    } finally {
      await spool.release();
    }
  }
  return { spools, busy, evidence: existsSync(evidence) ? evidence : undefined };
}
