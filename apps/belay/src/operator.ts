/** The operator's own key, on the machine of the service: for the day it is lost. */

import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { draftOperator } from '@belay/contracts';
import type { Command } from 'commander';
import { readConfig } from './config.js';
import { badInput } from './exit.js';
import { writeOut } from './output.js';

interface Options {
  readonly data?: string;
  readonly databaseUrl?: string;
  readonly json?: boolean;
}

/** Puts a new operator in the place of all there were; tenants and everything of theirs stay as they are. */
async function reissue(options: Options): Promise<void> {
  const config = readConfig();
  const databaseUrl = options.databaseUrl ?? (options.data === undefined ? config.databaseUrl : undefined);
  const { explainDatabase } = await import('./database-trouble.js');
  try {
    if (databaseUrl === undefined) await onData(resolve(options.data ?? '.belay'), options);
    else await onDatabase(databaseUrl, options);
  } catch (error) {
    throw explainDatabase(error);
  }
}

async function onData(data: string, options: Options): Promise<void> {
  if (!existsSync(join(data, 'pg', 'data'))) {
    throw badInput('no_data', `${data} has no database`, 'Give the folder of `belay serve` with --data DIR.');
  }
  const { startEmbedded } = await import('@belay/db');
  const postgres = await startEmbedded(data);
  try {
    await onDatabase(postgres.connection, options);
  } finally {
    await postgres.stop();
  }
}

async function onDatabase(
  connection: Parameters<typeof import('@belay/db').openDatabase>[0],
  { json }: Options,
): Promise<void> {
  const { openDatabase, replaceOperators } = await import('@belay/db');
  const { key, ...operator } = draftOperator(Date.now(), randomBytes);
  const database = openDatabase(connection, { size: 1 });
  try {
    // Shown before it counts: whatever goes wrong in between, it can be done again.
    const replaced = await replaceOperators(database, operator, () =>
      writeOut(
        json
          ? `${JSON.stringify({ operator: operator.id, operatorKey: key })}\n`
          : `Operator key, shown once: ${key}\n`,
      ),
    );
    if (!json) await writeOut(`It takes the place of ${replaced} earlier, which can do nothing any more.\n`);
  } finally {
    await database.destroy();
  }
}

export function register(program: Command): void {
  const operator = program.command('operator').description('the key that creates tenants, when it was lost');
  operator
    .command('reissue')
    .description('make a new operator key and end all earlier ones; on the machine of the service')
    .option('--data <dir>', 'data folder of a stopped `belay serve` (default: ./.belay)')
    .option('--database-url <url>', 'a PostgreSQL, while the service runs or not; its owner (DATABASE_URL)')
    .option('--json', 'print one JSON document')
    .addHelpText('after', '\nTenants, their keys and their logs stay as they are.')
    .action(reissue);
}
