import { openDatabase, Reader } from '@belay/db';
import { ConfigError, type GatewayProcessConfig, readConfig } from './config.js';
import { createLogger } from '@belay/process';
import { createGateway, SYSTEM_SOURCE } from './module.js';
import { NatsCollector } from './nats-collector.js';

/** The gateway as a process of its own: database and NATS from the environment. */
async function run(config: GatewayProcessConfig): Promise<void> {
  const log = createLogger('gateway', config.logLevel);
  const database = openDatabase(config.database, { role: config.role, size: config.pool });
  const collector = new NatsCollector({ nats: config.nats, timeoutMs: config.collectorTimeoutMs, log });
  const gateway = await createGateway({
    config,
    collector,
    reader: new Reader(database),
    log,
    source: SYSTEM_SOURCE,
    ready: () => collector.ready(),
  });
  gateway.metrics.addProcess();

  let leaving: Promise<void> | undefined;
  const leave = (exitCode: number) =>
    (leaving ??= (async () => {
      log.info('stopping');
      await gateway.close();
      await collector.close();
      await database.destroy();
      log.info('stopped');
      // A connection to NATS that was never made would go on being tried.
      process.exit(exitCode);
    })());
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void leave(0));

  collector.connect().catch((error: unknown) => {
    log.fatal({ err: error }, 'NATS can not be used');
    void leave(69);
  });
  log.info({ url: await gateway.listen() }, 'listening');
}

try {
  await run(readConfig());
} catch (error) {
  const expected = error instanceof ConfigError;
  process.stderr.write(`gateway: ${expected ? error.message : ((error as Error).stack ?? String(error))}\n`);
  process.exit(expected ? 64 : 70);
}
