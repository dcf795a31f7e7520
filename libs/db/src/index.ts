/** PostgreSQL: the only package that knows `pg` and `kysely`. */
export { type Connection, openDatabase, openPool, type PoolOptions, type ProcessRole } from './connection.js';
export { type EmbeddedPostgres, startEmbedded } from './embedded.js';
export { EmbeddedError, type EmbeddedErrorCode } from './embedded-error.js';
export { encodeByteaArray, NotDurable, PgLogStore } from './log-store.js';
export { migrate, MigrationError, type MigrationErrorCode, MIGRATIONS } from './migrate.js';
export { createFirstOperator } from './operator.js';
export { type CheckpointRow, type LogRow, Reader } from './reader.js';
export type { Schema } from './schema.js';
