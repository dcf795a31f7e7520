import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { formatCredential, newIdentifier, SECRET_BYTES, secretHash } from '@belay/contracts';
import { type Connection, createFirstOperator, openDatabase, PgLogStore } from '@belay/db';
import { acquire } from '@belay/dirlock';
import { FileAnchor } from '@belay/log';
import type { Logger } from 'pino';
import type { CollectorConfig } from './config.js';
import { Keyring } from './keyring.js';
import { CollectorService } from './service.js';

/** A collector that has checked its logs against its anchor and may sign. */
export interface OpenCollector {
  readonly service: CollectorService;
  /** Of the deployment's first operator, when this was its first start. It is stored nowhere. */
  readonly operatorKey: string | undefined;
  /** Finishes what was taken on, then gives everything back. */
  close(): Promise<void>;
}

/**
 * Opens keys, anchor and database and starts the sequencer on them. The schema has to be up to date. Throws DirLocked
 * when another living collector has the anchor, NotDurable when the database would lose what is acknowledged,
 * LogBehindAnchor when it already has.
 */
export async function openCollector(parts: {
  readonly config: CollectorConfig;
  readonly connection: Connection;
  readonly log: Logger;
}): Promise<OpenCollector> {
  const { config, connection, log } = parts;
  const undo: (() => Promise<void> | void)[] = [];
  const close = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    mkdirSync(config.dataDir, { recursive: true, mode: 0o700 });
    const anchorDir = join(config.dataDir, 'anchor');
    mkdirSync(anchorDir, { recursive: true, mode: 0o700 });
    const lock = acquire(anchorDir);
    undo.push(() => lock.release());
    const anchor = FileAnchor.open(anchorDir);
    undo.push(() => anchor.close());

    const passphrase =
      config.passphraseFile === undefined ? undefined : readFileSync(config.passphraseFile, 'utf8').trimEnd();
    const keys = await Keyring.open(config.keysDir ?? join(config.dataDir, 'keys'), {
      now: new Date(),
      passphrase,
    });

    const store = new PgLogStore(connection, { role: config.role, size: config.pool });
    undo.push(() => store.close());
    await store.assertDurable();

    const service = new CollectorService({
      store,
      anchor,
      keys,
      now: Date.now,
      originPrefix: config.originPrefix,
      report: ({ event, origin, ...rest }) => log.error({ event, origin, ...rest }, 'collector'),
    });
    await service.start();
    undo.push(() => service.close());
    const operatorKey = await firstOperator(connection, config);
    return { service, operatorKey, close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function firstOperator(connection: Connection, { role }: CollectorConfig): Promise<string | undefined> {
  const database = openDatabase(connection, { role, size: 1 });
  try {
    const id = newIdentifier('opr', Date.now(), randomBytes(10));
    const secret = randomBytes(SECRET_BYTES);
    const isFirst = await createFirstOperator(database, { id, secretHash: secretHash(secret) });
    return isFirst ? formatCredential({ kind: 'operator', id, secret }) : undefined;
  } finally {
    await database.destroy();
  }
}
