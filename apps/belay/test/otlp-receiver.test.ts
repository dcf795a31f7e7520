import { once } from 'node:events';
import { request as send, type IncomingHttpHeaders } from 'node:http';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { type OtlpRequest, Refused } from '@belay/otlp';
import { afterEach, describe, expect, it } from 'vitest';
import { OtlpReceiver, RECEIVER_LIMITS, type ReceiverParts } from '../src/otlp-receiver.js';

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

const TRACE = '5b8efff798038103d269b633813fc60c';
const ONE = {
  resourceSpans: [{ scopeSpans: [{ spans: [{ traceId: TRACE, spanId: 'eee19b7ec3c1b174' }] }] }],
};
const open: OtlpReceiver[] = [];
afterEach(async () => {
  for (const receiver of open.splice(0)) await receiver.close();
});

/** A receiver on a free port, and what it took. */
async function started(parts: Partial<ReceiverParts> = {}) {
  const taken: OtlpRequest[] = [];
  const dropped: string[] = [];
  const receiver = new OtlpReceiver({
    limits: RECEIVER_LIMITS,
    full: () => false,
    dropped: (what) => dropped.push(what),
    take: (request) => {
      taken.push(request);
      const refused = request.emitters
        .flatMap(({ items }) => items)
        .filter((item) => item instanceof Refused);
      return refused.length === 0 ? undefined : { rejected: refused.length, message: 'some' };
    },
    ...parts,
  });
  open.push(receiver);
  const port = await receiver.listen('127.0.0.1', 0, ['Belay.internal']);
  const post = async (
    body: Uint8Array | string,
    headers: Readonly<Record<string, string>> = {},
    path = '/v1/traces',
    method = 'POST',
  ): Promise<Answer> =>
    await new Promise((resolve, reject) => {
      const request = send(
        {
          port,
          host: '127.0.0.1',
          path,
          method,
          agent: false,
          headers: { 'content-type': 'application/json', ...headers },
        },
        (response) => {
          const parts: Buffer[] = [];
          response.on('data', (part: Buffer) => parts.push(part));
          response.on('end', () =>
            resolve({
              status: response.statusCode as number,
              headers: response.headers,
              body: Buffer.concat(parts),
            }),
          );
        },
      );
      request.on('error', reject);
      request.end(body);
    });
  return { receiver, port, post, taken, dropped };
}

describe('encodings', () => {
  it('JSON and gzip of it, answered in JSON', async () => {
    const { post, taken } = await started();
    const body = JSON.stringify(ONE);
    for (const answer of [
      await post(body, { 'content-type': 'Application/JSON; charset=utf-8' }),
      await post(gzipSync(body), { 'content-encoding': 'gzip' }),
      await post(body, {}, '/v1/traces?a=1'),
    ]) {
      expect(answer).toMatchObject({ status: 200, headers: { 'content-type': 'application/json' } });
      expect(answer.body.toString()).toBe('{}');
    }
    expect(taken).toHaveLength(3);
  });

  it('protobuf, answered in protobuf: nothing when all was taken, else how many were not', async () => {
    const { post, taken } = await started();
    const headers = { 'content-type': 'application/x-protobuf' };
    const good = Buffer.from(`0a20121e121c0a105b8efff798038103d269b633813fc60c1208eee19b7ec3c1b174`, 'hex');
    const bad = Buffer.from('0a04120212000a0412021200', 'hex');
    const answer = await post(good, headers);
    expect(answer).toMatchObject({ status: 200, headers: { 'content-type': 'application/x-protobuf' } });
    expect(answer.body).toHaveLength(0);
    expect(taken[0]?.emitters[0]?.items).toEqual([{ traceId: TRACE, spanId: 'eee19b7ec3c1b174' }]);
    const partial = await post(bad, headers);
    expect(partial.status).toBe(200);
    expect(partial.body.toString('hex')).toBe('0a0808021204736f6d65');
  });

  it('a partial success in JSON', async () => {
    const { post } = await started();
    const { status, body } = await post(JSON.stringify(ONE).replace('eee19b7ec3c1b174', ''));
    expect(status).toBe(200);
    expect(JSON.parse(body.toString())).toEqual({
      partialSuccess: { rejectedSpans: '1', errorMessage: 'some' },
    });
  });

  it('an empty request is taken, logs are told from traces, metrics are answered and dropped', async () => {
    const { post, taken, dropped } = await started();
    expect((await post('', { 'content-type': 'application/x-protobuf' })).status).toBe(200);
    expect((await post('{}', {}, '/v1/logs')).status).toBe(200);
    expect((await post('whatever', {}, '/v1/metrics')).status).toBe(200);
    expect(taken.map(({ signal }) => signal)).toEqual(['traces', 'logs']);
    expect(dropped).toEqual(['metrics']);
  });
});

describe('refusals', () => {
  it.each<[string, number, Uint8Array | string, Readonly<Record<string, string>>]>([
    ['not JSON', 400, '{', {}],
    ['not protobuf', 400, 'text', { 'content-type': 'application/x-protobuf' }],
    ['not gzip', 400, '{}', { 'content-encoding': 'gzip' }],
    ['cut gzip', 400, gzipSync('{"a":1}').subarray(0, 15), { 'content-encoding': 'gzip' }],
    ['another type', 415, '{}', { 'content-type': 'text/plain' }],
    ['no type', 415, '{}', { 'content-type': '' }],
    ['another content encoding', 415, '{}', { 'content-encoding': 'br' }],
    ['a name that a page chose', 403, '{}', { host: 'evil.example:4318' }],
    ['the name of another port', 403, '{}', { host: 'localhost:1' }],
    ['a page from elsewhere', 403, '{}', { origin: 'https://evil.example' }],
    ['a page of nowhere', 403, '{}', { origin: 'null' }],
    ['a body that is announced to be too large', 413, '{}', { 'content-length': '4194305' }],
  ])('%s: %i', async (_title, status, body, headers) => {
    const { post, taken } = await started();
    // What is announced is never sent here: the answer must come without it.
    const answer = await post('content-length' in headers ? '' : body, headers);
    expect(answer.status).toBe(status);
    expect(taken).toEqual([]);
    if (headers['content-type'] !== 'application/x-protobuf') {
      expect(JSON.parse(answer.body.toString())).toMatchObject({
        code: expect.any(Number) as number,
        message: expect.any(String) as string,
      });
    } else expect(answer.body[0]).toBe(0x08);
  });

  it('other paths and methods', async () => {
    const { post } = await started();
    expect((await post('{}', {}, '/v1/profiles')).status).toBe(404);
    expect((await post('{}', {}, '/constructor')).status).toBe(404);
    const get = await post('', {}, '/v1/traces', 'GET');
    expect(get).toMatchObject({ status: 405, headers: { allow: 'POST' } });
  });

  it('a page of this machine, by any of its names', async () => {
    const { post, port } = await started();
    for (const headers of [
      { origin: 'http://localhost:3000' },
      { host: `LOCALHOST:${port}` },
      { host: `[::1]:${port}` },
      { host: 'belay.internal' },
      { origin: 'http://127.0.0.1' },
    ]) {
      expect((await post('{}', headers as Record<string, string>)).status).toBe(200);
    }
  });

  it('too large: as sent in chunks, and unpacked', async () => {
    const { post, taken } = await started();
    const large = Buffer.alloc(RECEIVER_LIMITS.body + 1, 0x20);
    expect((await post(large, { 'transfer-encoding': 'chunked' })).status).toBe(413);
    const bomb = gzipSync(Buffer.alloc(RECEIVER_LIMITS.unpacked + 1, 0x20));
    expect(bomb.length).toBeLessThan(100_000);
    expect((await post(bomb, { 'content-encoding': 'gzip' })).status).toBe(413);
    expect(taken).toEqual([]);
    const just = Buffer.alloc(RECEIVER_LIMITS.body, 0x20);
    just.write('{}');
    expect((await post(just, { 'transfer-encoding': 'chunked' })).status).toBe(200);
  });

  it('too many values is 413, and nothing of it is used', async () => {
    const { post, taken } = await started();
    expect((await post(`{"resourceSpans":[${'{},'.repeat(600_000)}{}]}`)).status).toBe(413);
    expect(taken).toEqual([]);
  });

  it('no room for lines: 429 and when to try again', async () => {
    let full = true;
    const { post } = await started({ full: () => full });
    const answer = await post(JSON.stringify(ONE));
    expect(answer.status).toBe(429);
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
    full = false;
    expect((await post(JSON.stringify(ONE))).status).toBe(200);
  });

  it('too many at once: 503 at once, while the others go on', async () => {
    const { post, port } = await started({ limits: { ...RECEIVER_LIMITS, requests: 1 } });
    const slow = connect(port, '127.0.0.1');
    slow.write(
      `POST /v1/traces HTTP/1.1\r\nHost: localhost:${port}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{`,
    );
    await once(slow, 'connect');
    let busy: Answer;
    do busy = await post('{}');
    while (busy.status === 200);
    expect(busy).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    slow.write('}');
    const [answer] = (await once(slow, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 200/);
    slow.destroy();
    expect((await post('{}')).status).toBe(200);
  });

  it('a sender that leaves, and what is not HTTP, cost nothing', async () => {
    const { post, port } = await started({ limits: { ...RECEIVER_LIMITS, requests: 1 } });
    for (const text of [
      `POST /v1/traces HTTP/1.1\r\nHost: localhost:${port}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{`,
      '\u0016\u0003\u0001nonsense\r\n\r\n',
    ]) {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      await once(socket, 'connect');
      socket.write(text);
      await new Promise((resolve) => setTimeout(resolve, 50));
      socket.destroy();
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect((await post('{}')).status).toBe(200);
  });

  it('a fault of what takes is told as ours', async () => {
    const { post } = await started({
      take: () => {
        throw new Error('secret');
      },
    });
    const answer = await post('{}');
    expect(answer.status).toBe(500);
    expect(answer.body.toString()).not.toContain('secret');
  });
});
