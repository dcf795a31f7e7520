import type { MemberStatement } from '@belay/coverage';
import type { SinkKind } from '@belay/envelope';
import { CALL_AUTHORITY_LEVELS, type CallAuthorityReason, type VerdictFault } from './call-authority.js';
import { ReceiptError } from './error.js';
import { IDENTIFIER, SINK } from './payload.js';
import { FAULT_TEXT, type ListedReason, type ReasonList, type SessionReason } from './reason-text.js';
import type {
  ContestedReason,
  IncompleteReason,
  OpenReason,
  UnverifiedReason,
  ViolatedReason,
} from './session-disposition.js';
import { count, list, matching, members, text, word } from './shape.js';

/** Most members of a list inside a reason; the reason counts the others. */
const MAX_LISTED = 20;

/** Reasons by the disposition that gives them. */
export interface ReasonsOf {
  readonly contested: ContestedReason;
  readonly violated: ViolatedReason;
  readonly incomplete: IncompleteReason;
  readonly open: OpenReason;
  readonly unverified: UnverifiedReason;
}

/** A member as a receipt lists it: at most 100 of its epochs and reasons, and how many more there are. */
export interface ListedMember extends MemberStatement {
  readonly epochsOmitted: number;
  readonly reasonsOmitted: number;
}

/** Cuts the lists in a reason. Of a sink's coverage, the receipt's own list of members says why. */
export function cutReason<R extends SessionReason>(
  reason: R,
  memberOf: (sink: string) => ListedMember | undefined,
): ListedReason<R> {
  if (reason.reason === 'coverage') {
    const member = 'because' in reason ? memberOf(reason.sink) : undefined;
    return member === undefined ? reason : { ...reason, ...becauseOf(member) };
  }
  const omitted: Partial<Record<ReasonList, number>> = {};
  const cut: Partial<Record<ReasonList, readonly unknown[]>> = {};
  for (const name of ['calls', 'because', 'verdicts', 'labels'] as const) {
    const whole = (reason as Partial<Record<ReasonList, readonly unknown[]>>)[name];
    if (whole === undefined || whole.length <= MAX_LISTED) continue;
    cut[name] = whole.slice(0, MAX_LISTED);
    omitted[name] = whole.length - MAX_LISTED;
  }
  return Object.keys(omitted).length === 0 ? reason : { ...reason, ...cut, omitted };
}

/** The reason as a predicate has it: without what the receipt's members say of the sink. */
export function reasonMember(reason: ListedReason): object {
  if (reason.reason !== 'coverage') return reason;
  const { sink } = reason;
  return 'status' in reason
    ? { reason: 'coverage', sink, status: reason.status }
    : { reason: 'coverage', sink };
}

const NAME = /^[A-Za-z0-9._@/:+-]{1,128}$/;
const CALL = /^(?:weak:)?hmac-sha256:[0-9a-f]{64}$/;
const INCOMPLETE = ['gap', 'silent', 'unclosed'] as const;
const NOT_COMPLETE = ['conflict', 'gap', 'unclosed', 'silent', 'open'] as const;
const SINK_KINDS = ['proxy', 'hook', 'otlp', 'forward', 'verifier', 'other'] as const satisfies SinkKind[];
const FAULTS = Object.keys(FAULT_TEXT) as VerdictFault[];
const PARTS = ['arguments', 'outcome'] as const;

/** Reads a reason that this disposition may give, and nothing else. Throws ReceiptError `malformed`. */
export function readReason<S extends keyof ReasonsOf>(
  status: S,
  value: unknown,
  memberOf: (sink: string) => ListedMember | undefined,
): ListedReason<ReasonsOf[S]> {
  const read = READERS[status] as (value: unknown, memberOf: MemberOf) => ListedReason<ReasonsOf[S]>;
  return read(value, memberOf);
}

type MemberOf = (sink: string) => ListedMember | undefined;

const READERS: {
  readonly [S in keyof ReasonsOf]: (value: unknown, memberOf: MemberOf) => ListedReason<ReasonsOf[S]>;
} = {
  contested: (value, memberOf) => {
    switch (nameOf(value)) {
      case 'coverage': {
        const [, sink] = members(value, 'reason', ['reason', 'sink']);
        return covered({ reason: 'coverage', sink: sinkName(sink) }, memberOf);
      }
      case 'sinks_differ': {
        const [, calls, part, omitted] = members(value, 'reason', ['reason', 'calls', 'part'], ['omitted']);
        return {
          reason: 'sinks_differ',
          calls: callNames(calls),
          part: word(part, 'part', PARTS),
          ...omittedOf(omitted, { calls }),
        };
      }
      case 'auditor_differs': {
        const given = members(value, 'reason', ['reason', 'label', 'verdicts'], ['omitted']);
        const [, label, verdicts, omitted] = given;
        return {
          reason: 'auditor_differs',
          label: count(label, 'label'),
          verdicts: indexes(verdicts, 'verdicts'),
          ...omittedOf(omitted, { verdicts }),
        };
      }
      case 'auditors_differ': {
        const [, labels, omitted] = members(value, 'reason', ['reason', 'labels'], ['omitted']);
        return {
          reason: 'auditors_differ',
          labels: indexes(labels, 'labels'),
          ...omittedOf(omitted, { labels }),
        };
      }
      default:
        return unknownReason();
    }
  },
  violated: (value) => {
    switch (nameOf(value)) {
      case 'fail': {
        const [, verdict, sink, cause] = members(value, 'reason', ['reason', 'verdict', 'sink'], ['cause']);
        return {
          reason: 'fail',
          verdict: count(verdict, 'verdict'),
          sink: sinkName(sink),
          ...causeOf(cause),
        };
      }
      case 'auditor': {
        const [, label, auditor] = members(value, 'reason', ['reason', 'label', 'auditor']);
        return {
          reason: 'auditor',
          label: count(label, 'label'),
          auditor: matching(auditor, 'auditor', IDENTIFIER),
        };
      }
      default:
        return unknownReason();
    }
  },
  incomplete: (value, memberOf) => {
    if (nameOf(value) !== 'coverage') return unknownReason();
    const [, sink, status] = members(value, 'reason', ['reason', 'sink', 'status']);
    return covered(
      { reason: 'coverage', sink: sinkName(sink), status: word(status, 'status', INCOMPLETE) },
      memberOf,
    );
  },
  open: (value) => {
    switch (nameOf(value)) {
      case 'not_closed': {
        const [, sink] = members(value, 'reason', ['reason', 'sink']);
        return { reason: 'not_closed', sink: sinkName(sink) };
      }
      case 'not_begun':
        members(value, 'reason', ['reason']);
        return { reason: 'not_begun' };
      default:
        return unknownReason();
    }
  },
  unverified: (value) => {
    const name = nameOf(value);
    switch (name) {
      case 'no_required_sink':
      case 'no_call':
        members(value, 'reason', ['reason']);
        return { reason: name };
      case 'not_replayed': {
        const given = members(value, 'reason', ['reason', 'calls', 'level', 'because'], ['omitted']);
        const [, calls, level, because, omitted] = given;
        return {
          reason: name,
          calls: callNames(calls),
          level: word(level, 'level', CALL_AUTHORITY_LEVELS),
          because: list(because, 'because', MAX_LISTED).map(readCallReason),
          ...omittedOf(omitted, { calls, because }),
        };
      }
      case 'unnamed_calls': {
        const [, sink, number] = members(value, 'reason', ['reason', 'sink', 'count']);
        return { reason: name, sink: sinkName(sink), count: count(number, 'count') };
      }
      case 'verdict_unverified': {
        const [, verdict, cause] = members(value, 'reason', ['reason', 'verdict'], ['cause']);
        return { reason: name, verdict: count(verdict, 'verdict'), ...causeOf(cause) };
      }
      case 'verdict_rejected': {
        const [, verdict] = members(value, 'reason', ['reason', 'verdict']);
        return { reason: name, verdict: count(verdict, 'verdict') };
      }
      case 'unsigned': {
        const [, sink] = members(value, 'reason', ['reason', 'sink']);
        return { reason: name, sink: sinkName(sink) };
      }
      case 'coverage': {
        const [, sink, status] = members(value, 'reason', ['reason', 'sink', 'status']);
        return { reason: name, sink: sinkName(sink), status: word(status, 'status', NOT_COMPLETE) };
      }
      default:
        return unknownReason();
    }
  },
};

function readCallReason(value: unknown): CallAuthorityReason {
  const reason = nameOf(value);
  switch (reason) {
    case 'evidence_absent': {
      const [, index] = members(value, 'because', ['reason', 'index']);
      return { reason, index: count(index, 'index') };
    }
    case 'agent_token':
    case 'unkeyed': {
      const [, sink] = members(value, 'because', ['reason', 'sink']);
      return { reason, sink: sinkName(sink) };
    }
    case 'self_asserted': {
      const [, sink, kind] = members(value, 'because', ['reason', 'sink'], ['kind']);
      return {
        reason,
        sink: sinkName(sink),
        ...(kind === undefined ? {} : { kind: word(kind, 'kind', SINK_KINDS) }),
      };
    }
    case 'one_domain':
    case 'not_replayed':
      members(value, 'because', ['reason']);
      return { reason };
    case 'no_match':
    case 'contradicted': {
      const [, part] = members(value, 'because', ['reason', 'part']);
      return { reason, part: word(part, 'part', PARTS) };
    }
    case 'one_of_identical': {
      const [, identical] = members(value, 'because', ['reason', 'identical']);
      return { reason, identical: count(identical, 'identical') };
    }
    case 'verdict': {
      const [, index, fault] = members(value, 'because', ['reason', 'index', 'fault']);
      return { reason, index: count(index, 'index'), fault: word(fault, 'fault', FAULTS) };
    }
    default:
      return unknownReason();
  }
}

/** A reason about a sink's coverage is what the receipt's members say of that sink. */
function covered<R extends Extract<SessionReason, { readonly reason: 'coverage' }>>(
  reason: Omit<R, 'because'>,
  memberOf: MemberOf,
): ListedReason<R> {
  const member = memberOf(reason.sink);
  if (member === undefined) throw new ReceiptError('malformed', 'a reason names a sink that is no member');
  return { ...reason, ...becauseOf(member) } as unknown as ListedReason<R>;
}

/** Why a sink's coverage is what it is, by the list of members. */
function becauseOf({ reasons: because, reasonsOmitted }: ListedMember): {
  readonly because: ListedMember['reasons'];
  readonly omitted?: { readonly because: number };
} {
  return reasonsOmitted === 0 ? { because } : { because, omitted: { because: reasonsOmitted } };
}

/** `omitted` of a reason: only of lists that are full, and never 0. */
function omittedOf(
  value: unknown,
  lists: Readonly<Partial<Record<ReasonList, unknown>>>,
): { readonly omitted?: Readonly<Partial<Record<ReasonList, number>>> } {
  if (value === undefined) return {};
  const names = Object.keys(lists) as ReasonList[];
  const given = members(value, 'omitted', [], names);
  const omitted: Partial<Record<ReasonList, number>> = {};
  for (const [i, name] of names.entries()) {
    if (given[i] === undefined) continue;
    const left = count(given[i], name);
    if (left === 0 || (lists[name] as unknown[]).length !== MAX_LISTED) {
      throw new ReceiptError('malformed', `nothing can be omitted of ${name}`);
    }
    omitted[name] = left;
  }
  if (Object.keys(omitted).length === 0) throw new ReceiptError('malformed', 'omitted says nothing');
  return { omitted };
}

function nameOf(value: unknown): string {
  return text((value as { reason?: unknown } | null | undefined)?.reason, 'reason');
}

const sinkName = (value: unknown): string => matching(value, 'sink', SINK);
const callNames = (value: unknown): string[] => {
  const names = list(value, 'calls', MAX_LISTED).map((each) => matching(each, 'calls', CALL));
  if (names.length === 0) throw new ReceiptError('malformed', 'calls is empty');
  return names;
};
const indexes = (value: unknown, what: string): number[] => {
  const all = list(value, what, MAX_LISTED).map((each) => count(each, what));
  if (all.length === 0) throw new ReceiptError('malformed', `${what} is empty`);
  return all;
};
const causeOf = (value: unknown): { readonly cause?: string } =>
  value === undefined ? {} : { cause: matching(value, 'cause', NAME) };

function unknownReason(): never {
  throw new ReceiptError('malformed', 'an unknown reason');
}
