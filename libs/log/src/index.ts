/**
 * The sequencer: orders what senders append, commits it in one transaction, anchors it, signs it and answers. Ports
 * (`LogStore`, `Anchor`, `LogKeys`) are implemented elsewhere; `checkLog` is the whole-state checker.
 */
export {
  type Anchor,
  AnchorConflict,
  AnchorDamaged,
  type AnchorPoint,
  FileAnchor,
  mayFollow,
} from './anchor.js';
export { checkLog, type CheckOptions, type Finding, type FindingCode, type LogReport } from './check.js';
export { entryMakerOf } from './entries.js';
export {
  type CheckedStatement,
  DEFAULT_LIMITS,
  LogBehindAnchor,
  missingLog,
  type LogKeys,
  Sequencer,
  type SequencerEvent,
  type SequencerLimits,
  type SequencerParts,
} from './sequencer.js';
export {
  type AuditorState,
  type BatchSignature,
  type EpochMark,
  type FullTile,
  type Head,
  type LogConfig,
  type LogPolicy,
  type LogRecord,
  type LogStore,
  type LogTx,
  type LogWrite,
  type NewLog,
  type Role,
  type Run,
  scopeText,
  type SinkState,
  type StateChange,
  type StoredCheckpoint,
  type StoredConflict,
  type StoredLabel,
  type StoredReceipt,
  type StoredStatement,
  StoreRefusal,
  type TokenState,
} from './store.js';
export { LogTree, TreeDamaged, type TileReader } from './tree.js';
