import type { Conflict, CoverageStatus, GapReason, MemberReason, Span } from '@belay/coverage';
import type { CallAuthorityLevel, CallAuthorityReason, VerdictFault } from './call-authority.js';
import type {
  ContestedReason,
  IncompleteReason,
  OpenReason,
  SESSION_DISPOSITIONS,
  UnverifiedReason,
  ViolatedReason,
} from './session-disposition.js';

/** Anything that a session's disposition gives as a reason. */
export type SessionReason =
  ContestedReason | ViolatedReason | IncompleteReason | OpenReason | UnverifiedReason;

/** A list in a reason. */
export type ReasonList = 'calls' | 'because' | 'verdicts' | 'labels';

/** A reason as a receipt lists it: `omitted` counts what was left out of the lists in it. */
export type ListedReason<R extends SessionReason = SessionReason> = R & {
  readonly omitted?: Readonly<Partial<Record<ReasonList, number>>> | undefined;
};

type Omitted = Pick<ListedReason, 'omitted'>;

/** How many members of a list inside a reason a sentence names. */
const MOST_NAMED = 5;

/**
 * A reason in words for a person, with the numbers that show it: one sentence part without a full stop, such as
 * `proxy has a gap: lines 17 to 18 never came, and nothing says why`. Numbers of lines are a sink's own, entries are
 * those of the log. Contains only what sinks, admins and verifiers are named as; whoever shows it escapes it.
 */
export function reasonText(reason: ListedReason): string {
  switch (reason.reason) {
    case 'coverage':
      return coverageText(reason);
    case 'sinks_differ':
      return `sinks saw different ${reason.part === 'arguments' ? 'arguments' : 'outcomes'} of ${callsText(reason)}`;
    case 'auditor_differs':
      return `an auditor (entry ${reason.label}) says otherwise than ${verdictsText(reason.verdicts, reason.omitted?.verdicts)}`;
    case 'auditors_differ':
      return `auditors contradict each other: ${entriesText(reason.labels, reason.omitted?.labels)}`;
    case 'fail':
      return `${reason.sink} found a failure${causeText(reason.cause)} (verdict in entry ${reason.verdict})`;
    case 'auditor':
      return `auditor ${reason.auditor} says that it was violated (entry ${reason.label})`;
    case 'not_closed':
      return `${reason.sink} has not said that it is over`;
    case 'not_begun':
      return 'no sink that counts has said anything of it';
    case 'no_required_sink':
      return 'no sink is required of it, so nobody has to account for all of it';
    case 'no_call':
      return 'no call was recorded, so there is nothing to verify';
    case 'not_replayed': {
      const were = reason.calls.length + (reason.omitted?.calls ?? 0) > 1 ? 'were' : 'was';
      return `${callsText(reason)} ${were} not run again, only ${reason.level}${notReplayedText(reason)}`;
    }
    case 'unnamed_calls':
      return `${reason.sink} wrote ${counted(reason.count, 'line')} about calls without saying which`;
    case 'verdict_unverified':
      return `a verdict could not be reached${causeText(reason.cause)} (entry ${reason.verdict})`;
    case 'verdict_rejected':
      return `the verdict in entry ${reason.verdict} does not count: it is not signed under a key declared for a verifier, or what it cites is not so`;
    case 'unsigned':
      return `${reason.sink}: not every line was signed under a declared key, so whoever held a token may have written some`;
    default:
      return never(reason);
  }
}

/**
 * Reasons in words, as `reasonText` has them, those that say the same of several calls or verdicts in one sentence at the
 * place of the first: `3 calls were not run again, only observed: ... (calls 67d80dd9d786, c7372d2532b6, ce3c332fc3b8)`.
 */
export function reasonTexts(reasons: readonly ListedReason[]): string[] {
  const groups = new Map<string, ListedReason[]>();
  reasons.forEach((reason, at) => {
    const key = alikeKey(reason) ?? String(at);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [reason]);
    else group.push(reason);
  });
  return [...groups.values()].map((group) => {
    const [first] = group as [ListedReason, ...ListedReason[]];
    return group.length === 1 ? reasonText(first) : manyText(first, group);
  });
}

/** What reasons have in common that are told in one sentence; undefined for one that is told alone. */
function alikeKey(reason: ListedReason): string | undefined {
  switch (reason.reason) {
    case 'not_replayed': {
      if (reason.calls.length + (reason.omitted?.calls ?? 0) !== 1) return undefined;
      const because = reason.because.map((why) => (why.reason === 'verdict' ? { ...why, index: 0 } : why));
      return JSON.stringify([reason.reason, reason.level, because, reason.omitted?.because]);
    }
    case 'fail':
      return JSON.stringify([reason.reason, reason.sink, reason.cause]);
    case 'verdict_unverified':
      return JSON.stringify([reason.reason, reason.cause]);
    case 'verdict_rejected':
      return reason.reason;
    default:
      return undefined;
  }
}

function manyText(first: ListedReason, group: readonly ListedReason[]): string {
  const verdicts = entriesText(group.flatMap((one) => ('verdict' in one ? one.verdict : [])));
  switch (first.reason) {
    case 'not_replayed': {
      const calls = group.flatMap((one) => ('calls' in one ? one.calls.map(shortCall) : []));
      const why = notReplayedText(first, (each) =>
        each.reason === 'verdict'
          ? `the verdict on each does not count: ${FAULT_TEXT[each.fault]}`
          : callReasonText(each),
      );
      return `${calls.length} calls were not run again, only ${first.level}${why} (calls ${shortened(calls, 0, ', ')})`;
    }
    case 'fail':
      return `${first.sink} found ${group.length} failures${causeText(first.cause)} (verdicts in ${verdicts})`;
    case 'verdict_unverified':
      return `${group.length} verdicts could not be reached${causeText(first.cause)} (${verdicts})`;
    case 'verdict_rejected':
      return `the verdicts in ${verdicts} do not count: they are not signed under a key declared for a verifier, or what they cite is not so`;
    default:
      return reasonText(first);
  }
}

/** A verdict that does not count is the nearest reason; the others say why a call rests on no more than it does. */
function notReplayedText(
  { because, omitted }: ListedReason<Extract<SessionReason, { readonly reason: 'not_replayed' }>>,
  textOf: (reason: CallAuthorityReason) => string = callReasonText,
): string {
  const verdicts = because.filter(({ reason }) => reason === 'verdict');
  const others = because.filter(({ reason }) => reason !== 'verdict' && reason !== 'not_replayed');
  const texts = [...verdicts, ...others].map(textOf);
  return texts.length === 0 ? '' : `: ${shortened(texts, omitted?.because)}`;
}

/** Why a member covers a session no better, in words, without the sink's name. */
export function memberReasonText(reason: MemberReason): string {
  switch (reason.reason) {
    case 'never_spoke':
      return 'said nothing of the session';
    case 'lost_epoch': {
      const { counters, epoch, size, index } = reason.lost;
      const runs = counters === undefined ? undefined : counters.to - counters.from;
      const what =
        runs !== undefined && runs > 1
          ? `${runs} whole runs never came`
          : `a whole run${epoch === undefined ? '' : ` (epoch ${epoch})`} never came`;
      return `${what}${size === undefined ? '' : `, the last of ${counted(size, 'line')}`} (entry ${index} shows it)`;
    }
    case 'chain':
      return `tells two stories of its own runs (entry ${reason.index})`;
    case 'conflict':
      return conflictText(reason);
    case 'conflicts_omitted':
      return counted(reason.count, 'more contradiction');
    case 'missing':
      return reason.gap === undefined
        ? `${linesText(reason)} never came, and nothing says why`
        : `${linesText(reason)} never came: ${GAP_TEXT[reason.gap.reason]} (entry ${reason.gap.index} says so)`;
    case 'unbound':
      return `${linesText(reason)} came after being given up, and no root of the sink holds ${several(reason) ? 'them' : 'it'}`;
    case 'root_not_compared':
      return 'no root that it stated could be compared with its lines';
    case 'stated_loss':
      return `says that it dropped ${counted(reason.dropped, 'line')} and filtered ${reason.filtered}`;
    case 'overdue':
      return reason.what === 'heartbeat' ? 'its heartbeat is overdue' : 'it went away without a close';
    case 'unsigned':
      return 'not every line was signed under a declared key';
    default:
      return never(reason);
  }
}

/**
 * Why a member covers a session no better, in as few words as say it: lines that are missing without a word are told
 * together, what would be said twice is said once, and epochs are named where there are several.
 */
export function memberReasonTexts(reasons: readonly MemberReason[]): string[] {
  const epochs = new Set(reasons.flatMap((each) => ('epoch' in each ? each.epoch : [])));
  const texts = new Set<string>();
  const told = new Set<string>();
  for (const reason of reasons) {
    const named =
      'epoch' in reason && (epochs.size > 1 || reason.beside)
        ? ` (epoch ${reason.epoch}${besideText(reason)})`
        : '';
    if (reason.reason !== 'missing' || reason.gap !== undefined) {
      texts.add(`${memberReasonText(reason)}${named}`);
      continue;
    }
    if (told.has(reason.epoch)) continue;
    told.add(reason.epoch);
    const spans = reasons.filter(
      (each): each is typeof reason =>
        each.reason === 'missing' && each.epoch === reason.epoch && each.gap === undefined,
    );
    texts.add(`${spans.length === 1 ? memberReasonText(reason) : manyMissing(spans)}${named}`);
  }
  return [...texts];
}

const besideText = ({ beside }: { readonly beside?: true | undefined }): string =>
  beside === true ? ', which may have held more of it' : '';

function manyMissing(spans: readonly Span[]): string {
  const lines = spans.reduce((sum, { from, to }) => sum + to - from, 0);
  const numbers = spans.map((span) => linesText(span).replace(/^lines? /u, ''));
  return `${lines} lines never came, and nothing says why (${shortened(numbers, 0, ', ')})`;
}

/** Why a call rests on no more than it does, in words. */
export function callReasonText(reason: CallAuthorityReason): string {
  switch (reason.reason) {
    case 'evidence_absent':
      return `entry ${reason.index} is not what it was taken for`;
    case 'agent_token':
      return `${reason.sink} wrote with an agent's token`;
    case 'unkeyed':
      return `${reason.sink} did not sign it under a declared key`;
    case 'self_asserted':
      return reason.kind === undefined
        ? `${reason.sink} is not declared as a kind that sees a boundary`
        : `${reason.sink} (${reason.kind}) tells what it was told`;
    case 'one_domain':
      return 'no two trust domains saw the same';
    case 'no_match':
      return `no such sink stated a match of its ${reason.part}`;
    case 'contradicted':
      return `sinks differ on its ${reason.part}`;
    case 'one_of_identical':
      return `one of ${reason.identical} identical calls, which of them can't be told`;
    case 'not_replayed':
      return 'no verdict holds as a replay of it';
    case 'verdict':
      return `the verdict in entry ${reason.index} does not count: ${FAULT_TEXT[reason.fault]}`;
    default:
      return never(reason);
  }
}

/** What each disposition of a session says, in one sentence part. */
export const DISPOSITION_TEXT: Readonly<Record<(typeof SESSION_DISPOSITIONS)[number], string>> = {
  contested: 'there are two stories of it',
  violated: 'something in it was proven wrong',
  incomplete: 'a sink that is required does not account for all of it',
  open: 'it is not over, and nothing worse is proven',
  unverified: 'nothing in it was proven wrong, and not all of it was proven right',
  affirmed: 'all of it is accounted for, and every call was run again and came to the same',
};

/** What each status of coverage says. */
export const COVERAGE_TEXT: Readonly<Record<CoverageStatus, string>> = {
  conflict: 'tells two stories',
  gap: 'has a gap',
  unclosed: 'went away without a close',
  silent: 'is silent',
  open: 'is still open',
  complete: 'is complete',
};

/** What a statement about a call rests on, by level. */
export const LEVEL_TEXT: Readonly<Record<CallAuthorityLevel, string>> = {
  asserted: 'somebody holding a token said so',
  observed: 'a sink with a declared key saw it cross a boundary',
  corroborated: 'keyed sinks of two trust domains saw the same',
  replayed: 'a verifier ran it again from the recorded state',
  adjudicated: 'an auditor judged it',
};

const GAP_TEXT: Readonly<Record<GapReason, string>> = {
  overflow: 'its spool was full',
  filtered: 'it filtered them out',
  lost: 'it lost them',
  crash: 'they were lost in a crash',
};

/** What is wrong with a verdict as the statement of a replay. */
export const FAULT_TEXT: Readonly<Record<VerdictFault, string>> = {
  role: "it is not by a verifier's token",
  unkeyed: 'it is not signed under a declared key',
  kind: 'the sink is not declared as a verifier',
  conflict: 'it is a second story about its number',
  not_run: 'it says that nothing was run again',
  not_cited: 'it does not cite state, call and result',
  absent: 'what it cites is not in the log before it',
  leaf: 'what it cites has another hash',
  other: 'what it cites is not this call, its result and the state before it',
  head: 'the state before the call was not committed to the log before its result',
};

function coverageText(reason: ListedReason<Extract<SessionReason, { readonly reason: 'coverage' }>>): string {
  const { sink, omitted } = reason;
  const status = 'status' in reason ? reason.status : 'conflict';
  const what = `${sink} ${COVERAGE_TEXT[status]}`;
  // A sink that is not required: its reasons are in the coverage of the receipt.
  if (!('because' in reason)) return `${what}, though it is not required`;
  const because = memberReasonTexts(reason.because);
  return because.length === 0 ? what : `${what}: ${shortened(because, omitted?.because)}`;
}

function conflictText(conflict: Conflict): string {
  const { kind, index } = conflict;
  const lines = linesText(conflict);
  switch (kind) {
    case 'number':
      return `${lines} came twice, with different bytes (entry ${index})`;
    case 'root':
      return `the root that it stated over ${lines} is not that of what came (entry ${index})`;
    case 'misstated':
      return `what ${lines} ${several(conflict) ? 'state' : 'states'} does not fit the number (entry ${index})`;
    case 'gap':
      return `${lines} came after being given up, and ${several(conflict) ? 'are not those that were' : 'is not the one that was'} given up (entry ${index})`;
    case 'successor':
      return `its next run states another root over ${lines} (entry ${index})`;
    case 'rewound':
      return `its next run knows nothing of ${lines}, which came (entry ${index})`;
    default:
      return never(kind);
  }
}

const several = ({ from, to }: Span): boolean => to - from > 1;

/** Spans are half open, sentences are not. */
function linesText({ from, to }: Span): string {
  return several({ from, to }) ? `lines ${from} to ${to - 1}` : `line ${from}`;
}

function callsText({ calls, omitted }: { readonly calls: readonly string[] } & Omitted): string {
  const [first] = calls;
  const all = calls.length + (omitted?.calls ?? 0);
  return all > 1
    ? `${all} calls that can't be told apart`
    : `call ${first === undefined ? '?' : shortCall(first)}`;
}

/** The first 12 hex digits of a call's identifier, which are enough to find it. */
export function shortCall(call: string): string {
  return call.replace(/^(?:weak:)?hmac-sha256:/u, '').slice(0, 12);
}

function entriesText(indexes: readonly number[], omitted = 0): string {
  return `${indexes.length + omitted > 1 ? 'entries' : 'entry'} ${shortened(indexes.map(String), omitted, ', ')}`;
}

function verdictsText(indexes: readonly number[], omitted = 0): string {
  return indexes.length + omitted > 1
    ? `the verdicts in ${entriesText(indexes, omitted)}`
    : `the verdict in ${entriesText(indexes)}`;
}

function causeText(cause: string | undefined): string {
  return cause === undefined ? '' : `, ${cause}`;
}

function shortened(parts: readonly string[], omitted = 0, separator = '; '): string {
  const named = parts.slice(0, MOST_NAMED);
  const more = parts.length - named.length + omitted;
  return [...named, ...(more > 0 ? [`and ${more} more`] : [])].join(separator);
}

function counted(count: number, thing: string): string {
  return `${count} ${thing}${count === 1 ? '' : 's'}`;
}

/** For the compiler: every reason has its words. Of a value that no reader lets through, what it is. */
function never(value: never): string {
  return JSON.stringify(value);
}
