import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import {
  type ClientError,
  type Epoch,
  type ForwardEvent,
  HeadStore,
  logDir,
  pendingSpools,
} from '@belay/client';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { problem, SmallCollector } from '@belay/testkit';
import { fill, forwarder, freshState, openEpoch } from './setup.js';

let collector: SmallCollector;
let url: string;
let state: string;
let epoch: Epoch;
beforeEach(async () => {
  collector = new SmallCollector();
  url = await collector.listen();
  state = freshState();
  epoch = await openEpoch(state, collector);
});
afterEach(async () => {
  epoch.release();
  await collector.close();
});

const send = async (
  lines = 3,
): Promise<{ settled: boolean; events: ForwardEvent[]; stopped: ClientError | undefined }> => {
  fill(epoch, lines);
  const { forwarder: f, events } = forwarder(state, url, collector);
  const settled = await f.follow(epoch.dir, () => true);
  return { settled, events, stopped: f.stopped };
};
const kept = (): boolean => pendingSpools(state, collector.origin).includes(epoch.dir);

describe('retry', () => {
  test.each([
    [503, 'overloaded'],
    [429, 'rate_limited'],
    [500, 'internal'],
    [408, 'request_timeout'],
  ])('%d %s is tried again, after the time that was asked for', async (status, code) => {
    collector.faults = [
      (_, response) => (problem(response, status, code, { 'retry-after': '1' }), 'answered'),
    ];
    const started = Date.now();
    const { settled, events } = await send();
    expect(settled).toBe(true);
    expect(events[0]).toMatchObject({ type: 'waiting', ms: 1000, error: { action: 'retry', problem: code } });
    expect(Date.now() - started).toBeGreaterThanOrEqual(990);
  });

  test('what is not JSON, or no ack, or cut, is tried again; waits grow', async () => {
    const answer = (body: string, type: string) => (_: unknown, response: ServerResponse) => {
      response.writeHead(200, { 'content-type': type }).end(body);
      return 'answered' as const;
    };
    collector.faults = [
      answer('<html>', 'text/html'),
      answer('{}', 'application/json'),
      (_, response) => (response.destroy(), 'answered'),
      (_, response) => (
        response.writeHead(200, { 'content-length': '10' }),
        response.write('{'),
        response.destroy(),
        'answered'
      ),
    ];
    const { settled, events } = await send();
    expect(settled).toBe(true);
    expect(events.map((event) => (event.type === 'waiting' ? event.ms : event.type))).toEqual([
      100,
      200,
      400,
      800,
      'settled',
    ]);
  });

  test('nobody listens: waits in the background, and not at all when the owner wants to end', async () => {
    await collector.close();
    fill(epoch, 1);
    const { forwarder: f, events } = forwarder(state, url, collector);
    let settled: boolean | undefined;
    const following = f.follow(epoch.dir, () => true).then((result) => (settled = result));
    await expect.poll(() => events.length).toBeGreaterThan(2);
    expect(settled).toBeUndefined();
    f.hurry();
    await following;
    expect(settled).toBe(false);
    expect(f.stopped).toBeUndefined();
    expect(kept()).toBe(true);
  });

  test('a collector that never answers is cut off by stop', async () => {
    fill(epoch, 1);
    collector.faults = [() => 'answered'];
    const { forwarder: f } = forwarder(state, url, collector);
    const following = f.follow(epoch.dir, () => true);
    setTimeout(() => f.stop(), 100);
    expect(await following).toBe(false);
    expect(kept()).toBe(true);
  });

  test('a batch that is too large is halved until it fits', async () => {
    collector.maxLines = 130;
    const { settled } = await send(998);
    expect(settled).toBe(true);
    expect(collector.entries).toHaveLength(1001);
    expect(Math.max(...collector.requests.map(({ lines }) => lines))).toBe(125);
  });
});

describe('give up', () => {
  test.each([
    [401, 'unauthenticated'],
    [401, 'token_revoked'],
    [403, 'sink_not_allowed'],
    [404, 'not_found'],
  ])('%d %s ends it; the lines stay', async (status, code) => {
    collector.faults = [(_, response) => (problem(response, status, code), 'answered')];
    const { settled, stopped } = await send();
    expect(settled).toBe(false);
    expect(stopped).toMatchObject({ action: 'give_up', code: 'refused', problem: code });
    expect(kept()).toBe(true);
  });

  test('a redirect is not followed', async () => {
    collector.faults = [
      (_, response) => (response.writeHead(307, { location: 'http://127.0.0.1:1/' }).end(), 'answered'),
    ];
    expect((await send()).stopped).toMatchObject({ code: 'redirected' });
  });

  test('a collector with another key is refused, and settles nothing', async () => {
    const other = new SmallCollector(Buffer.alloc(32, 0x0c));
    const otherUrl = await other.listen();
    // It answers for our project and token, but can't sign with the key that the token names.
    Object.assign(other, { token: collector.token });
    fill(epoch, 2);
    const { forwarder: f } = forwarder(state, otherUrl, collector);
    expect(await f.follow(epoch.dir, () => true)).toBe(false);
    expect(f.stopped).toMatchObject({ action: 'give_up', code: 'bad_signature' });
    expect(kept()).toBe(true);
    await other.close();
  });

  test('a proof that does not hold settles nothing', async () => {
    collector.change = (ack) => ({
      ...ack,
      runs: ack.runs.map((run) => ({ ...run, range: { left: run.range.right, right: run.range.left } })),
    });
    const { settled, stopped } = await send();
    expect(settled).toBe(false);
    expect(stopped).toMatchObject({ code: 'proof_invalid' });
    expect(kept()).toBe(true);
  });
});

describe('accuse', () => {
  const evidence = (): Record<string, unknown> => {
    const folder = join(logDir(state, collector.origin), 'accusations');
    const [file] = readdirSync(folder);
    return JSON.parse(readFileSync(join(folder, file as string), 'utf8')) as Record<string, unknown>;
  };

  test('a log that was rolled back: by its own answer', async () => {
    expect((await send(5)).settled).toBe(true);
    collector.reset();
    epoch.release();
    epoch = await openEpoch(state, collector);
    const { stopped } = await send(1);
    expect(stopped).toMatchObject({ action: 'accuse', code: 'rolled_back', problem: 'head_ahead' });
    expect(evidence()).toMatchObject({
      code: 'rolled_back',
      evidence: { log: collector.origin, held: { size: 8 } },
    });
    expect(kept()).toBe(true);
  });

  test('a log that started over and grew past what we hold: its history is not ours', async () => {
    expect((await send(1)).settled).toBe(true);
    collector.reset();
    epoch.release();
    epoch = await openEpoch(state, collector);
    // Larger than what is held; but a consistency proof between two histories does not exist.
    fill(epoch, 20);
    const { forwarder: f } = forwarder(state, url, collector);
    const held = new HeadStore(state, collector.origin).read();
    expect(held?.size).toBe(4);
    collector.faults = [
      ({ headers }) => {
        // The log hides that it is behind, as a database put back would.
        delete headers['belay-head'];
        return 'go on';
      },
    ];
    expect(await f.follow(epoch.dir, () => true)).toBe(false);
    expect(f.stopped).toMatchObject({ action: 'accuse', code: 'not_consistent' });
    expect(evidence()).toMatchObject({ evidence: { held, shown: { size: 23 } } });
    expect(kept()).toBe(true);
  });
});

test('a refused line is told and does not hold up the others', async () => {
  epoch.append({ kind: 'x.event', attrs: { a: 'two words' } });
  const { settled, events } = await send(2);
  expect(settled).toBe(true);
  expect(events).toMatchObject([
    { type: 'refused', seq: 2, refusal: { code: 'bad_value', field: 'attrs.a' } },
    { type: 'settled' },
  ]);
  expect(collector.envelopes().map(({ seq }) => seq)).toEqual([1, 3, 4, 5]);
});

test('a conflict is told', async () => {
  const { forwarder: f, events } = forwarder(state, url, collector);
  fill(epoch, 1);
  await f.follow(epoch.dir, () => true);
  // The same numbers with other bytes: a spool that was restored from a copy and written on.
  const spool = join(epoch.dir, 'lines');
  const [entry] = collector.entries.slice(2) as [Buffer];
  writeFileSync(spool, `${(entry.toString().split('\n')[1] as string).replace('"bytes":8', '"bytes":9')}\n`);
  rmSync(join(epoch.dir, 'acks'));
  expect(await f.follow(epoch.dir, () => true)).toBe(true);
  expect(events.at(-2)).toMatchObject({ type: 'conflict', seq: 2 });
});

test('no event and no error ever holds the token', async () => {
  collector.faults = [(_, response) => (problem(response, 401, 'unauthenticated'), 'answered')];
  const { events, stopped } = await send();
  const secret = collector.token.slice(20);
  expect(JSON.stringify(events) + String(stopped?.stack)).not.toContain(secret);
});
