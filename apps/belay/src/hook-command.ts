/** `belay hook install|uninstall`: our command behind the events of Claude Code, and away again. */

import { mkdir, unlink, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Command, Option } from 'commander';
import {
  type ConfigFile,
  deleteWrapRecord,
  readConfigFile,
  readWrapRecord,
  replaceConfigFile,
  sha256,
  writeWrapRecord,
} from './config-file.js';
import { readConfig } from './config.js';
import { badInput, unavailable } from './exit.js';
import { HooksUnreadable, installedEvents, planInstall, planUninstall } from './hook-settings.js';
import { JsoncError } from './jsonc.js';
import { privacyOption, sinkName } from './option-values.js';
import { print, printable } from './output.js';
import type { Privacy } from './settings.js';
import { unifiedDiff } from './text-diff.js';

const SCOPES = ['user', 'project', 'local'] as const;
const BELAY = fileURLToPath(new URL('../bin/belay.js', import.meta.url));
/** The agent writes its settings at any moment: read again and tried again this often. */
const ATTEMPTS = 5;

interface Options {
  readonly scope: (typeof SCOPES)[number];
  readonly sink?: string;
  readonly state?: string;
  readonly privacy?: Privacy;
  readonly weakIds?: boolean;
  readonly byName?: boolean;
  readonly dryRun?: boolean;
  readonly json?: boolean;
}

function settingsPath(named: string | undefined, { scope }: Options): string {
  if (named !== undefined) return resolve(named);
  const home = readConfig().environment['CLAUDE_CONFIG_DIR'] || join(homedir(), '.claude');
  if (scope === 'user') return join(home, 'settings.json');
  return resolve('.claude', scope === 'project' ? 'settings.json' : 'settings.local.json');
}

/** For a shell: a word that has none of its characters, or quoted. */
const quoted = (word: string): string =>
  /^[A-Za-z0-9_./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

function commandOf(options: Options): string {
  const program = options.byName === true ? ['belay'] : [process.execPath, BELAY];
  const { sink, state, privacy, weakIds } = options;
  return [
    ...program,
    'hook',
    ...(sink === undefined ? [] : ['--sink', sink]),
    ...(state === undefined ? [] : ['--state', resolve(state)]),
    ...(privacy === undefined ? [] : ['--privacy', privacy]),
    ...(weakIds === true ? ['--weak-ids'] : []),
  ]
    .map(quoted)
    .join(' ');
}

function inFile<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof JsoncError) && !(error instanceof HooksUnreadable)) throw error;
    throw badInput('settings', `${path}: ${error.message}`, undefined, error);
  }
}

interface Change {
  readonly text: string;
  readonly events: readonly string[];
  readonly before?: () => Promise<void>;
  readonly after?: () => Promise<void>;
  /** The file was not there before us, and goes. */
  readonly remove?: boolean;
  readonly restored?: 'exact' | 'edits';
}

async function change(
  path: string,
  options: Options,
  plan: (file: ConfigFile | undefined) => Promise<Change>,
): Promise<void> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const file = await readConfigFile(path);
    const next = await plan(file);
    const before = file?.text ?? '';
    const changed = next.text !== before || next.remove === true;
    if (changed && options.dryRun !== true) {
      await next.before?.();
      if (file === undefined) {
        await mkdir(dirname(path), { recursive: true });
        await writeFile(path, next.text, { flag: 'wx', mode: 0o600 });
      } else if (next.remove === true) await unlink(file.path);
      else if (!(await replaceConfigFile(file, next.text))) continue;
      await next.after?.();
    }
    const { events, restored } = next;
    const diff = options.dryRun === true ? unifiedDiff(path, before, next.text) : undefined;
    await print(
      options.json,
      { file: path, changed, dryRun: options.dryRun === true, events, restored, diff },
      () =>
        diff === undefined
          ? `${path}\n  ${!changed ? 'Nothing to change.' : events.length === 0 ? 'Restored.' : events.join(', ')}\n`
          : diff
              .split('\n')
              .map((line) => printable(line))
              .join('\n'),
    );
    return;
  }
  throw unavailable('busy', `${path} keeps changing`, 'Close the agent that it belongs to and try again.');
}

async function install(named: string | undefined, options: Options): Promise<void> {
  const path = settingsPath(named, options);
  const state = options.state ?? readConfig().state;
  await change(path, options, async (file) => {
    const text = file?.text ?? '{}\n';
    const plan = inFile(path, () => planInstall(text, commandOf(options)));
    if (plan.events.length === 0) return { text: file?.text ?? '', events: [] };
    const real = file?.path ?? path;
    const known = file === undefined ? undefined : await readWrapRecord(state, real);
    // Of an earlier installation that is still there: the original is what was before that one.
    const kept = known !== undefined && known.wrapped === file?.sha256 ? known : undefined;
    const made = [...(known?.argsAdded ?? []), ...plan.made];
    const original =
      kept?.original ??
      (known === undefined ? (file?.text ?? '') : inFile(path, () => planUninstall(text, made).text));
    const record = {
      v: 1,
      path: real,
      time: new Date().toISOString(),
      wrapped: sha256(plan.text),
      original,
      servers: plan.events.map((event) => ['hooks', event]),
      argsAdded: made,
    } as const;
    // The record comes first: a crash in between leaves a record of edits that are not there.
    return { text: plan.text, events: plan.events, before: () => writeWrapRecord(state, record) };
  });
}

async function uninstall(named: string | undefined, options: Options): Promise<void> {
  const path = settingsPath(named, options);
  const state = options.state ?? readConfig().state;
  await change(path, options, async (file) => {
    if (file === undefined) throw badInput('enoent', `${path}: no such file`);
    const record = await readWrapRecord(state, file.path);
    const after = (): Promise<void> => deleteWrapRecord(state, file.path);
    if (record !== undefined && record.wrapped === file.sha256) {
      const events = inFile(path, () => installedEvents(file.text));
      return { text: record.original, events, after, remove: record.original === '', restored: 'exact' };
    }
    const plan = inFile(path, () => planUninstall(file.text, record?.argsAdded ?? []));
    return { text: plan.text, events: plan.events, after, restored: 'edits' };
  });
}

export function register(program: Command): void {
  const hook = program
    .command('hook')
    .description("record an agent's hook event from standard input; put the hook into its settings")
    .addHelpText(
      'after',
      `
Without a subcommand: reads one event (JSON on standard input, as Claude Code writes it), records it, ends with 0 and
says nothing, whatever happens. --sink NAME, --state DIR, --trace DIR, --agent NAME, --privacy POLICY, and --weak-ids
for agents whose ids of calls do not reach the MCP servers.`,
    );
  hook
    .command('event', { isDefault: true, hidden: true })
    .allowUnknownOption()
    .allowExcessArguments()
    .action(async (_options: unknown, command: Command) => {
      const { runHook } = await import('./hook.js');
      await runHook(command.args);
    });
  const shared = (command: Command): Command =>
    command
      .argument('[file]', 'a settings file of Claude Code, in place of --scope')
      .addOption(new Option('--scope <scope>', 'whose settings').choices(SCOPES).default('user'))
      .option('--dry-run', 'change nothing, print what would change')
      .option('--state <dir>', 'state directory (BELAY_STATE)')
      .option('--json', 'print one JSON document');
  shared(hook.command('install'))
    .description('put `belay hook` behind the events of Claude Code')
    .option('--sink <name>', 'name of the sink', sinkName)
    .addOption(privacyOption())
    .option(
      '--weak-ids',
      "the agent's ids of calls do not reach the MCP servers: recognise calls by what they are",
    )
    .option(
      '--by-name',
      'write `belay`, found by PATH, in place of absolute paths: for a file that is shared',
    )
    .addHelpText(
      'after',
      '\n`belay hook uninstall` gives the file back byte for byte unless it was changed meanwhile.',
    )
    .action(install);
  shared(hook.command('uninstall')).description('take `belay hook` away again').action(uninstall);
}
