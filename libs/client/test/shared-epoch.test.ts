import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, readFileSync, readdirSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { type EpochOptions, readEpochRecord, SharedEpoch, sinkDir, Slots, tendShared } from '@belay/client';
import { batchRoot, parseEnvelope } from '@belay/envelope';
import { SmallCollector } from '@belay/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { treeOfLines } from '../src/epoch-record.js';
import { forwarder, freshState } from './setup.js';

/** Other processes run the compiled form. */
const door = new URL('../dist/index.js', import.meta.url).href;

let collector: SmallCollector;
let url: string;
let state: string;
let options: EpochOptions;
beforeEach(async () => {
  collector = new SmallCollector();
  url = await collector.listen();
  state = freshState();
  options = { state, log: collector.origin, sink: 'hook', sinkKind: 'hook' };
});
afterEach(() => collector.close());

const folder = (): string => sinkDir(state, collector.origin, 'hook');
const epochs = (): string[] =>
  readdirSync(folder(), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => join(folder(), name))
    // One that was killed while it opened an epoch leaves a folder in which nothing has a number yet.
    .filter((dir) => existsSync(join(dir, 'lines')))
    .sort();
const linesOf = (dir: string): Buffer[] =>
  readFileSync(join(dir, 'lines'), 'latin1')
    .split('\n')
    .slice(0, -1)
    .map((line) => Buffer.from(line, 'latin1'));
const put = (name: string, more: Partial<EpochOptions> = {}): string =>
  SharedEpoch.use({ ...options, ...more }, (epoch) => {
    epoch.append({ kind: 'x.event', content: Buffer.from(name) });
    return epoch.id;
  });

/** A process that appends until it is told to stop or killed: each event as a process of its own would. */
function writerProcess(count: number): ChildProcess {
  const script = `
    import { SharedEpoch } from ${JSON.stringify(door)};
    for (let i = 0; i < ${count}; i++) {
      SharedEpoch.use(${JSON.stringify(options)}, (epoch) => epoch.append({ kind: 'x.event', content: Buffer.from('e' + i) }));
    }`;
  return spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}

/** The numbers of a spool are 1, 2, 3 ... and its tree is what its writers kept. */
function expectWhole(dir: string): void {
  const lines = linesOf(dir);
  expect(lines.map((line) => parseEnvelope(line).seq)).toEqual(lines.map((_, at) => at + 1));
  expect(treeOfLines(readFileSync(join(dir, 'lines'))).stated().root).toBe(
    batchRoot(lines).toString('base64'),
  );
}

test('short processes go on in one epoch; its close states the tree of all their lines', () => {
  const ids = ['a', 'b', 'c'].map((name) => put(name));
  expect(new Set(ids).size).toBe(1);
  const [dir] = epochs() as [string];
  SharedEpoch.useOpen(options, (epoch) => epoch.close());
  const lines = linesOf(dir);
  expect(lines.map((line) => parseEnvelope(line).kind)).toEqual([
    'epoch.open',
    'x.event',
    'x.event',
    'x.event',
    'epoch.close',
  ]);
  expect(parseEnvelope(lines[4] as Buffer).attrs).toEqual({
    size: 4,
    root: batchRoot(lines.slice(0, 4)).toString('base64'),
    dropped: 0,
    filtered: 0,
  });
  expect(put('d')).not.toBe(ids[0]);
  const next = linesOf(epochs()[1] as string)[0] as Buffer;
  expect(parseEnvelope(next).attrs).toMatchObject({ counter: 1, prev_epoch: ids[0], prev_size: 5 });
});

test('processes at once: no number is taken twice, and no line is missing', async () => {
  const writers = Array.from({ length: 6 }, () => writerProcess(40));
  await Promise.all(writers.map((writer) => once(writer, 'exit')));
  expect(epochs()).toHaveLength(1);
  const [dir] = epochs() as [string];
  expect(linesOf(dir)).toHaveLength(241);
  expectWhole(dir);
});

test('kill -9 at any moment: the next process goes on', async () => {
  for (let round = 0; round < 12; round++) {
    const writers = [writerProcess(10_000), writerProcess(10_000)];
    await new Promise((resolve) => setTimeout(resolve, 120 + Math.random() * 60));
    for (const writer of writers) {
      const gone = once(writer, 'exit');
      writer.kill('SIGKILL');
      await gone;
    }
    put(`after ${round}`);
  }
  for (const dir of epochs()) expectWhole(dir);
  const { forwarder: f } = forwarder(state, url, collector);
  await f.adoptOrphans();
  expect(collector.envelopes().map(({ seq }) => seq)).toEqual(
    epochs().flatMap((dir) => linesOf(dir).map((_, at) => at + 1)),
  );
}, 60_000);

describe('what a killed process left', () => {
  test('a whole line that nobody wrote down keeps its number', () => {
    put('a');
    const [dir] = epochs() as [string];
    const kept = readFileSync(join(dir, 'writer'));
    put('b');
    // As if the second process had been killed right after its line.
    const slots = Slots.open(join(dir, 'writer'));
    const [first] = [kept];
    slots.close();
    writeBack(join(dir, 'writer'), first);
    put('c');
    expectWhole(dir);
    expect(linesOf(dir)).toHaveLength(4);
  });

  test('half a line is cut off', () => {
    put('a');
    const [dir] = epochs() as [string];
    appendFileSync(join(dir, 'lines'), '{"v":1,"torn');
    put('b');
    expectWhole(dir);
    expect(linesOf(dir)).toHaveLength(3);
  });

  test('lines that are gone (power was lost): the epoch is given up, its numbers are not taken again', () => {
    const before = put('a');
    put('b');
    const [dir] = epochs() as [string];
    truncateSync(join(dir, 'lines'), statSync(join(dir, 'lines')).size - 10);
    expect(put('c')).not.toBe(before);
    expect(epochs()).toHaveLength(2);
  });
});

test('an open epoch is sent and stays; once it is closed its lines are removed', async () => {
  put('a');
  const [dir] = epochs() as [string];
  const { forwarder: f } = forwarder(state, url, collector);
  expect(await f.adoptOrphans()).toEqual({ settled: 1, left: 0 });
  expect(await f.adoptOrphans()).toEqual({ settled: 0, left: 0 });
  put('b');
  expect(linesOf(dir)).toHaveLength(3);
  SharedEpoch.useOpen(options, (epoch) => epoch.close());
  expect(await f.adoptOrphans()).toEqual({ settled: 1, left: 0 });
  expect(collector.envelopes().map(({ seq, kind }) => `${seq} ${kind}`)).toEqual([
    '1 epoch.open',
    '2 x.event',
    '3 x.event',
    '4 epoch.close',
  ]);
  expect(readEpochRecord(dir)).toMatchObject({ settled: true, closed: { size: 4 } });
  expect(readdirSync(dir)).not.toContain('lines');
});

test('idle: a heartbeat when one is due, then a close', () => {
  let time = Date.parse('2026-01-01T00:00:00Z');
  const now = (): Date => new Date(time);
  put('a', { now });
  const tend = (): void => {
    SharedEpoch.useOpen({ ...options, now }, (epoch) => epoch.tend({ heartbeat: 60_000, idle: 300_000 }));
  };
  for (; time < Date.parse('2026-01-01T00:10:00Z'); time += 20_000) tend();
  const [dir] = epochs() as [string];
  const kinds = linesOf(dir).map((line) => parseEnvelope(line).kind);
  expect(kinds).toEqual(['epoch.open', 'x.event', ...Array<string>(4).fill('heartbeat'), 'epoch.close']);
  expectWhole(dir);
  expect(tendShared(state, collector.origin)).toEqual({ open: 0 });
});

test('an epoch that has become old is closed, and the next one names it', () => {
  const first = put('a', { now: () => new Date('2026-01-01T00:00:00Z') });
  const second = put('b', { now: () => new Date('2026-01-02T00:00:01Z') });
  const [old, fresh] = epochs() as [string, string];
  expect(second).not.toBe(first);
  expect(linesOf(old).map((line) => parseEnvelope(line).kind)).toEqual([
    'epoch.open',
    'x.event',
    'epoch.close',
  ]);
  expect(parseEnvelope(linesOf(fresh)[0] as Buffer).attrs).toMatchObject({ prev_epoch: first, prev_size: 3 });
});

test('a disk that takes nothing gathers no folders', () => {
  put('a');
  SharedEpoch.useOpen(options, (epoch) => epoch.close());
  const script = `
    import { SharedEpoch } from ${JSON.stringify(door)};
    for (let i = 0; i < 3; i++) {
      try { SharedEpoch.use(${JSON.stringify(options)}, () => {}); console.log('used'); } catch (error) { console.log(error.code); }
    }`;
  const limited = [
    '-c',
    'ulimit -S -f 8; trap "" XFSZ; exec "$0" --input-type=module -e "$1"',
    process.execPath,
    script,
  ];
  const { stdout } = spawnSync('sh', limited, { encoding: 'utf8' });
  expect(stdout).toBe('EFBIG\nEFBIG\nEFBIG\n');
  expect(epochs()).toHaveLength(1);
});

test('what does not fit is a gap, and what was missing when a process ended is known to the next', async () => {
  const limits = { bytes: 2_000, age: 3_600_000 };
  for (let i = 0; i < 20; i++) put(`e${i}`, { limits });
  const [dir] = epochs() as [string];
  const stored = linesOf(dir).length;
  expect(stored).toBeLessThan(10);
  const { forwarder: f } = forwarder(state, url, collector);
  await f.adoptOrphans();
  put('room again', { limits });
  const lines = linesOf(dir).map(parseEnvelope);
  expect(lines.slice(stored).map(({ kind, seq }) => `${seq} ${kind}`)).toEqual(['22 gap', '23 x.event']);
  expect(lines[stored]?.attrs).toMatchObject({ first: stored + 1, last: 21, reason: 'overflow' });
  expect(treeOfLines(readFileSync(join(dir, 'lines'))).size).toBe(23);
  SharedEpoch.useOpen(options, (epoch) => epoch.close());
  const closing = parseEnvelope(linesOf(dir).at(-1) as Buffer);
  expect(closing.attrs).toMatchObject({ dropped: 21 - stored, size: 23 });
});

test('a value in slots survives a write that was cut short', () => {
  const path = join(state, 'value');
  put('makes the folder');
  const slots = Slots.open<{ n: number }>(path);
  slots.write({ n: 1 });
  slots.write({ n: 2 });
  slots.close();
  const bytes = readFileSync(path);
  bytes.fill(0x20, 10, 40);
  writeBack(path, bytes);
  expect([1, 2]).toContain(Slots.open<{ n: number }>(path).value?.n);
});

function writeBack(path: string, bytes: Buffer): void {
  truncateSync(path, 0);
  appendFileSync(path, bytes);
}
