import 'reflect-metadata';
import { type DynamicModule, Module } from '@nestjs/common';
import type { CollectorApi } from '@belay/contracts';
import type { Logger } from 'pino';
import { CollectorController, type InFlight } from './collector.controller.js';
import { COLLECTOR, IN_FLIGHT, LOG } from './tokens.js';

export interface CollectorModuleParts {
  readonly collector: CollectorApi;
  readonly log: Logger;
  /** Only a process of its own has to know when its requests are answered. */
  readonly inFlight?: InFlight;
}

/** The collector for a Nest application. Its message handlers sleep where nothing carries messages to them. */
@Module({})
export class CollectorModule {
  static of({ collector, log, inFlight = (work) => work() }: CollectorModuleParts): DynamicModule {
    return {
      module: CollectorModule,
      controllers: [CollectorController],
      providers: [
        { provide: COLLECTOR, useFactory: () => collector },
        { provide: LOG, useFactory: () => log },
        { provide: IN_FLIGHT, useFactory: () => inFlight },
      ],
      exports: [COLLECTOR],
    };
  }
}

export { type CollectorConfig, DEFAULT_ORIGIN_PREFIX } from './config.js';
export { Keyring, WrongLogKey } from './keyring.js';
export { openCollector, type OpenCollector } from './open.js';
export { CollectorService } from './service.js';
