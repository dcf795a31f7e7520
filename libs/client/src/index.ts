/**
 * A sink's way to its log: numbered envelopes in a spool that survives kill -9, appends whose acks are verified before
 * a line is settled, and the last head of each log. No framework; loads no schema library.
 */
export { type SentBatch, type SignedHead, type VerifiedAck, verifyAck } from './ack.js';
export { append, type AppendBatch, type AppendTarget } from './append.js';
export { Epoch, type Draft, type EpochOptions } from './epoch.js';
export { ClientError, type ClientAction, type ClientErrorCode } from './error.js';
export { Forwarder, type ForwarderOptions, type ForwardEvent } from './forwarder.js';
export { HeadStore } from './head.js';
export { Transport } from './http.js';
export { type EpochRecord, readEpochRecord } from './epoch-record.js';
export { knownLogs, pendingSpools, type Settlement, Spool } from './spool.js';
export { LineReader, SourceInUse, SourcePosition, type SourceStart } from './source.js';
export { logDir, machineSecret, sinkDir } from './state.js';
