/** `belay sessions`: what the sessions of a project have come to, or one of them in full. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { CoverageReply, SessionDetail, SessionList, SessionListed } from '@belay/contracts/http';
import { memberReasonTexts, SESSION_DISPOSITIONS } from '@belay/receipt';
import { type Command, Option } from 'commander';
import { type Audited, asAuditor, type AuditorOptions, auditorOptions } from './auditor.js';
import { readConfig } from './config.js';
import { EXIT, type ExitCode, usage } from './exit.js';
import { moment, seconds, whole } from './option-values.js';
import { columns, print, printable, type Style, styleFor } from './output.js';
import { ServiceProblem } from './service.js';
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
  if (disposition === undefined) return style.dim('not looked at');
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
  const head = ['session', 'disposition', 'coverage', 'calls', 'verdicts', 'began'];
  const rows = found.map(({ session, disposition, settled, coverage, calls, verdicts, began }) => [
    printable(shortName(session)),
    `${disposition ?? 'not looked at'}${settled ? '' : ' …'}`,
    coverage ?? '',
    String(calls),
    verdictsText(verdicts),
    began.slice(0, 19).replace('T', ' '),
  ]);
  const widths = head.map((name, at) => Math.max(name.length, ...rows.map((row) => (row[at] ?? '').length)));
  const padded = (row: readonly string[]): string[] => row.map((cell, at) => cell.padEnd(widths[at] ?? 0));
  const lines = rows.map((row, i) => {
    const cells = padded(row);
    const text = dispositionText(found[i]?.disposition, style);
    const plain = found[i]?.disposition ?? 'not looked at';
    cells[1] = (cells[1] ?? '').replace(plain, text);
    return cells.join('  ').trimEnd();
  });
  return `${[style.dim(padded(head).join('  ').trimEnd()), ...lines].join('\n')}\n`;
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
  const late = wait !== undefined && !detail.settled;
  process.exitCode = late || detail.disposition === undefined ? EXIT.undecided : EXIT_OF[detail.disposition];
  await print(json, { ...detail, coverageStatement: statement }, () =>
    page(detail, statement?.members ?? [], style),
  );
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
      if (detail.settled || left <= ONE_WAIT) return detail;
    } catch (error) {
      if (!(error instanceof ServiceProblem) || error.code !== 'not_found') throw error;
      // Its first line may be on its way.
      if (left <= 0) throw noSession(session, await nearNames(audited, session));
      await sleep(NOT_YET);
    }
  }
}

function page(detail: SessionDetail, members: readonly Member[], style: Style): string {
  const { session, disposition, settled, closed, coverage, kinds, calls, verdicts, levels, receipts } =
    detail;
  const said = Object.entries(levels ?? {}).flatMap(([level, n]) => (n > 0 ? `${n} ${level}` : []));
  const facts: (readonly [string, string])[] = [
    ['disposition', `${dispositionText(disposition, style)}${settled ? '' : style.dim(' (not settled)')}`],
    ['began', `${detail.began}, entry ${detail.beganIndex}`],
    ['last', `${detail.last}, entry ${detail.lastIndex}${closed ? '' : '; not closed'}`],
    [
      'kinds',
      kinds.length === 0 ? 'none: no rule of the policy is about it' : kinds.map(printable).join(', '),
    ],
    ['calls', `${calls}${said.length === 0 ? '' : `: ${said.join(', ')}`}`],
    ['verdicts', verdictsText(verdicts) || 'none'],
    ['coverage', coverage ?? 'not looked at'],
    ...members.map((member) => ['', `  ${memberText(member, style)}`] as const),
    ...receipts.map(
      ({ id, asOf, disposition: came }, i) =>
        [i === 0 ? 'receipts' : '', `${id}, as of ${asOf} entries: ${dispositionText(came, style)}`] as const,
    ),
  ];
  const next =
    receipts.length === 0
      ? `It has no receipt yet: belay sessions ${spokenName(session)} --wait 60`
      : `Why: belay receipt get --session ${spokenName(session)} -o receipt.json && belay receipt show receipt.json`;
  return `${style.bold(printable(session))}\n\n${columns(facts, '  ')}\n${printable(next)}\n`;
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
affirmed    every required sink covers it whole, every call was run again and came to the same
open        a sink has not said that it is over
incomplete  lines of a required sink are missing; which ones is said
unverified  nothing is missing, and nobody has run all of its calls again
violated    a verifier, or an auditor, says that it did what it may not
contested   there are two stories

Exit of one session: 0 affirmed, 1 violated, contested or incomplete, 2 open, unverified or not settled in time.`,
    )
    .action(sessions);
}
