import { ClientNats } from '@nestjs/microservices';
import type { CheckpointReply, CollectorApi, Outcome } from '@belay/contracts';
import { decodeOutcome, encodeCheckpoint, type NatsServers, SUBJECTS } from '@belay/contracts/rpc';
import type { Msg } from '@nats-io/transport-node';
import { firstValueFrom, map, merge, Subject, timeout } from 'rxjs';

/** The one thing a worker asks of the collector, over NATS, as raw frames (`@belay/contracts/rpc`). */
export class NatsCollector implements Pick<CollectorApi, 'checkpoint'> {
  readonly #client: ClientNats;
  readonly #timeoutMs: number;
  /** The connection went: an answer that was under way never comes. */
  readonly #lost = new Subject<void>();

  constructor(nats: NatsServers, timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
    this.#client = new ClientNats({
      ...nats,
      name: 'belay-worker',
      waitOnFirstConnect: true,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      serializer: { serialize: ({ data }: { data: Buffer }) => ({ data }) },
      deserializer: { deserialize: ({ data }: Msg) => ({ response: Buffer.from(data), isDisposed: true }) },
    });
    // The event, not the state: `status` can stay at `reconnecting` beside a connection that works.
    this.#client.on('disconnect', () => this.#lost.next());
  }

  async checkpoint(log: string): Promise<Outcome<CheckpointReply>> {
    try {
      const answer = this.#client.send<Buffer, Buffer>(SUBJECTS.checkpoint, encodeCheckpoint(log));
      return decodeOutcome(
        await firstValueFrom(merge(answer.pipe(timeout(this.#timeoutMs)), this.#lost.pipe(map(lost)))),
      );
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return { ok: false, fault: { kind: 'retry', code: 'unavailable', message, retryAfter: 1 } };
    }
  }

  async close(): Promise<void> {
    await this.#client.close();
  }
}

function lost(): never {
  throw new Error('the connection to NATS was lost');
}
