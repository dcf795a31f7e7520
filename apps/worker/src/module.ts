import 'reflect-metadata';
import { BullModule } from '@nestjs/bullmq';
import { type DynamicModule, Module, type OnApplicationBootstrap } from '@nestjs/common';
import { Inject, type OnModuleDestroy } from '@nestjs/common';
import { PUBLISH_QUEUE } from '@belay/contracts/jobs';
import type { Logger } from 'pino';
import { JobsProcessor } from './jobs.processor.js';
import { Publisher, type PublisherParts } from './publisher.js';
import { InProcessSchedule } from './schedule.js';
import { INTERVAL, LOG, PUBLISHER, SCHEDULE } from './tokens.js';

export interface WorkerParts extends PublisherParts {
  /** Milliseconds between sweeps. */
  readonly intervalMs: number;
  readonly log: Logger;
}

/** The worker, on a schedule within this process or on Redis. */
@Module({})
export class WorkerModule {
  static inProcess(parts: WorkerParts): DynamicModule {
    return {
      module: WorkerModule,
      providers: [
        { provide: PUBLISHER, useFactory: () => new Publisher(parts) },
        {
          provide: SCHEDULE,
          useFactory: (publisher: Publisher) => new InProcessSchedule(publisher, parts.intervalMs, parts.log),
          inject: [PUBLISHER],
        },
        {
          provide: ScheduleLifetime,
          useFactory: (schedule: InProcessSchedule) => new ScheduleLifetime(schedule),
          inject: [SCHEDULE],
        },
      ],
    };
  }

  static onRedis(parts: WorkerParts & { readonly redis: string }): DynamicModule {
    return {
      module: WorkerModule,
      imports: [
        BullModule.forRoot({ connection: { url: parts.redis }, prefix: 'belay' }),
        BullModule.registerQueue({ name: PUBLISH_QUEUE }),
      ],
      providers: [
        { provide: PUBLISHER, useFactory: () => new Publisher(parts) },
        { provide: INTERVAL, useFactory: () => parts.intervalMs },
        { provide: LOG, useFactory: () => parts.log },
        JobsProcessor,
      ],
    };
  }
}

/** Starts and stops the schedule with the application. */
class ScheduleLifetime implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #schedule: InProcessSchedule;

  constructor(@Inject(SCHEDULE) schedule: InProcessSchedule) {
    this.#schedule = schedule;
  }

  onApplicationBootstrap(): void {
    this.#schedule.start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.#schedule.stop();
  }
}

export { Publisher, type Published, type PublisherParts } from './publisher.js';
