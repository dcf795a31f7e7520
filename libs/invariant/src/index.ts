/** What must stay true of a workspace: the operator's policy, and whether a change keeps it. See FORMAT.md. */

export type { Change, Content, Effect, Egress, HistoryEvent } from './effect.js';
export { judge, LIMITS, VERDICT } from './evaluate.js';
export type { Cause, Evidence, Finding, Judgement, Limits, RuleJudgement, Status } from './evaluate.js';
export { defaultPolicy, emptyPolicy, readPolicy } from './policy.js';
export type { Policy, ReadOptions, Rule, RuleName } from './policy.js';
export { PolicyError } from './policy-error.js';
export type { PolicyErrorCode } from './policy-error.js';
