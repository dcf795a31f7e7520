/** What `proxy` and `forward` share: an epoch of a sink, and its lines on their way to the log in the background. */

import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { KeyObject } from 'node:crypto';
import {
  type ClientError,
  Epoch,
  Forwarder,
  type ForwardEvent,
  type LineFilter,
  SHARED_TIMES,
  type SpoolLimits,
  Transport,
} from '@belay/client';
import type { SinkKind } from '@belay/envelope';
import { KeysError, privateKeyObject, rawPublicKey, readKeyFile } from '@belay/keys';
import type { Login } from './credentials.js';
import { sinkKeyPath } from './credentials.js';

/** A process that starts, works for a moment and ends should not send what others left. Milliseconds. */
const ADOPT_AFTER = 1_000;

export interface AttestationOptions {
  readonly state: string;
  readonly login: Login;
  readonly sink: string;
  readonly sinkKind: SinkKind;
  /** `own`: of this run's epoch, or of no epoch in particular; else of what an earlier run left. */
  readonly onEvent?: (event: ForwardEvent, own: boolean) => void;
  /** Whether what earlier runs left is part of this one's work: then it starts at once and `finish` waits for it. */
  readonly leftovers?: boolean;
  readonly limits?: SpoolLimits | undefined;
  readonly filter?: LineFilter | undefined;
  /** Milliseconds between two signs of life. */
  readonly heartbeat?: number | undefined;
}

/** How an attestation ended: what still waits in the spool, and why when it is not only time that ran out. */
export interface Leftover {
  readonly pendingBytes: number;
  readonly stopped: ClientError | undefined;
}

/** The private key of a sink, or undefined where none was made on this machine. */
async function sinkKey(state: string, origin: string, sink: string): Promise<KeyObject | undefined> {
  try {
    return privateKeyObject(await readKeyFile(sinkKeyPath(state, origin, sink), { purpose: 'sink' }));
  } catch (error) {
    if (error instanceof KeysError && error.code === 'missing') return undefined;
    throw error;
  }
}

/** A forwarder for a login, with the keys that this machine holds. */
export function forwarderFor(
  state: string,
  login: Login,
  onEvent: ((event: ForwardEvent) => void) | undefined,
  limits?: SpoolLimits,
): Forwarder {
  const { url, token, credential } = login;
  return new Forwarder({
    state,
    transport: new Transport(url),
    token,
    credential,
    keyOf: (sink) => sinkKey(state, credential.origin, sink),
    limits,
    ...(onEvent === undefined ? {} : { onEvent }),
  });
}

/**
 * One epoch and the forwarder that sends it. The owner appends to `epoch`, calls `wake`, and at its end `finish`;
 * nothing in here throws into it or makes it wait.
 */
export class Attestation {
  readonly epoch: Epoch;
  readonly #forwarder: Forwarder;
  readonly #followed: Promise<boolean>;
  readonly #adoption: NodeJS.Timeout | undefined;
  /** What `finish` waits for besides this epoch. */
  readonly #adopted: Promise<unknown>;
  readonly #heart: NodeJS.Timeout;
  #closed = false;

  private constructor(epoch: Epoch, forwarder: Forwarder, leftovers: boolean, heartbeat: number) {
    this.epoch = epoch;
    this.#forwarder = forwarder;
    this.#followed = forwarder.follow(epoch.dir, () => this.#closed).catch(() => false);
    let adopting = false;
    const adopt = async (): Promise<void> => {
      if (adopting) return;
      adopting = true;
      await forwarder.adoptOrphans(epoch.dir).catch(() => undefined);
      adopting = false;
    };
    this.#adopted = leftovers ? adopt() : Promise.resolve();
    this.#adoption = leftovers ? undefined : setTimeout(() => void adopt(), ADOPT_AFTER).unref();
    // Also when nothing happens: that is what tells an idle sink from one that is gone. And whose process was killed
    // meanwhile, or whose background forwarder was, has its lines sent by this one.
    this.#heart = setInterval(() => {
      epoch.heartbeat();
      forwarder.wake();
      void adopt();
    }, heartbeat).unref();
  }

  static async open(options: AttestationOptions): Promise<Attestation> {
    const { state, login, sink, sinkKind } = options;
    const { origin } = login.credential;
    const key = await sinkKey(state, origin, sink);
    const epoch = await Epoch.open({
      state,
      log: origin,
      sink,
      sinkKind,
      key: key === undefined ? undefined : rawPublicKey(key),
      limits: options.limits,
      filter: options.filter,
    });
    const forwarder = forwarderFor(
      state,
      login,
      (event) => options.onEvent?.(event, !('epoch' in event) || event.epoch === epoch.id),
      options.limits,
    );
    return new Attestation(
      epoch,
      forwarder,
      options.leftovers === true,
      options.heartbeat ?? SHARED_TIMES.heartbeat,
    );
  }

  wake(): void {
    this.#forwarder.wake();
  }

  /** As `wake`, where somebody waits for the acknowledgement. */
  urge(): void {
    this.#forwarder.urge();
  }

  /** Why nothing is sent any more. */
  get stopped(): ClientError | undefined {
    return this.#forwarder.stopped;
  }

  /**
   * Closes the epoch and sends what is left for at most `ms`, or until `signal` says that time is up. What is not
   * settled then stays in the spool for the next run.
   */
  async finish(ms: number, signal: AbortSignal): Promise<Leftover> {
    clearTimeout(this.#adoption);
    clearInterval(this.#heart);
    this.epoch.close();
    this.#closed = true;
    this.#forwarder.hurry();
    await Promise.race([Promise.all([this.#followed, this.#adopted]), timeUp(ms, signal)]);
    this.#forwarder.stop();
    await Promise.all([this.#followed, this.#adopted]);
    this.epoch.release();
    return { pendingBytes: await sizeOf(join(this.epoch.dir, 'lines')), stopped: this.#forwarder.stopped };
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    return 0;
  }
}

async function timeUp(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    timer.unref();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
