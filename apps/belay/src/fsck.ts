import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { DirLocked } from '@belay/dirlock';
import { PgLogStore, startEmbedded } from '@belay/db';
import { type Anchor, checkLog, FileAnchor, type LogReport } from '@belay/log';
import { badInput, unavailable } from './exit.js';

export interface FsckReport {
  readonly verdict: 'CLEAN' | 'FAULTS';
  readonly logs: readonly LogReport[];
}

/**
 * Checks every log of a database. An embedded one is started for the purpose and stopped again; one that a living
 * `belay serve` uses is not touched, because two postmasters on one folder are what destroys it.
 */
export async function fsck(
  where: { readonly data: string } | { readonly databaseUrl: string },
  progress: (origin: string, done: number, size: number) => void,
): Promise<FsckReport> {
  if ('databaseUrl' in where) return await checkAll(new PgLogStore(where.databaseUrl), progress);
  if (!existsSync(where.data)) {
    throw badInput(
      'no_data',
      `${where.data} is not there`,
      'Give the folder of `belay serve` with --data DIR.',
    );
  }
  let postgres;
  try {
    postgres = await startEmbedded(where.data);
  } catch (error) {
    if (!(error instanceof DirLocked)) throw error;
    throw unavailable('locked', error.message, 'Stop that `belay serve` first.', error);
  }
  // Nobody else has the anchor open: the collector that writes it is the one whose database we just locked.
  const anchored = join(where.data, 'anchor');
  const anchor = existsSync(anchored) ? FileAnchor.open(anchored) : undefined;
  try {
    return await checkAll(new PgLogStore(postgres.connection), progress, anchor);
  } finally {
    anchor?.close();
    await postgres.stop();
  }
}

async function checkAll(
  store: PgLogStore,
  progress: (origin: string, done: number, size: number) => void,
  anchor?: Anchor,
): Promise<FsckReport> {
  try {
    const logs: LogReport[] = [];
    for (const log of await store.list()) {
      const report = await checkLog(store, log, {
        ...(anchor && { anchor }),
        onProgress: (done, size) => progress(log.origin, done, size),
      });
      logs.push(report);
    }
    const clean = logs.every(({ findings }) => findings.length === 0);
    return { verdict: clean ? 'CLEAN' : 'FAULTS', logs };
  } finally {
    await store.close();
  }
}
