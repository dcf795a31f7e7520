/** `belay serve`. What it runs is loaded when it runs: asking for help needs neither Nest nor PostgreSQL. */

import { join, resolve } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { readConfig } from './config.js';
import { unavailable } from './exit.js';
import { styleFor, writeOut } from './output.js';
import type { Announcement, RunningService } from './serve-options.js';

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const;

interface Options {
  readonly data: string;
  readonly port?: number;
  readonly host?: string;
  readonly originPrefix?: string;
  readonly passphraseFile?: string;
  readonly logLevel: (typeof LEVELS)[number];
  readonly webhookPrivate?: boolean;
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
  const data = resolve(options.data);
  const database = databaseUrl === undefined ? join(data, 'pg') : 'DATABASE_URL';
  const announce = ({ url, operatorKey, warnings }: Announcement) => {
    const loud = warnings.map((warning) => `\n${style.warn('WARNING')}: ${warning}\n`).join('');
    return writeOut(
      options.json
        ? `${JSON.stringify({ url, data, database, ...(operatorKey !== undefined && { operatorKey }), warnings })}\n`
        : `Listening on ${style.bold(url)} (API at ${url}/docs)\n` +
            `Data in ${data}, PostgreSQL in ${database}\n${loud}` +
            (operatorKey === undefined
              ? ''
              : `\nOperator key, shown once: ${operatorKey}\nNext: belay tenant create --name NAME --operator-key KEY\n`),
    );
  };
  const { startService, explainStart } = await import('./serve.js');
  const { data: dataDir, ...rest } = options;
  const start = { ...rest, dataDir, databaseUrl, announce };
  let service: RunningService;
  try {
    service = await startService(start);
  } catch (error) {
    throw explainStart(error, start);
  }
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
    .option('--port <number>', 'port to listen on; 0 takes a free one (default: 8420)', portNumber)
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)')
    .option('--origin-prefix <text>', 'what the origins of new logs begin with (default: belay.local)')
    .option('--passphrase-file <file>', 'the passphrase that seals the key files')
    .addOption(
      new Option('--log-level <level>', 'what is logged to standard error')
        .choices([...LEVELS])
        .default('warn'),
    )
    .option('--webhook-private', 'let webhooks be plain HTTP, at private addresses, and on this machine')
    .option('--json', 'print one line of JSON when ready')
    .action(serve);
}
