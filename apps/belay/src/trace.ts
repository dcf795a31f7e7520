/** `belay trace`: the local record, read, checked, handed on, and made from another recorder's. */

import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import { type CliConfig, readConfig } from './config.js';
import { badInput, CliError, EXIT, usage } from './exit.js';
import { print, printable, styleFor } from './output.js';
import { type TextSink, toFile, toStandardOutput } from './text-sink.js';
import { CONTENT, type ContentChoice, TraceContent } from './trace-content.js';
import type { AckReport, AckSources } from './trace-acks.js';
import type { ImportReport } from './trace-import.js';
import { type CheckedTrace, checkFile, EXIT_OF, factsOf, gapText, LOCAL_ONLY } from './trace-report.js';
import { showFrames, showTurns, verdictText } from './trace-show.js';

const VERSION = '0.1.0';
const FORMATS = ['json', 'html', 'har', 'otlp'] as const;
type Format = (typeof FORMATS)[number];

/** What an export shows of the content unless told otherwise. */
const USUAL: Readonly<Record<Format, ContentChoice>> = {
  json: 'full',
  html: 'short',
  har: 'full',
  otlp: 'none',
};

interface StateOption {
  readonly state?: string;
  readonly json?: boolean;
}

function traceFolder({ state }: StateOption): string {
  const config = readConfig();
  return state === undefined ? (config.traceDir ?? join(config.state, 'traces')) : join(state, 'traces');
}

/** Trace files of a folder, the newest last. */
async function tracesIn(folder: string): Promise<string[]> {
  let names: string[];
  try {
    names = await readdir(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    names = [];
  }
  const files = await Promise.all(
    names
      .filter((name) => name.endsWith('.jsonl'))
      .map(async (name) => {
        const path = join(folder, name);
        return { path, time: (await stat(path)).mtimeMs };
      }),
  );
  return files.sort((a, b) => a.time - b.time || (a.path < b.path ? -1 : 1)).map(({ path }) => path);
}

/** The file that was named, or the newest there is. */
async function oneTrace(file: string | undefined, options: StateOption): Promise<string> {
  if (file !== undefined) return file;
  const folder = traceFolder(options);
  const newest = (await tracesIn(folder)).at(-1);
  if (newest === undefined) throw badInput('no_trace', `there is no trace in ${folder}`, 'Name a FILE.');
  return newest;
}

/** A file that holds no record at all is no trace, and no answer about it would be one. */
async function checkedTrace(path: string): Promise<CheckedTrace> {
  const trace = await checkFile(path);
  if (
    trace.records === 0 &&
    trace.problems.some(({ code }) => code === 'not_json' || code === 'not_a_record')
  ) {
    throw badInput(
      'not_a_trace',
      `${path} is not a trace`,
      'Files of the Python Belay: belay trace import FILE.',
    );
  }
  return trace;
}

interface ShowOptions extends StateOption {
  readonly frames?: boolean;
  readonly trouble?: boolean;
}

async function show(file: string | undefined, options: ShowOptions): Promise<void> {
  if (options.json && options.trouble) throw usage('--trouble is for reading; --json has everything');
  const trace = await checkedTrace(await oneTrace(file, options));
  const style = styleFor(readConfig());
  await toStandardOutput(async (sink) => {
    if (options.frames) {
      if (!options.json) return await showFrames(trace, style, sink);
      return await (await import('./trace-json.js')).writeFramesJson(trace, sink);
    }
    const content = await TraceContent.open(trace.path, options.json ? 'none' : 'short');
    try {
      if (!options.json) {
        return await showTurns(trace, content, { style, trouble: options.trouble === true }, sink);
      }
      return await (await import('./trace-json.js')).writeTurnsJson(trace, content, sink);
    } finally {
      await content.close();
    }
  });
}

interface CheckOptions extends StateOption {
  readonly acks?: boolean;
  readonly key?: string[];
}

async function check(paths: string[], options: CheckOptions): Promise<void> {
  if (options.key !== undefined && options.acks !== true) throw usage('--key is for --acks');
  const files: string[] = [];
  for (const path of paths.length === 0 ? [traceFolder(options)] : paths) {
    if (paths.length > 0 && !(await stat(path)).isDirectory()) files.push(path);
    else files.push(...(await tracesIn(path)));
  }
  if (files.length === 0)
    throw badInput('no_trace', `there is no trace in ${paths.join(', ') || traceFolder(options)}`);
  const traces: CheckedTrace[] = [];
  for (const file of files) traces.push(await checkedTrace(file));
  if (options.acks === true) return await checkAcks(traces, options);
  const worst = worstOf(traces.map(({ verdict }) => verdict));
  process.exitCode = EXIT_OF[worst];
  await print(
    options.json,
    { verdict: worst, integrity: 'local-only', traces: traces.map((trace) => factsOf(trace)) },
    () => `${traces.map((trace) => checkText(trace)).join('')}\n${LOCAL_ONLY}\n`,
  );
}

/** The same, and how each trace compares with what the log attested. */
async function checkAcks(traces: readonly CheckedTrace[], options: CheckOptions): Promise<void> {
  const { compareWithAcks } = await import('./trace-acks.js');
  const config = readConfig();
  const state = options.state ?? config.state;
  const keys = await logKeys(options.key ?? [], config);
  const compared: { readonly trace: CheckedTrace; readonly acks: AckReport }[] = [];
  for (const trace of traces) compared.push({ trace, acks: await compareWithAcks(trace, { state, keys }) });
  const judged = compared.map(({ trace, acks }) => ({
    trace: { ...trace, verdict: withAcks(trace, acks) },
    acks,
  }));
  const worst = worstOf(judged.map(({ trace }) => trace.verdict));
  const sum = (name: 'attested' | 'lines'): number =>
    judged.reduce((total, { acks }) => total + acks[name], 0);
  const integrity =
    sum('lines') === 0 && judged.every(({ acks }) => acks.integrity === 'local-only')
      ? 'local-only'
      : `attested ${sum('attested')}/${sum('lines')}`;
  process.exitCode = EXIT_OF[worst];
  await print(
    options.json,
    {
      verdict: worst,
      integrity,
      traces: judged.map(({ trace, acks }) => ({ ...factsOf(trace), integrity: acks.integrity, acks })),
    },
    () => judged.map(({ trace, acks }) => `${checkText(trace)}${acksText(acks)}`).join(''),
  );
}

/** Keys that a person or a token vouches for, by origin. */
export async function logKeys(given: readonly string[], config: CliConfig): Promise<AckSources['keys']> {
  const keys = new Map<string, { readonly vkey: string; readonly from: 'given' | 'token' }>();
  const { findLogin } = await import('./credentials.js');
  const login = await findLogin(config);
  if (login !== undefined) keys.set(login.credential.origin, { vkey: login.vkey, from: 'token' });
  const { NoteError, parseVkey } = await import('@belay/note');
  for (const vkey of given) {
    try {
      keys.set(parseVkey(vkey).name, { vkey, from: 'given' });
    } catch (error) {
      if (!(error instanceof NoteError)) throw error;
      throw badInput('key', `--key: ${error.message}`, undefined, error);
    }
  }
  return keys;
}

/** A trace that is intact by its chain is worth what the log says of it. */
function withAcks({ verdict }: CheckedTrace, { integrity, findings }: AckReport): CheckedTrace['verdict'] {
  if (findings.some(({ bad }) => bad)) return 'DAMAGED';
  const open = findings.length > 0 || integrity === 'local-only';
  return worstOf([verdict, open ? 'INCOMPLETE' : 'INTACT']);
}

function worstOf(verdicts: readonly CheckedTrace['verdict'][]): CheckedTrace['verdict'] {
  return (['DAMAGED', 'INCOMPLETE'] as const).find((verdict) => verdicts.includes(verdict)) ?? 'INTACT';
}

function acksText(acks: AckReport): string {
  const style = styleFor(readConfig());
  const { integrity, log, entries, head, published, key, local, findings } = acks;
  if (integrity === 'local-only' && findings.length === 0)
    return `  integrity: local-only: nothing of this run was sent\n`;
  const where =
    entries === undefined
      ? ''
      : `, entries ${entries[0]} to ${entries[1]}, head of size ${head}, ${
          published ? 'covered by a published checkpoint' : 'no published checkpoint known that covers them'
        }`;
  const whose =
    key === 'remembered' ? "\n  the log's key is the one that this machine noted itself: --key pins it" : '';
  const chained = Object.entries(local)
    .filter(([type]) => type !== 'record')
    .map(([type, count]) => `${count} ${type}`);
  const notes = findings.map(({ code, bad, seqs, records, message }) => {
    const at = [seqs && `lines ${seqs}`, records && `records ${records}`].filter(Boolean).join(', ');
    const text = printable(`${code}${at === '' ? '' : ` (${at})`}: ${message}`);
    return `  ${bad ? style.bad('!') : style.warn('!')} ${text}\n`;
  });
  return (
    `  integrity: ${integrity} by ${printable(log ?? '')}${where}${whose}\n` +
    (chained.length === 0 ? '' : `  ${style.dim(`by the chain alone: ${chained.join(', ')}`)}\n`) +
    notes.join('')
  );
}

function checkText(trace: CheckedTrace): string {
  const style = styleFor(readConfig());
  const { path, records, frames, head, problems, gaps, close } = trace;
  const notes = [
    ...problems.map(
      ({ code, line, message }) => `${code}${line === undefined ? '' : `, line ${line}`}: ${message}`,
    ),
    ...gaps.map((gap) => `gap, record ${gap.n}: ${gapText({ ...gap })}`),
    ...(trace.open?.imported === undefined
      ? []
      : [`imported from ${trace.open.imported.file}: the chain says what happened to it since, not before`]),
    ...((close?.lost ?? 0) > 0 ? [`${close?.lost} records were lost while it was written`] : []),
  ];
  return (
    `${verdictText(trace, style)}  ${printable(path)}\n` +
    `  ${style.dim(`${records} records, ${frames} frames, head ${head}`)}\n` +
    notes.map((note) => `  ${style.warn('!')} ${printable(note)}\n`).join('')
  );
}

interface ExportOptions extends StateOption {
  readonly format: Format;
  readonly content?: ContentChoice;
  readonly out?: string;
}

async function exportTrace(file: string | undefined, options: ExportOptions): Promise<void> {
  if (options.json && options.out === undefined) {
    throw usage('--json describes the export, so the export itself needs --out FILE');
  }
  const trace = await checkedTrace(await oneTrace(file, options));
  const choice = options.content ?? USUAL[options.format];
  const write = async (sink: TextSink): Promise<void> => {
    const content = await TraceContent.open(trace.path, choice);
    try {
      await writers[options.format](trace, content, sink);
    } finally {
      await content.close();
    }
  };
  process.exitCode = EXIT.good;
  if (options.out === undefined) return await toStandardOutput(write);
  await toFile(options.out, write);
  const { size } = await stat(options.out);
  await print(
    options.json,
    { file: options.out, format: options.format, content: choice, bytes: size, verdict: trace.verdict },
    () => `${options.out}: ${options.format}, ${size} bytes, of a trace that is ${trace.verdict}\n`,
  );
}

type Writer = (trace: CheckedTrace, content: TraceContent, sink: TextSink) => Promise<void>;

const writers: Readonly<Record<Format, Writer>> = {
  json: async (...of) => (await import('./trace-json.js')).writeTurnsJson(...of),
  html: async (...of) => (await import('./trace-html.js')).writeTurnsHtml(...of),
  har: async (trace, content, sink) =>
    (await import('./trace-har.js')).writeTurnsHar(trace, content, VERSION, sink),
  otlp: async (trace, content, sink) =>
    (await import('./trace-otlp.js')).writeTurnsOtlp(trace, content, VERSION, sink),
};

interface ImportOptions extends StateOption {
  readonly sink: string;
  readonly out?: string;
}

const EXIT_OF_IMPORT = { whole: EXIT.good, incomplete: EXIT.undecided, damaged: EXIT.bad } as const;

async function importTraces(path: string, options: ImportOptions): Promise<void> {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(options.sink))
    throw usage(`--sink ${options.sink}: not a name of a sink`);
  const { importTrace } = await import('./trace-import.js');
  const folder = options.out ?? traceFolder(options);
  const isFolder = (await stat(path)).isDirectory();
  const files = isFolder ? await tracesIn(path) : [path];
  if (files.length === 0) throw badInput('no_trace', `there is no trace in ${path}`);
  const imported: ImportReport[] = [];
  const refused: { readonly file: string; readonly code: string; readonly message: string }[] = [];
  for (const file of files) {
    try {
      imported.push(await importTrace(file, folder, { sink: options.sink, recorder: `belay/${VERSION}` }));
    } catch (error) {
      // In a folder one file doesn't spoil the others.
      if (!isFolder || !(error instanceof CliError)) throw error;
      refused.push({ file, code: error.code, message: error.message });
    }
  }
  const worst = (['damaged', 'incomplete', 'whole'] as const).find((status) =>
    imported.some((each) => each.status === status),
  );
  process.exitCode = refused.length > 0 || worst === undefined ? EXIT.badInput : EXIT_OF_IMPORT[worst];
  await print(options.json, { imported, refused }, () => importText(imported, refused));
}

function importText(
  imported: readonly ImportReport[],
  refused: readonly { readonly message: string }[],
): string {
  const style = styleFor(readConfig());
  const paint = { whole: style.good, incomplete: style.warn, damaged: style.bad };
  const pages = imported.map(({ source, trace, status, kinds, gaps, reordered }) => {
    const counts = Object.entries(kinds).map(([kind, count]) => `${count} ${kind}`);
    const odd = Object.entries(gaps).map(([code, count]) => `${code}${count === 1 ? '' : ` ×${count}`}`);
    return (
      `${style.bold(paint[status](status))}  ${printable(source)}\n  -> ${printable(trace)}\n` +
      `  ${style.dim(counts.join(', '))}\n` +
      (reordered === 0
        ? ''
        : `  ${reordered} answers stood before their requests and were moved behind them\n`) +
      (odd.length === 0 ? '' : `  ${style.warn('!')} ${odd.join(', ')}\n`)
    );
  });
  const not = refused.map(({ message }) => `${style.bad('refused')}  ${printable(message)}\n`);
  const states = 'States of that recorder have no digest: verdicts on these traces are at best UNVERIFIED.\n';
  return `${pages.join('')}${not.join('')}${imported.length === 0 ? '' : `\n${states}`}`;
}

const traceOptions = (command: Command): Command =>
  command
    .option('--state <dir>', 'state directory (BELAY_STATE)')
    .option('--json', 'print one JSON document');

export function register(program: Command): void {
  const trace = program.command('trace').description('read, check, export and import local records');
  traceOptions(trace.command('show'))
    .description('the calls of a trace with their answers')
    .argument('[file]', 'the trace (default: the newest)')
    .option('--frames', 'every frame as it was, one after another')
    .option('--trouble', 'only what went wrong or was odd')
    .action(show);
  traceOptions(trace.command('check'))
    .description('check the chain, the content and the numbering; names each problem')
    .argument('[path...]', 'traces or folders of traces (default: all of this machine)')
    .option('--acks', 'compare with what the log attested, by the acknowledgements kept on this machine')
    .option(
      '--key <vkey>',
      'with --acks: verifier key of a log (default: as the token has it); may be given again',
      (vkey: string, before?: string[]) => [...(before ?? []), vkey],
    )
    .addHelpText(
      'after',
      '\nEnds in INTACT (exit 0), DAMAGED (1): something was changed afterwards, or INCOMPLETE (2): nothing speaks for\n' +
        'a change, but records are missing or the writer was stopped. A chain proves nothing against the owner of\n' +
        'the file; what does is a log that acknowledged it: --acks opens the commitments in acknowledged lines and checks\n' +
        "the proofs that came with the acknowledgements against the log's key, offline. A change that was chained anew\n" +
        'is DAMAGED then; what is not acknowledged, was lost, or was never sent is named, and INCOMPLETE.',
    )
    .action(check);
  traceOptions(trace.command('export'))
    .description('the calls of a trace for another program, or as a page')
    .argument('[file]', 'the trace (default: the newest)')
    .addOption(new Option('--format <format>', 'what to write').choices(FORMATS).default('json'))
    .addOption(
      new Option(
        '--content <how>',
        'messages: none, the beginning of each, or whole (default: by format)',
      ).choices(Object.keys(CONTENT)),
    )
    .option('--out <file>', 'where to write it, 0600 (default: standard output)')
    .action(exportTrace);
  traceOptions(trace.command('import'))
    .description('make traces from those of the Python Belay (version 1)')
    .argument('<path>', 'a trace of that recorder, or a folder of them')
    .option('--out <dir>', 'where the new traces go (default: with the others)')
    .option('--sink <name>', 'what they are called', 'imported')
    .addHelpText(
      'after',
      '\nThe source is not changed. Exit 0: imported whole; 2: something is missing by its own word, or its recorder\n' +
        'was stopped; 1: it was changed after it was written. Gaps are records of the new trace, by name.',
    )
    .action(importTraces);
}
