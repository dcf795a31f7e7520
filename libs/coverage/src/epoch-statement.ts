import type { ProjectPolicy } from './policy.js';
import { policyDigest } from './policy.js';
import type { Account, EpochCoverage, EpochFindings } from './epoch-coverage.js';

/** What coverage comes to, the worst first. */
export const COVERAGE_STATUSES = ['conflict', 'gap', 'unclosed', 'silent', 'open', 'complete'] as const;

export type CoverageStatus = (typeof COVERAGE_STATUSES)[number];

/** What a statement can't tell. `sender`: not every line was signed under a declared key, so whoever had a token may
 * have written lines or taken their numbers. `tail`: the epoch has not ended by the sink's own account, so there may be
 * lines after the last that was received. `content`: of the lines after `matched` no root of the sink was compared. */
export type Unknown = 'sender' | 'tail' | 'content';

/** When a statement is made, and by which rules. */
export interface AsOf {
  /** Entries of the log that were looked at. */
  readonly size: number;
  /** By the clock of who makes the statement; RFC 3339, UTC, three fractional digits. */
  readonly time: string;
}

/** Seconds; the policy's, with the heartbeat that was declared for the sink. */
export interface Limits {
  readonly heartbeat: number;
  readonly lateness: number;
  readonly closeTimeout: number;
}

/** What is due and did not come. */
export type Overdue = 'heartbeat' | 'close';

export interface EpochStatement extends EpochFindings {
  readonly v: 1;
  readonly type: 'epoch';
  readonly log: string;
  readonly sink: string;
  readonly epoch: string;
  readonly asOf: AsOf;
  /** Digest of the policy in force. */
  readonly policy: string;
  readonly limits: Limits;
  readonly status: CoverageStatus;
  readonly overdue: readonly Overdue[];
  readonly unknown: readonly Unknown[];
}

/** Milliseconds, as the reducer takes them. */
export function timingOf({ lateness, closeTimeout }: Pick<Limits, 'lateness' | 'closeTimeout'>): {
  readonly lateness: number;
  readonly closeTimeout: number;
} {
  return { lateness: lateness * 1_000, closeTimeout: closeTimeout * 1_000 };
}

export interface EpochQuestion {
  readonly asOf: AsOf;
  readonly policy: ProjectPolicy;
  /** Seconds, as declared for the sink; absent: the policy's. */
  readonly heartbeat?: number | undefined;
  /** What a later epoch of the sink says of this one. */
  readonly account?: Account | undefined;
}

/** The statement on one epoch of one sink. Time, policy and the sink's next epoch come as arguments. */
export function epochStatement(
  coverage: EpochCoverage,
  { asOf, policy, heartbeat, account }: EpochQuestion,
): EpochStatement {
  const findings = coverage.findings(account);
  const { log, sink, epoch } = coverage;
  const limits = {
    heartbeat: heartbeat ?? policy.heartbeat,
    lateness: policy.lateness,
    closeTimeout: policy.closeTimeout,
  };
  return {
    v: 1,
    type: 'epoch',
    log,
    sink,
    epoch,
    asOf: { size: asOf.size, time: asOf.time },
    policy: policyDigest(policy),
    limits,
    ...judged(findings, asOf, limits),
    ...findings,
  };
}

/** What follows from an epoch's findings: a reader derives it again, and refuses a statement that says otherwise. */
export function judged(
  findings: EpochFindings,
  asOf: AsOf,
  limits: Limits,
): Pick<EpochStatement, 'status' | 'overdue' | 'unknown'> {
  const { ending, matched, next, last, conflicts, conflictsOmitted, missing, unbound } = findings;
  const quiet = last === undefined ? 0 : (Date.parse(asOf.time) - Date.parse(last.received)) / 1_000;
  const overdue: Overdue[] = [];
  if (ending === undefined) {
    if (limits.heartbeat > 0 && quiet > limits.heartbeat + limits.lateness) overdue.push('heartbeat');
    if (quiet > limits.closeTimeout) overdue.push('close');
  }
  const unknown: Unknown[] = [];
  if (findings.unsigned > 0 || Object.keys(findings.signed).length === 0) unknown.push('sender');
  if (ending === undefined) unknown.push('tail');
  // The last line of an epoch states the root of those before it; only the next epoch can state that of all.
  const compared = ending?.compared === true && ending.by === 'successor' ? ending.size : matched;
  if (compared < (ending?.by === 'close' ? ending.seq - 1 : next - 1)) unknown.push('content');
  const status = (): CoverageStatus => {
    if (conflicts.length > 0 || conflictsOmitted > 0) return 'conflict';
    if (missing.length > 0 || unbound.length > 0) return 'gap';
    if (ending?.compared === true) return statesMoreLost(findings) ? 'gap' : 'complete';
    // It is over, but its lines can't be held to what the sink said of them.
    if (ending !== undefined) return 'gap';
    if (overdue.includes('close')) return 'unclosed';
    return overdue.includes('heartbeat') ? 'silent' : 'open';
  };
  return { status: status(), overdue, unknown };
}

/** Whether the sink says that it gave up more lines than are missing. */
export function statesMoreLost({ stated, missing }: Pick<EpochFindings, 'stated' | 'missing'>): boolean {
  if (stated === undefined) return false;
  const count = missing.reduce((sum, { from, to }) => sum + to - from, 0);
  return stated.dropped + stated.filtered > count;
}
