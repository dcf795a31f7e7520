import { InjectQueue, OnWorkerEvent, Processor, WorkerHost } from '@nestjs/bullmq';
import { Inject, type OnApplicationBootstrap, type OnApplicationShutdown } from '@nestjs/common';
import { ACCOUNT_JOBS, ACCOUNT_QUEUE } from '@belay/contracts/jobs';
import type { Job, Queue } from 'bullmq';
import type { Logger } from 'pino';
import type { Schedules } from './schedules.js';
import { LOG, SCHEDULES } from './tokens.js';

/** How often each is looked for, and how often the schedule is put back into Redis, which may have been emptied. */
const EVERY_MS = 250;
const REASSERT_MS = 3_000;

/**
 * Nudges on Redis for all that takes longer than a checkpoint: a job only pokes a schedule of the worker that takes it,
 * and is done. What there is to do, and who does it, is in the database.
 */
@Processor(ACCOUNT_QUEUE, {
  concurrency: 4,
  lockDuration: 10_000,
  stalledInterval: 5_000,
  maxStalledCount: 5,
})
export class AccountProcessor extends WorkerHost implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #queue: Queue;
  readonly #schedules: Schedules;
  readonly #log: Logger;
  #timer: NodeJS.Timeout | undefined;
  #asserting = false;

  constructor(
    @InjectQueue(ACCOUNT_QUEUE) queue: Queue,
    @Inject(SCHEDULES) schedules: Schedules,
    @Inject(LOG) log: Logger,
  ) {
    super();
    this.#queue = queue;
    this.#schedules = schedules;
    this.#log = log;
    queue.on('error', (error) => this.broken(error));
  }

  onApplicationBootstrap(): void {
    void this.#assertSchedules();
    this.#timer = setInterval(() => void this.#assertSchedules(), REASSERT_MS);
  }

  onApplicationShutdown(): void {
    clearInterval(this.#timer);
  }

  async process(job: Job<unknown>): Promise<string> {
    const name = ACCOUNT_JOBS.find((one) => one === job.name);
    if (name === undefined) return 'unknown';
    this.#schedules[name].poke();
    return Promise.resolve('poked');
  }

  @OnWorkerEvent('error')
  broken(error: Error): void {
    this.#log.warn({ reason: error.message }, 'Redis');
  }

  async #assertSchedules(): Promise<void> {
    // While Redis is away a call waits for it; one waiting is enough.
    if (this.#asserting) return;
    this.#asserting = true;
    try {
      for (const name of ACCOUNT_JOBS) {
        await this.#queue.upsertJobScheduler(
          name,
          { every: EVERY_MS },
          { name, opts: { removeOnComplete: true, removeOnFail: true } },
        );
      }
    } catch (error) {
      this.broken(error as Error);
    } finally {
      this.#asserting = false;
    }
  }
}
