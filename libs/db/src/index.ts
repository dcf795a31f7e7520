/** PostgreSQL: the only package that knows `pg` and `kysely`. */
export { type Connection, openDatabase, openPool, type PoolOptions, type ProcessRole } from './connection.js';
export { encodeByteaArray, NotDurable, PgLogStore } from './log-store.js';
export { type CheckpointRow, type LogRow, Reader } from './reader.js';
export type { Schema } from './schema.js';
