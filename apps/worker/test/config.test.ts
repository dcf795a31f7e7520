import { describe, expect, it } from 'vitest';
import { ConfigError, readConfig } from '../src/config.js';

const enough = { DATABASE_URL: 'postgres://belay@db/belay', NATS_URL: 'tls://a:4222' };

describe('the worker’s environment', () => {
  it('needs a database and NATS; without Redis it has a schedule of its own', () => {
    expect(readConfig(enough)).toMatchObject({ redis: undefined, intervalMs: 1000, role: 'belay_worker' });
    expect(readConfig({ ...enough, REDIS_URL: 'redis://r:6379' }).redis).toBe('redis://r:6379');
  });

  it('makes exports where it is told, and sends webhooks to the open Internet unless it is told otherwise', () => {
    expect(readConfig(enough)).toMatchObject({
      exportDir: undefined,
      exportKeepDays: 7,
      exportMaxBytes: 20 * 1024 ** 3,
      webhookPrivate: false,
    });
    const told = { EXPORT_DIR: '/exports', EXPORT_KEEP_DAYS: '30', EXPORT_MAX_MB: '1', WEBHOOK_PRIVATE: '1' };
    expect(readConfig({ ...enough, ...told })).toMatchObject({
      exportDir: '/exports',
      exportKeepDays: 30,
      exportMaxBytes: 1024 ** 2,
      webhookPrivate: true,
    });
  });

  it.each([
    ['DATABASE_URL', ''],
    ['NATS_URL', ''],
    ['REDIS_URL', 'localhost'],
    ['PUBLISH_INTERVAL_MS', '1'],
    ['DATABASE_ROLE', 'belay_collector'],
    ['EXPORT_KEEP_DAYS', '0'],
    ['WEBHOOK_PRIVATE', 'yes'],
  ])('is refused for %s=%s, by the name of the variable', (name, value) => {
    expect(() => readConfig({ ...enough, [name]: value })).toThrow(ConfigError);
    expect(() => readConfig({ ...enough, [name]: value })).toThrow(new RegExp(`^${name}: `));
  });
});
