/** A receipt as a page for a terminal. Everything a sender or collector wrote is made printable first. */

import { type Entry, parseEntry } from '@belay/envelope';
import { parseCheckpoint, parseNote } from '@belay/note';
import {
  type Disposition,
  NOT_PROVEN,
  type Receipt,
  type Report,
  scopeRange,
  type Witness,
} from '@belay/receipt';
import { columns, printable, type Style } from './output.js';
import { columnsOf, fitted, pageWidth, wrapped } from './text-width.js';

/** Columns that a page takes: longer lines than this are tiring to read. */
export const WIDTH = Math.min(100, pageWidth());
/** Rows of the table; a longer receipt shows its ends. */
const MAX_ROWS = 60;

/** Text in lines of at most `width`, each but the first indented. */
export const wrap = (text: string, width: number, indent: string): string => {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && columnsOf(line) + 1 + columnsOf(word) > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].join(`\n${indent}`);
};

/** The page. `report` is the outcome of its verification, or undefined when the reader pinned nothing. */
export function receiptPage(receipt: Receipt, report: Report | undefined, style: Style): string {
  const { log, asOf, authority, disposition, issuers, scope } = receipt;
  const { first, count } = scopeRange(scope);
  const last = first + count - 1;
  const what = scope.type === 'event' ? `entry ${first}` : `entries ${first} to ${last} (${count})`;
  const { root } = parseCheckpoint(parseNote(asOf.checkpoint).text);
  const title = `Receipt for ${what}`;

  const facts: (readonly [string, string])[] = [
    ['Log', log.origin],
    ['As of', `${asOf.time}, when it had ${asOf.size} entries`],
    ['Root', root.toString('base64')],
    ['Key', log.vkey],
    ['Authority', `${authority.level}: ${MEANING[authority.level]}`],
    ...authority.by.map((witness) => ['', `  ${witnessText(witness)}`] as const),
    ['Disposition', `${disposition.status}: ${reasonsText(disposition)}`],
    ...issuers.map(
      ({ token, issuedBy, index }, i) =>
        [i === 0 ? 'Credentials' : '', `${token}, issued by ${issuedBy} in entry ${index}`] as const,
    ),
  ];
  return [
    heading(title, report, style),
    factTable(facts, style),
    `\n  ${style.bold('What was recorded')}\n`,
    table(receipt.entries, style),
    sentences(NOT_PROVEN, style),
    footer(report, style),
  ].join('');
}

/** Names and values; long values are folded. */
export function factTable(facts: readonly (readonly [string, string])[], style: Style): string {
  return columns(
    facts.map(([name, value]) => [style.dim(name.padEnd(11)), printable(value)]),
    '  ',
    WIDTH,
  );
}

const MEANING = {
  asserted: 'somebody holding a token said so',
  observed: 'a sink with a declared key saw it cross a boundary, or the collector did it itself',
} as const;

/** The title with the verdict at the right. */
export function heading(whole: string, report: Report | undefined, style: Style): string {
  const room = WIDTH - 4 - verdictText(report).length;
  const title = fitted(whole, room);
  const between = ' '.repeat(2 + room - columnsOf(title));
  return `\n  ${style.bold(title)}${between}${verdict(report, style)}\n  ${style.dim('─'.repeat(WIDTH - 2))}\n`;
}

export function sentences(notProven: readonly string[], style: Style): string {
  const lines = notProven.map((sentence) => `  - ${wrap(sentence, WIDTH - 6, '    ')}\n`);
  return `\n  ${style.bold('What this does not prove')}\n${lines.join('')}`;
}

const verdictText = (report: Report | undefined): string => report?.verdict ?? 'NOT CHECKED';

function verdict(report: Report | undefined, style: Style): string {
  const text = style.bold(verdictText(report));
  if (report === undefined) return style.warn(text);
  return { VALID: style.good, INVALID: style.bad, INDETERMINATE: style.warn }[report.verdict](text);
}

function witnessText(witness: Witness): string {
  const events = `${witness.events} ${witness.events === 1 ? 'entry' : 'entries'}`;
  if (witness.role === 'collector') return `${events} by the collector itself`;
  const { sink, role, token, signed, domain, level } = witness;
  const key = signed === undefined ? 'unsigned' : `signed by key ${signed}`;
  return `${events} by sink ${sink} (${role}${domain === undefined ? '' : `, domain ${domain}`}), ${key}, ${token}: ${level}`;
}

function reasonsText({ status, reasons }: Disposition): string {
  if (status === 'unverified') return 'it judges nothing: a verdict in it is the word of its verifier';
  const shown = reasons.slice(0, 5).map(({ index, first }) => `entry ${index} contradicts entry ${first}`);
  return [...shown, ...(reasons.length > 5 ? [`and ${reasons.length - 5} more`] : [])].join('; ');
}

function table(entries: readonly Buffer[], style: Style): string {
  const half = Math.floor(MAX_ROWS / 2);
  const long = entries.length > MAX_ROWS;
  const shown = long ? [...entries.slice(0, half), ...entries.slice(-half)] : entries;
  const rows = shown.map((bytes) => rowOf(bytes));
  const widths = [0, 1, 2, 3].map((at) => Math.max(0, ...rows.map((row) => (row[at] ?? '').length)));
  const lines = rows.map(([index = '', time = '', who = '', kind = '', rest = '']) => {
    const cells = `  ${index.padStart(widths[0] ?? 0)}  ${style.dim(time.padEnd(widths[1] ?? 0))}  ${who.padEnd(widths[2] ?? 0)}  ${kind.padEnd(widths[3] ?? 0)}`;
    const line = `${cells}  ${rest}`.trimEnd();
    // What does not fit goes below, as what it belongs to.
    return columnsOf(line) <= WIDTH
      ? line
      : `${cells.trimEnd()}\n${wrapped(rest, WIDTH, ' '.repeat((widths[0] ?? 0) + 6)).trimEnd()}`;
  });
  if (long) lines.splice(half, 0, style.dim(`  ... ${entries.length - 2 * half} more ...`));
  return `${lines.join('\n')}\n`;
}

function rowOf(bytes: Buffer): string[] {
  let entry: Entry;
  try {
    entry = parseEntry(bytes);
  } catch {
    return ['?', '', '', '', 'not an entry'];
  }
  const { line } = entry;
  const at = [String(line.index), line.received.slice(0, 23).replace('T', ' ')];
  if (entry.by === 'collector') {
    const { kind, v: _version, ...rest } = entry.statement;
    return [...at, 'collector', kind, printable(brief(rest))];
  }
  const { kind, attrs = {}, digest } = entry.envelope;
  const marks = [
    ...(line.conflict === undefined ? [] : [`CONFLICTS WITH ${line.conflict}`]),
    ...(line.late ? ['LATE'] : []),
  ];
  const commitment = digest === undefined ? [] : [`${digest.slice(0, 'sha256:'.length + 12)}…`];
  return [
    ...at,
    printable(line.sink ?? ''),
    kind,
    [...marks, printable(brief(attrs)), ...commitment].join('  ').trim(),
  ];
}

const MAX_VALUE = 28;

/** Members as `name value`, long values cut: the receipt has them whole. */
function brief(members: object): string {
  return Object.entries(members)
    .filter(([, value]) => value !== null && typeof value !== 'object')
    .map(([name, value]) => {
      const text = String(value);
      return `${name} ${text.length > MAX_VALUE ? `${text.slice(0, MAX_VALUE - 1)}…` : text}`;
    })
    .join(', ');
}

/** What was checked, and what came of it. */
export function footer(report: Report | undefined, style: Style): string {
  if (report === undefined) {
    return `\n  ${style.warn('Nothing on this page was checked.')} To check it:\n  belay receipt verify FILE --key VKEY\n\n`;
  }
  const failed = report.checks.filter(({ status }) => status !== 'ok');
  if (failed.length === 0)
    return `\n  All ${report.checks.length} checks passed against the key you gave.\n\n`;
  return `\n${failed.map(({ name, status, detail }) => `  ${wrap(`${status}  ${name}: ${printable(detail)}`, WIDTH - 4, '    ')}\n`).join('')}\n`;
}
