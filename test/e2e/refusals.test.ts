import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Child, freePort } from '../harness/child.js';
import { openParts, type Parts } from '../harness/parts.js';
import { makeScratch } from '../harness/scratch.js';

/** What a process will not start on, and what it says. */

const main = (name: string) => fileURLToPath(new URL(`../../apps/${name}/dist/main.js`, import.meta.url));
const scratch = makeScratch('refusals');
const running: Child[] = [];
let parts: Parts;
let database: string;

beforeAll(async () => {
  parts = await openParts();
  const { host, port, user, password, database: name } = parts.connection;
  database = `postgres://${user}:${encodeURIComponent(password)}@localhost/${name}?host=${encodeURIComponent(host)}&port=${port}`;
});
afterAll(async () => {
  for (const child of running) await child.stop('SIGKILL');
  await parts?.close();
  scratch.remove();
});

/** Keys and prefix that the database was first used with. */
const belongs = () => ({ KEYS_DIR: parts.keysDir, ORIGIN_PREFIX: 'test.local' });

function start(
  name: string,
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Child {
  const child = new Child(name, program, args, env);
  running.push(child);
  return child;
}

async function ended(child: Child): Promise<number | null> {
  if (child.isRunning) await new Promise((resolve) => child.process.once('close', resolve));
  return child.process.exitCode;
}

describe('a process', () => {
  it.each(['gateway', 'collector', 'worker'])('%s names the variable it lacks', async (name) => {
    const child = start(name, process.execPath, [main(name)], { BELAY_DATA: scratch.dir });
    expect(await ended(child)).toBe(64);
    expect(child.output).toBe(`${name}: DATABASE_URL: has to be set\n`);
  });

  it('is refused a NATS that would cut off the largest append', async () => {
    const port = await freePort();
    const config = join(scratch.dir, 'nats.conf');
    writeFileSync(config, `listen: "127.0.0.1:${port}"\nmax_payload: 1MB\n`);
    const nats = start('nats', 'nats-server', ['-c', config]);
    await nats.until(() => nats.output.includes('Server is ready'));
    const env = { DATABASE_URL: database, NATS_URL: `nats://127.0.0.1:${port}`, PORT: '0', HEALTH_PORT: '0' };
    const gateway = start('gateway', process.execPath, [main('gateway')], env);
    expect(await ended(gateway)).toBe(69);
    const collector = start('collector', process.execPath, [main('collector')], {
      ...env,
      ...belongs(),
      BELAY_DATA: join(scratch.dir, 'c'),
    });
    expect(await ended(collector)).toBe(69);
    for (const { output } of [gateway, collector]) expect(output).toContain('appends need max_payload');
  });

  it.each(['gateway', 'collector', 'worker'])(
    '%s leaves when asked although NATS was never there',
    async (name) => {
      const env = {
        DATABASE_URL: database,
        NATS_URL: `nats://127.0.0.1:${await freePort()}`,
        ...belongs(),
        BELAY_DATA: join(scratch.dir, name),
        PORT: '0',
        HEALTH_PORT: '0',
      };
      const child = start(name, process.execPath, [main(name)], env);
      await child.until(() =>
        /"msg":"(listening|publishing)"|operator key|waiting for requests/.test(child.output),
      );
      expect(await child.stop()).toBe(0);
    },
  );
});

describe('a collector on a database of others', () => {
  it.each([
    ['keys', {}, /master key [0-9a-f]{16} since/],
    ['prefix', { ORIGIN_PREFIX: 'other.example' }, /begin with test\.local, not with other\.example/],
  ])('by its %s ends at once', async (name, more, words) => {
    const { KEYS_DIR: _, ...mine } = belongs();
    const child = start('collector', process.execPath, [main('collector')], {
      DATABASE_URL: database,
      NATS_URL: `nats://127.0.0.1:${await freePort()}`,
      BELAY_DATA: join(scratch.dir, `other-${name}`),
      HEALTH_PORT: '0',
      ...(name === 'keys' ? mine : belongs()),
      ...more,
    });
    expect(await ended(child)).toBe(65);
    expect(child.output).toMatch(words);
    expect(child.output).not.toContain('operator key');
  });
});

describe('a collector whose database is away', () => {
  it('says so in a line and ends', async () => {
    const collector = start('collector', process.execPath, [main('collector')], {
      DATABASE_URL: 'postgres://belay:x@127.0.0.1:1/belay',
      NATS_URL: `nats://127.0.0.1:${await freePort()}`,
      BELAY_DATA: join(scratch.dir, 'away'),
      HEALTH_PORT: '0',
    });
    expect(await ended(collector)).toBe(69);
    expect(collector.output).toMatch(/^collector: .*ECONNREFUSED.*\n$/);
  });
});

describe('a gateway whose database is away', () => {
  it('says so, and that it is worth asking again', async () => {
    const port = await freePort();
    const env = {
      DATABASE_URL: 'postgres://belay:x@127.0.0.1:1/belay',
      NATS_URL: `nats://127.0.0.1:${await freePort()}`,
      PORT: String(port),
    };
    const gateway = start('gateway', process.execPath, [main('gateway')], env);
    await gateway.until(() => gateway.output.includes('listening'));
    const url = `http://127.0.0.1:${port}`;
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    const answer = await fetch(`${url}/v1/logs/log_01jd0000000000000000000000/checkpoint`);
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '1']);
    expect(await answer.json()).toMatchObject({ code: 'unavailable' });
    expect(await gateway.stop()).toBe(0);
  });
});
