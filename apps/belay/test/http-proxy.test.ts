import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { brotliCompressSync, createGzip, gzipSync } from 'node:zlib';
import { checkTrace, readTrace, recordData } from '@belay/trace';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import { readTurns, type TraceItem } from '../src/turns.js';
import {
  answering,
  byteServer,
  contentOf,
  endAll,
  exchangeBytes,
  frameTexts,
  isWhole,
  later,
  listen,
  ofType,
  post,
  proxyTo,
} from './http-proxied.js';

afterEach(endAll);

const sha256 = (bytes: Buffer | string): string => createHash('sha256').update(bytes).digest('hex');
const up = (port: number, path = '/mcp'): string => `http://127.0.0.1:${port}${path}`;
const CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}';
const RESULT = '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}';
const json = (body: string, headers = '', status = '200 OK'): string =>
  `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\n${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const events = (headers = ''): string =>
  `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n${headers}Transfer-Encoding: chunked\r\n\r\n`;
const chunk = (text: string | Buffer): Buffer =>
  Buffer.concat([
    Buffer.from(`${Buffer.byteLength(text).toString(16)}\r\n`),
    Buffer.from(text),
    Buffer.from('\r\n'),
  ]);
const END = '0\r\n\r\n';
const own = (bytes: Buffer, port: number): Buffer =>
  Buffer.from(bytes.toString('latin1').replace('HOST', `127.0.0.1:${port}`), 'latin1');

/** Sends a request to a proxy and reads the answer. */
async function ask(
  port: number,
  options: { method?: string; path?: string; headers?: Record<string, string>; body?: string | Buffer } = {},
): Promise<{ status: number; headers: IncomingMessage['headers']; raw: string[]; body: Buffer }> {
  const { method = 'POST', path = '/mcp', headers = {}, body } = options;
  const sent = httpRequest({ port, host: '127.0.0.1', method, path, agent: false, headers });
  sent.end(body);
  const [answered] = (await once(sent, 'response')) as [IncomingMessage];
  const parts: Buffer[] = [];
  for await (const part of answered) parts.push(part as Buffer);
  const { statusCode = 0, rawHeaders } = answered;
  return { status: statusCode, headers: answered.headers, raw: rawHeaders, body: Buffer.concat(parts) };
}
const JSON_TYPE = { 'content-type': 'application/json' };

/** Opens a stream through a proxy; what came so far is in `text`. */
async function openStream(port: number, path = '/mcp', headers: Record<string, string> = {}) {
  const sent = httpRequest({ port, host: '127.0.0.1', path, agent: false, headers });
  sent.end();
  const [answered] = (await once(sent, 'response')) as [IncomingMessage];
  const seen = { text: '', ended: undefined as string | undefined };
  answered.on('data', (part: Buffer) => (seen.text += part.toString('latin1')));
  answered.on('end', () => (seen.ended ??= 'end'));
  answered.on('error', () => (seen.ended = 'error'));
  sent.on('error', () => undefined);
  later(() => void sent.destroy());
  return { seen, sent, status: answered.statusCode };
}

describe('bytes', () => {
  test('heads pass but for Host and what belongs to the connection; the body and its answer to the byte', async () => {
    const seen: Buffer[] = [];
    const odd = '{"n":9007199254740993,"x":1.0,"a":1,"a":2,"s":"\\ud800\\u0000\u2028"}';
    const server = await answering(
      `HTTP/1.1 200 Fine\r\nX-ODD-case: é\r\nset-cookie: a\r\nSet-Cookie: b\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(odd)}\r\n\r\n${odd}`,
      seen,
    );
    const proxy = await proxyTo(up(server, '/mcp?x=1'));
    const headers =
      'mCp-PROTOCOL-Version: 2026-07-28\r\nMcp-Param-New: =?base64?w6k=?=\r\nAccept: a\r\nAccept: b\r\nX-Latin: \xe9\r\nTE: trailers\r\nKeep-Alive: 1\r\n';
    const answer = await exchangeBytes(proxy.port, own(post('/mcp?x=1', odd, headers), proxy.port));
    expect(seen[0]?.toString('latin1')).toBe(
      post('/mcp?x=1', odd, headers)
        .toString('latin1')
        .replace('HOST', `127.0.0.1:${server}`)
        .replace('TE: trailers\r\nKeep-Alive: 1\r\n', '')
        .replace('Connection: close\r\n', '')
        .replace('\r\n\r\n', '\r\nConnection: keep-alive\r\n\r\n'),
    );
    expect(answer.toString('latin1')).toBe(
      Buffer.from(
        `HTTP/1.1 200 Fine\r\nX-ODD-case: é\r\nset-cookie: a\r\nSet-Cookie: b\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(odd)}\r\nConnection: close\r\n\r\n${odd}`,
      ).toString('latin1'),
    );
    expect(frameTexts(await proxy.records())).toEqual([`c2s ${odd}`, `s2c ${odd}`]);
  });

  test('a request without a body stays one, a chunked one stays chunked', async () => {
    const seen: Buffer[] = [];
    const server = await answering(json('{}'), seen);
    const proxy = await proxyTo(up(server));
    const head = `Host: 127.0.0.1:${proxy.port}\r\nConnection: close\r\n`;
    await exchangeBytes(proxy.port, `DELETE /mcp HTTP/1.1\r\n${head}\r\n`);
    await exchangeBytes(proxy.port, `POST /mcp HTTP/1.1\r\n${head}\r\n`);
    await exchangeBytes(
      proxy.port,
      `POST /mcp HTTP/1.1\r\n${head}Transfer-Encoding: chunked\r\n\r\n`,
      chunk(CALL.slice(0, 5)),
      chunk(CALL.slice(5)),
      END,
    );
    expect(String(seen[0])).not.toMatch(/transfer-encoding|content-length/i);
    expect(String(seen[1])).toMatch(/content-length: 0\r\n/i);
    expect(String(seen[1])).not.toMatch(/transfer-encoding/i);
    expect(String(seen[2])).toMatch(/transfer-encoding: chunked/i);
    expect(frameTexts(await proxy.records())).toContain(`c2s ${CALL}`);
  });

  test.each([65_535, 65_536, 65_537, (1 << 20) + 1, 10 << 20, 20 << 20])(
    'bodies of %d bytes there and back; past the observation limit they are a hash',
    async (size) => {
      const body = Buffer.alloc(size, 'x');
      body.write('{"id":1,"method":"tools/call","params":{"name":"big"},"pad":"');
      body.write('"}', size - 2);
      const server = createServer((request, response) => {
        response.setHeader('content-type', 'application/json');
        request.pipe(response);
      }).listen(0);
      await once(server, 'listening');
      later(() => void server.close());
      const proxy = await proxyTo(up((server.address() as { port: number }).port));
      const { body: back } = await ask(proxy.port, { headers: JSON_TYPE, body });
      expect(back.equals(body)).toBe(true);
      const records = await proxy.records();
      const frames = ofType(records, 'frame');
      expect(frames).toHaveLength(2);
      for (const frame of frames) {
        expect(frame).toMatchObject({ size, sha256: sha256(body) });
        expect(frame.oversize === true).toBe(size > 16 << 20);
      }
      expect(ofType(records, 'http').at(-1)).toMatchObject({
        request: { size, sha256: sha256(body) },
        response: { size, sha256: sha256(body) },
        ended: 'complete',
      });
    },
  );

  test('a slow reader: back-pressure reaches the server, and the last byte arrives', async () => {
    let drained = true;
    const total = 40 << 20;
    const server = createServer((_, response) => {
      response.setHeader('content-type', 'application/json');
      let left = total;
      const fill = (): void => {
        while (left > 0) {
          left -= 65_536;
          if (!response.write(Buffer.alloc(65_536, 'y'))) {
            drained = false;
            response.once('drain', fill);
            return;
          }
        }
        response.end('!');
      };
      fill();
    }).listen(0);
    await once(server, 'listening');
    later(() => void server.close());
    const proxy = await proxyTo(up((server.address() as { port: number }).port));
    const sent = httpRequest({ port: proxy.port, host: '127.0.0.1', path: '/mcp', agent: false });
    sent.end();
    const [answered] = (await once(sent, 'response')) as [IncomingMessage];
    await sleep(300);
    expect(drained).toBe(false);
    let size = 0;
    let last = '';
    for await (const part of answered) {
      size += (part as Buffer).length;
      last = (part as Buffer).subarray(-1).toString();
    }
    expect([size, last]).toEqual([total + 1, '!']);
  });

  test.each<[string, Buffer, string | undefined]>([
    ['a batch', Buffer.from('[{"jsonrpc":"2.0","id":1,"method":"a"},{"id":"1","method":"b"}]'), undefined],
    ['an empty batch', Buffer.from('[]'), undefined],
    ['invalid UTF-8', Buffer.from('7b226964223a312c2273223a22c328227d', 'hex'), 'INVALID_UTF8'],
    ['a byte order mark', Buffer.from('\ufeff{"id":1,"method":"a"}'), 'BYTE_ORDER_MARK'],
    ['no JSON', Buffer.from('Starting…\n'), 'NON_JSON'],
    ['id null', Buffer.from('{"jsonrpc":"2.0","id":null,"method":"a"}'), 'ID_NULL'],
    ['id 1.5', Buffer.from('{"jsonrpc":"2.0","id":1.5,"method":"a"}'), 'ID_FRACTIONAL'],
  ])('%s passes as it is, and what is odd is said', async (_, body, finding) => {
    const seen: Buffer[] = [];
    const server = await answering(
      Buffer.concat([
        Buffer.from(
          `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`,
        ),
        body,
      ]),
      seen,
    );
    const proxy = await proxyTo(up(server));
    expect((await ask(proxy.port, { headers: JSON_TYPE, body })).body.equals(body)).toBe(true);
    expect(seen[0]?.subarray(-body.length).equals(body)).toBe(true);
    for (const frame of ofType(await proxy.records(), 'frame')) {
      expect(recordData(frame)?.equals(body)).toBe(true);
      if (finding !== undefined) expect(frame.findings).toContain(finding);
    }
  });

  test('a cancellation overtakes the call it is for, and retires it', async () => {
    let waiting: Socket | undefined;
    const port = await byteServer((bytes, socket) => {
      if (!isWhole(bytes)) return;
      if (!bytes.includes('cancelled')) {
        waiting = socket;
        return;
      }
      socket.end('HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n');
      waiting?.end(json(RESULT));
    });
    const proxy = await proxyTo(up(port));
    const headers = { ...JSON_TYPE, 'mcp-session-id': 's' };
    const call = ask(proxy.port, { headers, body: CALL });
    await expect.poll(() => waiting !== undefined).toBe(true);
    const cancel = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}';
    expect((await ask(proxy.port, { headers, body: cancel })).status).toBe(202);
    expect((await call).body.toString()).toBe(RESULT);
    const turns: TraceItem[] = [];
    await proxy.records();
    for await (const item of readTurns(readTrace(`${proxy.folder}/trace.jsonl`))) turns.push(item);
    expect(turns.filter(({ type }) => type === 'turn')).toMatchObject([
      { outcome: 'cancelled', findings: ['ANSWER_AFTER_CANCEL'] },
    ]);
  });

  test('what is recorded of a request is there before the server has its last byte', async () => {
    let early: string | undefined;
    const server = await byteServer((bytes, socket) => {
      if (!isWhole(bytes) || early !== undefined) return;
      early = contentOf(proxy.folder);
      socket.end(json(RESULT));
    });
    const proxy = await proxyTo(up(server));
    await ask(proxy.port, { headers: JSON_TYPE, body: CALL });
    expect(early).toContain(Buffer.from(CALL).toString('base64'));
  });
});

describe('30: event streams', () => {
  const SOURCES: readonly (readonly [string, string, readonly string[]])[] = [
    ['several data lines', 'data: {"a":\ndata: 1}\n\n', ['{"a":\n1}']],
    ['CR', 'data: {}\r\rdata: []\r\r', ['{}', '[]']],
    ['CRLF', 'id: 1\r\nevent: message\r\ndata: {}\r\n\r\n', ['{}']],
    ['a byte order mark', '\ufeffdata: {}\n\n', ['{}']],
    ['comments and empty events', ': ping\n\nid: 5\ndata:\n\ndata: {}\n\n: pong\n\n', ['{}']],
    ['other events', 'event: ping\ndata: secret\n\ndata: {}\n\n', ['{}']],
    ['an event that is cut off', 'data: {}\n\ndata: {"lost"', ['{}']],
  ];
  test.each(SOURCES)('%s', async (_, text, expected) => {
    const server = await answering(Buffer.concat([Buffer.from(events()), chunk(text), Buffer.from(END)]));
    const proxy = await proxyTo(up(server));
    const { body } = await ask(proxy.port, { headers: JSON_TYPE, body: CALL });
    expect(body.toString()).toBe(text);
    expect(frameTexts(await proxy.records()).slice(1)).toEqual(expected.map((each) => `s2c ${each}`));
  });

  test('random chunking changes no record', async () => {
    const text = Buffer.from(
      '\ufeff: hi\r\n\r\nid: 1\r\ndata: {"id":1,\r\ndata: "result":{"t":"😀"}}\r\n\r\ndata: {"method":"x"}\n\ndata: cut',
    );
    let pieces: Buffer[] = [];
    const server = await byteServer((bytes, socket) => {
      if (!isWhole(bytes)) return;
      socket.write(events());
      void (async () => {
        for (const piece of pieces) {
          if (piece.length > 0) socket.write(chunk(piece));
          await sleep(1);
        }
        socket.end(END);
      })();
    });
    const see = async (places: number[]): Promise<unknown> => {
      const at = [...places.map((place) => place % text.length), text.length].sort((a, b) => a - b);
      pieces = at.map((end, i) => text.subarray(at[i - 1] ?? 0, end));
      const proxy = await proxyTo(up(server));
      const { body } = await ask(proxy.port, { headers: JSON_TYPE, body: CALL });
      expect(body.equals(text)).toBe(true);
      const records = await proxy.records();
      return records
        .filter(({ type }) => type === 'frame' || type === 'http')
        .map(({ n: _n, time: _t, at: _a, prev: _p, ...rest }) => ({ ...rest, headers: undefined }));
    };
    const expected = await see([]);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(), { maxLength: 12 }), async (places) => {
        expect(await see(places)).toEqual(expected);
      }),
      { numRuns: 25 },
    );
  });

  test('an event larger than 1 MiB, on one line', async () => {
    const big = `{"id":1,"result":"${'z'.repeat(1_500_000)}"}`;
    const server = await answering(
      Buffer.concat([Buffer.from(events()), chunk(`data: ${big}\n\n`), Buffer.from(END)]),
    );
    const proxy = await proxyTo(up(server));
    const { body } = await ask(proxy.port, { headers: JSON_TYPE, body: CALL });
    expect(body.toString()).toBe(`data: ${big}\n\n`);
    expect(frameTexts(await proxy.records())[1]).toBe(`s2c ${big}`);
  });

  test('bytes reach the client as they come, inside a line and inside CRLFCRLF, and so does the head alone', async () => {
    let server: Socket | undefined;
    const port = await byteServer((_, socket) => {
      if (server !== undefined) return;
      server = socket;
      socket.write(events('X-Accel-Buffering: no\r\n'));
    });
    const proxy = await proxyTo(up(port));
    const { seen, status } = await openStream(proxy.port);
    expect([status, seen.text]).toEqual([200, '']);
    for (const piece of ['dat', 'a: {}\r', '\n\r', '\n', ': keep-alive\n\n']) {
      const before = seen.text;
      server?.write(chunk(piece));
      await expect.poll(() => seen.text).toBe(before + piece);
    }
  });

  test('a stream, and an answer, may be silent for longer than an idle connection is kept', async () => {
    const port = await byteServer((bytes, socket) => {
      if (!isWhole(bytes)) return;
      if (bytes.toString().startsWith('GET')) {
        socket.write(events());
        setTimeout(() => socket.write(chunk('data: {}\n\n')), 3_000);
      } else setTimeout(() => socket.end(json(RESULT)), 3_000);
    });
    const proxy = await proxyTo(up(port));
    const { seen } = await openStream(proxy.port);
    expect((await ask(proxy.port, { headers: JSON_TYPE, body: CALL })).body.toString()).toBe(RESULT);
    await expect.poll(() => seen.text).toBe('data: {}\n\n');
  });

  test('a connection to the server is used again, and not once it was idle', async () => {
    let connections = 0;
    const server = createServer((_, response) => response.end('{}')).listen(0);
    server.keepAliveTimeout = 10_000;
    server.on('connection', () => connections++);
    await once(server, 'listening');
    later(() => {
      server.closeAllConnections();
      server.close();
    });
    const proxy = await proxyTo(up((server.address() as { port: number }).port));
    await ask(proxy.port);
    await ask(proxy.port);
    expect(connections).toBe(1);
    await sleep(2_500);
    await ask(proxy.port);
    expect(connections).toBe(2);
  });

  test.each([
    ['gzip', gzipSync(`data: ${RESULT}\n\n`)],
    ['br', brotliCompressSync(`data: ${RESULT}\n\n`)],
  ])('compression (%s) passes as it is, and is read all the same', async (coding, bytes) => {
    const server = await answering(
      Buffer.concat([Buffer.from(events(`Content-Encoding: ${coding}\r\n`)), chunk(bytes), Buffer.from(END)]),
    );
    const proxy = await proxyTo(up(server));
    const { body } = await ask(proxy.port, { headers: JSON_TYPE, body: CALL });
    expect(body.equals(bytes)).toBe(true);
    const records = await proxy.records();
    expect(frameTexts(records)[1]).toBe(`s2c ${RESULT}`);
    expect(ofType(records, 'http').at(-1)).toMatchObject({
      response: { size: bytes.length, sha256: sha256(bytes) },
    });
  });

  test('a compressed stream is read while it goes on; what is not compressed as it says is passed on', async () => {
    const gzip = createGzip();
    let server: Socket | undefined;
    const port = await byteServer((bytes, socket) => {
      if (bytes.includes('/mcp?broken')) {
        socket.end(json('not gzip', 'Content-Encoding: gzip\r\n'));
      } else if (server === undefined) {
        server = socket;
        socket.write(events('Content-Encoding: gzip\r\n'));
        gzip.on('data', (part: Buffer) => socket.write(chunk(part)));
      }
    });
    const proxy = await proxyTo(up(port));
    await openStream(proxy.port);
    gzip.write(`data: ${RESULT}\n\n`);
    gzip.flush();
    await expect.poll(() => contentOf(proxy.folder)).toContain(Buffer.from(RESULT).toString('base64'));
    expect((await ask(proxy.port, { path: '/mcp?broken' })).body.toString()).toBe('not gzip');
    expect(JSON.stringify(await proxy.records())).toContain('NOT_DECODED');
  });
});

describe('31: sessions', () => {
  test('404 of a session passes; a second GET gets its 409; DELETE and Last-Event-ID pass', async () => {
    const seen: string[] = [];
    const port = await byteServer((bytes, socket) => {
      if (!isWhole(bytes)) return;
      const text = bytes.toString();
      seen.push(text);
      if (text.startsWith('GET')) socket.end('HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n');
      else if (text.startsWith('DELETE')) socket.end('HTTP/1.1 204 No Content\r\n\r\n');
      else socket.end(json('{"jsonrpc":"2.0","id":null,"error":{"code":-32001}}', '', '404 Not Found'));
    });
    const proxy = await proxyTo(up(port));
    const headers = { ...JSON_TYPE, 'mcp-session-id': 'gone', 'last-event-id': '7_x' };
    const lost = await ask(proxy.port, { headers, body: CALL });
    expect([lost.status, lost.body.toString()]).toEqual([
      404,
      '{"jsonrpc":"2.0","id":null,"error":{"code":-32001}}',
    ]);
    expect((await ask(proxy.port, { method: 'GET', headers })).status).toBe(409);
    expect((await ask(proxy.port, { method: 'DELETE', headers })).status).toBe(204);
    expect(seen).toHaveLength(3);
    for (const text of seen) expect(text).toMatch(/mcp-session-id: gone\r\nlast-event-id: 7_x\r\n/);
  });

  test('several sessions at once, stateless ones among them, do not mix: equal ids stay apart', async () => {
    const waiting: { socket: Socket; who: string }[] = [];
    const port = await byteServer((bytes, socket) => {
      if (!isWhole(bytes)) return;
      waiting.push({ socket, who: /who":"(\w)/.exec(bytes.toString())?.[1] ?? '' });
    });
    const proxy = await proxyTo(up(port));
    const call = (who: string, headers = {}): ReturnType<typeof ask> =>
      ask(proxy.port, {
        headers: { ...JSON_TYPE, ...headers },
        body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"who":"${who}"}}`,
      });
    const answers = [
      call('a', { 'mcp-session-id': 'session-a' }),
      call('b', { 'mcp-session-id': 'session-b' }),
      call('c'),
      call('d'),
    ];
    await expect.poll(() => waiting.length).toBe(4);
    for (const { socket, who } of waiting.reverse())
      socket.end(json(`{"jsonrpc":"2.0","id":1,"result":"${who}"}`));
    for (const [i, answer] of (await Promise.all(answers)).entries())
      expect(answer.body.toString()).toContain(`"result":"${'abcd'[i]}"`);
    const of = new Map<string, string[]>();
    const records = await proxy.records();
    for (const frame of ofType(records, 'frame')) {
      const { conversation = '' } = frame;
      of.set(conversation, [
        ...(of.get(conversation) ?? []),
        /(?:who|result)":"(\w)/.exec(recordData(frame)?.toString() ?? '')?.[1] ?? '',
      ]);
    }
    expect([...of.values()].map((letters) => letters.join('')).sort()).toEqual(['aa', 'bb', 'cc', 'dd']);
    expect([...of.keys()].filter((name) => name.startsWith('session-'))).toHaveLength(2);
    expect(JSON.stringify(records)).not.toMatch(/session-[ab]"/);
  });

  test('a client that goes away ends the request at the server (which is how 2026-07-28 cancels)', async () => {
    let closed = false;
    const port = await byteServer((_, socket) => {
      socket.on('close', () => (closed = true));
      socket.write(events());
    });
    const proxy = await proxyTo(up(port));
    const { sent } = await openStream(proxy.port);
    sent.destroy();
    await expect.poll(() => closed).toBe(true);
    expect(ofType(await proxy.records(), 'http').at(-1)).toMatchObject({ phase: 'end', ended: 'client' });
  });

  test("a server that breaks off breaks the client's stream, and not before all of it was passed on", async () => {
    const port = await byteServer((_, socket) => {
      socket.write(events());
      socket.write(chunk(`data: ${'x'.repeat(300_000)}\n\n`), () => socket.destroy());
    });
    const proxy = await proxyTo(up(port));
    const { seen } = await openStream(proxy.port);
    await expect.poll(() => seen.ended).toBe('error');
    expect(seen.text).toHaveLength(300_008);
    expect(ofType(await proxy.records(), 'http').at(-1)).toMatchObject({ ended: 'server' });
  });

  test('when the proxy is told to stop, streams end and that is on record', async () => {
    const port = await byteServer((_, socket) => socket.write(events()));
    const proxy = await proxyTo(up(port));
    const { seen } = await openStream(proxy.port);
    const started = performance.now();
    const records = await proxy.records();
    expect(performance.now() - started).toBeLessThan(2_000);
    expect(ofType(records, 'http').at(-1)).toMatchObject({ ended: 'proxy' });
    await expect.poll(() => seen.ended).toBe('error');
    expect((await checkTrace(`${proxy.folder}/trace.jsonl`)).problems).toEqual([]);
  });
});

describe('31: the transport of 2024-11-05', () => {
  async function legacy(endpoint: (port: number) => string) {
    const streams = new Map<string, Socket>();
    const posts: string[] = [];
    let sessions = 0;
    const port = await byteServer((bytes, socket) => {
      const text = bytes.toString();
      if (text.startsWith('GET') && isWhole(bytes)) {
        const id = `canary-session-${++sessions}`;
        streams.set(id, socket);
        socket.write(events());
        socket.write(chunk(`event: endpoint\ndata: ${endpoint(port)}?sessionId=${id}\n\n`));
      } else if (isWhole(bytes)) {
        posts.push(text);
        const id = /sessionId=([\w-]+)/.exec(text)?.[1] ?? '';
        socket.end('HTTP/1.1 202 Accepted\r\nContent-Length: 8\r\n\r\nAccepted');
        streams.get(id)?.write(chunk(`event: message\ndata: {"id":1,"result":"${id.at(-1)}"}\n\n`));
      }
    });
    const proxy = await proxyTo(up(port, '/sse'));
    const clients = await Promise.all(
      [1, 2].map(async () => {
        const { seen } = await openStream(proxy.port, '/sse');
        await expect.poll(() => seen.text).toContain('\n\n');
        const url = new URL(/data: (.*)\n/.exec(seen.text)?.[1] ?? '', `http://127.0.0.1:${proxy.port}/sse`);
        return { seen, url };
      }),
    );
    for (const { url } of clients) {
      expect(url.host).toBe(`127.0.0.1:${proxy.port}`);
      await ask(proxy.port, { path: `${url.pathname}${url.search}`, headers: JSON_TYPE, body: CALL });
    }
    for (const { seen, url } of clients)
      await expect.poll(() => seen.text).toContain(`"result":"${url.search.at(-1)}"`);
    const records = await proxy.records();
    return { records, posts, text: clients[0]?.seen.text ?? '' };
  }

  test('an endpoint that is a path works as it is; calls and answers are paired over two streams', async () => {
    const { records, posts, text } = await legacy(() => '/message');
    expect(posts).toHaveLength(2);
    expect(text).toMatch(/^event: endpoint\ndata: \/message\?sessionId=canary-session-\d\n\n/);
    const frames = ofType(records, 'frame');
    const [first, second] = [...new Set(frames.map((frame) => frame.conversation))].map((conversation) =>
      frames.filter((frame) => frame.conversation === conversation).map((frame) => frame.dir),
    );
    expect([first, second]).toEqual([
      ['c2s', 's2c'],
      ['c2s', 's2c'],
    ]);
    expect(JSON.stringify(records)).not.toContain('canary-session');
    expect(JSON.stringify(records)).not.toContain('ENDPOINT');
  });

  test("an endpoint that is a whole URL gets the proxy's origin, and that is on record", async () => {
    const { records, posts } = await legacy((port) => `http://127.0.0.1:${port}/message`);
    expect(posts).toHaveLength(2);
    const ended = ofType(records, 'http').filter(({ phase }) => phase === 'end');
    expect(ended.filter(({ findings }) => findings?.includes('ENDPOINT_REWRITTEN') === true)).toHaveLength(2);
    expect(JSON.stringify(records)).not.toContain('canary-session');
  });

  test('an endpoint on another server is left alone, and that is on record', async () => {
    const port = await byteServer((_, socket) => {
      socket.write(events());
      socket.write(chunk('event: endpoint\ndata: https://elsewhere.example/m\n\n'));
    });
    const proxy = await proxyTo(up(port, '/sse'));
    const { seen } = await openStream(proxy.port, '/sse');
    await expect.poll(() => seen.text).toBe('event: endpoint\ndata: https://elsewhere.example/m\n\n');
    expect(JSON.stringify(await proxy.records())).toContain('ENDPOINT_ELSEWHERE');
  });
});

describe('32: OAuth', () => {
  const CHALLENGE =
    'Bearer error="invalid_token", resource_metadata="http://127.0.0.1:1/.well-known/oauth-protected-resource/mcp"';

  test('401 and WWW-Authenticate verbatim; metadata reachable; a redirect passes', async () => {
    const port = await byteServer((bytes, socket) => {
      const text = bytes.toString();
      if (!isWhole(bytes)) return;
      if (text.startsWith('GET /.well-known/oauth-protected-resource/mcp'))
        socket.end(json('{"resource":"http://x"}'));
      else if (text.startsWith('GET /mcp/old'))
        socket.end(`HTTP/1.1 307 Temporary Redirect\r\nLocation: ${up(port)}/\r\nContent-Length: 0\r\n\r\n`);
      else
        socket.end(
          json('{"error":"invalid_token"}', `WWW-Authenticate: ${CHALLENGE}\r\n`, '401 Unauthorized'),
        );
    });
    const proxy = await proxyTo(up(port));
    const refused = await ask(proxy.port, { headers: JSON_TYPE, body: CALL });
    expect(refused.status).toBe(401);
    expect(refused.raw[refused.raw.indexOf('WWW-Authenticate') + 1]).toBe(CHALLENGE);
    const metadata = await ask(proxy.port, {
      method: 'GET',
      path: '/.well-known/oauth-protected-resource/mcp',
    });
    expect(metadata.body.toString()).toBe('{"resource":"http://x"}');
    const moved = await ask(proxy.port, { method: 'GET', path: '/mcp/old' });
    expect([moved.status, moved.headers.location]).toEqual([307, `${up(port)}/`]);
    expect(JSON.stringify(await proxy.records())).toContain('REDIRECT_PAST_PROXY');
  });

  test('no secret is stored: not from a head, a target, or what goes to other paths than the MCP endpoint', async () => {
    const seen: Buffer[] = [];
    const server = await answering(
      json(
        '{"access_token":"CANARY-token-9"}',
        'Set-Cookie: s=CANARY-cookie-9\r\nMcp-Session-Id: CANARY-session-9\r\nX-Any: CANARY-any-9\r\n' +
          'Location: https://idp/?code=CANARY-code-9\r\nWWW-Authenticate: Bearer x="CANARY-challenge-9"\r\n',
      ),
      seen,
    );
    const proxy = await proxyTo(up(server, '/mcp'));
    const secrets = {
      authorization: 'Bearer CANARY-bearer-9',
      cookie: 's=CANARY-cookie-9',
      'mcp-session-id': 'CANARY-session-9',
      'last-event-id': 'CANARY-event-9',
      'x-api-key': 'CANARY-key-9',
      'mcp-param-region': 'CANARY-param-9',
      'proxy-authorization': 'Basic CANARY-proxy-9',
    };
    for (const path of ['/token', '/mcp/CANARY-path-segment-9', '/register?k=CANARY-query-9']) {
      await ask(proxy.port, { path, headers: secrets, body: 'client_secret=CANARY-body-9' });
    }
    await ask(proxy.port, { method: 'GET', path: '/mcp?key=CANARY-query-9', headers: secrets, body: '' });
    // Everything has reached the server.
    expect(seen.join('')).toContain('Bearer CANARY-bearer-9');
    expect(seen.join('')).toContain('client_secret=CANARY-body-9');
    const records = await proxy.records();
    expect(ofType(records, 'frame')).toHaveLength(1);
    const kept = records.filter((record) => record.type !== 'frame');
    expect(JSON.stringify(kept)).not.toContain('CANARY');
    expect(JSON.stringify(kept)).toContain('authorization');
  });
});

describe('34: DNS rebinding', () => {
  test('a foreign Origin or Host gets 403 in our own name, and the server never hears of it', async () => {
    const seen: Buffer[] = [];
    const server = await answering(json(RESULT), seen);
    const proxy = await proxyTo(up(server));
    const good = { ...JSON_TYPE, host: `127.0.0.1:${proxy.port}` };
    for (const headers of [
      { ...good, origin: 'https://evil.example' },
      { ...good, origin: 'null' },
      { ...good, host: `evil.example:${proxy.port}` },
    ]) {
      const { status, headers: answered, body } = await ask(proxy.port, { headers, body: CALL });
      expect([status, answered['content-type']]).toEqual([403, 'application/problem+json']);
      expect(JSON.parse(body.toString())).toMatchObject({ status: 403, title: /^belay proxy: / });
    }
    expect(seen).toHaveLength(0);
    const ok = await ask(proxy.port, { headers: { ...good, origin: 'http://localhost:6274' }, body: CALL });
    expect(ok.status).toBe(200);
    expect(seen.join('')).toContain('origin: http://localhost:6274');
    const refused = ofType(await proxy.records(), 'http').filter(({ phase }) => phase === 'refused');
    expect(refused.map(({ findings }) => findings?.[0])).toEqual([
      'ORIGIN_REFUSED',
      'ORIGIN_REFUSED',
      'HOST_REFUSED',
    ]);
  });
});

describe('35: the discover probe', () => {
  const PROBE = '{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{}}';
  test.each([
    ['-32601', json('{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"no"}}', '', '404 Not Found')],
    [
      '-32602',
      json('{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}', '', '400 Bad Request'),
    ],
    [
      '400 without JSON-RPC',
      'HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno',
    ],
  ])('%s reaches the client as the server said it', async (_, answer) => {
    const server = await answering(answer);
    const proxy = await proxyTo(up(server));
    const headers = 'MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n';
    const got = await exchangeBytes(proxy.port, own(post('/mcp', PROBE, headers), proxy.port));
    expect(got.toString().replace('Connection: close\r\n', '')).toBe(answer);
    const [asked] = ofType(await proxy.records(), 'http');
    expect(asked?.headers).toContainEqual(['MCP-Protocol-Version', '2026-07-28']);
    expect(asked?.headers).toContainEqual(['Mcp-Method', 'server/discover']);
  });

  test('no answer is no answer: the client may wait, and gives up by itself', async () => {
    let gone = false;
    const port = await byteServer((_, socket) => socket.on('close', () => (gone = true)));
    const proxy = await proxyTo(up(port));
    const sent = httpRequest({
      port: proxy.port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/mcp',
      agent: false,
    });
    let answered = false;
    sent.on('response', () => (answered = true));
    sent.on('error', () => undefined);
    sent.end(PROBE);
    await sleep(500);
    sent.destroy();
    await expect.poll(() => gone).toBe(true);
    expect(answered).toBe(false);
  });

  test.each([
    ['closes without an answer', 'ECONNRESET'],
    ['is not there', 'ECONNREFUSED'],
  ])('a server that %s: 502 in our own name, asked once', async (what, code) => {
    let asked = 0;
    const port = await listen((socket) => {
      asked++;
      socket.once('data', () => socket.destroy());
    });
    const proxy = await proxyTo(up(what === 'is not there' ? 1 : port));
    const { status, headers, body } = await ask(proxy.port, { headers: JSON_TYPE, body: PROBE });
    expect([status, headers['content-type']]).toEqual([502, 'application/problem+json']);
    expect(JSON.parse(body.toString())).toMatchObject({ title: /^belay proxy: /, detail: RegExp(code) });
    expect(asked).toBe(what === 'is not there' ? 0 : 1);
    expect(ofType(await proxy.records(), 'http').at(-1)).toMatchObject({ ended: 'unreachable', code });
  });
});

describe('the rest of HTTP', () => {
  test('an answer before the request is complete reaches the client', async () => {
    const port = await byteServer((_, socket) => socket.end(json('{}', '', '413 Content Too Large')));
    const proxy = await proxyTo(up(port));
    const socket = connect(proxy.port, '127.0.0.1');
    socket.on('error', () => undefined);
    later(() => void socket.destroy());
    let got = '';
    socket.on('data', (part: Buffer) => (got += part.toString()));
    socket.write(
      `POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:${proxy.port}\r\nContent-Length: 1000000\r\n\r\n${'x'.repeat(1000)}`,
    );
    await expect.poll(() => got).toContain('413 Content Too Large');
  });

  test('100-continue is the server’s to say', async () => {
    const port = await byteServer((bytes, socket) => {
      const text = bytes.toString();
      if (text.endsWith('\r\n\r\n')) setTimeout(() => socket.write('HTTP/1.1 100 Continue\r\n\r\n'), 100);
      else if (isWhole(bytes)) socket.end(json(RESULT));
    });
    const proxy = await proxyTo(up(port));
    const sent = httpRequest({
      port: proxy.port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/mcp',
      headers: { ...JSON_TYPE, expect: '100-continue', 'content-length': CALL.length },
    });
    sent.flushHeaders();
    const started = performance.now();
    await once(sent, 'continue');
    expect(performance.now() - started).toBeGreaterThan(90);
    sent.end(CALL);
    const [answered] = (await once(sent, 'response')) as [IncomingMessage];
    expect(answered.statusCode).toBe(200);
    answered.resume();
  });

  test.each([
    ['GET /mcp HTTP/1.1\r\n\r\n', '403', 'Host refused'],
    ['GET http://elsewhere.example/ HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n', '400', 'Not a path'],
    ['nonsense\r\n\r\n', '400', 'not an HTTP request'],
    [`GET / HTTP/1.1\r\nX: ${'x'.repeat(300_000)}\r\n\r\n`, '431', 'not an HTTP request'],
  ])('what it can not forward is answered in its own name (%#)', async (bytes, status, title) => {
    const proxy = await proxyTo('http://127.0.0.1:1/mcp');
    const socket = connect(proxy.port, '127.0.0.1');
    later(() => void socket.destroy());
    let got = '';
    socket.on('error', () => undefined);
    socket.on('data', (part: Buffer) => (got += part.toString()));
    socket.write(bytes);
    await expect.poll(() => got).toContain(`belay proxy: ${title}`);
    expect(got).toMatch(RegExp(`^HTTP/1.1 ${status} `));
  });

  test('heads of many fields pass, and trailers', async () => {
    const fields = Array.from({ length: 3_000 }, (_, i) => `X-Field-${i}: ${i}\r\n`).join('');
    const seen: Buffer[] = [];
    const server = await answering(
      `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n${fields}\r\n2\r\n{}\r\n0\r\nX-End: 1\r\n\r\n`,
      seen,
    );
    const proxy = await proxyTo(up(server));
    const answer = await exchangeBytes(proxy.port, own(post('/mcp', '{}', fields), proxy.port));
    expect(seen[0]?.toString()).toContain(fields);
    expect(answer.toString()).toContain(fields);
    expect(answer.toString()).toMatch(/Trailer: X-End\r\n[^]*\r\n0\r\nX-End: 1\r\n\r\n$/);
  });

  test('server requests have their own ids, over POST streams and GET streams of a session', async () => {
    const session = { ...JSON_TYPE, 'mcp-session-id': 's1' };
    const port = await byteServer((bytes, socket) => {
      if (!isWhole(bytes)) return;
      const text = bytes.toString();
      if (text.includes('"method":"tools/call"')) {
        socket.write(events());
        socket.write(chunk('data: {"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}\n\n'));
        setTimeout(() => {
          socket.write(chunk(`data: ${RESULT}\n\n`));
          socket.end(END);
        }, 100);
      } else socket.end('HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n');
    });
    const proxy = await proxyTo(up(port));
    const call = ask(proxy.port, { headers: session, body: CALL });
    await sleep(50);
    await ask(proxy.port, { headers: session, body: '{"jsonrpc":"2.0","id":1,"result":{"role":"user"}}' });
    expect((await call).body.toString()).toContain('"content":[]');
    const frames = ofType(await proxy.records(), 'frame');
    expect(frames.map(({ dir }) => dir)).toEqual(['c2s', 's2c', 'c2s', 's2c']);
    expect(new Set(frames.map(({ conversation }) => conversation)).size).toBe(1);
  });

  test('it listens on loopback by default, and says where', async () => {
    const proxy = await proxyTo('http://127.0.0.1:1/mcp');
    const socket = connect(proxy.port, '127.0.0.1');
    await once(socket, 'connect');
    expect(socket.remoteAddress).toBe('127.0.0.1');
    socket.destroy();
  });
});
