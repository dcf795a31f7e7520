/**
 * What a process needs that only writes envelopes: a hook is started once per event and pays for every module it
 * loads. Reading and checking them is behind the other door.
 */
export { canonical } from './canonical.js';
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
export { macHex } from './mac.js';
export { SinkTree, type SinkTreeState } from './sink-tree.js';
export { newUlid } from './ulid.js';
