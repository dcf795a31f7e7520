import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ACKS, LINES } from './epoch-record.js';
import { settledEnd } from './spool-room.js';
import { logDir, readJson, writeJson } from './state.js';

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

/** Bytes of lines without an acknowledgement, over all spools of a log. */
export function waitingBytes(state: string, origin: string): number {
  let sum = 0;
  for (const dir of pendingSpools(state, origin)) {
    try {
      sum += Math.max(0, statSync(join(dir, LINES)).size - settledEnd(join(dir, ACKS)));
    } catch {
      // It was settled meanwhile.
    }
  }
  return sum;
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
