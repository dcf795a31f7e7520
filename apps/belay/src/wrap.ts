/** `belay wrap` and `belay unwrap`: the proxy in front of the MCP servers of a client's configuration, and away again. */

import { homedir } from 'node:os';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Command, Option } from 'commander';
import {
  configuredServers,
  type ConfiguredServer,
  type Plan,
  planUnwrap,
  planWrap,
  samePath,
} from './client-config.js';
import {
  type ConfigFile,
  deleteWrapRecord,
  readConfigFile,
  readWrapRecord,
  replaceConfigFile,
  sha256,
  type WrapRecord,
  writeWrapRecord,
} from './config-file.js';
import { type Client, CLIENTS, configPlaces } from './config-places.js';
import { readConfig } from './config.js';
import { badInput, CliError, EXIT, unavailable, usage } from './exit.js';
import { JsoncError } from './jsonc.js';
import { columns, print, printable, type Style, styleFor } from './output.js';
import { unifiedDiff } from './text-diff.js';

/** What became of a server: changed, or why it was left. */
type Outcome = 'wrapped' | 'unwrapped' | 'already' | 'not_wrapped' | 'remote' | 'not_ours' | 'unreadable';

interface ServerReport {
  readonly server: string;
  /** Keys from the top of the document. */
  readonly path: readonly string[];
  readonly outcome: Outcome | 'stdio';
  readonly why?: string;
}

interface FileReport {
  readonly file: string;
  readonly changed: boolean;
  readonly servers: readonly ServerReport[];
  /** Of `unwrap`: whether the file is the original again byte for byte, or only our edits in it were undone. */
  readonly restored?: 'exact' | 'edits';
  readonly diff?: string;
}

interface Options {
  readonly client?: Client[];
  readonly all?: boolean;
  readonly list?: boolean;
  readonly server?: string[];
  readonly sink: string;
  readonly byName?: boolean;
  readonly force?: boolean;
  readonly dryRun?: boolean;
  readonly state?: string;
  readonly json?: boolean;
}

/** A client writes its file while we look at it: read again and tried again this often. */
const ATTEMPTS = 5;
const SINK = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

const BELAY = fileURLToPath(new URL('../bin/belay.js', import.meta.url));

/** The files to work on: those named, or those that exist among the places of the clients asked for. */
async function chosen(files: readonly string[], options: Options): Promise<ConfigFile[]> {
  const ways = [files.length > 0, options.client !== undefined, options.all === true].filter(Boolean).length;
  if (ways > 1) throw usage('one of FILE, --client and --all');
  if (files.length > 0) {
    const named: ConfigFile[] = [];
    for (const path of files) {
      const file = await readConfigFile(path);
      if (file === undefined) throw badInput('enoent', `${path}: no such file`);
      if (named.every((other) => other.path !== file.path)) named.push(file);
    }
    return named;
  }
  const places = configPlaces({
    platform: process.platform,
    home: homedir(),
    cwd: process.cwd(),
    environment: readConfig().environment,
  }).filter(({ client }) => options.client?.includes(client) ?? true);
  const found: ConfigFile[] = [];
  for (const { path } of places) {
    const file = await readConfigFile(path);
    if (file !== undefined && found.every((other) => other.path !== file.path)) found.push(file);
  }
  if (ways === 0 && options.list !== true) {
    const hint = found.map(({ path }) => `\n    ${path}`).join('');
    throw usage(
      'which configuration? Name a FILE, a --client, or --all',
      found.length === 0 ? 'None was found in the usual places.' : `Found:${hint}`,
    );
  }
  if (found.length === 0) {
    const looked = places.map(({ path }) => `\n    ${path}`).join('');
    throw badInput('no_config', 'there is no configuration file', `Looked at:${looked}`);
  }
  return found;
}

/** JSON errors are the file's, told with its name. */
function inFile<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof JsoncError)) throw error;
    throw badInput('not_json', `${path}: ${error.message}`, undefined, error);
  }
}

const displayName = ({ path, name }: ConfiguredServer): string =>
  path[0] === 'projects' ? `${name} (${path[1] ?? ''})` : name;

function asked(options: Options): (server: ConfiguredServer) => boolean {
  const { server: names } = options;
  return names === undefined ? () => true : ({ name }) => names.includes(name);
}

/** Everything that was in the way of what was asked: named servers that are in none of the files. */
function refuseUnknown(options: Options, files: readonly ConfigFile[]): void {
  const known = files.flatMap((file) => inFile(file.path, () => configuredServers(file.text)));
  for (const name of options.server ?? []) {
    if (known.every((server) => server.name !== name)) {
      const names = [...new Set(known.map((server) => printable(server.name)))].join(', ');
      throw badInput('no_server', `there is no server ${printable(name)}`, `There are: ${names || 'none'}.`);
    }
  }
  if (known.length === 0) {
    const where = files.map(({ path }) => path).join(', ');
    throw badInput('no_servers', `no MCP servers in ${where}`);
  }
}

/** The file as it would be without us: the original itself while nobody touched the file, else our edits undone. */
function withoutUs(file: ConfigFile, record: WrapRecord): string {
  if (file.sha256 === record.wrapped) return record.original;
  return planUnwrap(file.text, isIn(record.servers), record.argsAdded).text;
}

const isIn =
  (paths: readonly (readonly string[])[]) =>
  ({ path }: ConfiguredServer): boolean =>
    paths.some((each) => samePath(each, path));

/** The command that goes in front. It names nothing of one session: the same file serves every run. */
function launcherOf(options: Options): (server: ConfiguredServer) => [string, ...string[]] {
  const literal = options.sink.replaceAll('{server}', 'server');
  if (!SINK.test(literal)) throw usage(`--sink ${options.sink}: not a name of a sink`);
  const program: [string, ...string[]] = options.byName ? ['belay'] : [process.execPath, BELAY];
  const state = options.state === undefined ? [] : ['--state', resolve(options.state)];
  return ({ name }) => {
    const clean = name.replaceAll(/[^A-Za-z0-9._-]+/g, '-').replace(/^[^A-Za-z0-9]+/, '') || 'server';
    const sink = options.sink.replaceAll('{server}', clean).slice(0, 64);
    return [...program, 'proxy', '--sink', sink, ...state, '--'];
  };
}

async function wrapFile(given: ConfigFile, state: string, options: Options): Promise<FileReport> {
  const launcher = launcherOf(options);
  return await changing(given, options, async (file) => {
    const plan = inFile(file.path, () => planWrap(file.text, launcher, asked(options)));
    const report = reportOf(file, plan, options, ({ path, state: was, why }) => {
      if (plan.changed.some((server) => samePath(server.path, path))) return { outcome: 'wrapped' };
      if (was === 'wrapped') return { outcome: 'already' };
      return { outcome: was, ...(why === undefined ? {} : { why }) };
    });
    if (!report.changed) return { report };
    const before = await readWrapRecord(state, file.path);
    const record: WrapRecord = {
      v: 1,
      path: file.path,
      time: new Date().toISOString(),
      wrapped: sha256(plan.text),
      original: before === undefined ? file.text : withoutUs(file, before),
      servers: [...(before?.servers ?? []), ...plan.changed.map(({ path }) => path)],
      argsAdded: [...(before?.argsAdded ?? []), ...plan.argsAdded],
    };
    // The record comes first: a crash before the file is replaced leaves a record of edits that are not there, which
    // `unwrap` finds nothing of; the other way round there would be edits that nobody remembers.
    return { report, text: plan.text, before: () => writeWrapRecord(state, record) };
  });
}

async function unwrapFile(given: ConfigFile, state: string, options: Options): Promise<FileReport> {
  return await changing(given, options, async (file) => {
    const record = await readWrapRecord(state, file.path);
    const ours = (server: ConfiguredServer): boolean =>
      options.force === true || (record !== undefined && isIn(record.servers)(server));
    const wanted = (server: ConfiguredServer): boolean => ours(server) && asked(options)(server);
    const byEdits = inFile(file.path, () => planUnwrap(file.text, wanted, record?.argsAdded ?? []));
    const remaining = (record?.servers ?? []).filter(
      (path) =>
        options.server !== undefined && byEdits.changed.every((server) => !samePath(server.path, path)),
    );
    const exact = record !== undefined && remaining.length === 0 && file.sha256 === record.wrapped;
    const plan = exact ? { ...byEdits, text: record.original } : byEdits;
    const report = reportOf(file, plan, options, (server) => {
      const { path, state: was, why } = server;
      if (plan.changed.some((each) => samePath(each.path, path))) return { outcome: 'unwrapped' };
      if (was === 'wrapped') return ours(server) ? { outcome: 'already' } : { outcome: 'not_ours' };
      if (was === 'stdio') return { outcome: 'not_wrapped' };
      return { outcome: was, ...(why === undefined ? {} : { why }) };
    });
    const forget = async (): Promise<void> => {
      if (record === undefined) return;
      if (remaining.length === 0) return await deleteWrapRecord(state, file.path);
      const original = withoutUs(file, record);
      await writeWrapRecord(state, { ...record, original, wrapped: sha256(plan.text), servers: remaining });
    };
    if (!report.changed) return { report, after: forget };
    // The record goes last: a crash before leaves a record of edits that are gone, and nothing lost.
    return { report: { ...report, restored: exact ? 'exact' : 'edits' }, text: plan.text, after: forget };
  });
}

interface Change {
  readonly report: FileReport;
  /** What the file becomes; absent when it stays. */
  readonly text?: string;
  readonly before?: () => Promise<void>;
  readonly after?: () => Promise<void>;
}

/** Plans a change and carries it out, again from the start when the file was written by somebody else meanwhile. */
async function changing(
  given: ConfigFile,
  options: Options,
  plan: (file: ConfigFile) => Promise<Change>,
): Promise<FileReport> {
  let file = given;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const { report, text, before, after } = await plan(file);
    if (options.dryRun) return report;
    await before?.();
    if (text === undefined || (await replaceConfigFile(file, text))) {
      await after?.();
      return report;
    }
    const now = await readConfigFile(file.path);
    if (now === undefined) break;
    file = now;
  }
  throw unavailable(
    'busy',
    `${given.path} keeps changing`,
    'Close the client that it belongs to and try again.',
  );
}

function reportOf(
  file: ConfigFile,
  plan: Plan,
  options: Options,
  outcomeOf: (server: ConfiguredServer) => Pick<ServerReport, 'outcome' | 'why'>,
): FileReport {
  const wanted = asked(options);
  return {
    file: file.path,
    changed: plan.text !== file.text,
    servers: configuredServers(file.text)
      .filter(wanted)
      .map((server) => ({ server: displayName(server), path: server.path, ...outcomeOf(server) })),
    ...(options.dryRun ? { diff: unifiedDiff(file.path, file.text, plan.text) } : {}),
  };
}

const WORDS: Readonly<Record<ServerReport['outcome'], string>> = {
  stdio: 'not wrapped',
  wrapped: 'wrapped',
  unwrapped: 'unwrapped',
  already: 'is wrapped already',
  not_wrapped: 'is not wrapped',
  remote: 'left alone: reached by a URL, not started by a command',
  not_ours: 'left alone: no record says that we wrapped it (--force takes it off all the same)',
  unreadable: 'left alone',
};

function pageOf(
  reports: readonly FileReport[],
  warnings: readonly string[],
  options: Options,
  style: Style,
): string {
  const parts = reports.map(({ file, changed, servers, restored, diff }) => {
    if (diff !== undefined && diff !== '') {
      return diff
        .split('\n')
        .map((line) => {
          const shown = printable(line);
          return line.startsWith('+') ? style.good(shown) : line.startsWith('-') ? style.bad(shown) : shown;
        })
        .join('\n');
    }
    const rows = servers.map(({ server, outcome, why }): [string, string] => [
      printable(server),
      why === undefined ? WORDS[outcome] : `${WORDS[outcome]}: ${why}`,
    ]);
    const end =
      restored === 'exact'
        ? '  The file is byte for byte what it was.\n'
        : restored === 'edits'
          ? '  The file was changed since; only our own edits were undone.\n'
          : !changed && options.list !== true
            ? '  Nothing to change.\n'
            : '';
    return `${style.bold(file)}\n${columns(rows, '  ')}${end}`;
  });
  return parts.join('\n') + warnings.map((each) => `${style.warn('note')}  ${each}\n`).join('');
}

async function finish(
  reports: readonly FileReport[],
  warnings: readonly string[],
  options: Options,
): Promise<void> {
  await print(options.json, { dryRun: options.dryRun === true, files: reports, warnings }, () =>
    pageOf(reports, warnings, options, styleFor(readConfig())),
  );
}

function listed(files: readonly ConfigFile[], options: Options): FileReport[] {
  return files.map((file) => ({
    file: file.path,
    changed: false,
    servers: inFile(file.path, () => configuredServers(file.text))
      .filter(asked(options))
      .map((server) => ({
        server: displayName(server),
        path: server.path,
        outcome: server.state,
        ...(server.why === undefined ? {} : { why: server.why }),
      })),
  }));
}

/** Every file gets its turn; the first failure is the answer, after what succeeded was told. */
async function each(
  files: readonly ConfigFile[],
  options: Options,
  work: (file: ConfigFile) => Promise<FileReport>,
  warningsOf: (reports: readonly FileReport[]) => readonly string[],
): Promise<readonly FileReport[]> {
  const reports: FileReport[] = [];
  let failure: unknown;
  for (const file of files) {
    try {
      reports.push(await work(file));
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      failure ??= error;
    }
  }
  if (reports.length > 0 && (failure === undefined || !options.json))
    await finish(reports, warningsOf(reports), options);
  if (failure !== undefined) throw failure as Error;
  return reports;
}

async function wrap(paths: string[], options: Options): Promise<void> {
  const files = await chosen(paths, options);
  if (options.list) return await finish(listed(files, options), [], options);
  refuseUnknown(options, files);
  const state = options.state ?? readConfig().state;
  const warningsOf = (reports: readonly FileReport[]): string[] => [
    ...(/[\\/]_npx[\\/]/.test(BELAY) && !options.byName
      ? ['belay runs from the cache of npx, which is emptied at times: install it, then wrap again']
      : []),
    ...(reports.some(({ changed }) => changed) && !options.dryRun
      ? ['clients read their configuration when they start: restart the client']
      : []),
  ];
  await each(files, options, (file) => wrapFile(file, state, options), warningsOf);
}

async function unwrap(paths: string[], options: Options): Promise<void> {
  const files = await chosen(paths, options);
  const state = options.state ?? readConfig().state;
  if (options.server !== undefined) refuseUnknown(options, files);
  const reports = await each(
    files,
    options,
    (file) => unwrapFile(file, state, options),
    () => [],
  );
  const left = reports.some(({ servers }) =>
    servers.some(({ outcome }) => outcome === 'not_ours' || (outcome === 'already' && !options.dryRun)),
  );
  process.exitCode = left ? EXIT.bad : EXIT.good;
}

const shared = (command: Command): Command =>
  command
    .argument('[file...]', 'configuration files of MCP clients')
    .addOption(
      new Option('--client <name...>', 'the files of these clients, where they are').choices(CLIENTS),
    )
    .option('--all', 'every configuration file in a known place')
    .option('--server <name...>', 'only these servers (default: all)')
    .option('--dry-run', 'change nothing, print what would change')
    .option('--state <dir>', 'state directory, also that of the proxies when it is given (BELAY_STATE)')
    .option('--json', 'print one JSON document');

export function register(program: Command): void {
  shared(program.command('wrap'))
    .description("put `belay proxy` in front of the MCP servers of a client's configuration")
    .option('--list', 'show configurations and their servers, change nothing')
    .option('--sink <name>', 'sink they record as; {server} stands for the name of each', 'proxy')
    .option(
      '--by-name',
      'write `belay`, found by PATH, in place of absolute paths: for a file that is shared',
    )
    .addHelpText(
      'after',
      '\nServers that are reached by a URL are left alone and named. Comments and layout are kept, wrapping twice\n' +
        'changes nothing, and `belay unwrap` gives back the file byte for byte unless it was changed meanwhile:\n' +
        'then only what we put in is taken out. Close the client first when it keeps other things in the file.',
    )
    .action(wrap);
  shared(program.command('unwrap'))
    .description('take `belay proxy` away again')
    .option('--force', 'also from servers that no record of ours speaks of')
    .addHelpText('after', '\nExit 1: a server is still behind `belay proxy`.')
    .action(unwrap);
}
