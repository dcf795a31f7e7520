/** PostgreSQL: the only package that knows `pg` and `kysely`. */
export {
  type AccountState,
  type AccountSession,
  AccountStore,
  type AccountTurn,
  type BatchWrite,
  type Concerned,
  Fenced,
  type KeptEpoch,
  type NewDelivery,
  OPEN_END,
  type ReceiptRow,
  type SessionHeld,
  type SessionOutcome,
} from './account-store.js';
export { type Connection, openDatabase, openPool, type PoolOptions, type ProcessRole } from './connection.js';
export { type Attempted, type Delivery, DeliveryStore } from './delivery-store.js';
export { claimDeployment, type Deployment, OtherDeployment } from './deployment.js';
export { type EmbeddedPostgres, startEmbedded } from './embedded.js';
export { EmbeddedError, type EmbeddedErrorCode } from './embedded-error.js';
export { encodeByteaArray, NotDurable, PgLogStore } from './log-store.js';
export { type EntrySpan, type EpochPlaces, ExportReader } from './export-reader.js';
export { type Job, type JobEnd, type JobProgress, JobStore, type OldJob } from './job-store.js';
export { migrate, MigrationError, type MigrationErrorCode, MIGRATIONS } from './migrate.js';
export { createFirstOperator, type NewOperator, replaceOperators } from './operator.js';
export { type CheckpointRow, type LogRow, Reader } from './reader.js';
export {
  type DeliveryRow,
  type JobKind,
  type JobRow,
  type JobState,
  type NewJob,
  RequestStore,
  type WebhookRow,
} from './request-store.js';
export {
  type CoverageQuestion,
  type KeptCoverage,
  SessionReader,
  type SessionProgress,
  type SessionReceipt,
  type SessionRow,
  TooManyStates,
} from './session-reader.js';
export type { RawEntry, ReadEntry } from './stored-entries.js';
export { databaseTrouble, type DatabaseTrouble } from './trouble.js';
export type { Schema } from './schema.js';
