/** `belay sessions`: what the sessions of a project have come to, or one of them in full. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { CoverageReply, SessionDetail, SessionList, SessionListed } from '@belay/contracts/http';
import {
  FAULT_TEXT,
  memberReasonTexts,
  parseAnyReceipt,
  reasonTexts,
  SESSION_DISPOSITIONS,
} from '@belay/receipt';
import { type Command, Option } from 'commander';
import { type Audited, asAuditor, type AuditorOptions, auditorOptions } from './auditor.js';
import { readConfig } from './config.js';
import { EXIT, type ExitCode, unavailable, usage } from './exit.js';
import { moment, seconds, whole } from './option-values.js';
import { columns, print, printable, type Style, styleFor } from './output.js';
import { checked } from './receipt-check.js';
import { ServiceProblem } from './service.js';
import { reasonsOf } from './session-page.js';
import { columnsOf, padded, pageWidth, wrapped } from './text-width.js';
import {
  givenSession,
  nearNames,
  noSession,
  type SessionChoice,
  sessionChoice,
  shortName,
  spokenName,
  wholeName,
} from './session-name.js';

type Disposition = (typeof SESSION_DISPOSITIONS)[number];
type Member = Extract<CoverageReply['statements'][number], { readonly type: 'session' }>['members'][number];

/** Seconds that one request waits at most; longer waits are several. */
const ONE_WAIT = 20;
/** Columns of the longest name that stands in line with the others. */
const LONG_NAME = 24;
/** Reasons that are told; the receipt has more. */
const MOST_REASONS = 5;
/** Milliseconds between two looks for a session that is not there yet. */
const NOT_YET = 300;

const EXIT_OF: Readonly<Record<Disposition, ExitCode>> = {
  affirmed: EXIT.good,
  contested: EXIT.bad,
  violated: EXIT.bad,
  incomplete: EXIT.bad,
  open: EXIT.undecided,
  unverified: EXIT.undecided,
};

export function dispositionText(disposition: Disposition | undefined, style: Style): string {
  if (disposition === undefined) return style.dim('new');
  const code = EXIT_OF[disposition];
  const paint = code === EXIT.good ? style.good : code === EXIT.bad ? style.bad : style.odd;
  return paint(disposition);
}

interface SessionsOptions extends AuditorOptions, SessionChoice {
  readonly disposition?: Disposition;
  readonly from?: string;
  readonly to?: string;
  readonly limit: number;
  readonly wait?: number;
}

async function sessions(given: string | undefined, options: SessionsOptions): Promise<void> {
  const config = readConfig();
  const named = givenSession(given, options, config);
  if (named === undefined && options.wait !== undefined) throw usage('--wait waits for one session: which?');
  const audited = await asAuditor(config, options);
  const style = styleFor(config);
  if (named !== undefined) await one(audited, await wholeName(audited, named), options, style);
  else await list(audited, options, style);
}

async function list({ service, path }: Audited, options: SessionsOptions, style: Style): Promise<void> {
  const { disposition, from, to, limit } = options;
  const asked = Object.entries({ disposition, from, to }).flatMap(([name, value]) =>
    value === undefined ? [] : `&${name}=${encodeURIComponent(value)}`,
  );
  const found: SessionListed[] = [];
  let page: SessionList;
  let cursor = '';
  do {
    const most = Math.min(1000, limit - found.length);
    page = await service.json<SessionList>('GET', `${path}/sessions?limit=${most}${asked.join('')}${cursor}`);
    found.push(...page.sessions);
    cursor = `&cursor=${encodeURIComponent(page.next ?? '')}`;
  } while (page.next !== undefined && found.length < limit);
  const { log, size, reconciled, next } = page;
  await print(options.json, { log, size, reconciled, sessions: found, next }, () => {
    if (found.length === 0) return 'No sessions.\n';
    return (
      table(found, style) +
      (next === undefined ? '' : style.dim(`\nThere are more: --limit ${limit * 4}\n`)) +
      (reconciled < size ? style.dim(`\nOf ${size} entries, ${reconciled} are in this.\n`) : '')
    );
  });
}

function table(found: readonly SessionListed[], style: Style): string {
  const head = ['session', 'began', 'disposition', 'coverage', 'calls', 'verdicts'];
  const rows = found.map((each) => {
    const { session, disposition, settled, coverage, calls, verdicts, began } = each;
    return [
      printable(shortName(session)),
      began.slice(0, 16).replace('T', ' '),
      `${dispositionText(disposition, style)}${settled ? '' : ' …'}`,
      coverage ?? '',
      // Nothing is counted of what was not looked at.
      disposition === undefined ? '' : String(calls),
      verdictsText(verdicts),
    ];
  });
  const widths = head.map((name, at) =>
    Math.max(
      name.length,
      ...rows.map((row) => columnsOf(row[at] ?? '')).filter((width) => at > 0 || width <= LONG_NAME),
    ),
  );
  const left = widths.slice(0, -1).reduce((sum, width) => sum + width + 2, 0);
  const room = Math.max(12, pageWidth() - left);
  const lines = rows.flatMap((row) => {
    const cells = row.slice(0, -1);
    // A long name has a line of its own: it was chosen, and has to be given whole.
    const own = columnsOf(cells[0] ?? '') > LONG_NAME ? [cells[0] ?? ''] : [];
    const [first = '', ...more] = wrapped(row.at(-1) ?? '', room, '')
      .trimEnd()
      .split('\n');
    const name = own.length > 0 ? '' : (cells[0] ?? '');
    const shown = [name, ...cells.slice(1)].map((cell, at) => padded(cell, widths[at] ?? 0));
    return [
      ...own,
      `${shown.join('  ')}  ${first}`.trimEnd(),
      ...more.map((line) => `${' '.repeat(left)}${line}`),
    ];
  });
  const top = head.map((name, at) => padded(name, widths[at] ?? 0)).join('  ');
  return `${[style.dim(top.trimEnd()), ...lines].join('\n')}\n`;
}

const verdictsText = (verdicts: SessionListed['verdicts']): string =>
  Object.entries(verdicts)
    .flatMap(([status, n]) => (n === 0 ? [] : `${n} ${status}`))
    .join(', ');

async function one(
  audited: Audited,
  session: string,
  { wait, json }: SessionsOptions,
  style: Style,
): Promise<void> {
  const { service, path } = audited;
  const detail = await waited(audited, session, wait ?? 0);
  const coverage = await service.json<CoverageReply>(
    'GET',
    `${path}/coverage?session=${encodeURIComponent(session)}`,
  );
  const [statement] = coverage.statements.flatMap((each) => (each.type === 'session' ? [each] : []));
  const why = detail.receipts.length === 0 ? undefined : await whyOf(audited, session);
  const late = wait !== undefined && !detail.settled;
  process.exitCode = late || detail.disposition === undefined ? EXIT.undecided : EXIT_OF[detail.disposition];
  await print(json, { ...detail, coverageStatement: statement, ...why }, () =>
    page(detail, statement?.members ?? [], why, style),
  );
}

/** Why it came to what it did, by its last receipt, which is checked against the key that the auditor key pins. */
interface Why {
  readonly because: readonly string[];
  /** Verdicts that are in the log and count for nothing. */
  readonly notCounted: readonly { readonly entry: number; readonly why: string }[];
}

async function whyOf({ service, path, vkey }: Audited, session: string): Promise<Why | undefined> {
  let bytes: Buffer;
  try {
    const receipt = `${path}/receipts?session=${encodeURIComponent(session)}`;
    ({ bytes } = await service.ask('GET', receipt, 'application/vnd.dsse.envelope.v1+json'));
  } catch (error) {
    // The next one is being made: what the service says of the session stands without reasons.
    if (error instanceof ServiceProblem && error.code === 'not_published') return undefined;
    throw error;
  }
  const { verdict, checks } = checked(bytes, { key: vkey, now: new Date() });
  if (verdict === 'INVALID') {
    const failed = checks.filter(({ status }) => status === 'failed').map(({ name }) => name);
    throw unavailable('receipt', `the receipt that the service gave of it is INVALID: ${failed.join(', ')}`);
  }
  const read = parseAnyReceipt(bytes);
  if (read.type !== 'session') return undefined;
  const { disposition } = read.receipt;
  if (disposition.status !== 'unverified') return { because: reasonsOf(read.receipt), notCounted: [] };
  const faults = new Map<number, string>();
  for (const reason of disposition.reasons) {
    if (reason.reason === 'verdict_rejected' && !faults.has(reason.verdict))
      faults.set(reason.verdict, 'unsigned, or what it cites is not so');
    if (reason.reason === 'not_replayed')
      for (const each of reason.because)
        if (each.reason === 'verdict') faults.set(each.index, FAULT_TEXT[each.fault]);
  }
  return {
    // A verdict that does not count is told of once.
    because: reasonTexts(disposition.reasons.filter(({ reason }) => reason !== 'verdict_rejected')),
    notCounted: [...faults].sort(([a], [b]) => a - b).map(([entry, why]) => ({ entry, why })),
  };
}

/** As `4: it is not signed under a declared key (entries 100 to 103)`, a line for each fault. */
function notCountedTexts(notCounted: Why['notCounted']): string[] {
  const byFault = new Map<string, number[]>();
  for (const { entry, why } of notCounted) byFault.set(why, [...(byFault.get(why) ?? []), entry]);
  return [...byFault].map(([why, entries]) => {
    const [first, last] = [entries[0] ?? 0, entries.at(-1) ?? 0];
    const places = entries.length === 1 ? `entry ${first}` : `entries ${first} to ${last}`;
    return `${entries.length} not counted: ${why} (${places})`;
  });
}

async function waited(audited: Audited, session: string, wait: number): Promise<SessionDetail> {
  const { service, path } = audited;
  const until = Date.now() + wait * 1_000;
  for (;;) {
    const left = Math.ceil((until - Date.now()) / 1_000);
    const query = left > 0 ? `?wait=${Math.min(ONE_WAIT, left)}` : '';
    try {
      const detail = await service.json<SessionDetail>(
        'GET',
        `${path}/sessions/${encodeURIComponent(session)}${query}`,
      );
      if (detail.settled || detail.held !== undefined || left <= ONE_WAIT) return detail;
    } catch (error) {
      if (!(error instanceof ServiceProblem) || error.code !== 'not_found') throw error;
      // Its first line may be on its way.
      if (left <= 0) throw noSession(session, await nearNames(audited, session));
      await sleep(NOT_YET);
    }
  }
}

function page(detail: SessionDetail, members: readonly Member[], why: Why | undefined, style: Style): string {
  const { session, disposition, settled, held, closed, coverage, kinds, calls, verdicts, levels, receipts } =
    detail;
  const said = Object.entries(levels ?? {}).flatMap(([level, n]) => (n > 0 ? `${n} ${level}` : []));
  const facts: (readonly [string, string])[] = [
    ['disposition', `${dispositionText(disposition, style)}${settled ? '' : style.dim(' (not settled)')}`],
    ...(why?.because ?? [])
      .slice(0, MOST_REASONS)
      .map((text, at) => [at === 0 ? 'why' : '', printable(text)] as const),
    ...((why?.because.length ?? 0) > MOST_REASONS
      ? [['', `and ${(why?.because.length ?? 0) - MOST_REASONS} more`] as const]
      : []),
    ...(held === undefined ? [] : [['not judged', style.warn(heldText(held))] as const]),
    ['began', `${detail.began}, entry ${detail.beganIndex}`],
    ['last', `${detail.last}, entry ${detail.lastIndex}${closed ? '' : '; not closed'}`],
    [
      'kinds',
      kinds.length === 0 ? 'none: no rule of the policy is about it' : kinds.map(printable).join(', '),
    ],
    ['calls', `${calls}${said.length === 0 ? '' : `: ${said.join(', ')}`}`],
    ['verdicts', verdictsText(verdicts) || 'none'],
    ...notCountedTexts(why?.notCounted ?? []).map((text) => ['', `  ${style.warn(text)}`] as const),
    ['coverage', coverage ?? 'new: not looked at yet'],
    ...members.map((member) => ['', `  ${memberText(member, style)}`] as const),
    ...receipts.map(
      ({ id, asOf, disposition: came }, i) =>
        [i === 0 ? 'receipts' : '', `${id}, as of ${asOf} entries: ${dispositionText(came, style)}`] as const,
    ),
  ];
  const none =
    held === undefined
      ? `It has no receipt yet: belay sessions ${printable(spokenName(session))} --wait 60`
      : 'It has no receipt, and gets none as long as that is so: it is tried again every ten minutes.';
  const next =
    receipts.length === 0
      ? none
      : `All of it: belay receipt get --session ${printable(spokenName(session))} -o receipt.json\n           belay receipt show receipt.json`;
  return `${style.bold(printable(session))}\n\n${columns(facts, '  ', pageWidth())}\n${next}\n`;
}

function heldText({ why, lines, bytes, limit }: NonNullable<SessionDetail['held']>): string {
  switch (why) {
    case 'too_many_lines':
      return `${lines} lines name it, and at most ${limit} are judged`;
    case 'statement_too_large':
      return `the statement on its coverage would have ${bytes} bytes, and may have ${limit}`;
    case 'receipt_too_large':
      return `its receipt would have ${bytes} bytes, and may have ${limit}`;
    case 'failed':
      return 'for a reason that the log of the service has';
  }
}

function memberText(member: Member, style: Style): string {
  const { sink, required, status, reasons } = member;
  const mark = status === 'complete' ? style.good(status) : style.bad(status);
  const why = reasons.length === 0 ? '' : `: ${memberReasonTexts(reasons).join('; ')}`;
  return `${printable(sink)}${required ? ' (required)' : ''} ${mark}${printable(why)}`;
}

export function register(program: Command): void {
  sessionChoice(auditorOptions(program.command('sessions')))
    .description('what sessions have come to; of one, whether all of it was received and why not')
    .argument('[session]', 'one of them: its name, or how one that nobody chose begins')
    .addOption(new Option('--disposition <what>', 'only these').choices([...SESSION_DISPOSITIONS]))
    .option('--from <time>', 'that began at this time or later', moment)
    .option('--to <time>', 'that began before this time', moment)
    .option('--limit <n>', 'at most so many', whole, 50)
    .option('--wait <seconds>', 'of one session: wait until it is settled', seconds)
    .addHelpText(
      'after',
      `
new         recorded, and not looked at yet: its calls are not counted; a moment later they are
affirmed    every required sink covers it whole, every call was run again and came to the same
open        a sink has not said that it is over
incomplete  lines of a required sink are missing; which ones is said
unverified  nothing is missing, and nobody has run all of its calls again
violated    a verifier, or an auditor, says that it did what it may not
contested   there are two stories
…           not settled: the last word on it is not spoken, or its receipt not made yet

Exit of one session: 0 affirmed, 1 violated, contested or incomplete, 2 new, open, unverified or
not settled in time.`,
    )
    .action(sessions);
}
