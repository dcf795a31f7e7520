/** `belay export`: evidence of a log in one file, made by the service, for somebody who has no access to it. */

import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ExportJob, ExportList, ExportRequest, SessionList } from '@belay/contracts/http';
import type { Command } from 'commander';
import { type Audited, asAuditor, type AuditorOptions, auditorOptions } from './auditor.js';
import { readConfig } from './config.js';
import { download } from './download.js';
import { badInput, CliError, EXIT, unavailable, usage } from './exit.js';
import { moment } from './option-values.js';
import { columns, print, printable, type Style, styleFor, writeOut } from './output.js';
import { type ProgressLine, progressLine } from './progress-line.js';
import { givenSession, knownName, type SessionChoice, sessionChoice } from './session-name.js';
import { pageWidth } from './text-width.js';

/** Milliseconds between two looks at a job: short at first, since most are. */
const FIRST_LOOK = 100;
const LAST_LOOK = 1_000;
/** Looks in a row that may fail before it is given up. */
const MOST_FAILURES = 10;

interface CreateOptions extends AuditorOptions, SessionChoice {
  readonly from?: string;
  readonly to?: string;
  readonly session?: readonly string[];
  readonly oscal?: boolean;
  readonly out?: string;
  readonly force?: boolean;
}

/** The ends of time, as far as the service knows it. */
const BEGINNING = '1970-01-01T00:00:00.000Z';

async function create(options: CreateOptions): Promise<void> {
  const { from, to, oscal, out } = options;
  const config = readConfig();
  const ofRun = givenSession(undefined, options, config);
  const session = ofRun === undefined ? options.session : [...(options.session ?? []), ofRun];
  if (session !== undefined && (from !== undefined || to !== undefined))
    throw usage('sessions, or a time from which and to which they began: not both');
  if (from !== undefined && to !== undefined && from >= to) throw usage('--to is not later than --from');
  if (out !== undefined) mustBeFree(out, options.force);
  const audited = await asAuditor(config, options);
  const { service, path } = audited;
  const sessions = session === undefined ? undefined : await named(audited, session);
  const period =
    from === undefined && to === undefined
      ? undefined
      : { from: from ?? BEGINNING, to: to ?? new Date().toISOString() };
  if (period !== undefined) await warnOfNone(audited, period);
  const request: ExportRequest = {
    ...(period === undefined ? {} : { period }),
    ...(sessions === undefined ? {} : { sessions }),
    ...(oscal === true ? { oscal } : {}),
  };
  const job = await service.json<ExportJob>('POST', `${path}/exports`, request);
  if (out === undefined) {
    await print(
      options.json,
      job,
      () => `${job.id}\n\nIt is being made. When it is done: belay export download ${job.id} -o FILE\n`,
    );
    return;
  }
  await fetchTo(audited, job, out, options.json);
}

/** What is there is somebody's evidence: it is not written over unasked. */
function mustBeFree(file: string, force: boolean | undefined): void {
  if (force === true || !existsSync(file)) return;
  throw badInput('exists', `${file} is there already`, '--force writes over it.');
}

/** An export of no session is VALID and says nothing; who mistyped a date should hear of it. */
async function warnOfNone(
  { service, path }: Audited,
  { from, to }: { readonly from: string; readonly to: string },
): Promise<void> {
  const asked = `limit=1&from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}`;
  const { sessions } = await service.json<SessionList>('GET', `${path}/sessions?${asked}`);
  if (sessions.length > 0) return;
  process.stderr.write(
    `belay: no session is known to have begun from ${from} to before ${to}: the export may have none\n`,
  );
}

/** The whole names. One that the service does not know would be an export without it. */
async function named(audited: Audited, given: readonly string[]): Promise<string[]> {
  const names: string[] = [];
  for (const each of given) names.push(await knownName(audited, each));
  return names;
}

async function resume(
  id: string,
  options: AuditorOptions & { readonly out: string; readonly force?: boolean },
): Promise<void> {
  const audited = await asAuditor(readConfig(), options);
  const job = await jobOf(audited, id);
  mustBeFree(options.out, options.force);
  await fetchTo(audited, job, options.out, options.json);
}

const jobOf = ({ service, path }: Audited, id: string): Promise<ExportJob> =>
  service.json<ExportJob>('GET', `${path}/exports/${encodeURIComponent(id)}`);

/** Waits until it is made, and brings it here. */
async function fetchTo(
  audited: Audited,
  begun: ExportJob,
  out: string,
  json: boolean | undefined,
): Promise<void> {
  const { service, path, vkey } = audited;
  const again = `belay export download ${begun.id} -o ${out}`;
  const line = progressLine();
  const interrupted = (): void => {
    line.end();
    process.stderr.write(`belay: interrupted; the service goes on. To go on here: ${again}\n`);
    process.exit(130);
  };
  process.once('SIGINT', interrupted);
  try {
    const job = await made(audited, begun, line, again);
    const { bytes, sha256 } = job;
    if (bytes === undefined || sha256 === undefined)
      throw unavailable('not_belay', 'an export that is done and has no size', 'Is the service up to date?');
    await download(service, {
      path: `${path}/exports/${encodeURIComponent(job.id)}/file`,
      bytes,
      sha256,
      file: out,
      part: `${out}.${job.id}.part`,
      again: `To go on where it stopped: ${again}`,
      onBytes: (done) => line.at('download', done, bytes, sizeText),
    });
    line.end();
    await print(
      json,
      { ...job, file: out, key: vkey },
      () =>
        `${out}: ${sizeText(bytes)}, SHA-256 ${sha256}\n\n` +
        `Anyone can check it, offline: belay receipt verify ${out} --key ${vkey}\n`,
    );
  } finally {
    line.end();
    process.off('SIGINT', interrupted);
  }
}

async function made(
  audited: Audited,
  begun: ExportJob,
  line: ProgressLine,
  again: string,
): Promise<ExportJob> {
  let job = begun;
  let pause = FIRST_LOOK;
  let failures = 0;
  for (;;) {
    if (job.state === 'done') return job;
    if (job.state === 'failed')
      throw new CliError(
        EXIT.bad,
        'export_failed',
        `the export failed: ${job.error ?? 'nothing is said of why'}`,
        'Create it again; if that fails too, the worker of the service has more in its log.',
      );
    if (job.state === 'cancelled') throw badInput('cancelled', `export ${job.id} was cancelled`);
    line.at(job.phase ?? job.state, job.done, job.total, String);
    await sleep(pause);
    pause = Math.min(LAST_LOOK, pause * 1.3);
    try {
      job = await jobOf(audited, job.id);
      failures = 0;
    } catch (error) {
      if (!(error instanceof CliError) || error.exit !== EXIT.unavailable) throw error;
      if (++failures >= MOST_FAILURES)
        throw unavailable(error.code, error.message, `The service goes on, if it runs: ${again}`);
    }
  }
}

async function list(options: AuditorOptions): Promise<void> {
  const config = readConfig();
  const { service, path } = await asAuditor(config, options);
  const exports: ExportJob[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const page: ExportList = await service.json('GET', `${path}/exports${cursor}`);
    exports.push(...page.exports);
    cursor = page.next === undefined ? undefined : `?cursor=${encodeURIComponent(page.next)}`;
  }
  const style = styleFor(config);
  await print(options.json, { exports }, () =>
    exports.length === 0
      ? 'No exports.\n'
      : columns(
          exports.map((job) => [
            job.id,
            `${stateText(job, style)}  ${minute(job.created)}  ${requestText(job)}${job.bytes === undefined ? '' : `, ${sizeText(job.bytes)}`}`,
          ]),
          '',
          pageWidth(),
        ),
  );
}

async function status(id: string, options: AuditorOptions): Promise<void> {
  const config = readConfig();
  const job = await jobOf(await asAuditor(config, options), id);
  process.exitCode =
    job.state === 'done'
      ? EXIT.good
      : job.state === 'failed' || job.state === 'cancelled'
        ? EXIT.bad
        : EXIT.undecided;
  const style = styleFor(config);
  const { bytes, sha256, error, created, finished, by } = job;
  await print(options.json, job, () =>
    columns([
      ['export', job.id],
      ['state', stateText(job, style)],
      ['of', requestText(job)],
      ['by', `${by}, ${created}${finished === undefined ? '' : `; ended ${finished}`}`],
      ...(error === undefined ? [] : ([['error', printable(error)]] as const)),
      ...(bytes === undefined ? [] : ([['size', sizeText(bytes)]] as const)),
      ...(sha256 === undefined ? [] : ([['SHA-256', sha256]] as const)),
      ...(job.state === 'done' ? ([['next', `belay export download ${job.id} -o FILE`]] as const) : []),
    ]),
  );
}

async function cancel(id: string, options: AuditorOptions): Promise<void> {
  const { service, path } = await asAuditor(readConfig(), options);
  const answer = await service.ask('DELETE', `${path}/exports/${encodeURIComponent(id)}`, 'application/json');
  const said = answer.bytes.length === 0 ? { id } : (JSON.parse(answer.bytes.toString('utf8')) as object);
  if (options.json) await writeOut(`${JSON.stringify(said, null, 2)}\n`);
  else await writeOut(`${id} is cancelled; if it was done, its file is removed.\n`);
}

function stateText({ state, phase, done, total }: ExportJob, style: Style): string {
  if (state === 'done') return style.good(state);
  if (state === 'failed') return style.bad(state);
  if (state !== 'running') return state;
  const far = total === undefined || total === 0 ? '' : ` ${Math.floor((done / total) * 100)} %`;
  return `${state}: ${phase ?? ''}${far}`;
}

function requestText({ request: { period, sessions, oscal } }: ExportJob): string {
  const what =
    period !== undefined
      ? `sessions from ${minute(period.from)} to ${minute(period.to)}`
      : sessions !== undefined
        ? `${sessions.length} ${sessions.length === 1 ? 'session' : 'sessions'}`
        : 'the whole log';
  return oscal === true ? `${what}, with OSCAL` : what;
}

/** A time as a list shows it. */
const minute = (time: string): string => time.slice(0, 16).replace('T', ' ');

function sizeText(bytes: number): string {
  if (bytes < 1_000) return `${bytes} bytes`;
  const [unit, value] =
    bytes < 1e6 ? ['kB', bytes / 1e3] : bytes < 1e9 ? ['MB', bytes / 1e6] : ['GB', bytes / 1e9];
  return `${value.toFixed(1)} ${unit}`;
}

/** Collects an option that may be given again. */
const also = (value: string, before?: readonly string[]): string[] => [...(before ?? []), value];

export function register(program: Command): void {
  const command = program
    .command('export')
    .description('evidence of a log in one file, for somebody without access to it');
  sessionChoice(auditorOptions(command.command('create')))
    .description('make an export, and with -o wait for it and bring it here')
    .option('--from <time>', 'sessions that began at this time or later', moment)
    .option('--to <time>', 'sessions that began before this time', moment)
    .option('--session <session>', 'this session; may be given again', also)
    .option('--oscal', 'with OSCAL assessment results')
    .option('-o, --out <file>', 'where to write it')
    .option('--force', 'with -o: write over a file that is there')
    .addHelpText(
      'after',
      `
Without --from, --to and --session: the whole log. Of what is left out, the hashes are in the file, so that what is there
is proven to be the log's; that it did not match is the service's word.

A download that broke off is gone on with by \`belay export download\`, and has its name when its digest was checked.`,
    )
    .action(create);
  auditorOptions(command.command('list')).description('exports of the project').action(list);
  auditorOptions(command.command('status'))
    .description('how far one is; exit 0 done, 1 failed or cancelled, 2 under way')
    .argument('<id>', 'such as exp_01jd...')
    .action(status);
  auditorOptions(command.command('download'))
    .description('wait for one and bring it here, going on with what is here already')
    .argument('<id>', 'such as exp_01jd...')
    .requiredOption('-o, --out <file>', 'where to write it')
    .option('--force', 'write over a file that is there')
    .action(resume);
  auditorOptions(command.command('cancel'))
    .description('end one that is under way, or remove one that is done')
    .argument('<id>', 'such as exp_01jd...')
    .action(cancel);
}
