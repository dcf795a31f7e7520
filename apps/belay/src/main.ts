/**
 * The `belay` command. A command's module is loaded only when that command is run: `belay proxy` stands in front of
 * every MCP server an agent starts, and must not pay for Nest, PostgreSQL or the administrator's commands.
 */

import { Command, CommanderError } from 'commander';
import { readConfig } from './config.js';
import { CliError, EXIT } from './exit.js';
import { writeOut } from './output.js';

interface Entry {
  readonly description: string;
  readonly load: () => Promise<{ readonly register: (program: Command) => void }>;
}

/** By what a person is about; in the order of the work. */
const GROUPS: Readonly<Record<string, Readonly<Record<string, Entry>>>> = {
  'Record:': {
    proxy: {
      description: 'run an MCP server behind a transparent, recording proxy',
      load: () => import('./proxy.js'),
    },
    wrap: {
      description: "put `belay proxy` in front of the MCP servers of a client's configuration",
      load: () => import('./wrap.js'),
    },
    unwrap: { description: 'take `belay proxy` away again', load: () => import('./wrap.js') },
    hook: {
      description: "record an agent's hook event; install|uninstall the hook",
      load: () => import('./hook-command.js'),
    },
    otlp: {
      description: 'receive OpenTelemetry spans and log records of an agent, as commitments',
      load: () => import('./otlp.js'),
    },
    forward: {
      description: 'stream events from a file or standard input to the log, as commitments',
      load: () => import('./forward.js'),
    },
    claim: {
      description: 'put on record what an agent says it has done',
      load: () => import('./claim.js'),
    },
    login: {
      description: 'store an append token and the address of its service',
      load: () => import('./login.js'),
    },
    status: {
      description: 'what is spooled, acknowledged, refused, dropped',
      load: () => import('./status.js'),
    },
  },
  'Contain:': {
    sandbox: {
      description: 'prove the boundary that MCP servers run in',
      load: () => import('./sandbox.js'),
    },
    snapshot: {
      description: 'states of the workspace: list, compare, restore, check, tidy up',
      load: () => import('./snapshot.js'),
    },
  },
  'Judge:': {
    verify: {
      description: 'judge traces by running them again',
      load: () => import('./verify.js'),
    },
    check: {
      description: 'judge traces for a CI job: one line, one exit code',
      load: () => import('./check.js'),
    },
    replay: {
      description: 'run the calls of traces again and say which could be; nothing is judged',
      load: () => import('./replay.js'),
    },
    policy: {
      description: "check the operator's policy file, and say what its rules protect",
      load: () => import('./policy.js'),
    },
    trace: { description: 'read, check, export and import local records', load: () => import('./trace.js') },
  },
  'Prove:': {
    sessions: {
      description: 'what sessions have come to: affirmed, violated, incomplete ...',
      load: () => import('./sessions.js'),
    },
    label: {
      description: 'say of a session or a call that it was violated, or was not',
      load: () => import('./label.js'),
    },
    receipt: {
      description: 'get, verify and read receipts; verify exports',
      load: () => import('./receipt.js'),
    },
    export: {
      description: 'evidence in one file for somebody without access: create, list, download',
      load: () => import('./export.js'),
    },
    log: {
      description: 'checkpoint, proofs, verification and whole-log check',
      load: () => import('./log.js'),
    },
    reveal: {
      description: 'open one commitment for an auditor, or check an opening',
      load: () => import('./reveal.js'),
    },
  },
  'Administer:': {
    project: { description: 'register a project; its policy', load: () => import('./admin.js') },
    token: { description: 'issue, list and revoke append tokens', load: () => import('./admin.js') },
    auditor: { description: 'issue a key that may read a project', load: () => import('./admin.js') },
    sink: {
      description: 'declare a sink: its key, trust domain, heartbeat',
      load: () => import('./admin.js'),
    },
    webhook: {
      description: 'be told when a session settles: add, list, remove, deliveries',
      load: () => import('./webhook.js'),
    },
    tenant: { description: 'create a tenant (operator)', load: () => import('./admin.js') },
    operator: {
      description: 'replace a lost operator key, on the machine of the service',
      load: () => import('./operator.js'),
    },
    serve: {
      description: 'run the whole service in one process',
      load: () => import('./serve-command.js'),
    },
  },
};
const COMMANDS: Readonly<Record<string, Entry>> = Object.assign({}, ...Object.values(GROUPS));

const VERSION = '0.1.0';
/** Help goes the way of all other output, which survives a reader that leaves. */
const OUTPUT = { writeOut: (text: string): void => void writeOut(text) };

function programWithout(loaded: string | undefined): Command {
  const program = new Command('belay')
    .description('Record what an agent did where its machine cannot rewrite it, and prove it later.')
    .version(VERSION)
    .exitOverride()
    .configureOutput(OUTPUT)
    .configureHelp({ showGlobalOptions: true })
    .enablePositionalOptions()
    .addHelpText(
      'after',
      '\nExit codes: 0 good, 1 bad, 2 undecided, 64 usage, 65 bad input, 69 unavailable, 70 our fault.',
    );
  for (const [group, commands] of Object.entries(GROUPS)) {
    for (const [name, { description }] of Object.entries(commands)) {
      if (name !== loaded) program.command(name).description(description).helpGroup(group);
    }
  }
  return program;
}

/**
 * Runs one command line (without `node` and the script) and returns its exit code. A command sets
 * `process.exitCode` for its answer and throws for a failure.
 */
export async function run(args: readonly string[]): Promise<number> {
  const [first] = args;
  const name = first !== undefined && Object.hasOwn(COMMANDS, first) ? first : undefined;
  const json = args.slice(0, indexOfSeparator(args)).includes('--json');
  try {
    if (name === undefined) {
      const program = programWithout(undefined);
      if (first === undefined) {
        await writeOut(program.helpInformation());
        return EXIT.usage;
      }
      // `belay help proxy` and `belay --help` are commander's; `help NAME` has to know NAME's options.
      if (first === 'help' && args[1] !== undefined) return await run([args[1], '--help']);
      await program.parseAsync(args, { from: 'user' });
      return EXIT.good;
    }
    const { register } = await (COMMANDS[name] as Entry).load();
    const program = new Command('belay')
      .version(VERSION)
      .enablePositionalOptions()
      .exitOverride()
      .configureOutput(OUTPUT);
    register(program);
    exitOverrideEverywhere(program);
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? EXIT.good);
  } catch (error) {
    return await report(error, json);
  }
}

/** What follows `--` belongs to somebody else's program. */
function indexOfSeparator(args: readonly string[]): number {
  const index = args.indexOf('--');
  return index === -1 ? args.length : index;
}

function exitOverrideEverywhere(command: Command): void {
  command.exitOverride();
  for (const each of command.commands) exitOverrideEverywhere(each);
}

async function report(error: unknown, json: boolean): Promise<number> {
  if (error instanceof CommanderError) {
    // Commander has printed its message or the help already; asking for help is no mistake.
    if (error.exitCode === 0) return EXIT.good;
    if (json) await writeOut(`${JSON.stringify({ error: { code: 'usage', message: error.message } })}\n`);
    return EXIT.usage;
  }
  const known = error instanceof CliError ? error : asCliError(error);
  if (json) {
    const { code, message, next } = known;
    await writeOut(
      `${JSON.stringify({ error: { code, message, ...(next === undefined ? {} : { next }) } })}\n`,
    );
  } else {
    process.stderr.write(`belay: ${known.message}\n${known.next === undefined ? '' : `  ${known.next}\n`}`);
  }
  if (readConfig().debug) process.stderr.write(`${(error as Error).stack ?? String(error)}\n`);
  return known.exit;
}

const SYSTEM_ERRORS: Readonly<Record<string, (path: string) => string>> = {
  ENOENT: (path) => `${path}: no such file or folder`,
  EACCES: (path) => `${path}: permission denied`,
  EISDIR: (path) => `${path} is a folder`,
  ENOSPC: (path) => `no space left for ${path}`,
};

/** Errors of the operating system that a person can act on are told as such; anything else is our fault. */
function asCliError(error: unknown): CliError {
  const { code, path, message } = error as NodeJS.ErrnoException;
  const told = code === undefined ? undefined : SYSTEM_ERRORS[code];
  if (told && path !== undefined) return new CliError(EXIT.badInput, String(code).toLowerCase(), told(path));
  return new CliError(
    EXIT.internal,
    'internal',
    `unexpected: ${message ?? String(error)}`,
    'This is a fault in belay. Run again with BELAY_DEBUG=1 for the trace.',
  );
}
