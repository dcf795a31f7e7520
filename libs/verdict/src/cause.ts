/** Why a verdict is not PASS: a closed list. What a cause does to a verdict is decided here and nowhere else. */

/**
 * - `fault`: proven by execution or by rule: FAIL.
 * - `notice`: named and harmless as far as execution tells: WARN.
 * - `doubt`: the two worlds were not the same, so a difference proves nothing: UNVERIFIED in place of FAIL.
 * - `cap`: something was not seen or can't be relied on: UNVERIFIED at best, whatever the rest says.
 */
export type Effect = 'fault' | 'notice' | 'doubt' | 'cap';

const TABLE = {
  // What execution or a rule has proven.
  RESULT_DIFFERS: ['fault', 'the recorded answer is not what the call gives'],
  EFFECT_DIFFERS: ['fault', 'the recorded change of the workspace is not what the call does'],
  CLAIMED_PATH_ABSENT: ['fault', 'the answer claims a file that is not there'],
  WROTE_THOUGH_READ_ONLY: ['fault', 'declared read-only, and it changed the workspace'],
  DESTROYED_THOUGH_ADDITIVE: ['fault', 'declared not destructive, and it deleted or overwrote'],
  FORBIDDEN_EGRESS: ['fault', 'reached an address that the policy forbids'],
  INVARIANT_BROKEN: ['fault', 'a rule of the policy is broken'],
  CLAIM_REFUTED: ['fault', 'an executed check refutes what was claimed'],

  // Named, and no fault.
  VOLATILE_RESULT: ['notice', 'reproduced but for tokens that may differ between runs'],
  VOLATILE_EFFECT: ['notice', 'the change was reproduced but for what may differ between runs'],
  CACHE_WRITTEN: ['notice', 'declared read-only, and only caches or times of files changed'],
  DENIED_EGRESS: ['notice', 'tried to reach an address and was refused'],
  INVARIANT_TOUCHED: ['notice', 'a watched path was changed without breaking its rule'],
  CLAIM_UNSUPPORTED: ['notice', 'nothing recorded supports what was claimed'],

  // A difference that proves nothing.
  ENV_DIFFERS: ['doubt', 'the environment is not that of the recording'],
  SERVER_CHANGED: ['doubt', 'the server is not the one that was recorded'],
  SANDBOX_DIFFERS: ['doubt', 'the boundary is not that of the recording'],
  SANDBOX_DENIAL: ['doubt', 'the boundary refused something that the tool asked for'],
  NETWORK_REQUIRED: ['doubt', 'the recording reached the network, and replays may not'],
  STATE_UNKNOWN: ['doubt', 'the replay may not have begun where the recording did'],
  SESSION_STATE: ['doubt', 'the answer depends on what the server was told before'],
  ORDER_DEPENDENT: ['doubt', 'overlapping calls give other results in another order'],
  ORDER_DIFFERS: ['doubt', 'the same lines or members in another order'],
  NONDETERMINISTIC: ['doubt', 'replays differ from each other'],
  ONE_REPLAY: ['doubt', 'one replay alone can not tell chance from fault'],
  REQUEST_DIVERGED: ['doubt', 'the server asked its client something else than in the recording'],

  // Not seen, or not to be relied on.
  UNSANDBOXED: ['cap', 'the server ran without a boundary, or with one that did not hold'],
  RECORD_BROKEN: ['cap', 'the chain of the trace is broken: edited, deleted, swapped or torn'],
  NOT_ATTESTED: ['cap', 'it was to be held against what a log signed for, and no log speaks of it'],
  OBSERVATION_GAP: ['cap', 'something was not recorded'],
  SERVER_UNKNOWN: ['cap', 'what was run is not known'],
  DRIFT_UNJUDGED: ['cap', 'what changed before the call can not be judged'],
  POLICY_IN_WORKSPACE: ['cap', 'the policy lies where the server could write'],
  WORKSPACE_UNSET: ['cap', 'no workspace was named, so there is no state'],
  PRE_STATE_MISSING: ['cap', 'there is no state from before the call'],
  PRE_STATE_WRONG: ['cap', 'the restored state has not the recorded digest'],
  POST_STATE_MISSING: ['cap', 'there is no state from after the call'],
  OVERSIZE: ['cap', 'the frame was too large to keep'],
  CONTENT_UNREADABLE: ['cap', 'a file is too large, or no text, to tell what it lost'],
  NO_ANSWER: ['cap', 'the recording has no answer'],
  CALL_WITHOUT_ID: ['cap', 'a tool was called in a way that has no answer'],
  CANCELLED: ['cap', 'the call was cancelled'],
  REPLAY_TIMEOUT: ['cap', 'the replayed server did not answer in time'],
  REPLAY_DIED: ['cap', 'the replayed server ended before it answered'],
  REPLAY_FLOODED: ['cap', 'the replayed server wrote without end'],
  REPLAY_NOT_STARTED: ['cap', 'the server could not be started again'],
  GROUP_TOO_LARGE: ['cap', 'too many calls overlapped to try their orders'],
  REMOTE_SERVER: ['cap', 'the server runs elsewhere and can not be replayed'],
  NOT_REPLAYED: ['cap', 'the call was not replayed'],
  CLAIM_UNDECIDED: ['cap', 'the check of a claim came to no end'],
  INVARIANT_UNDECIDED: ['cap', 'a rule could not be decided'],
  NOTHING_JUDGED: ['cap', 'nothing could be judged'],
} as const satisfies Record<string, readonly [Effect, string]>;

export type Cause = keyof typeof TABLE;

export const CAUSES = Object.keys(TABLE) as readonly Cause[];

/** What the cause does to a verdict. */
export const effectOf = (cause: Cause): Effect => TABLE[cause][0];

/** One sentence without a full stop. */
export const meaningOf = (cause: Cause): string => TABLE[cause][1];
