import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TraceWriter, type TraceClock } from '@belay/trace';

/** A clock that moves a millisecond with every look at its wall. */
export function fakeClock(): TraceClock {
  let now = Date.UTC(2026, 0, 1);
  return {
    wall: () => new Date(now++).toISOString(),
    monotonic: () => (now - Date.UTC(2026, 0, 1)) * 1000,
  };
}

export const freshPath = (): string => join(mkdtempSync(join(tmpdir(), 'belay-trace-')), 'traces', 'a.jsonl');

export function frame(dir: 'c2s' | 's2c', text: string, seqs?: number[]): Parameters<TraceWriter['append']> {
  const data = Buffer.from(text);
  const sha256 = createHash('sha256').update(data).digest('hex');
  return [{ type: 'frame', dir, size: data.length, sha256, seqs }, data];
}

export const OPEN = {
  type: 'open',
  v: 1,
  epoch: '01K6B3YB80041061050R3GG28A',
  sink: 'proxy',
  log: 'belay.example/acme/agents',
  session: 'toolbox-7',
  recorder: 'belay/0.1.0',
  command: { argv: ['server-filesystem', '/w'], cwd: '/home/ann' },
} as const;

/** The trace of FORMAT.md: a call, its answer, a line of stderr, the end. */
export function writeSample(path: string, end = true): TraceWriter {
  const trace = TraceWriter.create(path, OPEN, fakeClock());
  trace.append(...frame('c2s', '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n', [3]));
  trace.append(...frame('s2c', '{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}\r\n', [4]));
  const said = Buffer.from('ready\n');
  trace.append({ type: 'stderr', size: 6, sha256: createHash('sha256').update(said).digest('hex') }, said);
  if (end) trace.close({ exit: 0 });
  return trace;
}

export const linesOf = (path: string): string[] => readFileSync(path, 'utf8').split('\n').slice(0, -1);
