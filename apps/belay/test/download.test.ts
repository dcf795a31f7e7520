import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { download, type Wanted } from '../src/download.js';
import { Service } from '../src/service.js';

const CONTENT = randomBytes(300_000);
const SHA256 = createHash('sha256').update(CONTENT).digest('hex');

/** What to do with the next requests in place of the right thing. */
type Fault = (request: IncomingMessage, response: ServerResponse) => void;

let folder: string;
let server: Server;
let faults: Fault[];
let ranges: (string | undefined)[];
let service: Service;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'belay-download-'));
  faults = [];
  ranges = [];
  server = createServer((request, response) => {
    ranges.push(request.headers.range);
    const fault = faults.shift();
    if (fault === undefined) serve(request, response);
    else fault(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  service = new Service(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, undefined);
});
afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
  rmSync(folder, { recursive: true, force: true });
});

function serve(request: IncomingMessage, response: ServerResponse, content: Buffer = CONTENT): void {
  const [, from] = /^bytes=(\d+)-$/.exec(request.headers.range ?? '') ?? [];
  const same = request.headers['if-range'] === `"${SHA256}"`;
  const start = from !== undefined && same ? Number(from) : 0;
  const rest = content.subarray(start);
  response.writeHead(start > 0 ? 206 : 200, { etag: `"${SHA256}"`, 'content-length': rest.length }).end(rest);
}

/** Sends so much of what is asked for, and breaks off. */
const cut =
  (bytes: number): Fault =>
  (request, response) => {
    const [, from = '0'] = /^bytes=(\d+)-$/.exec(request.headers.range ?? '') ?? [];
    const start = Number(from);
    response.writeHead(start > 0 ? 206 : 200, { 'content-length': CONTENT.length - start });
    response.write(CONTENT.subarray(start, start + bytes), () => request.socket.destroySoon());
  };

const wanted = (changed: Partial<Wanted> = {}): Wanted => ({
  path: '/file',
  bytes: CONTENT.length,
  sha256: SHA256,
  file: join(folder, 'export.zip'),
  part: join(folder, 'export.zip.part'),
  again: 'again',
  onBytes: () => undefined,
  ...changed,
});
const there = (name = 'export.zip'): Buffer | undefined =>
  existsSync(join(folder, name)) ? readFileSync(join(folder, name)) : undefined;

test('what broke off is gone on with, by range; the file has its name when it is whole', async () => {
  faults = [cut(100_000), cut(50_000)];
  await download(service, wanted());
  expect(there()?.equals(CONTENT)).toBe(true);
  expect(there('export.zip.part')).toBeUndefined();
  const [first, ...others] = ranges;
  expect([first, others.length]).toEqual([undefined, 2]);
  // As much as came: the kernel may have taken more off the wire than was handed on.
  for (const range of others) expect(range).toMatch(/^bytes=\d+-$/);
});

test('what an earlier run left is gone on with', async () => {
  writeFileSync(join(folder, 'export.zip.part'), CONTENT.subarray(0, 200_000));
  await download(service, wanted());
  expect(ranges).toEqual(['bytes=200000-']);
  expect(there()?.equals(CONTENT)).toBe(true);
});

test('all of it was there already: nothing is asked for', async () => {
  writeFileSync(join(folder, 'export.zip.part'), CONTENT);
  await download(service, wanted());
  expect(ranges).toEqual([]);
  expect(there()?.equals(CONTENT)).toBe(true);
});

test('a service that sends all of it again is taken at its word', async () => {
  writeFileSync(join(folder, 'export.zip.part'), Buffer.alloc(1_000, 7));
  faults = [(_, response) => void response.writeHead(200).end(CONTENT)];
  await download(service, wanted());
  expect(there()?.equals(CONTENT)).toBe(true);
});

test.each([
  ['another content', (): Buffer => Buffer.alloc(CONTENT.length, 1), 'digest'],
  ['more than was said', (): Buffer => Buffer.concat([CONTENT, Buffer.from('more')]), 'too_large'],
])('%s is refused, and has no name', async (_, content, code) => {
  faults = [(request, response) => serve(request, response, content())];
  await expect(download(service, wanted())).rejects.toMatchObject({ code, exit: 1 });
  expect(there()).toBeUndefined();
});

test('what an earlier run left is not what it should be: thrown away, and the next run gets it', async () => {
  writeFileSync(join(folder, 'export.zip.part'), Buffer.alloc(200_000, 1));
  await expect(download(service, wanted())).rejects.toMatchObject({ code: 'digest', exit: 1 });
  expect(there('export.zip.part')).toBeUndefined();
  await download(service, wanted());
  expect(there()?.equals(CONTENT)).toBe(true);
});

test('what the service refuses is told as it is; what came stays', async () => {
  const problem = JSON.stringify({ code: 'gone', detail: 'The export was removed.' });
  faults = [
    cut(1_000),
    (_, response) => response.writeHead(410, { 'content-type': 'application/problem+json' }).end(problem),
  ];
  await expect(download(service, wanted())).rejects.toMatchObject({ code: 'gone', exit: 65 });
  expect(there()).toBeUndefined();
});
