import { readdirSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { SmallCollector } from '@belay/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { freshFolder, start } from './proxied.js';

let collector: SmallCollector;
let url: string;
const server = createServer();
beforeAll(async () => {
  collector = new SmallCollector();
  url = await collector.listen();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(async () => {
  server.close();
  await collector.close();
});

test.each([
  ['otlp', []],
  ['proxy', ['--http', 'http://127.0.0.1:1/mcp']],
])(
  '%s on a port that is taken says so, and leaves neither an epoch nor a trace behind',
  async (command, args) => {
    const state = join(freshFolder(), 'state');
    const { port } = server.address() as AddressInfo;
    const env = { BELAY_URL: url, BELAY_TOKEN: collector.token, BELAY_STATE: state };
    const run = start([command, ...args, '--listen', `127.0.0.1:${port}`], env);
    expect(await run.ended).toBe(69);
    expect(run.stderr()).toMatch(/in use|EADDRINUSE/);
    expect(() => readdirSync(join(state, 'traces'))).toThrow('ENOENT');
    expect(() => readdirSync(join(state, 'logs'))).toThrow('ENOENT');
    expect(collector.envelopes()).toEqual([]);
  },
);
