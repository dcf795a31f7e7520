import 'reflect-metadata';
import { BullModule } from '@nestjs/bullmq';
import { type DynamicModule, Module, type OnApplicationBootstrap } from '@nestjs/common';
import { Inject, type OnModuleDestroy } from '@nestjs/common';
import { type AccountJob, ACCOUNT_QUEUE, PUBLISH_QUEUE } from '@belay/contracts/jobs';
import type { AccountStore, Reader } from '@belay/db';
import type { Logger } from 'pino';
import { AccountProcessor } from './account.processor.js';
import { Accountant } from './accountant.js';
import { Evaluator } from './evaluator.js';
import { Exports, type ExportsParts } from './exports.js';
import { JobsProcessor } from './jobs.processor.js';
import type { WorkerCollector } from './nats-collector.js';
import { Periods } from './periods.js';
import { Publisher } from './publisher.js';
import { InProcessSchedule, type Sweeper } from './schedule.js';
import { INTERVAL, LOG, PUBLISHER, SCHEDULES } from './tokens.js';
import { Webhooks } from './webhooks.js';
import { Work } from './work.js';

/** Most milliseconds between two looks at what waits to be reconciled. */
const ACCOUNT_MS = 250;

export interface WorkerParts {
  readonly reader: Reader;
  readonly store: AccountStore;
  readonly collector: WorkerCollector;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
  /** Milliseconds between sweeps for checkpoints. */
  readonly intervalMs: number;
  /** Where exports are made; absent: nowhere, and that is left to other workers. */
  readonly exports?: Pick<ExportsParts, 'dir' | 'keepDays' | 'maxBytes'> | undefined;
  /** Whether webhooks may be at private addresses and on this machine. */
  readonly webhookPrivate: boolean;
}

/** What a worker does, by the name of the job that pokes it. */
export type Schedules = Readonly<Record<AccountJob, InProcessSchedule>>;

/** The worker, on a schedule within this process or on Redis. */
@Module({})
export class WorkerModule {
  static inProcess(parts: WorkerParts): DynamicModule {
    const publisher = new Publisher(parts);
    const publishing = new InProcessSchedule(publisher, parts.intervalMs, parts.log);
    const { accountant, schedules } = partsOf(parts, publisher, Math.min(parts.intervalMs, ACCOUNT_MS));
    return {
      module: WorkerModule,
      providers: [
        { provide: Accountant, useValue: accountant },
        {
          provide: ScheduleLifetime,
          useFactory: () => new ScheduleLifetime([publishing, ...Object.values(schedules)]),
        },
      ],
    };
  }

  static onRedis(parts: WorkerParts & { readonly redis: string }): DynamicModule {
    const publisher = new Publisher(parts);
    const { accountant, schedules } = partsOf(parts, publisher, Number.POSITIVE_INFINITY);
    return {
      module: WorkerModule,
      imports: [
        BullModule.forRoot({ connection: { url: parts.redis }, prefix: 'belay' }),
        BullModule.registerQueue({ name: PUBLISH_QUEUE }, { name: ACCOUNT_QUEUE }),
      ],
      providers: [
        { provide: Accountant, useValue: accountant },
        { provide: PUBLISHER, useValue: publisher },
        { provide: SCHEDULES, useValue: schedules },
        { provide: INTERVAL, useValue: parts.intervalMs },
        { provide: LOG, useValue: parts.log },
        {
          provide: ScheduleLifetime,
          useFactory: () => new ScheduleLifetime(Object.values(schedules)),
        },
        JobsProcessor,
        AccountProcessor,
      ],
    };
  }
}

function partsOf(
  parts: WorkerParts,
  publisher: Publisher,
  intervalMs: number,
): { readonly accountant: Accountant; readonly schedules: Schedules } {
  const evaluator = new Evaluator({ ...parts, publisher });
  const accountant = new Accountant({ ...parts, evaluator });
  const periods = new Periods({ ...parts, accountant, publisher });
  const exports = parts.exports && new Exports({ ...parts, ...parts.exports, accountant, publisher });
  const work = new Work({
    ...parts,
    kinds: { period: periods.make, ...(exports && { export: exports.make }) },
    tidy: () => exports?.tidy() ?? Promise.resolve(),
  });
  const webhooks = new Webhooks({
    ...parts,
    deliveries: parts.store.deliveries,
    allowPrivate: parts.webhookPrivate,
    random: Math.random,
  });
  const on = (sweeper: Sweeper): InProcessSchedule => new InProcessSchedule(sweeper, intervalMs, parts.log);
  return { accountant, schedules: { account: on(accountant), work: on(work), deliver: on(webhooks) } };
}

/** Starts and stops schedules with the application. */
class ScheduleLifetime implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #schedules: readonly InProcessSchedule[];

  constructor(@Inject(SCHEDULES) schedules: readonly InProcessSchedule[]) {
    this.#schedules = schedules;
  }

  onApplicationBootstrap(): void {
    for (const schedule of this.#schedules) schedule.start();
  }

  async onModuleDestroy(): Promise<void> {
    await Promise.all(this.#schedules.map((schedule) => schedule.stop()));
  }
}

export { Accountant, type AccountantParts } from './accountant.js';
export { Evaluator, type EvaluatorParts } from './evaluator.js';
export type { WorkerCollector } from './nats-collector.js';
export { Publisher, type Published, type PublisherParts } from './publisher.js';
