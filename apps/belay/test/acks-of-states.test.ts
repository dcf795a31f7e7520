import { join } from 'node:path';
import { Epoch, Forwarder, Transport } from '@belay/client';
import { SmallCollector } from '@belay/testkit';
import { TraceWriter } from '@belay/trace';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Recorder } from '../src/recorder.js';
import { compareWithAcks } from '../src/trace-acks.js';
import { checkFile } from '../src/trace-report.js';
import { chainAnew } from './chained-anew.js';
import { freshFolder } from './proxied.js';

type Denied = Parameters<
  Parameters<NonNullable<ConstructorParameters<typeof Recorder>[0]['boundary']>['onDenial']>[0]
>[0];

let collector: SmallCollector;
beforeEach(() => (collector = new SmallCollector()));
afterEach(() => collector.close());

/** A run with states of its workspace and a refusal, sent and acknowledged. */
async function recorded(): Promise<{ state: string; path: string }> {
  const url = await collector.listen();
  const state = join(freshFolder(), 'state');
  const { origin, token, credential } = collector;
  const epoch = await Epoch.open({ state, log: origin, sink: 'proxy', sinkKind: 'proxy' });
  const trace = TraceWriter.create(
    join(state, 'traces', `proxy-${epoch.id}.jsonl`),
    {
      type: 'open',
      v: 1,
      epoch: epoch.id,
      sink: 'proxy',
      log: origin,
      session: 's',
      recorder: 'belay/0.1.0',
    },
    { wall: () => new Date().toISOString(), monotonic: () => performance.now() * 1000 },
  );
  let tell: (denial: Denied) => void = () => undefined;
  const recorder = new Recorder({
    trace,
    epoch,
    machineSecret: Buffer.alloc(32, 1),
    session: 's',
    privacy: 'minimal',
    boundary: {
      sandbox: 'bwrap',
      network: 'deny',
      policy: `sha256:${'1'.repeat(64)}`,
      said: { backend: 'bwrap' },
      onDenial: (listener) => (tell = listener),
      drain: () => undefined,
    },
    onAppended: () => undefined,
    now: () => performance.now(),
  });
  recorder.state({ state: `sha256:${'a'.repeat(64)}`, phase: 'open' }, { phase: 'open' });
  tell({
    operation: 'write',
    syscall: 'openat',
    path: '/etc/passwd',
    errno: 'EROFS',
    pid: 7,
    time: Date.now(),
    naming: 'named',
    class: 'file-system',
    count: 2,
  });
  recorder.state({ state: 'unrestorable', phase: 'close', cause: 'TOO_LARGE' }, { phase: 'close' });
  recorder.close({ exit: 0 });
  epoch.close();
  const forwarder = new Forwarder({
    state,
    transport: new Transport(url),
    token,
    credential,
    keyOf: () => Promise.resolve(undefined),
  });
  expect(await forwarder.follow(epoch.dir, () => true)).toBe(true);
  forwarder.stop();
  epoch.release();
  return { state, path: trace.path };
}

test('states and refusals are held against their lines like frames', async () => {
  const { state, path } = await recorded();
  const keys = new Map([[collector.origin, { vkey: collector.vkey, from: 'given' as const }]]);
  const compared = async () => await compareWithAcks(await checkFile(path), { state, keys });
  expect(await compared()).toMatchObject({ integrity: 'attested 3/3', findings: [] });

  for (const [type, change] of [
    ['state', { state: `sha256:${'b'.repeat(64)}` }],
    ['state', { phase: 'pre' }],
    ['denial', { path: '/etc/shadow' }],
    ['denial', { count: 1 }],
  ] as const) {
    let before: Record<string, unknown>[] = [];
    chainAnew(path, (records) => {
      before = records;
      const first = records.findIndex((record) => record['type'] === type);
      return records.map((record, at) => (at === first ? { ...record, ...change } : record));
    });
    expect((await compared()).findings, JSON.stringify(change)).toMatchObject([
      { code: 'changed', bad: true },
    ]);
    chainAnew(path, () => before);
    expect((await compared()).findings).toEqual([]);
  }
});
