/** Receipts of sessions and periods as pages for a terminal: what it came to first, then why, then what it rests on. */

import {
  CALL_AUTHORITY_LEVELS,
  type CallAuthorityLevel,
  COVERAGE_TEXT,
  DISPOSITION_TEXT,
  LEVEL_TEXT,
  type ListedMember,
  type ListedVerdicts,
  memberReasonTexts,
  PERIOD_NOT_PROVEN,
  type PeriodReceipt,
  reasonTexts,
  type Report,
  SESSION_DISPOSITIONS,
  SESSION_NOT_PROVEN,
  type SessionReceipt,
} from '@belay/receipt';
import { printable, type Style } from './output.js';
import { factTable, footer, heading, sentences, WIDTH, wrap } from './receipt-page.js';
import { shortName } from './session-name.js';
import { columnsOf, fitted } from './text-width.js';

/** Cells of a bar. */
const BAR = 24;
/** Most reasons, epochs of a sink, and credentials that the page shows; the receipt has more of them. */
const MOST_REASONS = 12;
const MOST_EPOCHS = 6;
const MOST_ISSUERS = 8;
const MOST_SINKS = 40;

type Disposition = (typeof SESSION_DISPOSITIONS)[number];
type CoverageStatus = ListedMember['status'];
/** The worst first. */
const COVERAGE_STATUSES = Object.keys(COVERAGE_TEXT) as CoverageStatus[];

const SIGN: Readonly<Record<Disposition, string>> = {
  contested: '≠',
  violated: '✗',
  incomplete: '◌',
  open: '…',
  unverified: '?',
  affirmed: '✓',
};
const COVERAGE_SIGN: Readonly<Record<CoverageStatus, string>> = {
  conflict: '≠',
  gap: '◌',
  unclosed: '◌',
  silent: '◌',
  open: '…',
  complete: '✓',
};

function paintOf(status: Disposition | CoverageStatus, style: Style): (text: string) => string {
  switch (status) {
    case 'affirmed':
    case 'complete':
      return style.good;
    case 'violated':
    case 'contested':
    case 'conflict':
      return style.bad;
    case 'incomplete':
    case 'gap':
    case 'silent':
    case 'unclosed':
      return style.warn;
    case 'unverified':
    case 'open':
      return style.odd;
  }
}

/** Why a session came to what it did, in words: each reason, and how many more the receipt counts. */
export function reasonsOf({ disposition }: SessionReceipt): readonly string[] {
  if (disposition.status === 'affirmed') {
    const { members, calls, warnings } = disposition;
    const warned = warnings === 0 ? '' : `, ${warnings} of them with a warning`;
    return [`${counted(members, 'sink')} complete and signed, ${counted(calls, 'call')} run again${warned}`];
  }
  return reasonTexts(disposition.reasons).map(printable);
}

/** The page of a session. `report` is the outcome of its verification, or undefined when the reader pinned nothing. */
export function sessionPage(receipt: SessionReceipt, report: Report | undefined, style: Style): string {
  const { scope, coverage, authority, calls, verdicts, policy, evidence } = receipt;
  const { status } = receipt.disposition;
  const omitted = 'reasonsOmitted' in receipt.disposition ? receipt.disposition.reasonsOmitted : 0;
  const session = printable(scope.session);
  const facts: [string, string][] = [
    ['Session', `${session}${kindsText(coverage.kinds)}, ${counted(evidence.entries, 'entry', 'entries')}`],
    [
      'Began',
      coverage.began === undefined
        ? 'not by a sink that counts'
        : `${coverage.began.received}, entry ${coverage.began.index}; ${coverage.closed ? 'closed' : 'not closed'}`,
    ],
    [
      'Policy',
      `${policy.digest}, ${policy.index === 0 ? 'as the log began' : `set in entry ${policy.index}`}`,
    ],
    [
      '',
      `heartbeat ${policy.document.heartbeat} s, lateness ${policy.document.lateness} s, close within ${policy.document.closeTimeout} s`,
    ],
    ['Coverage', `stated in entry ${coverage.index}, of ${coverage.size} entries at ${coverage.time}`],
    ...logFacts(receipt),
    ...credentials(receipt),
  ];
  return [
    heading(`Receipt for session ${printable(shortName(scope.session))}`, report, style),
    conclusion(status, style),
    bullets(reasonsOf(receipt), omitted),
    `\n  ${style.bold('What each sink accounts for')}\n`,
    coverageTable(receipt, style),
    `\n  ${style.bold(calls === 1 ? 'What its call rests on' : `What its ${calls} calls rest on`)}\n`,
    levelTable(authority.levels, calls, style),
    recorderText(authority.recorder, style),
    `\n  ${style.bold('Verdicts')}  ${verdictText(verdicts, style)}\n\n`,
    factTable(facts, style),
    sentences(SESSION_NOT_PROVEN, style),
    footer(report, style),
  ].join('');
}

/** The page of a period. */
export function periodPage(receipt: PeriodReceipt, report: Report | undefined, style: Style): string {
  const { scope, sessions, coverage, calls, levels, verdicts, entries } = receipt;
  const rows = SESSION_DISPOSITIONS.filter((status) => sessions.dispositions[status] > 0).map(
    (status): [string, number] => [
      paintOf(status, style)(`${SIGN[status]} ${status.padEnd(11)}`),
      sessions.dispositions[status],
    ],
  );
  if (sessions.unissued > 0) rows.push([style.odd(`  ${'no receipt'.padEnd(11)}`), sessions.unissued]);
  const shown = receipt.sinks.slice(0, MOST_SINKS);
  const facts: [string, string][] = [
    ['Period', `${scope.from} to before ${scope.to}`],
    ['Entries', entries.count === 0 ? 'none' : `${entries.count}, from entry ${entries.first}`],
    ['Coverage', `of ${coverage.size} entries at ${coverage.time}`],
    ['Policy', coverage.policy],
    ...logFacts(receipt),
  ];
  return [
    heading(`Receipt for the period ${brief(scope.from)} to ${brief(scope.to)}`, report, style),
    `\n  ${wrap(completeness(receipt, style), WIDTH - 4, '    ')}\n`,
    `\n  ${style.bold(counted(sessions.count, 'session'))}\n`,
    rows.map(([name, times]) => `  ${name}  ${bar(times, sessions.count)}  ${times}\n`).join(''),
    `\n  ${style.bold('Sinks')}\n`,
    sinkRows(
      shown.map(({ sink, required, status, epochs, lost }) => ({
        sink,
        required,
        status,
        rest: epochsText(epochs, lost),
      })),
      style,
    ).join(''),
    moreText(receipt.sinks.length - shown.length, 'sink', style),
    `\n  ${style.bold(calls === 1 ? 'What its call rests on' : `What its ${calls} calls rest on`)}\n`,
    levelTable(levels, calls, style),
    `\n  ${style.bold('Verdicts')}  ${verdictText(verdicts, style)}\n\n`,
    factTable(facts, style),
    sentences(PERIOD_NOT_PROVEN, style),
    footer(report, style),
  ].join('');
}

/** A time of the title; the facts have it whole. */
const brief = (time: string): string =>
  time
    .slice(0, 16)
    .replace('T', ' ')
    .replace(/ 00:00$/, '');

/** Whether anything follows from what is not in the period, and if not, why not. */
function completeness({ scope, complete, entries, sinks, asOf }: PeriodReceipt, style: Style): string {
  const [from, to, made] = [scope.from, scope.to, asOf.time].map((time) => Date.parse(time)) as [
    number,
    number,
    number,
  ];
  if (complete) return `${style.good('✓ COMPLETE')}  every sink accounts for all that it numbered`;
  if (from >= made)
    return `${style.odd('… NOT BEGUN')}  it begins after this receipt was made, so nothing can be in it`;
  if (to > made && entries.count > 0 && sinks.every(({ status }) => status === 'complete'))
    return `${style.odd('… NOT OVER')}  it was not over when this receipt was made; until then every sink accounted for all that it had numbered`;
  const over = to > made ? '; it was not over when this receipt was made' : '';
  if (entries.count === 0)
    return `${style.odd('? NOTHING IN IT')}  no line was received in it, so there is nothing that a sink could account for${over}`;
  return `${style.warn('◌ NOT COMPLETE')}  some sink does not account for all of it, so nothing follows from what is not here${over}`;
}

function conclusion(status: Disposition, style: Style): string {
  const paint = paintOf(status, style);
  const said = `${style.bold(paint(`${SIGN[status]} ${status.toUpperCase()}`))}  ${DISPOSITION_TEXT[status]}`;
  return `\n  ${wrap(said, WIDTH - 4, '    ')}\n`;
}

function bullets(reasons: readonly string[], omitted: number): string {
  const shown = reasons.slice(0, MOST_REASONS).map((text) => `    - ${wrap(text, WIDTH - 8, '      ')}\n`);
  const more = reasons.length - shown.length + omitted;
  return [...shown, ...(more > 0 ? [`    - and ${more} more\n`] : [])].join('');
}

/** Each sink with its status, and each of its epochs with a bar of its numbers. */
function coverageTable({ coverage, disposition }: SessionReceipt, style: Style): string {
  const told = new Set(
    disposition.status === 'affirmed'
      ? []
      : disposition.reasons.flatMap((reason) =>
          reason.reason === 'coverage' && 'because' in reason ? reason.sink : [],
        ),
  );
  const rows = sinkRows(
    coverage.members.map((member) => ({
      ...member, // Of a sink that sent no line, none is unsigned.
      rest: member.signed || member.epochs.length === 0 ? '' : 'not all signed',
    })),
    style,
  );
  return coverage.members
    .map((member, i) => {
      const { epochs, epochsOmitted, reasons, reasonsOmitted } = member;
      const shown = epochs.slice(0, MOST_EPOCHS).map((epoch) => epochLine(epoch, member, style));
      const why = told.has(member.sink) ? [] : memberReasonTexts(reasons).map(printable);
      return [
        rows[i],
        ...shown,
        moreText(epochs.length - shown.length + epochsOmitted, 'epoch', style),
        bullets(why, told.has(member.sink) ? 0 : reasonsOmitted),
      ].join('');
    })
    .join('');
}

function sinkRows(
  sinks: readonly {
    readonly sink: string;
    readonly required: boolean;
    readonly status: CoverageStatus;
    readonly rest: string;
  }[],
  style: Style,
): string[] {
  const width = Math.max(0, ...sinks.map(({ sink }) => sink.length));
  return sinks.map(({ sink, required, status, rest }) => {
    const name = `${printable(sink).padEnd(width)}  ${(required ? 'required' : '').padEnd(8)}`;
    const text = `${COVERAGE_SIGN[status]} ${COVERAGE_TEXT[status]}`;
    return `  ${wrap(`${name}  ${paintOf(status, style)(text)}${rest === '' ? '' : `, ${rest}`}`, WIDTH - 4, '      ')}\n`;
  });
}

/** A bar of the numbers that may be the session's: what was received, given up, missing, contradicted. */
function epochLine(
  { epoch, from, to, status }: ListedMember['epochs'][number],
  { reasons }: ListedMember,
  style: Style,
): string {
  const cells = Math.min(BAR, to - from);
  const drawn = Array.from({ length: cells }, () => style.good('█'));
  const draw = (span: { readonly from: number; readonly to: number }, cell: string): void => {
    const scale = cells / (to - from);
    const begin = Math.max(0, Math.floor((span.from - from) * scale));
    const end = Math.min(cells, Math.max(begin + 1, Math.ceil((span.to - from) * scale)));
    for (let at = begin; at < end; at++) drawn[at] = cell;
  };
  const own = reasons.flatMap((reason) => ('epoch' in reason && reason.epoch === epoch ? [reason] : []));
  for (const reason of own) if (reason.reason === 'unbound') draw(reason, style.warn('▒'));
  for (const reason of own) {
    if (reason.reason === 'missing') draw(reason, style.warn(reason.gap === undefined ? '·' : '░'));
  }
  for (const reason of own) if (reason.reason === 'conflict') draw(reason, style.bad('×'));
  const missing = own.reduce((sum, each) => sum + (each.reason === 'missing' ? each.to - each.from : 0), 0);
  const lines = to - from > 1 ? `lines ${from} to ${to - 1}` : `line ${from}`;
  const said = `${lines}${missing === 0 ? '' : `, ${missing} of them missing`}`;
  const line = `    ${drawn.join('')}${' '.repeat(BAR - cells)}  ${paintOf(status, style)(COVERAGE_SIGN[status])} ${said}`;
  return `${line}  ${style.dim(fitted(epoch, WIDTH - 2 - columnsOf(line)))}`.trimEnd() + '\n';
}

/** Part of a whole; what is there at all is seen. */
function bar(part: number, whole: number): string {
  const cells = whole === 0 ? 0 : Math.round((part / whole) * BAR);
  const filled = part > 0 ? Math.max(1, cells) : 0;
  return '█'.repeat(filled).padEnd(BAR);
}

function levelTable(
  levels: Readonly<Record<CallAuthorityLevel, number>>,
  calls: number,
  style: Style,
): string {
  if (calls === 0) return `  ${style.dim('no call was recorded')}\n`;
  const width = String(calls).length;
  return [...CALL_AUTHORITY_LEVELS]
    .reverse()
    .filter((level) => levels[level] > 0)
    .map((level) => {
      const times = String(levels[level]).padStart(width);
      const left = `  ${level.padEnd(12)}  ${bar(levels[level], calls)}  ${times}  `;
      const said = wrap(LEVEL_TEXT[level], WIDTH - left.length, ' '.repeat(left.length));
      return `${left}${style.dim(said)}\n`;
    })
    .join('');
}

function recorderText(recorder: SessionReceipt['authority']['recorder'], style: Style): string {
  if (recorder === undefined) return '';
  const said = [
    [recorder.other_domain, 'by a verifier of another trust domain than who recorded it'],
    [recorder.same_domain, 'by a verifier of the same trust domain as who recorded it'],
    [recorder.unknown, 'by a verifier where a trust domain is not declared'],
  ] as const;
  return said
    .filter(([times]) => times > 0)
    .map(
      ([times, text]) => `  ${style.dim(wrap(`${counted(times, 'replay')} ${text}`, WIDTH - 6, '    '))}\n`,
    )
    .join('');
}

function verdictText({ causes, otherCauses = 0, ...counts }: ListedVerdicts, style: Style): string {
  const { PASS, WARN, FAIL, UNVERIFIED } = counts;
  const paint = (times: number, color: (text: string) => string, text: string): string =>
    times > 0 ? color(text) : style.dim(text);
  const line = [
    paint(PASS, style.good, `PASS ${PASS}`),
    paint(WARN, style.warn, `WARN ${WARN}`),
    paint(FAIL, style.bad, `FAIL ${FAIL}`),
    paint(UNVERIFIED, style.odd, `UNVERIFIED ${UNVERIFIED}`),
  ].join('   ');
  const named = Object.entries(causes)
    .sort(([, a], [, b]) => b - a)
    .map(([cause, times]) => `${printable(cause)} ${times}`);
  if (otherCauses > 0) named.push(`others ${otherCauses}`);
  return named.length === 0
    ? line
    : `${line}\n  ${' '.repeat(8)}  ${wrap(named.join(', '), WIDTH - 12, ' '.repeat(12))}`;
}

function epochsText(epochs: Readonly<Record<CoverageStatus, number>>, lost: number): string {
  const counts = COVERAGE_STATUSES.filter((status) => epochs[status] > 0).map(
    (status) => `${epochs[status]} ${status}`,
  );
  if (lost > 0) counts.push(`${lost} lost`);
  return counts.length === 0 ? 'no epoch' : `epochs: ${counts.join(', ')}`;
}

const kindsText = (kinds: readonly string[]): string =>
  kinds.length === 0 ? '' : ` (${kinds.map(printable).join(', ')})`;

function logFacts({ log, asOf, supersedes }: SessionReceipt | PeriodReceipt): [string, string][] {
  return [
    ['Log', log.origin],
    ['Key', log.vkey],
    ['As of', `${asOf.time}, when it had ${asOf.size} entries`],
    ['Supersedes', supersedes ?? 'none: it is the first'],
  ];
}

function credentials({ issuers }: SessionReceipt): [string, string][] {
  const shown = issuers
    .slice(0, MOST_ISSUERS)
    .map(({ token, role, domain, issuedBy, index }, i): [string, string] => [
      i === 0 ? 'Credentials' : '',
      `${token} (${role}${domain === undefined ? '' : `, ${domain}`}), by ${issuedBy} in entry ${index}`,
    ]);
  const more = issuers.length - shown.length;
  return more > 0 ? [...shown, ['', `and ${more} more`]] : shown;
}

function moreText(more: number, thing: string, style: Style): string {
  return more > 0 ? `    ${style.dim(`and ${counted(more, `more ${thing}`)}`)}\n` : '';
}

function counted(count: number, thing: string, several = `${thing}s`): string {
  return `${count} ${count === 1 ? thing : several}`;
}
