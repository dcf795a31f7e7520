import { spawnSync } from 'node:child_process';
import { appendFileSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { checkTrace, readRecordAt, readTrace, recordData, repairTrace, TraceWriter } from '@belay/trace';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fakeClock, frame, freshPath, linesOf, OPEN, writeSample } from './sample.js';

const codes = async (path: string): Promise<string[]> =>
  (await checkTrace(path)).problems.map(({ code }) => code);

function rewrite(path: string, change: (lines: string[]) => string[]): void {
  writeFileSync(
    path,
    change(linesOf(path))
      .map((line) => `${line}\n`)
      .join(''),
  );
}

/** A written sample, changed; returns what the checker says. */
async function tampered(change: (lines: string[]) => string[]): Promise<string[]> {
  const path = freshPath();
  writeSample(path);
  rewrite(path, change);
  return codes(path);
}

test('every line of FORMAT.md is what the writer writes', () => {
  const path = freshPath();
  writeSample(path);
  const page = readFileSync(new URL('../FORMAT.md', import.meta.url), 'utf8');
  for (const line of linesOf(path)) expect(page).toContain(`\n    ${line}\n`);
});

test('a trace reads back whole, and nobody else may read it', async () => {
  const path = freshPath();
  writeSample(path);
  const report = await checkTrace(path);
  expect(report).toMatchObject({
    records: 5,
    frames: 2,
    problems: [],
    gaps: [],
    integrity: 'local-only',
    close: { exit: 0, lost: 0, count: 4 },
  });
  expect(report.open).toMatchObject(OPEN);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(dirname(path)).mode & 0o777).toBe(0o700);
  const contents: string[] = [];
  for await (const item of readTrace(path)) {
    if ('record' in item) contents.push(String(recordData(item.record) ?? ''));
  }
  expect(contents.slice(1, 4)).toEqual([
    '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n',
    '{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}\r\n',
    'ready\n',
  ]);
});

test('an existing file is not overwritten', () => {
  const path = freshPath();
  writeSample(path);
  expect(() => TraceWriter.create(path, OPEN, fakeClock())).toThrow(/EEXIST/);
});

test('a record is read again by the place of its line', async () => {
  const path = freshPath();
  const trace = writeSample(path, false);
  const large = 'x'.repeat(3_000_000);
  trace.append(...frame('s2c', large));
  trace.append(...frame('s2c', 'after\n'));
  trace.close({});
  const file = await open(path);
  try {
    for await (const item of readTrace(path)) {
      if (!('record' in item)) throw new Error('not a record');
      expect(readRecordAt(file.fd, item.offset)?.n).toBe(item.record.n);
      expect(readRecordAt(file.fd, item.offset + 1)).toBeUndefined();
    }
    expect(readRecordAt(file.fd, statSync(path).size)).toBeUndefined();
  } finally {
    await file.close();
  }
});

describe('what is wrong is named', () => {
  test('a member was edited', async () => {
    expect(
      await tampered((lines) =>
        lines.map((line, i) => (i === 3 ? line.replace('"type":"stderr"', '"type":"claim"') : line)),
      ),
    ).toEqual(['edited']);
  });
  test('the last record before the close was edited', async () => {
    expect(
      await tampered((lines) =>
        lines.map((line, i) => (i === 1 ? line.replace('"seqs":[3]', '"seqs":[4]') : line)),
      ),
    ).toEqual(['edited']);
  });
  test('content was edited', async () => {
    expect(
      await tampered((lines) =>
        lines.map((line, i) => (i === 1 ? line.replace(/"data":"..../, '"data":"AAAA') : line)),
      ),
    ).toEqual(['content_changed']);
  });
  test('content was removed', async () => {
    expect(
      await tampered((lines) =>
        lines.map((line, i) => (i === 1 ? line.replace(/,"data":"[^"]*"/, '') : line)),
      ),
    ).toEqual(['content_changed']);
  });
  test('records were deleted', async () => {
    expect(await tampered((lines) => lines.toSpliced(1, 2))).toEqual(['deleted']);
    expect(await tampered((lines) => lines.slice(1))).toEqual(['deleted', 'missing_open']);
  });
  test('records were swapped', async () => {
    expect(await tampered(([a, b, c, ...rest]) => [a, c, b, ...rest] as string[])).toEqual(['swapped']);
  });
  test('a record stands twice', async () => {
    expect(await tampered(([a, b, ...rest]) => [a, b, b, ...rest] as string[])).toEqual(['duplicated']);
  });
  test('the close is missing', async () => {
    expect(await tampered((lines) => lines.slice(0, -1))).toEqual(['missing_close']);
  });
  test('the close states another count', async () => {
    expect(await tampered((lines) => lines.map((line) => line.replace('"count":4', '"count":3')))).toEqual([
      'close_wrong',
    ]);
  });
  test('something follows the close', async () => {
    const path = freshPath();
    writeSample(path);
    const more = linesOf(path)[3] as string;
    appendFileSync(path, `${more.replace('"n":3', '"n":5')}\n`);
    expect(await codes(path)).toContain('after_close');
  });
  test('lines that are no records', async () => {
    expect(await tampered(([a, ...rest]) => [a, 'hello', '{"n":1}', ...rest] as string[])).toEqual([
      'not_json',
      'not_a_record',
    ]);
  });
  test('an empty file', async () => {
    expect(await tampered(() => [])).toEqual(['empty']);
  });

  test('no change of one byte goes unnoticed, but for the close itself and its own lines end', async () => {
    const path = freshPath();
    writeSample(path);
    const whole = readFileSync(path);
    const beforeClose = whole.lastIndexOf('\n', whole.length - 2);
    await fc.assert(
      fc.asyncProperty(fc.nat(beforeClose), fc.integer({ min: 1, max: 255 }), async (at, change) => {
        const bytes = Buffer.from(whole);
        bytes[at] = (bytes[at] as number) ^ change;
        writeFileSync(path, bytes);
        expect(await codes(path)).not.toEqual([]);
      }),
      { numRuns: 500 },
    );
  });
});

describe('a torn tail', () => {
  test('costs the tail, not the file, wherever the cut is', async () => {
    const path = freshPath();
    writeSample(path);
    const whole = readFileSync(path);
    const secondRecord = whole.indexOf('\n') + 1;
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: secondRecord + 1, max: whole.length - 1 }), async (length) => {
        writeFileSync(path, whole.subarray(0, length));
        const kept = whole.subarray(0, length).filter((byte) => byte === 0x0a).length;
        const torn = whole[length - 1] !== 0x0a;
        expect(await codes(path)).toEqual(torn ? expect.arrayContaining(['torn_tail']) : ['missing_close']);
        const { removed } = await repairTrace(path, '2026-01-02T00:00:00.000Z');
        expect(removed > 0).toBe(torn);
        const report = await checkTrace(path);
        expect(report.problems.map(({ code }) => code)).toEqual(['missing_close']);
        expect(report.records).toBe(kept + (torn ? 1 : 0));
        if (torn) expect(report.gaps).toMatchObject([{ reason: 'torn', count: removed }]);
        expect(await repairTrace(path, '2026-01-02T00:00:00.000Z')).toEqual({ removed: 0 });
      }),
      { numRuns: 200 },
    );
  });

  test('kill -9 of the writer loses nothing that was appended', async () => {
    const path = freshPath();
    const script = `
      import { TraceWriter } from ${JSON.stringify(new URL('../dist/index.js', import.meta.url).href)};
      const clock = { wall: () => new Date().toISOString(), monotonic: () => performance.now() * 1000 };
      const trace = TraceWriter.create(${JSON.stringify(path)}, ${JSON.stringify(OPEN)}, clock);
      for (let i = 0; i < 1000; i++) trace.append({ type: 'gap', reason: 'observer', count: i });
      process.kill(process.pid, 'SIGKILL');`;
    const { signal } = spawnSync(process.execPath, ['--input-type=module', '-e', script]);
    expect(signal).toBe('SIGKILL');
    expect(await checkTrace(path)).toMatchObject({ records: 1001, problems: [{ code: 'missing_close' }] });
  });
});

test('a disk that refuses is a gap by name, and the trace goes on', async () => {
  // A file size limit is what a test can have of a full disk: writes fail part of the way, as with ENOSPC.
  const path = freshPath();
  const script = `
    import { createHash } from 'node:crypto';
    import { TraceWriter } from ${JSON.stringify(new URL('../dist/index.js', import.meta.url).href)};
    process.on('SIGXFSZ', () => {});
    const clock = { wall: () => new Date().toISOString(), monotonic: () => performance.now() * 1000 };
    const trace = TraceWriter.create(${JSON.stringify(path)}, ${JSON.stringify(OPEN)}, clock);
    const small = Buffer.from('{}\\n'), big = Buffer.alloc(20000, 'x');
    const put = (data) => trace.append({ type: 'frame', dir: 'c2s', size: data.length, sha256: createHash('sha256').update(data).digest('hex') }, data);
    const results = [put(small), put(big), put(big), put(small)];
    trace.close({ exit: 0 });
    console.log(JSON.stringify(results), trace.lost);`;
  const { stdout, stderr } = spawnSync(
    'sh',
    ['-c', `ulimit -f 16; exec "$0" --input-type=module -e "$1"`, process.execPath, script],
    {
      encoding: 'utf8',
    },
  );
  expect(`${stdout}${stderr}`).toBe('[true,false,false,true] 2\n');
  const report = await checkTrace(path);
  expect(report.problems).toEqual([]);
  // The gap of the first loss fitted the disk again before the second record did not.
  expect(report.gaps).toMatchObject([
    { reason: 'write', count: 1, code: 'EFBIG' },
    { reason: 'write', count: 1, code: 'EFBIG' },
  ]);
  expect(report.close).toMatchObject({ lost: 2, count: 5 });
});

test('an oversize frame is a record without content', async () => {
  const path = freshPath();
  const trace = TraceWriter.create(path, OPEN, fakeClock());
  trace.append({
    type: 'frame',
    dir: 's2c',
    size: 99,
    sha256: 'ab'.repeat(32),
    oversize: true,
    findings: ['NON_JSON'],
  });
  trace.close({ signal: 'SIGTERM' });
  trace.append(...frame('c2s', 'late'));
  expect(await checkTrace(path)).toMatchObject({ frames: 1, problems: [], close: { signal: 'SIGTERM' } });
});

test('a cut in the middle of the first record leaves an empty trace that says so', async () => {
  const path = freshPath();
  writeSample(path);
  truncateSync(path, 10);
  expect(await codes(path)).toEqual(['empty', 'torn_tail']);
});
