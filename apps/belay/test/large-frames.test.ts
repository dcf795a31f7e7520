import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkTrace, type TraceRecord } from '@belay/trace';
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
  execFileSync('prlimit', ['--pid', String(child.pid), `--fsize=${5 * LARGE}:unlimited`]);
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
  expect(codes).toEqual(['missing_close']);
  expect(report.frames).toBeGreaterThan(20);
});
