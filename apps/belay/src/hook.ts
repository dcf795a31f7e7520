/**
 * `belay hook`: one event of an agent, on record. A process per event, which the agent waits for: it loads little, says
 * nothing on standard output, speaks to no network, and ends with 0 whatever happens.
 */

import { createHash, hash, randomBytes } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import { acquireBriefly, type Draft, machineSecret, SharedEpoch, sinkDir, Slots } from '@belay/client/sink';
import { newUlid, sessionId } from '@belay/envelope/sink';
import { type TraceTail, TraceWriter } from '@belay/trace/writer';
import { CallIdentity } from './call-identity.js';
import { type CliConfig, readConfig } from './config.js';
import { type HookEvent, type HookTool, readHookEvent } from './hook-event.js';
import { readHookOptions, type HookOptions } from './hook-options.js';
import { startForwarding } from './hook-forward.js';
import { loginOrigin } from './login-origin.js';
import { readSettings, type Settings } from './settings.js';

/** A larger event is hashed as it comes and not kept. Bytes. */
const MAX_EVENT = 16 * 1024 * 1024;
/** Canonical form of larger events would hold up the agent: they have no `match` and no weak `call`. Bytes. */
const MAX_CANONICAL = 1024 * 1024;
/** An agent that doesn't end its event is not waited for longer. Milliseconds. */
const STDIN_PATIENCE = 5_000;
/** The list of calls by which equal ones are counted; past it they are not told apart any more. Bytes. */
const MAX_COUNTED = 4 * 1024 * 1024;
/** Other events of the same run take about a millisecond each. */
const PATIENCE = 2_000;
/** A run that said nothing for so long, and no end, is over. Milliseconds. */
const FORGOTTEN = 24 * 3_600_000;
/** Of a run that has no id. */
const NO_SESSION = 'no session';

/** What is kept between the events of one run of an agent. */
interface Kept {
  readonly calls: number;
  /** Events that got no envelope, and that no envelope speaks of yet. */
  readonly missed?: number | undefined;
  readonly trace?: { readonly path: string; readonly epoch: string; readonly tail: TraceTail } | undefined;
}

/** An event as it came. */
interface Received {
  readonly size: number;
  readonly sha256: string;
  /** Undefined when there was too much. */
  readonly bytes: Buffer | undefined;
}

/** Records the event on standard input. Never throws and never fails: the agent goes on in any case. */
export async function runHook(args: readonly string[]): Promise<0> {
  const config = readConfig();
  try {
    const options = readHookOptions(args);
    const received = readEvent();
    if (received === undefined) return 0;
    await new HookRun(config, options).take(received);
  } catch (error) {
    if (config.debug) process.stderr.write(`belay: ${(error as Error).stack ?? String(error)}\n`);
  }
  return 0;
}

/** Records an event that did not come from an agent's hook. Throws what keeps it from being recorded. */
export async function recordEvent(config: CliConfig, options: HookOptions, event: Buffer): Promise<void> {
  const sha256 = createHash('sha256').update(event).digest('hex');
  await new HookRun(config, options).take({ size: event.length, sha256, bytes: event });
}

class HookRun {
  readonly #config: CliConfig;
  readonly #options: HookOptions;
  readonly #state: string;
  readonly #settings: Settings;
  readonly #secret: Buffer;
  /** Origin of the log that lines go to; undefined without credentials, when events are only recorded. */
  readonly #origin: string | undefined;

  constructor(config: CliConfig, options: HookOptions) {
    this.#config = config;
    this.#options = options;
    this.#state = options.state ?? config.state;
    this.#settings = readSettings(config, options.privacy);
    this.#secret = attempt(() => machineSecret(this.#state)) ?? randomBytes(32);
    this.#origin = attempt(() => loginOrigin(config));
  }

  async take(received: Received): Promise<void> {
    const event = readHookEvent(received.bytes ?? Buffer.alloc(0));
    const agentSession = this.#config.session ?? event.session;
    const session = agentSession === undefined ? undefined : sessionId(this.#secret, agentSession);
    const key = await this.#sinkKey();
    const runs = join(this.#state, 'hooks', this.#options.sink);
    const folder = join(runs, hash('sha256', session ?? NO_SESSION, 'hex').slice(0, 16));
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const lock = acquireBriefly(folder, PATIENCE);
    try {
      const slots = Slots.open<Kept>(join(folder, 'state'));
      try {
        const over = event.meaning.type === 'session.close';
        const kept = this.#record(event, received, session, key, folder, slots.value);
        slots.write(over ? { calls: 0 } : kept);
        if (over) this.#endRun(runs, folder);
      } finally {
        slots.close();
      }
    } finally {
      lock.release();
    }
    if (this.#origin !== undefined) {
      const last = event.meaning.type === 'session.close';
      startForwarding(this.#state, this.#origin, this.#config.environment, last);
    }
  }

  /** Appends the envelopes, then the contents. Returns what the next event has to know. */
  #record(
    event: HookEvent,
    received: Received,
    session: string | undefined,
    key: Buffer | undefined,
    folder: string,
    kept: Kept | undefined,
  ): Kept {
    const begins = session !== undefined && kept?.trace === undefined;
    const { meaning } = event;
    const identity = new CallIdentity(this.#secret, session ?? NO_SESSION, this.#settings.privacy);
    const calls = (kept?.calls ?? 0) + (meaning.type === 'call' ? 1 : 0);
    const content = received.bytes ?? Buffer.from(received.sha256, 'hex');
    const draft: Draft = {
      ...this.#draftOf(event, received, begins, identity, folder, calls),
      session,
      content: meaning.type === 'claim' ? Buffer.from(meaning.statement, 'utf8') : content,
    };
    const before = kept?.missed ?? 0;
    const sent = this.#send(draft, begins, before, session, key);
    const missed = sent === undefined && this.#origin !== undefined ? before + 1 : 0;
    const writer = this.#trace(kept?.trace, sent?.epoch, session);
    if (writer === undefined) return { calls, missed };
    const seqs = sent === undefined ? undefined : [sent.seq];
    const claim = meaning.type === 'claim';
    const { size, sha256, bytes } = received;
    const oversize = bytes === undefined ? (true as const) : undefined;
    writer.trace.append(
      { type: 'hook', event: event.name, size, sha256, oversize, seqs: claim ? undefined : seqs },
      bytes,
    );
    if (claim) {
      const statement = draft.content as Buffer;
      const digest = createHash('sha256').update(statement).digest('hex');
      writer.trace.append({ type: 'claim', size: statement.length, sha256: digest, seqs }, statement);
    }
    if (meaning.type === 'session.close') writer.trace.close({});
    const tail = writer.trace.leave();
    return { calls, missed, trace: { path: writer.trace.path, epoch: writer.epoch, tail } };
  }

  #draftOf(
    event: HookEvent,
    received: Received,
    begins: boolean,
    identity: CallIdentity,
    folder: string,
    calls: number,
  ): Draft {
    const { meaning } = event;
    const bytes = received.size;
    const oversize = received.bytes === undefined ? true : undefined;
    switch (meaning.type) {
      case 'session.open':
        if (begins) return { kind: 'session.open', attrs: this.#openingAttributes() };
        break;
      case 'session.close':
        return { kind: 'session.close', attrs: { calls } };
      case 'call':
      case 'result': {
        const { tool } = meaning;
        const canonical = bytes <= MAX_CANONICAL;
        const args = canonical ? identity.match(tool.args) : undefined;
        const compared = meaning.type === 'call' ? undefined : meaning.content;
        const result = canonical && compared !== undefined ? identity.match(compared) : undefined;
        return {
          kind: meaning.type,
          call: this.#callOf(tool, meaning.type, args, identity, folder),
          match: meaning.type === 'call' ? args : result,
          attrs: {
            tool: identity.tool(tool.name),
            bytes,
            ok: meaning.type === 'result' ? meaning.ok : undefined,
          },
        };
      }
      case 'claim':
        return { kind: 'claim', attrs: { bytes: Buffer.byteLength(meaning.statement) } };
      default:
    }
    return { kind: 'x.hook', attrs: { event: event.name, bytes, oversize } };
  }

  /** Of the agent's id of the call, or of how many equal ones were before. */
  #callOf(
    tool: HookTool,
    type: 'call' | 'result',
    match: string | undefined,
    identity: CallIdentity,
    folder: string,
  ): string | undefined {
    if (tool.toolUseId !== undefined && !this.#options.weakIds) return identity.call(tool.toolUseId);
    if (match === undefined) return undefined;
    return attempt(() =>
      identity.weakCall(tool.name, tool.args, match, (pair) =>
        occurrenceOf(join(folder, 'calls'), type, pair),
      ),
    );
  }

  #openingAttributes(): Draft['attrs'] {
    return this.#settings.privacy === 'strict' ? undefined : { agent: this.#options.agent };
  }

  /** Undefined when nothing is sent, or the spool can't be written at all. */
  #send(
    draft: Draft,
    begins: boolean,
    missed: number,
    session: string | undefined,
    key: Buffer | undefined,
  ): { readonly seq: number; readonly epoch: string } | undefined {
    const { log, sink } = { log: this.#origin, sink: this.#options.sink };
    if (log === undefined) return undefined;
    const { limits, filter, heartbeat } = this.#settings;
    return attempt(() =>
      SharedEpoch.use({ state: this.#state, log, sink, sinkKind: 'hook', key, limits, filter }, (epoch) => {
        if (begins && draft.kind !== 'session.open') {
          epoch.append({ kind: 'session.open', session, attrs: this.#openingAttributes() });
        }
        if (missed > 0) epoch.append({ kind: 'x.hook', session, attrs: { missed } });
        epoch.tend({ heartbeat, idle: Number.POSITIVE_INFINITY });
        const seq = draft.kind === 'session.close' ? epoch.appendStated(draft) : epoch.append(draft);
        return { seq, epoch: epoch.id };
      }),
    );
  }

  /** The run's trace to append to: the one it has, or a new one where it has none of this epoch. */
  #trace(
    before: Kept['trace'],
    epoch: string | undefined,
    session: string | undefined,
  ): { readonly trace: TraceWriter; readonly epoch: string } | undefined {
    const clock = {
      wall: () => new Date().toISOString(),
      // Since the boot, so that the processes of one run share it.
      monotonic: () => Number(process.hrtime.bigint() / 1000n),
    };
    return attempt(() => {
      if (before !== undefined) {
        const trace = TraceWriter.resume(before.path, before.tail, clock);
        if (trace !== undefined && (epoch ?? before.epoch) === before.epoch)
          return { trace, epoch: before.epoch };
        trace?.close({});
      }
      const ulid = newUlid(Date.now(), randomBytes(10));
      const folder = this.#options.trace ?? this.#config.traceDir ?? join(this.#state, 'traces');
      const trace = TraceWriter.create(
        join(folder, `${this.#options.sink}-${ulid}.jsonl`),
        {
          type: 'open',
          v: 1,
          epoch: epoch ?? ulid,
          sink: this.#options.sink,
          log: epoch === undefined ? undefined : this.#origin,
          session: session ?? NO_SESSION,
          recorder: 'belay/0.1.0',
        },
        clock,
      );
      return { trace, epoch: epoch ?? ulid };
    });
  }

  /** The run has said that it is over: what was kept of it goes, and with the last run the epoch. */
  #endRun(runs: string, folder: string): void {
    for (const name of ['calls', 'state']) rmSync(join(folder, name), { force: true });
    const others = readdirSync(runs).filter((name) => {
      const state = join(runs, name, 'state');
      return existsSync(state) && Date.now() - statSync(state).mtimeMs < FORGOTTEN;
    });
    if (others.length > 0 || this.#origin === undefined) return;
    const { limits } = this.#settings;
    SharedEpoch.useOpen(
      { state: this.#state, log: this.#origin, sink: this.#options.sink, limits },
      (epoch) => epoch.close(),
    );
  }

  /** Public key of a keyed sink; what reads it is loaded only where there is one. */
  async #sinkKey(): Promise<Buffer | undefined> {
    if (this.#origin === undefined) return undefined;
    const path = join(sinkDir(this.#state, this.#origin, this.#options.sink), 'key.json');
    if (!existsSync(path)) return undefined;
    try {
      const { privateKeyObject, rawPublicKey, readKeyFile } = await import('@belay/keys');
      return rawPublicKey(privateKeyObject(await readKeyFile(path, { purpose: 'sink' })));
    } catch {
      return undefined;
    }
  }
}

/** Standard input to its end; undefined when there is nothing in it. */
function readEvent(): Received | undefined {
  const digest = createHash('sha256');
  const parts: Buffer[] = [];
  const deadline = Date.now() + STDIN_PATIENCE;
  let size = 0;
  const piece = Buffer.alloc(64 * 1024);
  while (Date.now() < deadline) {
    let read: number;
    try {
      read = readSync(0, piece, 0, piece.length, null);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EOF') break;
      if (code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
      continue;
    }
    if (read === 0) break;
    size += read;
    digest.update(piece.subarray(0, read));
    if (size <= MAX_EVENT) parts.push(Buffer.from(piece.subarray(0, read)));
    else parts.length = 0;
  }
  if (size === 0) return undefined;
  const sha256 = digest.digest('hex');
  return { size, sha256, bytes: size <= MAX_EVENT ? Buffer.concat(parts) : undefined };
}

/** Counts equal calls (or results) of a run over its processes. Throws TypeError when there are too many. */
function occurrenceOf(path: string, type: 'call' | 'result', pair: string): number {
  const line = `${type} ${hash('sha256', pair, 'hex').slice(0, 32)}\n`;
  const text = existsSync(path) ? readFileSync(path, 'latin1') : '';
  if (text.length > MAX_COUNTED) throw new TypeError('too many calls to count');
  appendFileSync(path, line, { mode: 0o600 });
  return text.split(line).length;
}

function attempt<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}
