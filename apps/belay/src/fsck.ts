import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { PgLogStore, startEmbedded } from '@belay/db';
import { type Anchor, checkLog, FileAnchor, type Finding, type LogReport, missingLog } from '@belay/log';
import { badInput, CliError } from './exit.js';
import { explainDatabase } from './database-trouble.js';

/** One log, checked; or what kept it from being checked, which is a finding too. */
export type FsckLog = Omit<LogReport, 'findings'> & {
  readonly findings: readonly (Omit<Finding, 'code'> & {
    readonly code: Finding['code'] | 'unreadable' | 'missing';
  })[];
};

export interface FsckReport {
  readonly verdict: 'CLEAN' | 'FAULTS';
  readonly logs: readonly FsckLog[];
}

type Progress = (origin: string, done: number, size: number) => void;
type Anchored = Pick<Anchor, 'last' | 'origins'>;

/**
 * Checks every log of a database, and writes nothing but what PostgreSQL itself writes when it starts and stops. An
 * embedded one is started for the purpose; one that a living `belay serve` uses is not touched, because two
 * postmasters on one folder are what destroys it.
 */
export async function fsck(
  where: { readonly data: string } | { readonly databaseUrl: string },
  anchorDir: string | undefined,
  progress: Progress,
): Promise<FsckReport> {
  try {
    if (anchorDir !== undefined && !existsSync(join(anchorDir, 'anchor'))) {
      throw badInput(
        'no_anchor',
        `${anchorDir} has no anchor`,
        'It is the folder `anchor` in a data folder.',
      );
    }
    if ('databaseUrl' in where) {
      const anchor = anchorDir === undefined ? undefined : FileAnchor.read(anchorDir);
      return await checkAll(new PgLogStore(where.databaseUrl), progress, anchor);
    }
    if (!existsSync(join(where.data, 'pg', 'data'))) {
      throw badInput(
        'no_data',
        `${where.data} has no database`,
        'Give the folder of `belay serve` with --data DIR.',
      );
    }
    const postgres = await startEmbedded(where.data);
    try {
      const anchor = FileAnchor.read(anchorDir ?? join(where.data, 'anchor'));
      return await checkAll(new PgLogStore(postgres.connection), progress, anchor);
    } finally {
      await postgres.stop();
    }
  } catch (error) {
    throw explainDatabase(error);
  }
}

async function checkAll(store: PgLogStore, progress: Progress, anchor?: Anchored): Promise<FsckReport> {
  try {
    const logs: FsckLog[] = [];
    const records = await store.list();
    for (const log of records) {
      try {
        const options = { onProgress: (done: number, size: number) => progress(log.origin, done, size) };
        logs.push(await checkLog(store, log, { ...options, ...(anchor && { anchor }) }));
      } catch (error) {
        // A database that is gone is gone for all of them.
        if (explainDatabase(error) instanceof CliError) throw error;
        logs.push(
          unchecked(log.origin, 'unreadable', error instanceof Error ? error.message : String(error)),
        );
      }
    }
    const known = new Set(records.map(({ origin }) => origin));
    for (const origin of anchor?.origins() ?? []) {
      if (!known.has(origin)) logs.push(unchecked(origin, 'missing', missingLog(origin)));
    }
    const clean = logs.every(({ findings }) => findings.length === 0);
    return { verdict: clean ? 'CLEAN' : 'FAULTS', logs };
  } finally {
    await store.close();
  }
}

function unchecked(origin: string, code: 'unreadable' | 'missing', message: string): FsckLog {
  const nothing = { size: 0, root: '', entries: 0, tiles: 0, checkpoints: 0, epochs: 0, more: 0 };
  return { origin, ...nothing, findings: [{ code, message }] };
}
