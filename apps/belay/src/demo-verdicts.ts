/** The verdicts of the demo as lines to read, held against what they have to be. */

import { type ListedReason, reasonText, type SESSION_DISPOSITIONS } from '@belay/receipt';
import type { Status } from '@belay/verdict';
import { printable, type Style } from './output.js';
import { axisOf, decisive, messageOf, sentence } from './report-text.js';
import type { TurnPart, Verification } from './verification.js';

/** What a call has to come to, and what the demo says of it. */
export interface Expected {
  readonly tool: string;
  readonly status: Status;
  readonly cause?: string;
  /** What was going on, for somebody who sees it for the first time. */
  readonly story: string;
}

/** In the order of the record of the server with bad habits. */
export const HABITS: readonly Expected[] = [
  { tool: 'count_open', status: 'PASS', story: 'counts, and says that it only reads' },
  { tool: 'assign_ticket', status: 'PASS', story: 'writes, and was not silent about it' },
  {
    tool: 'look_up_ticket',
    status: 'FAIL',
    cause: 'WROTE_THOUGH_READ_ONLY',
    story: 'says that it only reads, and closed the ticket',
  },
  { tool: 'what_time', status: 'WARN', cause: 'VOLATILE_RESULT', story: 'tells the time' },
  {
    tool: 'exchange_rate',
    status: 'UNVERIFIED',
    cause: 'NETWORK_REQUIRED',
    story: 'asked a service on this machine, which a replay can not reach',
  },
];

/** The agent's edit: the tool does what it was told and says so, and the suite is green again. */
export const WEAKENED: Expected = {
  tool: 'edit_file',
  status: 'FAIL',
  cause: 'INVARIANT_BROKEN',
  story: 'took the assertion that failed out of the test; "all tests pass"',
};

export const turnsOf = ({ parts }: Verification): readonly TurnPart[] =>
  parts.filter((part): part is TurnPart => part.type === 'turn');

const MARK: Readonly<Record<Status, string>> = { PASS: '✓', WARN: '!', UNVERIFIED: '?', FAIL: '✗' };
const INDENT = ' '.repeat(18);

/** One call; throws when it did not come to what it has to. */
export function verdictLines(turn: TurnPart, expected: Expected, style: Style): string {
  const { status, cause } = turn.verdict;
  if (turn.tool !== expected.tool || status !== expected.status || cause !== expected.cause) {
    throw new Error(
      `${turn.tool} came to ${status} ${cause ?? ''}, and not to ${expected.status} ${expected.cause ?? ''}: ${messageOf(turn)}`,
    );
  }
  const head = `  ${statusText(status, style)}  ${style.bold((turn.tool ?? '').padEnd(15))}  ${expected.story}\n`;
  const why = decisive(turn.verdict);
  if (why === undefined) return head;
  const what = status === 'UNVERIFIED' ? sentence(cause ?? '') : why.message;
  const said = `${why.axis} ${why.kind}: ${what}`;
  const others = why.axis === 'A1' ? `A2, what the tool did and said: ${axes(turn)}` : undefined;
  return [head, ...[said, others].map((line) => line && `${INDENT}${style.dim(printable(line))}\n`)].join('');
}

export function statusText(status: Status, style: Style): string {
  const text = `${MARK[status]} ${status.padEnd('UNVERIFIED'.length)}`;
  const paint = { PASS: style.good, WARN: style.warn, UNVERIFIED: style.odd, FAIL: style.bad }[status];
  return paint(status === 'PASS' ? text : style.bold(text));
}

/** What the axes came to that a rule of the operator is no part of. */
const axes = ({ verdict }: TurnPart): string =>
  (['result', 'effect', 'contract'] as const)
    .flatMap((kind) => {
      const found = axisOf(verdict, kind);
      return found === undefined || found === 'NOT_COVERED' ? [] : [`${kind} ${found}`];
    })
    .join(', ');

type Disposition = (typeof SESSION_DISPOSITIONS)[number];

interface Member {
  readonly sink: string;
  readonly status: string;
  readonly reasons: Extract<ListedReason, { readonly reason: 'coverage'; readonly status: 'gap' }>['because'];
}

/** What is shown of the receipt of a session. */
interface SessionPredicate {
  readonly calls: number;
  readonly coverage: { readonly members: readonly Member[] };
  readonly authority: { readonly levels: Readonly<Record<string, number>> };
  readonly disposition: {
    readonly status: Disposition;
    readonly reasons?: readonly ListedReason[];
  };
}

const SESSION_MARK: Readonly<Partial<Record<Disposition, string>>> = {
  violated: '✗',
  affirmed: '✓',
  incomplete: '✗',
};

/** One session; throws when it did not come to what it has to, or does not name the line that is missing. */
export function sessionLines(
  receipt: Buffer,
  name: string,
  expected: Disposition,
  missing: number | undefined,
  style: Style,
): string {
  const { payload } = JSON.parse(receipt.toString('utf8')) as { payload: string };
  const { predicate } = JSON.parse(Buffer.from(payload, 'base64').toString('utf8')) as {
    predicate: SessionPredicate;
  };
  const { status, reasons = [] } = predicate.disposition;
  const members = predicate.coverage.members
    .map(({ sink, status: covers }) => `${sink} ${covers}`)
    .join(', ');
  const levels = Object.entries(predicate.authority.levels)
    .flatMap(([level, n]) => (n > 0 ? `${n} ${level}` : []))
    .join(', ');
  // Of a sink's coverage, the list of members says why.
  const said = reasons.slice(0, 2).map((reason) => {
    const member = 'sink' in reason && predicate.coverage.members.find(({ sink }) => sink === reason.sink);
    return reasonText(
      reason.reason === 'coverage' && member ? { ...reason, because: member.reasons } : reason,
    );
  });
  const text = [members, `calls: ${levels}`, ...said].join('; ');
  if (status !== expected) throw new Error(`${name} came to ${status}, and not to ${expected}: ${text}`);
  if (missing !== undefined && !said.some((each) => new RegExp(`\\b${missing}\\b`).test(each)))
    throw new Error(`nothing says that line ${missing} of ${name} is missing: ${text}`);
  const paint = status === 'affirmed' ? style.good : status === 'unverified' ? style.odd : style.bad;
  const lines = [`sinks: ${members}; calls: ${levels}`, ...said];
  return `  ${paint(style.bold(`${SESSION_MARK[status] ?? '?'} ${status.padEnd(10)}`))}  ${style.bold(name)}\n${lines.map((line) => `${INDENT}${style.dim(printable(line))}\n`).join('')}`;
}
