/**
 * Evidence in, verdict out: was an answer reproduced, was a change, what was promised and what is forbidden. Pure: no
 * clock, no file, no process, and no model.
 */
export { CAUSES, type Cause, type Effect, effectOf, meaningOf } from './cause.js';
export { compare, type Comparison, type Difference, type Runs, type VolatileToken } from './compare.js';
export {
  CACHE_FOLDERS,
  compareDeltas,
  type ContentOf,
  type Delta,
  isCache,
  type PathChange,
  type PathState,
} from './effect.js';
export { judgeTurn, type Annotations, type Egress, type TurnEvidence, type WorldDoubt } from './judge.js';
export {
  type Axis,
  type Judgement,
  type Kind,
  reduce,
  type Status,
  STATUSES,
  type Tally,
  tally,
  type Verdict,
  withClaim,
  worse,
} from './verdict.js';
export { type Span } from './moment.js';
export { type Run, type VolatileClass } from './volatile.js';
