import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkTrace, contentPath, readTrace, recordData, type TraceRecord } from '@belay/trace';
import { expect, test } from 'vitest';
import { freshFolder, node, program, recordsIn, start, tracesIn } from './proxied.js';

/** Sizes the recorder's second thread is given, and small ones that must keep their place among them. */
const LARGE = 3 << 20;
const big = (count: number): string[] => Array.from({ length: count }, () => `big:${LARGE}`);

/** A run with its bytes counted and hashed, not kept. */
function run(steps: readonly string[]) {
  const folder = freshFolder();
  const { child, ended } = start(
    ['proxy', '--', node, program('server'), ...steps],
    { BELAY_TRACE_DIR: folder },
    false,
  );
  const seen = { bytes: 0 };
  child.stdout.on('data', (chunk: Buffer) => (seen.bytes += chunk.length));
  return { child, ended, folder, seen };
}

const sizesOf = (records: readonly TraceRecord[]): number[] =>
  records.flatMap((record) => (record.type === 'frame' && record.dir === 's2c' ? [record.size] : []));

test('large answers stand in the trace where they came, whichever thread wrote them', async () => {
  const { child, ended, folder, seen } = run([
    ...big(3),
    'wait:700',
    ...big(4),
    'say:{}\\n',
    ...big(2),
    'say:[]\\n',
    'echo',
  ]);
  await expect.poll(() => seen.bytes, { timeout: 25_000 }).toBe(9 * LARGE + 6);
  child.stdin.end('{"jsonrpc":"2.0","method":"last"}\n');
  expect(await ended).toBe(0);
  const [path] = tracesIn(folder) as [string];
  expect(await checkTrace(path)).toMatchObject({ problems: [], close: { lost: 0 } });
  const records = await recordsIn(folder);
  expect(sizesOf(records)).toEqual([...Array<number>(7).fill(LARGE), 3, LARGE, LARGE, 3, 34]);
  const expected = createHash('sha256')
    .update(Buffer.alloc(LARGE - 1, 'b'))
    .update('\n')
    .digest('hex');
  const digests = records.flatMap((record) =>
    record.type === 'frame' && record.size === LARGE ? [record.sha256] : [],
  );
  expect(new Set(digests)).toEqual(new Set([expected]));
  const times = records.map(({ at }) => at);
  expect(times).toEqual([...times].sort((a, b) => a - b));
});

test('their content stands beside the trace, held to its records', async () => {
  const { child, ended, folder, seen } = run([`big:${LARGE}`, 'wait:700', ...big(3), 'echo']);
  await expect.poll(() => seen.bytes, { timeout: 25_000 }).toBe(4 * LARGE);
  child.stdin.end();
  expect(await ended).toBe(0);
  const [path] = tracesIn(folder) as [string];
  const beside = contentPath(path);
  // The first may come before the thread is there that writes them so.
  const places: number[] = [];
  for await (const line of readTrace(path)) {
    if (!('record' in line) || line.record.type !== 'frame' || line.record.size !== LARGE) continue;
    expect(line.intact).toBe(true);
    expect(
      recordData(line.record)?.equals(Buffer.concat([Buffer.alloc(LARGE - 1, 'b'), Buffer.from('\n')])),
    ).toBe(true);
    if (line.record.beside !== undefined) places.push(line.record.beside);
  }
  expect(places.length).toBeGreaterThanOrEqual(3);
  expect(places).toEqual(places.map((_, at) => at * LARGE));
  expect(statSync(beside)).toMatchObject({ size: places.length * LARGE });
  expect(statSync(beside).mode & 0o777).toBe(0o600);
  const whole = readFileSync(beside);
  const codes = async (): Promise<string[]> => (await checkTrace(path)).problems.map(({ code }) => code);
  const changed = Buffer.from(whole);
  changed[LARGE + 7] = 0;
  writeFileSync(beside, changed);
  expect(await codes()).toEqual(['content_changed']);
  writeFileSync(beside, whole);
  truncateSync(beside, whole.length - 1);
  expect(await codes()).toEqual(['content_missing']);
  rmSync(beside);
  expect(await codes()).toEqual(places.map(() => 'content_missing'));
});

/** Lines of every size, no two pieces of them alike. */
const NOISE = `const { createHash } = require('node:crypto');
const piece = (n) => { let all = ''; for (let i = 0; all.length < n; i++) all += createHash('sha256').update(n + ' ' + i).digest('base64');
  return Buffer.from(all.slice(0, n) + '\\n'); };
const sizes = [200, 40000, 3 << 20, 90000, 1 << 20, 33000, 70, (1 << 20) + 77777, 300000, 2500000, 12, 260000];
const many = Array.from({ length: 24 }, (_, i) => 210000 + i * 20000);
(async () => { for (const [i, n] of [...sizes, ...many, ...sizes, ...many, ...sizes].entries()) {
  if (!process.stdout.write(piece(n + i))) await new Promise((go) => process.stdout.once('drain', go)); } })();`;

test("memory that is read into again is nobody's any more, however slowly the client reads", async () => {
  const bare = execFileSync(node, ['-e', NOISE], { maxBuffer: 1 << 28 });
  const folder = freshFolder();
  const { child, ended } = start(['proxy', '--', node, '-e', NOISE], { BELAY_TRACE_DIR: folder }, false);
  const seen: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => {
    seen.push(Buffer.from(chunk));
    if (seen.length % 40 !== 0) return;
    child.stdout.pause();
    setTimeout(() => child.stdout.resume(), 15);
  });
  child.stdin.end();
  expect(await ended).toBe(0);
  expect(Buffer.concat(seen).equals(bare)).toBe(true);
  const [path] = tracesIn(folder) as [string];
  const recorded: Buffer[] = [];
  for await (const line of readTrace(path)) {
    const data = 'record' in line && line.record.type === 'frame' ? recordData(line.record) : undefined;
    if (data !== undefined) recorded.push(data);
  }
  expect(Buffer.concat(recorded).equals(bare)).toBe(true);
  expect((await checkTrace(path)).problems).toEqual([]);
});

test('memory does not grow with what streams by', async () => {
  const count = 60;
  const { child, ended, seen } = run([...big(count), 'echo']);
  const memory: number[] = [];
  child.stdout.on('data', () => {
    const status = readFileSync(`/proc/${child.pid ?? 0}/status`, 'utf8');
    memory.push(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]));
  });
  await expect.poll(() => seen.bytes, { timeout: 25_000 }).toBe(count * LARGE);
  child.stdin.end();
  expect(await ended).toBe(0);
  const part = (from: number, to: number): number =>
    Math.max(...memory.slice(Math.floor(memory.length * from), Math.ceil(memory.length * to)));
  // Kilobytes; 120 MB came in between. What is left is when a collector of garbage comes round.
  expect(part(0.9, 1) - part(0, 0.34)).toBeLessThan(30 * 1024);
});

test('a disk that fills up under large frames: the gap is named, the server is served to the end', async () => {
  const { child, ended, folder, seen } = run([...big(2), 'wait:700', ...big(6), 'echo']);
  await expect.poll(() => seen.bytes, { timeout: 25_000 }).toBe(2 * LARGE);
  execFileSync('prlimit', ['--pid', String(child.pid), `--fsize=${3 * LARGE}:unlimited`]);
  await expect.poll(() => seen.bytes, { timeout: 25_000 }).toBe(8 * LARGE);
  execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited:unlimited']);
  child.stdin.end('{}\n');
  expect(await ended).toBe(0);
  const [path] = tracesIn(folder) as [string];
  const { problems, gaps, close } = await checkTrace(path);
  expect(problems).toEqual([]);
  expect(close?.lost).toBeGreaterThan(2);
  expect(gaps).toMatchObject([{ reason: 'write', count: close?.lost, code: 'EFBIG' }]);
  const sizes = sizesOf(await recordsIn(folder));
  expect(sizes.at(-1)).toBe(3);
  expect(sizes.length - 1 + (close?.lost ?? 0)).toBe(8);
});

test('a proxy killed while it writes large frames leaves whole records, and a torn one at most', async () => {
  const { child, ended, folder, seen } = run([...big(200), 'echo']);
  await expect.poll(() => seen.bytes, { timeout: 25_000 }).toBeGreaterThan(30 * LARGE);
  child.kill('SIGKILL');
  await ended;
  await sleep(50);
  const [path] = tracesIn(folder) as [string];
  const report = await checkTrace(path);
  const codes = report.problems.map(({ code }) => code).filter((code) => code !== 'torn_tail');
  // Content that is there without its record is no fault.
  expect(codes).toEqual(['missing_close']);
  expect(report.frames).toBeGreaterThan(20);
});
