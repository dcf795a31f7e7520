import type {
  CoverageStatus,
  MemberReason,
  MemberStatement,
  SeenCall,
  SentEntry,
  SessionStatement,
} from '@belay/coverage';
import {
  type CallAuthority,
  type CallAuthorityLevel,
  type CallAuthorityReason,
  callAuthority,
  citationFault,
  isReplayed,
  type Replay,
  replaysOf,
  type SessionEvidence,
  verifierFault,
} from './call-authority.js';

/** What a session comes to, the worst that is proven first. */
export const SESSION_DISPOSITIONS = [
  'contested',
  'violated',
  'incomplete',
  'open',
  'unverified',
  'affirmed',
] as const;

/** Two stories. */
export type ContestedReason =
  | { readonly reason: 'coverage'; readonly sink: string; readonly because: readonly MemberReason[] }
  /** What sinks say that they saw of a call differs. */
  | {
      readonly reason: 'sinks_differ';
      readonly calls: readonly string[];
      readonly part: 'arguments' | 'outcome';
    }
  /** An auditor says other than a verifier. */
  | { readonly reason: 'auditor_differs'; readonly label: number; readonly verdicts: readonly number[] }
  /** Two auditors say other things of the same. */
  | { readonly reason: 'auditors_differ'; readonly labels: readonly number[] };

export type ViolatedReason =
  | {
      readonly reason: 'fail';
      readonly verdict: number;
      readonly sink: string;
      readonly cause?: string | undefined;
    }
  | { readonly reason: 'auditor'; readonly label: number; readonly auditor: string };

/** A required sink does not cover the session. */
export interface IncompleteReason {
  readonly reason: 'coverage';
  readonly sink: string;
  readonly status: Extract<CoverageStatus, 'gap' | 'silent' | 'unclosed'>;
  readonly because: readonly MemberReason[];
}

export type OpenReason =
  | { readonly reason: 'not_closed'; readonly sink: string }
  /** No member has said anything yet. */
  | { readonly reason: 'not_begun' };

export type UnverifiedReason =
  | { readonly reason: 'no_required_sink' | 'no_call' }
  /** A call that was not run again; of how many, where several can't be told apart. */
  | {
      readonly reason: 'not_replayed';
      readonly calls: readonly string[];
      readonly level: CallAuthorityLevel;
      readonly because: readonly CallAuthorityReason[];
    }
  /** Lines about calls that name none, so that no verdict can be about them. */
  | { readonly reason: 'unnamed_calls'; readonly sink: string; readonly count: number }
  | { readonly reason: 'verdict_unverified'; readonly verdict: number; readonly cause?: string | undefined }
  /** A verdict of a verifier of the session that does not hold. */
  | { readonly reason: 'verdict_rejected'; readonly verdict: number }
  /** Lines that anyone with a token may have written or pre-empted. */
  | { readonly reason: 'unsigned'; readonly sink: string }
  /** A sink that is not required, and does not cover the session. */
  | { readonly reason: 'coverage'; readonly sink: string; readonly status: CoverageStatus };

/** A member that covers the session whole, every line of it signed under its declared key. */
export interface CompleteMember {
  readonly sink: string;
  readonly required: boolean;
  readonly status: 'complete';
}

/** A call that was run again, and came to the same. */
export interface AffirmedCall {
  readonly calls: readonly string[];
  readonly level: 'replayed' | 'adjudicated';
  readonly verdicts: readonly [AffirmingVerdict, ...AffirmingVerdict[]];
}

export interface AffirmingVerdict {
  readonly verdict: number;
  readonly status: 'PASS' | 'WARN';
  readonly recorder: Replay['recorder'];
}

declare const derived: unique symbol;

/** Nothing is missing. Carries what it rests on, and can't be written down: only `sessionDisposition` makes one. */
export interface Affirmed {
  readonly status: 'affirmed';
  readonly members: readonly [CompleteMember, ...CompleteMember[]];
  readonly calls: readonly [AffirmedCall, ...AffirmedCall[]];
  /** Calls with a `WARN`. */
  readonly warnings: number;
  readonly [derived]: true;
}

type Because<Status extends string, Reason> = {
  readonly status: Status;
  /** At least one. */
  readonly reasons: readonly [Reason, ...Reason[]];
};

export type SessionDisposition =
  | Because<'contested', ContestedReason>
  | Because<'violated', ViolatedReason>
  | Because<'incomplete', IncompleteReason>
  | Because<'open', OpenReason>
  | Because<'unverified', UnverifiedReason>
  | Affirmed;

/** A call with what it rests on. */
export interface JudgedCall {
  readonly call: SeenCall;
  readonly authority: CallAuthority;
}

interface ExaminedCall extends JudgedCall {
  readonly replays: readonly Replay[];
}

/** What a session comes to, and each of its calls. */
export interface Judgement {
  readonly disposition: SessionDisposition;
  readonly calls: readonly JudgedCall[];
}

/**
 * The disposition of a session: total, pure, never throws. `coverage` is the statement on the session as of the same
 * size; of the evidence, only what its members sent and what auditors said counts.
 */
export function judgeSession(
  coverage: SessionStatement,
  evidence: Omit<SessionEvidence, 'members'>,
): Judgement {
  const steps = judgeSessionSteps(coverage, evidence, Number.POSITIVE_INFINITY);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** The same, to be left for a while after every `calls` of them. */
export function* judgeSessionSteps(
  coverage: SessionStatement,
  evidence: Omit<SessionEvidence, 'members'>,
  calls: number,
): Generator<void, Judgement, void> {
  // Sinks that have said nothing of the session may still be who judges it: a verifier speaks of it in verdicts only.
  const given: SessionEvidence = {
    ...evidence,
    members: new Set(coverage.members.map(({ sink }) => sink)),
    verdicts: evidence.verdicts.filter(
      ({ envelope }) => envelope.kind === 'verdict' && envelope.session === coverage.session,
    ),
  };
  const citing = new Map<number, SentEntry[]>();
  for (const verdict of given.verdicts) {
    const index = verdict.envelope.attrs?.['call_index'];
    if (typeof index !== 'number') continue;
    const known = citing.get(index);
    if (known === undefined) citing.set(index, [verdict]);
    else known.push(verdict);
  }
  const examined: ExaminedCall[] = [];
  for (const call of coverage.calls) {
    if (examined.length > 0 && examined.length % calls === 0) yield;
    const verdicts = call.seen
      .flatMap((seen) => seen.calls.flatMap((index) => citing.get(index) ?? []))
      .sort((a, b) => a.line.index - b.line.index);
    const own = { ...given, verdicts };
    examined.push({ call, authority: callAuthority(call, own), replays: replaysOf(call, own) });
  }
  return {
    disposition: dispositionOf(coverage, examined, given),
    calls: examined.map(({ call, authority }) => ({ call, authority })),
  };
}

function dispositionOf(
  coverage: SessionStatement,
  calls: readonly ExaminedCall[],
  evidence: SessionEvidence,
): SessionDisposition {
  const verdicts = evidence.verdicts.filter(({ envelope }) => evidence.members.has(envelope.sink));
  const words = verdicts.filter((verdict) => verifierFault(verdict, evidence.standing) === undefined);
  // One whose citations do not hold proves nothing; it is named below.
  const fails = words.filter(
    (word) => word.envelope.attrs?.['status'] === 'FAIL' && citationFault(word, evidence) === undefined,
  );

  const contested = contestedReasons(coverage, evidence, words);
  if (isSome(contested)) return { status: 'contested', reasons: contested };

  const violated: ViolatedReason[] = [
    ...fails.map(({ line, envelope }) => ({
      reason: 'fail' as const,
      verdict: line.index,
      sink: envelope.sink,
      ...causeOf(envelope.attrs?.['cause']),
    })),
    ...evidence.labels
      .filter(({ says }) => says === 'violated')
      .map(({ index, auditor }) => ({ reason: 'auditor' as const, label: index, auditor })),
  ];
  if (isSome(violated)) return { status: 'violated', reasons: violated };

  const required = coverage.members.filter((member) => member.required);
  const incomplete = required.flatMap(({ sink, status, reasons: because }): IncompleteReason[] =>
    status === 'gap' || status === 'silent' || status === 'unclosed'
      ? [{ reason: 'coverage', sink, status, because }]
      : [],
  );
  if (isSome(incomplete)) return { status: 'incomplete', reasons: incomplete };

  const deciding = required.length > 0 ? required : coverage.members;
  const open: OpenReason[] = deciding
    .filter(({ status, closed }) => status === 'open' || !closed)
    .map(({ sink }) => ({ reason: 'not_closed', sink }));
  if (coverage.began === undefined) open.push({ reason: 'not_begun' });
  if (isSome(open)) return { status: 'open', reasons: open };

  const unverified: UnverifiedReason[] = [];
  const complete = completeMembers(coverage.members, unverified);
  if (required.length === 0) unverified.unshift({ reason: 'no_required_sink' });
  const affirmed = affirmedCalls(calls, unverified);
  if (calls.length === 0) unverified.push({ reason: 'no_call' });
  for (const [sink, count] of Object.entries(coverage.unnamed).sort(([a], [b]) => (a < b ? -1 : 1))) {
    unverified.push({ reason: 'unnamed_calls', sink, count });
  }
  const held = new Set(calls.flatMap(({ replays }) => replays).map(({ verdict }) => verdict.line.index));
  const spoken = new Set(words);
  for (const word of verdicts) {
    const { status, cause, call_index: cites } = word.envelope.attrs ?? {};
    const verdict = word.line.index;
    if (status === 'UNVERIFIED')
      unverified.push({ reason: 'verdict_unverified', verdict, ...causeOf(cause) });
    // One that cites no call is about the session as a whole: it fails it, or adds nothing to its calls.
    else if (
      !spoken.has(word) ||
      citationFault(word, evidence) !== undefined ||
      (cites !== undefined && !held.has(verdict))
    ) {
      unverified.push({ reason: 'verdict_rejected', verdict });
    }
  }
  if (isSome(unverified)) return { status: 'unverified', reasons: unverified };
  // The lists say it again, for the compiler: there is a required member, it is complete, and so is each call.
  if (!isSome(complete) || !isSome(affirmed) || complete.length !== coverage.members.length) {
    return { status: 'unverified', reasons: [{ reason: 'no_call' }] };
  }
  const warnings = affirmed.filter(({ verdicts }) => verdicts.some(({ status }) => status === 'WARN')).length;
  return { status: 'affirmed', members: complete, calls: affirmed, warnings } as unknown as Affirmed;
}

function contestedReasons(
  coverage: SessionStatement,
  { labels }: SessionEvidence,
  words: SessionEvidence['verdicts'],
): ContestedReason[] {
  const reasons: ContestedReason[] = [];
  for (const { sink, status, reasons: because } of coverage.members) {
    if (status === 'conflict') reasons.push({ reason: 'coverage', sink, because });
  }
  for (const call of coverage.calls) {
    for (const part of ['arguments', 'outcome'] as const) {
      if (call[part] === 'different') reasons.push({ reason: 'sinks_differ', calls: call.calls, part });
    }
  }
  const bySubject = new Map<string, SessionEvidence['labels'][number][]>();
  for (const label of labels) {
    const key = label.call ?? '';
    bySubject.set(key, [...(bySubject.get(key) ?? []), label]);
  }
  for (const said of bySubject.values()) {
    if (new Set(said.map(({ says }) => says)).size > 1) {
      reasons.push({ reason: 'auditors_differ', labels: said.map(({ index }) => index) });
    }
  }
  for (const { index, call, says } of labels) {
    const about = words.filter(({ envelope }) => call === undefined || envelope.call === call);
    const failed = about.filter(({ envelope }) => envelope.attrs?.['status'] === 'FAIL');
    const passed = about.filter(({ envelope }) => /^(?:PASS|WARN)$/.test(String(envelope.attrs?.['status'])));
    // That a session is violated is no contradiction of what passed in it, as long as something failed too.
    const against = says === 'not_violated' ? failed : failed.length === 0 ? passed : [];
    if (against.length > 0) {
      reasons.push({
        reason: 'auditor_differs',
        label: index,
        verdicts: against.map(({ line }) => line.index),
      });
    }
  }
  return reasons;
}

function completeMembers(
  members: readonly MemberStatement[],
  unverified: UnverifiedReason[],
): CompleteMember[] {
  return members.flatMap(({ sink, required, status, signed }): CompleteMember[] => {
    if (!signed) unverified.push({ reason: 'unsigned', sink });
    if (status !== 'complete') unverified.push({ reason: 'coverage', sink, status });
    return signed && status === 'complete' ? [{ sink, required, status }] : [];
  });
}

function affirmedCalls(calls: readonly ExaminedCall[], unverified: UnverifiedReason[]): AffirmedCall[] {
  return calls.flatMap(({ call, authority, replays }): AffirmedCall[] => {
    const verdicts = replays.flatMap(({ verdict, status, recorder }): AffirmingVerdict[] =>
      status === 'FAIL' ? [] : [{ verdict: verdict.line.index, status, recorder }],
    );
    const { level, reasons: because } = authority;
    const reached = level === 'replayed' || level === 'adjudicated';
    if (!reached || !isReplayed(call, replays) || !isSome(verdicts) || verdicts.length !== replays.length) {
      unverified.push({ reason: 'not_replayed', calls: call.calls, level, because });
      return [];
    }
    return [{ calls: call.calls, level, verdicts }];
  });
}

function causeOf(cause: unknown): { readonly cause?: string } {
  return typeof cause === 'string' ? { cause } : {};
}

function isSome<T>(list: readonly T[]): list is readonly [T, ...T[]] {
  return list.length > 0;
}
