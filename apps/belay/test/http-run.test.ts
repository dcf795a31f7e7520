/** `belay proxy --http` as a command. */

import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { formatCredential, newIdentifier } from '@belay/contracts';
import { afterEach, describe, expect, test } from 'vitest';
import { answering, byteServer, contentOf, endAll, later, listen, ofType } from './http-proxied.js';
import { freshFolder, recordsIn, start, type Started } from './proxied.js';

afterEach(endAll);

async function running(args: readonly string[], env: Record<string, string> = {}) {
  const run = start(['proxy', '--json', ...args], env);
  later(() => void run.child.kill('SIGKILL'));
  await expect.poll(() => run.stdout().toString(), { timeout: 10_000 }).toContain('\n');
  const { url } = JSON.parse(run.stdout().toString()) as { url: string };
  return { run, url };
}

async function post(url: string, headers: Record<string, string>, body: string): Promise<string> {
  const sent = httpRequest(url, { method: 'POST', agent: false, headers });
  sent.end(body);
  const [answered] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const part of answered) text += String(part);
  return text;
}

test('on record and attested: calls and results are commitments, no secret leaves or stays', async () => {
  const answer = '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"CANARY-result-9"}]}}';
  const server = await answering(
    `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: CANARY-session-9\r\nContent-Length: ${answer.length}\r\n\r\n${answer}`,
  );
  const state = freshFolder();
  const traces = freshFolder();
  const token = formatCredential({
    kind: 'append',
    id: newIdentifier('tok', Date.now(), randomBytes(10)),
    secret: randomBytes(24),
    project: newIdentifier('prj', Date.now(), randomBytes(10)),
    publicKey: randomBytes(32),
    origin: 'test.local/log',
  });
  const { run, url } = await running(
    ['--flush-timeout', '0', '--http', `http://127.0.0.1:${server}/mcp?key=CANARY-query-9`],
    // A service that is away: what would be sent stays in the spool, to be looked at.
    { BELAY_STATE: state, BELAY_TRACE_DIR: traces, BELAY_URL: 'http://127.0.0.1:9', BELAY_TOKEN: token },
  );
  const headers = {
    'content-type': 'application/json',
    authorization: 'Bearer CANARY-bearer-9',
    cookie: 'CANARY-cookie-9',
    'mcp-session-id': 'CANARY-session-9',
  };
  const call =
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"a":"CANARY-args-9"}}}';
  expect(await post(url, headers, call)).toBe(answer);
  run.child.kill('SIGINT');
  expect(await run.ended).toBe(0);

  const sent = contentOf(state);
  expect(sent).toContain('"kind":"call"');
  expect(sent).toContain('"kind":"result"');
  expect(sent).not.toContain('CANARY');
  const records = await recordsIn(traces);
  expect(JSON.stringify(records.filter(({ type }) => type !== 'frame'))).not.toContain('CANARY');
  const [open] = ofType(records, 'open');
  expect(open?.upstream).toMatch(RegExp(`^http://127\\.0\\.0\\.1:${server}/mcp\\?key=hmac-sha256:`));
  const frames = ofType(records, 'frame');
  expect(frames.map(({ seqs }) => seqs?.length)).toEqual([1, 1]);
  expect(records.at(-1)?.type).toBe('close');
});

test('a server behind TLS', async () => {
  const folder = freshFolder();
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  execFileSync(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-days',
      '1',
      '-subj',
      '/CN=localhost',
      '-addext',
      'subjectAltName=DNS:localhost',
      '-keyout',
      key,
      '-out',
      cert,
    ],
    { stdio: 'ignore' },
  );
  const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (request, response) => {
    response.end(`${request.headers.host}`);
  }).listen(0);
  await once(server, 'listening');
  later(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const upstream = `https://localhost:${port}/mcp`;
  const trusting = await running(['--http', upstream], { NODE_EXTRA_CA_CERTS: cert });
  expect(await post(trusting.url, {}, '{}')).toBe(`localhost:${port}`);
  const doubting = await running(['--http', upstream]);
  expect(JSON.parse(await post(doubting.url, {}, '{}'))).toMatchObject({
    status: 502,
    detail: /SELF_SIGNED|UNABLE_TO_VERIFY/,
  });
});

describe('what it refuses', () => {
  const fails = async (run: Started): Promise<[number | string, string]> => [await run.ended, run.stderr()];

  test.each([
    [['--http', 'http://user:pass@127.0.0.1/mcp'], 64, 'credentials do not belong into the URL'],
    [['--http', 'ftp://127.0.0.1/'], 65, 'not an http or https URL'],
    [['--http', 'nonsense'], 65, 'not an http or https URL'],
    [['--http', 'http://127.0.0.1/', '--listen', '8080'], 64, 'HOST:PORT'],
    [['--http', 'http://127.0.0.1/', '--listen', '127.0.0.1:70000'], 64, 'HOST:PORT'],
    [['--http', 'http://127.0.0.1/', '--', 'true'], 64, 'not both'],
  ])('%j', async (args, code, message) => {
    const [ended, told] = await fails(start(['proxy', ...args]));
    expect(ended).toBe(code);
    expect(told).toContain(message);
    expect(told).not.toContain('pass@');
  });

  test('a port that is taken', async () => {
    const port = await listen(() => undefined);
    const [ended, told] = await fails(
      start(['proxy', '--http', 'http://127.0.0.1:1/mcp', '--listen', `127.0.0.1:${port}`]),
    );
    expect(ended).toBe(69);
    expect(told).toContain(`cannot listen on 127.0.0.1:${port}`);
  });
});

test('a port that is asked for is used; SIGTERM ends streams within bounds', async () => {
  const port = await listen(() => undefined);
  await endAll();
  const server = await byteServer((_, socket) => {
    socket.write('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n');
  });
  const { run, url } = await running([
    '--http',
    `http://127.0.0.1:${server}/mcp`,
    '--listen',
    `127.0.0.1:${port}`,
  ]);
  expect(url).toBe(`http://127.0.0.1:${port}/mcp`);
  const sent = httpRequest(url, { agent: false });
  sent.on('error', () => undefined);
  sent.end();
  const [answered] = (await once(sent, 'response')) as [IncomingMessage];
  answered.on('error', () => undefined);
  answered.resume();
  const started = performance.now();
  run.child.kill('SIGTERM');
  expect(await run.ended).toBe(0);
  expect(performance.now() - started).toBeLessThan(4_000);
});

test('a trace folder that can not be made: traffic goes on', async () => {
  const server = await answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
  const { run, url } = await running(['--http', `http://127.0.0.1:${server}/mcp`], {
    BELAY_TRACE_DIR: '/dev/null/traces',
    BELAY_STATE: '/dev/null/state',
  });
  expect(await post(url, {}, '{}')).toBe('ok');
  expect(run.stderr()).toContain('belay: this run is not recorded');
});
