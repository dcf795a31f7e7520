/** Where the run of one proxy is recorded and sent: its trace, its epoch, and the way of its lines to the log. */

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { type ClientError, machineSecret } from '@belay/client';
import { newUlid, sessionId } from '@belay/envelope';
import { type RecordBody, type TraceEnd, TraceWriter } from '@belay/trace';
import { AttestFirst, type AttestedCalls } from './attest-first.js';
import { Attestation } from './attestation.js';
import type { CliConfig } from './config.js';
import { findLogin } from './credentials.js';
import { CliError } from './exit.js';
import { KnownTools } from './known-tools.js';
import { type Boundary, Recorder } from './recorder.js';
import { type Privacy, readSettings } from './settings.js';

type Opening = Extract<RecordBody, { readonly type: 'open' }>;

export interface RecordingOptions {
  readonly config: CliConfig;
  readonly sink: string;
  /** Folder of traces, and state directory; the configuration says them where they are missing. */
  readonly trace?: string;
  readonly state?: string;
  readonly privacy?: Privacy;
  readonly boundary?: Boundary | undefined;
  /** Calls are held until the state before them is acknowledged, at most so many milliseconds. */
  readonly attestFirst?: number | undefined;
  /** What is told to the person, a line each. */
  readonly warn: (message: string) => void;
  /** What was run, for the first record of the trace; values go in as digests under the machine's secret. */
  readonly opening: (secret: Buffer) => Partial<Opening>;
}

/** Any part of it may be missing: traffic does not depend on it. */
export class Recording {
  readonly recorder: Recorder;
  /** Of this machine; of this run alone where the machine's can't be had. */
  readonly secret: Buffer;
  /** Absent where it was not asked for, or there is nothing to send to. */
  readonly attestFirst: AttestFirst | undefined;
  readonly #attestation: Attestation | undefined;
  readonly #knownTools: KnownTools;
  readonly #warn: (message: string) => void;

  private constructor(
    recorder: Recorder,
    secret: Buffer,
    attestation: Attestation | undefined,
    attestFirst: AttestFirst | undefined,
    knownTools: KnownTools,
    warn: (message: string) => void,
  ) {
    this.recorder = recorder;
    this.secret = secret;
    this.#attestation = attestation;
    this.attestFirst = attestFirst;
    this.#knownTools = knownTools;
    this.#warn = warn;
  }

  /** Never throws: what can't be had is told, and the run goes on without it. */
  static async open(options: RecordingOptions): Promise<Recording> {
    const { config, sink, warn } = options;
    const state = options.state ?? config.state;
    const settings = readSettings(config, options.privacy);
    for (const problem of settings.problems) warn(problem);
    const login = await attempt('credentials are not usable', warn, () => findLogin(config));
    let attestFirst: AttestFirst | undefined;
    const attestation =
      login === undefined
        ? undefined
        : await attempt('nothing is sent', warn, () =>
            Attestation.open({
              ...settings,
              state,
              login,
              sink,
              sinkKind: 'proxy',
              onEvent: (event, own) => attestFirst?.observe(event, own),
            }),
          );
    const limit = options.attestFirst;
    if (attestation !== undefined && limit !== undefined) {
      attestFirst = new AttestFirst({
        limit,
        spooled: () => attestation.epoch.spooled,
        stopped: () => attestation.stopped !== undefined,
        urge: () => attestation.urge(),
        onAway: () =>
          warn(`the log has not answered within ${limit} ms: until it does, calls go without --attest-first`),
      });
    }
    const secret =
      (await attempt('identifiers of this run can be matched with no other sink', warn, () =>
        machineSecret(state),
      )) ?? randomBytes(32);
    const session =
      config.session === undefined ? newUlid(Date.now(), randomBytes(10)) : sessionId(secret, config.session);
    const epoch = attestation?.epoch.id ?? newUlid(Date.now(), randomBytes(10));
    const opening = options.opening(secret);
    const knownTools = new KnownTools(state, secret, opening);
    const trace = await attempt('this run is not recorded', warn, () =>
      TraceWriter.create(
        join(options.trace ?? config.traceDir ?? join(state, 'traces'), `${sink}-${epoch}.jsonl`),
        {
          type: 'open',
          v: 1,
          epoch,
          sink,
          log: attestation?.epoch.log,
          session,
          recorder: 'belay/0.1.0',
          ...opening,
          pid: process.pid,
        },
        { wall: wallClock(), monotonic: () => performance.now() * 1000 },
      ),
    );
    const recorder = new Recorder({
      trace,
      epoch: attestation?.epoch,
      machineSecret: secret,
      session,
      privacy: settings.privacy,
      knownTools,
      boundary: options.boundary,
      onAppended: () => attestation?.wake(),
      now: () => performance.now(),
    });
    return new Recording(recorder, secret, attestation, attestFirst, knownTools, warn);
  }

  /** Closes the trace and sends what is left for at most `ms`, or until `signal` says that time is up. */
  async finish(end: TraceEnd, ms: number, signal: AbortSignal): Promise<void> {
    this.recorder.close(end);
    await attempt('the next run will not find tools that change', this.#warn, () => this.#knownTools.save());
    if (this.recorder.failures > 0) this.#warn(`${this.recorder.failures} frames could not be observed`);
    if (this.recorder.lost > 0) {
      this.#warn(`${this.recorder.lost} records of the trace could not be written: is the disk full?`);
    }
    if (this.attestFirst !== undefined) this.#tellWithout(this.attestFirst.calls);
    const left = await this.#attestation?.finish(ms, signal);
    if (left?.stopped !== undefined) this.#warn(reasonOf(left.stopped));
    else if (left !== undefined && left.pendingBytes > 0) {
      this.#warn('events wait in the spool; the next run sends them, or `belay forward`');
    }
  }

  #tellWithout({ waited, without }: AttestedCalls): void {
    const gone = [...without.values()].reduce((sum, calls) => sum + calls, 0);
    if (gone === 0) return;
    this.#warn(
      `${gone} of ${gone + waited} calls went before the state before them was acknowledged: ${listed(without)}`,
    );
  }
}

/** By name and number, as they stand in the trace. */
const listed = (without: AttestedCalls['without']): string =>
  [...without].map(([name, calls]) => `${name} ${calls}`).join(', ');

/** RFC 3339 in UTC. Most of it is the same for a second. */
function wallClock(): () => string {
  let [second, text] = [Number.NaN, ''];
  return () => {
    const now = Date.now();
    const [whole, rest] = [Math.floor(now / 1_000), now % 1_000];
    if (whole !== second) {
      second = whole;
      text = new Date(whole * 1_000).toISOString().slice(0, -4);
    }
    return `${text}${rest < 10 ? '00' : rest < 100 ? '0' : ''}${rest}Z`;
  };
}

/** Recording must not keep an agent from its tools: what fails is told, and the run goes on without it. */
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

function reasonOf(error: ClientError): string {
  return error.action === 'accuse'
    ? `the log contradicts itself, evidence was kept: ${error.message}`
    : `nothing more is sent: ${error.message}`;
}
