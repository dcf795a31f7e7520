import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Epoch } from '@belay/client';
import { parseEnvelope, splitLines } from '@belay/envelope';
import { decodeRequest } from '@belay/otlp';
import { checkTrace, TraceWriter } from '@belay/trace';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { OtlpRecorder } from '../src/otlp-recorder.js';

let state: string;
beforeEach(() => {
  state = mkdtempSync(join(tmpdir(), 'belay-otlp-recorder-'));
});
afterEach(() => rmSync(state, { recursive: true, force: true }));

const request = (name: string) =>
  decodeRequest(
    'logs',
    'json',
    Buffer.from(JSON.stringify({ resourceLogs: [{ scopeLogs: [{ logRecords: [{ eventName: name }] }] }] })),
  );

it('counts are told when they changed, and only what was taken has a number', async () => {
  const epoch = await Epoch.open({ state, log: 'belay.example/a', sink: 'otlp', sinkKind: 'otlp' });
  const trace = TraceWriter.create(
    join(state, 'trace.jsonl'),
    { type: 'open', v: 1, epoch: epoch.id, sink: 'otlp', session: 's', recorder: 'belay/0.1.0' },
    { wall: () => new Date().toISOString(), monotonic: () => performance.now() * 1000 },
  );
  let woken = 0;
  const recorder = new OtlpRecorder({
    trace,
    epoch,
    machineSecret: Buffer.alloc(32, 1),
    session: undefined,
    privacy: 'minimal',
    onAppended: () => woken++,
  });

  recorder.tell();
  recorder.take(request('gen_ai.choice'));
  recorder.take(request('gen_ai.choice'));
  recorder.take(request('http.request'));
  recorder.dropped('metrics');
  recorder.tell();
  recorder.tell();
  trace.close({});
  epoch.close();
  epoch.release();

  const lines = splitLines(readFileSync(join(epoch.dir, 'lines'))).map((line) => parseEnvelope(line));
  expect(lines.map(({ kind }) => kind)).toEqual(['epoch.open', 'x.log', 'x.otlp', 'epoch.close']);
  expect(lines[2]?.attrs).toEqual({
    requests: 4,
    received: 3,
    taken: 1,
    filtered: 1,
    repeated: 1,
    refused: 0,
    metrics: 1,
    undecodable: 0,
  });
  expect(lines.at(-1)?.attrs).toMatchObject({ size: 3, dropped: 0, filtered: 0 });
  expect(woken).toBeGreaterThan(0);
  expect((await checkTrace(trace.path)).problems).toEqual([]);
});

it('what is refused is told by reason', () => {
  const trace = TraceWriter.create(
    join(state, 'trace.jsonl'),
    { type: 'open', v: 1, epoch: 'e', sink: 'otlp', session: 's', recorder: 'belay/0.1.0' },
    { wall: () => '', monotonic: () => 0 },
  );
  const recorder = new OtlpRecorder({
    trace,
    epoch: undefined,
    machineSecret: Buffer.alloc(32, 1),
    session: undefined,
    privacy: 'minimal',
    onAppended: () => undefined,
  });
  const spans = [
    { traceId: 'ab' },
    {},
    { traceId: '5b8efff798038103d269b633813fc60c', spanId: '00000000000000a1' },
  ];
  const body = JSON.stringify({ resourceSpans: [{ scopeSpans: [{ spans }] }] });
  expect(recorder.take(decodeRequest('traces', 'json', Buffer.from(body)))).toEqual({
    rejected: 2,
    message: 'invalid_id: 2',
  });
  trace.close({});
});
