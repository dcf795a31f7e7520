/** `belay reveal`: one commitment opened for an auditor, and an opening checked. Says nothing of any other line. */

import { readFile, writeFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { join } from 'node:path';
import { readEpochRecord, sinkDir } from '@belay/client';
import { commitment, commitmentSalt, EnvelopeError, parseEnvelope, splitLines } from '@belay/envelope';
import { contentPath, readTrace, recordData, type TraceRecord } from '@belay/trace';
import { type Command, InvalidArgumentError } from 'commander';
import { readConfig } from './config.js';
import { badInput, CliError, EXIT, usage } from './exit.js';
import { columns, print, printable } from './output.js';

/** What opens one commitment: whoever has it and the envelope can check that the one is of the other. */
interface Opening {
  readonly v: 1;
  readonly format: 'belay.opening/1';
  readonly log: string;
  readonly sink: string;
  readonly epoch: string;
  readonly seq: number;
  readonly digest: string;
  /** Base64: 32 bytes, and the content. */
  readonly salt: string;
  readonly content: string;
  /** The content was too large to keep: `content` is its SHA-256. */
  readonly oversize?: true;
}

interface Options {
  readonly seq?: number;
  readonly check?: boolean;
  readonly out?: string;
  readonly state?: string;
  readonly digest?: string;
  readonly envelope?: string;
  readonly json?: boolean;
}

const MAX_FILE = 128 * 1024 * 1024;

async function open(path: string, seq: number, options: Options): Promise<void> {
  const { run, record, intact, missing } = await find(path, seq);
  if (run.log === undefined) {
    throw badInput('only_recorded', `${path}: of this run nothing was sent, so there is nothing to open`);
  }
  if (missing) {
    throw badInput(
      'content_missing',
      `${path}: the content of this record is in ${contentPath(path)}, and not to be had from there`,
      'Large frames are kept beside the trace; the two files belong together.',
    );
  }
  if (!intact)
    throw new CliError(EXIT.bad, 'content_changed', `${path}: the content was changed after it was recorded`);
  const dir = join(sinkDir(options.state ?? readConfig().state, run.log, run.sink), run.epoch);
  const secret = readEpochRecord(dir)?.secret;
  if (secret === undefined) {
    throw badInput(
      'no_secret',
      `the secret of epoch ${run.epoch} is not on this machine`,
      `It is kept in ${dir}; --state names another state directory.`,
    );
  }
  const { sha256, oversize } = record as { sha256: string; oversize?: true };
  const content = oversize === true ? Buffer.from(sha256, 'hex') : (recordData(record) as Buffer);
  const salt = commitmentSalt(Buffer.from(secret, 'base64'), seq);
  const opening: Opening = {
    v: 1,
    format: 'belay.opening/1',
    log: run.log,
    sink: run.sink,
    epoch: run.epoch,
    seq,
    digest: commitment(salt, content),
    salt: salt.toString('base64'),
    content: content.toString('base64'),
    ...(oversize === true ? { oversize } : {}),
  };
  if (options.out !== undefined) {
    await writeFile(options.out, `${JSON.stringify(opening, null, 2)}\n`, { flag: 'wx', mode: 0o600 });
  }
  const { log, sink, epoch, digest } = opening;
  const file = options.out ?? 'OPENING';
  const member = (name: string): string => `jq -r .${name} ${file} | base64 -d`;
  await print(options.json, opening, () =>
    columns([
      ['log', log],
      ['line', `${sink} ${epoch} ${seq}`],
      ['digest', digest],
      ['salt', opening.salt],
      [
        'content',
        `${content.length} bytes${oversize === true ? ', the SHA-256 of what was too large to keep' : ''}`,
      ],
      ['opening', options.out ?? '--json prints it, --out FILE writes it'],
      ['check', `belay reveal --check ${file} --envelope LINE`],
      ['or', `{ ${member('salt')}; ${member('content')}; } | sha256sum`],
    ]),
  );
}

type Run = TraceRecord & { readonly type: 'open' };

/** The record that became line `seq` of its run's epoch. */
async function find(
  path: string,
  seq: number,
): Promise<{
  readonly run: Run;
  readonly record: TraceRecord;
  readonly intact: boolean;
  readonly missing: boolean;
}> {
  let run: Run | undefined;
  for await (const line of readTrace(path)) {
    if (!('record' in line)) continue;
    const { record, intact, missing = false } = line;
    if (record.type === 'open') run = record;
    else if (
      run !== undefined &&
      'seqs' in record &&
      Array.isArray(record.seqs) &&
      record.seqs.includes(seq)
    ) {
      return { run, record, intact, missing };
    }
  }
  if (run === undefined) throw badInput('not_a_trace', `${path} is not a trace`);
  throw badInput(
    'no_content',
    `${path} has no content of line ${seq}`,
    'Lines such as epoch.open and heartbeat commit to nothing; `belay trace export` lists `seqs`.',
  );
}

interface Check {
  readonly name: string;
  readonly ok: boolean;
  readonly detail: string;
}

async function check(path: string, options: Options): Promise<void> {
  const opening = parseOpening(path, path === '-' ? await readAll(process.stdin) : await readText(path));
  const digest = commitment(Buffer.from(opening.salt, 'base64'), Buffer.from(opening.content, 'base64'));
  const checks: Check[] = [
    { name: 'opening', ok: digest === opening.digest, detail: `salt and content make ${digest}` },
  ];
  if (options.digest !== undefined) {
    checks.push({ name: 'digest', ok: digest === options.digest, detail: `asked for ${options.digest}` });
  }
  if (options.envelope !== undefined) {
    const envelope = envelopeIn(options.envelope, await readText(options.envelope));
    const { log, sink, epoch, seq } = envelope;
    const same =
      log === opening.log && sink === opening.sink && epoch === opening.epoch && seq === opening.seq;
    checks.push(
      { name: 'line', ok: same, detail: `the envelope is ${sink} ${epoch} ${seq} of ${log}` },
      {
        name: 'commitment',
        ok: envelope.digest === digest,
        detail: `the envelope has ${envelope.digest ?? 'no digest'}`,
      },
    );
  }
  const valid = checks.every(({ ok }) => ok);
  const bound = checks.length > 1;
  const verdict = valid ? 'VALID' : 'INVALID';
  await print(options.json, { verdict, bound, digest, checks }, () => {
    const rows = checks.map(({ name, ok, detail }): [string, string] => [
      `${ok ? 'ok    ' : 'FAILED'}  ${name}`,
      printable(detail),
    ]);
    const rest = bound
      ? ''
      : 'Compare it with the digest of the envelope in the log: --envelope or --digest.\n';
    return `${verdict}\n${columns(rows, '  ')}${rest}`;
  });
  process.exitCode = valid ? EXIT.good : EXIT.bad;
}

async function readText(path: string): Promise<string> {
  const bytes = await readFile(path);
  if (bytes.length > MAX_FILE) throw badInput('too_large', `${path} is too large`);
  return bytes.toString('utf8');
}

function parseOpening(path: string, text: string): Opening {
  let value: Partial<Opening> | undefined;
  try {
    value = JSON.parse(text) as Partial<Opening>;
  } catch {
    value = undefined;
  }
  const texts = [value?.log, value?.sink, value?.epoch, value?.digest, value?.salt, value?.content];
  if (
    value?.v !== 1 ||
    value.format !== 'belay.opening/1' ||
    !Number.isSafeInteger(value.seq) ||
    texts.some((each) => typeof each !== 'string') ||
    Buffer.from(value.salt as string, 'base64').length !== 32
  ) {
    throw badInput('not_an_opening', `${path} is not an opening`);
  }
  return value as Opening;
}

/** The envelope in a line, or in an entry of a log, of which it is the second line. */
function envelopeIn(path: string, text: string): ReturnType<typeof parseEnvelope> {
  const lines = splitLines(Buffer.from(text, 'utf8'), 16);
  let reason: EnvelopeError | undefined;
  for (const line of lines.toReversed()) {
    try {
      return parseEnvelope(line);
    } catch (error) {
      if (!(error instanceof EnvelopeError)) throw error;
      reason ??= error;
    }
  }
  throw badInput('not_an_envelope', `${path}: no envelope in it: ${reason?.message ?? 'it is empty'}`);
}

function lineNumber(text: string): number {
  if (!/^[1-9]\d{0,15}$/.test(text)) throw new InvalidArgumentError('a number from 1.');
  return Number(text);
}

export function register(program: Command): void {
  program
    .command('reveal')
    .description('open one commitment of a trace for an auditor, or check an opening')
    .argument('<file>', 'a trace; with --check an opening, or - for standard input')
    .option('--seq <n>', "the line's number in its epoch", lineNumber)
    .option('--out <file>', 'write the opening to a new file (0600)')
    .option('--state <dir>', "state directory that has the epoch's secret (BELAY_STATE)")
    .option('--check', 'check an opening')
    .option('--envelope <file>', 'with --check: the envelope, or the entry of the log that it is in')
    .option('--digest <digest>', "with --check: the envelope's digest")
    .option('--json', 'print one JSON document: of a trace, the opening')
    .addHelpText(
      'after',
      '\nThe opening is the content itself: give it to nobody who may not read it. It says nothing of other lines.\n' +
        'Exit 1: the opening is not of this envelope.',
    )
    .action(async (file: string, options: Options) => {
      if (options.check === true) return await check(file, options);
      if (options.seq === undefined) throw usage('which line? --seq N, or --check for an opening');
      await open(file, options.seq, options);
    });
}
