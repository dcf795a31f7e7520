/**
 * Coverage: what a log holds of what its sinks say they sent. Reducers take in the log's entries one by one, for an
 * epoch, a sink and a session; statements say what is complete, missing, contradicted, late or silent. FORMAT.md beside
 * this package has their bytes. Pure: no I/O, no clock, no randomness; the time and the policy are arguments.
 */
export { pairCalls, type Sameness, type SeenBy, type SeenCall, type Sighting, sightingOf } from './calls.js';
export {
  type Account,
  type Conflict,
  type ConflictKind,
  type Ending,
  EpochCoverage,
  type EpochFindings,
  type EpochState,
  type GapReason,
  MAX_CONFLICTS,
  type Missing,
  type SentEntry,
  type Timing,
} from './epoch-coverage.js';
export {
  type AsOf,
  COVERAGE_STATUSES,
  type CoverageStatus,
  type EpochQuestion,
  type EpochStatement,
  epochStatement,
  type Limits,
  timingOf,
  type Unknown,
} from './epoch-statement.js';
export { CoverageError, type CoverageErrorCode } from './error.js';
export {
  type Declaration,
  type EpochName,
  type KeptStates,
  LogCoverage,
  type LogState,
  type PolicyInForce,
  type Touched,
} from './log-coverage.js';
export { DEFAULT_POLICY, policyDigest, type ProjectPolicy, readPolicy, type SessionRule } from './policy.js';
export {
  type DeclaredSink,
  type MemberReason,
  type MemberStatement,
  SessionCoverage,
  type SessionQuestion,
  type SessionState,
  type SessionStatement,
  sessionStatus,
} from './session-coverage.js';
export {
  type Branch,
  type ChainFindings,
  type ChainState,
  type Ends,
  type LostEpochs,
  SinkChain,
} from './sink-chain.js';
export { type SinkStatement, sinkStatement, worst } from './sink-statement.js';
export { type Span } from './spans.js';
export {
  type CoverageStatement,
  formatStatement,
  MAX_STATEMENT_BYTES,
  parseStatement,
  readMember,
} from './statement.js';
