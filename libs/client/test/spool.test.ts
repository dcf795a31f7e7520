import { spawn, spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { appendFileSync, existsSync, readdirSync, readFileSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import {
  Epoch,
  HeadStore,
  logDir,
  machineSecret,
  pendingSpools,
  readEpochRecord,
  Spool,
} from '@belay/client';
import { batchRoot, commitment, commitmentSalt, parseEnvelope } from '@belay/envelope';
import { treeOfLines } from '../src/epoch-record.js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SmallCollector } from '@belay/testkit';
import { fill, forwarder, freshState, openEpoch } from './setup.js';

/** Other processes run the compiled form. */
const door = new URL('../dist/index.js', import.meta.url).href;

let collector: SmallCollector;
let url: string;
let state: string;
beforeEach(async () => {
  collector = new SmallCollector();
  url = await collector.listen();
  state = freshState();
});
afterEach(() => collector.close());

const linesOf = (dir: string): Buffer[] =>
  readFileSync(join(dir, 'lines'))
    .toString()
    .split('\n')
    .slice(0, -1)
    .map((line) => Buffer.from(line));

/** Starts a process that opens an epoch, appends 100 lines and waits to be killed. */
async function writerProcess(tail = ''): Promise<{ kill: () => Promise<void> }> {
  const script = `
    import { Epoch } from ${JSON.stringify(door)};
    const epoch = await Epoch.open({ state: ${JSON.stringify(state)}, log: ${JSON.stringify(collector.origin)}, sink: 'proxy', sinkKind: 'proxy' });
    for (let i = 0; i < 100; i++) epoch.append({ kind: 'x.event', content: Buffer.from('e' + i) });
    ${tail}
    console.log('ready');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  return {
    kill: async () => {
      const gone = once(child, 'exit');
      child.kill('SIGKILL');
      await gone;
    },
  };
}

describe('writing', () => {
  test('every line is an envelope, numbered without gaps, committed to, and counted by the tree', async () => {
    const epoch = await openEpoch(state, collector, { now: () => new Date('2026-01-01T00:00:00.123Z') });
    fill(epoch, 3);
    epoch.release();
    const lines = linesOf(epoch.dir);
    const envelopes = lines.map(parseEnvelope);
    expect(envelopes.map(({ seq, kind }) => `${seq} ${kind}`)).toEqual([
      '1 epoch.open',
      '2 x.event',
      '3 x.event',
      '4 x.event',
      '5 epoch.close',
    ]);
    const secret = Buffer.from(readEpochRecord(epoch.dir)?.secret as string, 'base64');
    expect(envelopes[1]?.digest).toBe(commitment(commitmentSalt(secret, 2), Buffer.from('event 0')));
    expect(envelopes[4]?.attrs).toEqual({
      size: 4,
      root: batchRoot(lines.slice(0, 4)).toString('base64'),
      dropped: 0,
      filtered: 0,
    });
  });

  test('nobody else may read any of it', async () => {
    machineSecret(state);
    const epoch = await openEpoch(state, collector);
    const { forwarder: f } = forwarder(state, url, collector);
    fill(epoch, 1);
    await f.follow(epoch.dir, () => true);
    const modes = (path: string): string[] =>
      readdirSync(path, { withFileTypes: true }).flatMap((entry) => {
        const own = join(path, entry.name);
        const mode = (statSync(own).mode & 0o777).toString(8);
        return [
          ...(mode === (entry.isDirectory() ? '700' : '600') || entry.name === 'belay.lock'
            ? []
            : [`${mode} ${own}`]),
          ...(entry.isDirectory() ? modes(own) : []),
        ];
      });
    expect(modes(state)).toEqual([]);
    expect(machineSecret(state)).toEqual(machineSecret(state));
    epoch.release();
  });

  test('epochs are chained: counter, and size and root of the one before', async () => {
    const first = await openEpoch(state, collector);
    fill(first, 2);
    first.release();
    const second = await openEpoch(state, collector);
    const third = await openEpoch(state, collector);
    const opening = (epoch: Epoch): unknown => parseEnvelope(linesOf(epoch.dir)[0] as Buffer).attrs;
    expect(opening(first)).toEqual({ counter: 0, sink_kind: 'proxy' });
    expect(opening(second)).toEqual({
      counter: 1,
      prev_epoch: first.id,
      prev_size: 4,
      prev_root: batchRoot(linesOf(first.dir)).toString('base64'),
      sink_kind: 'proxy',
    });
    // The second one is still running: nothing can be said of its size.
    expect(opening(third)).toEqual({ counter: 2, prev_epoch: second.id, sink_kind: 'proxy' });
    second.release();
    third.release();
  });

  test('an epoch that was killed is named with what it had written', async () => {
    const writer = await writerProcess();
    await writer.kill();
    const [dead] = pendingSpools(state, collector.origin) as [string];
    appendFileSync(join(dead, 'lines'), '{"v":1,"torn');
    const whole = linesOf(dead);
    const next = await openEpoch(state, collector);
    expect(parseEnvelope(linesOf(next.dir)[0] as Buffer).attrs).toMatchObject({
      counter: 1,
      prev_size: 101,
      prev_root: batchRoot(whole).toString('base64'),
    });
    next.release();
  });

  test('ten processes open epochs of one sink at once', async () => {
    const epochs = await Promise.all(Array.from({ length: 10 }, () => openEpoch(state, collector)));
    const counters = epochs.map((epoch) => parseEnvelope(linesOf(epoch.dir)[0] as Buffer).attrs?.['counter']);
    expect(new Set(counters).size).toBe(10);
    for (const epoch of epochs) epoch.release();
  });

  test('lines that the disk refuses are a gap line with their hashes, and the root still covers them', async () => {
    // A file size limit stands for a full disk: writes fail part of the way. Raising it is space that was freed.
    const script = `
      import { execFileSync } from 'node:child_process';
      import { Epoch } from ${JSON.stringify(door)};
      process.on('SIGXFSZ', () => {});
      const epoch = await Epoch.open({ state: ${JSON.stringify(state)}, log: ${JSON.stringify(collector.origin)}, sink: 'proxy', sinkKind: 'proxy' });
      const name = 'n'.repeat(100);
      const put = () => epoch.append({ kind: 'x.event', attrs: { a: name, b: name, c: name } });
      while (epoch.dropped < 5) put();
      execFileSync('prlimit', ['--pid', String(process.pid), '--fsize=unlimited:unlimited']);
      for (let i = 0; i < 3; i++) put();
      epoch.close();
      console.log(JSON.stringify({ size: epoch.size, dropped: epoch.dropped, dir: epoch.dir }));`;
    const limited = [
      '-c',
      'ulimit -S -f 16; exec "$0" --input-type=module -e "$1"',
      process.execPath,
      script,
    ];
    const { stdout, stderr } = spawnSync('sh', limited, { encoding: 'utf8' });
    expect(stderr).toBe('');
    const { dir, dropped, size } = JSON.parse(stdout) as { dir: string; dropped: number; size: number };
    const lines = linesOf(dir).map(parseEnvelope);
    const gaps = lines.filter(({ kind }) => kind === 'gap');
    const missing = gaps.map(({ attrs }) => (attrs?.['last'] as number) - (attrs?.['first'] as number) + 1);
    expect(missing.reduce((sum, count) => sum + count)).toBe(dropped);
    expect(lines).toHaveLength(size - dropped);
    // What a collector does that never saw the missing lines: their hashes stand in the gap lines.
    expect(readEpochRecord(dir)?.closed).toEqual(treeOfLines(readFileSync(join(dir, 'lines'))).stated());
    expect(lines.at(-1)).toMatchObject({ kind: 'epoch.close', attrs: { dropped, size: size - 1 } });
    const { forwarder: f } = forwarder(state, url, collector);
    expect(await f.adoptOrphans()).toEqual({ settled: 1, left: 0 });
    expect(collector.envelopes()).toHaveLength(size - dropped);
  });
});

describe('limits', () => {
  const kindsOf = (dir: string): string[] => linesOf(dir).map((line) => parseEnvelope(line).kind);

  test('a heartbeat states size and root of the lines before it, a gap that precedes it included', async () => {
    const epoch = await openEpoch(state, collector, { limits: { bytes: 600, age: 1e9 } });
    epoch.heartbeat();
    for (let i = 0; i < 9; i++) epoch.append({ kind: 'x.event' });
    epoch.appendStated({ kind: 'session.close' });
    epoch.close();
    epoch.release();
    const lines = linesOf(epoch.dir).map(parseEnvelope);
    expect(lines[1]).toMatchObject({
      kind: 'heartbeat',
      attrs: { size: 1, root: batchRoot(linesOf(epoch.dir).slice(0, 1)).toString('base64') },
    });
    expect(kindsOf(epoch.dir).slice(-2)).toEqual(['gap', 'epoch.close']);
    const [gap, close] = lines.slice(-2) as unknown as [{ attrs: object }, { attrs: object }];
    expect(gap.attrs).toMatchObject({ reason: 'overflow', last: 12 });
    const whole = readEpochRecord(epoch.dir)?.closed;
    expect(treeOfLines(readFileSync(join(epoch.dir, 'lines'))).stated()).toEqual(whole);
    expect(close.attrs).toMatchObject({ size: 13, dropped: 12 - lines.length + 2 });
  });

  test('what waits in other spools of the log counts', async () => {
    const first = await openEpoch(state, collector, { limits: { bytes: 3_000, age: 1e9 } });
    for (let i = 0; i < 9; i++) first.append({ kind: 'x.event' });
    first.close();
    first.release();
    const second = await openEpoch(state, collector, { limits: { bytes: 3_000, age: 1e9 } });
    for (let i = 0; i < 9; i++) second.append({ kind: 'x.event' });
    expect(second.dropped).toBeGreaterThan(0);
    second.close();
    second.release();
    const bytes = statSync(join(first.dir, 'lines')).size + statSync(join(second.dir, 'lines')).size;
    expect(bytes).toBeLessThan(4_500);
  });

  test('while the oldest line that waits is too old, no more are taken', async () => {
    let time = Date.parse('2026-01-01T00:00:00Z');
    const epoch = await openEpoch(state, collector, {
      limits: { bytes: 1e9, age: 60_000 },
      now: () => new Date(time),
    });
    for (let i = 0; i < 9; i++, time += 20_000) epoch.append({ kind: 'x.event' });
    expect(epoch.dropped).toBeGreaterThan(3);
    const { forwarder: f } = forwarder(state, url, collector);
    const following = f.follow(epoch.dir, () => epoch.dropped > 100);
    f.hurry();
    await expect.poll(() => collector.entries.length).toBe(linesOf(epoch.dir).length + 1);
    f.stop();
    await following;
    time += 20_000;
    epoch.append({ kind: 'x.event' });
    expect(kindsOf(epoch.dir).slice(-2)).toEqual(['gap', 'x.event']);
    epoch.release();
  });

  test.each([true, false])('lines of a run that is over are given up by age (closed: %s)', async (closed) => {
    const epoch = await openEpoch(state, collector, { now: () => new Date('2026-01-01T00:00:00Z') });
    for (let i = 0; i < 5; i++) epoch.append({ kind: 'x.event' });
    if (closed) epoch.close();
    epoch.release();
    const before = linesOf(epoch.dir);
    const { forwarder: f } = forwarder(state, url, collector, { limits: { bytes: 1e9, age: 86_400_000 } });
    expect(await f.adoptOrphans()).toEqual({ settled: 1, left: 0 });
    const [gap, ...more] = collector.envelopes();
    expect(more).toEqual([]);
    expect(gap).toMatchObject({ kind: 'gap', seq: before.length + 1 });
    expect(gap?.attrs).toMatchObject({ first: 1, last: before.length, reason: 'overflow' });
    const line = Buffer.from((collector.entries[1] as Buffer).toString().split('\n')[1] as string);
    expect(treeOfLines(Buffer.concat([line, Buffer.from('\n')])).stated().root).toBe(
      batchRoot([...before, line]).toString('base64'),
    );
    expect(readEpochRecord(epoch.dir)).toMatchObject({ settled: true, expired: before.length });
  });
});

describe('sending', () => {
  test('a closed epoch is logged in order, settled, and its lines compacted', async () => {
    const epoch = await openEpoch(state, collector);
    fill(epoch, 1200);
    const lines = linesOf(epoch.dir);
    const { forwarder: f, events } = forwarder(state, url, collector);
    expect(await f.follow(epoch.dir, () => true)).toBe(true);
    epoch.release();
    expect(collector.entries.slice(1).map((entry) => entry.toString().split('\n')[1])).toEqual(
      lines.map(String),
    );
    expect(collector.requests.map((request) => request.lines)).toEqual([500, 500, 202]);
    expect(collector.requests.map(({ headers }) => headers['belay-head'])).toEqual([
      undefined,
      '501',
      '1001',
    ]);
    expect(events.filter(({ type }) => type === 'settled')).toMatchObject([
      { indexes: [1, 500] },
      { indexes: [501, 1000] },
      { indexes: [1001, 1202] },
    ]);
    expect(readdirSync(epoch.dir).sort()).toEqual(['acks', 'epoch.json', 'lines.gz', 'proofs']);
    expect(readEpochRecord(epoch.dir)).toMatchObject({ settled: true, closed: { size: 1202 } });
    expect(new HeadStore(state, collector.origin).read()).toMatchObject({
      size: 1203,
      root: collector.root().toString('base64'),
    });
  });

  test('lines are sent while the epoch is alive, as they come', async () => {
    const epoch = await openEpoch(state, collector);
    const { forwarder: f } = forwarder(state, url, collector);
    let closed = false;
    const following = f.follow(epoch.dir, () => closed);
    for (let i = 0; i < 5; i++) {
      epoch.append({ kind: 'x.event' });
      f.wake();
      await expect.poll(() => collector.envelopes().length, { interval: 5 }).toBe(i + 2);
    }
    epoch.close();
    closed = true;
    f.hurry();
    expect(await following).toBe(true);
    expect(collector.envelopes().at(-1)).toMatchObject({ kind: 'epoch.close', attrs: { size: 6 } });
    epoch.release();
  });

  test('kill -9 of the writer: another process sends what it left, once', async () => {
    const writer = await writerProcess();
    const { forwarder: f } = forwarder(state, url, collector);
    expect(await f.adoptOrphans()).toEqual({ settled: 0, left: 0 });
    await writer.kill();
    expect(await f.adoptOrphans()).toEqual({ settled: 1, left: 0 });
    expect(collector.envelopes().map(({ seq }) => seq)).toEqual(
      Array.from({ length: 101 }, (_, at) => at + 1),
    );
    expect(await f.adoptOrphans()).toEqual({ settled: 0, left: 0 });
    expect(collector.entries).toHaveLength(102);
  });

  test('an ack that was lost: the lines come again and are duplicates with the same index', async () => {
    const epoch = await openEpoch(state, collector);
    fill(epoch, 10);
    collector.faults = [() => 'commit and cut'];
    const { forwarder: f, events } = forwarder(state, url, collector);
    expect(await f.follow(epoch.dir, () => true)).toBe(true);
    expect(events.map(({ type }) => type)).toEqual(['waiting', 'settled']);
    expect(events[1]).toMatchObject({ duplicates: 12, indexes: [1, 12] });
    expect(collector.entries).toHaveLength(13);
    epoch.release();
  });

  test('a crash between ack and its note: the torn note is as good as none', async () => {
    const epoch = await openEpoch(state, collector);
    fill(epoch, 700);
    const { forwarder: first } = forwarder(state, url, collector);
    collector.faults = [() => 'go on', (_, response) => (response.destroy(), first.stop(), 'answered')];
    expect(await first.follow(epoch.dir, () => true)).toBe(false);
    const acks = join(epoch.dir, 'acks');
    expect(readFileSync(acks, 'utf8').trimEnd().split('\n')).toHaveLength(1);
    truncateSync(acks, statSync(acks).size - 3);
    epoch.release();
    const { forwarder: second, events } = forwarder(state, url, collector);
    expect(await second.adoptOrphans()).toEqual({ settled: 1, left: 0 });
    expect(events).toMatchObject([{ duplicates: 500 }, { duplicates: 0 }]);
    expect(collector.entries).toHaveLength(703);
  });

  test('signed batches of a keyed sink', async () => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
    collector.sinkKeys.set('proxy', raw);
    const epoch = await openEpoch(state, collector, { key: raw });
    fill(epoch, 600);
    const unsigned = forwarder(state, url, collector);
    expect(await unsigned.forwarder.follow(epoch.dir, () => true)).toBe(false);
    expect(unsigned.events).toMatchObject([
      { type: 'stopped', error: { problem: 'signature_invalid', action: 'give_up' } },
    ]);
    const { forwarder: f } = forwarder(state, url, collector, { keyOf: () => Promise.resolve(privateKey) });
    expect(await f.follow(epoch.dir, () => true)).toBe(true);
    expect(collector.envelopes()[0]?.attrs).toMatchObject({ key: raw.toString('base64') });
    epoch.release();
  });

  test('a torn last line of a killed writer is not sent and not waited for', async () => {
    const writer = await writerProcess();
    await writer.kill();
    const [dir] = pendingSpools(state, collector.origin) as [string];
    appendFileSync(join(dir, 'lines'), '{"v":1,"torn');
    const { forwarder: f } = forwarder(state, url, collector);
    expect(await f.adoptOrphans()).toEqual({ settled: 1, left: 0 });
    expect(collector.entries).toHaveLength(102);
    expect(existsSync(join(dir, 'lines'))).toBe(false);
  });

  test('a spool has one sender', async () => {
    const epoch = await openEpoch(state, collector);
    fill(epoch, 1);
    expect(Spool.adopt(epoch.dir)).toBeUndefined();
    epoch.release();
    const spool = Spool.adopt(epoch.dir) as Spool;
    expect(Spool.adopt(epoch.dir)).toBeUndefined();
    await spool.release();
    expect(Spool.adopt(epoch.dir)).toBeDefined();
  });
});

test('heads move along verified links only', async () => {
  const heads = new HeadStore(state, collector.origin);
  const head = (size: number, root = 'r'): { size: number; root: string; signature: string } => ({
    size,
    root,
    signature: 's',
  });
  await heads.advance(undefined, head(5));
  await heads.advance(undefined, head(9));
  expect(heads.read()).toEqual(head(5));
  await heads.advance(head(5), head(7));
  await heads.advance(head(5), head(8));
  await heads.advance(head(7), head(6));
  expect(heads.read()).toEqual(head(7));
  // Two that were proved to have grown from one head: one of them stays.
  await Promise.all([heads.advance(head(7), head(10)), heads.advance(head(7), head(11, 's'))]);
  expect([head(10), head(11, 's')]).toContainEqual(heads.read());
  expect(readdirSync(logDir(state, collector.origin)).filter((name) => name.endsWith('.new'))).toEqual([]);
  expect(existsSync(join(logDir(state, collector.origin), 'head.json'))).toBe(true);
});
