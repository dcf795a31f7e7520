import {
  COVERAGE_STATUSES,
  type CoverageStatus,
  type EpochStatement,
  policyDigest,
  worst,
} from '@belay/coverage';
import {
  CALL_AUTHORITY_LEVELS,
  type CallAuthorityLevel,
  reasonTexts,
  SESSION_DISPOSITIONS,
  type SessionReceipt,
} from '@belay/receipt';
import { Ascending } from './ascending.js';
import { csvRow, SESSIONS_HEADER } from './csv.js';
import { certificateDigest } from './keys-file.js';
import type { ExportManifest, ExportRequest } from './manifest.js';
import type { FiledReceipt } from './receipts-file.js';
import type {
  DispositionStatus,
  FoundCounts,
  ReportEpoch,
  ReportFacts,
  ReportSession,
  ReportSink,
} from './report-model.js';
import type { EpochTally, IssuedReceipt, NamedSession, Walk } from './walk.js';

/** What the report lists at most; it counts the others. */
const MAX_SESSIONS = 500;
const MAX_EPOCHS = 200;
const MAX_MISSING = 20;
const MAX_REASONS = 20;
/** Names of sessions that the scope spells out. */
const MAX_NAMED = 3;

const NONE = new Ascending();

/** All that tables and report are made of: the manifest's word, the entries as they were walked, and the receipts. */
export interface ModelSource {
  readonly manifest: Pick<ExportManifest, 'log' | 'project' | 'asOf' | 'request'>;
  readonly entries: { readonly included: number; readonly omitted: number };
  /** After the last entry. */
  readonly walk: Walk;
  /** The receipts of the export, in order, and the entries that say they were issued. */
  readonly receipts: readonly FiledReceipt[];
  readonly issued: ReadonlyMap<string, IssuedReceipt>;
  /** Reads one of `receipts`. */
  readonly read: (receipt: FiledReceipt) => SessionReceipt;
}

/** Chosen sessions in the order of `sessions.csv`: as they began, then those that no entry names. */
export function chosenSessions(
  walk: Walk,
  names: Iterable<string> = [],
): readonly (Pick<NamedSession, 'session'> & Partial<NamedSession>)[] {
  const unnamed = [...names].filter((session) => !walk.sessions.has(session)).sort();
  return [...walk.inOrder(), ...unnamed.map((session) => ({ session }))];
}

/**
 * Writes `sessions.csv` row by row and counts for the report what it goes through. Nothing but the entries and the
 * receipts of the export has a part in it, so that a verifier comes to the same bytes.
 */
export function reportFacts(source: ModelSource, write: (row: string) => void): ReportFacts {
  const { manifest, walk } = source;
  const { size, time } = manifest.asOf;
  walk.standAt(size);
  const sessions = sessionsPart(source, write);
  const policy = walk.coverage.policyAt(size);
  const { sinks, found } = sinksPart(walk, { size, time });
  const [first, last] = receivedSpan(walk);
  const root = manifest.log.x5c.at(-1);
  return {
    v: 1,
    project: { id: manifest.project.id, name: manifest.project.name },
    log: {
      origin: manifest.log.origin,
      vkey: manifest.log.vkey,
      rootFingerprint: root === undefined ? '' : certificateDigest(root).slice('sha256:'.length),
    },
    asOf: { size, time },
    scope: scopeText(manifest.request),
    ...(manifest.request.period === undefined ? {} : { period: manifest.request.period }),
    policy: { digest: policyDigest(policy.policy), index: policy.index, document: policy.policy },
    entries: { included: source.entries.included, omitted: source.entries.omitted },
    ...(first === undefined ? {} : { first }),
    ...(last === undefined ? {} : { last }),
    ...sessions.counts,
    found: {
      ...found,
      laterLines: sessions.later + walk.unchosenLines,
      unjudgedCalls: CALL_AUTHORITY_LEVELS.filter(
        (level) => level !== 'replayed' && level !== 'adjudicated',
      ).reduce((sum, level) => sum + sessions.counts.levels[level], 0),
    },
    sinks,
    sessions: sessions.listed,
    sessionsOmitted: sessions.omitted,
    tokens: walk.keys.tokens.map(({ token, role, issuedBy, index }) => ({ token, role, issuedBy, index })),
    labels: walk.labelsOfChosen(),
  };
}

function scopeText({ sessions, period }: ExportRequest): string {
  if (period !== undefined) return `sessions that began from ${period.from} to before ${period.to}`;
  if (sessions === undefined) return 'everything';
  if (sessions.length > MAX_NAMED) return `${sessions.length} sessions, named in filter.json`;
  return `${sessions.length === 1 ? 'session' : 'sessions'} ${sessions.join(', ')}`;
}

type SessionCounts = Pick<
  ReportFacts,
  'dispositions' | 'coverage' | 'levels' | 'verdicts' | 'calls' | 'recorder'
>;

interface Ranked {
  readonly rank: number;
  readonly order: number;
  readonly row: ReportSession;
}

function sessionsPart(
  { manifest, walk, receipts, issued, read }: ModelSource,
  write: (row: string) => void,
): {
  readonly counts: SessionCounts;
  readonly listed: readonly ReportSession[];
  readonly omitted: number;
  readonly later: number;
} {
  let later = 0;
  const last = new Map<string, { readonly receipt: FiledReceipt; count: number }>();
  for (const receipt of receipts) {
    if (receipt.scope.type !== 'session') continue;
    const count = (last.get(receipt.scope.session)?.count ?? 0) + 1;
    last.set(receipt.scope.session, { receipt, count });
  }
  const dispositions = zero<DispositionStatus>(SESSION_DISPOSITIONS);
  const coverage = zero<CoverageStatus>(COVERAGE_STATUSES);
  const levels = zero<CallAuthorityLevel>(CALL_AUTHORITY_LEVELS);
  const verdicts = { PASS: 0, WARN: 0, FAIL: 0, UNVERIFIED: 0 };
  const causes = new Map<string, number>();
  const recorder = { same_domain: 0, other_domain: 0, unknown: 0 };
  let calls = 0;
  let listed: Ranked[] = [];
  let ranked = 0;
  write(SESSIONS_HEADER);
  let order = 0;
  for (const named of chosenSessions(walk, manifest.request.sessions)) {
    order++;
    const filed = last.get(named.session);
    const { indexes = NONE } = named;
    if (filed === undefined) {
      later += indexes.length;
      write(sessionRow(named, undefined));
      continue;
    }
    const receipt = read(filed.receipt);
    const { digest } = filed.receipt;
    write(sessionRow(named, { receipt, digest, index: issued.get(digest)?.index, count: filed.count }));
    later += indexes.countFrom(receipt.coverage.size);
    const { status } = receipt.disposition;
    dispositions[status]++;
    coverage[receipt.coverage.status]++;
    calls += receipt.calls;
    for (const level of CALL_AUTHORITY_LEVELS) levels[level] += receipt.authority.levels[level];
    for (const name of ['PASS', 'WARN', 'FAIL', 'UNVERIFIED'] as const)
      verdicts[name] += receipt.verdicts[name];
    for (const [cause, times] of Object.entries(receipt.verdicts.causes)) {
      causes.set(cause, (causes.get(cause) ?? 0) + times);
    }
    const by = receipt.authority.recorder;
    recorder.same_domain += by?.same_domain ?? 0;
    recorder.other_domain += by?.other_domain ?? 0;
    recorder.unknown += by?.unknown ?? 0;
    ranked++;
    listed.push({ rank: SESSION_DISPOSITIONS.indexOf(status), order, row: reportSession(receipt, digest) });
    if (listed.length >= 4 * MAX_SESSIONS) listed = worstFirst(listed);
  }
  const rows = worstFirst(listed).map(({ row }) => row);
  return {
    counts: {
      dispositions,
      coverage,
      levels,
      verdicts: { ...verdicts, causes: Object.fromEntries([...causes].sort(([a], [b]) => (a < b ? -1 : 1))) },
      calls,
      recorder,
    },
    listed: rows,
    omitted: ranked - rows.length,
    later,
  };
}

function worstFirst(listed: readonly Ranked[]): Ranked[] {
  return [...listed].sort((a, b) => a.rank - b.rank || a.order - b.order).slice(0, MAX_SESSIONS);
}

function reportSession(receipt: SessionReceipt, digest: string): ReportSession {
  const { scope, coverage, disposition, asOf, supersedes } = receipt;
  const texts = disposition.status === 'affirmed' ? [] : reasonTexts(disposition.reasons);
  const more = disposition.status === 'affirmed' ? 0 : disposition.reasonsOmitted;
  return {
    session: scope.session,
    ...(coverage.began === undefined ? {} : { began: coverage.began.received }),
    kinds: coverage.kinds,
    coverage: coverage.status,
    disposition: disposition.status,
    reasons: texts.slice(0, MAX_REASONS),
    reasonsOmitted: Math.max(0, texts.length - MAX_REASONS) + more,
    calls: receipt.calls,
    levels: receipt.authority.levels,
    verdicts: receipt.verdicts,
    receipt: digest,
    ...(supersedes === undefined ? {} : { supersedes }),
    asOf: asOf.size,
  };
}

function sessionRow(
  { session, began, last, indexes = NONE }: Pick<NamedSession, 'session'> & Partial<NamedSession>,
  known:
    | {
        readonly receipt: SessionReceipt;
        readonly digest: string;
        readonly index: number | undefined;
        readonly count: number;
      }
    | undefined,
): string {
  const named = [session, began?.index, began?.received, last?.index, last?.received, indexes.length];
  if (known === undefined) {
    const empty = Array.from({ length: 22 }, () => undefined);
    return csvRow([...named, indexes.length, ...empty, 0]);
  }
  const { receipt, digest, index, count } = known;
  const { coverage, disposition, authority, verdicts, asOf } = receipt;
  const reasons = disposition.status === 'affirmed' ? [] : disposition.reasons.map(({ reason }) => reason);
  return csvRow([
    ...named,
    indexes.countFrom(coverage.size),
    coverage.kinds.join(' '),
    coverage.closed,
    coverage.status,
    disposition.status,
    [...new Set(reasons)].join(' '),
    receipt.calls,
    ...CALL_AUTHORITY_LEVELS.map((level) => authority.levels[level]),
    verdicts.PASS,
    verdicts.WARN,
    verdicts.FAIL,
    verdicts.UNVERIFIED,
    asOf.size,
    coverage.size,
    coverage.time,
    coverage.statement,
    digest,
    index,
    receipt.supersedes,
    count,
  ]);
}

function sinksPart(
  walk: Walk,
  asOf: { readonly size: number; readonly time: string },
): {
  readonly sinks: readonly ReportSink[];
  readonly found: Omit<FoundCounts, 'unjudgedCalls' | 'laterLines'>;
} {
  const { coverage, standing } = walk;
  const { policy } = coverage.policyAt(asOf.size);
  const bySink = new Map<string, EpochTally[]>();
  let denials = 0;
  let agentLines = 0;
  for (const tally of walk.epochs.values()) {
    if (!walk.isWhole(tally)) continue;
    denials += tally.denials;
    agentLines += tally.agentLines;
    const before = bySink.get(tally.sink);
    if (before === undefined) bySink.set(tally.sink, [tally]);
    else before.push(tally);
  }
  // Where something was left out, a declared sink without lines here may have lines there.
  if (walk.isEverything) {
    for (const { sink } of coverage.declarations) if (!bySink.has(sink)) bySink.set(sink, []);
  }
  const missing = { undisclosed: 0, dropped: 0, filtered: 0 };
  let conflicts = 0;
  const sinks = [...bySink]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([sink, tallies]): ReportSink => {
      const epochs: ReportEpoch[] = [];
      for (const { epoch } of tallies) {
        const statement = coverage.epochStatement(sink, epoch, asOf, policy);
        for (const { from, to, gap } of statement.missing) {
          const why = gap === undefined ? 'undisclosed' : gap.reason === 'filtered' ? 'filtered' : 'dropped';
          missing[why] += to - from;
        }
        conflicts += statement.conflicts.length + statement.conflictsOmitted;
        epochs.push(reportEpoch(statement));
        walk.relieve();
      }
      const { lost, branches, miscounted } = coverage.chain(sink).findings();
      conflicts += branches.length + miscounted.length;
      const statuses = epochs.map(({ status }) => status);
      if (branches.length + miscounted.length > 0) statuses.push('conflict');
      if (lost.length > 0 || epochs.length === 0) statuses.push('silent');
      const declared = coverage.declarationAt(sink, asOf.size);
      const { kind, domain } = standing.sinkAt(sink, asOf.size) ?? {};
      return {
        sink,
        ...(kind === undefined ? {} : { kind }),
        ...(domain === undefined ? {} : { domain }),
        required: declared?.required ?? false,
        keyed: declared?.keyed ?? false,
        declared: declared !== undefined,
        status: worst(statuses),
        epochs: worstEpochs(epochs),
        epochsOmitted: Math.max(0, epochs.length - MAX_EPOCHS),
        lost: lost.reduce((sum, { counters }) => sum + (counters ? counters.to - counters.from : 1), 0),
        branches: branches.length,
        miscounted: miscounted.length,
      };
    });
  return { sinks, found: { denials, agentLines, missing, conflicts } };
}

/** Of more than the report lists the worst, in the order in which they began. */
function worstEpochs(epochs: readonly ReportEpoch[]): readonly ReportEpoch[] {
  if (epochs.length <= MAX_EPOCHS) return epochs;
  const rank = ({ status }: ReportEpoch): number => COVERAGE_STATUSES.indexOf(status);
  const order = new Map(epochs.map((epoch, i) => [epoch, i]));
  return [...epochs]
    .sort((a, b) => rank(a) - rank(b))
    .slice(0, MAX_EPOCHS)
    .sort((a, b) => (order.get(a) as number) - (order.get(b) as number));
}

function reportEpoch(statement: EpochStatement): ReportEpoch {
  const { epoch, status, first, last, lines, next, missing, conflicts, conflictsOmitted, unsigned } =
    statement;
  return {
    epoch,
    status,
    ...(first === undefined ? {} : { first: first.received }),
    ...(last === undefined ? {} : { last: last.received }),
    lines,
    next,
    missing: missing
      .slice(0, MAX_MISSING)
      .map(({ from, to, gap }) => ({ from, to, ...(gap === undefined ? {} : { why: gap.reason }) })),
    missingOmitted: Math.max(0, missing.length - MAX_MISSING),
    conflicts: conflicts.length + conflictsOmitted,
    unsigned,
  };
}

/** When the first and the last of the senders' lines were received, of epochs that are here whole. */
function receivedSpan(walk: Walk): readonly [string | undefined, string | undefined] {
  let first: string | undefined;
  let last: string | undefined;
  for (const tally of walk.epochs.values()) {
    if (!walk.isWhole(tally)) continue;
    if (first === undefined || tally.first < first) first = tally.first;
    if (last === undefined || tally.last > last) last = tally.last;
  }
  return [first, last];
}

function zero<N extends string>(names: readonly N[]): Record<N, number> {
  return Object.fromEntries(names.map((name) => [name, 0])) as Record<N, number>;
}
