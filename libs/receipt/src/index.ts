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
  type Sayer,
  type SessionEvidence,
  type VerdictFault,
} from './call-authority.js';
export { buildReceipt, type ReceiptEvidence } from './build.js';
export { type ConflictReason, type Disposition, dispositionOf, type NoSessionReason } from './disposition.js';
export { chainFault } from './chain.js';
export { type DsseEnvelope, formatEnvelope, IN_TOTO, parseDsse, preAuthEncoding } from './dsse.js';
export { ReceiptError, type ReceiptErrorCode } from './error.js';
export {
  formatPayload,
  type LogIdentity,
  parsePayload,
  type Payload,
  type PublishedHead,
  type Subject,
} from './payload.js';
export {
  derivePeriod,
  formatPeriodStatement,
  parsePeriodStatement,
  PERIOD_NOT_PROVEN,
  PERIOD_RECEIPT_TYPE,
  type PeriodEvidence,
  periodEvidence,
  type PeriodFacts,
  type PeriodReceipt,
  periodReceipt,
  periodReceiptPayload,
  type PeriodSession,
  type PeriodSink,
  type PeriodSinkCount,
} from './period-receipt.js';
export { aboutOtherKey, parsePins, type Pins } from './pins.js';
export {
  callReasonText,
  COVERAGE_TEXT,
  DISPOSITION_TEXT,
  FAULT_TEXT,
  LEVEL_TEXT,
  type ListedReason,
  memberReasonText,
  memberReasonTexts,
  reasonText,
  reasonTexts,
  type SessionReason,
  shortCall,
} from './reason-text.js';
export {
  type CheckResult,
  Checks,
  type CheckStatus,
  decided,
  NOT_REACHED,
  type Report,
  type Verdict,
} from './report.js';
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
  citationsOf,
  deriveSession,
  type RecorderCounts,
  SessionDerivation,
  type SessionEntries,
  type SessionFacts,
  type SessionIssuer,
  type VerdictCounts,
} from './session-facts.js';
export type { ListedMember } from './session-reason.js';
export {
  addVerdicts,
  type ClaimedDisposition,
  type CoverageEntry,
  formatSessionStatement,
  type ListedVerdicts,
  parseSessionStatement,
  SESSION_NOT_PROVEN,
  SESSION_RECEIPT_TYPE,
  type SessionReceipt,
  sessionReceipt,
  sessionReceiptPayload,
} from './session-receipt.js';
export { checkPayload, type Claim, MAX_CLAIM_BYTES, parseClaim, signPayload } from './sign.js';
export { type Label, type SinkStanding, Standing, type TokenStanding } from './standing.js';
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
export {
  type AnyReceipt,
  CLOCK_TOLERANCE,
  type Examined,
  openReceipt,
  parseAnyReceipt,
  parseReceipt,
  RECEIPT_CHECKS,
  type ReceiptCheck,
  ReceiptVerifier,
  SESSION_RECEIPT_CHECKS,
  verifyReceipt,
} from './verify.js';
