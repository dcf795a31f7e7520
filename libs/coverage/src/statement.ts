import { canonical } from '@belay/envelope';
import type { SeenCall } from './calls.js';
import type { Conflict, Ending, EpochFindings, Missing, Opening } from './epoch-coverage.js';
import {
  COVERAGE_STATUSES,
  type EpochStatement,
  judged,
  type Limits,
  type Overdue,
  type Unknown,
} from './epoch-statement.js';
import { CoverageError } from './error.js';
import {
  type MemberReason,
  type MemberStatement,
  type SessionStatement,
  sessionStatus,
} from './session-coverage.js';
import {
  array,
  boolean,
  integer,
  matches,
  object,
  partly,
  type Reader,
  record,
  tagged,
  word,
} from './shape.js';
import type { LostEpochs } from './sink-chain.js';
import { type SinkStatement, sinkStatus } from './sink-statement.js';

export type CoverageStatement = EpochStatement | SinkStatement | SessionStatement;

/** Largest statement that is read, in bytes. */
export const MAX_STATEMENT_BYTES = 64 * 1024 * 1024;

/** The one form of a statement: JCS, without an LF. */
export function formatStatement(statement: CoverageStatement): Buffer {
  return Buffer.from(canonical(statement), 'utf8');
}

const int = integer();
const positive = integer(1);
const origin = matches(/^[A-Za-z0-9._/:-]{1,255}$/);
const sinkName = matches(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/);
const sessionName = matches(/^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/);
const ulid = matches(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
const hash = matches(/^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/);
const digest = matches(/^sha256:[0-9a-f]{64}$/);
const callId = matches(/^(?:weak:)?hmac-sha256:[0-9a-f]{64}$/);
const word64 = matches(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/);
const time: Reader<string> = (value, where) => {
  const date = typeof value === 'string' ? new Date(value) : undefined;
  if (date !== undefined && !Number.isNaN(date.getTime()) && date.toISOString() === value) return value;
  throw new CoverageError(
    'malformed',
    `${where} is not an RFC 3339 time in UTC with three fractional digits`,
  );
};
const status = word(...COVERAGE_STATUSES);
const asOf = object({ size: int, time });
const received = object({ index: int, received: time });

const spanned = <T extends { readonly from: number; readonly to: number }>(reader: Reader<T>): Reader<T> => {
  return (value, where) => {
    const span = reader(value, where);
    if (span.from < span.to) return span;
    throw new CoverageError('malformed', `${where} ends before it begins`);
  };
};
/** Spans that ascend and do not touch what is before them. */
const ascending = <T extends { readonly from: number; readonly to: number }>(
  reader: Reader<T>,
): Reader<readonly T[]> => {
  const all = array(spanned(reader));
  return (value, where) => {
    const spans = all(value, where);
    if (spans.every(({ from }, i) => i === 0 || from >= (spans[i - 1] as T).to)) return spans;
    throw new CoverageError('malformed', `${where} is not in order`);
  };
};
const span = object({ from: positive, to: positive });
const gap = object({ index: int, reason: word('overflow', 'filtered', 'lost', 'crash'), hashed: boolean });
const missing: Reader<Missing> = partly({ from: positive, to: positive }, { gap });
const conflictMembers = {
  kind: word('number', 'root', 'misstated', 'gap', 'successor', 'rewound'),
  from: positive,
  to: positive,
  index: int,
};
const conflict: Reader<Conflict> = spanned(partly(conflictMembers, { computed: hash }));
const ending: Reader<Ending> = tagged<Ending>('by', {
  close: object({ by: word('close'), seq: positive, index: int, compared: boolean }),
  successor: object({ by: word('successor'), epoch: ulid, index: int, size: int, compared: boolean }),
});
const opening: Reader<Opening> = partly({}, { counter: int, previous: ulid, size: int, root: hash });
const limits: Reader<Limits> = object({ heartbeat: int, lateness: int, closeTimeout: int });
const unknown: Reader<Unknown> = word('sender', 'tail', 'content');
const overdue: Reader<Overdue> = word('heartbeat', 'close');
const fingerprint = /^[0-9a-f]{16}$/;

const findings = {
  lines: int,
  next: positive,
  missing: ascending(missing),
  unbound: ascending(span),
  late: ascending(span),
  conflicts: array(conflict),
  conflictsOmitted: int,
  matched: int,
  signed: record(fingerprint, positive),
  unsigned: int,
};
const optionalFindings = {
  ending,
  stated: object({ size: int, index: int, dropped: int, filtered: int }),
  first: received,
  last: received,
  opening,
};
const head = { v: word(1), log: origin, asOf, policy: digest, status };

const epochStatement: Reader<EpochStatement> = partly(
  {
    ...head,
    type: word('epoch'),
    sink: sinkName,
    epoch: ulid,
    limits,
    overdue: array(overdue),
    unknown: array(unknown),
    ...findings,
  },
  optionalFindings,
) as Reader<EpochStatement>;

const lost: Reader<LostEpochs> = partly(
  { before: ulid, index: int },
  { epoch: ulid, size: int, root: hash, counters: spanned(object({ from: int, to: int })) },
);
const sinkStatement: Reader<SinkStatement> = object({
  ...head,
  type: word('sink'),
  sink: sinkName,
  epochs: array(object({ epoch: ulid, status })),
  lost: array(lost),
  branches: array(object({ previous: ulid, epochs: array(ulid, 2), index: int })),
  miscounted: array(object({ epoch: ulid, index: int })),
  beginnings: array(ulid),
  unopened: array(ulid),
});

const inEpoch = { epoch: ulid };
const beside = word(true);
const memberReason: Reader<MemberReason> = tagged<MemberReason>('reason', {
  never_spoke: object({ reason: word('never_spoke') }),
  lost_epoch: object({ reason: word('lost_epoch'), lost }),
  chain: object({ reason: word('chain'), index: int }),
  conflict: spanned(
    partly({ reason: word('conflict'), ...inEpoch, ...conflictMembers }, { beside, computed: hash }),
  ),
  conflicts_omitted: partly({ reason: word('conflicts_omitted'), ...inEpoch, count: positive }, { beside }),
  missing: spanned(
    partly({ reason: word('missing'), ...inEpoch, from: positive, to: positive }, { beside, gap }),
  ),
  unbound: spanned(partly({ reason: word('unbound'), ...inEpoch, from: positive, to: positive }, { beside })),
  root_not_compared: partly({ reason: word('root_not_compared'), ...inEpoch }, { beside }),
  stated_loss: partly({ reason: word('stated_loss'), ...inEpoch, dropped: int, filtered: int }, { beside }),
  overdue: partly({ reason: word('overdue'), ...inEpoch, what: overdue }, { beside }),
  unsigned: partly({ reason: word('unsigned'), ...inEpoch }, { beside }),
});
const member: Reader<MemberStatement> = object({
  sink: sinkName,
  required: boolean,
  status,
  closed: boolean,
  signed: boolean,
  epochs: array(spanned(object({ epoch: ulid, from: positive, to: positive, status }))),
  reasons: array(memberReason),
});
const sameness = word('same', 'different', 'one', 'untold');
const seenCall: Reader<SeenCall> = object({
  calls: array(callId, 1),
  weak: boolean,
  identical: positive,
  seen: array(object({ sink: sinkName, calls: array(int), results: array(int) }), 1),
  arguments: sameness,
  outcome: sameness,
});
const sessionStatement: Reader<SessionStatement> = partly(
  {
    ...head,
    type: word('session'),
    session: sessionName,
    kinds: array(word64),
    closed: boolean,
    members: array(member),
    calls: array(seenCall),
    unnamed: record(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, positive),
  },
  { began: received },
);

const anyStatement: Reader<CoverageStatement> = tagged<CoverageStatement>('type', {
  epoch: epochStatement,
  sink: sinkStatement,
  session: sessionStatement,
});

/** Reads one member of a session's statement, as a receipt of the session repeats it. Throws CoverageError `malformed`. */
export function readMember(value: unknown, where: string): MemberStatement {
  return member(value, where);
}

/**
 * Reads a statement in its one canonical form and nothing else; what follows from its own members is derived again.
 * Whether it is true of a log is told by making it again from the entries. Throws CoverageError `malformed`.
 */
export function parseStatement(bytes: Buffer): CoverageStatement {
  if (bytes.length > MAX_STATEMENT_BYTES) throw new CoverageError('malformed', 'larger than any statement');
  let value: unknown;
  let again: string;
  try {
    value = JSON.parse(bytes.toString('utf8'));
    again = canonical(value);
  } catch {
    throw new CoverageError('malformed', 'the statement is not JSON');
  }
  if (!Buffer.from(again).equals(bytes)) {
    throw new CoverageError('malformed', 'the statement is not canonical JSON');
  }
  const statement = anyStatement(value, 'statement');
  const derived = derivedOf(statement);
  for (const [key, right] of Object.entries(derived)) {
    if (canonical(right) !== canonical(statement[key as keyof CoverageStatement])) {
      throw new CoverageError('malformed', `${key} is not what the statement's own findings come to`);
    }
  }
  return statement;
}

function derivedOf(statement: CoverageStatement): Record<string, unknown> {
  switch (statement.type) {
    case 'epoch':
      return judged(statement satisfies EpochFindings, statement.asOf, statement.limits);
    case 'sink':
      return { status: sinkStatus(statement, statement.epochs) };
    case 'session':
      return { status: sessionStatus(statement.members) };
  }
}
