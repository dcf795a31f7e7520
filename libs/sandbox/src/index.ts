/**
 * A command inside declared boundaries: what it may write, read and reach is a policy, what enforces it is a back end,
 * and what was refused is told by name. README.md beside this package says what each back end does and does not hold.
 */
export type { Denial, Naming, Operation } from './denial.js';
export { SandboxError, type SandboxErrorCode } from './error.js';
export {
  DEFAULT_POLICY,
  normalPolicy,
  parseNetwork,
  policyDigest,
  type Backend,
  type Bind,
  type Limits,
  type Network,
  type Profile,
  type SandboxPolicy,
} from './policy.js';
export { readPolicyFile, type PolicyFileOptions } from './policy-file.js';
export { POLICY_SCHEMA } from './policy-schema.js';
export type { Canary, HeldLimit, Hole, SandboxRecord } from './record.js';
export type { Prepared, SandboxCommand, SandboxHost } from './prepared.js';
export { prepare } from './sandbox.js';
export { findTool } from './tools.js';
