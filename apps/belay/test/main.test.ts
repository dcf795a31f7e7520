import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { readCredentials, writeCredentials } from '../src/credentials.js';
import { belay } from './command.js';

const scratch = mkdtempSync(join(tmpdir(), 'belay-main-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

describe('the command line', () => {
  it('without a command, shows what there is', async () => {
    const { code, stdout } = await belay();
    expect(code).toBe(64);
    for (const name of ['serve', 'proxy', 'receipt', 'log', 'project']) expect(stdout).toContain(name);
  });

  it.each([
    ['--help'],
    ['receipt', '--help'],
    ['receipt', 'verify', '--help'],
    ['help', 'log'],
    ['--version'],
  ])('belay %s %s %s is no mistake', async (...args) => {
    expect(await belay(...args)).toMatchObject({ code: 0 });
  });

  it.each([
    ['an unknown command', ['nonsense']],
    ['an unknown subcommand', ['receipt', 'nonsense']],
    ['an unknown option', ['receipt', 'verify', 'x', '--nonsense']],
    ['a missing argument', ['receipt', 'verify']],
    ['a missing option', ['project', 'register']],
    ['a bad range', ['receipt', 'get', '--range', '5..2']],
    ['two scopes', ['receipt', 'get', '--event', '1', '--range', '1..2']],
    ['a bad choice', ['token', 'issue', '--role', 'king']],
    ['a bad URL', ['tenant', 'create', '--name', 'a', '--operator-key', 'x', '--url', 'nonsense']],
  ])('%s is usage', async (_title, args) => {
    const { code, stderr } = await belay(...args);
    expect(code).toBe(64);
    expect(stderr).not.toMatch(/\n {4}at /);
  });

  it('tells an error as one JSON document when asked to', async () => {
    const { json } = await belay('receipt', 'get', '--json', '--out', 'x');
    expect(json).toMatchObject({ error: { code: 'usage' } });
    expect(await belay('receipt', 'verify', '--json')).toMatchObject({ json: { error: { code: 'usage' } } });
  });
});

describe('a service that does not answer as it should', () => {
  const create = (url: string): ReturnType<typeof belay> =>
    belay('tenant', 'create', '--name', 'a', '--operator-key', 'x', '--url', url, '--json');

  it('is not there: 69, and what to do', async () => {
    const { code, json } = await create('http://127.0.0.1:9');
    expect({ code, json }).toMatchObject({ code: 69, json: { error: { code: 'unreachable' } } });
    expect(JSON.stringify(json)).toContain('belay serve');
  });

  it.each([
    [
      'a problem of ours',
      401,
      'application/problem+json',
      '{"code":"unauthenticated","detail":"no such key"}',
      65,
      'unauthenticated',
    ],
    [
      'a limit',
      429,
      'application/problem+json',
      '{"code":"rate_limited","detail":"slow down"}',
      69,
      'rate_limited',
    ],
    ['something else listening there', 500, 'text/html', '<h1>oops</h1>', 69, 'not_belay'],
    ['a broken problem', 400, 'application/problem+json', 'oops', 65, 'not_belay'],
    ['a redirect, which would carry the key elsewhere', 307, 'text/plain', '', 69, 'unreachable'],
  ])('%s', async (_title, status, type, body, exit, word) => {
    const server = createServer((_request, response) => {
      response.writeHead(status, { 'content-type': type, location: 'http://127.0.0.1:9/' }).end(body);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      const { code, json } = await create(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
      expect({ code, json }).toMatchObject({ code: exit, json: { error: { code: word } } });
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });
});

describe('the credentials file', () => {
  const path = join(scratch, 'config', 'belay', 'credentials');
  const stored = { url: 'http://127.0.0.1:8420', token: 'belay_append_x' };

  it('is private, replaced whole, and read back', async () => {
    expect(await readCredentials(path)).toBeUndefined();
    await writeCredentials(path, stored);
    await writeCredentials(path, stored);
    expect(await readCredentials(path)).toEqual(stored);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(path, '..')).mode & 0o777).toBe(0o700);
  });

  it('is refused when others can read it, and when it is something else', async () => {
    chmodSync(path, 0o644);
    await expect(readCredentials(path)).rejects.toMatchObject({ code: 'permissions', exit: 65 });
    chmodSync(path, 0o600);
    for (const text of ['oops', '[]', 'null', '{"v":2}', '{"v":1,"url":1,"token":"x"}']) {
      writeFileSync(path, text);
      await expect(readCredentials(path)).rejects.toMatchObject({ code: 'credentials', exit: 65 });
    }
  });
});
