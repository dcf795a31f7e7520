/**
 * What our own sinks write is what coverage takes it for: spools as the client library leaves them, whole, too full,
 * killed, shared by processes, given up after their close, come to the log as they are.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Epoch, SharedEpoch, Spool } from '@belay/client';
import {
  EpochCoverage,
  epochStatement,
  type EpochStatement,
  readPolicy,
  type SentEntry,
  SinkChain,
  timingOf,
} from '@belay/coverage';
import { collectorLine, entryBytes, parseEntry } from '@belay/envelope';
import { afterEach, beforeEach, expect, test } from 'vitest';

const LOG = 'belay.example/acme/agents';
const policy = readPolicy({});
let state: string;
let index: number;
beforeEach(() => {
  state = mkdtempSync(join(tmpdir(), 'belay-coverage-'));
  index = 0;
});
afterEach(() => rmSync(state, { recursive: true, force: true }));

const linesIn = (dir: string): Buffer[] =>
  readFileSync(join(dir, 'lines'))
    .toString()
    .split('\n')
    .slice(0, -1)
    .map((line) => Buffer.from(line));

const options = (sink: string, more: object = {}): Parameters<typeof Epoch.open>[0] => ({
  state,
  log: LOG,
  sink,
  sinkKind: 'proxy',
  ...more,
});

function entries(lines: readonly Buffer[], sink: string): SentEntry[] {
  return lines.map((body) => {
    const line = collectorLine({
      index: index++,
      log: LOG,
      received: '2026-01-01T00:00:00.000Z',
      role: 'sink',
      token: 'tok_01kdvdna00081040g2081040g2',
      sink,
      signed: '795ed5ffe9039bf5',
    });
    return parseEntry(entryBytes(line, body)) as SentEntry;
  });
}

/** The statement on each epoch of a sink, in their order. */
function covered(sent: readonly SentEntry[], sink: string): EpochStatement[] {
  const chain = new SinkChain({ log: LOG, sink });
  const epochs = new Map<string, EpochCoverage>();
  for (const entry of sent) {
    const { epoch } = entry.envelope;
    if (!epochs.has(epoch)) epochs.set(epoch, new EpochCoverage({ log: LOG, sink, epoch }));
    epochs.get(epoch)?.apply(entry, timingOf(policy));
    chain.apply(entry);
  }
  expect(chain.findings()).toMatchObject({ lost: [], branches: [], miscounted: [] });
  const asOf = { size: index, time: '2026-01-01T00:00:01.000Z' };
  return [...epochs.values()].map((coverage) =>
    epochStatement(coverage, { asOf, policy, account: chain.account(coverage.epoch) }),
  );
}

test('an epoch that was closed, and one that was killed and then accounted for, are complete', async () => {
  const first = await Epoch.open(options('proxy'));
  for (let n = 0; n < 20; n++) first.append({ kind: 'x.event' });
  first.heartbeat();
  first.close();
  first.release();
  const second = await Epoch.open(options('proxy'));
  for (let n = 0; n < 5; n++) second.append({ kind: 'x.event' });
  second.release();
  const third = await Epoch.open(options('proxy'));
  third.heartbeat();
  third.release();
  const sent = [first, second, third].flatMap(({ dir }) => linesIn(dir));
  expect(covered(entries(sent, 'proxy'), 'proxy')).toMatchObject([
    { status: 'complete', ending: { by: 'close', compared: true }, unknown: [] },
    { status: 'complete', ending: { by: 'successor', size: 6, compared: true }, unknown: [] },
    { status: 'open', unknown: ['tail', 'content'] },
  ]);
});

test('what did not fit the spool is disclosed with hashes that the root can be followed past', async () => {
  const epoch = await Epoch.open(options('proxy', { limits: { bytes: 2_000, age: 1e9 } }));
  for (let n = 0; n < 40; n++) epoch.append({ kind: 'x.event' });
  epoch.close();
  epoch.release();
  const [statement] = covered(entries(linesIn(epoch.dir), 'proxy'), 'proxy');
  expect(statement).toMatchObject({
    status: 'gap',
    conflicts: [],
    ending: { by: 'close', compared: true },
    missing: [{ gap: { reason: 'overflow', hashed: true } }],
  });
  const [{ from, to } = { from: 0, to: 0 }] = statement?.missing ?? [];
  expect(to - from).toBe(epoch.dropped);
  expect(statement?.stated?.dropped).toBe(epoch.dropped);
});

test('lines given up after the close: disclosed where they did not come, whole where they had', async () => {
  const epoch = await Epoch.open(options('proxy'));
  for (let n = 0; n < 30; n++) epoch.append({ kind: 'x.event' });
  epoch.close();
  epoch.release();
  const before = linesIn(epoch.dir);
  const spool = Spool.adopt(epoch.dir) as Spool;
  const { length } = before;
  expect(await spool.expire(0, new Date(Date.now() + 10_000))).toBe(length);
  await spool.release();
  const [gap] = linesIn(epoch.dir) as [Buffer];
  const next = await Epoch.open(options('proxy'));
  next.release();
  const opening = linesIn(next.dir);
  for (const arrived of [0, 1, 7, 16, length - 1, length]) {
    index = 0;
    const sent = [...before.slice(0, arrived), gap, ...opening];
    const [statement] = covered(entries(sent, 'proxy'), 'proxy');
    expect(statement).toMatchObject({
      status: arrived === length ? 'complete' : 'gap',
      conflicts: [],
      missing:
        arrived === length
          ? []
          : [{ from: arrived + 1, to: length + 1, gap: { reason: 'overflow', hashed: true } }],
      next: length + 2,
    });
  }
});

test('an epoch of many processes goes on from one to the next, and says that it is over', () => {
  const shared = options('hook');
  let dir = '';
  for (let n = 0; n < 12; n++) {
    SharedEpoch.use(shared, (epoch) => {
      dir = epoch.dir;
      epoch.append({ kind: 'x.event', session: 's' });
      if (n % 4 === 3) epoch.appendStated({ kind: 'session.close', session: 's' });
    });
  }
  SharedEpoch.useOpen(shared, (epoch) => epoch.close());
  expect(covered(entries(linesIn(dir), 'hook'), 'hook')).toMatchObject([
    { status: 'complete', lines: 17, ending: { by: 'close', compared: true } },
  ]);
});
