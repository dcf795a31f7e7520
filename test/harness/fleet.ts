import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type EmbeddedPostgres, startEmbedded } from '@belay/db';
import { Child, freePort } from './child.js';
import { makeScratch } from './scratch.js';
import type { Service } from './service.js';

/** The three processes by name, as often as they run. */
export type ProcessName = 'gateway' | 'collector' | 'worker';

export interface Fleet extends Service {
  /** Ends the first process of this name, by SIGTERM unless said otherwise. */
  stop(name: ProcessName, signal?: NodeJS.Signals): Promise<void>;
  /** Starts one more process of this name and waits until it is healthy. A gateway answers at the fleet's URL. */
  start(name: ProcessName): Promise<void>;
  /** Where its PostgreSQL is, with the rights of its owner. */
  readonly database: EmbeddedPostgres['connection'];
  /** Empties Redis: every job, schedule and lock. */
  flushRedis(): Promise<void>;
  /** Kills NATS and starts it again on its port. */
  restartNats(pauseMs?: number): Promise<void>;
}

const main = (name: ProcessName) =>
  fileURLToPath(new URL(`../../apps/${name}/dist/main.js`, import.meta.url));

/**
 * Gateway, collector and worker as processes of their own, over a real NATS, a real Redis and a real PostgreSQL. They
 * run compiled: `npm test` sees to that.
 */
export async function startFleet(options: { readonly publishIntervalMs?: number } = {}): Promise<Fleet> {
  const scratch = makeScratch('fleet');
  const undo: (() => Promise<unknown> | void)[] = [() => scratch.remove()];
  const close = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const postgres = await startEmbedded(join(scratch.dir, 'postgres'));
    undo.push(() => postgres.stop());
    const [gatewayPort, natsPort, redisPort] = await Promise.all([freePort(), freePort(), freePort()]);

    const natsConfig = join(scratch.dir, 'nats.conf');
    writeFileSync(
      natsConfig,
      `listen: "127.0.0.1:${natsPort}"\nmax_payload: 8MB\nauthorization { user: belay, password: "p@ss" }\n`,
    );
    let nats = await startNats(natsConfig);
    undo.push(() => nats.stop());
    const redis = new Child('redis', 'redis-server', [
      '--port',
      String(redisPort),
      '--bind',
      '127.0.0.1',
      '--save',
      '',
      '--dir',
      scratch.dir,
    ]);
    undo.push(() => redis.stop());
    await redis.until(() => redis.output.includes('Ready to accept connections'));

    const exportDir = join(scratch.dir, 'exports');
    mkdirSync(exportDir);
    const { host, port, user, password, database } = postgres.connection;
    const login = `${user}:${encodeURIComponent(password)}`;
    const env = {
      DATABASE_URL: `postgres://${login}@localhost/${database}?host=${encodeURIComponent(host)}&port=${port}`,
      NATS_URL: `nats://belay:p%40ss@127.0.0.1:${natsPort}`,
      REDIS_URL: `redis://127.0.0.1:${redisPort}`,
      LOG_LEVEL: 'trace',
      COLLECTOR_TIMEOUT: '3',
      HEALTH_PORT: '0',
      PORT: String(gatewayPort),
      EXPORT_DIR: exportDir,
      WEBHOOK_PRIVATE: '1',
      PUBLISH_INTERVAL_MS: String(options.publishIntervalMs ?? 200),
    };
    const url = `http://127.0.0.1:${gatewayPort}`;
    const running: { readonly child: Child; readonly anchor: number | undefined }[] = [];
    const all: Child[] = [];
    const start = async (name: ProcessName) => {
      // Collectors that run at once have an anchor each, and all have the keys of the first.
      const anchors = new Set(running.map(({ anchor }) => anchor));
      let anchor = 0;
      while (name === 'collector' && anchors.has(anchor)) anchor += 1;
      const child = new Child(name, process.execPath, [main(name)], {
        ...env,
        BELAY_DATA: join(scratch.dir, `collector-${anchor}`),
        KEYS_DIR: join(scratch.dir, 'keys'),
      });
      running.push({ child, anchor: name === 'collector' ? anchor : undefined });
      all.push(child);
      await child.until(async () =>
        name === 'gateway'
          ? isReady(url)
          : child.output.includes(name === 'collector' ? 'taking requests' : 'publishing'),
      );
    };
    undo.push(() => Promise.all(running.map(({ child }) => child.stop())));
    await start('collector');
    await start('worker');
    await start('gateway');
    const operatorKey = /belay_operator_[\w-]+/.exec(all[0]?.output ?? '')?.[0] ?? '';

    return {
      url,
      operatorKey,
      database: postgres.connection,
      // The operator key is printed, once; nothing else secret may be.
      logs: () =>
        all.map((child) => child.output.replace(`operator key, shown once: ${operatorKey}`, '')).join('\n'),
      start,
      stop: async (name, signal) => {
        const at = running.findIndex(({ child }) => child.name === name);
        const [stopped] = at < 0 ? [] : running.splice(at, 1);
        if (!stopped) throw new Error(`no ${name} runs`);
        await stopped.child.stop(signal);
      },
      flushRedis: async () => {
        const child = new Child('redis-cli', 'redis-cli', ['-p', String(redisPort), 'flushall']);
        await child.until(() => child.output.includes('OK'));
      },
      restartNats: async (pauseMs = 0) => {
        await nats.stop('SIGKILL');
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
        nats = await startNats(natsConfig);
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function startNats(config: string): Promise<Child> {
  const nats = new Child('nats', 'nats-server', ['-c', config]);
  await nats.until(() => nats.output.includes('Server is ready'));
  return nats;
}

async function isReady(url: string): Promise<boolean> {
  try {
    return (await fetch(`${url}/readyz`)).ok;
  } catch {
    return false;
  }
}
