import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildExport, type ExportRequest, verifyExport } from '@belay/export';
import { ExportCast, ExportLog } from '@belay/testkit/export';
import { keyed, type LogSink } from '@belay/testkit';
import fc from 'fast-check';
import { afterAll, expect, test } from 'vitest';

const RUNS = Number(process.env.BELAY_RUNS ?? 25);
const folder = mkdtempSync(join(tmpdir(), 'belay-honest-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const SESSIONS = ['run-1', 'run-2', 'run-3'] as const;

/** What may happen to a log, in whatever order; all of it is told as it is. */
const acts = fc.array(
  fc.record({
    what: fc.oneof(
      { weight: 6, arbitrary: fc.constantFrom('line', 'line', 'call', 'lost', 'close') },
      { weight: 3, arbitrary: fc.constantFrom('session', 'session.fail', 'judge', 'judge.late') },
      {
        weight: 2,
        arbitrary: fc.constantFrom(
          'second',
          'epoch',
          'end',
          'label',
          'state',
          'period',
          'policy',
          'declare',
          'agent',
        ),
      },
    ),
    sink: fc.nat(2),
    session: fc.constantFrom(...SESSIONS),
    n: fc.nat(50),
  }),
  { minLength: 1, maxLength: 30 },
);
type Act = typeof acts extends fc.Arbitrary<readonly (infer T)[]> ? T : never;

function play(world: ExportLog, cast: ExportCast, agent: LogSink, { what, sink: at, session, n }: Act): void {
  const { log } = world;
  const sink = [cast.proxy, cast.hook, cast.verifier][at] as LogSink;
  if (sink.epoch === '') sink.open();
  switch (what) {
    case 'line':
      sink.say(n % 3 === 0 ? 'x.note' : n % 3 === 1 ? 'session.open' : 'denial', { session });
      break;
    case 'call':
      for (const kind of ['call', 'result'])
        sink.say(kind, { session, call: keyed(`${n % 4}`), match: keyed(kind) });
      break;
    case 'lost':
      sink.say('claim', { session }, true);
      break;
    case 'close':
      sink.stated('session.close', { session });
      break;
    case 'second':
      log.append(sink.line('claim', { session }, 1), sink.by, log.entries.length - 1);
      break;
    case 'epoch':
      if (n % 4 === 1) sink.forget();
      sink.open(n % 5 === 0);
      break;
    case 'end':
      sink.stated('epoch.close');
      break;
    case 'session':
    case 'session.fail':
      cast.session(session, {
        calls: n % 3,
        status: what === 'session' ? 'PASS' : 'FAIL',
        lose: n % 7 === 0,
      });
      break;
    case 'judge':
    case 'judge.late':
      world.judge(session, { later: what === 'judge' ? 0 : n * 100 });
      break;
    case 'label':
      world.label(
        session,
        n % 2 === 0 ? 'violated' : 'not_violated',
        n % 3 === 0 ? `${session} call 0` : undefined,
      );
      break;
    case 'state':
      world.stateEpoch(sink.by.sink, sink.epoch);
      break;
    case 'period':
      world.judgePeriod('2026-01-01T00:00:05.000Z', `2026-01-01T00:00:${10 + (n % 40)}.000Z`);
      break;
    case 'policy':
      log.state({ kind: 'policy.set', v: 1, policy: { lateness: n * 10, heartbeat: 0 }, by: log.id('adm') });
      break;
    case 'declare':
      log.state({ kind: 'sink.declared', v: 1, sink: 'hook', required: n % 2 === 0, by: log.id('adm') });
      break;
    case 'agent':
      if (agent.epoch === '') agent.open();
      agent.say('claim', { session });
      break;
  }
}

test('what really happened, and was told so, is never INVALID, whatever it was and whatever is asked for', async () => {
  const path = join(folder, 'export.zip');
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(acts, fc.nat(30), fc.nat(60), async (script, judged, ask) => {
      const world = await ExportLog.create();
      const cast = new ExportCast(world);
      const agent = world.log.sink('curl', { role: 'agent', keyed: false, declared: false });
      for (const act of script) play(world, cast, agent, act);
      for (const [i, session] of SESSIONS.entries()) if (judged % (i + 2) !== 0) world.judge(session);
      const from = `2026-01-01T00:00:${String(ask % 30).padStart(2, '0')}.000Z`;
      const requests: ExportRequest[] = [
        {},
        { sessions: SESSIONS.slice(ask % 3) },
        { period: { from, to: `2026-01-01T00:00:${30 + (ask % 30)}.000Z` } },
      ];
      const evaluated = ask % 4 === 0 ? Math.floor(world.size * 0.7) : world.size;
      for (const request of requests) {
        // The pages are made of the same facts each time; the one that is only hashed is left away.
        const { manifest } = await buildExport(world.source(evaluated), request, path, {
          pdf: async (_, out) => void out.end('%PDF'),
        });
        const { report } = await verifyExport(path, { key: world.signer.vkey });
        const failed = report.checks.filter(({ status }) => status === 'failed');
        expect(failed, JSON.stringify({ request, evaluated })).toEqual([]);
        seen.add(report.verdict);
        if (manifest.counts.omitted > 0) seen.add('omitted');
      }
    }),
    { numRuns: RUNS },
  );
  expect([...seen].sort()).toEqual(['INDETERMINATE', 'VALID', 'omitted']);
});
