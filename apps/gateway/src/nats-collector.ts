import { ClientNats } from '@nestjs/microservices';
import type {
  Ack,
  AppendRequest,
  Change,
  ChangeReply,
  CollectorFault,
  Outcome,
  ReceiptReply,
} from '@belay/contracts';
import {
  decodeChangeOutcome,
  decodeOutcome,
  encodeAppend,
  encodeChange,
  encodeReceipt,
  MAX_FRAME_BYTES,
  type NatsServers,
  type ReceiptRequest,
  SUBJECTS,
} from '@belay/contracts/rpc';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
import { firstValueFrom, map, merge, Subject, timeout } from 'rxjs';
import type { Logger } from 'pino';
import type { Collector } from './collector.js';

export interface NatsOptions {
  readonly nats: NatsServers;
  readonly timeoutMs: number;
  readonly log: Logger;
}

/**
 * The collector at the other end of NATS. Frames travel as they are: Nest's packets would put every line into JSON.
 * An answer that does not come is `unavailable`; whether the request was carried out is then unknown, which is what
 * retries and duplicates are for.
 */
export class NatsCollector implements Collector {
  readonly #client: ClientNats;
  readonly #timeoutMs: number;
  readonly #log: Logger;
  /** The connection went: an answer that was under way never comes. */
  readonly #lost = new Subject<void>();

  constructor({ nats, timeoutMs, log }: NatsOptions) {
    this.#timeoutMs = timeoutMs;
    this.#log = log;
    this.#client = new ClientNats({
      ...nats,
      name: 'belay-gateway',
      waitOnFirstConnect: true,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      serializer: { serialize: ({ data }: { data: Buffer }) => ({ data }) },
      deserializer: { deserialize: ({ data }: Msg) => ({ response: Buffer.from(data), isDisposed: true }) },
    });
    // The event, not the state: `status` can stay at `reconnecting` beside a connection that works.
    this.#client.on('disconnect', () => this.#lost.next());
  }

  /** Goes on in the background until NATS is there. Rejects when it carries less than a frame. */
  async connect(): Promise<void> {
    const connection = (await this.#client.connect()) as NatsConnection;
    const most = connection.info?.max_payload ?? 0;
    if (most < MAX_FRAME_BYTES) {
      throw new Error(
        `NATS carries messages of ${most} bytes; appends need max_payload: ${MAX_FRAME_BYTES} or more`,
      );
    }
  }

  /** Throws while NATS can't be reached. */
  async ready(): Promise<void> {
    const connection = this.#client.unwrap<NatsConnection>();
    await within(this.#timeoutMs, connection.flush());
  }

  append(request: AppendRequest): Promise<Outcome<Ack>> {
    return this.#ask(SUBJECTS.append, encodeAppend(request), decodeOutcome<Ack>);
  }

  change(change: Change): Promise<Outcome<ChangeReply>> {
    return this.#ask(SUBJECTS.change, encodeChange(change), decodeChangeOutcome);
  }

  receipt(request: ReceiptRequest): Promise<Outcome<ReceiptReply>> {
    return this.#ask(SUBJECTS.receipt, encodeReceipt(request), decodeOutcome<ReceiptReply>);
  }

  async close(): Promise<void> {
    await this.#client.close();
  }

  async #ask<T>(subject: string, frame: Buffer, decode: (frame: Buffer) => Outcome<T>): Promise<Outcome<T>> {
    try {
      const answer = this.#client.send<Buffer, Buffer>(subject, frame).pipe(timeout(this.#timeoutMs));
      return decode(await firstValueFrom(merge(answer, this.#lost.pipe(map(lost)))));
    } catch (error) {
      this.#log.warn({ err: error, subject }, 'the collector did not answer');
      const fault: CollectorFault = {
        kind: 'retry',
        code: 'unavailable',
        message: 'the collector did not answer',
        retryAfter: 1,
      };
      return { ok: false, fault };
    }
  }
}

async function within(ms: number, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('NATS does not answer')), Math.min(ms, 2000));
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

function lost(): never {
  throw new Error('the connection to NATS was lost');
}
