/** A verification as a page for a terminal. Everything that client, server or record wrote is made printable first. */

import { basename } from 'node:path';
import type { Cause, Judgement, Status } from '@belay/verdict';
import { printable, type Style } from './output.js';
import {
  axisOf,
  counted,
  differencesOf,
  findingsOf,
  integrityText,
  KINDS,
  messageOf,
  nameOf,
  notCovered,
  sentence,
  SIGNS,
  span,
  statusCounts,
  troubles,
  whoOf,
  WORST_FIRST,
} from './report-text.js';
import { columnsOf, fitted, padded, wrapped } from './text-width.js';
import type { Part, Verification } from './verification.js';

export interface TableOptions {
  readonly style: Style;
  /** Columns of the terminal. */
  readonly width: number;
  /** Every row and every explanation, however many. */
  readonly all: boolean;
}

/** Sessions of more parts have rows that say the same folded into one. */
const LONG = 24;
/** So many rows of the same kind are one. */
const FOLD = 3;
/** Without `all`. */
const MAX_EXPLAINED = 20;
const MAX_DIFFERENCES = 3;
const MAX_PATHS = 8;
const MIN_WIDTH = 72;
const NAME = 10;

const MARKS: Readonly<Record<Status, string>> = { PASS: '✓', WARN: '!', UNVERIFIED: '?', FAIL: '✗' };
const STATUS_WIDTH = 'UNVERIFIED'.length + 2;

/** Heads and cells of the axes: what was not asked is a blank, what could not be covered a dot. */
const HEADS = {
  result: 'res',
  effect: 'eff',
  contract: 'con',
  egress: 'net',
  invariant: 'inv',
  claim: 'clm',
};
const CELLS = { PASS: 'ok', WARN: '!', UNVERIFIED: '?', FAIL: '✗', NOT_COVERED: '·' } as const;
const CELL = 3;

export function showVerification(found: Verification, { style, width: wanted, all }: TableOptions): string {
  const width = Math.max(MIN_WIDTH, wanted);
  const rows = all || found.parts.length <= LONG ? found.parts.map((part) => [part]) : folded(found.parts);
  return [
    head(found, style, width),
    '\n',
    table(rows, found.caps, style, width),
    explanations(found, style, width, all),
    foot(found, style, width),
  ].join('');
}

/** Not knowing is told by another colour than a warning: it must look like neither good nor nearly good. */
function paint(status: Judgement['status'], text: string, style: Style): string {
  if (status === 'UNVERIFIED') return style.odd(text);
  if (status === 'NOT_COVERED') return style.dim(text);
  return status === 'PASS' ? style.good(text) : status === 'FAIL' ? style.bad(text) : style.warn(text);
}

const statusText = (status: Status, style: Style): string => {
  const text = padded(`${MARKS[status]} ${status}`, STATUS_WIDTH);
  return paint(status, status === 'PASS' ? text : style.bold(text), style);
};

/** What to do another time, where that is known. */
const REMEDY: Readonly<Partial<Record<Cause, string>>> = {
  UNSANDBOXED: 'belay proxy --sandbox default --workspace DIR -- CMD',
  WORKSPACE_UNSET: 'belay proxy --sandbox default --workspace DIR -- CMD',
};

function head(found: Verification, style: Style, width: number): string {
  const { trace, session, server, policy, mode, integrity, caps, sink } = found;
  const plain = (text: string): string => text;
  const facts: readonly (readonly [string, string, ((text: string) => string)?])[] = [
    ['session', `${session}, recorded as ${sink}`],
    ['server', server.join(' ') || '(not started here)'],
    ['integrity', integrityText(integrity), integrity.kind === 'broken' ? style.bad : plain],
    ...integrity.problems.map((problem) => ['', problem, style.bad] as const),
    ['policy', `${policy.file ?? 'built-in rules'}, ${policy.digest}`],
    [
      'mode',
      mode === 'session'
        ? 'session: one server was told every call, in order'
        : 'isolated: a server of its own',
    ],
    ...caps.flatMap((cap) => [
      ['at best', `UNVERIFIED, ${cap}: ${sentence(cap)}`, style.odd] as const,
      ...(cap in REMEDY ? [['', `Record it again: ${REMEDY[cap]}`] as const] : []),
    ]),
  ];
  const shown = facts.map(([term, value, colour = plain]) => {
    const name = term === '' ? '' : `${term}:`;
    return `  ${style.dim(name.padEnd(NAME))} ${colour(fitted(printable(value), width - NAME - 3))}\n`;
  });
  return `${style.bold(fitted(printable(basename(trace)), width))}\n${shown.join('')}`;
}

interface Layout {
  readonly kinds: readonly (typeof KINDS)[number][];
  readonly name: number;
  readonly who: number;
  readonly cause: number;
  /** What is left for the message. */
  readonly rest: number;
  /** Caps of the whole trace: the head says what they mean, once. */
  readonly caps: readonly Cause[];
}

function layoutOf(rows: readonly (readonly Part[])[], caps: readonly Cause[], width: number): Layout {
  const parts = rows.flat();
  const kinds = KINDS.filter(
    (kind) => kind !== 'claim' || parts.some(({ verdict }) => axisOf(verdict, kind) !== undefined),
  );
  const longest = (texts: readonly string[], most: number): number =>
    Math.min(most, Math.max(0, ...texts.map((text) => columnsOf(text))));
  const name = longest(rows.map(rowName), 24);
  const who = longest(
    parts.map((part) => printable(whoOf(part))),
    Math.max(8, Math.min(28, width - 68)),
  );
  const cause = longest(
    parts.map(({ verdict }) => verdict.cause ?? ''),
    26,
  );
  const fixed = 2 + STATUS_WIDTH + 2 + name + 2 + who + 2 + kinds.length * (CELL + 1) + 1;
  return { kinds, name, who, cause, rest: width - fixed - cause - 2, caps };
}

/** A row of one part, or of several that say the same. */
function table(
  rows: readonly (readonly Part[])[],
  caps: readonly Cause[],
  style: Style,
  width: number,
): string {
  const layout = layoutOf(rows, caps, width);
  const { kinds, name, who } = layout;
  const heads = kinds.map((kind) => padded(HEADS[kind], CELL)).join(' ');
  const top = `  ${' '.repeat(STATUS_WIDTH)}  ${padded('', name)}  ${padded('tool', who)}  ${heads}`;
  return `${style.dim(top.trimEnd())}\n${rows.map((row) => rowText(row, layout, style)).join('')}`;
}

function rowText(row: readonly Part[], layout: Layout, style: Style): string {
  const [part] = row as readonly [Part];
  const { status, cause = '' } = part.verdict;
  const cells = layout.kinds.map((kind) => {
    const axis = axisOf(part.verdict, kind);
    const text = padded(axis === undefined ? '' : CELLS[axis], CELL);
    return axis === undefined || axis === 'PASS' ? style.dim(text) : paint(axis, text, style);
  });
  const who = row.length > 1 ? toolsOf(row) : whoOf(part);
  const left = [
    `  ${statusText(status, style)}`,
    padded(rowName(row), layout.name),
    padded(fitted(printable(who), layout.who), layout.who),
    cells.join(' '),
  ].join('  ');
  const drift = part.type === 'turn' && part.driftApplied ? 'drift applied' : '';
  const said = layout.caps.includes(cause as Cause) ? '' : printable(messageOf(part));
  const message = [drift, said].filter((text) => text !== '').join('; ');
  if (cause === '' && message === '') return `${left.trimEnd()}\n`;
  // Where there is no room, the explanation below has it.
  if (layout.rest < 12) {
    const short = [cause, drift].filter((text) => text !== '').join(', ');
    return `${left}  ${fitted(short, layout.cause + 2 + layout.rest)}\n`;
  }
  const right = fitted(message, layout.rest);
  return `${left}  ${`${padded(cause, layout.cause)}  ${style.dim(right)}`.trimEnd()}\n`;
}

function rowName(row: readonly Part[]): string {
  const [first] = row as readonly [Part];
  const last = row.at(-1) as Part;
  return first !== last && first.type === 'turn' && last.type === 'turn'
    ? `turns ${first.turn}-${last.turn}`
    : first.type === 'drift'
      ? 'drift'
      : nameOf(first);
}

function toolsOf(row: readonly Part[]): string {
  const tools = [...new Set(row.map(whoOf))];
  return tools.length > 3 ? `${tools.slice(0, 2).join(', ')} and ${tools.length - 2} more` : tools.join(', ');
}

/** Turns one after the other that came to the same for the same reason, and to no fault, are one row. */
function folded(parts: readonly Part[]): Part[][] {
  const rows: Part[][] = [];
  let key: string | undefined;
  let run: Part[] = [];
  const put = (): void => {
    rows.push(...(run.length < FOLD ? run.map((part) => [part]) : [run]));
    run = [];
  };
  for (const part of parts) {
    const own = quietKey(part);
    if (own === undefined || own !== key) put();
    run.push(part);
    key = own;
  }
  put();
  return rows;
}

function quietKey(part: Part): string | undefined {
  if (part.type !== 'turn' || part.driftApplied || part.verdict.status === 'FAIL') return undefined;
  // Axes that did not apply make no other row; those that decided do.
  const { status, cause, judgements } = part.verdict;
  return [status, cause, messageOf(part), ...judgements.flatMap((each) => each.cause ?? [])].join('\n');
}

/** What each part that is not PASS is about; parts of which the same is to be said together. */
function explanations({ parts, caps }: Verification, style: Style, width: number, all: boolean): string {
  const groups = new Map<string, Part[]>();
  for (const part of parts) {
    if (part.verdict.status === 'PASS') continue;
    const lines = explanation(part, caps, style, width);
    const group = groups.get(lines);
    if (group === undefined) groups.set(lines, [part]);
    else group.push(part);
  }
  if (groups.size === 0) return '\n';
  const sorted = [...groups].sort(([, [a]], [, [b]]) => rankOf(a as Part) - rankOf(b as Part));
  const shown = all ? sorted : sorted.slice(0, MAX_EXPLAINED);
  const text = shown.map(([lines, group]) => {
    const { status, cause } = (group[0] as Part).verdict;
    const names =
      group.length > 6
        ? `${group.slice(0, 5).map(nameOf).join(', ')} and ${group.length - 5} more`
        : group.map(nameOf).join(', ');
    const tools = printable(toolsOf(group));
    const title = fitted(`${names}, ${tools}`, width - STATUS_WIDTH - (cause ?? '').length - 6);
    return `  ${statusText(status, style)}  ${style.bold(title)}  ${cause ?? ''}\n${lines}`;
  });
  const more = sorted.length - shown.length;
  return `\n${text.join('')}${more === 0 ? '' : style.dim(`  ... ${more} more: --all shows them\n`)}\n`;
}

const rankOf = ({ verdict }: Part): number => WORST_FIRST.indexOf(verdict.status);

const INDENT = '      ';

function explanation(part: Part, whole: readonly Cause[], style: Style, width: number): string {
  const { cause, caps } = part.verdict;
  const lines: string[] = [];
  const say = (text: string, indent = INDENT): void =>
    void lines.push(wrapped(printable(text), width, indent));
  if (cause !== undefined && !whole.includes(cause)) say(`${sentence(cause)}.`);
  const named = messageOf(part);
  const about = troubles(part.verdict);
  if (cause !== undefined && named !== sentence(cause) && about.length === 0) say(named);
  for (const cap of caps)
    if (cap !== cause && !whole.includes(cap)) say(`at best UNVERIFIED, ${cap}: ${sentence(cap)}`);
  for (const judgement of about) {
    const { kind, status, message } = judgement;
    say(`${kind} ${status}${judgement.cause === cause ? '' : ` ${judgement.cause ?? ''}`}: ${message}`);
    const differences = differencesOf(judgement);
    for (const each of differences.slice(0, MAX_DIFFERENCES)) {
      const type = each.class === undefined ? '' : ` (${each.class})`;
      say(`at ${each.place}${type}`, `${INDENT}  `);
      lines.push(style.dim(sided('recorded ', each.recorded, width)));
      lines.push(style.dim(sided('replayed ', each.replayed, width)));
    }
    rest(differences.length - MAX_DIFFERENCES, 'place', lines, style);
    const findings = findingsOf(judgement);
    for (const { path, line, what, before, after } of findings.slice(0, MAX_DIFFERENCES)) {
      say(`${path}${line === undefined ? '' : `:${line}`}: ${what}`, `${INDENT}  `);
      if (before !== undefined) lines.push(style.dim(sided('before ', before, width)));
      if (after !== undefined) lines.push(style.dim(sided('after  ', after, width)));
    }
    rest(findings.length - MAX_DIFFERENCES, 'finding', lines, style);
  }
  const { changes } = part;
  if (changes.length > 0) {
    const paths = changes.slice(0, MAX_PATHS).map(({ path, what }) => `${SIGNS[what]} ${path || '.'}`);
    const more = changes.length > MAX_PATHS ? `, and ${changes.length - MAX_PATHS} more` : '';
    say(`changed: ${paths.join(', ')}${more}`);
  }
  return lines.join('');
}

function rest(count: number, noun: string, lines: string[], style: Style): void {
  if (count > 0) lines.push(style.dim(`${INDENT}  and ${counted(count, `more ${noun}`, `more ${noun}s`)}\n`));
}

const sided = (side: string, text: string, width: number): string =>
  `${INDENT}    ${side}${fitted(printable(text), width - INDENT.length - 4 - side.length)}\n`;

function foot(found: Verification, style: Style, width: number): string {
  const { tally, timing, parts } = found;
  const causes = Object.entries(tally.causes)
    .sort(([, a], [, b]) => b - a)
    .map(([cause, count]) => `${count} ${cause}`);
  const left = Object.entries(notCovered(found)).map(([kind, count]) => `${count} ${kind}`);
  const turns = parts.filter(({ type }) => type === 'turn').length;
  const drifts = parts.filter(({ type }) => type === 'drift').length;
  const facts: [string, string][] = [
    [
      'judged',
      `${counted(turns, 'call')}, ${counted(drifts, 'drift')}${parts.some(({ type }) => type === 'session') ? ', the session' : ''}: ${statusCounts(tally)}`,
    ],
    ['causes', causes.join(', ') || 'none'],
    ['left out', left.length === 0 ? 'nothing' : `${left.join(', ')}: nothing to hold them against`],
    [
      'time',
      `${span(timing.total)}; starting the server ${span(timing.start)}, first restore ${span(timing.restore)}`,
    ],
  ];
  const shown = facts.map(([term, text]) => {
    const [first = '', ...more] = wrapped(text, width, ' '.repeat(NAME + 3)).split('\n');
    return `  ${style.dim(`${term}:`.padEnd(NAME))} ${first.trimStart()}\n${more.map((line) => (line === '' ? '' : `${line}\n`)).join('')}`;
  });
  return `${shown.join('')}${verdictLine(found, style, width)}\n`;
}

/** The last line of a page. */
function verdictLine({ tally, integrity }: Verification, style: Style, width: number): string {
  const { status } = tally;
  const why = {
    PASS: 'everything that was judged is as it was recorded',
    WARN: 'what differs is named, and no fault as far as execution tells',
    UNVERIFIED: 'something could not be decided; this is no PASS',
    FAIL: 'something on record is not what happens, or a rule is broken',
  }[status];
  const worth = `integrity: ${integrityText(integrity)}`;
  const room = width - STATUS_WIDTH - 4 - worth.length;
  return `${statusText(status, style)}  ${columnsOf(why) > room ? '' : `${why}; `}${worth}`;
}
