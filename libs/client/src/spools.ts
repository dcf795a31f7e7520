import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ACKS, LINES } from './epoch-record.js';
import { settledEnd } from './spool-room.js';
import { logDir, readJson, writeJson } from './state.js';

/** Spool directories of a log with lines in them, oldest first. Their owners may be alive: `Spool.adopt` tells. */
export function pendingSpools(state: string, origin: string): string[] {
  return allSpools(state, origin).filter((dir) => existsSync(join(dir, LINES)));
}

/** Every epoch's directory of a log, oldest first. */
export function allSpools(state: string, origin: string): string[] {
  const sinks = join(logDir(state, origin), 'sinks');
  return namesIn(sinks)
    .flatMap((sink) => namesIn(join(sinks, sink)).map((epoch) => ({ epoch, dir: join(sinks, sink, epoch) })))
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

/** Writes down which origin a log's folder is of, and the key that the first token for it pinned. */
export function rememberLog(state: string, origin: string, vkey?: string): void {
  const folder = logDir(state, origin);
  const path = join(folder, 'log.json');
  const known = readJson(path) as { readonly vkey?: string } | undefined;
  if (known !== undefined && (known.vkey !== undefined || vkey === undefined)) return;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeJson(path, { origin, vkey });
}

/** C2SP verifier key of a log, as the first token for it had it; undefined where no token was ever used. */
export function rememberedKey(state: string, origin: string): string | undefined {
  return (readJson(join(logDir(state, origin), 'log.json')) as { readonly vkey?: string } | undefined)?.vkey;
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
