import { createHmac } from 'node:crypto';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isIP } from 'node:net';
import type { Attempted, Delivery, DeliveryStore } from '@belay/db';
import { InsideAddress, isOutside, outsideLookup } from '@belay/process';
import type { Logger } from 'pino';

/** Messages under way at a time: in all, of one log, of one webhook. */
const AT_ONCE = 32;
const OF_A_LOG = 8;
const OF_A_WEBHOOK = 2;
/** One attempt, from the name's resolution to the status. */
const ATTEMPT_MS = 15_000;
/** For how long nobody else sends a message that this worker has. */
const CLAIM_MS = 60_000;
/** Pauses after the first failures, in seconds; the last one is repeated until the message is a day old. */
const PAUSES = [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400];
const LAST_PAUSE = 28_800;
const GIVEN_UP_MS = 24 * 3_600_000;
/** For how long it is kept what came of a message, and how often older ones are looked for. */
const KEPT_MS = 30 * 24 * 3_600_000;
const PURGE_MS = 60_000;
/** Bytes of an answer that are read. What it says is not looked at, only its status. */
const ANSWER_BYTES = 4_096;

export interface WebhooksParts {
  readonly deliveries: DeliveryStore;
  /** Whether webhooks may be at private addresses and on this machine. */
  readonly allowPrivate: boolean;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** [0, 1): spreads retries. */
  readonly random: () => number;
  readonly log: Logger;
}

/**
 * Sends what webhooks are to hear of, as Standard Webhooks has it, and tries again for a day. Any number of these may
 * run at once; a message may come twice, under the same `webhook-id`.
 */
export class Webhooks {
  readonly #parts: WebhooksParts;
  /** Messages under way, by log and webhook. */
  readonly #busy = new Map<string, number>();
  #sending = new Set<Promise<void>>();
  #purged = Number.NEGATIVE_INFINITY;

  constructor(parts: WebhooksParts) {
    this.#parts = parts;
  }

  /** Begins to send what is due, as far as there is room; what hangs is not waited for. */
  async sweep(): Promise<void> {
    const { deliveries, now } = this.#parts;
    if (now() - this.#purged >= PURGE_MS) {
      this.#purged = now();
      await deliveries.purge(new Date(now() - KEPT_MS));
    }
    const room = AT_ONCE - this.#sending.size;
    if (room <= 0) return;
    const start = now();
    const claimed = await deliveries.claim(new Date(start), new Date(start + CLAIM_MS), room, OF_A_WEBHOOK);
    for (const delivery of claimed) {
      const places = [`log ${delivery.log}`, `webhook ${delivery.webhook}`];
      const isFull =
        this.#count(places[0] as string) >= OF_A_LOG || this.#count(places[1] as string) >= OF_A_WEBHOOK;
      const sending = (isFull ? this.#putBack(delivery) : this.#send(delivery, places)).catch(
        (error: unknown) => this.#parts.log.error({ err: error, delivery: delivery.id }, 'a delivery failed'),
      );
      this.#sending.add(sending);
      void sending.finally(() => this.#sending.delete(sending));
    }
  }

  /** What is under way is waited for: each for no longer than an attempt takes. */
  stop(): Promise<void> {
    return this.idle();
  }

  /** Waits for what is under way. */
  async idle(): Promise<void> {
    await Promise.all(this.#sending);
  }

  async #putBack({ id }: Delivery): Promise<void> {
    await this.#parts.deliveries.putBack(id, new Date(this.#parts.now() + 1_000));
  }

  async #send(delivery: Delivery, places: readonly string[]): Promise<void> {
    for (const place of places) this.#busy.set(place, this.#count(place) + 1);
    try {
      const { now, allowPrivate } = this.#parts;
      const result = await attempt(delivery, now(), allowPrivate);
      await this.#parts.deliveries.attempted(delivery.id, this.#next(delivery, result));
    } finally {
      for (const place of places) {
        const count = this.#count(place) - 1;
        if (count > 0) this.#busy.set(place, count);
        else this.#busy.delete(place);
      }
    }
  }

  #next({ created, attempts }: Delivery, { status, error }: Attempt): Attempted {
    const now = this.#parts.now();
    if (status !== undefined && status >= 200 && status < 300) return { status, delivered: new Date(now) };
    const pause = (PAUSES[attempts - 1] ?? LAST_PAUSE) * 1_000;
    const due = now + pause * (0.9 + 0.2 * this.#parts.random());
    const isOver = due > created.getTime() + GIVEN_UP_MS || status === 410;
    return { status, error: error ?? `answered ${status}`, ...(isOver ? {} : { due: new Date(due) }) };
  }

  #count(place: string): number {
    return this.#busy.get(place) ?? 0;
  }
}

interface Attempt {
  readonly status?: number | undefined;
  readonly error?: string | undefined;
}

/** The connection ended without an answer that is one. */
class NoAnswer extends Error {
  constructor() {
    super('the connection was closed without an answer');
    this.name = 'NoAnswer';
  }
}

/** The signature of a message: Standard Webhooks, symmetric. */
function signMessage(secret: Buffer, id: string, seconds: number, body: string): string {
  return `v1,${createHmac('sha256', secret).update(`${id}.${seconds}.${body}`).digest('base64')}`;
}

async function attempt(
  { id, url, secret, body }: Delivery,
  now: number,
  allowPrivate: boolean,
): Promise<Attempt> {
  const seconds = Math.floor(now / 1_000);
  try {
    const target = new URL(url);
    const isPlain = target.protocol === 'http:';
    if (!isPlain && target.protocol !== 'https:') return { error: 'not an http or https URL' };
    const host = target.hostname.replace(/^\[|\]$/g, '');
    // An address in place of a name is resolved by nobody, so that no lookup would be asked.
    if (!allowPrivate && isIP(host) !== 0 && !isOutside(host)) throw new InsideAddress();
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      (isPlain ? httpRequest : httpsRequest)(target, {
        method: 'POST',
        agent: false,
        signal: AbortSignal.timeout(ATTEMPT_MS),
        ...(allowPrivate ? {} : { lookup: outsideLookup }),
        headers: {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          'user-agent': 'belay-webhooks',
          'webhook-id': id,
          'webhook-timestamp': String(seconds),
          'webhook-signature': signMessage(secret, id, seconds, body),
        },
      })
        .on('error', reject)
        // An answer that changes the protocol (101) is neither of the two: its connection is closed, and that is all.
        .on('close', () => reject(new NoAnswer()))
        .on('response', resolve)
        .end(body);
    });
    await drain(response);
    return { status: response.statusCode };
  } catch (error) {
    return { error: wordsFor(error) };
  }
}

/** Reads a little of the answer, so that whoever sends it is done with it in most cases, and leaves the rest. */
async function drain(response: IncomingMessage): Promise<void> {
  let bytes = 0;
  try {
    for await (const part of response) {
      bytes += (part as Buffer).length;
      if (bytes > ANSWER_BYTES) break;
    }
  } catch {
    // The status is what counts, and that is there.
  } finally {
    response.destroy();
  }
}

function wordsFor(error: unknown): string {
  if (error instanceof InsideAddress || error instanceof NoAnswer) return error.message;
  const { name, code } = error as NodeJS.ErrnoException;
  if (name === 'AbortError' || name === 'TimeoutError') return 'no answer in time';
  if (error instanceof TypeError) return 'not a URL';
  return `no connection: ${code ?? name}`;
}
