/**
 * What leaves a machine and what is logged: envelope lines, their commitments and keyed identifiers, a sink's own
 * tree and batch signature, the collector's line, entries and the collector's own statements. FORMAT.md beside this
 * package has the bytes. Pure: no I/O, no clock, no randomness.
 */
export { batchMessage, batchRoot, keyFingerprint, type Batch } from './batch.js';
export { canonical } from './canonical.js';
export {
  formatCollectorBody,
  parseCollectorBody,
  type AuditorIssued,
  type AuditorRevoked,
  type CollectorBody,
  type CoverageStated,
  type IssuedScope,
  type LabelSet,
  type LogGenesis,
  type PeriodScope,
  type PlainJson,
  type PolicyReference,
  type PolicySet,
  type ReceiptIssued,
  type ReceiptScope,
  type SessionScope,
  type SinkDeclared,
  type SinkKind,
  type StatedStatus,
  type TokenIssued,
  type TokenRevoked,
  type TokenRole,
} from './collector-body.js';
export {
  collectorLine,
  entryBytes,
  entryLeaf,
  entryMaker,
  MAX_ENTRY_BYTES,
  parseCollectorLine,
  parseEntry,
  type CollectorLine,
  type CollectorLineFields,
  type Entry,
  type EntryMaker,
  type SenderRole,
} from './entry.js';
export {
  MAX_ENVELOPE_BYTES,
  parseEnvelope,
  splitLines,
  type AttributeValue,
  type Envelope,
  type EnvelopeKind,
} from './envelope.js';
export { EnvelopeError, type EnvelopeErrorCode } from './error.js';
export {
  callId,
  commitment,
  commitmentSalt,
  matchId,
  normalisedTool,
  sessionId,
  sessionKey,
  stateId,
  weakCallId,
} from './identifiers.js';
export { SinkTree, type SinkTreeState } from './sink-tree.js';
export { isUlid, newUlid } from './ulid.js';
