import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createSocketServer, type Socket } from 'node:net';
import { createLogger, isOutside, outsideLookup } from '@belay/process';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Webhooks } from '../src/webhooks.js';
import { openStored, type Stored, StoredLog } from './stored-log.js';

let stored: Stored;
let log: StoredLog;
beforeAll(async () => {
  stored = await openStored();
  log = await StoredLog.create(stored.pool, 'belay.example/acme/agents');
});
afterAll(async () => stored?.close());

const cleanUp: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
  await stored.pool.query('delete from deliveries');
});

const silent = createLogger('test', 'silent', { write: () => undefined });
const secret = randomBytes(24);

/** A receiver on this machine that answers as it is told. */
async function receiver(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ url: string; seen: { headers: IncomingMessage['headers']; body: string }[] }> {
  const seen: { headers: IncomingMessage['headers']; body: string }[] = [];
  const sockets = new Set<Socket>();
  const server: Server = createServer((request, response) => {
    let body = '';
    request.on('data', (part) => (body += part));
    request.on('end', () => {
      seen.push({ headers: request.headers, body });
      answer(request, response);
    });
  });
  server.on('connection', (socket) => sockets.add(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp.push(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`, seen };
}

/** A receiver that says these bytes to whoever connects, and nothing after them. */
async function rawReceiver(bytes: string): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createSocketServer((socket) => {
    sockets.add(socket.on('error', () => undefined));
    socket.write(bytes);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp.push(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

async function subscribe(url: string): Promise<string> {
  const id = `whk_${randomBytes(6).toString('hex')}`;
  await stored.pool.query(
    `insert into webhooks (id, log, url, events, secret, by) values ($1, $2, $3, '{session.settled}', $4, 'adm')`,
    [id, log.record.log, url, secret],
  );
  return id;
}

async function message(webhook: string, due = new Date(0)): Promise<string> {
  const id = `msg_${randomBytes(8).toString('hex')}`;
  await stored.pool.query(
    `insert into deliveries (id, webhook, event, body, due) values ($1, $2, 'session.settled', $3, $4)`,
    [id, webhook, JSON.stringify({ type: 'session.settled', id }), due],
  );
  return id;
}

interface Row {
  readonly attempts: number;
  readonly status: number | null;
  readonly error: string | null;
  readonly due: Date | null;
  readonly delivered: Date | null;
}

async function rowOf(id: string): Promise<Row> {
  return (await stored.pool.query('select * from deliveries where id = $1', [id])).rows[0] as Row;
}

const sender = (options: { allowPrivate?: boolean; now?: () => number } = {}) => {
  const webhooks = new Webhooks({
    deliveries: stored.store.deliveries,
    allowPrivate: options.allowPrivate ?? true,
    now: options.now ?? Date.now,
    random: () => 0.5,
    log: silent,
  });
  return webhooks;
};

describe('a message to a webhook', () => {
  it('is signed as Standard Webhooks has it, and sent once when it is taken', async () => {
    const { url, seen } = await receiver((_request, response) => response.writeHead(204).end());
    const id = await message(await subscribe(url));
    const webhooks = sender();
    await webhooks.sweep();
    await webhooks.idle();
    await webhooks.sweep();
    await webhooks.idle();
    expect(seen).toHaveLength(1);
    const { headers, body } = seen[0] as (typeof seen)[number];
    const signed = `${id}.${String(headers['webhook-timestamp'])}.${body}`;
    expect(headers).toMatchObject({
      'webhook-id': id,
      'webhook-signature': `v1,${createHmac('sha256', secret).update(signed).digest('base64')}`,
      'content-type': 'application/json',
    });
    expect(await rowOf(id)).toMatchObject({ attempts: 1, status: 204, error: null, due: null });
    expect((await rowOf(id)).delivered).not.toBeNull();
  });

  it('is forgotten thirty days after it was made, once it is over', async () => {
    const webhook = await subscribe('http://127.0.0.1:9/');
    const [old, recent, waiting] = [await message(webhook), await message(webhook), await message(webhook)];
    const set = (id: string, days: number, due: string): Promise<unknown> =>
      stored.pool.query(
        `update deliveries set created = now() - make_interval(days => $2), due = ${due} where id = $1`,
        [id, days],
      );
    await set(old, 31, 'null');
    await set(recent, 29, 'null');
    await set(waiting, 31, `now() + interval '1 hour'`);
    await sender().sweep();
    const { rows } = await stored.pool.query('select id from deliveries order by id');
    expect(rows.map(({ id }) => id as string)).toEqual([recent, waiting].sort());
  });

  it('that fails is sent again later under the same identifier, and given up after a day', async () => {
    let status = 500;
    const { url, seen } = await receiver((_request, response) =>
      response.writeHead(status).end('x'.repeat(10_000)),
    );
    const id = await message(await subscribe(url));
    let now = Date.now();
    const webhooks = sender({ now: () => now });
    const pauses: number[] = [];
    for (;;) {
      await webhooks.sweep();
      await webhooks.idle();
      const { due } = await rowOf(id);
      if (due === null) break;
      pauses.push((due.getTime() - now) / 1_000);
      now = due.getTime();
    }
    expect(pauses).toEqual([...pauses].sort((a, b) => a - b));
    expect(pauses.length).toBeGreaterThan(8);
    expect(await rowOf(id)).toMatchObject({ status: 500, error: 'answered 500', delivered: null });

    const other = await message(await subscribe(url));
    await webhooks.sweep();
    await webhooks.idle();
    status = 200;
    now += 6_000;
    await webhooks.sweep();
    await webhooks.idle();
    expect(await rowOf(other)).toMatchObject({ attempts: 2, status: 200, due: null });
    expect(new Set(seen.slice(-2).map(({ headers }) => headers['webhook-id'])).size).toBe(1);
  });

  it('does not wait for another one that hangs', async () => {
    const hanging = await receiver(() => undefined);
    const quick = await receiver((_request, response) => response.end());
    const [slow, fine] = [await subscribe(hanging.url), await subscribe(quick.url)];
    const waiting: string[] = [];
    for (let at = 0; at < 20; at++) waiting.push(await message(slow, new Date(at)));
    const id = await message(fine, new Date(10_000));
    const webhooks = sender();
    await webhooks.sweep();
    await expect.poll(async () => (await rowOf(id)).status).toBe(200);
    // Of those that hang, two are under way; the others wait their turn.
    expect(hanging.seen.length).toBeLessThanOrEqual(2);
    // To be put back is no attempt: the pause after the first one that fails is the shortest.
    for (let sweeps = 0; sweeps < 5; sweeps++) await webhooks.sweep();
    await expect
      .poll(async () => Promise.all(waiting.map(async (each) => (await rowOf(each)).attempts)))
      .toEqual([1, 1, ...waiting.slice(2).map(() => 0)]);
  });

  it('ends, however the receiver behaves', async () => {
    const changing = await rawReceiver(
      'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
    );
    const endless = await rawReceiver(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(100_000)}`);
    const ids = [await message(await subscribe(changing)), await message(await subscribe(endless))];
    const webhooks = sender();
    await webhooks.sweep();
    // One that never ended would keep its place for ever, and the worker from stopping.
    await webhooks.stop();
    expect(await rowOf(ids[0] as string)).toMatchObject({
      attempts: 1,
      error: 'the connection was closed without an answer',
      delivered: null,
    });
    expect((await rowOf(ids[1] as string)).error).toBe('no connection: HPE_HEADER_OVERFLOW');
  });

  it('follows no redirect', async () => {
    const inner = await receiver((_request, response) => response.end());
    const outer = await receiver((_request, response) =>
      response.writeHead(302, { location: inner.url }).end(),
    );
    const id = await message(await subscribe(outer.url));
    const webhooks = sender();
    await webhooks.sweep();
    await webhooks.idle();
    expect(await rowOf(id)).toMatchObject({ status: 302, error: 'answered 302' });
    expect(inner.seen).toEqual([]);
  });

  it('is not sent to this machine or a private network, by address or by name', async () => {
    const { url, seen } = await receiver((_request, response) => response.end());
    const port = new URL(url).port;
    const urls = [
      '127.0.0.1',
      'localhost',
      '[::1]',
      '[::ffff:127.0.0.1]',
      '2130706433',
      '0x7f.1',
      '0.0.0.0',
      '10.0.0.1',
    ];
    const ids: string[] = [];
    for (const host of urls) ids.push(await message(await subscribe(`http://${host}:${port}/`)));
    const webhooks = sender({ allowPrivate: false });
    for (let round = 0; round < 2; round++) {
      await webhooks.sweep();
      await webhooks.idle();
    }
    for (const id of ids) {
      expect((await rowOf(id)).error).toBe('the address is private, of this machine, or of no network');
    }
    expect(seen).toEqual([]);
  });

  it('is sent by one of several workers, and to no webhook that was removed', async () => {
    const { url, seen } = await receiver((_request, response) => response.end());
    const webhook = await subscribe(url);
    for (let at = 0; at < 12; at++) await message(webhook);
    const gone = await subscribe(url);
    const id = await message(gone);
    await stored.pool.query('update webhooks set removed = now() where id = $1', [gone]);
    const all = [sender(), sender(), sender()];
    await expect
      .poll(async () => {
        await Promise.all(all.map((one) => one.sweep()));
        await Promise.all(all.map((one) => one.idle()));
        return seen.length;
      })
      .toBeGreaterThanOrEqual(12);
    expect(new Set(seen.map(({ headers }) => headers['webhook-id'])).size).toBe(seen.length);
    expect(seen).toHaveLength(12);
    expect(await rowOf(id)).toMatchObject({ due: null, error: 'the webhook was removed', attempts: 0 });
  });
});

describe('addresses outside', () => {
  it.each(['8.8.8.8', '2606:4700:4700::1111', '1.1.1.1'])('%s is one', (address) => {
    expect(isOutside(address)).toBe(true);
  });

  it.each([
    '127.0.0.1',
    '10.1.2.3',
    '172.31.255.255',
    '192.168.1.1',
    '169.254.169.254',
    '100.64.0.1',
    '0.0.0.0',
    '255.255.255.255',
    '224.0.0.1',
    '::',
    '::1',
    'fe80::1',
    'fe80::1%eth0',
    'fd00::1',
    'ff02::1',
    '::ffff:8.8.8.8',
    '64:ff9b::7f00:1',
    '2002:7f00:1::',
    '2001:0:7f00:1::',
    'localhost',
    '',
  ])('%s is none', (address) => {
    expect(isOutside(address)).toBe(false);
  });

  it('a name that resolves to this machine resolves to nothing', async () => {
    const found = await new Promise((resolve) => {
      outsideLookup('localhost', { all: true }, (error, addresses) => resolve(error?.name ?? addresses));
    });
    expect(found).toBe('InsideAddress');
  });
});
