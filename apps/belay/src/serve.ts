/** The whole service in one process: gateway, collector and worker, and a PostgreSQL of its own. */

import 'reflect-metadata';
import { existsSync, mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CollectorModule, DEFAULT_ORIGIN_PREFIX, openCollector, WrongLogKey } from '@belay/collector';
import {
  type Connection,
  type EmbeddedPostgres,
  migrate,
  MigrationError,
  MIGRATIONS,
  NotDurable,
  openDatabase,
  OtherDeployment,
  Reader,
  startEmbedded,
} from '@belay/db';
import { createGateway, GATEWAY_DEFAULTS, NotReady, SYSTEM_SOURCE } from '@belay/gateway';
import { KeysError } from '@belay/keys';
import { LogBehindAnchor } from '@belay/log';
import { createLogger } from '@belay/process';
import { startWorker } from '@belay/worker';
import { badInput, CliError, EXIT, unavailable } from './exit.js';
import { explainDatabase } from './database-trouble.js';
import type { RunningService, ServeOptions } from './serve-options.js';

const PUBLISH_INTERVAL_MS = 1000;
/** What a worker of its own has by default. */
const EXPORTS = { keepDays: 7, maxBytes: 20 * 1024 ** 3 };

/**
 * Starts everything and returns when requests are taken. What was started is stopped again, newest first: by `close`,
 * and when a later part does not start.
 */
export async function startService(options: ServeOptions): Promise<RunningService> {
  const undo: (() => Promise<void> | void)[] = [];
  const close = async (): Promise<void> => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const { host = GATEWAY_DEFAULTS.host, port = GATEWAY_DEFAULTS.port } = options;
    const dataDir = resolve(options.dataDir);
    let embedded: EmbeddedPostgres | undefined;
    if (options.databaseUrl === undefined) {
      embedded = await startEmbedded(dataDir);
      undo.push(() => embedded?.stop());
    } else if (!existsSync(dataDir)) {
      mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    }
    const connection: Connection = embedded?.connection ?? (options.databaseUrl as string);
    await migrate(connection, MIGRATIONS);

    const log = createLogger('belay', options.logLevel ?? 'warn', options.logTo ?? process.stderr);
    const collector = await openCollector({
      config: {
        dataDir,
        keysDir: undefined,
        originPrefix: options.originPrefix ?? DEFAULT_ORIGIN_PREFIX,
        passphraseFile: options.passphraseFile,
        pool: 10,
        role: 'belay_collector',
      },
      connection,
      log,
    });
    undo.push(() => collector.close());

    const forGateway = openDatabase(connection, { role: 'belay_gateway', size: 10 });
    undo.push(() => forGateway.destroy());
    const { service } = collector;
    const exportDir = join(dataDir, 'exports');
    const { webhookPrivate = false, logLevel = 'warn', logTo = process.stderr } = options;
    const worker = startWorker(
      connection,
      {
        intervalMs: options.publishIntervalMs ?? PUBLISH_INTERVAL_MS,
        exports: { dir: exportDir, ...EXPORTS },
        webhookPrivate,
      },
      service,
      { logger: log, level: logLevel, write: (line) => logTo.write(line) },
    );
    undo.push(() => worker.close());
    let isAnnounced = false;
    const gateway = await createGateway(
      {
        config: { ...GATEWAY_DEFAULTS, host, port, exportDir, webhookPrivate },
        collector: service,
        reader: new Reader(forGateway),
        log,
        source: SYSTEM_SOURCE,
        ready: async () => {
          // Whoever waits for a service to be ready may look for its operator key next.
          if (!isAnnounced) throw new NotReady('The service is starting.');
          const trouble = collector.trouble();
          if (trouble !== null) throw new NotReady(trouble);
        },
      },
      [CollectorModule.of({ collector: service, log })],
    );
    undo.push(() => gateway.close());
    const url = await gateway.listen();
    const { warnings } = collector;
    const announce = (key: string | undefined) =>
      options.announce?.({ url, operatorKey: key, warnings }) ?? Promise.resolve();
    // Last of all: a key that was made before a start that fails would be lost.
    const operatorKey = await collector.firstOperator(announce);
    if (operatorKey === undefined) await announce(undefined);
    isAnnounced = true;
    return {
      url,
      operatorKey,
      warnings,
      failed: embedded?.died ?? new Promise<never>(() => undefined),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The error as a failure with its remedy; what nobody foresaw stays what it is. */
export function explainStart(error: unknown, options: ServeOptions): unknown {
  const { dataDir, host = GATEWAY_DEFAULTS.host, port = GATEWAY_DEFAULTS.port } = options;
  if (error instanceof LogBehindAnchor) {
    return new CliError(
      EXIT.bad,
      'behind_anchor',
      error.message,
      `Bring back the newest copy of the database; the anchor is ${join(dataDir, 'anchor')}.`,
      error,
    );
  }
  if (error instanceof MigrationError) return badInput(error.code, error.message, undefined, error);
  if (error instanceof NotDurable) return badInput('not_durable', error.message, undefined, error);
  if (error instanceof WrongLogKey) return badInput('wrong_key', error.message, undefined, error);
  if (error instanceof KeysError) {
    const next = `Put back the key files of ${join(dataDir, 'keys')} as they were; they can not be made again.`;
    return badInput(`key_${error.code}`, error.message, next, error);
  }
  if (error instanceof OtherDeployment) {
    const next =
      error.differs === 'keys'
        ? 'Give the --data folder that this database was first used with.'
        : 'Give the --origin-prefix that this database was first used with.';
    return badInput('other_deployment', error.message, next, error);
  }
  switch ((error as NodeJS.ErrnoException).code) {
    case 'EADDRINUSE':
      return unavailable(
        'port_in_use',
        `${host}:${port} is in use`,
        'Give another --port; 0 takes a free one.',
      );
    case 'EADDRNOTAVAIL':
      return unavailable('no_such_address', `${host} is no address of this machine`, 'Give another --host.');
    case 'EACCES':
      if ((error as NodeJS.ErrnoException).syscall !== 'listen') break;
      return unavailable(
        'port_refused',
        `${host}:${port} may not be listened on`,
        'Give a --port above 1023.',
      );
    default:
      break;
  }
  return explainDatabase(error);
}
