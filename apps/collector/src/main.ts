import { NestFactory } from '@nestjs/core';
import { migrate, MIGRATIONS } from '@belay/db';
import { exitCodeOf } from './exit-code.js';
import { type CollectorProcessConfig, readConfig } from './config.js';
import { asNestLogger, createLogger, serveHealth } from '@belay/process';
import { CollectorModule } from './module.js';
import { FrameServer } from './nats-server.js';
import { openCollector } from './open.js';

/** The collector as a process of its own: requests come over NATS. */
async function run(config: CollectorProcessConfig): Promise<void> {
  const log = createLogger('collector', config.logLevel);
  let state = 'starting';
  let trouble = (): string | null => null;
  const health = await serveHealth(config.healthPort, () =>
    state === 'ok' ? (trouble() ?? undefined) : state,
  );
  if (config.migrate) {
    const applied = await migrate(config.database, MIGRATIONS);
    if (applied.length > 0) log.info({ applied }, 'migrated');
  }
  const collector = await openCollector({ config, connection: config.database, log });
  trouble = () => collector.trouble();
  const server = new FrameServer(config.nats);
  const app = await NestFactory.createMicroservice(
    CollectorModule.of({ collector: collector.service, log, inFlight: (work) => server.during(work) }),
    { strategy: server, logger: asNestLogger(log), abortOnError: false },
  );
  let leaving: Promise<void> | undefined;
  const leave = () =>
    (leaving ??= (async () => {
      state = 'stopping';
      log.info('stopping');
      await app.close();
      await collector.close();
      await health.close();
      log.info('stopped');
      // A connection to NATS that was never made would go on being tried.
      process.exit(0);
    })());
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void leave());
  log.info('waiting for requests');
  await app.listen();
  await collector.firstOperator(showOperator);
  state = 'ok';
  log.info({ health: health.port }, 'taking requests');
}

/** Past the logger, which would take it out. */
function showOperator(key: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(`operator key, shown once: ${key}\n`, (error) =>
      error ? reject(error) : resolve(),
    );
  });
}

try {
  await run(readConfig());
} catch (error) {
  const code = exitCodeOf(error);
  const { message, stack } = error as Error;
  process.stderr.write(`collector: ${code === 70 ? (stack ?? String(error)) : message}\n`);
  process.exit(code);
}
