import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { Schema } from './schema.js';

/** Where a PostgreSQL is: a connection string, or the parts (host may be a socket's directory). */
export type Connection =
  | string
  | {
      readonly host: string;
      readonly port: number;
      readonly user: string;
      readonly password: string;
      readonly database: string;
    };

/** The role a process takes on; what it may do is in the migrations. The login user has to be a member of it. */
export type ProcessRole = 'belay_gateway' | 'belay_collector' | 'belay_worker';

export interface PoolOptions {
  readonly role?: ProcessRole | undefined;
  /** Connections at most. */
  readonly size?: number | undefined;
}

const INT8 = 20;

/**
 * `int8` as a number. Sizes, indexes and seqs stay below 2^53 by the envelope's rules; anything larger is damage,
 * and is refused rather than rounded (node-postgres would give a string, `json_agg` a wrong double).
 */
function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`int8 ${text} is not below 2^53`);
  return value;
}

const types: pg.CustomTypesConfig = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') =>
    oid === INT8 && format !== 'binary' ? parseInt8 : pg.types.getTypeParser(oid, format),
};

/** A pool whose connections give up waiting for a lock or a statement rather than stall. */
export function openPool(connection: Connection, options: PoolOptions = {}): pg.Pool {
  const settings = [
    ...(options.role ? [`role=${options.role}`] : []),
    'lock_timeout=20s',
    'statement_timeout=60s',
    'idle_in_transaction_session_timeout=60s',
    'timezone=UTC',
  ];
  const pool = new pg.Pool({
    ...(typeof connection === 'string' ? { connectionString: connection } : connection),
    max: options.size ?? 10,
    options: settings.map((setting) => `-c ${setting}`).join(' '),
    connectionTimeoutMillis: 10_000,
    types,
  });
  // A connection that dies, idle or between two queries of a transaction, is noticed by its next use and replaced.
  // Without a listener on the pool and one on every connection its death would be the death of the process.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

/** Kysely over a pool of its own. */
export function openDatabase(connection: Connection, options: PoolOptions = {}): Kysely<Schema> {
  return new Kysely<Schema>({ dialect: new PostgresDialect({ pool: openPool(connection, options) }) });
}
