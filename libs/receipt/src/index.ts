/**
 * Receipts: what a log can prove of its entries to a stranger, offline. How they are made, what they state
 * (authority and disposition, as pure functions of the evidence), and every check that a reader makes. FORMAT.md
 * beside this package has the bytes. Pure: no I/O, no clock, no randomness.
 */
export {
  type Authority,
  AUTHORITY_LEVELS,
  type AuthorityLevel,
  authorityLevel,
  authorityOf,
  type Witness,
} from './authority.js';
export {
  CALL_AUTHORITY_LEVELS,
  type CallAuthority,
  type CallAuthorityLevel,
  type CallAuthorityReason,
  callAuthority,
  type Label,
  type Sayer,
  type SessionEvidence,
  type VerdictFault,
} from './call-authority.js';
export { buildReceipt, type ReceiptEvidence } from './build.js';
export { type ConflictReason, type Disposition, dispositionOf, type NoSessionReason } from './disposition.js';
export { chainFault } from './chain.js';
export { type DsseEnvelope, formatEnvelope, IN_TOTO, parseDsse, preAuthEncoding } from './dsse.js';
export { ReceiptError, type ReceiptErrorCode } from './error.js';
export { parsePins, type Pins } from './pins.js';
export {
  callReasonText,
  COVERAGE_TEXT,
  DISPOSITION_TEXT,
  LEVEL_TEXT,
  type ListedReason,
  memberReasonText,
  reasonText,
  type SessionReason,
  shortCall,
} from './reason-text.js';
export { type CheckResult, Checks, type CheckStatus, type Report, type Verdict } from './report.js';
export {
  type Affirmed,
  type AffirmedCall,
  type CompleteMember,
  type ContestedReason,
  type IncompleteReason,
  type JudgedCall,
  type Judgement,
  judgeSession,
  type OpenReason,
  SESSION_DISPOSITIONS,
  type SessionDisposition,
  type UnverifiedReason,
  type ViolatedReason,
} from './session-disposition.js';
export {
  deriveSession,
  type RecorderCounts,
  type SessionEntries,
  type SessionFacts,
  type SessionIssuer,
  type VerdictCounts,
} from './session-facts.js';
export { type SinkStanding, Standing, type TokenStanding } from './standing.js';
export {
  type Issuer,
  MAX_RECEIPT_BYTES,
  MAX_RECEIPT_ENTRIES,
  NOT_PROVEN,
  type Receipt,
  scopeRange,
} from './statement.js';
export {
  formatTlogProof,
  parseTlogProof,
  TLOG_PROOF_CHECKS,
  type TlogProof,
  type TlogProofCheck,
  verifyTlogProof,
} from './tlog-proof.js';
export { openReceipt, parseReceipt, RECEIPT_CHECKS, type ReceiptCheck, verifyReceipt } from './verify.js';
