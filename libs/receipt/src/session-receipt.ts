import {
  COVERAGE_STATUSES,
  CoverageError,
  type CoverageStatus,
  policyDigest,
  type ProjectPolicy,
  readMember,
  readPolicy,
  sessionStatus,
} from '@belay/coverage';
import { canonical, type SenderRole, type SessionScope } from '@belay/envelope';
import { CALL_AUTHORITY_LEVELS, type CallAuthorityLevel } from './call-authority.js';
import { ReceiptError } from './error.js';
import {
  formatPayload,
  headMember,
  IDENTIFIER,
  instant,
  logMember,
  type LogIdentity,
  NAME,
  type Payload,
  parsePayload,
  type PublishedHead,
  readHead,
  readLog,
  requireSentences,
} from './payload.js';
import type { ListedReason } from './reason-text.js';
import { SESSION_DISPOSITIONS, type SessionDisposition } from './session-disposition.js';
import type { SessionFacts, SessionIssuer, VerdictCounts } from './session-facts.js';
import { cutReason, type ListedMember, readReason, reasonMember, type ReasonsOf } from './session-reason.js';
import { count, list, matching, members, named, truth, word } from './shape.js';

/** Predicate type of receipts for sessions. */
export const SESSION_RECEIPT_TYPE = 'urn:belay:session-receipt:v1';

/** Most reasons of a disposition, reasons and epochs of a member, and names of causes that are listed. */
const MAX_SESSION_LISTED = 100;
/** Most members, and most issuers. Admins declare sinks and issue tokens, so no sender can reach it. */
const MAX_DECLARED = 10_000;
const MAX_KINDS = 64;

/** What no receipt for a session proves. Part of every such receipt, word for word. */
export const SESSION_NOT_PROVEN: readonly string[] = Object.freeze([
  'That what the entries say is true: an entry shows who said it, when it was received and that it was not changed since.',
  'That this receipt is what its entries come to: they are not in it. An export brings them, and whoever verifies the export derives the receipt again.',
  'That a sink saw everything: complete says that nothing is missing of what it numbered, not that it was never switched off.',
  'That nothing happened beside the calls that were recorded: what passed by every sink is in no line.',
  'That no other run of a sink had lines of this session, all of them lost. (A run is from when a sink starts to when it ends.) Looked at are the runs in which a line names the session, and those next to them: what is missing from any other is not told here, but in the statement on that run, which the report of an export shows.',
  'That what was done was right or wanted: a PASS says that a call that was run again came to the same from the recorded state, and broke no rule that the verifier knew.',
  'That a verifier ran what it says: a verdict is its signed word.',
  'What the content was: entries hold commitments, which open only with their salt and the content itself.',
  'That the times are right: they are by the clocks of the sinks and of the collector.',
  'That everyone is shown the same log: compare its checkpoint with those that others hold.',
  'That trust domains and issuers are as named: this is what admins declared, as the collector recorded it.',
  'That it is the last word: evidence that came later may have led to a receipt that supersedes this one.',
]);

declare const claimed: unique symbol;

/** What a receipt says a session came to. Nothing but a claim until it is derived again from the entries. */
export type ClaimedDisposition =
  | {
      readonly [S in keyof ReasonsOf]: {
        readonly status: S;
        readonly reasons: readonly ListedReason<ReasonsOf[S]>[];
        readonly reasonsOmitted: number;
        readonly [claimed]: true;
      };
    }[keyof ReasonsOf]
  | {
      readonly status: 'affirmed';
      /** How many, all complete and signed. */
      readonly members: number;
      /** How many, all run again. */
      readonly calls: number;
      /** How many of them with a `WARN`. */
      readonly warnings: number;
      readonly [claimed]: true;
    };

/** Verdict counts as a receipt lists them: at most 100 causes, and how many verdicts had another. */
export interface ListedVerdicts extends VerdictCounts {
  readonly otherCauses?: number | undefined;
}

/** What a receipt for a session states, as values. That it is true is for `verifyReceipt` and an export to tell. */
export interface SessionReceipt {
  readonly scope: SessionScope;
  readonly log: LogIdentity;
  readonly asOf: PublishedHead;
  readonly coverage: {
    /** Index of the entry that states it, `coverage.stated`. */
    readonly index: number;
    /** `sha256:` digest of the statement. */
    readonly statement: string;
    /** Entries [0, size) were looked at, by this clock. */
    readonly size: number;
    readonly time: string;
    readonly status: CoverageStatus;
    readonly closed: boolean;
    readonly kinds: readonly string[];
    readonly began?: { readonly index: number; readonly received: string } | undefined;
    readonly members: readonly ListedMember[];
  };
  readonly policy: { readonly digest: string; readonly index: number; readonly document: ProjectPolicy };
  readonly authority: {
    /** Calls by what they rest on. */
    readonly levels: Readonly<Record<CallAuthorityLevel, number>>;
    /** Of any call; absent when there is none. */
    readonly lowest?: CallAuthorityLevel | undefined;
    /** Verdicts that hold as replays, by how the verifier stands to who recorded the call; absent when there are none. */
    readonly recorder?:
      { readonly same_domain: number; readonly other_domain: number; readonly unknown: number } | undefined;
  };
  readonly disposition: ClaimedDisposition;
  /** Each of those that can't be told apart counted. */
  readonly calls: number;
  readonly verdicts: ListedVerdicts;
  readonly issuers: readonly SessionIssuer[];
  /** Number of the entries that name the session, and the digest that is the receipt's subject, hex. */
  readonly evidence: { readonly entries: number; readonly digest: string };
  /** `sha256:` digest of the receipt whose place it takes. */
  readonly supersedes?: string | undefined;
}

/** The entry of the log that states the coverage, and the statement's digest. */
export interface CoverageEntry {
  readonly index: number;
  readonly statement: string;
}

/** Name of the subject: `<origin>#session/<session>`. */
function sessionSubject(origin: string, { session }: SessionScope): string {
  return `${origin}#session/${session}`;
}

/**
 * The receipt of what a log shows of a session. `asOf` is the published head that has the coverage entry, which whoever
 * signs it checks. Throws ReceiptError `evidence` when the coverage entry is of another statement.
 */
export function sessionReceipt(
  facts: SessionFacts,
  log: LogIdentity,
  asOf: PublishedHead,
  coverageEntry: CoverageEntry,
  supersedes?: string,
): SessionReceipt {
  const { statement, policy, levels, recorders, calls, evidence } = facts;
  if (coverageEntry.statement !== facts.statementDigest) {
    throw new ReceiptError('evidence', 'the coverage entry is of another statement', {
      stated: coverageEntry.statement,
      derived: facts.statementDigest,
    });
  }
  const listed = statement.members.map((member): ListedMember => {
    const { epochs, reasons } = member;
    return {
      ...member,
      epochs: epochs.slice(0, MAX_SESSION_LISTED),
      epochsOmitted: Math.max(0, epochs.length - MAX_SESSION_LISTED),
      reasons: reasons.slice(0, MAX_SESSION_LISTED),
      reasonsOmitted: Math.max(0, reasons.length - MAX_SESSION_LISTED),
    };
  });
  const { began } = statement;
  const lowest = lowestOf(levels);
  const replays = recorders['same domain'] + recorders['other domain'] + recorders.unknown;
  const receipt: SessionReceipt = {
    scope: { type: 'session', session: facts.session },
    log: { origin: log.origin, vkey: log.vkey, x5c: log.x5c },
    asOf: { size: asOf.size, checkpoint: asOf.checkpoint, time: asOf.time },
    coverage: {
      index: coverageEntry.index,
      statement: facts.statementDigest,
      size: statement.asOf.size,
      time: statement.asOf.time,
      status: statement.status,
      closed: statement.closed,
      kinds: statement.kinds,
      ...(began === undefined ? {} : { began }),
      members: listed,
    },
    policy: { digest: policy.digest, index: policy.index, document: policy.document },
    authority: {
      levels,
      ...(lowest === undefined ? {} : { lowest }),
      ...(replays === 0
        ? {}
        : {
            recorder: {
              same_domain: recorders['same domain'],
              other_domain: recorders['other domain'],
              unknown: recorders.unknown,
            },
          }),
    },
    disposition: claimOf(facts.judgement.disposition, listed, calls),
    calls,
    verdicts: listedVerdicts(facts.verdicts),
    issuers: facts.issuers,
    evidence: { entries: evidence.entries, digest: evidence.digest },
    ...(supersedes === undefined ? {} : { supersedes }),
  };
  const fault = inconsistency(receipt);
  if (fault !== undefined) throw new ReceiptError('evidence', fault);
  return receipt;
}

/** What is signed for a session: `formatSessionStatement` of `sessionReceipt`. */
export function sessionReceiptPayload(
  facts: SessionFacts,
  log: LogIdentity,
  asOf: PublishedHead,
  coverageEntry: CoverageEntry,
  supersedes?: string,
): Buffer {
  return formatSessionStatement(sessionReceipt(facts, log, asOf, coverageEntry, supersedes));
}

/** What a disposition is in a receipt: the only way to a claim but to read one. */
function claimOf(
  disposition: SessionDisposition,
  listed: readonly ListedMember[],
  calls: number,
): ClaimedDisposition {
  if (disposition.status === 'affirmed') {
    const { status, warnings } = disposition;
    return { status, members: disposition.members.length, calls, warnings } as unknown as ClaimedDisposition;
  }
  const { status, reasons } = disposition;
  const bySink = new Map(listed.map((member) => [member.sink, member]));
  return {
    status,
    reasons: reasons
      .slice(0, MAX_SESSION_LISTED)
      .map((reason) => cutReason(reason, (sink) => bySink.get(sink))),
    reasonsOmitted: Math.max(0, reasons.length - MAX_SESSION_LISTED),
  } as unknown as ClaimedDisposition;
}

/** The causes that were named most, by name where that is equal; the verdicts with any other cause are counted. */
function listedVerdicts({ causes, otherCauses = 0, ...counts }: ListedVerdicts): ListedVerdicts {
  const ordered = Object.entries(causes).sort(
    ([a, times], [b, others]) => others - times || (a < b ? -1 : a > b ? 1 : 0),
  );
  const others = sum(ordered.slice(MAX_SESSION_LISTED).map(([, times]) => times)) + otherCauses;
  return {
    ...counts,
    causes: Object.fromEntries(ordered.slice(0, MAX_SESSION_LISTED)),
    ...(others === 0 ? {} : { otherCauses: others }),
  };
}

/** The counts of several receipts together. */
export function addVerdicts(all: readonly ListedVerdicts[]): ListedVerdicts {
  const counts = { PASS: 0, WARN: 0, FAIL: 0, UNVERIFIED: 0 };
  const causes = new Map<string, number>();
  let otherCauses = 0;
  for (const verdicts of all) {
    for (const status of VERDICTS) counts[status] += verdicts[status];
    for (const [cause, times] of Object.entries(verdicts.causes)) {
      causes.set(cause, (causes.get(cause) ?? 0) + times);
    }
    otherCauses += verdicts.otherCauses ?? 0;
  }
  return listedVerdicts({ ...counts, causes: Object.fromEntries(causes), otherCauses });
}

const lowestOf = (levels: SessionReceipt['authority']['levels']): CallAuthorityLevel | undefined =>
  CALL_AUTHORITY_LEVELS.find((level) => levels[level] > 0);

/** The payload. Formats what it is given: a receipt that can be read back is one of `sessionReceipt` or a reader. */
export function formatSessionStatement(receipt: SessionReceipt): Buffer {
  const { scope, log, asOf, coverage, policy, authority, disposition, evidence, supersedes } = receipt;
  return formatPayload({
    subject: { name: sessionSubject(log.origin, scope), sha256: evidence.digest },
    predicateType: SESSION_RECEIPT_TYPE,
    predicate: {
      v: 1,
      scope,
      log: logMember(log),
      asOf: headMember(asOf),
      coverage,
      policy,
      authority,
      disposition:
        disposition.status === 'affirmed'
          ? disposition
          : { ...disposition, reasons: disposition.reasons.map(reasonMember) },
      calls: receipt.calls,
      verdicts: receipt.verdicts,
      issuers: receipt.issuers,
      evidence: { entries: evidence.entries },
      ...(supersedes === undefined ? {} : { supersedes }),
      notProven: SESSION_NOT_PROVEN,
    },
  });
}

/**
 * Reads the payload of a session receipt in its one canonical form. What follows from its own members is derived again
 * and refused when it is not what is stated; that the members are true only the entries can tell. Throws ReceiptError
 * `malformed`.
 */
export function parseSessionStatement(payload: Buffer): SessionReceipt {
  return readSessionReceipt(parsePayload(payload));
}

/** `parseSessionStatement` of a payload that is taken apart. */
export function readSessionReceipt({ subject, predicateType, predicate }: Payload): SessionReceipt {
  if (predicateType !== SESSION_RECEIPT_TYPE) {
    throw new ReceiptError('malformed', `not a ${SESSION_RECEIPT_TYPE}`);
  }
  const given = members(predicate, 'predicate', REQUIRED, ['supersedes']);
  const [v, scope, log, asOf, coverage, policy, authority, disposition, calls] = given;
  const [verdicts, issuers, evidence, notProven, supersedes] = given.slice(9);
  if (v !== 1) throw new ReceiptError('malformed', 'not version 1 of a session receipt');
  requireSentences(notProven, SESSION_NOT_PROVEN);
  const [type, session] = members(scope, 'scope', ['type', 'session']);
  const [entries] = members(evidence, 'evidence', ['entries']);
  const covered = readCoverage(coverage);
  const bySink = new Map(covered.members.map((member) => [member.sink, member]));
  const receipt: SessionReceipt = {
    scope: { type: word(type, 'type', ['session']), session: matching(session, 'session', SESSION) },
    log: readLog(log),
    asOf: readHead(asOf),
    coverage: covered,
    policy: readPolicyMember(policy),
    authority: readAuthority(authority),
    disposition: readDisposition(disposition, (sink) => bySink.get(sink)),
    calls: count(calls, 'calls'),
    verdicts: readVerdicts(verdicts),
    issuers: list(issuers, 'issuers', MAX_DECLARED).map(readIssuer),
    evidence: { entries: count(entries, 'entries'), digest: subject.sha256 },
    ...(supersedes === undefined ? {} : { supersedes: matching(supersedes, 'supersedes', DIGEST) }),
  };
  if (subject.name !== sessionSubject(receipt.log.origin, receipt.scope)) {
    throw new ReceiptError('malformed', 'the subject has another name');
  }
  const fault = misplaced(receipt) ?? inconsistency(receipt);
  if (fault !== undefined) throw new ReceiptError('malformed', fault);
  return receipt;
}

const REQUIRED = [
  'v',
  'scope',
  'log',
  'asOf',
  'coverage',
  'policy',
  'authority',
  'disposition',
  'calls',
  'verdicts',
  'issuers',
  'evidence',
  'notProven',
] as const;
const SESSION = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const KIND = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const DIGEST = /^sha256:[0-9a-f]{64}$/;
const ROLES = ['agent', 'sink', 'verifier'] as const satisfies SenderRole[];
const VERDICTS = ['PASS', 'WARN', 'FAIL', 'UNVERIFIED'] as const;

function readCoverage(value: unknown): SessionReceipt['coverage'] {
  const [index, statement, size, time, status, closed, kinds, listed, began] = members(
    value,
    'coverage',
    ['index', 'statement', 'size', 'time', 'status', 'closed', 'kinds', 'members'],
    ['began'],
  );
  const [at, received] = began === undefined ? [] : members(began, 'began', ['index', 'received']);
  return {
    index: count(index, 'index'),
    statement: matching(statement, 'statement', DIGEST),
    size: count(size, 'size'),
    time: instant(time, 'time'),
    status: word(status, 'status', COVERAGE_STATUSES),
    closed: truth(closed, 'closed'),
    kinds: list(kinds, 'kinds', MAX_KINDS).map((kind) => matching(kind, 'kinds', KIND)),
    ...(began === undefined
      ? {}
      : { began: { index: count(at, 'index'), received: instant(received, 'received') } }),
    members: list(listed, 'members', MAX_DECLARED).map(readListedMember),
  };
}

function readListedMember(value: unknown): ListedMember {
  const own = ['sink', 'required', 'status', 'closed', 'signed', 'epochs', 'reasons'];
  const given = members(value, 'members', [...own, 'epochsOmitted', 'reasonsOmitted']);
  list(given[5], 'epochs', MAX_SESSION_LISTED);
  list(given[6], 'reasons', MAX_SESSION_LISTED);
  const [epochsOmitted, reasonsOmitted] = given.slice(own.length);
  const member = covering(() =>
    readMember(Object.fromEntries(own.map((name, i) => [name, given[i]])), 'members'),
  );
  return {
    ...member,
    epochsOmitted: omittedAfter(member.epochs, epochsOmitted, 'epochsOmitted'),
    reasonsOmitted: omittedAfter(member.reasons, reasonsOmitted, 'reasonsOmitted'),
  };
}

/** How many were left out of a list, which is full then. */
function omittedAfter(listed: readonly unknown[], value: unknown, what: string): number {
  const omitted = count(value, what);
  if (omitted > 0 && listed.length !== MAX_SESSION_LISTED) {
    throw new ReceiptError('malformed', `${what} of a list that is not full`);
  }
  return omitted;
}

function readPolicyMember(value: unknown): SessionReceipt['policy'] {
  const [digest, index, document] = members(value, 'policy', ['digest', 'index', 'document']);
  const policy = covering(() => readPolicy(document));
  if (canonical(policy) !== canonical(document)) {
    throw new ReceiptError('malformed', 'the policy is not written out');
  }
  return { digest: matching(digest, 'digest', DIGEST), index: count(index, 'index'), document: policy };
}

function readAuthority(value: unknown): SessionReceipt['authority'] {
  const [levels, lowest, recorder] = members(value, 'authority', ['levels'], ['lowest', 'recorder']);
  const [same, other, unknown] =
    recorder === undefined ? [] : members(recorder, 'recorder', ['same_domain', 'other_domain', 'unknown']);
  return {
    levels: readLevels(levels),
    ...(lowest === undefined ? {} : { lowest: word(lowest, 'lowest', CALL_AUTHORITY_LEVELS) }),
    ...(recorder === undefined
      ? {}
      : {
          recorder: {
            same_domain: count(same, 'same_domain'),
            other_domain: count(other, 'other_domain'),
            unknown: count(unknown, 'unknown'),
          },
        }),
  };
}

/** Counts of calls by level, every level named. */
export function readLevels(value: unknown): Record<CallAuthorityLevel, number> {
  return countsOf(value, 'levels', CALL_AUTHORITY_LEVELS);
}

/** An object with a count for each of these names and no others. */
export function countsOf<N extends string>(
  value: unknown,
  what: string,
  names: readonly N[],
): Record<N, number> {
  const given = members(value, what, names);
  return Object.fromEntries(names.map((name, i) => [name, count(given[i], name)])) as Record<N, number>;
}

/** Counts of verdicts, all of their members named. */
export function readVerdicts(given: unknown): ListedVerdicts {
  const all = members(given, 'verdicts', [...VERDICTS, 'causes'], ['otherCauses']);
  const [causes, others] = all.slice(VERDICTS.length);
  const read = named(causes, 'causes', MAX_SESSION_LISTED).map(([name, value]): [string, number] => {
    const times = count(value, 'causes');
    if (times === 0) throw new ReceiptError('malformed', 'a cause that nothing had');
    return [matching(name, 'causes', NAME), times];
  });
  const verdicts = Object.fromEntries(VERDICTS.map((name, i) => [name, count(all[i], name)]));
  return {
    ...(verdicts as Record<(typeof VERDICTS)[number], number>),
    causes: Object.fromEntries(read),
    ...(others === undefined ? {} : { otherCauses: omittedAfter(read, others, 'otherCauses') }),
  };
}

function readIssuer(value: unknown): SessionIssuer {
  const [token, role, issuedBy, index, domain] = members(
    value,
    'issuers',
    ['token', 'role', 'issuedBy', 'index'],
    ['domain'],
  );
  return {
    token: matching(token, 'token', IDENTIFIER),
    role: word(role, 'role', ROLES),
    ...(domain === undefined ? {} : { domain: matching(domain, 'domain', NAME) }),
    issuedBy: matching(issuedBy, 'issuedBy', IDENTIFIER),
    index: count(index, 'index'),
  };
}

function readDisposition(
  value: unknown,
  memberOf: (sink: string) => ListedMember | undefined,
): ClaimedDisposition {
  const status = word(
    (value as { status?: unknown } | null | undefined)?.status,
    'disposition',
    SESSION_DISPOSITIONS,
  );
  if (status === 'affirmed') {
    const [, all, calls, warnings] = members(value, 'disposition', [
      'status',
      'members',
      'calls',
      'warnings',
    ]);
    return {
      status,
      members: count(all, 'members'),
      calls: count(calls, 'calls'),
      warnings: count(warnings, 'warnings'),
    } as unknown as ClaimedDisposition;
  }
  const [, reasons, omitted] = members(value, 'disposition', ['status', 'reasons', 'reasonsOmitted']);
  const read = list(reasons, 'reasons', MAX_SESSION_LISTED).map((reason) =>
    readReason(status, reason, memberOf),
  );
  if (read.length === 0) throw new ReceiptError('malformed', 'a disposition without a reason');
  return {
    status,
    reasons: read,
    reasonsOmitted: omittedAfter(read, omitted, 'reasonsOmitted'),
  } as unknown as ClaimedDisposition;
}

/** Errors of the readers of coverage are of a receipt here. */
function covering<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof CoverageError)) throw error;
    throw new ReceiptError('malformed', error.message);
  }
}

/** What in a receipt is not where it can be in the log, if anything. */
function misplaced({ coverage, asOf, policy, issuers, evidence }: SessionReceipt): string | undefined {
  const { size, index, began } = coverage;
  if (index >= asOf.size) return 'the coverage entry is not in the head';
  if (size > index) return 'the coverage entry is among those it looked at';
  if (policy.index > size) return 'the policy was set after what was looked at';
  if (began !== undefined && began.index >= size) return 'the session began after what was looked at';
  if (issuers.some((issuer) => issuer.index >= size)) return 'a token was issued after what was looked at';
  return evidence.entries > size ? 'more entries than were looked at' : undefined;
}

/**
 * What in a receipt does not go together, if anything: everything that follows from its own members. It is what keeps a
 * receipt from saying `affirmed` above members that show a gap.
 */
function inconsistency(receipt: SessionReceipt): string | undefined {
  const { coverage, policy, authority, calls, verdicts, issuers } = receipt;
  const { members: listed } = coverage;
  if (new Set(issuers.map(({ token }) => token)).size !== issuers.length) return 'a token has two issuers';
  if (policyDigest(policy.document) !== policy.digest) return 'the policy has another digest';
  if (listed.some(({ sink }, i) => i > 0 && sink <= (listed[i - 1] as ListedMember).sink)) {
    return 'the members are not in the order of their names';
  }
  const twisted = listed.find((member) => !memberHolds(member));
  if (twisted !== undefined)
    return `the coverage of ${twisted.sink} is not what its epochs and reasons come to`;
  if (coverage.status !== sessionStatus(listed)) return 'the coverage is not what the members come to';
  const deciding = decidingOf(listed);
  if (coverage.closed !== (deciding.length > 0 && deciding.every(({ closed }) => closed))) {
    return 'closed is not what the members come to';
  }
  const { levels, lowest, recorder } = authority;
  if (sum(Object.values(levels)) !== calls) return 'the levels are not those of as many calls';
  if (lowest !== lowestOf(levels)) return 'the lowest level is another';
  if (recorder !== undefined && sum(Object.values(recorder)) === 0) return 'recorder counts nothing';
  if (sum(Object.values(verdicts.causes)) + (verdicts.otherCauses ?? 0) > verdictCount(verdicts)) {
    return 'more causes than verdicts';
  }
  return dispositionFault(receipt);
}

/** What in the disposition is not what the receipt's own members come to. */
function dispositionFault({
  disposition,
  coverage,
  authority,
  calls,
  verdicts,
}: SessionReceipt): string | undefined {
  const { status } = disposition;
  const worse = `${status} is not what the members come to`;
  const { members: listed, began } = coverage;
  const required = listed.filter((member) => member.required);
  const conflicts = listed.filter((member) => member.status === 'conflict');
  if (status === 'contested') {
    return begins(
      disposition,
      'coverage',
      conflicts.map(({ sink }) => ({ sink })),
    )
      ? undefined
      : worse;
  }
  if (conflicts.length > 0) return worse;
  if (status === 'violated') {
    const fails = disposition.reasons.filter(({ reason }) => reason === 'fail').length;
    return fails <= verdicts.FAIL ? undefined : 'more failures than verdicts that say so';
  }
  const lacking = required.filter((member) => /^(?:gap|silent|unclosed)$/.test(member.status));
  if (status === 'incomplete') {
    const reasons = lacking.map((member) => ({ sink: member.sink, status: member.status }));
    return reasons.length > 0 && begins(disposition, 'coverage', reasons) ? undefined : worse;
  }
  if (lacking.length > 0) return worse;
  const running = decidingOf(listed).filter((member) => member.status === 'open' || !member.closed);
  if (status === 'open') {
    const some = running.length > 0 || began === undefined;
    const unbegun = disposition.reasons.some(({ reason }) => reason === 'not_begun');
    return some &&
      begins(
        disposition,
        'not_closed',
        running.map(({ sink }) => ({ sink })),
      ) &&
      (disposition.reasonsOmitted > 0 || unbegun === (began === undefined))
      ? undefined
      : worse;
  }
  if (running.length > 0 || began === undefined) return worse;
  const partial = listed.filter((member) => member.status !== 'complete');
  if (status === 'unverified') {
    const said = new Set(disposition.reasons.map(({ reason }) => reason));
    const all = disposition.reasonsOmitted === 0;
    const unsigned = listed.filter(({ signed }) => !signed);
    return said.has('no_required_sink') === (required.length === 0) &&
      begins(
        disposition,
        'unsigned',
        unsigned.map(({ sink }) => ({ sink })),
      ) &&
      begins(
        disposition,
        'coverage',
        partial.map((each) => ({ sink: each.sink, status: each.status })),
      ) &&
      (!all || calls > 0 || said.has('no_call'))
      ? undefined
      : worse;
  }
  const { levels } = authority;
  const replayed = levels.replayed + levels.adjudicated === calls;
  return required.length > 0 &&
    partial.length === 0 &&
    listed.every(({ signed }) => signed) &&
    calls > 0 &&
    replayed &&
    authority.recorder !== undefined &&
    verdicts.FAIL === 0 &&
    verdicts.UNVERIFIED === 0 &&
    verdicts.PASS + verdicts.WARN > 0 &&
    disposition.members === listed.length &&
    disposition.calls === calls &&
    disposition.warnings <= Math.min(calls, verdicts.WARN)
    ? undefined
    : worse;
}

/** Whether the reasons of this name are these, as far as reasons are listed. */
function begins(
  disposition: Exclude<ClaimedDisposition, { readonly status: 'affirmed' }>,
  name: string,
  expected: readonly { readonly sink: string; readonly status?: CoverageStatus }[],
): boolean {
  const stated = (disposition.reasons as readonly ListedReason[]).flatMap((reason) =>
    reason.reason === name ? [reason as { readonly sink: string; readonly status?: CoverageStatus }] : [],
  );
  const full = disposition.reasonsOmitted > 0;
  return (
    (full ? stated.length <= expected.length : stated.length === expected.length) &&
    stated.every(
      ({ sink, status }, i) =>
        sink === expected[i]?.sink && (status ?? expected[i].status) === expected[i].status,
    )
  );
}

const decidingOf = (listed: readonly ListedMember[]): readonly ListedMember[] =>
  listed.some((member) => member.required) ? listed.filter((member) => member.required) : listed;

/** Whether a member's status and signature are what its own epochs and reasons come to. */
function memberHolds(member: ListedMember): boolean {
  const { status, signed, epochs, reasons, epochsOmitted, reasonsOmitted } = member;
  const implied = [...epochs.map((epoch) => epoch.status), ...reasons.flatMap(impliedBy)];
  const known = implied.length === 0 ? 'open' : worstOf(implied);
  const unsigned = epochs.length === 0 || reasons.some(({ reason }) => reason === 'unsigned');
  const whole = epochsOmitted === 0 && reasonsOmitted === 0;
  if (whole)
    return status === known && signed === !unsigned && epochs.every((epoch) => epochHolds(epoch, reasons));
  return rank(status) <= rank(known) && !(signed && unsigned);
}

/** Whether an epoch that lacks something has a reason that says what, and none says worse than its status. */
function epochHolds(
  { epoch, status }: ListedMember['epochs'][number],
  reasons: ListedMember['reasons'],
): boolean {
  const own = reasons.filter((reason) => 'epoch' in reason && reason.epoch === epoch).flatMap(impliedBy);
  // A second story that names the session is the member's conflict, wherever in the epoch it stands.
  const least = worstOf(own.filter((each) => each !== 'conflict'));
  return (status === 'complete' || status === 'open' || own.includes(status)) && rank(status) <= rank(least);
}

/** What a reason says of a member's coverage at least. */
function impliedBy(reason: ListedMember['reasons'][number]): CoverageStatus[] {
  switch (reason.reason) {
    case 'chain':
    case 'conflict':
    case 'conflicts_omitted':
      return ['conflict'];
    case 'missing':
    case 'unbound':
    case 'root_not_compared':
    case 'stated_loss':
      return ['gap'];
    case 'overdue':
      return [reason.what === 'close' ? 'unclosed' : 'silent'];
    case 'never_spoke':
    case 'lost_epoch':
      return ['silent'];
    case 'unsigned':
      return [];
  }
}

/** The worst has the least. */
const rank = (status: CoverageStatus): number => COVERAGE_STATUSES.indexOf(status);
const worstOf = (statuses: readonly CoverageStatus[]): CoverageStatus =>
  COVERAGE_STATUSES.find((status) => statuses.includes(status)) ?? 'complete';
const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);
const verdictCount = ({ PASS, WARN, FAIL, UNVERIFIED }: VerdictCounts): number =>
  PASS + WARN + FAIL + UNVERIFIED;
