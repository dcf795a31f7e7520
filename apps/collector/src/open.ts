import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { draftOperator } from '@belay/contracts';
import { claimDeployment, type Connection, createFirstOperator, openDatabase } from '@belay/db';
import { acquire } from '@belay/dirlock';
import { FileAnchor } from '@belay/log';
import type { Logger } from 'pino';
import type { CollectorConfig } from './config.js';
import { Keyring } from './keyring.js';
import { CollectorService } from './service.js';
import { WatchedStore } from './watched-store.js';

/** A collector that has checked its logs against its anchor and may sign. */
export interface OpenCollector {
  readonly service: CollectorService;
  /** What does not keep the collector from starting, and somebody has to look at. */
  readonly warnings: readonly string[];
  /**
   * Makes the deployment's first operator, and answers its key; undefined when there is one. The key is stored nowhere:
   * `show` has to have put it where a person finds it when it resolves. To be called when all else has started.
   */
  firstOperator(show: (key: string) => Promise<void>): Promise<string | undefined>;
  /** Why no append can be answered at present; null when they can, as far as is known. */
  trouble(): string | null;
  /** Finishes what was taken on, then gives everything back. */
  close(): Promise<void>;
}

/**
 * Opens keys, anchor and database and starts the sequencer on them. The schema has to be up to date. Throws DirLocked
 * when another living collector has the anchor, NotDurable when the database would lose what is acknowledged,
 * LogBehindAnchor when it already has, OtherDeployment when the database belongs to other keys.
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

    const store = new WatchedStore(connection, { role: config.role, size: config.pool }, Date.now);
    undo.push(() => store.close());
    await store.assertDurable();

    const service = new CollectorService({
      store,
      anchor,
      keys,
      now: Date.now,
      originPrefix: config.originPrefix,
      report: (event) => {
        const { event: name, origin } = event;
        const why = 'error' in event ? { err: event.error } : { reason: event.reason };
        log.error({ event: name, origin, ...why }, 'collector');
      },
    });
    await service.start();
    undo.push(() => service.close());
    await claim(connection, config, keys);
    const warnings = await missingAnchor(anchor, store, anchorDir);
    for (const warning of warnings) log.warn(warning);
    return {
      service,
      warnings,
      firstOperator: (show) => firstOperator(connection, config, show),
      trouble: () => service.trouble() ?? store.trouble(),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function claim(connection: Connection, config: CollectorConfig, keys: Keyring): Promise<void> {
  const database = openDatabase(connection, { role: config.role, size: 1 });
  try {
    await claimDeployment(database, { master: keys.identity, originPrefix: config.originPrefix });
  } finally {
    await database.destroy();
  }
}

/** An anchor that was deleted looks like one that is new: only a person knows which it is. */
async function missingAnchor(anchor: FileAnchor, store: WatchedStore, dir: string): Promise<string[]> {
  if (anchor.origins().length > 0) return [];
  const { length } = await store.list();
  if (length === 0) return [];
  return [
    `the anchor in ${dir} is empty and the database has ${length} ${length === 1 ? 'log' : 'logs'}: nothing shows ` +
      'whether entries that were signed for are missing. If the anchor was lost or the database put back, ' +
      'stop, and run belay log fsck and compare with what auditors hold',
  ];
}

async function firstOperator(
  connection: Connection,
  { role }: CollectorConfig,
  show: (key: string) => Promise<void>,
): Promise<string | undefined> {
  const database = openDatabase(connection, { role, size: 1 });
  try {
    const { key, ...operator } = draftOperator(Date.now(), randomBytes);
    return (await createFirstOperator(database, operator, () => show(key))) ? key : undefined;
  } finally {
    await database.destroy();
  }
}
