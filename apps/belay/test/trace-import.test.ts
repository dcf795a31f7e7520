import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readTrace, type TraceRecord } from '@belay/trace';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { belay, type Ran } from './command.js';
import { call, notice, result } from './made-trace.js';
import { present, unrestorable, V1Trace } from './v1-trace.js';

const scratch = mkdtempSync(join(tmpdir(), 'belay-import-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
let number = 0;
let folder = '';
let out = '';
beforeEach(() => {
  folder = join(scratch, String(number++));
  out = join(folder, 'ours');
  mkdirSync(folder);
});

const FIXTURE = fileURLToPath(new URL('fixtures/trace-20260820T101112Z-0a1b2c3d.jsonl', import.meta.url));

interface Imported {
  trace: string;
  status: string;
  kinds: Record<string, number>;
  gaps: Record<string, number>;
  reordered: number;
}
const importIt = async (path: string): Promise<Ran & { imported: Imported }> => {
  const ran = await belay('trace', 'import', path, '--out', out, '--json');
  return { ...ran, imported: (ran.json as { imported: Imported[] }).imported[0] as Imported };
};
async function recordsOf(path: string): Promise<TraceRecord[]> {
  const records: TraceRecord[] = [];
  for await (const line of readTrace(path)) {
    if (!('record' in line) || !line.intact) throw new Error('not an intact record');
    records.push(line.record);
  }
  return records;
}
const source = (): string => join(folder, 'trace-20260820T101112Z-0a1b2c3d.jsonl');

/** One of everything: a session, a call with its state, a claim after the close. */
const session = (): V1Trace =>
  new V1Trace()
    .open()
    .frame('c2s', { jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-06-18' } })
    .frame('s2c', {
      jsonrpc: '2.0',
      id: 0,
      result: { protocolVersion: '2025-06-18', serverInfo: { name: 'fs', version: '1' } },
    })
    .frame('c2s', notice('notifications/initialized'))
    .frame('c2s', call(1, 'write_file', { path: 'a' }), { state_handle: present })
    .frame('s2c', result(1), { state_handle: present })
    .frame('c2s', call(2, 'edit'), { state_handle: unrestorable })
    .record('denial', {
      op: 'file-write',
      path: '/etc/x',
      inferred: true,
      source: 'child-stderr',
      detail: 'cp: /etc/x: Permission denied',
    })
    .frame('s2c', result(2, { isError: true }))
    .close()
    .claim('All tests pass.');

describe('belay trace import', () => {
  it('a whole session, as a trace of ours that checks', async () => {
    const path = session().write(source());
    const before = readFileSync(path);
    const { code, imported } = await importIt(path);
    expect({ code, imported }).toMatchObject({
      code: 0,
      imported: {
        status: 'whole',
        kinds: { connection_window: 2, network_policy: 1, frame: 7, denial: 1, claim: 1 },
        gaps: {},
        reordered: 0,
      },
    });
    expect(readFileSync(path)).toEqual(before);
    expect(statSync(imported.trace).mode & 0o777).toBe(0o600);
    expect(readdirSync(out)).toHaveLength(1);

    const records = await recordsOf(imported.trace);
    expect(records.map(({ type }) => type).join(' ')).toBe(
      'open policy frame frame frame state frame frame state frame denial frame claim close',
    );
    expect(records[0]).toMatchObject({
      sink: 'imported',
      imported: {
        format: 'belay.trace/1',
        size: before.length,
        sha256: createHash('sha256').update(before).digest('hex'),
      },
    });
    expect(records[1]).toMatchObject({ network: 'deny-all', digest: expect.stringMatching(/^sha256:/) });
    // Their times, to the microsecond; their numbers; their bytes, to which no terminator was added.
    expect(records[2]).toMatchObject({ time: '2026-08-20T10:11:12.127956Z', at: 3_000, source: 2 });
    expect(Buffer.from(records[4]?.data ?? '', 'base64').toString()).toBe(
      '{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}',
    );
    expect(records[5]).toMatchObject({
      phase: 'pre',
      state: 'imported',
      imported: { handle: present.handle, backend: 'copy-fidelity' },
      source: 5,
    });
    expect(records[8]).toMatchObject({
      state: 'unrestorable',
      imported: { cause: 'UNRESTORABLE_CONCURRENT_TURN', source: 'turn-gate' },
    });
    expect(records[10]).toMatchObject({
      op: 'file-write',
      path: '/etc/x',
      inferred: true,
      observed_in: 'child-stderr',
    });
    expect(Buffer.from(records[12]?.data ?? '', 'base64').toString()).toBe('All tests pass.');

    const check = await belay('trace', 'check', imported.trace);
    expect(check).toMatchObject({ code: 0 });
    expect(check.stdout).toMatch(/INTACT[^]*imported from trace-20260820T101112Z/);
    const { stdout } = await belay('trace', 'show', imported.trace);
    expect(stdout).toMatch(/tools\/call write_file .* ok/);
    expect(stdout).toMatch(/tools\/call edit .* tool error/);
    expect(stdout).toContain('state pre: unrestorable (UNRESTORABLE_CONCURRENT_TURN)');
    expect(stdout).toContain('denied: file-write /etc/x');
    expect(stdout).toContain('claim, 15 B: All tests pass.');
    for (const format of ['json', 'html', 'har', 'otlp']) {
      expect(await belay('trace', 'export', imported.trace, '--format', format)).toMatchObject({ code: 0 });
    }
  });

  it('the same file once', async () => {
    const path = session().write(source());
    await importIt(path);
    expect(await importIt(path).catch(() => undefined)).toBeUndefined();
    expect(await belay('trace', 'import', path, '--out', out, '--json')).toMatchObject({
      code: 65,
      json: { error: { code: 'exists' } },
    });
    expect(readdirSync(out)).toHaveLength(1);
  });

  it('the fixture, with a capture error, a cut frame and no close', async () => {
    const { code, imported } = await importIt(FIXTURE);
    expect({ code, imported }).toMatchObject({
      code: 2,
      imported: { status: 'incomplete', gaps: { CAPTURE_ERROR: 1, NO_CLOSE: 1 } },
    });
    expect(await belay('trace', 'check', imported.trace, '--json')).toMatchObject({
      code: 2,
      json: {
        verdict: 'INCOMPLETE',
        traces: [
          {
            problems: [],
            gaps: [
              { code: 'CAPTURE_ERROR', detail: expect.stringContaining('StreamEndedMidFrame') },
              { code: 'NO_CLOSE' },
            ],
          },
        ],
      },
    });
    expect((await belay('trace', 'show', imported.trace)).stdout).toMatch(
      /tools\/call big .* OVERSIZE\s+PREFIX_ONLY/,
    );
  });

  it('a frame that was cut off stays a call, and nobody takes its beginning for the whole', async () => {
    const whole = Buffer.from(JSON.stringify(call(7, 'big', { pad: 'x'.repeat(3_000_000) })));
    const cut = whole.subarray(0, 2_000_000);
    const path = new V1Trace()
      .open()
      .frame('c2s', cut, { truncated: true, state_handle: present })
      .frame('s2c', result(7))
      .close()
      .write(source());
    const { code, imported } = await importIt(path);
    expect({ code, status: imported.status }).toEqual({ code: 0, status: 'whole' });
    const frame = (await recordsOf(imported.trace)).find(({ type }) => type === 'frame');
    expect(frame).toMatchObject({
      oversize: true,
      prefix: true,
      size: cut.length,
      skimmed: { id: '7', method: '"tools/call"', 'params.name': '"big"' },
    });
    expect(frame?.data).toBeUndefined();
    expect((await belay('trace', 'show', imported.trace)).stdout).toMatch(/tools\/call big .* ok/);
  });

  it('answers that were written before their requests find them', async () => {
    const trace = new V1Trace().open();
    for (let i = 0; i < 300; i++) {
      const [request, answer] = [call(i, 'echo', { i }), result(i, { structuredContent: i })];
      if (i % 3 === 0) trace.frame('s2c', answer).frame('c2s', request);
      else trace.frame('c2s', request).frame('s2c', answer);
    }
    // A client that answers before the request of the server is on record; a second answer; one that nobody asked for.
    trace.frame('c2s', { jsonrpc: '2.0', id: 5, result: { roots: [] } });
    trace.frame('s2c', { jsonrpc: '2.0', id: 5, method: 'roots/list' });
    trace.frame('s2c', result(5)).frame('s2c', result('nobody'));
    const { imported } = await importIt(trace.close().write(source()));
    expect(imported).toMatchObject({ status: 'whole', reordered: 101 });
    const { json } = await belay('trace', 'show', imported.trace, '--json');
    expect(json).toMatchObject({ totals: { turns: 301, outcomes: { ok: 301 }, strays: 2 } });
    const moved = (await recordsOf(imported.trace)).filter(
      (each) => each.type === 'frame' && each.findings?.includes('REORDERED'),
    );
    expect(moved).toHaveLength(101);
  });

  it.each([
    [
      'edited content',
      (lines: string[]) => lines.map((line, i) => (i === 5 ? line.replace('"raw":"', '"raw":"AAAA') : line)),
      1,
      'damaged',
      { HASH_MISMATCH: 1 },
    ],
    ['a record out', (lines: string[]) => lines.filter((_, i) => i !== 5), 1, 'damaged', { SEQ_MISSING: 1 }],
    [
      'two records out',
      (lines: string[]) => lines.filter((_, i) => i !== 5 && i !== 6),
      1,
      'damaged',
      { SEQ_MISSING: 1 },
    ],
    [
      'one twice',
      (lines: string[]) => lines.flatMap((line, i) => (i === 8 ? [line, line] : [line])),
      1,
      'damaged',
      { SEQ_ORDER: 1 },
    ],
    [
      'a line that is no JSON',
      (lines: string[]) => lines.map((line, i) => (i === 5 ? line.slice(9) : line)),
      1,
      'damaged',
      { NOT_JSON: 1, SEQ_MISSING: 1 },
    ],
    ['a line that is no record', (lines: string[]) => [...lines, '[]'], 1, 'damaged', { NOT_A_RECORD: 1 }],
    ['no opening', (lines: string[]) => lines.slice(1), 1, 'damaged', { NO_OPEN: 1 }],
    [
      'a kind we do not know',
      (lines: string[]) => [
        ...lines,
        lines[0]?.replace('connection_window', 'nondeterminism').replace('"seq":0', '"seq":12') ?? '',
      ],
      2,
      'incomplete',
      { UNKNOWN_KIND: 1 },
    ],
    [
      'a version we do not know',
      (lines: string[]) => [
        ...lines,
        lines[3]?.replace('"v":1', '"v":2').replace('"seq":3', '"seq":12') ?? '',
      ],
      2,
      'incomplete',
      { UNKNOWN_KIND: 1 },
    ],
    ['no close', (lines: string[]) => lines.slice(0, -2), 2, 'incomplete', { NO_CLOSE: 1 }],
  ] as const)('%s', async (_title, change, code, status, gaps) => {
    const path = session().write(source(), (lines) => change(lines));
    const ran = await importIt(path);
    expect({ code: ran.code, imported: ran.imported }).toMatchObject({ code, imported: { status, gaps } });
    // Whatever was wrong with the source, the import never reads as a whole trace.
    expect(await belay('trace', 'check', ran.imported.trace, '--json')).toMatchObject({
      code: 2,
      json: { verdict: 'INCOMPLETE', traces: [{ problems: [] }] },
    });
  });

  it('a torn tail costs the tail', async () => {
    const path = session().write(source());
    writeFileSync(path, readFileSync(path).subarray(0, -20));
    expect(await importIt(path)).toMatchObject({
      code: 2,
      imported: { status: 'incomplete', gaps: { TORN_TAIL: 1 } },
    });
  });

  it('a claim that was not made is not an empty one', async () => {
    const path = new V1Trace().open().close().claim().write(source());
    const { imported } = await importIt(path);
    const claim = (await recordsOf(imported.trace)).find(({ type }) => type === 'claim');
    expect(claim).toMatchObject({ size: 0, absent: true });
    expect((await belay('trace', 'show', imported.trace)).stdout).toContain('claim: none was made');
  });

  it('bytes that are no JSON and no text come through', async () => {
    const raw = Buffer.from([0xff, 0x00, 0x7b]);
    const path = new V1Trace().open().frame('s2c', raw).close().write(source());
    const { imported } = await importIt(path);
    const frame = (await recordsOf(imported.trace)).find(({ type }) => type === 'frame');
    expect(Buffer.from(frame?.data ?? '', 'base64')).toEqual(raw);
  });

  it('a folder, one file of which is something else', async () => {
    session().write(source());
    new V1Trace().open().close().write(join(folder, 'trace-b.jsonl'));
    writeFileSync(join(folder, 'other.jsonl'), '{"hello": 1}\n');
    const { code, json } = await belay('trace', 'import', folder, '--out', out, '--json');
    expect({ code, json }).toMatchObject({ code: 65, json: { refused: [{ code: 'not_v1' }] } });
    expect((json as { imported: unknown[] }).imported).toHaveLength(2);
    expect(readdirSync(out)).toHaveLength(2);
    const { stdout } = await belay('trace', 'import', folder, '--out', join(folder, 'again'));
    expect(stdout).toMatch(/refused.*other\.jsonl/);
    expect(stdout).toContain('at best UNVERIFIED');
  });

  it.each([
    ['a file that is not there', () => join(folder, 'x'), 65, 'enoent'],
    ['an empty folder', () => folder, 65, 'no_trace'],
    ['an empty file', () => (writeFileSync(source(), ''), source()), 65, 'not_v1'],
    ['another file', () => (writeFileSync(source(), 'hello\n'), source()), 65, 'not_v1'],
  ])('%s', async (_title, path, code, word) => {
    expect(await belay('trace', 'import', path(), '--out', out, '--json')).toMatchObject({
      code,
      json: { error: { code: word } },
    });
  });
});
