import { Controller, Inject } from '@nestjs/common';
import { MessagePattern, Payload } from '@nestjs/microservices';
import type { CollectorApi, CollectorFault, Outcome } from '@belay/contracts';
import {
  decodeAppend,
  decodeChange,
  decodeCheckpoint,
  decodePayload,
  decodeReceipt,
  decodeRecord,
  encodeOutcome,
  FrameError,
  SUBJECTS,
} from '@belay/contracts/rpc';
import type { Logger } from 'pino';
import { COLLECTOR, IN_FLIGHT, LOG } from './tokens.js';

/** Counts a request as in flight while it is worked on. */
export type InFlight = <T>(work: () => Promise<T>) => Promise<T>;

type Answer = Parameters<typeof encodeOutcome>[0];

/** From frames to `CollectorApi` and back. */
@Controller()
export class CollectorController {
  readonly #collector: CollectorApi;
  readonly #inFlight: InFlight;
  readonly #log: Logger;

  constructor(
    @Inject(COLLECTOR) collector: CollectorApi,
    @Inject(IN_FLIGHT) inFlight: InFlight,
    @Inject(LOG) log: Logger,
  ) {
    this.#collector = collector;
    this.#inFlight = inFlight;
    this.#log = log;
  }

  @MessagePattern(SUBJECTS.append)
  append(@Payload() frame: Buffer): Promise<Buffer> {
    return this.#answer(() => this.#collector.append(decodeAppend(frame)));
  }

  @MessagePattern(SUBJECTS.change)
  change(@Payload() frame: Buffer): Promise<Buffer> {
    return this.#answer(() => this.#collector.change(decodeChange(frame)));
  }

  @MessagePattern(SUBJECTS.checkpoint)
  checkpoint(@Payload() frame: Buffer): Promise<Buffer> {
    return this.#answer(() => this.#collector.checkpoint(decodeCheckpoint(frame)));
  }

  @MessagePattern(SUBJECTS.receipt)
  receipt(@Payload() frame: Buffer): Promise<Buffer> {
    return this.#answer(() => this.#collector.receipt(decodeReceipt(frame)));
  }

  @MessagePattern(SUBJECTS.record)
  record(@Payload() frame: Buffer): Promise<Buffer> {
    return this.#answer(async () => this.#collector.record(await decodeRecord(frame)));
  }

  @MessagePattern(SUBJECTS.issue)
  issue(@Payload() frame: Buffer): Promise<Buffer> {
    return this.#answer(() => this.#collector.issue(decodePayload(frame)));
  }

  @MessagePattern(SUBJECTS.signExport)
  signExport(@Payload() frame: Buffer): Promise<Buffer> {
    return this.#answer(() => this.#collector.signExport(decodePayload(frame)));
  }

  #answer(work: () => Promise<Answer>): Promise<Buffer> {
    return this.#inFlight(async () => {
      try {
        return encodeOutcome(await work());
      } catch (error) {
        this.#log.error({ err: error }, 'a request failed');
        return encodeOutcome(failed(error));
      }
    });
  }
}

function failed(error: unknown): Outcome<never> {
  const fault: CollectorFault =
    error instanceof FrameError
      ? { kind: 'refused', code: 'invalid', message: error.message }
      : { kind: 'retry', code: 'unavailable', message: 'the collector failed', retryAfter: 1 };
  return { ok: false, fault };
}
