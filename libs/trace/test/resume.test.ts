import { appendFileSync, readFileSync, statSync, truncateSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { checkTrace, type TraceTail, TraceWriter } from '@belay/trace';
import { expect, test } from 'vitest';
import { fakeClock, freshPath, linesOf, OPEN } from './sample.js';

const hook = (text: string): [{ type: 'hook'; size: number; sha256: string }, Buffer] => {
  const data = Buffer.from(text);
  return [{ type: 'hook', size: data.length, sha256: createHash('sha256').update(data).digest('hex') }, data];
};

function begun(path: string, clock = fakeClock()): TraceTail {
  const writer = TraceWriter.create(path, OPEN, clock);
  writer.append(...hook('first'));
  return writer.leave();
}
const codes = async (path: string): Promise<string[]> =>
  (await checkTrace(path)).problems.map(({ code }) => code);

test('a trace that each process leaves to the next is one chain, in one time', async () => {
  const path = freshPath();
  const clock = fakeClock();
  let tail = begun(path, clock);
  for (const text of ['second', 'third']) {
    const writer = TraceWriter.resume(path, tail, clock) as TraceWriter;
    expect(writer.append(...hook(text))).toBe(true);
    tail = writer.leave();
  }
  TraceWriter.resume(path, tail, clock)?.close({});
  expect(await codes(path)).toEqual([]);
  const times = linesOf(path).map((line) => (JSON.parse(line) as { at: number }).at);
  expect(times).toEqual(times.toSorted((a, b) => a - b));
});

test('a record whose writer was killed before it told is taken in', async () => {
  const path = freshPath();
  const tail = begun(path);
  const killed = TraceWriter.resume(path, tail, fakeClock()) as TraceWriter;
  killed.append(...hook('not told'));
  const writer = TraceWriter.resume(path, tail, fakeClock()) as TraceWriter;
  writer.append(...hook('next'));
  writer.close({});
  expect(await codes(path)).toEqual([]);
  expect((await checkTrace(path)).records).toBe(5);
});

test('half a record is cut off, and a gap says so', async () => {
  const path = freshPath();
  const tail = begun(path);
  appendFileSync(path, '{"n":2,"type":"hook","ti');
  const writer = TraceWriter.resume(path, tail, fakeClock()) as TraceWriter;
  writer.close({});
  const report = await checkTrace(path);
  expect(report.problems).toEqual([]);
  expect(report.gaps).toMatchObject([{ reason: 'torn', count: 24 }]);
});

test('a file that is not what was left is left alone', () => {
  const path = freshPath();
  const tail = begun(path);
  const before = readFileSync(path, 'utf8');
  expect(TraceWriter.resume(`${path}.none`, tail, fakeClock())).toBeUndefined();
  appendFileSync(path, 'something else\n');
  expect(TraceWriter.resume(path, tail, fakeClock())).toBeUndefined();
  truncateSync(path, statSync(path).size - 40);
  expect(TraceWriter.resume(path, tail, fakeClock())).toBeUndefined();
  expect(before).toContain(readFileSync(path, 'utf8'));
});
