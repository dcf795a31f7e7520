import { describe, expect, it } from 'vitest';
import { ConfigError, readConfig } from '../src/config.js';

const enough = {
  BELAY_DATA: '/data',
  DATABASE_URL: 'postgresql://belay@db/belay',
  NATS_URL: 'nats://a:4222',
};

describe('the collector’s environment', () => {
  it('needs data, a database and NATS, and has defaults for the rest', () => {
    expect(readConfig(enough)).toMatchObject({
      dataDir: '/data',
      keysDir: undefined,
      originPrefix: 'belay.local',
      role: 'belay_collector',
      migrate: true,
    });
    expect(readConfig({ ...enough, MIGRATE: 'no', ORIGIN_PREFIX: 'log.example/t' })).toMatchObject({
      migrate: false,
      originPrefix: 'log.example/t',
    });
  });

  it.each([
    ['BELAY_DATA', ''],
    ['DATABASE_URL', 'x'],
    ['NATS_URL', 'http://x'],
    ['MIGRATE', 'maybe'],
    ['ORIGIN_PREFIX', 'has space'],
    ['ORIGIN_PREFIX', 'ends/'],
    ['DATABASE_ROLE', 'belay_gateway'],
    ['DATABASE_POOL', '1'],
  ])('is refused for %s=%s, by the name of the variable', (name, value) => {
    expect(() => readConfig({ ...enough, [name]: value })).toThrow(ConfigError);
    expect(() => readConfig({ ...enough, [name]: value })).toThrow(new RegExp(`^${name}: `));
  });
});
