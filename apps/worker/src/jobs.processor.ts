import { InjectQueue, OnWorkerEvent, Processor, WorkerHost } from '@nestjs/bullmq';
import { Inject, type OnApplicationBootstrap, type OnApplicationShutdown } from '@nestjs/common';
import { PUBLISH_QUEUE, publishJob, SWEEP_JOB } from '@belay/contracts/jobs';
import type { Job, Queue } from 'bullmq';
import type { Logger } from 'pino';
import type { Publisher } from './publisher.js';
import { INTERVAL, LOG, PUBLISHER } from './tokens.js';

/** How often the schedule is put back into Redis, which may have been emptied. */
const REASSERT_MS = 3000;

/**
 * The schedule on Redis. A job is a nudge to look at a row: `sweep` finds the logs that are due and adds one `publish`
 * for each. Losing them all loses nothing but a moment, so none is kept once it ended, well or not.
 */
@Processor(PUBLISH_QUEUE, {
  concurrency: 8,
  lockDuration: 10_000,
  stalledInterval: 5_000,
  maxStalledCount: 5,
})
export class JobsProcessor extends WorkerHost implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #queue: Queue;
  readonly #publisher: Publisher;
  readonly #intervalMs: number;
  readonly #log: Logger;
  #timer: NodeJS.Timeout | undefined;
  #asserting = false;

  constructor(
    @InjectQueue(PUBLISH_QUEUE) queue: Queue,
    @Inject(PUBLISHER) publisher: Publisher,
    @Inject(INTERVAL) intervalMs: number,
    @Inject(LOG) log: Logger,
  ) {
    super();
    this.#queue = queue;
    this.#publisher = publisher;
    this.#intervalMs = intervalMs;
    this.#log = log;
    queue.on('error', (error) => this.#lost(error));
  }

  onApplicationBootstrap(): void {
    void this.#assertSchedule();
    this.#timer = setInterval(() => void this.#assertSchedule(), REASSERT_MS);
  }

  onApplicationShutdown(): void {
    clearInterval(this.#timer);
  }

  async process(job: Job<unknown>): Promise<string> {
    if (job.name === SWEEP_JOB) {
      const due = await this.#publisher.due();
      // BullMQ takes no `:` in an identifier. Of one log at one size there is one job at a time.
      await this.#queue.addBulk(
        due.map(({ log, size }) => ({
          name: 'publish',
          data: { log },
          opts: { ...GONE, jobId: `${log}-${size}` },
        })),
      );
      return `${due.length}`;
    }
    return this.#publisher.publishById(publishJob.parse(job.data).log);
  }

  @OnWorkerEvent('failed')
  failed(job: Job | undefined, error: Error): void {
    this.#log.error({ err: error, job: job?.name }, 'a job failed; the next sweep finds its row again');
  }

  @OnWorkerEvent('error')
  broken(error: Error): void {
    this.#lost(error);
  }

  async #assertSchedule(): Promise<void> {
    // While Redis is away a call waits for it; one waiting is enough.
    if (this.#asserting) return;
    this.#asserting = true;
    try {
      await this.#queue.upsertJobScheduler(
        SWEEP_JOB,
        { every: this.#intervalMs },
        { name: SWEEP_JOB, opts: GONE },
      );
    } catch (error) {
      this.#lost(error as Error);
    } finally {
      this.#asserting = false;
    }
  }

  #lost(error: Error): void {
    this.#log.warn({ reason: error.message }, 'Redis');
  }
}

const GONE = { removeOnComplete: true, removeOnFail: true } as const;
