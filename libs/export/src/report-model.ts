import type { CoverageStatus, ProjectPolicy } from '@belay/coverage';
import type { CallAuthorityLevel, SESSION_DISPOSITIONS, VerdictCounts } from '@belay/receipt';

export type DispositionStatus = (typeof SESSION_DISPOSITIONS)[number];

/** One run of a sink as the report draws it. Times are the collector's, RFC 3339. */
export interface ReportEpoch {
  readonly epoch: string;
  readonly status: CoverageStatus;
  readonly first?: string | undefined;
  readonly last?: string | undefined;
  /** Lines received, and one past the greatest number known of. */
  readonly lines: number;
  readonly next: number;
  /** Numbers without a line, [from, to); `why` only where the sink said so itself. */
  readonly missing: readonly {
    readonly from: number;
    readonly to: number;
    readonly why?: string | undefined;
  }[];
  readonly missingOmitted: number;
  readonly conflicts: number;
  /** Lines that were not signed under a declared key: `unsigned` of the epoch's statement. Absent: not told. */
  readonly unsigned?: number | undefined;
}

export interface ReportSink {
  readonly sink: string;
  readonly kind?: string | undefined;
  readonly domain?: string | undefined;
  readonly required: boolean;
  readonly keyed: boolean;
  readonly declared: boolean;
  readonly status: CoverageStatus;
  readonly epochs: readonly ReportEpoch[];
  readonly epochsOmitted: number;
  /** Epochs that the chain shows and of which nothing was received. */
  readonly lost: number;
  /** Forks: epochs that two or more others say they follow; and openings whose counter does not follow (coverage §4). */
  readonly branches: number;
  readonly miscounted: number;
}

/** What was counted over the entries and statements of the export; nothing of it is shortened by a limit. */
export interface FoundCounts {
  /** Entries of kind `denial`. */
  readonly denials: number;
  /** Calls of the sessions that are neither replayed nor adjudicated; a verdict UNVERIFIED judges nothing. */
  readonly unjudgedCalls: number;
  /** Entries that name a session and that no receipt here looked at: they came after its statement, or it has none. */
  readonly laterLines: number;
  /** Entries written under a token of role `agent`. */
  readonly agentLines: number;
  /** Numbers without a line, of all epochs of all sinks, by who says why: nobody, or the sink itself. */
  readonly missing: { readonly undisclosed: number; readonly dropped: number; readonly filtered: number };
  /** Conflicts of all epochs, with forks and miscounted openings. */
  readonly conflicts: number;
}

/** One session by its last receipt. */
export interface ReportSession {
  readonly session: string;
  readonly began?: string | undefined;
  readonly kinds: readonly string[];
  readonly coverage: CoverageStatus;
  readonly disposition: DispositionStatus;
  /** Each reason in words, with its numbers; at most 20, and how many more there are. */
  readonly reasons: readonly string[];
  readonly reasonsOmitted: number;
  readonly calls: number;
  readonly levels: Readonly<Record<CallAuthorityLevel, number>>;
  readonly verdicts: VerdictCounts;
  /** `sha256:` digest of the receipt, and of the one it took the place of. */
  readonly receipt: string;
  readonly supersedes?: string | undefined;
  readonly asOf: number;
}

/** What a control asks, what the export shows of it, and what it does not show. */
export interface ControlRow {
  readonly framework: string;
  readonly control: string;
  readonly asks: string;
  readonly result: 'shown' | 'partly' | 'inconclusive' | 'not_shown';
  /** What in this export shows it: files, counts, numbers. */
  readonly evidence: string;
  readonly limits: string;
}

/** Evidence of absence: "no event of this class in this scope", which only complete coverage can say. */
export interface AbsenceRow {
  readonly class: string;
  readonly result: 'none' | 'found' | 'inconclusive';
  readonly count: number;
  /** Of `inconclusive`: the gaps by name, at most 20. */
  readonly because: readonly string[];
}

/**
 * All that the report shows. Made from the entries and receipts of the export and nothing else, so that a verifier
 * makes it again and compares the pages byte for byte.
 */
export interface ReportModel {
  readonly v: 1;
  readonly project: { readonly id: string; readonly name: string };
  readonly log: { readonly origin: string; readonly vkey: string; readonly rootFingerprint: string };
  readonly asOf: { readonly size: number; readonly time: string };
  /** What was asked for, in words of one line: "everything", a period, sessions. */
  readonly scope: string;
  readonly period?: { readonly from: string; readonly to: string } | undefined;
  readonly policy: { readonly digest: string; readonly index: number; readonly document: ProjectPolicy };
  readonly entries: { readonly included: number; readonly omitted: number };
  readonly first?: string | undefined;
  readonly last?: string | undefined;
  readonly dispositions: Readonly<Record<DispositionStatus, number>>;
  readonly coverage: Readonly<Record<CoverageStatus, number>>;
  readonly levels: Readonly<Record<CallAuthorityLevel, number>>;
  readonly verdicts: VerdictCounts;
  readonly calls: number;
  /** Calls that were run again, by how the verifier's trust domain stands to that of who recorded them. */
  readonly recorder: {
    readonly same_domain: number;
    readonly other_domain: number;
    readonly unknown: number;
  };
  readonly found: FoundCounts;
  /** By name. */
  readonly sinks: readonly ReportSink[];
  /** The worst first, then by their first entries; at most 500. */
  readonly sessions: readonly ReportSession[];
  readonly sessionsOmitted: number;
  readonly tokens: readonly {
    readonly token: string;
    readonly role: string;
    readonly issuedBy: string;
    readonly index: number;
  }[];
  readonly labels: number;
  readonly absence: readonly AbsenceRow[];
  readonly controls: readonly ControlRow[];
  readonly limitations: readonly string[];
}

/** What the derived parts are made from, in this order: `absenceRows`, `controlRows` (with `absence`), `limitationsOf`. */
export type ReportFacts = Omit<ReportModel, 'absence' | 'controls' | 'limitations'>;
