/** `belay forward`: lines of any NDJSON source to the log, as commitments; and what earlier runs left in the spools. */

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type ClientError,
  type Forwarder,
  type ForwardEvent,
  knownLogs,
  LineReader,
  machineSecret,
  pendingSpools,
  SourceInUse,
  SourcePosition,
  type SourceStart,
  startOver,
} from '@belay/client';
import { type EnvelopeKind, sessionId } from '@belay/envelope';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { Attestation, forwarderFor, type Leftover } from './attestation.js';
import { type CliConfig, readConfig } from './config.js';
import { findLogin, type Login } from './credentials.js';
import { badInput, CliError, EXIT, usage } from './exit.js';
import { print } from './output.js';
import {
  type LoginOptions,
  loginOptions,
  privacyOption,
  seconds,
  sinkName,
  withLogin,
} from './option-values.js';
import { type Privacy, readSettings, type Settings } from './settings.js';

/** How often a followed file is looked at, and a terminal told. Milliseconds. */
const LOOK_EVERY = 250;
const TELL_EVERY = 200;
/** How often the position is written down. Lines. */
const SAVE_EVERY = 10_000;

interface ForwardOptions extends LoginOptions {
  readonly follow?: boolean;
  readonly background?: boolean;
  readonly startOver?: boolean;
  readonly sink: string;
  readonly kind: EnvelopeKind;
  readonly state?: string;
  readonly privacy?: Privacy;
  readonly flushTimeout: number;
  readonly json?: boolean;
}

/** What was sent and what became of it, counted from the forwarder's events. */
class Tally {
  lines = 0;
  bytes = 0;
  settled = 0;
  duplicates = 0;
  conflicts = 0;
  readonly refused: { readonly seq: number; readonly code: string; readonly field: string | undefined }[] =
    [];
  indexes: [number, number] | undefined;
  size: number | undefined;
  waiting: ClientError | undefined;

  readonly take = (event: ForwardEvent): void => {
    switch (event.type) {
      case 'settled':
        this.settled += event.lines;
        this.duplicates += event.duplicates;
        this.size = event.head.size;
        this.waiting = undefined;
        if (event.indexes !== undefined) {
          const [first, last] = this.indexes ?? event.indexes;
          this.indexes = [Math.min(first, event.indexes[0]), Math.max(last, event.indexes[1])];
        }
        break;
      case 'refused':
        if (this.refused.length < 100)
          this.refused.push({ seq: event.seq, code: event.refusal.code, field: event.refusal.field });
        break;
      case 'conflict':
        this.conflicts++;
        break;
      case 'waiting':
        this.waiting = event.error;
        break;
      case 'stopped':
        break;
    }
  };
}

/** One line on a terminal, rewritten in place; nothing elsewhere. */
class Progress {
  readonly #tally: Tally;
  readonly #timer: NodeJS.Timeout | undefined;

  constructor(tally: Tally, json: boolean | undefined) {
    this.#tally = tally;
    if (process.stderr.isTTY && json !== true) this.#timer = setInterval(() => this.#tell(), TELL_EVERY);
    this.#timer?.unref();
  }

  end(): void {
    if (this.#timer === undefined) return;
    clearInterval(this.#timer);
    this.#tell();
    process.stderr.write('\n');
  }

  #tell(): void {
    const { lines, settled, waiting } = this.#tally;
    const trouble = waiting === undefined ? '' : `, waiting: ${waiting.message}`;
    process.stderr.write(`\r\u001b[K${lines} read, ${settled} acknowledged${trouble}`);
  }
}

async function requireLogin(config: CliConfig): Promise<Login> {
  const login = await findLogin(config);
  if (login === undefined) {
    throw usage(
      'there is nowhere to send to: no credentials',
      'Run `belay login`, or set BELAY_URL and BELAY_TOKEN.',
    );
  }
  return login;
}

async function forward(source: string | undefined, options: ForwardOptions): Promise<void> {
  const config = withLogin(readConfig(), options);
  const state = options.state ?? config.state;
  const login = await requireLogin(config);
  const settings = readSettings(config, options.privacy);
  for (const problem of settings.problems) process.stderr.write(`belay: ${problem}\n`);
  if (options.startOver === true) {
    if (source !== undefined) throw usage('--start-over is for what was sent before; it takes no SOURCE');
    await sendAgain(state, login);
  }
  if (options.background === true) {
    const { forwardInBackground } = await import('./background.js');
    await forwardInBackground(state, login, settings);
  } else if (source === undefined) await flushSpools(state, login, settings, options, undefined);
  else await forwardSource(source, config, state, login, settings, options);
}

/** Makes all that is kept wait again; the usual flush sends it. */
async function sendAgain(state: string, login: Login): Promise<void> {
  const { origin } = login.credential;
  const { spools, busy, evidence } = await startOver(state, origin, new Date());
  const tell = (message: string): void => void process.stderr.write(`belay: ${message}\n`);
  tell(`${spools} spools of ${origin} are sent again from their beginning`);
  if (evidence !== undefined)
    tell(`the head that the log had signed before is kept as evidence in ${evidence}`);
  if (busy > 0) tell(`${busy} more are in use by running processes: say it again when these have ended`);
}

async function forwardSource(
  source: string,
  config: CliConfig,
  state: string,
  login: Login,
  settings: Settings,
  options: ForwardOptions,
): Promise<void> {
  const { origin } = login.credential;
  let file: OpenSource | undefined;
  if (source !== '-') {
    const { size } = await regular(source);
    const position = new SourcePosition(state, origin, options.sink, source);
    const start = startOf(position, source);
    if (start.offset === size && options.follow !== true) {
      // No epoch for nothing: but what an earlier run left is still this command's work.
      position.release();
      await flushSpools(state, login, settings, options, source);
      return;
    }
    file = { path: source, position, start };
  }
  const tally = new Tally();
  const leftovers = new Tally();
  const attestation = await Attestation.open({
    ...settings,
    state,
    login,
    sink: options.sink,
    sinkKind: 'forward',
    leftovers: true,
    onEvent: (event, own) => (own ? tally : leftovers).take(event),
  });
  const stop = new AbortController();
  const giveUp = new AbortController();
  const onSignal = (): void => (stop.signal.aborted ? giveUp : stop).abort();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal);
  const progress = new Progress(tally, options.json);
  const session = config.session === undefined ? undefined : sessionId(machineSecret(state), config.session);
  const reader = new Source(attestation, tally, options.kind, session);
  let position: Position;
  let left: Leftover;
  try {
    position =
      file === undefined
        ? await reader.readStandardInput(stop.signal)
        : await reader.readFile(file, { follow: options.follow === true, signal: stop.signal });
  } finally {
    // Whatever ended the reading: what was read is sent.
    left = await attestation.finish(options.flushTimeout * 1000, giveUp.signal);
    progress.end();
  }
  const summary = {
    source,
    log: origin,
    sink: options.sink,
    epoch: attestation.epoch.id,
    ...position,
    lines: tally.lines,
    bytes: tally.bytes,
    ...countsOf(tally),
    leftovers: countsOf(leftovers),
    pendingBytes: left.pendingBytes,
  };
  await print(options.json, summary, () => {
    const where = tally.indexes === undefined ? '' : `, entries ${tally.indexes[0]} to ${tally.indexes[1]}`;
    const lines = `${tally.lines} ${tally.lines === 1 ? 'line' : 'lines'} of ${source}`;
    // The entries are the lines and what opens and closes their epoch.
    return left.pendingBytes === 0 && left.stopped === undefined
      ? `${lines} committed to ${origin}${where}\n`
      : `${lines} read, not all acknowledged by ${origin}: the rest waits in the spool, and belay forward sends it\n`;
  });
  process.exitCode = verdictOn(left, [tally, leftovers]);
}

async function regular(path: string): Promise<{ readonly size: number }> {
  const found = await stat(path);
  if (!found.isFile())
    throw badInput('not_a_file', `${path} is not a file`, 'Pipe it: belay forward - < SOURCE');
  return found;
}

function countsOf(tally: Tally): Readonly<Record<string, unknown>> {
  const { settled, duplicates, conflicts, refused, indexes, size } = tally;
  return { acknowledged: settled - refused.length, duplicates, conflicts, refused, indexes, size };
}

/** Tells on stderr what is not as it should be, and returns the exit code for it. */
function verdictOn({ pendingBytes, stopped }: Leftover, tallies: readonly Tally[]): number {
  const tell = (message: string): void => void process.stderr.write(`belay: ${message}\n`);
  if (stopped?.action === 'accuse') {
    tell(`the log contradicts itself, evidence was kept: ${stopped.message}`);
    return EXIT.bad;
  }
  if (stopped !== undefined) {
    tell(`nothing more is sent: ${stopped.message}`);
    return EXIT.badInput;
  }
  if (pendingBytes > 0) {
    const reason = tallies.find(({ waiting }) => waiting)?.waiting?.message ?? 'time ran out';
    tell(`not everything was acknowledged (${reason}); \`belay forward\` goes on with it`);
    return EXIT.unavailable;
  }
  const refused = tallies.reduce((sum, tally) => sum + tally.refused.length, 0);
  const conflicts = tallies.reduce((sum, tally) => sum + tally.conflicts, 0);
  if (refused > 0 || conflicts > 0) {
    tell(`${refused} lines were refused, ${conflicts} contradict what the log has`);
    return EXIT.bad;
  }
  return EXIT.good;
}

/** A file, held so that no other process reads it for the same sink. */
interface OpenSource {
  readonly path: string;
  readonly position: SourcePosition;
  readonly start: SourceStart;
}

/** How much of the source is behind us. */
interface Position {
  readonly from: number;
  readonly to: number;
  readonly found: 'fresh' | 'resumed' | 'changed' | 'stream';
  /** Bytes at the end that are no line yet. */
  readonly unfinished: number;
}

/** Turns the lines of a source into events. */
class Source {
  readonly #attestation: Attestation;
  readonly #tally: Tally;
  readonly #kind: EnvelopeKind;
  readonly #session: string | undefined;

  constructor(attestation: Attestation, tally: Tally, kind: EnvelopeKind, session: string | undefined) {
    this.#attestation = attestation;
    this.#tally = tally;
    this.#kind = kind;
    this.#session = session;
  }

  async readStandardInput(signal: AbortSignal): Promise<Position> {
    const lines = new LineReader(0);
    const ended = (): void => void process.stdin.destroy();
    signal.addEventListener('abort', ended, { once: true });
    try {
      for await (const chunk of process.stdin as AsyncIterable<Buffer>) this.#take(lines, chunk);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    this.#takeRest(lines);
    return { from: 0, to: lines.offset, found: 'stream', unfinished: 0 };
  }

  /** Reads from where the last run stopped to the end; with `follow`, goes on as the file grows. */
  async readFile(
    { path, position, start: { offset, found } }: OpenSource,
    { follow, signal }: { readonly follow: boolean; readonly signal: AbortSignal },
  ): Promise<Position> {
    let lines = new LineReader(offset);
    let from = offset;
    let { ino } = await stat(path);
    let eventsBefore = this.#tally.lines;
    const save = (): void => position.save(this.#attestation.epoch.id, this.#tally.lines, lines.offset);
    save();
    for (;;) {
      const start = lines.offset + lines.pending.length;
      for await (const chunk of createReadStream(path, {
        start,
        highWaterMark: 256 * 1024,
      }) as AsyncIterable<Buffer>) {
        this.#take(lines, chunk);
        if (this.#tally.lines - eventsBefore >= SAVE_EVERY) {
          save();
          eventsBefore = this.#tally.lines;
        }
        if (signal.aborted || this.#attestation.stopped !== undefined) break;
      }
      save();
      if (!follow || signal.aborted || this.#attestation.stopped !== undefined) break;
      await sleep(LOOK_EVERY, undefined, { signal }).catch(() => undefined);
      const now = await stat(path).catch(() => undefined);
      if (now === undefined) continue;
      if (now.ino !== ino || now.size < lines.offset) {
        // Rotated or cut: another file stands under the name, and is read from its beginning.
        ino = now.ino;
        from = 0;
        lines = new LineReader(0);
      }
    }
    // A last line without LF is one if it is whole JSON; else its writer is not done with it.
    if (!follow && isJson(lines.pending)) this.#takeRest(lines);
    save();
    position.release();
    return { from, to: lines.offset, found, unfinished: lines.pending.length };
  }

  #takeRest(lines: LineReader): void {
    for (const { line } of lines.end()) this.#append(line);
    this.#attestation.wake();
  }

  #take(lines: LineReader, chunk: Buffer): void {
    for (const { line } of lines.push(chunk)) this.#append(line);
    this.#attestation.wake();
  }

  #append(line: Buffer): void {
    const { epoch } = this.#attestation;
    epoch.append({
      kind: this.#kind,
      content: line,
      session: this.#session,
      attrs: { bytes: line.length },
    });
    if (epoch.dropped > 0) {
      throw new CliError(EXIT.internal, 'spool', 'the state directory can take no more lines');
    }
    this.#tally.lines++;
    this.#tally.bytes += line.length;
  }
}

function startOf(position: SourcePosition, path: string): SourceStart {
  try {
    return position.start();
  } catch (error) {
    if (!(error instanceof SourceInUse)) throw error;
    throw badInput('in_use', `${path} is being forwarded by process ${error.pid}`, undefined, error);
  }
}

function isJson(bytes: Buffer): boolean {
  try {
    JSON.parse(bytes.toString('utf8'));
    return true;
  } catch {
    return false;
  }
}

/** Sends what runs of this machine have left, and says what waits for other logs. */
async function flushSpools(
  state: string,
  login: Login,
  settings: Settings,
  options: ForwardOptions,
  source: string | undefined,
): Promise<void> {
  const tally = new Tally();
  const forwarder = forwarderFor(state, login, tally.take, settings.limits);
  const progress = new Progress(tally, options.json);
  const timer = setTimeout(() => forwarder.stop(), options.flushTimeout * 1000);
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => forwarder.stop());
  forwarder.hurry();
  const { settled, left } = await forwarder.adoptOrphans();
  const tended = left > 0 ? undefined : await forwarder.tendKept();
  clearTimeout(timer);
  forwarder.stop();
  progress.end();
  const { origin: log } = login.credential;
  const elsewhere = knownLogs(state)
    .filter((origin) => origin !== log)
    .map((origin) => ({ log: origin, spools: pendingSpools(state, origin).length }))
    .filter(({ spools }) => spools > 0);
  const running = pendingSpools(state, log).length - left;
  const nothing = source === undefined ? {} : { source, lines: 0 };
  const summary = {
    ...nothing,
    log,
    spools: { settled, left, running },
    leftovers: countsOf(tally),
    published: tended?.published && { size: tended.published.size, root: tended.published.root },
    kept: tended?.kept,
    elsewhere,
  };
  await print(options.json, summary, () => {
    const news = source === undefined ? '' : `nothing new in ${source}\n`;
    const others = elsewhere.map(
      (other) => `${other.spools} spools wait for ${other.log}: log in there to send them\n`,
    );
    const used = running > 0 ? `${running} more are in use by running processes\n` : '';
    return `${news}${settled} spools of earlier runs sent to ${log}, ${tally.settled} lines\n${used}${keptText(tended)}${others.join('')}`;
  });
  process.exitCode = verdictOn({ pendingBytes: left, stopped: forwarder.stopped }, [tally]);
}

function keptText(tended: Awaited<ReturnType<Forwarder['tendKept']>>): string {
  if (tended === undefined || tended.kept.epochs === 0) return '';
  const { published, kept } = tended;
  const covered =
    published === undefined ? 'no checkpoint is published yet' : `published: size ${published.size}`;
  return `${kept.epochs} epochs of settled lines are kept (${kept.bytes} bytes), ${kept.uncovered} of them until a checkpoint covers them; ${covered}\n`;
}

function eventKind(text: string): EnvelopeKind {
  if (text === 'claim') return text;
  if (/^x\.[a-z][a-z0-9_.-]{0,40}$/.test(text)) return text as EnvelopeKind;
  throw new InvalidArgumentError('`x.` and a lower-case name, or `claim`.');
}

export function register(program: Command): void {
  loginOptions(program.command('forward'))
    .description('stream events from a file or standard input to the log, as commitments')
    .argument(
      '[source]',
      'an NDJSON file, or - for standard input; without it, what earlier runs left is sent',
    )
    .option('--follow', 'go on as the file grows')
    .option(
      '--start-over',
      'the log has started over, as its operator says: send everything again that is kept here',
    )
    .addOption(new Option('--background', 'what a hook starts to have its lines sent').hideHelp())
    .option('--sink <name>', 'name of this sink', sinkName, 'forward')
    .option('--kind <kind>', 'kind of the envelopes', eventKind, 'x.event')
    .option('--state <dir>', 'state directory: spools, secrets, positions (BELAY_STATE)')
    .addOption(privacyOption())
    .option('--flush-timeout <seconds>', 'how long to wait for acknowledgements at the end', seconds, 60)
    .option('--json', 'print one JSON document')
    .addHelpText(
      'after',
      `
The lines stay on this machine; what is sent of each is a salted commitment and its length. A file is read on from where
the last run stopped, so running again sends nothing twice.

Acknowledged lines are kept, compacted, until a published checkpoint covers them, and after that as long as the spool's
limits leave room: \`belay trace check --acks\` needs them. A log that signs a history other than the one it signed before
is accused and gets nothing more. If its operator says that it had to start over, --start-over puts the old head aside,
as evidence, and sends again what is kept.`,
    )
    .action(forward);
}
