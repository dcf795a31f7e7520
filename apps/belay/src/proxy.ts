/** `belay proxy`: one MCP server over stdio, verbatim, on record. */

import { readFileSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { setDefaultHighWaterMark } from 'node:stream';
import type { Command } from 'commander';
import { ATTEST_FIRST } from './attest-first.js';
import { compileEarly } from './compile-early.js';
import { type CliConfig, readConfig } from './config.js';
import { environmentDigests } from './environment.js';
import { usage } from './exit.js';
import { type GatedHooks, type GatedLane, gatedRelay } from './gated-relay.js';
import {
  type LoginOptions,
  loginOptions,
  milliseconds,
  privacyOption,
  seconds,
  sinkName,
  withLogin,
} from './option-values.js';
import { resolveRunner } from './package-runner.js';
import { DigestCache, digestsPath, type FileIdentity, identify } from './provenance.js';
import type { Recorder } from './recorder.js';
import { Recording } from './recording.js';
import { BEHIND, relay, StandardError, standardOutput } from './relay.js';
import { type SandboxChoice, sandboxOptions, wantsBoundary } from './sandbox-options.js';
import type { Privacy } from './settings.js';
import { exitCodeOf, resolveProgram, type ServerEnd, ServerProcess, StartError } from './server-process.js';
import type { TurnGate } from './turn-gate.js';
import { windowsCommand, type WindowsFiles } from './windows-command.js';

/** Our own secrets; the server has no use for them. Everything else of the environment is passed on. */
const WITHHELD = ['BELAY_TOKEN', 'BELAY_ADMIN_KEY', 'BELAY_OPERATOR_KEY', 'BELAY_AUDITOR_KEY'];
/** How long a server may go on after the client closed its input: per last sign of life, in milliseconds. */
const IDLE_GRACE = 5_000;
const ANSWERING_GRACE = 60_000;
/** From a signal to our own exit when the server is gone. */
const LAST_WORDS = 500;
/** How long the digest of the executable is waited for when all else is done, milliseconds. */
const LATE_DIGEST = 500;
/** A client that is gone is owed nothing. */
const GONE_GRACE = 1_000;
/** How long the look at the whole workspace may take when the server is gone. */
const LAST_LOOK = 10_000;

const FILES: WindowsFiles = {
  isFile: (path) => statSync(path, { throwIfNoEntry: false })?.isFile() ?? false,
  read: (path) => readFileSync(path, 'utf8'),
};

interface ProxyOptions extends LoginOptions, SandboxChoice {
  readonly workspace?: string[];
  readonly ignore?: string[];
  readonly snapshots?: string | false;
  readonly holdLimit?: number;
  /** `true`: for as long as is usual. */
  readonly attestFirst?: number | true;
  readonly sink: string;
  readonly trace?: string;
  readonly state?: string;
  readonly privacy?: Privacy;
  readonly flushTimeout: number;
  readonly http?: string;
  readonly listen: string;
  readonly allowHost?: string[];
  readonly allowOrigin?: string[];
  readonly json?: boolean;
}

/** Collects an option that may be given again. */
const also = (value: string, before?: string[]): string[] => [...(before ?? []), value];

async function runProxy(command: readonly string[], options: ProxyOptions): Promise<void> {
  compileEarly();
  const config = withLogin(readConfig(), options);
  setDefaultHighWaterMark(false, BEHIND);
  const [program, ...args] = command as [string, ...string[]];
  const stderr = new StandardError();
  const warn = (message: string): void => stderr.write(Buffer.from(`belay: ${message}\n`));
  const env = { ...config.environment };
  for (const name of WITHHELD) delete env[name];

  // Signals that come while the server starts are kept for it.
  let server: ServerProcess | undefined;
  const early: NodeJS.Signals[] = [];
  const stop = new AbortController();
  const onSignal = (signal: NodeJS.Signals): void => {
    if (server === undefined) early.push(signal);
    else if (!server.running) {
      // What is left to do is ours alone, and whoever sends signals now wants us gone.
      stop.abort();
      setTimeout(() => process.exit(), LAST_WORDS).unref();
    } else if (signal === 'SIGINT') server.signal(signal);
    else void server.terminate(signal);
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal);

  const cwd = process.cwd();
  const contained = wantsBoundary(options, config);
  if (!contained && config.sandboxNetwork !== undefined) {
    warn('BELAY_SANDBOX_NETWORK is of no effect: the server runs in no boundary (--sandbox default)');
  }
  const runner = resolveRunner(program, args, env, cwd, contained);
  if (contained && runner?.found === undefined && runner !== undefined) {
    warn(
      `${runner.runner} is left to find ${runner.spec ?? 'its package'} by itself, which needs the network: run it once without --sandbox`,
    );
  }
  const started =
    runner?.found?.argv ??
    (process.platform === 'win32' ? windowsCommand(program, args, env, FILES) : undefined) ??
    ([program, ...args] as const);
  const [startedProgram, ...startedArgs] = started;
  const path = resolveProgram(startedProgram, env['PATH'], cwd);
  const digests = new DigestCache(digestsPath(options.state ?? config.state));
  const ran = path === undefined ? undefined : identify(path, startedArgs, cwd, digests);
  // Before anything is recorded: what can't be had ends the run, and its modules are loaded by nobody else.
  const inside = contained
    ? await (
        await import('./server-boundary.js')
      ).openBoundary(options, config, { argv: started, cwd, env }, warn)
    : undefined;
  const recording = await Recording.open({
    ...options,
    attestFirst: options.attestFirst === true ? ATTEST_FIRST : options.attestFirst,
    config,
    warn,
    boundary: inside?.told,
    opening: (secret) => ({
      command: {
        argv: command,
        cwd,
        started: runner?.found === undefined ? undefined : started,
        runner:
          runner === undefined
            ? undefined
            : { name: runner.runner, spec: runner.spec, resolved: runner.found !== undefined },
        ...ran,
        package: runner?.found?.package ?? ran?.package,
        env: environmentDigests(secret, env),
      },
      workspace: options.workspace?.map((folder) => resolve(cwd, folder)),
      sandbox: inside?.prepared.record,
    }),
  });

  const gate = await openGate(options, config, recording, warn, () => server?.processes ?? []);
  if (options.attestFirst !== undefined && (gate === undefined || recording.attestFirst === undefined)) {
    const missing = gate === undefined ? 'no states are kept (--workspace)' : 'nothing is sent (belay login)';
    warn(`--attest-first is of no effect: ${missing}`);
  }

  // After the recording is open: a server that ends at once has its output read from the first byte on.
  try {
    // Inside, the program would be looked for by what is there instead.
    if (inside !== undefined && path === undefined) {
      throw new StartError(`cannot start ${startedProgram}: no such program`, 127);
    }
    const [launcher, ...launched] = inside?.prepared.argv ?? started;
    server = await ServerProcess.start({
      command: launcher,
      args: launched,
      env: inside?.prepared.env ?? env,
      inside: inside?.prepared,
      onUnguarded: () =>
        warn('no /bin/sh to watch over the server: it stays behind if this process is killed'),
    });
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    warn(error.message);
    await gate?.close(AbortSignal.abort(), 0);
    await recording.finish({ exit: error.exit }, options.flushTimeout * 1000, stop.signal);
    await inside?.prepared.dispose();
    await stderr.drained(1_000);
    process.exitCode = error.exit;
    return;
  }
  for (const signal of early) onSignal(signal);
  const executable = lateDigest(ran?.executable, digests);
  const end = await converse(server, recording.recorder, stderr, gate);
  await gate?.close(stop.signal, LAST_LOOK);
  await recording.finish(
    { ...end, executable: await executable() },
    options.flushTimeout * 1000,
    stop.signal,
  );
  await inside?.prepared.dispose();
  await stderr.drained(1_000);
  process.stdin.destroy();
  process.exitCode = exitCodeOf(end);
}

/** Where a workspace is named: states of it from now on. Its modules are loaded by nobody else. */
async function openGate(
  options: ProxyOptions,
  config: CliConfig,
  { recorder, attestFirst }: Recording,
  warn: (message: string) => void,
  processes: () => readonly number[],
): Promise<TurnGate | undefined> {
  if (options.snapshots === false || (options.workspace ?? config.sandboxScope) === undefined)
    return undefined;
  const { workspaceScope } = await import('./workspace-scope.js');
  const { keepStates } = await import('./turn-states.js');
  const scope = workspaceScope(options, config, process.cwd(), (folder, reason) => {
    warn(`no states are kept of ${folder}: it ${reason}`);
    recorder.state(
      { state: 'unrestorable', phase: 'open', cause: 'WORKSPACE_UNSET', detail: `${folder} ${reason}` },
      { phase: 'open' },
    );
  });
  const { holdLimit } = options;
  return scope && keepStates({ scope, recorder, processes, holdLimit, attestFirst, warn });
}

/**
 * Takes the digest of an executable in the background where it was not known at the beginning. The function returned
 * gives it: after a run that was shorter than the reading, it waits a little for what verdicts on the run depend on.
 */
function lateDigest(
  executable: FileIdentity | undefined,
  digests: DigestCache,
): () => Promise<FileIdentity | undefined> {
  if (executable === undefined || executable.sha256 !== undefined) return () => Promise.resolve(undefined);
  const { path } = executable;
  const reading = new AbortController();
  const known = digests.later(path, reading.signal);
  return async () => {
    const late = setTimeout(() => reading.abort(), LATE_DIGEST);
    const sha256 = await known;
    clearTimeout(late);
    return sha256 === undefined ? undefined : { path, sha256 };
  };
}

/** Relays until the server is gone and all of its output was passed on. */
async function converse(
  server: ServerProcess,
  recorder: Recorder,
  stderr: StandardError,
  gate: TurnGate | undefined,
): Promise<ServerEnd> {
  const stdout = standardOutput();
  let grace: NodeJS.Timeout | undefined;
  let inputEnded = false;
  let clientGone = false;
  /** Once the client has closed its side, a server that shows no sign of life is not waited for without end. */
  const restartGrace = (): void => {
    if (!inputEnded || !server.running) return;
    clearTimeout(grace);
    const ms = clientGone ? GONE_GRACE : recorder.unanswered > 0 ? ANSWERING_GRACE : IDLE_GRACE;
    grace = setTimeout(() => {
      void server.terminate('SIGTERM');
    }, ms);
  };
  const fromClient: GatedHooks = {
    onEnd: () => {
      recorder.end('c2s');
      inputEnded = true;
      restartGrace();
    },
    // The server closed its input and may live on. We go on reading, or we would never learn that the client is gone.
    onBroken: () => undefined,
  };
  const outputDone = new Promise<void>((resolveOutput) => {
    const fromServer: GatedHooks = {
      onSeen: restartGrace,
      onEnd: () => {
        recorder.end('s2c');
        resolveOutput();
      },
      onBroken: () => {
        inputEnded = true;
        clientGone = true;
        server.stdin.end();
        restartGrace();
      },
    };
    if (gate === undefined) {
      relay(process.stdin, server.stdin, {
        ...fromClient,
        before: (chunk) => recorder.observe('c2s', chunk),
        after: () => {
          recorder.passed();
          return false;
        },
      });
      relay(server.stdout, stdout, {
        ...fromServer,
        after: (chunk) => {
          const released = recorder.observe('s2c', chunk);
          restartGrace();
          return released;
        },
        lend: () => recorder.place(),
      });
    } else {
      const client = gatedLane(gate, recorder, 'c2s');
      const answers = gatedLane(gate, recorder, 's2c');
      gatedRelay(process.stdin, server.stdin, client, fromClient);
      gatedRelay(server.stdout, stdout, answers, fromServer);
    }
  });
  server.stderr.on('data', (chunk: Buffer) => {
    stderr.write(chunk);
    recorder.stderr(chunk);
  });
  const end = await server.exited;
  clearTimeout(grace);
  await server.cleanUp();
  await outputDone;
  return end;
}

function gatedLane(gate: TurnGate, recorder: Recorder, direction: 'c2s' | 's2c'): GatedLane {
  return {
    gated: direction === 'c2s' ? () => true : () => gate.active,
    decide: (content, go, passed) =>
      direction === 'c2s' ? gate.client(content, go, passed) : gate.server(content, go, passed),
    record: (frame, content, odd) => recorder.framed(direction, frame, content, odd),
    recorded: direction === 'c2s' ? 'before' : 'after',
  };
}

export function register(program: Command): void {
  sandboxOptions(loginOptions(program.command('proxy')))
    .description('run an MCP server behind a transparent, recording proxy')
    .argument('[command...]', 'the server and its arguments, after --')
    .option('--http <url>', 'in place of a command: MCP endpoint of a server that runs already')
    .option('--listen <host:port>', 'with --http: where to listen; port 0 is any free one', '127.0.0.1:0')
    .option(
      '--allow-host <name>',
      'with --http: another name this proxy is called by; may be given again',
      also,
    )
    .option(
      '--allow-origin <origin>',
      'with --http: a web origin that may call, besides loopback ones; may be given again',
      also,
    )
    .option('--json', 'with --http: print the address as one line of JSON on standard output')
    .option(
      '--workspace <dir>',
      'folder the server works in, of which states are kept; may be given again (BELAY_SANDBOX_SCOPE)',
      also,
    )
    .option(
      '--ignore <rule>',
      'not part of the workspace: a name, with *, or a path; may be given again',
      also,
    )
    .option('--snapshots <dir>', 'where states are kept (BELAY_SNAPSHOT_DIR, then STATE/snapshots)')
    .option('--no-snapshots', 'keep no states')
    .option(
      '--hold-limit <ms>',
      'how long a call or its answer may wait for a state (100; the first 2000)',
      milliseconds,
    )
    .option(
      '--attest-first [ms]',
      `hold a call until the log has acknowledged the state before it, at most so long (${ATTEST_FIRST})`,
      milliseconds,
    )
    .option('--sink <name>', 'name of this sink', sinkName, 'proxy')
    .option('--trace <dir>', 'where the trace goes (BELAY_TRACE_DIR, then STATE/traces)')
    .option('--state <dir>', 'state directory: traces, spools, secrets (BELAY_STATE)')
    .addOption(privacyOption())
    .option('--flush-timeout <seconds>', 'how long to go on sending after the server ended', seconds, 3)
    .addHelpText(
      'after',
      `
Bytes pass unchanged in both directions. The exit code is the server's own, 128 + n if signal n ended it, 127 if there
is no such program. Without credentials (\`belay login\`) the run is only recorded. Our own secrets
(${WITHHELD.join(', ')}) are withheld from the server's environment.

With --http, the address to give to the client is printed on standard error. Credentials of the client pass and are
not recorded. The proxy answers to this machine alone unless told otherwise, and refuses web pages of other origins.`,
    )
    .passThroughOptions()
    .action(async (command: string[], options: ProxyOptions) => {
      if (options.workspace?.includes('') === true) throw usage('--workspace is empty: name a folder');
      if (options.http !== undefined) {
        if (command.length > 0) throw usage('a command or --http, not both');
        if (options.attestFirst !== undefined)
          throw usage('over HTTP there are no states to wait for: --attest-first goes without --http');
        if (options.sandbox !== undefined || options.policy !== undefined || options.hide !== undefined)
          throw usage('a server that runs already can not be put inside a boundary: --http goes without');
        const { runHttpProxy } = await import('./http-run.js');
        await runHttpProxy(options.http, options);
        return;
      }
      if (command.length === 0)
        throw usage('which server? belay proxy -- COMMAND, or belay proxy --http URL');
      await runProxy(command, options);
    });
}
