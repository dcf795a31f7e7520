import { ClientNats } from '@nestjs/microservices';
import type {
  CheckpointReply,
  CollectorApi,
  CollectorFault,
  ExportReply,
  IssueReply,
  Outcome,
  RecordReply,
  StaleFault,
} from '@belay/contracts';
import {
  decodeOutcome,
  encodeCheckpoint,
  encodePayload,
  encodeRecord,
  FrameError,
  type NatsServers,
  type PayloadRequest,
  type RecordRequest,
  SUBJECTS,
} from '@belay/contracts/rpc';
import type { Msg } from '@nats-io/transport-node';
import { firstValueFrom, map, merge, Subject, timeout } from 'rxjs';

/** What a worker asks of the collector. */
export type WorkerCollector = Pick<CollectorApi, 'checkpoint' | 'record' | 'issue' | 'signExport'>;

/** What a worker asks of the collector, over NATS, as raw frames (`@belay/contracts/rpc`). */
export class NatsCollector implements WorkerCollector {
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

  checkpoint(log: string): Promise<Outcome<CheckpointReply>> {
    return this.#ask(SUBJECTS.checkpoint, () => encodeCheckpoint(log), decodeOutcome<CheckpointReply>);
  }

  record(request: RecordRequest): Promise<Outcome<RecordReply>> {
    return this.#ask(SUBJECTS.record, () => encodeRecord(request), decodeOutcome<RecordReply>);
  }

  issue(request: PayloadRequest): Promise<Outcome<IssueReply, CollectorFault | StaleFault>> {
    return this.#ask(
      SUBJECTS.issue,
      () => encodePayload(request),
      decodeOutcome<IssueReply, CollectorFault | StaleFault>,
    );
  }

  signExport(request: PayloadRequest): Promise<Outcome<ExportReply>> {
    return this.#ask(SUBJECTS.signExport, () => encodePayload(request), decodeOutcome<ExportReply>);
  }

  async close(): Promise<void> {
    await this.#client.close();
  }

  async #ask<T, F>(
    subject: string,
    encode: () => Buffer | Promise<Buffer>,
    decode: (frame: Buffer) => Outcome<T, F>,
  ): Promise<Outcome<T, F | CollectorFault>> {
    let frame: Buffer;
    try {
      frame = await encode();
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      // It would be too large the next time too.
      return { ok: false, fault: { kind: 'refused', code: 'invalid', message: error.message } };
    }
    try {
      const answer = this.#client.send<Buffer, Buffer>(subject, frame).pipe(timeout(this.#timeoutMs));
      return decode(await firstValueFrom(merge(answer, this.#lost.pipe(map(lost)))));
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return { ok: false, fault: { kind: 'retry', code: 'unavailable', message, retryAfter: 1 } };
    }
  }
}

function lost(): never {
  throw new Error('the connection to NATS was lost');
}
