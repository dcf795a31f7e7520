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
import type { OtlpRequest, Refusals } from '@belay/otlp';
import { OtlpRecorder, type OtlpRecorderParts } from './otlp-recorder.js';
import { writeOut } from './output.js';
import { type Privacy, readSettings } from './settings.js';

/** How often the log is told what came. Milliseconds. */
const TELL_EVERY = 60_000;
/** An epoch that is older is followed by the next one, and how long what is left of it is sent meanwhile. Milliseconds. */
const EPOCH_AGE = 24 * 3_600_000;
const PART_PATIENCE = 10 * 60_000;

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
  readonly epochLines: number;
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

  // The port first: one that is taken leaves neither an epoch nor a trace behind. Until there is one, senders wait.
  let opened: Run | undefined;
  const receiver = new OtlpReceiver({
    limits: RECEIVER_LIMITS,
    take: (request) => opened?.take(request),
    dropped: (what) => opened?.dropped(what),
    full: () => opened === undefined || opened.full,
  });
  let port: number;
  try {
    port = await receiver.listen(listen.host, listen.port, options.allowHost);
  } catch (error) {
    throw explain(error, listen);
  }
  let run: Run;
  try {
    run = opened = await Run.open(options);
  } catch (error) {
    await receiver.close();
    throw error;
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
  await receiver.close();
  const { left, counts, settled } = await run.finish(options.flushTimeout * 1000, giveUp.signal);
  const last = { epoch: run.epoch, trace: run.trace, epochs: run.parts };
  const summary = { url, log, sink, ...last, ...counts, settled, pendingBytes: left?.pendingBytes };
  await writeOut(
    options.json === true
      ? `${JSON.stringify(summary)}\n`
      : `${counts.taken} of ${counts.received} spans and log records taken, ${counts.filtered} were of no agent's run\n`,
  );
  process.exitCode = verdictOn(left);
}

/** What the sink writes for as long as it stays within its bounds: one epoch, and one trace. */
interface Part {
  readonly attestation: Attestation | undefined;
  readonly epoch: string;
  readonly writer: TraceWriter;
  /** Milliseconds since 1970. */
  readonly opened: number;
}

/** One run of the sink: what records, and the way to the log. An epoch that has become long is followed by the next. */
class Run {
  readonly #options: OtlpOptions;
  readonly #open: () => Promise<Part>;
  readonly #recorder: OtlpRecorder;
  readonly #timer: NodeJS.Timeout;
  /** Lines of which the log has told what became, over all parts; and those that parts before this one have. */
  readonly #progress: { settled: number };
  #appended = 0;
  #part: Part;
  #turning: Promise<void> | undefined;
  /** Parts that are closed and being sent. */
  readonly #past = new Set<Promise<Leftover | undefined>>();
  readonly #giveUp = new AbortController();
  parts = 1;

  private constructor(
    options: OtlpOptions,
    open: () => Promise<Part>,
    part: Part,
    mapper: Pick<OtlpRecorderParts, 'machineSecret' | 'session' | 'privacy'>,
    progress: { settled: number },
  ) {
    this.#options = options;
    this.#open = open;
    this.#part = part;
    this.#progress = progress;
    this.#recorder = new OtlpRecorder({
      ...mapper,
      trace: part.writer,
      epoch: part.attestation?.epoch,
      onAppended: () => this.#part.attestation?.wake(),
    });
    this.#timer = setInterval(() => {
      this.#recorder.tell();
      this.#turnWhenDue();
    }, TELL_EVERY).unref();
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
    const traces = options.trace ?? config.traceDir ?? join(state, 'traces');
    const { sink } = options;
    const open = async (): Promise<Part> => {
      const attestation =
        login === undefined
          ? undefined
          : await Attestation.open({
              state,
              login,
              sink,
              sinkKind: 'otlp',
              onEvent,
              heartbeat,
              limits,
              filter,
            });
      const epoch = attestation?.epoch.id ?? newUlid(Date.now(), randomBytes(10));
      const writer = TraceWriter.create(
        join(traces, `${sink}-${epoch}.jsonl`),
        {
          type: 'open',
          v: 1,
          epoch,
          sink,
          log: attestation?.epoch.log,
          // Of the recorder itself; each span's own is in its envelopes.
          session: session ?? epoch,
          recorder: 'belay/0.1.0',
          pid: process.pid,
        },
        { wall: () => new Date().toISOString(), monotonic: () => performance.now() * 1000 },
      );
      return { attestation, epoch, writer, opened: Date.now() };
    };
    return new Run(options, open, await open(), { machineSecret: secret, session, privacy }, progress);
  }

  /** Origin of the log. */
  get log(): string | undefined {
    return this.#part.attestation?.epoch.log;
  }

  get epoch(): string {
    return this.#part.epoch;
  }

  /** Path of the trace. */
  get trace(): string {
    return this.#part.writer.path;
  }

  /** No more lines may wait. */
  get full(): boolean {
    const { attestation } = this.#part;
    if (attestation === undefined) return false;
    return this.#appended + attestation.epoch.size - this.#progress.settled >= this.#options.spoolLines;
  }

  readonly take = (request: OtlpRequest): Refusals | undefined => {
    const refused = this.#recorder.take(request);
    this.#turnWhenDue();
    return refused;
  };

  readonly dropped = (what: 'metrics' | 'undecodable'): void => this.#recorder.dropped(what);

  /** Lines of the epoch, or where none are sent, what was taken since it began. */
  #turnWhenDue(): void {
    const { attestation, opened } = this.#part;
    const lines = attestation?.epoch.size ?? this.#recorder.counts.taken - this.#appended;
    if (this.#turning !== undefined) return;
    if (lines < this.#options.epochLines && Date.now() - opened < EPOCH_AGE) return;
    // What can't be opened now is tried again with the next request; until then the old one goes on.
    this.#turning = this.#turn()
      .catch((error: unknown) => warn(`the epoch goes on: ${(error as Error).message}`))
      .finally(() => (this.#turning = undefined));
  }

  async #turn(): Promise<void> {
    const next = await this.#open();
    const { attestation, writer } = this.#part;
    this.#recorder.moveTo({ trace: next.writer, epoch: next.attestation?.epoch });
    this.#part = next;
    this.parts++;
    writer.close({});
    if (attestation === undefined) {
      this.#appended = this.#recorder.counts.taken;
      return;
    }
    const left = attestation.finish(PART_PATIENCE, this.#giveUp.signal).catch(() => undefined);
    // Its close is a line too.
    this.#appended += attestation.epoch.size;
    this.#past.add(left);
    void left.then(() => this.#past.delete(left));
  }

  /** Closes the trace and the epoch, and sends what is left for at most `ms`. Nothing may be taken any more. */
  async finish(
    ms: number,
    signal: AbortSignal,
  ): Promise<{
    readonly left: Leftover | undefined;
    readonly counts: OtlpRecorder['counts'];
    readonly settled: number;
  }> {
    clearInterval(this.#timer);
    await this.#turning;
    this.#recorder.tell();
    const { writer, attestation } = this.#part;
    writer.close({});
    if (writer.lost > 0) warn(`${writer.lost} records could not be written to ${writer.path}`);
    const timer = setTimeout(() => this.#giveUp.abort(), ms);
    signal.addEventListener('abort', () => this.#giveUp.abort(), { once: true });
    const [left, ...past] = await Promise.all([attestation?.finish(ms, signal), ...this.#past]);
    clearTimeout(timer);
    const pendingBytes = past.reduce((sum, each) => sum + (each?.pendingBytes ?? 0), left?.pendingBytes ?? 0);
    return {
      left: left && { ...left, pendingBytes },
      counts: this.#recorder.counts,
      settled: this.#progress.settled,
    };
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
    .option('--epoch-lines <n>', 'after how many lines the next epoch and trace begin', lines, 65_536)
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
