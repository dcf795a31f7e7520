import 'reflect-metadata';
import { BullModule } from '@nestjs/bullmq';
import { type DynamicModule, Module, type OnApplicationBootstrap } from '@nestjs/common';
import { Inject, type OnModuleDestroy } from '@nestjs/common';
import { ACCOUNT_QUEUE, PUBLISH_QUEUE } from '@belay/contracts/jobs';
import { AccountProcessor } from './account.processor.js';
import { Accountant } from './accountant.js';
import { JobsProcessor } from './jobs.processor.js';
import type { InProcessSchedule } from './schedule.js';
import { assembleWorker, type WorkerParts } from './schedules.js';
import { INTERVAL, LOG, PUBLISHER, SCHEDULES } from './tokens.js';

/** The worker, on a schedule within this process or on Redis. */
@Module({})
export class WorkerModule {
  static inProcess(parts: WorkerParts): DynamicModule {
    const { accountant, publishing, schedules } = assembleWorker(parts, 'timers');
    const all = [publishing, ...Object.values(schedules)];
    return {
      module: WorkerModule,
      providers: [
        { provide: Accountant, useValue: accountant },
        { provide: ScheduleLifetime, useFactory: () => new ScheduleLifetime(all) },
      ],
    };
  }

  static onRedis(parts: WorkerParts & { readonly redis: string }): DynamicModule {
    const { accountant, publisher, schedules } = assembleWorker(parts, 'pokes');
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
