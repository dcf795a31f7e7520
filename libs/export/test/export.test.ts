import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  buildExport,
  type ExaminedExport,
  type ExportRequest,
  type EpochFacts,
  type ExportSource,
  normaliseRequest,
  verifyExport,
  wholeEpochs,
} from '@belay/export';
import { renderPdf } from '@belay/export/pdf';
import { EXAMPLE_SESSIONS, ExportCast, ExportLog, exampleLog, openExport } from '@belay/testkit/export';
import { askOfExports } from '@belay/testkit/second-verifier';
import { afterAll, describe, expect, test } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'belay-export-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const path = join(folder, 'export.zip');
const wrong = ({ report }: ExaminedExport): unknown => report.checks.filter(({ status }) => status !== 'ok');

const world = await exampleLog();
const pins = { key: world.signer.vkey };
const { affirmed, violated, incomplete, contested, late, labelled, open } = EXAMPLE_SESSIONS;

/** Which entries an export has to have, told from the page and not from the selection's code. */
function expectedEntries(chosen: ReadonlySet<string>): Set<number> {
  const { entries } = world.log;
  const sent = entries.flatMap((entry) => (entry.by === 'sender' ? entry : []));
  const keyOf = ({ envelope }: (typeof sent)[number]): string => `${envelope.sink} ${envelope.epoch}`;
  const names = (entry: (typeof sent)[number]): boolean => chosen.has(entry.envelope.session ?? '');
  const whole = new Set(sent.filter(names).map(keyOf));
  const sinks = new Set(sent.filter((entry) => whole.has(keyOf(entry))).map(({ envelope }) => envelope.sink));
  const named = new Set(whole);
  const previous = new Map<string, string>();
  for (const entry of sent.filter(
    ({ line, envelope }) => line.conflict === undefined && envelope.seq === 1,
  )) {
    const before = entry.envelope.attrs?.['prev_epoch'];
    if (before !== undefined) previous.set(keyOf(entry), `${entry.envelope.sink} ${String(before)}`);
  }
  for (const from of named) {
    for (const [key, before] of previous) if (before === from) whole.add(key);
    const passed: string[] = [];
    for (let at = previous.get(from); at !== undefined; at = previous.get(at)) {
      if (named.has(at)) for (const key of passed) whole.add(key);
      if (named.has(at)) break;
      passed.push(at);
    }
    if (passed[0] !== undefined) whole.add(passed[0]);
  }
  for (const entry of entries) {
    if (entry.by === 'collector' && entry.statement.kind === 'sink.declared') sinks.add(entry.statement.sink);
  }
  const expected = new Set(entries.flatMap(({ by, line }) => (by === 'collector' ? line.index : [])));
  for (const key of new Set(sent.map(keyOf))) {
    const own = sent.filter((entry) => keyOf(entry) === key);
    const told = own.filter(({ line }) => line.conflict === undefined);
    const opening = ({ envelope }: (typeof sent)[number]): boolean =>
      envelope.kind === 'epoch.open' && envelope.seq === 1;
    const some = whole.has(key)
      ? own
      : sinks.has(own[0]?.envelope.sink ?? '')
        ? [told[0], told.find(opening), told.find((entry) => !opening(entry))]
        : [];
    for (const entry of some) if (entry !== undefined) expected.add(entry.line.index);
  }
  for (const { envelope } of sent.filter((entry) => names(entry) && entry.envelope.kind === 'verdict')) {
    for (const name of ['pre_index', 'call_index', 'result_index'])
      expected.add(envelope.attrs?.[name] as number);
  }
  return expected;
}

describe('an export', () => {
  test('of everything is made and verified, and says what its sessions came to', async () => {
    const built = await world.export(path, { oscal: true });
    const examined = await verifyExport(path, pins);
    expect(wrong(examined)).toEqual([]);
    expect(examined.report.verdict).toBe('VALID');
    expect(examined.model).toEqual(built.model);
    const { model, manifest } = built;
    expect(
      Object.fromEntries(model.sessions.map(({ session, disposition }) => [session, disposition])),
    ).toEqual({
      [affirmed]: 'affirmed',
      [violated]: 'violated',
      [incomplete]: 'incomplete',
      [contested]: 'contested',
      [late]: 'affirmed',
      [labelled]: 'affirmed',
      [open]: 'incomplete',
    });
    expect(manifest.counts).toEqual({
      entries: world.size,
      omitted: 0,
      receipts: world.receipts.length,
      sessions: 7,
    });
    expect(model.found).toMatchObject({ agentLines: 2, missing: { undisclosed: 1 }, conflicts: 1 });
    expect(model.labels).toBe(1);
    expect(model.sinks.map(({ sink, declared }) => [sink, declared])).toEqual([
      ['curl', false],
      ['hook', true],
      ['proxy', true],
      ['verifier', true],
    ]);
  });

  test('does not say that nothing failed of lines that no receipt looked at', async () => {
    const log = await ExportLog.create();
    const cast = new ExportCast(log);
    cast.session('run');
    log.judge('run');
    const target = join(folder, 'later.zip');
    const absence = async (evaluated?: number): Promise<unknown> => {
      await log.export(target, {}, evaluated);
      const { report, model } = await verifyExport(target, { key: log.signer.vkey });
      expect(report.verdict).toBe('VALID');
      return model?.absence.find((row) => row.class === 'verdict FAIL');
    };
    expect(await absence()).toMatchObject({ result: 'none' });
    const verdict = { session: 'run', attrs: { status: 'FAIL', mode: 'session', replays: 2 } };
    cast.verifier.open();
    cast.verifier.say('verdict', verdict);
    cast.verifier.stated('epoch.close');
    expect(await absence()).toMatchObject({ result: 'inconclusive', count: 0 });
    // Of a session that began after sessions were looked for there is no receipt, and nothing is said.
    const evaluated = log.size;
    log.judge('run');
    cast.verifier.open();
    cast.verifier.say('verdict', { ...verdict, session: 'run-2' });
    cast.verifier.stated('epoch.close');
    expect(await absence(evaluated)).toMatchObject({
      result: 'found',
      count: 1,
      because: expect.arrayContaining([
        '1 line of sessions that came after what their receipts looked at',
      ]) as unknown,
    });
  });

  test('of a period has a session where it began, and not where a stranger named it before', async () => {
    const log = await ExportLog.create();
    const cast = new ExportCast(log);
    const stranger = log.log.sink('curl', { role: 'agent', keyed: false, declared: false });
    stranger.open();
    stranger.say('claim', { session: 'run' });
    log.log.now += 3_600_000;
    const from = log.time();
    cast.session('run');
    log.judge('run');
    const target = join(folder, 'stranger.zip');
    for (const [period, sessions] of [
      [{ from, to: log.time(3_600) }, 1],
      [{ from: '2026-01-01T00:00:00.000Z', to: from }, 0],
    ] as const) {
      await log.export(target, { period });
      const { report, manifest } = await verifyExport(target, { key: log.signer.vkey });
      expect([report.verdict, manifest?.counts.sessions]).toEqual(['VALID', sessions]);
    }
  });

  test('has the same bytes each time', async () => {
    await world.export(path);
    const again = join(folder, 'again.zip');
    await world.export(again);
    expect(readFileSync(again).equals(readFileSync(path))).toBe(true);
  });

  test.each<[string, ExportRequest, readonly string[]]>([
    ['one session', { sessions: [affirmed] }, [affirmed]],
    ['sessions', { sessions: [late, violated].sort() }, [violated, late]],
    ['all sessions', { sessions: Object.values(EXAMPLE_SESSIONS).sort() }, Object.values(EXAMPLE_SESSIONS)],
    [
      'a period',
      { period: { from: '2026-01-01T00:00:14.000Z', to: '2026-01-01T00:00:59.000Z' } },
      [violated, incomplete, contested, late],
    ],
    [
      'a period of nothing',
      { period: { from: '2025-01-01T00:00:00.000Z', to: '2025-01-02T00:00:00.000Z' } },
      [],
    ],
  ])('of %s has what belongs to it and proves how much it left out', async (_, request, chosen) => {
    const built = await world.export(path, request);
    const examined = await verifyExport(path, pins);
    expect(wrong(examined)).toEqual([]);
    expect(examined.report.verdict).toBe('VALID');
    expect(examined.model).toEqual(built.model);
    const expected = expectedEntries(new Set(chosen));
    const { files } = await openExport(path);
    const included = (files.get('entries.ndjson') as Buffer)
      .toString()
      .split('\n')
      .flatMap((line) => /^\{(?:"conflict":\d+,)?"index":(\d+),/.exec(line)?.[1] ?? [])
      .map(Number);
    expect(included).toEqual([...expected].sort((a, b) => a - b));
    expect(built.manifest.counts).toMatchObject({
      entries: expected.size,
      omitted: world.size - expected.size,
      sessions: chosen.length,
    });
    const rows = (files.get('sessions.csv') as Buffer).toString().split('\r\n').slice(1, -1);
    expect(rows.map((row) => row.split(',')[0])).toEqual(chosen);
    const receipts = world.receipts.filter(
      ({ scope }) => scope.type === 'session' && chosen.includes(scope.session),
    );
    expect((files.get('receipts.ndjson') as Buffer).toString()).toBe(
      receipts.map(({ bytes }) => `${bytes.toString()}\n`).join(''),
    );
  });

  test('of a session that does not occur says so, and is undecided', async () => {
    await world.export(path, { sessions: ['run-0', affirmed] });
    const { report } = await verifyExport(path, pins);
    expect(report.verdict).toBe('INDETERMINATE');
    expect(report.checks.find(({ name }) => name === 'sessions')).toMatchObject({
      status: 'undecided',
      detail: '1 without a receipt, such as run-0',
    });
  });

  test('is about sessions that were named when they were looked for, not about those that came while it was made', async () => {
    const busy = await ExportLog.create();
    const cast = new ExportCast(busy);
    cast.session('run-1');
    busy.judge('run-1');
    const evaluated = busy.size;
    cast.session('run-2');
    const built = await busy.export(path, {}, evaluated);
    expect(built.manifest.counts.sessions).toBe(1);
    const found = await verifyExport(path, { key: busy.signer.vkey });
    expect(found.report.verdict).toBe('VALID');
    expect(found.unchosen).toEqual({ sessions: 1, such: 'run-2', receipts: 0 });
  });

  test('that looked for sessions nowhere says of whom it is not', async () => {
    const busy = await ExportLog.create();
    const cast = new ExportCast(busy);
    for (const name of ['run-1', 'run-2']) cast.session(name);
    busy.judge('run-1');
    await busy.export(path, {}, 0);
    const key = busy.signer.vkey;
    const { report, unchosen } = await verifyExport(path, { key });
    expect(unchosen).toEqual({ sessions: 2, such: 'run-1', receipts: 1 });
    const words = 'not about 2 first named from entry 0 on, such as run-1, with 1 receipt';
    expect(report.checks.find(({ name }) => name === 'sessions')?.detail).toContain(words);
    const [other] = await askOfExports([{ export: path, key, now: Date.parse(busy.time()) }]);
    expect(other?.checks.find(([name]) => name === 'sessions')?.[2]).toContain(words);
  });

  test('of a period that went on after sessions were looked for says of whom it may not be', async () => {
    const busy = await ExportLog.create();
    const cast = new ExportCast(busy);
    cast.session('run-1');
    busy.judge('run-1');
    const second = busy.time();
    const evaluated = busy.size;
    cast.session('run-2');
    busy.judge('run-2');
    const third = busy.time(0.1);
    cast.session('run-3');
    busy.judge('run-3');
    busy.judge('run-1', { later: 100 });
    const key = busy.signer.vkey;
    const begin = '2026-01-01T00:00:00.000Z';
    const end = '2027-01-01T00:00:00.000Z';
    const told = async (from: string, to: string, looked: number): Promise<unknown> => {
      await busy.export(path, { period: { from, to } }, looked);
      const { report, unchosen } = await verifyExport(path, { key });
      expect(report.verdict).toBe('VALID');
      const detail = report.checks.find(({ name }) => name === 'sessions')?.detail ?? '';
      const [other] = await askOfExports([{ export: path, key, now: Date.parse(busy.time()) }]);
      const words = / not about .*$/.exec(detail)?.[0];
      expect(/ not about .*$/.exec(other?.checks.find(([name]) => name === 'sessions')?.[2] ?? '')?.[0]).toBe(
        words,
      );
      expect(words === undefined).toBe(unchosen === undefined);
      return unchosen;
    };
    expect(await told(begin, end, busy.size)).toBeUndefined();
    expect(await told(begin, end, evaluated)).toEqual({ sessions: 2, such: 'run-2', receipts: 2 });
    expect(await told(begin, end, 0)).toEqual({ sessions: 3, such: 'run-1', receipts: 4 });
    // Over before sessions were looked for: nobody else can have begun in it.
    expect(await told(begin, second, evaluated)).toBeUndefined();
    // Judged in it, not in the one before.
    expect(await told(third, end, 0)).toEqual({ sessions: 1, such: 'run-3', receipts: 1 });
  }, 60_000);

  test('of a log in which nothing was sent', async () => {
    const quiet = await ExportLog.create();
    await quiet.export(path);
    expect((await verifyExport(path, { key: quiet.signer.vkey })).report.verdict).toBe('VALID');
  });
});

describe('making one', () => {
  const build = (change: Partial<ExportSource>, options = {}): Promise<unknown> =>
    buildExport({ ...world.source(), ...change }, {}, path, { pdf: renderPdf, ...options });

  test('tells how far it is, and leaves nothing behind but the export', async () => {
    rmSync(path, { force: true });
    const phases = new Set<string>();
    await build({}, { progress: ({ phase }: { phase: string }) => phases.add(phase) });
    expect([...phases]).toEqual(['entries', 'report', 'archive']);
    expect(readdirSync(folder).filter((name) => name.startsWith('export.zip'))).toEqual(['export.zip']);
  });

  test('ends when it is told to, and leaves nothing behind', async () => {
    rmSync(path, { force: true });
    const stop = new AbortController();
    const progress = ({ phase }: { phase: string }): void => {
      if (phase === 'archive') stop.abort(new Error('enough'));
    };
    await expect(build({}, { signal: stop.signal, progress })).rejects.toThrow('enough');
    expect(readdirSync(folder).filter((name) => name.startsWith('export.zip'))).toEqual([]);
  });

  test('is refused where what the log gives does not fit together', async () => {
    rmSync(path, { force: true });
    const source = world.source();
    const faults: Partial<ExportSource>[] = [
      { entries: async function* () {} },
      {
        entries: async function* (from, to) {
          for await (const batch of source.entries(from, to)) yield batch.slice(1);
        },
      },
      {
        entries: async function* (from, to) {
          for await (const batch of source.entries(from, to)) {
            yield batch.map((entry) => Buffer.from(entry.toString().replace('"PASS"', '"WARN"')));
          }
        },
      },
      { receipts: async function* () {} },
      {
        receipts: async function* (...args) {
          const all = [];
          for await (const receipt of source.receipts(...args)) all.push(receipt);
          yield* all.reverse();
        },
      },
      {
        receipts: async function* () {
          yield Buffer.from('{}');
        },
      },
      { sign: async () => source.sign(Buffer.from('something else')) },
    ];
    for (const fault of faults) {
      await expect(build(fault)).rejects.toMatchObject({ name: 'ExportError' });
      expect(existsSync(path)).toBe(false);
    }
    expect(readdirSync(folder).filter((name) => name.startsWith('export.zip'))).toEqual([]);
  });

  test('of a session is refused where one of its epochs is not told to be one', async () => {
    const source = world.source();
    const forgetful: ExportSource = {
      ...source,
      selection: async (request) => {
        const { epochs, ...rest } = await source.selection(request);
        const last = epochs.findLastIndex(({ named }) => named);
        return {
          ...rest,
          epochs: epochs.map((epoch, at) => (at === last ? { ...epoch, named: false } : epoch)),
        };
      },
    };
    const request = { period: { from: '2026-01-01T00:00:00.000Z', to: '2027-01-01T00:00:00.000Z' } };
    await expect(buildExport(forgetful, request, path, { pdf: renderPdf })).rejects.toMatchObject({
      code: 'source',
      message: expect.stringContaining('is not here whole') as string,
    });
  });

  test('takes receipts of others than those chosen, and leaves them out', async () => {
    const busy = await ExportLog.create();
    const cast = new ExportCast(busy);
    cast.session('run-1');
    busy.judge('run-1');
    const evaluated = busy.size;
    cast.session('run-2');
    busy.judge('run-2');
    cast.proxy.open();
    cast.proxy.say('claim', { session: 'run-1' });
    busy.judge('run-1');
    const built = await busy.export(path, {}, evaluated);
    expect(built.manifest.counts).toMatchObject({ sessions: 1, receipts: 2 });
    expect((await verifyExport(path, { key: busy.signer.vkey })).report.verdict).toBe('VALID');
  });
});

test('an epoch whose opening came after other lines of it is whole: until then, nobody could tell what it was beside', () => {
  const facts = (epoch: string, of: object): EpochFacts => ({
    sink: 'proxy',
    epoch,
    named: false,
    previous: undefined,
    ...of,
  });
  const epochs = [
    facts('E1', { named: true, first: 1, opened: 1, spoke: 2 }),
    facts('late', { first: 5, opened: 9, spoke: 5 }),
    facts('never', { first: 6, spoke: 6 }),
    facts('other', { first: 10, opened: 10, spoke: 11 }),
    facts('next', { first: 12, opened: 12, spoke: 13, previous: 'E1' }),
    facts('after', { first: 14, opened: 14, spoke: 15 }),
  ];
  // And the first that begins anew after it: of a sink that had lost its state. ('other' spoke before the next one began.)
  expect([...wholeEpochs(epochs.toReversed())].map(({ epoch }) => epoch).sort()).toEqual([
    'E1',
    'late',
    'never',
    'next',
    'other',
  ]);
});

describe('a request', () => {
  test('has one form', () => {
    expect(normaliseRequest({})).toEqual({});
    expect(normaliseRequest({ oscal: false })).toEqual({});
    expect(normaliseRequest({ sessions: ['b', 'a', 'b'], oscal: true })).toEqual({
      sessions: ['a', 'b'],
      oscal: true,
    });
    expect(normaliseRequest({ period: { from: '2026-01-01', to: '2026-01-02T00:00:00+01:00' } })).toEqual({
      period: { from: '2026-01-01T00:00:00.000Z', to: '2026-01-01T23:00:00.000Z' },
    });
    for (const request of [
      { sessions: [] },
      { sessions: ['a b'] },
      { sessions: Array.from({ length: 1_001 }, (_, n) => `run-${n}`) },
      { period: { from: '2026-01-02', to: '2026-01-01' } },
      { period: { from: 'yesterday', to: 'today' } },
      { sessions: ['a'], period: { from: '2026-01-01', to: '2026-01-02' } },
    ]) {
      expect(() => normaliseRequest(request)).toThrow(expect.objectContaining({ code: 'request' }));
    }
  });
});
