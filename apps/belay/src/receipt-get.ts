/** `belay receipt get`: fetched by an auditor, checked against the key that the auditor key pins, and kept. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { SessionList } from '@belay/contracts/http';
import type { Report } from '@belay/receipt';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { type Audited, asAuditor, type AuditorOptions, auditorOptions } from './auditor.js';
import { readConfig } from './config.js';
import { badInput, EXIT, usage } from './exit.js';
import { seconds, whole } from './option-values.js';
import { checkTable, print, styleFor, writeOut } from './output.js';
import { checked, EXIT_OF, verdictOf } from './receipt-check.js';
import { type Answer, ServiceProblem } from './service.js';
import {
  givenSession,
  nearNames,
  noSession,
  type SessionChoice,
  sessionChoice,
  wholeName,
} from './session-name.js';
import { writeWhole } from './whole-file.js';

const FORMATS = {
  dsse: 'application/vnd.dsse.envelope.v1+json',
  'tlog-proof': 'text/x.tlog-proof',
} as const;

const PUBLISH_POLL_MS = 200;
/** Seconds: an entry appended a moment ago is covered by the next checkpoint, about a second away. */
const USUAL_WAIT = 10;
/** Seconds that one request for a session or period waits at most. */
const ONE_WAIT = 20;
/** What is not decided of a receipt that speaks of entries which are not in it. */
const ELSEWHERE = 'evidence';

interface GetOptions extends AuditorOptions, SessionChoice {
  readonly event?: number;
  readonly range?: readonly [first: number, last: number];
  readonly session?: string;
  readonly period?: readonly [from: string, to: string];
  readonly format: keyof typeof FORMATS;
  readonly out?: string;
  readonly wait: number;
}

async function get(options: GetOptions): Promise<void> {
  const config = readConfig();
  const session = givenSession(options.session, options, config);
  const { event, range, period } = options;
  if ([event, range, session, period].filter((each) => each !== undefined).length !== 1) {
    throw usage('one of --event N, --range FIRST..LAST, --session SESSION and --period FROM..TO');
  }
  if (options.format === 'tlog-proof' && event === undefined) {
    throw usage('a tlog-proof is for one event: --event N');
  }
  if (options.json && options.out === undefined) {
    throw usage('--json describes the receipt, so the receipt itself needs --out FILE');
  }
  const audited = await asAuditor(config, options);
  const { service, path, vkey } = audited;
  const scope =
    session !== undefined
      ? `session=${encodeURIComponent(await wholeName(audited, session))}`
      : period !== undefined
        ? `period=${encodeURIComponent(`${period[0]}..${period[1]}`)}`
        : range !== undefined
          ? `range=${range[0]}..${range[1]}`
          : `event=${event}`;
  const waits = session !== undefined || period !== undefined;

  const until = Date.now() + options.wait * 1_000;
  let answer: Answer | undefined;
  while (answer === undefined) {
    const left = Math.ceil((until - Date.now()) / 1_000);
    const wait = waits && left > 0 ? `&wait=${Math.min(ONE_WAIT, left)}` : '';
    try {
      answer = await service.ask('GET', `${path}/receipts?${scope}${wait}`, FORMATS[options.format]);
    } catch (error) {
      if (!(error instanceof ServiceProblem)) throw error;
      if (range !== undefined || event !== undefined)
        await mustExist(audited, range?.[1] ?? event ?? 0, error);
      // Of a session the first line may be on its way.
      const unknown = session !== undefined && error.code === 'not_found';
      if ((!unknown && error.code !== 'not_published') || Date.now() >= until)
        throw unknown ? noSession(session, await nearNames(audited, session)) : error;
      await sleep(PUBLISH_POLL_MS);
    }
  }
  const { bytes, headers } = answer;
  // The auditor key pins the log's key, so what comes back is checked before anyone is told that it is a receipt.
  const report = checked(bytes, { key: vkey, now: new Date() });
  const alone = holdsAlone(report);
  process.exitCode = alone ? EXIT.good : EXIT_OF[report.verdict];
  if (options.out === undefined) await writeOut(bytes.toString('utf8'));
  else await writeWhole(options.out, bytes);
  const style = styleFor(config);
  const { out: file } = options;
  if (file !== undefined) {
    const id = headers.get('belay-receipt-id') ?? undefined;
    await print(
      options.json,
      { verdict: report.verdict, file, bytes: bytes.length, id, key: vkey, checks: report.checks },
      () =>
        `${file}: ${bytes.length} bytes, ${verdictOf(report.verdict, style)} against the key pinned by the auditor key\n` +
        (alone && report.verdict !== 'VALID'
          ? 'What it says is signed and hangs together; the entries that it speaks of are in an export: belay export create\n'
          : '') +
        `\nRead it: belay receipt show ${file} --key ${vkey}\n` +
        `Anyone can check it, offline: belay receipt verify ${file} --key ${vkey}\n`,
    );
  }
  if (!alone) process.stderr.write(checkTable(report.checks, style));
}

/** Where the log is not that long yet, that is what is wrong, whatever the service objected to first. */
async function mustExist({ service, path }: Audited, last: number, refused: ServiceProblem): Promise<void> {
  if (refused.code === 'not_published') return;
  const { size } = await service.json<SessionList>('GET', `${path}/sessions?limit=1`);
  if (last < size) return;
  throw badInput(
    refused.code,
    size === 0
      ? 'the log has no entry'
      : `the log has ${size} entries, 0 to ${size - 1}: none is numbered ${last}`,
    undefined,
    refused,
  );
}

/** Whether all that can be checked without the entries of others holds. */
function holdsAlone({ verdict, checks }: Report): boolean {
  const open = checks.filter(({ status }) => status !== 'ok');
  return verdict === 'VALID' || (verdict === 'INDETERMINATE' && open.every(({ name }) => name === ELSEWHERE));
}

function range(text: string): readonly [number, number] {
  const [, first, last] = /^(\d+)\.\.(\d+)$/.exec(text) ?? [];
  if (first === undefined || last === undefined) throw new InvalidArgumentError('such as 12..40.');
  const ends = [whole(first), whole(last)] as const;
  if (ends[1] < ends[0]) throw new InvalidArgumentError('ends before it begins.');
  return ends;
}

function period(text: string): readonly [string, string] {
  const [from, to, ...more] = text.split('..').map((each) => new Date(each));
  if (from === undefined || to === undefined || more.length > 0 || Number.isNaN(+from + +to))
    throw new InvalidArgumentError('such as 2027-01-01..2027-02-01, the end not included.');
  if (from >= to) throw new InvalidArgumentError('ends before it begins.');
  return [from.toISOString(), to.toISOString()];
}

export function register(receipt: Command): void {
  sessionChoice(auditorOptions(receipt.command('get')))
    .description('fetch a receipt for an event, a range, a session or a period')
    .option('--event <index>', 'index of one entry', whole)
    .option('--range <first..last>', 'indexes of the first and the last entry', range)
    .option('--session <session>', 'its name, or how one that nobody chose begins')
    .option('--period <from..to>', 'of the sessions that began in it', period)
    .addOption(new Option('--format <format>', 'what to fetch').choices(Object.keys(FORMATS)).default('dsse'))
    .option('-o, --out <file>', 'where to write it (default: standard output)')
    .option(
      '--wait <seconds>',
      'how long to wait: for the checkpoint, or until the session is settled',
      seconds,
      USUAL_WAIT,
    )
    .action(get);
}
