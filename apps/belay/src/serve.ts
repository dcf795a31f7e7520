/** The whole service in one process: gateway, collector and worker, and a PostgreSQL of its own. */

import 'reflect-metadata';
import { existsSync, mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CollectorModule, DEFAULT_ORIGIN_PREFIX, openCollector, WrongLogKey } from '@belay/collector';
import {
  type Connection,
  EmbeddedError,
  type EmbeddedPostgres,
  migrate,
  MigrationError,
  MIGRATIONS,
  NotDurable,
  openDatabase,
  Reader,
  startEmbedded,
} from '@belay/db';
import { DirLocked } from '@belay/dirlock';
import { createGateway, createLogger, GATEWAY_DEFAULTS, SYSTEM_SOURCE } from '@belay/gateway';
import { LogBehindAnchor } from '@belay/log';
import { WorkerModule } from '@belay/worker';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { readConfig } from './config.js';
import { badInput, CliError, EXIT, unavailable } from './exit.js';
import { styleFor, writeOut } from './output.js';

const PUBLISH_INTERVAL_MS = 1000;
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const;

export interface ServeOptions {
  /** Keys, anchor, and the embedded database. Made when it is not there. */
  readonly dataDir: string;
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** A PostgreSQL to use in place of the embedded one. */
  readonly databaseUrl?: string | undefined;
  readonly originPrefix?: string | undefined;
  readonly passphraseFile?: string | undefined;
  /** Of the log on standard error. */
  readonly logLevel?: (typeof LEVELS)[number] | undefined;
  /** Where the log goes; default standard error. */
  readonly logTo?: { write(line: string): void } | undefined;
  /** Milliseconds between checkpoints of a log that grows. */
  readonly publishIntervalMs?: number | undefined;
}

export interface RunningService {
  readonly url: string;
  /** Of the first operator, on the first start only; stored nowhere. */
  readonly operatorKey: string | undefined;
  /** Resolves when the database has ended under the service; the value says how. */
  readonly failed: Promise<string>;
  /** Finishes what was taken on; then nothing of it runs any more. */
  close(): Promise<void>;
}

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
    const forWorker = openDatabase(connection, { role: 'belay_worker', size: 4 });
    undo.push(() => forWorker.destroy());

    const { service } = collector;
    const gateway = await createGateway(
      {
        config: { ...GATEWAY_DEFAULTS, host: options.host, port: options.port },
        collector: service,
        reader: new Reader(forGateway),
        log,
        source: SYSTEM_SOURCE,
      },
      [
        CollectorModule.of({ collector: service, log }),
        WorkerModule.inProcess({
          reader: new Reader(forWorker),
          collector: service,
          now: Date.now,
          log,
          intervalMs: options.publishIntervalMs ?? PUBLISH_INTERVAL_MS,
        }),
      ],
    );
    undo.push(() => gateway.close());
    const url = await gateway.listen();
    return {
      url,
      operatorKey: collector.operatorKey,
      failed: embedded?.died ?? new Promise<never>(() => undefined),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

interface Options {
  readonly data: string;
  readonly port: number;
  readonly host: string;
  readonly originPrefix?: string;
  readonly passphraseFile?: string;
  readonly logLevel: (typeof LEVELS)[number];
  readonly json?: boolean;
}

async function serve(options: Options): Promise<void> {
  const config = readConfig();
  const style = styleFor(config);
  const { databaseUrl } = config;
  // Kept to the end: a signal while things start ends what was started, and one that is delivered twice (by a
  // terminal and by npm, say) does not cut the closing short.
  const signalled = new Promise<'signal'>((done) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => done('signal'));
  });
  let service: RunningService;
  try {
    service = await startService({ ...options, dataDir: options.data, databaseUrl });
  } catch (error) {
    throw explain(error, options);
  }
  const { url, operatorKey } = service;
  const database = databaseUrl === undefined ? join(resolve(options.data), 'pg') : 'DATABASE_URL';
  await writeOut(
    options.json
      ? `${JSON.stringify({ url, data: resolve(options.data), database, ...(operatorKey !== undefined && { operatorKey }) })}\n`
      : `Listening on ${style.bold(url)} (API at ${url}/docs)\n` +
          `Data in ${resolve(options.data)}, PostgreSQL in ${database}\n` +
          (operatorKey === undefined
            ? ''
            : `\nOperator key, shown once: ${operatorKey}\nNext: belay tenant create --name NAME --operator-key KEY\n`),
  );
  const how = await Promise.race([signalled, service.failed]);
  await service.close();
  if (how !== 'signal') {
    throw unavailable(
      'database_gone',
      `PostgreSQL ended by itself (${how})`,
      'Its log is pg/postgres.log in the data folder. Start again.',
    );
  }
}

/** What a person can do about a start that failed; anything else stays what it is. */
function explain(error: unknown, { data, host, port }: Options): unknown {
  if (error instanceof DirLocked) {
    return unavailable(
      'locked',
      `${error.dir} is in use by process ${error.pid}`,
      'Another `belay serve` runs on this data folder. Stop it, or give this one another --data.',
    );
  }
  if (error instanceof EmbeddedError) return unavailable(error.code, error.message, undefined, error);
  if (error instanceof MigrationError) return badInput(error.code, error.message, undefined, error);
  if (error instanceof NotDurable) return badInput('not_durable', error.message, undefined, error);
  if (error instanceof LogBehindAnchor) {
    return new CliError(
      EXIT.bad,
      'behind_anchor',
      error.message,
      `Bring back the newest copy of the database; the anchor is ${join(data, 'anchor')}.`,
      error,
    );
  }
  if (error instanceof WrongLogKey) return badInput('wrong_key', error.message, undefined, error);
  switch ((error as NodeJS.ErrnoException).code) {
    case 'EADDRINUSE':
      return unavailable(
        'port_in_use',
        `${host}:${port} is in use`,
        'Give another --port; 0 takes a free one.',
      );
    case 'EACCES':
      return unavailable(
        'port_refused',
        `${host}:${port} may not be listened on`,
        'Give a --port above 1023.',
      );
    default:
      return error;
  }
}

function portNumber(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(port <= 65_535)) throw new InvalidArgumentError('not a port number.');
  return port;
}

export function register(program: Command): void {
  program
    .command('serve')
    .description('run the whole service in one process, on a PostgreSQL of its own or on DATABASE_URL')
    .option('--data <dir>', 'folder of keys, anchor and database; made when it is not there', './.belay')
    .option('--port <number>', 'port to listen on; 0 takes a free one', portNumber, GATEWAY_DEFAULTS.port)
    .option('--host <address>', 'address to listen on', GATEWAY_DEFAULTS.host)
    .option('--origin-prefix <text>', 'what the origins of new logs begin with', DEFAULT_ORIGIN_PREFIX)
    .option('--passphrase-file <file>', 'the passphrase that seals the key files')
    .addOption(
      new Option('--log-level <level>', 'what is logged to standard error')
        .choices([...LEVELS])
        .default('warn'),
    )
    .option('--json', 'print one line of JSON when ready')
    .action(serve);
}
