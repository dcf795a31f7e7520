/** `belay snapshot`: states of a workspace, as the proxy kept them: listed, compared, restored, checked, tidied up. */

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import {
  checkStates,
  type CheckedState,
  diffStates,
  diffWithDisk,
  gc,
  GcError,
  type GcReport,
  restore,
  type Restored,
  RestoreError,
  SnapshotError,
  type StateDifference,
  type StateInfo,
  Store,
  WalkError,
} from '@belay/snapshot';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { type CliConfig, readConfig } from './config.js';
import { badInput, CliError, EXIT, unavailable, usage } from './exit.js';
import { print, printable, styleFor } from './output.js';
import { diffDocument, diffText, onlyTimes } from './snapshot-diff.js';
import { statesInTraces } from './snapshot-traces.js';

interface StoreOptions {
  readonly store?: string;
  readonly state?: string;
  readonly json?: boolean;
}

function storeFolder({ store, state }: StoreOptions, config: CliConfig): string {
  if (store !== undefined) return resolve(store);
  if (state !== undefined) return join(resolve(state), 'snapshots');
  return resolve(config.snapshotDir ?? join(config.state, 'snapshots'));
}

function openStore(options: StoreOptions, config: CliConfig): Store {
  const folder = storeFolder(options, config);
  // To open one that is not there would make it.
  if (!existsSync(join(folder, 'format')))
    throw badInput(
      'no_store',
      `there are no snapshots in ${folder}`,
      'Name their folder with --store, or record some: belay proxy --workspace DIR -- SERVER.',
    );
  try {
    return Store.open(folder);
  } catch (error) {
    throw told(error);
  }
}

/** Errors of the library as a person is told them; others pass. */
function told(error: unknown): unknown {
  if (error instanceof RestoreError) {
    const bad = error.code === 'damaged' || error.code === 'not-as-written';
    return new CliError(
      bad ? EXIT.bad : EXIT.badInput,
      error.code.replaceAll('-', '_'),
      printable(error.message),
      error.code === 'inside-source' ? 'Name a folder outside of it; --inside allows one in it.' : undefined,
      error,
    );
  }
  if (error instanceof SnapshotError) {
    const unknown = error.code === 'unknown-state' || error.code === 'no-store' || error.code === 'arguments';
    return new CliError(
      unknown ? EXIT.badInput : EXIT.bad,
      error.code.replaceAll('-', '_'),
      printable(error.message),
      undefined,
      error,
    );
  }
  if (error instanceof WalkError)
    return badInput(error.code.replaceAll('-', '_'), printable(error.message), undefined, error);
  if (error instanceof GcError) return unavailable(error.code, error.message, undefined, error);
  return error;
}

/** A digest, the beginning of one, or `latest`. */
function stateNamed(store: Store, name: string): string {
  const states = store.states();
  if (name === 'latest') {
    const newest = states.at(-1);
    if (!newest) throw badInput('unknown_state', 'there is no state yet');
    return newest.digest;
  }
  const hex = /^(?:sha256:)?([0-9a-f]{6,64})$/.exec(name)?.[1];
  if (hex === undefined)
    throw usage(`no state: ${name}`, 'A digest, its first six hex digits or more, or `latest`.');
  const found = states.filter(({ digest }) => digest.startsWith(`sha256:${hex}`));
  const [first] = found;
  if (!first) throw badInput('unknown_state', `there is no state ${name}`, 'belay snapshot list');
  if (found.length > 1)
    throw badInput('ambiguous_state', `${found.length} states begin with ${name}; name more of it`);
  return first.digest;
}

const short = (digest: string): string => digest.slice(7, 19);

/** One line on a terminal that is written over, at most ten times a second; nothing elsewhere. */
class ProgressLine {
  readonly #shown: boolean;
  #last = 0;
  #length = 0;

  constructor(json: boolean | undefined) {
    this.#shown = json !== true && process.stderr.isTTY;
  }

  show(what: string, done: number, total: number): void {
    if (!this.#shown || performance.now() - this.#last < 100) return;
    this.#last = performance.now();
    const text = `${what} ${done} of ${total}`;
    process.stderr.write(`\r${text.padEnd(this.#length)}`);
    this.#length = text.length;
  }

  end(): void {
    if (this.#length > 0) process.stderr.write(`\r${' '.repeat(this.#length)}\r`);
    this.#length = 0;
  }
}

interface ListOptions extends StoreOptions {
  readonly traces?: string[];
  readonly limit?: number;
}

async function list(options: ListOptions): Promise<void> {
  const config = readConfig();
  const store = openStore(options, config);
  try {
    const all = store.states();
    const traces = await statesInTraces(traceFolders(options, config));
    const shown = options.limit === undefined ? all : all.slice(-options.limit);
    const rows = shown.map((state) => ({
      ...state,
      time: new Date(state.at).toISOString(),
      roots: store.stateOf(state.digest).roots.map(({ path }) => path.toString()),
      traces: traces.get(state.digest)?.length ?? 0,
    }));
    await print(options.json, { store: store.dir, count: all.length, states: rows }, () =>
      rows.length === 0
        ? `no states in ${store.dir}\n`
        : listText(rows) + (rows.length < all.length ? `(the last ${rows.length} of ${all.length})\n` : ''),
    );
  } finally {
    store.close();
  }
}

function listText(
  rows: readonly (StateInfo & {
    readonly time: string;
    readonly roots: readonly string[];
    readonly traces: number;
  })[],
): string {
  const style = styleFor(readConfig());
  const width = Math.max(6, ...rows.map(({ traces }) => String(traces).length));
  const head = `${'state'.padEnd(12)}  ${'time'.padEnd(24)}  ${'traces'.padStart(width)}  workspace\n`;
  const lines = rows.map(
    ({ digest, time, traces, roots }) =>
      `${short(digest)}  ${time}  ${String(traces).padStart(width)}  ${roots.map(printable).join(', ')}\n`,
  );
  return style.dim(head) + lines.join('');
}

interface DiffOptions extends StoreOptions {
  readonly names?: boolean;
  readonly times?: boolean;
}

async function diff(from: string, to: string | undefined, options: DiffOptions): Promise<void> {
  if (options.names && options.json) throw usage('--names is for reading; --json has everything');
  const config = readConfig();
  const store = openStore(options, config);
  try {
    const before = stateNamed(store, from);
    const after = to === undefined ? undefined : stateNamed(store, to);
    let roots: StateDifference[];
    try {
      roots = after === undefined ? diffWithDisk(store, before) : diffStates(store, before, after);
    } catch (error) {
      throw told(error);
    }
    const counted = roots.flatMap(({ differences }) =>
      options.times === true ? differences : differences.filter((each) => !onlyTimes(each)),
    );
    process.exitCode = counted.length > 0 ? EXIT.bad : EXIT.good;
    const shown = { from: before, to: after, roots, times: options.times === true };
    await print(options.json, diffDocument(shown), () =>
      diffText(shown, store, styleFor(config), options.names === true),
    );
  } finally {
    store.close();
  }
}

interface RestoreCommandOptions extends StoreOptions {
  readonly root?: string[];
  readonly inside?: boolean;
}

async function restoreCommand(name: string, into: string, options: RestoreCommandOptions): Promise<void> {
  const store = openStore(options, readConfig());
  const progress = new ProgressLine(options.json);
  const stop = new AbortController();
  const onSignal = (): void =>
    stop.abort(new CliError(EXIT.unavailable, 'stopped', 'stopped; nothing was left'));
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, onSignal);
  try {
    const digest = stateNamed(store, name);
    const restored = await restore(store, digest, into, {
      ...(options.root === undefined
        ? {}
        : { roots: options.root.map((root) => Buffer.from(resolve(root))) }),
      insideSource: options.inside === true,
      signal: stop.signal,
      onProgress: ({ phase, done, total }) => progress.show(phase, done, total),
    });
    progress.end();
    await print(options.json, restoredDocument(restored), () => restoredText(restored));
  } catch (error) {
    progress.end();
    throw told(error);
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.removeListener(signal, onSignal);
    store.close();
  }
}

const restoredDocument = ({ digest, roots, gaps }: Restored): unknown => ({
  digest,
  roots: roots.map(({ from, at, entries, bytes }) => ({
    from: from.toString(),
    at: at.toString(),
    entries,
    bytes,
  })),
  gaps: gaps.map(({ gap, paths, example }) => ({ gap, paths, example: example.toString() })),
});

function restoredText({ digest, roots, gaps }: Restored): string {
  const lines = roots.map(
    ({ from, at, entries, bytes }) =>
      `${printable(at.toString())}  is ${printable(from.toString())} as it was: ${entries} entries, ${bytes} bytes\n`,
  );
  const missing = gaps.map(
    ({ gap, paths, example }) =>
      `not restored: ${gap} of ${paths} paths, ${printable(example.toString())} among them\n`,
  );
  return `${short(digest)} restored and checked\n${lines.join('')}${missing.join('')}`;
}

async function verify(names: string[], options: StoreOptions): Promise<void> {
  const store = openStore(options, readConfig());
  const progress = new ProgressLine(options.json);
  try {
    const digests =
      names.length === 0
        ? store.states().map(({ digest }) => digest)
        : names.map((name) => stateNamed(store, name));
    const checked: CheckedState[] = [];
    for (const state of checkStates(store, digests)) {
      checked.push(state);
      progress.show('checked', checked.length, digests.length);
    }
    progress.end();
    const bad = checked.filter(({ problem }) => problem !== undefined);
    process.exitCode = bad.length > 0 ? EXIT.bad : EXIT.good;
    const style = styleFor(readConfig());
    await print(
      options.json,
      { store: store.dir, states: checked.length, damaged: bad.length, results: checked },
      () =>
        bad
          .map(
            ({ digest, problem }) =>
              `${style.bad('DAMAGED')} ${short(digest)}  ${printable(problem?.detail ?? '')}\n`,
          )
          .join('') +
        (bad.length === 0
          ? `${style.good('whole')}: ${checked.length} states, every content read\n`
          : `${bad.length} of ${checked.length} states are damaged\n`),
    );
  } finally {
    progress.end();
    store.close();
  }
}

interface GcCommandOptions extends StoreOptions {
  readonly keep?: string[];
  readonly days: number;
  readonly traces?: string[];
  readonly dryRun?: boolean;
}

async function gcCommand(options: GcCommandOptions): Promise<void> {
  const config = readConfig();
  const store = openStore(options, config);
  const { dir } = store;
  let named: string[];
  try {
    named = (options.keep ?? []).map((name) => stateNamed(store, name));
  } finally {
    store.close();
  }
  const referred = [...(await statesInTraces(traceFolders(options, config))).keys()];
  const progress = new ProgressLine(options.json);
  let report: GcReport;
  try {
    report = gc(dir, {
      keep: new Set([...named, ...referred]),
      newerThan: Date.now() - options.days * 24 * 3_600_000,
      dryRun: options.dryRun === true,
      onProgress: ({ phase, done, total }) => progress.show(phase, done, total),
    });
  } catch (error) {
    throw told(error);
  } finally {
    progress.end();
  }
  process.exitCode = report.damaged.length > 0 ? EXIT.bad : EXIT.good;
  const { missing, ...rest } = report;
  const document = {
    store: dir,
    dryRun: options.dryRun === true,
    referred: referred.length,
    missing: missing.length,
    ...rest,
  };
  await print(options.json, document, () => gcText(report, options));
}

function gcText(
  { states, bytes, writers, missing, damaged }: GcReport,
  { dryRun }: GcCommandOptions,
): string {
  const style = styleFor(readConfig());
  const lines = [
    `${dryRun === true ? 'would keep' : 'kept'} ${states.kept} states, ${dryRun === true ? 'drop' : 'dropped'} ${states.dropped}`,
    `${sizeText(bytes.before - bytes.after)} of ${sizeText(bytes.before)} ${dryRun === true ? 'would be' : 'were'} given back`,
    ...writers.map(({ pid, bytes: own }) => `${sizeText(own)} stay with process ${pid}, which is writing`),
  ];
  if (missing.length > 0) lines.push(`${missing.length} states that traces name are in no store here`);
  for (const each of damaged) lines.push(`${style.bad('DAMAGED')} content ${each}; its file was left alone`);
  return lines.map((line) => `${line}\n`).join('');
}

function sizeText(bytes: number): string {
  if (bytes < 10_000) return `${Math.max(bytes, 0)} bytes`;
  return bytes < 10_000_000 ? `${Math.round(bytes / 1000)} kB` : `${Math.round(bytes / 1_000_000)} MB`;
}

/** Where traces are that name states: what they name is kept. */
function traceFolders(
  { traces, state }: StoreOptions & { readonly traces?: string[] },
  config: CliConfig,
): string[] {
  const usual =
    state === undefined ? (config.traceDir ?? join(config.state, 'traces')) : join(state, 'traces');
  return [usual, ...(traces ?? [])].map((folder) => resolve(folder));
}

function days(text: string): number {
  const value = Number(text);
  if (!/^\d+(\.\d+)?$/.test(text) || value > 36_500) throw new InvalidArgumentError('days, 0 to 36500.');
  return value;
}

function count(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1) throw new InvalidArgumentError('a number from 1.');
  return value;
}

const more = (value: string, before: string[] = []): string[] => [...before, value];

const storeOptions = (command: Command): Command =>
  command
    .option('--store <dir>', 'where the states are (BELAY_SNAPSHOT_DIR, else in the state folder)')
    .option('--state <dir>', 'state folder (BELAY_STATE)')
    .option('--json', 'print one JSON document');

const tracesOption = (): Option =>
  new Option(
    '--traces <dir>',
    'another folder of traces; repeatable (the usual one always counts)',
  ).argParser(more);

export function register(program: Command): void {
  const snapshot = program
    .command('snapshot')
    .description('states of the workspace: list, compare, restore, check, tidy up')
    .addHelpText('after', '\nA STATE is its digest, the first six hex digits of it or more, or `latest`.');
  storeOptions(snapshot.command('list'))
    .description('the states there are, the newest last, and how many traces name each')
    .option('--limit <n>', 'only the newest', count)
    .addOption(tracesOption())
    .action(list);
  storeOptions(snapshot.command('diff'))
    .description('what changed from a state to another, or to what is there now; exit code 1: something did')
    .argument('<from>', 'a STATE')
    .argument('[to]', 'a STATE (default: the workspace as it is; it is only read)')
    .option('--names', 'paths only, no lines of text')
    .option('--times', 'count and show what differs in nothing but its time of modification')
    .action(diff);
  storeOptions(snapshot.command('restore'))
    .description('a state as a tree again, in a new folder, checked; the workspace is never written to')
    .argument('<state>', 'a STATE')
    .argument('<dir>', 'a folder that is missing or empty; several roots go into DIR/0, DIR/1 ...')
    .option('--root <path>', 'only this one of the roots; repeatable', more)
    .option('--inside', 'allow a DIR that lies in the workspace')
    .action(restoreCommand);
  storeOptions(snapshot.command('verify'))
    .description('read states and every content they have, and take all digests anew')
    .argument('[states...]', 'STATEs (default: all)')
    .action(verify);
  storeOptions(snapshot.command('gc'))
    .description('give back the room of states that no trace names and that are old')
    .option('--keep <state>', 'keep this STATE too; repeatable', more)
    .option('--days <n>', 'keep what is newer than this', days, 7)
    .addOption(tracesOption())
    .option('--dry-run', 'say what would be done')
    .action(gcCommand);
}
