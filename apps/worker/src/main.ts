import { NestFactory } from '@nestjs/core';
import { AccountStore, openDatabase, Reader } from '@belay/db';
import { ConfigError, readConfig, type WorkerProcessConfig } from './config.js';
import { asNestLogger, createLogger, serveHealth } from '@belay/process';
import { Accountant } from './accountant.js';
import { WorkerModule } from './module.js';
import { NatsCollector } from './nats-collector.js';
import type { WorkerParts } from './schedules.js';

/** Closing waits for Redis and NATS; when they are gone, nothing is lost by leaving without. */
const LEAVE_MS = 15_000;

/** The worker as a process of its own. */
async function run(config: WorkerProcessConfig): Promise<void> {
  const log = createLogger('worker', config.logLevel);
  let state = 'starting';
  let trouble = (): string | undefined => undefined;
  const health = await serveHealth(config.healthPort, () => (state === 'ok' ? trouble() : state));
  const database = openDatabase(config.database, { role: config.role, size: config.pool });
  const store = new AccountStore(config.database, { role: config.role, size: config.pool });
  const collector = new NatsCollector(config.nats, config.collectorTimeoutMs);
  const parts: WorkerParts = {
    reader: new Reader(database),
    store,
    collector,
    now: Date.now,
    log,
    intervalMs: config.intervalMs,
    exports:
      config.exportDir === undefined
        ? undefined
        : { dir: config.exportDir, keepDays: config.exportKeepDays, maxBytes: config.exportMaxBytes },
    webhookPrivate: config.webhookPrivate,
  };
  const module = config.redis
    ? WorkerModule.onRedis({ ...parts, redis: config.redis })
    : WorkerModule.inProcess(parts);
  const app = await NestFactory.createApplicationContext(module, {
    logger: asNestLogger(log),
    abortOnError: false,
  });

  const accountant = app.get(Accountant);
  trouble = () => accountant.trouble;
  let leaving: Promise<void> | undefined;
  const leave = () =>
    (leaving ??= (async () => {
      state = 'stopping';
      log.info('stopping');
      setTimeout(() => process.exit(0), LEAVE_MS).unref();
      await app.close();
      await collector.close();
      await store.close();
      await database.destroy();
      await health.close();
      log.info('stopped');
      // A connection to NATS that was never made would go on being tried.
      process.exit(0);
    })());
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void leave());
  state = 'ok';
  log.info({ health: health.port, schedule: config.redis ? 'redis' : 'timer' }, 'publishing');
}

try {
  await run(readConfig());
} catch (error) {
  const expected = error instanceof ConfigError;
  process.stderr.write(`worker: ${expected ? error.message : ((error as Error).stack ?? String(error))}\n`);
  process.exit(expected ? 64 : 70);
}
