import { join } from 'node:path';
import { startService } from '@belay/belay/serve';
import { makeScratch } from './scratch.js';
import type { Service } from './service.js';

export interface ServeService extends Service {
  readonly dataDir: string;
  /** Stops the service and starts it again on the same data; `url` is another one afterwards. */
  restart(): Promise<void>;
}

/** The whole service in this process, on an embedded PostgreSQL of its own. */
export async function startServe(
  options: { readonly publishIntervalMs?: number } = {},
): Promise<ServeService> {
  const scratch = makeScratch('serve');
  const dataDir = join(scratch.dir, 'data');
  let logged = '';
  const start = () =>
    startService({
      dataDir,
      host: '127.0.0.1',
      port: 0,
      logLevel: 'trace',
      logTo: { write: (line) => (logged += line) },
      publishIntervalMs: options.publishIntervalMs ?? 200,
      webhookPrivate: true,
    });
  let running = await start().catch((error: unknown) => {
    scratch.remove();
    throw error;
  });
  const operatorKey = running.operatorKey ?? '';
  return {
    get url() {
      return running.url;
    },
    operatorKey,
    dataDir,
    logs: () => logged,
    restart: async () => {
      await running.close();
      running = await start();
    },
    close: async () => {
      await running.close();
      scratch.remove();
    },
  };
}
