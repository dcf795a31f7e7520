import { createHash } from 'node:crypto';
import {
  type AsOf,
  type ChainFindings,
  COVERAGE_STATUSES,
  type CoverageStatus,
  type EpochStatement,
  type LogCoverage,
  policyDigest,
  worst,
} from '@belay/coverage';
import type { PeriodScope } from '@belay/envelope';
import { CALL_AUTHORITY_LEVELS, type CallAuthorityLevel } from './call-authority.js';
import { ReceiptError } from './error.js';
import {
  formatPayload,
  headMember,
  instant,
  logMember,
  type LogIdentity,
  type Payload,
  parsePayload,
  type PublishedHead,
  readHead,
  readLog,
  requireSentences,
  SINK,
} from './payload.js';
import { SESSION_DISPOSITIONS } from './session-disposition.js';
import {
  addVerdicts,
  countsOf,
  DIGEST,
  type ListedVerdicts,
  readLevels,
  readVerdicts,
  type SessionReceipt,
} from './session-receipt.js';
import { count, list, matching, members, truth, word } from './shape.js';

/** Predicate type of receipts for periods. */
export const PERIOD_RECEIPT_TYPE = 'urn:belay:period-receipt:v1';

/** Most sinks of a period. */
const MAX_PERIOD_SINKS = 10_000;

/** What no receipt for a period proves. Part of every such receipt, word for word. */
export const PERIOD_NOT_PROVEN: readonly string[] = Object.freeze([
  'That the sessions came to what is counted: the counts are those of their receipts, which are not in this one, and these are derived again from an export.',
  'That there was no other session: one of which no line arrived is seen in no log, only the hole it leaves in its sinks.',
  'That a sink saw everything: complete says that nothing is missing of what it numbered, not that it was never switched off.',
  'That nothing was wrong: what was not run again, or has no receipt yet, is counted as such.',
  'That the times are right: a session began, and an entry belongs to the period, by the clock of the collector.',
  'That everyone is shown the same log: compare its checkpoint with those that others hold.',
  'That it is the last word: evidence that came later may have led to receipts that supersede those counted, and this one.',
]);

/** A session that began in a period, with its last receipt. */
export interface PeriodSession {
  readonly session: string;
  /** The last one issued before the period's receipt; absent when there is none. `digest` is `sha256:` of its bytes. */
  readonly receipt?:
    | {
        readonly digest: string;
        readonly receipt: Pick<SessionReceipt, 'disposition' | 'calls' | 'authority' | 'verdicts'>;
      }
    | undefined;
}

/** A sink that may have a part in a period. */
export interface PeriodSink {
  readonly sink: string;
  /** Whether its last declaration among the entries up to the period's end says that it is required. */
  readonly required: boolean;
  /** The statements on its epochs, all as of the same size, time and policy; those outside the period are left out. */
  readonly epochs: readonly EpochStatement[];
  readonly chain: Pick<ChainFindings, 'lost' | 'branches' | 'miscounted'>;
}

/** All that a receipt of a period is derived from. */
export interface PeriodEvidence {
  readonly from: string;
  readonly to: string;
  /** Entries looked at, and the clock of who did. */
  readonly asOf: AsOf;
  /** Digest of the policy that the epochs' statements were made by. */
  readonly policy: string;
  readonly sessions: readonly PeriodSession[];
  readonly sinks: readonly PeriodSink[];
  /** Entries received in the period: index of the first, and how many. */
  readonly entries: { readonly first: number; readonly count: number };
}

/**
 * The evidence of a period, as of the entries that `coverage` has taken in. `sinks` names every sink that wrote to the
 * log; those declared are added.
 */
export function periodEvidence(
  coverage: LogCoverage,
  asOf: AsOf,
  period: Pick<PeriodEvidence, 'from' | 'to' | 'sessions' | 'entries'>,
  sinks: Iterable<string>,
): PeriodEvidence {
  const { first, count: many } = period.entries;
  const names = new Set([...sinks, ...coverage.declarations.map(({ sink }) => sink)]);
  const { policy } = coverage.policyAt(asOf.size);
  return {
    ...period,
    asOf,
    policy: policyDigest(policy),
    sinks: [...names].map((sink) => {
      const { epochs, ...chain } = coverage.chain(sink).findings();
      return {
        sink,
        required: coverage.declarationAt(sink, first + many)?.required ?? false,
        epochs: epochs.map((epoch) => coverage.epochStatement(sink, epoch, asOf, policy)),
        chain,
      };
    }),
  };
}

/** A sink as a receipt of a period has it. */
export interface PeriodSinkCount {
  readonly sink: string;
  readonly required: boolean;
  /** `conflict` with a twist, `silent` with a lost epoch or none, else the worst of its epochs. */
  readonly status: CoverageStatus;
  /** Its epochs with a line in the period, by status. */
  readonly epochs: Readonly<Record<CoverageStatus, number>>;
  /** Epochs that its chain shows and of which nothing came. */
  readonly lost: number;
  /** Branches and miscounts of its chain. */
  readonly twisted: number;
}

/** What a period comes to, but for the log and the checkpoint that its receipt stands on. */
export interface PeriodFacts {
  readonly scope: PeriodScope;
  readonly coverage: { readonly size: number; readonly time: string; readonly policy: string };
  readonly sessions: {
    readonly count: number;
    /** SHA-256, hex: the subject of the receipt. */
    readonly digest: string;
    readonly dispositions: Readonly<Record<(typeof SESSION_DISPOSITIONS)[number], number>>;
    /** Sessions without a receipt. */
    readonly unissued: number;
  };
  readonly calls: number;
  readonly levels: Readonly<Record<CallAuthorityLevel, number>>;
  readonly verdicts: ListedVerdicts;
  /** By name. */
  readonly sinks: readonly PeriodSinkCount[];
  readonly entries: { readonly first: number; readonly count: number };
  /** The period is over, it has a sink, and each is complete. */
  readonly complete: boolean;
}

/** What a receipt for a period states, as values. */
export interface PeriodReceipt extends PeriodFacts {
  readonly log: LogIdentity;
  readonly asOf: PublishedHead;
  /** `sha256:` digest of the receipt whose place it takes. */
  readonly supersedes?: string | undefined;
}

/**
 * What a period comes to: total, pure, and the same for whoever has the same evidence. A session belongs to the period
 * in which it began; an epoch to every period in which a line of it may have been received; a lost epoch to those
 * between the epoch before and the one that shows it.
 */
export function derivePeriod(evidence: PeriodEvidence): PeriodFacts {
  const { from, to, asOf } = evidence;
  const sessions = [...evidence.sessions].sort((a, b) => (a.session < b.session ? -1 : 1));
  const digest = createHash('sha256');
  const dispositions = zero(SESSION_DISPOSITIONS);
  const levels = zero(CALL_AUTHORITY_LEVELS);
  let calls = 0;
  let unissued = 0;
  const verdicts: ListedVerdicts[] = [];
  for (const { session, receipt } of sessions) {
    digest.update(`${session} ${receipt?.digest ?? '-'}\n`);
    if (receipt === undefined) {
      unissued++;
      continue;
    }
    const { disposition, authority } = receipt.receipt;
    dispositions[disposition.status]++;
    calls += receipt.receipt.calls;
    for (const level of CALL_AUTHORITY_LEVELS) levels[level] += authority.levels[level];
    verdicts.push(receipt.receipt.verdicts);
  }
  const sinks = evidence.sinks
    .flatMap((sink) => sinkIn(sink, from, to) ?? [])
    .sort((a, b) => (a.sink < b.sink ? -1 : 1));
  return {
    scope: { type: 'period', from, to },
    coverage: { size: asOf.size, time: asOf.time, policy: evidence.policy },
    sessions: { count: sessions.length, digest: digest.digest('hex'), dispositions, unissued },
    calls,
    levels,
    verdicts: addVerdicts(verdicts),
    sinks,
    entries: { first: evidence.entries.first, count: evidence.entries.count },
    complete: isComplete(to, asOf.time, sinks),
  };
}

/** What a sink has in a period; undefined for one that is not required and has nothing there. */
function sinkIn(
  { sink, required, epochs, chain }: PeriodSink,
  from: string,
  to: string,
): PeriodSinkCount | undefined {
  // Times are of fixed width and zone, so text order is time order.
  const inOrder = epochs
    .filter(({ first, last }) => first !== undefined && last !== undefined)
    .sort((a, b) => (a.first?.index ?? 0) - (b.first?.index ?? 0));
  const counts = zero(COVERAGE_STATUSES);
  const ours = new Set<string>();
  for (const { epoch, status, first, last } of inOrder) {
    if (first === undefined || last === undefined || first.received >= to || last.received < from) continue;
    counts[status]++;
    ours.add(epoch);
  }
  const lost = chain.lost.filter(({ before }) => {
    const at = inOrder.findIndex(({ epoch }) => epoch === before);
    const shows = inOrder[at]?.first?.received;
    const earlier = at > 0 ? inOrder[at - 1]?.last?.received : undefined;
    return (shows === undefined || shows >= from) && (earlier === undefined || earlier < to);
  }).length;
  const twisted =
    chain.branches.filter((branch) => branch.epochs.some((epoch) => ours.has(epoch))).length +
    chain.miscounted.filter(({ epoch }) => ours.has(epoch)).length;
  if (!required && ours.size === 0 && lost === 0) return undefined;
  return { sink, required, status: sinkStatusOf(counts, lost, twisted), epochs: counts, lost, twisted };
}

function sinkStatusOf(epochs: PeriodSinkCount['epochs'], lost: number, twisted: number): CoverageStatus {
  const statuses = COVERAGE_STATUSES.filter((status) => epochs[status] > 0);
  if (lost > 0 || statuses.length === 0) statuses.push('silent');
  if (twisted > 0) statuses.push('conflict');
  return worst(statuses);
}

function isComplete(to: string, time: string, sinks: readonly PeriodSinkCount[]): boolean {
  return to <= time && sinks.length > 0 && sinks.every(({ status }) => status === 'complete');
}

/** Name of the subject: `<origin>#period/<from>/<to>`. */
function periodSubject(origin: string, { from, to }: PeriodScope): string {
  return `${origin}#period/${from}/${to}`;
}

/** The receipt of what a period comes to. Throws ReceiptError `evidence` when these do not belong together. */
export function periodReceipt(
  facts: PeriodFacts,
  log: LogIdentity,
  asOf: PublishedHead,
  supersedes?: string,
): PeriodReceipt {
  const receipt: PeriodReceipt = {
    ...facts,
    log: { origin: log.origin, vkey: log.vkey, x5c: log.x5c },
    asOf: { size: asOf.size, checkpoint: asOf.checkpoint, time: asOf.time },
    ...(supersedes === undefined ? {} : { supersedes }),
  };
  const fault = inconsistency(receipt);
  if (fault !== undefined) throw new ReceiptError('evidence', fault);
  return receipt;
}

/** What is signed for a period: `formatPeriodStatement` of `periodReceipt`. */
export function periodReceiptPayload(
  facts: PeriodFacts,
  log: LogIdentity,
  asOf: PublishedHead,
  supersedes?: string,
): Buffer {
  return formatPeriodStatement(periodReceipt(facts, log, asOf, supersedes));
}

export function formatPeriodStatement(receipt: PeriodReceipt): Buffer {
  const { scope, log, asOf, coverage, sessions, supersedes } = receipt;
  const { digest: sha256, ...counted } = sessions;
  return formatPayload({
    subject: { name: periodSubject(log.origin, scope), sha256 },
    predicateType: PERIOD_RECEIPT_TYPE,
    predicate: {
      v: 1,
      scope,
      log: logMember(log),
      asOf: headMember(asOf),
      coverage,
      sessions: counted,
      calls: receipt.calls,
      levels: receipt.levels,
      verdicts: receipt.verdicts,
      sinks: receipt.sinks,
      entries: receipt.entries,
      complete: receipt.complete,
      ...(supersedes === undefined ? {} : { supersedes }),
      notProven: PERIOD_NOT_PROVEN,
    },
  });
}

/** As `parseSessionStatement`, for a period. Throws ReceiptError `malformed`. */
export function parsePeriodStatement(payload: Buffer): PeriodReceipt {
  return readPeriodReceipt(parsePayload(payload));
}

/** `parsePeriodStatement` of a payload that is taken apart. */
export function readPeriodReceipt({ subject, predicateType, predicate }: Payload): PeriodReceipt {
  if (predicateType !== PERIOD_RECEIPT_TYPE)
    throw new ReceiptError('malformed', `not a ${PERIOD_RECEIPT_TYPE}`);
  const given = members(predicate, 'predicate', REQUIRED, ['supersedes']);
  const [v, scope, log, asOf, coverage, sessions, calls, levels] = given;
  const [verdicts, sinks, entries, complete, notProven, supersedes] = given.slice(8);
  if (v !== 1) throw new ReceiptError('malformed', 'not version 1 of a period receipt');
  requireSentences(notProven, PERIOD_NOT_PROVEN);
  const [type, from, to] = members(scope, 'scope', ['type', 'from', 'to']);
  const [size, time, policy] = members(coverage, 'coverage', ['size', 'time', 'policy']);
  const [number, dispositions, unissued] = members(sessions, 'sessions', [
    'count',
    'dispositions',
    'unissued',
  ]);
  const [first, many] = members(entries, 'entries', ['first', 'count']);
  const receipt: PeriodReceipt = {
    scope: { type: word(type, 'type', ['period']), from: instant(from, 'from'), to: instant(to, 'to') },
    log: readLog(log),
    asOf: readHead(asOf),
    coverage: {
      size: count(size, 'size'),
      time: instant(time, 'time'),
      policy: matching(policy, 'policy', DIGEST),
    },
    sessions: {
      count: count(number, 'count'),
      digest: subject.sha256,
      dispositions: countsOf(dispositions, 'dispositions', SESSION_DISPOSITIONS),
      unissued: count(unissued, 'unissued'),
    },
    calls: count(calls, 'calls'),
    levels: readLevels(levels),
    verdicts: readVerdicts(verdicts),
    sinks: list(sinks, 'sinks', MAX_PERIOD_SINKS).map(readSink),
    entries: { first: count(first, 'first'), count: count(many, 'count') },
    complete: truth(complete, 'complete'),
    ...(supersedes === undefined ? {} : { supersedes: matching(supersedes, 'supersedes', DIGEST) }),
  };
  if (subject.name !== periodSubject(receipt.log.origin, receipt.scope)) {
    throw new ReceiptError('malformed', 'the subject has another name');
  }
  const fault = inconsistency(receipt);
  if (fault !== undefined) throw new ReceiptError('malformed', fault);
  return receipt;
}

const REQUIRED = [
  'v',
  'scope',
  'log',
  'asOf',
  'coverage',
  'sessions',
  'calls',
  'levels',
  'verdicts',
  'sinks',
  'entries',
  'complete',
  'notProven',
] as const;

function readSink(value: unknown): PeriodSinkCount {
  const [sink, required, status, epochs, lost, twisted] = members(value, 'sinks', [
    'sink',
    'required',
    'status',
    'epochs',
    'lost',
    'twisted',
  ]);
  return {
    sink: matching(sink, 'sink', SINK),
    required: truth(required, 'required'),
    status: word(status, 'status', COVERAGE_STATUSES),
    epochs: countsOf(epochs, 'epochs', COVERAGE_STATUSES),
    lost: count(lost, 'lost'),
    twisted: count(twisted, 'twisted'),
  };
}

/** What in a receipt of a period does not follow from its own members, if anything. */
function inconsistency(receipt: PeriodReceipt): string | undefined {
  const { scope, asOf, coverage, sessions, calls, levels, verdicts, sinks, entries } = receipt;
  const total = (counts: Readonly<Record<string, number>>): number =>
    Object.values(counts).reduce((sum, each) => sum + each, 0);
  const { PASS, WARN, FAIL, UNVERIFIED, causes, otherCauses = 0 } = verdicts;
  const bounds = [
    scope.from < scope.to || 'the period ends before it begins',
    coverage.size <= asOf.size || 'more was looked at than the head has',
    entries.first + entries.count <= coverage.size || 'more entries than were looked at',
    total(sessions.dispositions) + sessions.unissued === sessions.count ||
      'the dispositions are not those of as many sessions',
    total(levels) === calls || 'the levels are not those of as many calls',
    total(causes) + otherCauses <= PASS + WARN + FAIL + UNVERIFIED || 'more causes than verdicts',
    sinks.every(({ sink }, i) => i === 0 || sink > (sinks[i - 1] as PeriodSinkCount).sink) ||
      'the sinks are not in the order of their names',
    sinks.every(({ status, epochs, lost, twisted }) => status === sinkStatusOf(epochs, lost, twisted)) ||
      'the status of a sink is not what its epochs come to',
    receipt.complete === isComplete(scope.to, coverage.time, sinks) ||
      'complete is not what the sinks come to',
  ];
  const broken = bounds.find((bound) => bound !== true);
  return typeof broken === 'string' ? broken : undefined;
}

function zero<N extends string>(names: readonly N[]): Record<N, number> {
  return Object.fromEntries(names.map((name) => [name, 0])) as Record<N, number>;
}
