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
