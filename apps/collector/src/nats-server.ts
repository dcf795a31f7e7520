import { type NatsOptions, ServerNats } from '@nestjs/microservices';
import type { NatsConnection, Subscription } from '@nats-io/transport-node';
import { encodeOutcome, MAX_FRAME_BYTES, type NatsServers } from '@belay/contracts/rpc';

/** One message of ours, as Nest's server hands it to a serializer. */
interface Packet {
  readonly response?: Buffer;
  readonly err?: unknown;
}

/** This NATS can not carry what has to go over it. */
export class NatsUnfit extends Error {}

/** Collectors share the requests of one group: each goes to one of them, and any will do. */
const QUEUE = 'belay-collector';

/**
 * Nest's NATS server with two changes. Messages are raw frames (`@belay/contracts/rpc`), where Nest would wrap JSON in
 * JSON. And it leaves in order: no new requests, then the answers of those it has, then the connection.
 */
export class FrameServer extends ServerNats {
  #inFlight = 0;
  #idle: (() => void) | undefined;

  constructor(nats: NatsServers) {
    const options: Required<NatsOptions>['options'] = {
      ...nats,
      name: 'belay-collector',
      queue: QUEUE,
      waitOnFirstConnect: true,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      serializer: {
        serialize: ({ response }: Packet) => ({
          data:
            response ??
            encodeOutcome({
              ok: false,
              fault: { kind: 'retry', code: 'unavailable', message: 'the collector failed', retryAfter: 1 },
            }),
        }),
      },
      deserializer: {
        // Not an event, which is what a packet without an id would be: every request is answered.
        deserialize: ({ data }: { data: Uint8Array }) => ({
          id: '-',
          data: Buffer.from(data.buffer, data.byteOffset, data.byteLength),
        }),
      },
    };
    super(options);
  }

  /** Refuses a NATS that would cut off the largest append. */
  override async createNatsClient<T = NatsConnection>(): Promise<T> {
    const connection = (await super.createNatsClient()) as NatsConnection;
    const most = connection.info?.max_payload ?? 0;
    if (most < MAX_FRAME_BYTES) {
      await connection.close();
      throw new NatsUnfit(
        `NATS carries messages of ${most} bytes; appends need max_payload: ${MAX_FRAME_BYTES} or more`,
      );
    }
    return connection as T;
  }

  /** A request is in flight from here until its answer is published. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#inFlight += 1;
    try {
      return await work();
    } finally {
      // Nest publishes what a handler returned some microtasks and a tick later.
      setImmediate(() => {
        this.#inFlight -= 1;
        if (this.#inFlight === 0) this.#idle?.();
      });
    }
  }

  override async close(): Promise<void> {
    const connection = (this as unknown as { natsClient: NatsConnection | null }).natsClient;
    if (!connection) return;
    if (!connection.isClosed()) {
      const subscriptions = (this as unknown as { subscriptions: Subscription[] }).subscriptions;
      await Promise.allSettled(subscriptions.map((subscription) => subscription.drain()));
      if (this.#inFlight > 0) {
        await new Promise<void>((resolve) => {
          this.#idle = resolve;
        });
      }
      await connection.flush().catch(() => undefined);
    }
    await super.close();
  }
}
