/**
 * A sink's way to its log: numbered envelopes in a spool that survives kill -9, appends whose acks are verified before
 * a line is settled, and the last head of each log. No framework; loads no schema library.
 */
export { type SentBatch, type SignedHead, type VerifiedAck, verifyAck } from './ack.js';
export { type Evidence, type Flaw, type KnownLine, type Place, readEvidence } from './attested.js';
export { append, type AppendBatch, type AppendTarget } from './append.js';
export { Epoch } from './epoch.js';
export { isFilterRule, type LineFilter } from './line-filter.js';
export type { Draft } from './line-writer.js';
export type { EpochOptions } from './next-epoch.js';
export { SHARED_TIMES, SharedEpoch, type SharedTimes, tendShared } from './shared-epoch.js';
export { type EpochStatus, epochStatus } from './status.js';
export { SPOOL_LIMITS, type SpoolLimits } from './spool-room.js';
export { ClientError, type ClientAction, type ClientErrorCode } from './error.js';
export { Forwarder, type ForwarderOptions, type ForwardEvent } from './forwarder.js';
export { HeadStore } from './head.js';
export { type KeptLines, startOver } from './keeping.js';
export { type Published, PublishedStore } from './published.js';
export { Transport } from './http.js';
export { type EpochRecord, type Forgotten, readEpochRecord } from './epoch-record.js';
export { type Settlement, Spool } from './spool.js';
export { allSpools, knownLogs, pendingSpools, rememberedKey } from './spools.js';
export { LineReader, SourceInUse, SourcePosition, type SourceStart } from './source.js';
export { Slots } from './slots.js';
export { acquireBriefly } from './brief-lock.js';
export { logDir, machineSecret, readChain, sinkDir } from './state.js';
