import { describe, expect, it } from 'vitest';
import { ConfigError, readConfig } from '../src/config.js';

const enough = { DATABASE_URL: 'postgres://belay@db/belay', NATS_URL: 'nats://a:4222,nats://b:4222' };

describe('the gateway’s environment', () => {
  it('needs a database and NATS, and has defaults for the rest', () => {
    expect(readConfig(enough)).toMatchObject({
      host: '127.0.0.1',
      port: 8420,
      role: 'belay_gateway',
      maxAppends: 256,
      exportDir: undefined,
      webhookPrivate: false,
    });
    expect(readConfig({ ...enough, EXPORT_DIR: '/srv/exports', WEBHOOK_PRIVATE: '1' })).toMatchObject({
      exportDir: '/srv/exports',
      webhookPrivate: true,
    });
    expect(readConfig(enough).nats).toEqual({ servers: ['nats://a:4222', 'nats://b:4222'] });
    expect(readConfig({ ...enough, DATABASE_ROLE: 'none', COLLECTOR_TIMEOUT: '5' })).toMatchObject({
      role: undefined,
      collectorTimeoutMs: 5000,
    });
  });

  it.each([
    ['DATABASE_URL', ''],
    ['DATABASE_URL', 'mysql://x'],
    ['NATS_URL', ''],
    ['NATS_URL', 'localhost:4222'],
    ['PORT', '80a'],
    ['PORT', '70000'],
    ['MAX_APPENDS', '0'],
    ['DATABASE_ROLE', 'belay_collector'],
    ['MAX_WAITERS', '1'],
    ['MAX_EXPORTS', 'many'],
    ['WEBHOOK_PRIVATE', 'yes'],
  ])('is refused for %s=%s, by the name of the variable', (name, value) => {
    expect(() => readConfig({ ...enough, [name]: value })).toThrow(ConfigError);
    expect(() => readConfig({ ...enough, [name]: value })).toThrow(new RegExp(`^${name}: `));
  });
});
