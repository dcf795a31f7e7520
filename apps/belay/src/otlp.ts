/** `belay otlp`: what OpenTelemetry instrumentation says of an agent's run, on record and, as commitments, to the log. */

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { type ForwardEvent, machineSecret } from '@belay/client';
import { newUlid, sessionId } from '@belay/envelope';
import { TraceWriter } from '@belay/trace';
import { type Command, InvalidArgumentError } from 'commander';
import { Attestation, type Leftover } from './attestation.js';
import { readConfig } from './config.js';
import { findLogin } from './credentials.js';
import { isLoopback } from './http-headers.js';
import { badInput, EXIT, type ExitCode, unavailable, usage } from './exit.js';
import {
  type LoginOptions,
  loginOptions,
  privacyOption,
  seconds,
  sinkName,
  withLogin,
} from './option-values.js';
import { OtlpReceiver, RECEIVER_LIMITS } from './otlp-receiver.js';
import { OtlpRecorder } from './otlp-recorder.js';
import { writeOut } from './output.js';
import { type Privacy, readSettings } from './settings.js';

/** How often the log is told what came. Milliseconds. */
const TELL_EVERY = 60_000;

interface Address {
  /** As in a URL: IPv6 in brackets. */
  readonly host: string;
  readonly port: number;
}

interface OtlpOptions extends LoginOptions {
  readonly listen: Address;
  readonly allowRemote?: boolean;
  readonly allowHost?: string[];
  readonly sink: string;
  readonly trace?: string;
  readonly state?: string;
  readonly privacy?: Privacy;
  readonly spoolLines: number;
  readonly flushTimeout: number;
  readonly json?: boolean;
}

async function receive(options: OtlpOptions): Promise<void> {
  const { listen, sink } = options;
  if (!isLoopback(listen.host) && options.allowRemote !== true) {
    throw usage(
      `${listen.host} can be reached from other machines, and whoever reaches it can send spans`,
      'Listen on 127.0.0.1, or say --allow-remote.',
    );
  }
  const stop = new AbortController();
  const giveUp = new AbortController();
  const stopped = new Promise<void>((resolve) => {
    stop.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  const onSignal = (): void => (stop.signal.aborted ? giveUp : stop).abort();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal);

  const run = await Run.open(options);
  let port: number;
  try {
    port = await run.receiver.listen(listen.host, listen.port, options.allowHost);
  } catch (error) {
    await run.finish(0, giveUp.signal);
    throw explain(error, listen);
  }
  const url = `http://${listen.host}:${port}`;
  const { log, epoch, trace } = run;
  await writeOut(
    options.json === true
      ? `${JSON.stringify({ url, log, sink, epoch, trace })}\n`
      : `Listening on ${url}: set OTEL_EXPORTER_OTLP_ENDPOINT=${url}\n` +
          `Spans are kept in ${trace}${log === undefined ? '; without credentials nothing is sent' : ''}\n`,
  );
  await stopped;
  const { left, counts, settled } = await run.finish(options.flushTimeout * 1000, giveUp.signal);
  const summary = { url, log, sink, epoch, trace, ...counts, settled, pendingBytes: left?.pendingBytes };
  await writeOut(
    options.json === true
      ? `${JSON.stringify(summary)}\n`
      : `${counts.taken} of ${counts.received} spans and log records taken, ${counts.filtered} were of no agent's run\n`,
  );
  process.exitCode = verdictOn(left);
}

/** One run of the sink: what receives, what records, and the way to the log. */
class Run {
  readonly receiver: OtlpReceiver;
  readonly epoch: string;
  /** Path of the trace. */
  readonly trace: string;
  readonly #attestation: Attestation | undefined;
  readonly #writer: TraceWriter;
  readonly #recorder: OtlpRecorder;
  readonly #timer: NodeJS.Timeout;
  /** Lines of this epoch of which the log has told what became. */
  readonly #progress: { settled: number };

  private constructor(parts: {
    readonly options: OtlpOptions;
    readonly attestation: Attestation | undefined;
    readonly epoch: string;
    readonly writer: TraceWriter;
    readonly recorder: OtlpRecorder;
    readonly progress: { settled: number };
  }) {
    const { options, attestation, writer, recorder, progress } = parts;
    this.epoch = parts.epoch;
    this.trace = writer.path;
    this.#attestation = attestation;
    this.#writer = writer;
    this.#recorder = recorder;
    this.#progress = progress;
    this.receiver = new OtlpReceiver({
      limits: RECEIVER_LIMITS,
      take: recorder.take,
      dropped: recorder.dropped,
      full: () =>
        attestation !== undefined && attestation.epoch.size - progress.settled >= options.spoolLines,
    });
    this.#timer = setInterval(() => recorder.tell(), TELL_EVERY).unref();
  }

  /** Throws when spans could not be kept: there would be nothing to open the commitments with. */
  static async open(options: OtlpOptions): Promise<Run> {
    const config = withLogin(readConfig(), options);
    const state = options.state ?? config.state;
    const { privacy, heartbeat, limits, filter, problems } = readSettings(config, options.privacy);
    problems.forEach(warn);
    const secret = machineSecret(state);
    const session = config.session === undefined ? undefined : sessionId(secret, config.session);
    const login = await findLogin(config);
    const progress = { settled: 0 };
    const onEvent = (event: ForwardEvent, own: boolean): void => {
      if (own && event.type === 'settled') progress.settled += event.lines;
    };
    const attestation =
      login === undefined
        ? undefined
        : await Attestation.open({
            state,
            login,
            sink: options.sink,
            sinkKind: 'otlp',
            onEvent,
            heartbeat,
            limits,
            filter,
          });
    const epoch = attestation?.epoch.id ?? newUlid(Date.now(), randomBytes(10));
    const writer = TraceWriter.create(
      join(options.trace ?? config.traceDir ?? join(state, 'traces'), `${options.sink}-${epoch}.jsonl`),
      {
        type: 'open',
        v: 1,
        epoch,
        sink: options.sink,
        log: attestation?.epoch.log,
        // Of the recorder itself; each span's own is in its envelopes.
        session: session ?? epoch,
        recorder: 'belay/0.1.0',
        pid: process.pid,
      },
      { wall: () => new Date().toISOString(), monotonic: () => performance.now() * 1000 },
    );
    const recorder = new OtlpRecorder({
      trace: writer,
      epoch: attestation?.epoch,
      machineSecret: secret,
      session,
      privacy,
      onAppended: () => attestation?.wake(),
    });
    return new Run({ options, attestation, epoch, writer, recorder, progress });
  }

  /** Origin of the log. */
  get log(): string | undefined {
    return this.#attestation?.epoch.log;
  }

  /** Takes no more, closes the trace and the epoch, and sends what is left for at most `ms`. */
  async finish(
    ms: number,
    signal: AbortSignal,
  ): Promise<{
    readonly left: Leftover | undefined;
    readonly counts: OtlpRecorder['counts'];
    readonly settled: number;
  }> {
    clearInterval(this.#timer);
    await this.receiver.close();
    this.#recorder.tell();
    this.#writer.close({});
    if (this.#writer.lost > 0) warn(`${this.#writer.lost} records could not be written to ${this.trace}`);
    const left = await this.#attestation?.finish(ms, signal);
    return { left, counts: this.#recorder.counts, settled: this.#progress.settled };
  }
}

const warn = (message: string): void => void process.stderr.write(`belay: ${message}\n`);

function verdictOn(left: Leftover | undefined): ExitCode {
  if (left?.stopped?.action === 'accuse') {
    warn(`the log contradicts itself, evidence was kept: ${left.stopped.message}`);
    return EXIT.bad;
  }
  if (left?.stopped !== undefined) {
    warn(`nothing more is sent: ${left.stopped.message}`);
    return EXIT.badInput;
  }
  if (left !== undefined && left.pendingBytes > 0) {
    warn('events wait in the spool; the next run sends them, or `belay forward`');
    return EXIT.unavailable;
  }
  return EXIT.good;
}

function explain(error: unknown, { host, port }: Address): unknown {
  switch ((error as NodeJS.ErrnoException).code) {
    case 'EADDRINUSE':
      return unavailable(
        'port_in_use',
        `${host}:${port} is in use`,
        'Give another --listen; port 0 is a free one.',
      );
    case 'EACCES':
      return unavailable('port_refused', `${host}:${port} may not be listened on`, 'Give a port above 1023.');
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return badInput('no_such_address', `${host} is no address of this machine`);
    default:
      return error;
  }
}

/** `HOST:PORT`, IPv6 in brackets. */
function address(text: string): Address {
  const [, host = '', port = ''] = /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})$/.exec(text) ?? [];
  if (host === '' || Number(port) > 65_535)
    throw new InvalidArgumentError('HOST:PORT, such as 127.0.0.1:4318.');
  return { host, port: Number(port) };
}

function lines(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('a number of lines, from 1.');
  return Number(text);
}

export function register(program: Command): void {
  loginOptions(program.command('otlp'))
    .description('receive OpenTelemetry spans and log records of an agent, as commitments')
    .option(
      '--listen <host:port>',
      'where to listen; port 0 is a free one',
      address,
      address('127.0.0.1:4318'),
    )
    .option('--allow-remote', 'listen on an address that other machines can reach')
    .option(
      '--allow-host <name>',
      'another name by which this machine is called; may be given again',
      (name: string, before?: string[]) => [...(before ?? []), name],
    )
    .option('--sink <name>', 'name of this sink', sinkName, 'otlp')
    .option('--trace <dir>', 'where the spans are kept (BELAY_TRACE_DIR, then STATE/traces)')
    .addOption(privacyOption())
    .option('--state <dir>', 'state directory: traces, spools, secrets (BELAY_STATE)')
    .option('--spool-lines <n>', 'how many lines may wait for the log before senders have to', lines, 100_000)
    .option('--flush-timeout <seconds>', 'how long to go on sending after the signal to end', seconds, 5)
    .option('--json', 'print one line of JSON when ready, and one at the end')
    .addHelpText(
      'after',
      `
OTLP/HTTP, protobuf or JSON: point OTEL_EXPORTER_OTLP_ENDPOINT at the address. Spans of GenAI and MCP stay on this
machine; what is sent of each is a salted commitment, counts, and words of closed lists. Others are dropped and counted,
as are metrics. Without credentials (\`belay login\`) spans are only recorded. Runs until a signal; a second one ends the
sending of what is left.`,
    )
    .action(receive);
}
