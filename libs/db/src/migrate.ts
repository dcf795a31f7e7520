import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import type { Connection } from './connection.js';

/** The migrations this version of Belay comes with. */
export const MIGRATIONS = fileURLToPath(new URL('../../../prisma-free-migrations', import.meta.url));

export type MigrationErrorCode =
  /** The folder is not a gapless series of `NNNN_name.sql`. */
  | 'bad_folder'
  /** A file differs from what was applied under its number. */
  | 'edited'
  /** The database has a migration that the folder lacks: it belongs to a later version, or the file was removed. */
  | 'missing'
  /** PostgreSQL refused a migration; nothing of it was applied. */
  | 'failed';

/** Schema and files disagree. `migration` is the file's name. */
export class MigrationError extends Error {
  readonly code: MigrationErrorCode;
  readonly migration: string;

  constructor(code: MigrationErrorCode, migration: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'MigrationError';
    this.code = code;
    this.migration = migration;
  }
}

interface Migration {
  readonly number: number;
  readonly name: string;
  readonly sql: string;
  readonly checksum: string;
}

interface Applied {
  readonly number: number;
  readonly name: string;
  readonly checksum: string;
}

/** A number nobody else locks: the first 8 bytes of SHA-256("belay/migrations") without the sign bit. */
const ADVISORY_LOCK = '4107991988401755995';
const FILE_NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;

/**
 * Applies what `folder` has and the database lacks, in order, each in a transaction of its own with its record, and
 * returns the names. Processes that start together wait for one another. Throws MigrationError before anything is
 * changed when a file was edited after it was applied, or is gone.
 *
 * The connection's user has to own the schema: the three processes connect as roles that may not.
 */
export async function migrate(connection: Connection, folder: string): Promise<string[]> {
  const migrations = readMigrations(folder);
  const client = new pg.Client(
    typeof connection === 'string' ? { connectionString: connection } : { ...connection },
  );
  client.on('error', () => undefined);
  await client.connect();
  try {
    await client.query('select pg_advisory_lock($1)', [ADVISORY_LOCK]);
    await client.query(`create table if not exists migrations (
      number   integer primary key,
      name     text not null,
      checksum text not null,
      applied  timestamptz not null default now()
    )`);
    const { rows } = await client.query<Applied>(
      'select number, name, checksum from migrations order by number',
    );
    compare(migrations, rows, folder);
    const outstanding = migrations.slice(rows.length);
    for (const migration of outstanding) await apply(client, migration);
    return outstanding.map(({ name }) => name);
  } finally {
    // Ends the session, and the advisory lock with it.
    await client.end().catch(() => undefined);
  }
}

async function apply(client: pg.Client, { number, name, sql, checksum }: Migration): Promise<void> {
  await client.query('begin');
  try {
    await client.query(sql);
    await client.query('insert into migrations (number, name, checksum) values ($1, $2, $3)', [
      number,
      name,
      checksum,
    ]);
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw new MigrationError('failed', name, `${name}: ${(error as Error).message}`, { cause: error });
  }
}

function readMigrations(folder: string): Migration[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map((name, position) => {
      const number = Number(FILE_NAME.exec(name)?.[1] ?? Number.NaN);
      if (number !== position + 1) {
        const expected = String(position + 1).padStart(4, '0');
        throw new MigrationError(
          'bad_folder',
          name,
          `${join(folder, name)} stands where ${expected}_<name>.sql should`,
        );
      }
      const bytes = readFileSync(join(folder, name));
      return {
        number,
        name,
        sql: bytes.toString('utf8'),
        checksum: createHash('sha256').update(bytes).digest('hex'),
      };
    });
}

function compare(migrations: readonly Migration[], applied: readonly Applied[], folder: string): void {
  for (const [position, { number, name, checksum }] of applied.entries()) {
    const file = migrations[position];
    if (!file || file.number !== number) {
      throw new MigrationError(
        'missing',
        name,
        `the database has migration ${name}, which ${folder} lacks: it was written by a later version of Belay, or the file was removed`,
      );
    }
    if (file.checksum !== checksum) {
      throw new MigrationError(
        'edited',
        file.name,
        `${join(folder, file.name)} is not what was applied as ${name}: a released migration is never edited; put the file back and add a new one`,
      );
    }
  }
}
