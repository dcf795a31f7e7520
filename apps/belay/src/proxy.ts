/** `belay proxy`: one MCP server over stdio, verbatim, on record. */

import { createHmac, randomBytes } from 'node:crypto';
import { join, resolve } from 'node:path';
import { type ClientError, machineSecret } from '@belay/client';
import { newUlid, sessionId } from '@belay/envelope';
import { TraceWriter } from '@belay/trace';
import type { Command } from 'commander';
import { Attestation } from './attestation.js';
import { type CliConfig, readConfig } from './config.js';
import { findLogin, type Login } from './credentials.js';
import { CliError, usage } from './exit.js';
import { seconds, sinkName } from './option-values.js';
import { Recorder } from './recorder.js';
import { relay, StandardError, standardOutput } from './relay.js';
import { exitCodeOf, resolveProgram, type ServerEnd, ServerProcess, StartError } from './server-process.js';

/** Our own secrets; the server has no use for them. Everything else of the environment is passed on. */
const WITHHELD = ['BELAY_TOKEN', 'BELAY_ADMIN_KEY', 'BELAY_OPERATOR_KEY', 'BELAY_AUDITOR_KEY'];
/** How long a server may go on after the client closed its input: per last sign of life, in milliseconds. */
const IDLE_GRACE = 5_000;
const ANSWERING_GRACE = 60_000;
/** From a signal to our own exit when the server is gone. */
const LAST_WORDS = 500;
/** A client that is gone is owed nothing. */
const GONE_GRACE = 1_000;

interface ProxyOptions {
  readonly workspace?: string[];
  readonly sink: string;
  readonly trace?: string;
  readonly state?: string;
  readonly flushTimeout: number;
}

/** Where a run is recorded and sent. Any part may be missing: traffic does not depend on it. */
interface Recording {
  readonly recorder: Recorder;
  readonly attestation: Attestation | undefined;
}

async function runProxy(command: readonly string[], options: ProxyOptions): Promise<void> {
  const config = readConfig();
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

  try {
    server = await ServerProcess.start({ command: program, args, env });
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    warn(error.message);
    await stderr.drained(1_000);
    process.exitCode = error.exit;
    return;
  }
  for (const signal of early) onSignal(signal);
  const { recorder, attestation } = await openRecording(config, options, command, env, warn);

  const end = await converse(server, recorder, stderr);
  recorder.close(end);
  if (recorder.failures > 0) warn(`${recorder.failures} frames could not be observed`);
  const left = await attestation?.finish(options.flushTimeout * 1000, stop.signal);
  if (left?.stopped !== undefined) warn(reasonOf(left.stopped));
  else if (left !== undefined && left.pendingBytes > 0) {
    warn('events wait in the spool; the next run sends them, or `belay forward`');
  }
  await stderr.drained(1_000);
  process.stdin.destroy();
  process.exitCode = exitCodeOf(end);
}

async function openRecording(
  config: CliConfig,
  options: ProxyOptions,
  command: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  warn: (message: string) => void,
): Promise<Recording> {
  const state = options.state ?? config.state;
  const login = await attempt('credentials are not usable', warn, () => findLogin(config));
  const attestation =
    login === undefined
      ? undefined
      : await attempt('nothing is sent', warn, () =>
          Attestation.open({ state, login, sink: options.sink, sinkKind: 'proxy' }),
        );
  const secret =
    (await attempt('identifiers of this run can be matched with no other sink', warn, () =>
      machineSecret(state),
    )) ?? randomBytes(32);
  const session =
    config.session === undefined ? newUlid(Date.now(), randomBytes(10)) : sessionId(secret, config.session);
  const trace = await attempt('this run is not recorded', warn, () =>
    openTrace({ config, options, state, command, env, login, secret, session, epoch: attestation?.epoch.id }),
  );
  const recorder = new Recorder({
    trace,
    epoch: attestation?.epoch,
    machineSecret: secret,
    session,
    onAppended: () => attestation?.wake(),
    now: () => performance.now(),
  });
  return { recorder, attestation };
}

/** Recording must not keep an agent from its tools: what fails is told on stderr, and the run goes on without it. */
async function attempt<T>(
  consequence: string,
  warn: (message: string) => void,
  act: () => T | Promise<T>,
): Promise<T | undefined> {
  try {
    return await act();
  } catch (error) {
    const { message } = error as Error;
    warn(
      `${consequence}: ${message}${error instanceof CliError && error.next !== undefined ? ` (${error.next})` : ''}`,
    );
    return undefined;
  }
}

interface TraceOptions {
  readonly config: CliConfig;
  readonly options: ProxyOptions;
  readonly state: string;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly login: Login | undefined;
  readonly secret: Buffer;
  readonly session: string;
  readonly epoch: string | undefined;
}

function openTrace(parts: TraceOptions): TraceWriter {
  const { config, options, state, command, env, login, secret, session } = parts;
  const epoch = parts.epoch ?? newUlid(Date.now(), randomBytes(10));
  const folder = options.trace ?? config.traceDir ?? join(state, 'traces');
  const cwd = process.cwd();
  const program = resolveProgram(command[0] as string, env['PATH'], cwd);
  return TraceWriter.create(
    join(folder, `${options.sink}-${epoch}.jsonl`),
    {
      type: 'open',
      v: 1,
      epoch,
      sink: options.sink,
      log: parts.epoch === undefined ? undefined : login?.credential.origin,
      session,
      recorder: 'belay/0.1.0',
      command: {
        argv: command,
        cwd,
        executable: program === undefined ? undefined : { path: program },
        env: environmentDigests(secret, env),
      },
      workspace: options.workspace?.map((path) => resolve(cwd, path)),
      pid: process.pid,
    },
    { wall: () => new Date().toISOString(), monotonic: () => performance.now() * 1000 },
  );
}

/** Names, and digests that tell whether a value is the same another time, without telling the value. */
function environmentDigests(
  secret: Buffer,
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const digests: Record<string, string> = {};
  for (const name of Object.keys(env).sort()) {
    const digest = createHmac('sha256', secret)
      .update(`belay/env/v1\n${name}\n${env[name] ?? ''}`)
      .digest('hex');
    digests[name] = `hmac-sha256:${digest}`;
  }
  return digests;
}

/** Relays until the server is gone and all of its output was passed on. */
async function converse(
  server: ServerProcess,
  recorder: Recorder,
  stderr: StandardError,
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
  relay(process.stdin, server.stdin, {
    before: (chunk) => recorder.observe('c2s', chunk),
    onEnd: () => {
      recorder.end('c2s');
      inputEnded = true;
      restartGrace();
    },
    // The server closed its input and may live on. We go on reading, or we would never learn that the client is gone.
    onBroken: () => undefined,
  });
  const outputDone = new Promise<void>((resolveOutput) => {
    relay(server.stdout, stdout, {
      after: (chunk) => {
        recorder.observe('s2c', chunk);
        restartGrace();
      },
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
    });
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

function reasonOf(error: ClientError): string {
  return error.action === 'accuse'
    ? `the log contradicts itself, evidence was kept: ${error.message}`
    : `nothing more is sent: ${error.message}`;
}

export function register(program: Command): void {
  program
    .command('proxy')
    .description('run an MCP server behind a transparent, recording proxy')
    .argument('<command...>', 'the server and its arguments, after --')
    .option(
      '--workspace <dir>',
      'folder the server works in; may be given again',
      (path: string, before?: string[]) => [...(before ?? []), path],
    )
    .option('--sink <name>', 'name of this sink', sinkName, 'proxy')
    .option('--trace <dir>', 'where the trace goes (BELAY_TRACE_DIR, then STATE/traces)')
    .option('--state <dir>', 'state directory: traces, spools, secrets (BELAY_STATE)')
    .option('--flush-timeout <seconds>', 'how long to go on sending after the server ended', seconds, 3)
    .addHelpText(
      'after',
      `
Bytes pass unchanged in both directions. The exit code is the server's own, 128 + n if signal n ended it, 127 if there
is no such program. Without credentials (\`belay login\`) the run is only recorded. Our own secrets
(${WITHHELD.join(', ')}) are withheld from the server's environment.`,
    )
    .passThroughOptions()
    .action(async (command: string[], options: ProxyOptions) => {
      if (command.length === 0) throw usage('which server? belay proxy -- COMMAND');
      await runProxy(command, options);
    });
}
