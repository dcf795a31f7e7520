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
import { JobsProcessor } from './jobs.processor.js';
import type { WorkerCollector } from './nats-collector.js';
import { Publisher } from './publisher.js';
import { InProcessSchedule } from './schedule.js';
import { INTERVAL, LOG, PUBLISHER, SCHEDULES } from './tokens.js';

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
}

/** What a worker does, by the name of the job that pokes it. */
export type Schedules = Readonly<Record<AccountJob, InProcessSchedule>>;

/** The worker, on a schedule within this process or on Redis. */
@Module({})
export class WorkerModule {
  static inProcess(parts: WorkerParts): DynamicModule {
    const publisher = new Publisher(parts);
    const publishing = new InProcessSchedule(publisher, parts.intervalMs, parts.log);
    const schedules = schedulesOf(parts, publisher, Math.min(parts.intervalMs, ACCOUNT_MS));
    return {
      module: WorkerModule,
      providers: [
        {
          provide: ScheduleLifetime,
          useFactory: () => new ScheduleLifetime([publishing, ...Object.values(schedules)]),
        },
      ],
    };
  }

  static onRedis(parts: WorkerParts & { readonly redis: string }): DynamicModule {
    const publisher = new Publisher(parts);
    const schedules = schedulesOf(parts, publisher, Number.POSITIVE_INFINITY);
    return {
      module: WorkerModule,
      imports: [
        BullModule.forRoot({ connection: { url: parts.redis }, prefix: 'belay' }),
        BullModule.registerQueue({ name: PUBLISH_QUEUE }, { name: ACCOUNT_QUEUE }),
      ],
      providers: [
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

function schedulesOf(parts: WorkerParts, publisher: Publisher, intervalMs: number): Schedules {
  const evaluator = new Evaluator({ ...parts, publisher });
  const accountant = new Accountant({ ...parts, evaluator });
  const nothing = { sweep: () => Promise.resolve() };
  return {
    account: new InProcessSchedule(accountant, intervalMs, parts.log),
    work: new InProcessSchedule(nothing, intervalMs, parts.log),
    deliver: new InProcessSchedule(nothing, intervalMs, parts.log),
  };
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
