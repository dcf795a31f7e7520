/** `belay status`: per sink and epoch what is spooled, what became of it, and what is known against the log. */

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import {
  type EpochStatus,
  epochStatus,
  HeadStore,
  type KeptLines,
  knownLogs,
  logDir,
  PublishedStore,
  type SignedHead,
} from '@belay/client';
import type { Command } from 'commander';
import { type CliConfig, readConfig } from './config.js';
import { findLogin } from './credentials.js';
import { CliError, EXIT } from './exit.js';
import { backgroundDir, runningPid } from './hook-forward.js';
import { print, printable, type Style, styleFor } from './output.js';

interface Accusation {
  readonly file: string;
  readonly time: string;
  readonly code: string;
  readonly message: string;
}

interface LogStatus {
  readonly log: string;
  /** The credentials of this user are for it. */
  readonly current: boolean;
  readonly head: SignedHead | undefined;
  /** The largest published checkpoint that was seen and verified. */
  readonly published: { readonly size: number; readonly root: string; readonly seen: string } | undefined;
  /** Settled lines that are kept, and epochs whose lines were given up before a checkpoint covered them. */
  readonly kept: KeptLines & { readonly givenUp: number };
  readonly lastError: { readonly time: string; readonly code: string; readonly message: string } | undefined;
  readonly accusations: readonly Accusation[];
  /** Process that sends in the background. */
  readonly forwarder: number | undefined;
  readonly sinks: readonly { readonly sink: string; readonly epochs: readonly EpochStatus[] }[];
}

interface Options {
  readonly state?: string;
  readonly all?: boolean;
  readonly log?: string;
  readonly json?: boolean;
}

async function status(options: Options): Promise<void> {
  const config = readConfig();
  const state = options.state ?? config.state;
  const { origin, problem } = await currentLog(config);
  const logs = knownLogs(state)
    .filter((log) => options.log === undefined || log === options.log)
    .sort()
    .map((log) => logStatus(state, log, log === origin));
  const totals = totalsOf(logs);
  const document = { state, credentials: { log: origin, problem }, totals, logs: shortened(logs, options) };
  await print(options.json, document, () => pageOf(document, styleFor(config)));
  process.exitCode =
    totals.accusations > 0 || totals.conflicts > 0 || totals.refused > 0 || totals.dropped > 0
      ? EXIT.bad
      : totals.pending > 0
        ? EXIT.undecided
        : EXIT.good;
}

async function currentLog(
  config: CliConfig,
): Promise<{ origin: string | undefined; problem: string | undefined }> {
  try {
    return { origin: (await findLogin(config))?.credential.origin, problem: undefined };
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    return { origin: undefined, problem: error.message };
  }
}

function logStatus(state: string, log: string, current: boolean): LogStatus {
  const folder = logDir(state, log);
  const sinks = foldersIn(join(folder, 'sinks'))
    .sort()
    .map((sink) => ({
      sink,
      epochs: foldersIn(join(folder, 'sinks', sink))
        .sort()
        .flatMap((epoch) => epochStatus(join(folder, 'sinks', sink, epoch)) ?? []),
    }));
  const published = new PublishedStore(state, log).read();
  return {
    log,
    current,
    head: new HeadStore(state, log).read(),
    published: published && { size: published.size, root: published.root, seen: published.seen },
    kept: keptIn(sinks.flatMap(({ epochs }) => epochs)),
    lastError: readJsonFile(join(folder, 'last-error.json')) as LogStatus['lastError'],
    accusations: accusationsIn(join(folder, 'accusations')),
    forwarder: runningPid(backgroundDir(state, log)),
    sinks,
  };
}

function keptIn(epochs: readonly EpochStatus[]): LogStatus['kept'] {
  const kept = epochs.filter(({ keptBytes }) => keptBytes > 0);
  return {
    epochs: kept.length,
    bytes: kept.reduce((sum, { keptBytes }) => sum + keptBytes, 0),
    uncovered: kept.filter(({ published }) => published === undefined).length,
    givenUp: epochs.filter(({ forgotten }) => forgotten?.published === false).length,
  };
}

function accusationsIn(folder: string): Accusation[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .sort()
    .map((name) => {
      const file = join(folder, name);
      const { time, code, message } = (readJsonFile(file) ?? {}) as Partial<Accusation>;
      const when = time ?? statSync(file).mtime.toISOString();
      return { file, time: when, code: code ?? 'unreadable', message: message ?? '' };
    });
}

function readJsonFile(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as unknown;
  } catch {
    return undefined;
  }
}

function foldersIn(folder: string): string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? entry.name : [],
  );
}

const COUNTS = ['lines', 'pending', 'acked', 'refused', 'dropped', 'filtered', 'conflicts'] as const;
type Totals = Record<(typeof COUNTS)[number] | 'pendingBytes' | 'accusations', number>;

function totalsOf(logs: readonly LogStatus[]): Totals {
  const epochs = logs.flatMap(({ sinks }) => sinks.flatMap((sink) => sink.epochs));
  const sum = (name: (typeof COUNTS)[number] | 'pendingBytes'): number =>
    epochs.reduce((total, epoch) => total + epoch[name], 0);
  return {
    lines: sum('lines'),
    pending: sum('pending'),
    pendingBytes: sum('pendingBytes'),
    acked: sum('acked'),
    refused: sum('refused'),
    dropped: sum('dropped'),
    filtered: sum('filtered'),
    conflicts: sum('conflicts'),
    accusations: logs.reduce((total, { accusations }) => total + accusations.length, 0),
  };
}

const isQuiet = ({ state, refused, dropped, conflicts }: EpochStatus): boolean =>
  state === 'settled' && refused + dropped + conflicts === 0;

/** Without the epochs of which there is nothing to say, unless all are asked for. */
function shortened(
  logs: readonly LogStatus[],
  { all }: Options,
): (Omit<LogStatus, 'sinks'> & {
  readonly sinks: readonly {
    readonly sink: string;
    readonly settled: number;
    readonly epochs: readonly EpochStatus[];
  }[];
})[] {
  return logs.map((log) => ({
    ...log,
    sinks: log.sinks.map(({ sink, epochs }) => ({
      sink,
      settled: all === true ? 0 : epochs.filter((epoch) => isQuiet(epoch)).length,
      epochs: all === true ? epochs : epochs.filter((epoch) => !isQuiet(epoch)),
    })),
  }));
}

interface Document {
  readonly state: string;
  readonly credentials: { readonly log: string | undefined; readonly problem: string | undefined };
  readonly totals: Totals;
  readonly logs: ReturnType<typeof shortened>;
}

function pageOf({ state, credentials, totals, logs }: Document, style: Style): string {
  const login = credentials.problem ?? credentials.log ?? 'none: runs are only recorded';
  const parts = [`state        ${state}\ncredentials  ${printable(login)}\n`];
  for (const log of logs) {
    const { head, published, kept, forwarder, lastError, accusations } = log;
    const headText = head === undefined ? 'none yet' : `size ${head.size}, root ${head.root}`;
    parts.push(
      `\n${style.bold(log.log)}${log.current ? '' : style.dim('  (not the log of the credentials)')}\n` +
        `  head       ${headText}\n` +
        (published === undefined ? '' : `  published  size ${published.size}, seen ${published.seen}\n`) +
        keptText(kept) +
        (forwarder === undefined ? '' : `  forwarder  process ${forwarder}\n`) +
        (lastError === undefined
          ? ''
          : `  last error ${style.warn(printable(`${lastError.time} ${lastError.message}`))}\n`) +
        accusations
          .map(
            ({ time, code, message, file }) =>
              `  ${style.bad('ACCUSED')}    ${time} ${code}: ${printable(message)}\n             ${file}\n`,
          )
          .join(''),
    );
    const rows = log.sinks.flatMap(({ sink, settled, epochs }) => [
      ...epochs.map((epoch) => [
        sink,
        epoch.epoch,
        epoch.state,
        ...COUNTS.map((name) => String(epoch[name])),
      ]),
      ...(settled > 0
        ? [
            [
              sink,
              `${settled} ${settled === 1 ? 'epoch' : 'epochs'}, see --all`,
              'settled',
              '',
              '',
              '',
              '',
              '',
              '',
              '',
            ],
          ]
        : []),
    ]);
    if (rows.length > 0) parts.push(table([['sink', 'epoch', 'state', ...COUNTS], ...rows], style));
  }
  const { pending, pendingBytes, dropped, refused, conflicts } = totals;
  parts.push(
    logs.length === 0
      ? '\nNothing was sent from here.\n'
      : `\n${pending} lines (${pendingBytes} bytes) wait, ${dropped} dropped, ${refused} refused, ${conflicts} conflicts, ${totals.accusations} accusations\n`,
  );
  return parts.join('');
}

function keptText({ epochs, bytes, uncovered, givenUp }: LogStatus['kept']): string {
  const gone = givenUp === 0 ? '' : `; of ${givenUp} more they were given up before that`;
  if (epochs === 0 && givenUp === 0) return '';
  return `  kept       settled lines of ${epochs} epochs, ${bytes} bytes; ${uncovered} wait for a published checkpoint${gone}\n`;
}

/** Columns as wide as their widest cell; numbers to the right. */
function table(rows: readonly (readonly string[])[], style: Style): string {
  const widths = (rows[0] ?? []).map((_, at) => Math.max(...rows.map((row) => (row[at] ?? '').length)));
  return rows
    .map((row, line) => {
      const cells = row.map((cell, at) =>
        at < 3 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0),
      );
      const text = `  ${cells.join('  ').trimEnd()}`;
      return `${line === 0 ? style.dim(text) : text}\n`;
    })
    .join('');
}

export function register(program: Command): void {
  program
    .command('status')
    .description('what is spooled, acknowledged, refused and dropped, per sink and epoch')
    .option('--log <origin>', 'only this log')
    .option('--all', 'also epochs that were acknowledged whole')
    .option('--state <dir>', 'state directory (BELAY_STATE)')
    .option('--json', 'print one JSON document')
    .addHelpText(
      'after',
      '\nExit 0: all that was said is acknowledged. 1: lines were dropped or refused, contradict the log, or the log\n' +
        'is accused. 2: lines wait.',
    )
    .action(status);
}
