import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Epoch, Forwarder, logDir, SharedEpoch, Transport } from '@belay/client';
import { SmallCollector, problem } from '@belay/testkit';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { belay } from './command.js';
import { freshFolder } from './proxied.js';

let collector: SmallCollector;
let url: string;
let state: string;
beforeEach(async () => {
  collector = new SmallCollector();
  url = await collector.listen();
  state = join(freshFolder(), 'state');
  vi.stubEnv('BELAY_URL', url);
  vi.stubEnv('BELAY_TOKEN', collector.token);
  vi.stubEnv('BELAY_STATE', state);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await collector.close();
});

const epochOf = (limits?: { bytes: number; age: number }): Promise<Epoch> =>
  Epoch.open({ state, log: collector.origin, sink: 'proxy', sinkKind: 'proxy', limits });
async function forward(): Promise<void> {
  const { token, credential } = collector;
  const transport = new Transport(url);
  const keyOf = (): Promise<undefined> => Promise.resolve(undefined);
  const forwarder = new Forwarder({ state, transport, token, credential, keyOf });
  forwarder.hurry();
  await forwarder.adoptOrphans();
  forwarder.stop();
}
interface Status {
  readonly totals: Record<string, number>;
  readonly logs: {
    head?: { size: number };
    lastError?: { code: string };
    accusations: { code: string }[];
    sinks: { sink: string; settled: number; epochs: Record<string, unknown>[] }[];
  }[];
}
async function statusOf(...args: string[]): Promise<{ code: number; status: Status }> {
  const { code, json } = await belay('status', '--json', ...args);
  return { code, status: json as Status };
}

test('nothing yet', async () => {
  expect(await statusOf()).toMatchObject({ code: 0, status: { logs: [] } });
  expect((await belay('status')).stdout).toContain('Nothing was sent from here.');
});

test('what waits, then what was acknowledged', async () => {
  const epoch = await epochOf();
  for (let i = 0; i < 3; i++) epoch.append({ kind: 'x.event' });
  await forward();
  let { code, status } = await statusOf();
  expect(code).toBe(2);
  expect(status.logs[0]?.sinks[0]?.epochs).toMatchObject([
    { state: 'open', lines: 4, pending: 4, acked: 0, dropped: 0 },
  ]);
  epoch.close();
  epoch.release();
  ({ code, status } = await statusOf());
  expect(status.logs[0]?.sinks[0]?.epochs).toMatchObject([{ state: 'waiting', lines: 5, pending: 5 }]);
  await forward();
  ({ code, status } = await statusOf());
  expect(code).toBe(0);
  expect(status.totals).toMatchObject({ lines: 5, pending: 0, pendingBytes: 0, acked: 5, dropped: 0 });
  expect(status.logs).toMatchObject([
    { head: { size: 6 }, sinks: [{ sink: 'proxy', settled: 1, epochs: [] }] },
  ]);
  ({ status } = await statusOf('--all'));
  expect(status.logs[0]?.sinks[0]?.epochs).toMatchObject([{ state: 'settled', acked: 5, lastIndex: 5 }]);
  const { stdout } = await belay('status', '--all');
  expect(stdout).toMatch(/sink +epoch +state +lines +pending +acked +refused +dropped +filtered +conflicts/);
  expect(stdout).toContain('0 lines (0 bytes) wait, 0 dropped, 0 refused, 0 conflicts, 0 accusations');
});

test('what was dropped, before and after it is sent', async () => {
  const epoch = await epochOf({ bytes: 1_000, age: 1e9 });
  for (let i = 0; i < 10; i++) epoch.append({ kind: 'x.event' });
  const dropped = epoch.dropped;
  epoch.close();
  epoch.release();
  expect(await statusOf()).toMatchObject({ code: 1, status: { totals: { dropped, lines: 13 } } });
  await forward();
  expect(await statusOf()).toMatchObject({
    code: 1,
    status: { totals: { dropped, pending: 0, acked: 13 - dropped } },
  });
});

test('a shared epoch, and a hole that no line speaks of yet', async () => {
  const options = { state, log: collector.origin, sink: 'hook', sinkKind: 'hook' } as const;
  const limits = { bytes: 1_000, age: 1e9 };
  for (let i = 0; i < 8; i++)
    SharedEpoch.use({ ...options, limits }, (epoch) => epoch.append({ kind: 'x.hook' }));
  await forward();
  const { status } = await statusOf();
  const [epoch] = status.logs[0]?.sinks[0]?.epochs ?? [];
  expect(epoch).toMatchObject({ state: 'open', lines: 9, pending: 0 });
  expect(Number(epoch?.['dropped']) + Number(epoch?.['acked'])).toBe(9);
});

test('the last error, until there is an acknowledgement', async () => {
  const epoch = await epochOf();
  epoch.close();
  epoch.release();
  collector.faults = [(_, response) => (problem(response, 403, 'token_revoked'), 'answered')];
  await forward();
  const { status } = await statusOf();
  expect(status.logs[0]?.lastError).toMatchObject({ code: 'refused' });
  expect((await belay('status')).stdout).toContain('token_revoked');
  await forward();
  expect((await statusOf()).status.logs[0]?.lastError).toBeUndefined();
});

test('accusations', async () => {
  const epoch = await epochOf();
  epoch.close();
  epoch.release();
  await forward();
  const folder = join(logDir(state, collector.origin), 'accusations');
  mkdirSync(folder);
  const accusation = { time: '2026-01-01T00:00:00Z', code: 'split_view', message: 'two trees of size 3' };
  writeFileSync(join(folder, 'a.json'), JSON.stringify(accusation));
  const { code, status } = await statusOf();
  expect(code).toBe(1);
  expect(status.logs[0]?.accusations).toMatchObject([accusation]);
  expect((await belay('status')).stdout).toContain('split_view: two trees of size 3');
});
