import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { openCollector, type OpenCollector } from '@belay/collector';
import { migrate, MIGRATIONS, openDatabase, type EmbeddedPostgres, Reader, startEmbedded } from '@belay/db';
import { createLogger } from '@belay/process';
import { makeScratch } from './scratch.js';

/** Database and collector, real, with nothing in front of them: for tests that put their own pieces around. */
export interface Parts {
  readonly connection: EmbeddedPostgres['connection'];
  readonly collector: OpenCollector;
  /** Of the first operator. */
  readonly operatorKey: string;
  readonly reader: Reader;
  /** Of the worker: may store checkpoints. */
  readonly workerReader: Reader;
  readonly keysDir: string;
  readonly log: ReturnType<typeof createLogger>;
  readonly logs: () => string;
  readonly close: () => Promise<void>;
}

export async function openParts(): Promise<Parts> {
  const scratch = makeScratch('parts');
  const undo: (() => Promise<unknown> | void)[] = [() => scratch.remove()];
  const close = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const postgres = await startEmbedded(join(scratch.dir, 'postgres'));
    undo.push(() => postgres.stop());
    const { connection } = postgres;
    await migrate(connection, MIGRATIONS);
    let logged = '';
    const log = createLogger('test', 'trace', { write: (line) => (logged += line) });
    const dataDir = join(scratch.dir, 'collector');
    const collector = await openCollector({
      config: {
        dataDir,
        keysDir: undefined,
        originPrefix: 'test.local',
        passphraseFile: undefined,
        pool: 10,
        role: 'belay_collector',
      },
      connection,
      log,
    });
    undo.push(() => collector.close());
    const operatorKey = (await collector.firstOperator(() => Promise.resolve())) ?? '';
    const open = (role: 'belay_gateway' | 'belay_worker') => {
      const database = openDatabase(connection, { role, size: 10 });
      undo.push(() => database.destroy());
      return new Reader(database);
    };
    return {
      connection,
      collector,
      operatorKey,
      reader: open('belay_gateway'),
      workerReader: open('belay_worker'),
      keysDir: join(dataDir, 'keys'),
      log,
      logs: () => logged,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

export const source = { now: Date.now, random: randomBytes };
