/**
 * A recorded session run again: its script, a server that is talked to once more, and what came of it. Judges nothing.
 */
export {
  type ContainedOptions,
  type ContainedRun,
  type ContainedServer,
  runContained,
  startContained,
} from './contained.js';
export { type Answer, BOUNDS, type Bounds, Conversation, type Server, type Silence } from './conversation.js';
export {
  requestKey,
  script,
  type ScriptAnswer,
  type ScriptCall,
  type Step,
  survey,
  type Survey,
} from './script.js';
export {
  type Played,
  type PlayedCall,
  type PlayedGroup,
  type PlayedRequest,
  type PlayedTools,
  playSession,
  type SessionOptions,
  type StateRecord,
  type World,
} from './session.js';
export { type Change, Contents, printable, RecordedStates, type Side, Workspace } from './workspace.js';
