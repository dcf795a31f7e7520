/** Content-addressed states of a workspace: what it was, to the nanosecond, at the price of what changed. */

export { SnapshotError, type SnapshotErrorCode } from './error.js';
export {
  type Entry,
  type EntryType,
  entryDigest,
  type Gap,
  makeState,
  nameOf,
  type State,
  type StateRoot,
  stateDigest,
  treeDigest,
} from './manifest.js';
export {
  Capturer,
  type Captured,
  type CaptureOptions,
  DEFAULT_LIMITS,
  gitCommonDirectory,
} from './capture.js';
export type { Change } from './journal.js';
export { Manifest, type StateInfo, Store, type StoreWriter } from './store.js';
export { CaptureThread, type CaptureThreadOptions } from './thread.js';
export type { CaptureLimits, ChangeCounts, UnrestorableCause } from './tracker.js';
export {
  changesSince,
  diff,
  type Difference,
  difference,
  diffStates,
  diffWithDisk,
  type Field,
  type StateDifference,
} from './diff.js';
export {
  restore,
  type Restored,
  type RestoredRoot,
  RestoreError,
  type RestoreErrorCode,
  type RestoreOptions,
  type RestoreProgress,
} from './restore.js';
export { isScratch, Scratch, SCRATCH_MARK, type ScratchOptions, type ScratchRoot } from './scratch.js';
export { gc, GcError, type GcErrorCode, type GcOptions, type GcProgress, type GcReport } from './gc.js';
export { checkStates, type CheckedState } from './check.js';
export { WalkError, type WalkErrorCode } from './walk.js';
