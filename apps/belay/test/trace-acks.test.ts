import { copyFileSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { logDir } from '@belay/client';
import { commitment, commitmentSalt } from '@belay/envelope';
import { SmallCollector } from '@belay/testkit';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { chainAnew, textOf, withContent } from './chained-anew.js';
import { belay as run } from './command.js';
import { claudeEvent, endForwarding, hook } from './hooked.js';
import { freshFolder, node, program, start, tracesIn } from './proxied.js';

let collector: SmallCollector;
let url: string;
let state: string;
let env: Record<string, string>;
beforeEach(async () => {
  collector = new SmallCollector();
  url = await collector.listen();
  state = join(freshFolder(), 'state');
  env = { BELAY_URL: url, BELAY_TOKEN: collector.token, BELAY_STATE: state };
});
afterEach(() => collector.close());

interface Finding {
  readonly code: string;
  readonly bad: boolean;
  readonly seqs?: string;
  readonly records?: string;
}
interface Checked {
  readonly code: number | string;
  readonly text: string;
  readonly verdict: string;
  readonly integrity: string;
  readonly traces: {
    readonly integrity: string;
    readonly problems: readonly unknown[];
    readonly acks: {
      readonly findings: readonly Finding[];
      readonly published: boolean;
      readonly key?: string;
    };
  }[];
}

/** Runs a command in this process, with these variables alone. */
async function belay(
  args: readonly string[],
  environment: Record<string, string> = env,
): Promise<{ code: number; stdout: string }> {
  const names = ['BELAY_URL', 'BELAY_TOKEN', 'BELAY_STATE', 'BELAY_TRACE_DIR'];
  for (const name of names) vi.stubEnv(name, environment[name]);
  vi.stubEnv('HOME', freshFolder());
  try {
    const { code, stdout, stderr } = await run(...args);
    return { code, stdout: `${stdout}${stderr}` };
  } finally {
    vi.unstubAllEnvs();
  }
}

async function check(
  paths: readonly string[],
  more: readonly string[] = [],
  environment = env,
): Promise<Checked> {
  const args = ['trace', 'check', '--acks', ...paths, ...more];
  const { code, stdout } = await belay([...args, '--json'], environment);
  const text = (await belay(args, environment)).stdout;
  return { code, text, ...(JSON.parse(stdout) as Omit<Checked, 'code' | 'text'>) };
}
const codes = ({ traces }: Checked): string[] =>
  traces.flatMap(({ acks }) => acks.findings.map(({ code }) => code));

/** A run of calls and their answers. Path of its trace. */
async function proxied(more: Record<string, string> = {}, calls = 5): Promise<string> {
  const run = start(['proxy', '--', node, program('server'), 'answer'], { ...env, ...more });
  for (let id = 0; id < calls; id++) {
    const params = { name: 'write', arguments: { text: `secret ${id}` } };
    run.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params })}\n`);
  }
  run.child.stdin.end();
  expect(await run.ended).toBe(0);
  return tracesIn(join(state, 'traces'))[0] as string;
}
const epochDir = (path: string): string => {
  const [, sink, epoch] = /([^/]+)-([0-9A-Z]{26})\.jsonl$/.exec(path) as unknown as [string, string, string];
  return join(logDir(state, collector.origin), 'sinks', sink, epoch);
};

test('a run whose lines were acknowledged is attested, offline and by the key of the token', async () => {
  const path = await proxied();
  await collector.close();
  const before = await check([path]);
  expect(before).toMatchObject({ code: 0, verdict: 'INTACT', integrity: 'attested 10/10' });
  expect(before.traces[0]?.acks).toMatchObject({ key: 'token', published: false, findings: [] });
  expect(before.text).toContain('integrity: attested 10/10 by belay.example/acme/agents, entries 3 to 12');
  expect(before.text).not.toContain('local-only');
  // Without the token there is the key that was noted when it was used, which is said; --key pins one.
  const alone = { BELAY_STATE: state };
  const noted = await check([path], [], alone);
  expect(noted).toMatchObject({ code: 0, traces: [{ acks: { key: 'remembered' } }] });
  expect(noted.text).toContain('--key pins it');
  expect(await check([path], ['--key', collector.vkey], alone)).toMatchObject({
    code: 0,
    traces: [{ acks: { key: 'given' } }],
  });
  expect(await belay(['trace', 'check', '--acks', path, '--key', 'nonsense'])).toMatchObject({ code: 65 });
  expect(await belay(['trace', 'check', path, '--key', collector.vkey])).toMatchObject({ code: 64 });
});

describe('a trace that was changed and chained anew', () => {
  /** The first call of the trace, by its place in the file. */
  const firstCall = (records: readonly Record<string, unknown>[]): number =>
    records.findIndex((record) => textOf(record).includes('"tools/call"'));

  test.each<[string, number, string, (records: Record<string, unknown>[]) => Record<string, unknown>[]]>([
    [
      'other content',
      1,
      'changed',
      (records) =>
        records.map((record, at) =>
          at === firstCall(records)
            ? withContent(record, textOf(record).replace('secret', 'public'))
            : record,
        ),
    ],
    ['a record taken out', 1, 'missing', (records) => records.filter((_, at) => at !== firstCall(records))],
    [
      'the other direction',
      1,
      'changed',
      (records) =>
        records.map((record, at) => (at === firstCall(records) ? { ...record, dir: 's2c' } : record)),
    ],
    [
      'two records in each other’s place',
      1,
      'moved',
      (records) => {
        const at = firstCall(records);
        return records.map(
          (record, i) => (i === at ? records[at + 1] : i === at + 1 ? records[at] : record) ?? record,
        );
      },
    ],
    [
      'a frame made up',
      1,
      'without_line',
      (records) =>
        records.flatMap((record, at) =>
          at === firstCall(records)
            ? [record, { ...withContent(record, '{"made":"up"}\n'), seqs: undefined }]
            : [record],
        ),
    ],
    [
      'a frame made up that claims a line of another',
      1,
      'claimed_twice',
      (records) => records.flatMap((record, at) => (at === firstCall(records) ? [record, record] : [record])),
    ],
    [
      'a frame made up that claims a line that never was',
      1,
      'never_said',
      (records) =>
        records.flatMap((record, at) =>
          at === records.length - 1
            ? [{ ...withContent(records[firstCall(records)] as never, 'x'), seqs: [99] }, record]
            : [record],
        ),
    ],
    [
      'the log taken out',
      1,
      'log_removed',
      (records) => records.map((r) => (r['type'] === 'open' ? { ...r, log: undefined } : r)),
    ],
    // Nobody can tell a recorder that was killed from an end that was cut off; what is missing is named all the same.
    ['the end cut off', 2, 'cut_off', (records) => records.slice(0, -4)],
    [
      'a record taken out, and a gap that says so',
      2,
      'lost',
      (records) =>
        records.map((record, at) =>
          at === firstCall(records)
            ? { type: 'gap', time: record['time'], at: record['at'], reason: 'write', count: 1 }
            : record,
        ),
    ],
  ])('%s', async (_title, code, finding, change) => {
    const path = await proxied();
    chainAnew(path, (records) => records);
    expect(await check([path])).toMatchObject({ code: 0 });
    chainAnew(path, change);
    const alone = JSON.parse((await belay(['trace', 'check', path, '--json'])).stdout) as Checked;
    // The chain by itself says nothing of it.
    expect(alone.verdict).not.toBe('DAMAGED');
    const found = await check([path]);
    expect(found.code).toBe(code);
    expect(found.verdict).toBe(code === 1 ? 'DAMAGED' : 'INCOMPLETE');
    expect(codes(found)).toContain(finding);
    expect(found.text).toContain(finding);
  });

  test('and the spool changed to match: the proof does not lead to the signed head any more', async () => {
    const path = await proxied();
    const dir = epochDir(path);
    const { secret } = JSON.parse(readFileSync(join(dir, 'epoch.json'), 'utf8')) as { secret: string };
    let changed: { seq: number; digest: string } | undefined;
    chainAnew(path, (records) =>
      records.map((record, at) => {
        if (at !== firstCall(records)) return record;
        const [seq] = record['seqs'] as [number];
        const content = textOf(record).replace('secret', 'public');
        const salt = commitmentSalt(Buffer.from(secret, 'base64'), seq);
        changed = { seq, digest: commitment(salt, Buffer.from(content)) };
        return withContent(record, content);
      }),
    );
    const archive = join(dir, 'lines.gz');
    const lines = gunzipSync(readFileSync(archive)).toString().split('\n');
    const forged = lines.map((line) =>
      line.includes(`"seq":${changed?.seq},`)
        ? line.replace(/"digest":"[^"]+"/, `"digest":"${changed?.digest}"`)
        : line,
    );
    writeFileSync(archive, gzipSync(forged.join('\n')));
    const found = await check([path]);
    expect(found).toMatchObject({ code: 1, verdict: 'DAMAGED' });
    expect(codes(found)).toEqual(expect.arrayContaining(['evidence_invalid', 'not_kept']));
    expect(codes(found)).not.toContain('changed');
    // Nor does it help to have another log say so.
    const other = new SmallCollector(Buffer.alloc(32, 0x77));
    expect(codes(await check([path], ['--key', other.vkey]))).toContain('evidence_invalid');
  });
});

test('the end of a trace taken away, and the end of the spool with it: what is not there any more is named', async () => {
  const path = await proxied();
  const dir = epochDir(path);
  chainAnew(path, (records) =>
    records.filter(({ seqs }) => !((seqs as number[] | undefined) ?? []).some((seq) => seq > 8)),
  );
  const archive = join(dir, 'lines.gz');
  const lines = gunzipSync(readFileSync(archive)).toString().split('\n').slice(0, 8);
  writeFileSync(archive, gzipSync(`${lines.join('\n')}\n`));
  const cut = await check([path]);
  expect(cut.verdict).not.toBe('INTACT');
  expect(cut.traces[0]?.acks.findings).toContainEqual(
    expect.objectContaining({ code: 'not_kept', bad: false }),
  );
  // Nor does it help to take the proofs away, and the spool's notes.
  for (const name of ['proofs', 'acks']) writeFileSync(join(dir, name), '');
  const more = await check([path]);
  expect(more.verdict).toBe('INCOMPLETE');
  expect(more.traces[0]?.acks.findings).toContainEqual(
    expect.objectContaining({ code: 'not_kept', seqs: expect.stringContaining('9-14') as string }),
  );
});

describe('what can not be decided is named', () => {
  test('not acknowledged: the collector is away', async () => {
    await collector.close();
    const path = await proxied();
    const found = await check([path]);
    expect(found).toMatchObject({ code: 2, verdict: 'INCOMPLETE', integrity: 'attested 0/10' });
    expect(found.traces[0]?.acks.findings).toMatchObject([
      { code: 'not_acknowledged', bad: false, seqs: '3-12' },
    ]);
  });

  test('only recorded: nothing was sent', async () => {
    const folder = freshFolder();
    const run = start(['proxy', '--', node, program('server'), 'answer'], { BELAY_TRACE_DIR: folder });
    run.child.stdin.end('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
    await run.ended;
    const found = await check(tracesIn(folder), [], { BELAY_STATE: state });
    expect(found).toMatchObject({ code: 2, integrity: 'local-only', traces: [{ acks: { findings: [] } }] });
  });

  test('a spool that had no room: which lines were never sent', async () => {
    await collector.close();
    const path = await proxied({ BELAY_SPOOL_BYTES: '65536' }, 100);
    expect(await belay(['forward'], { ...env, BELAY_URL: await collector.listen() })).toMatchObject({
      code: 0,
    });
    const found = await check([path]);
    expect(found.code).toBe(2);
    expect(codes(found)).toEqual(['not_sent']);
    const { attested, lines } = (found.traces[0] as unknown as { acks: { attested: number; lines: number } })
      .acks;
    expect(lines).toBe(200);
    expect(attested).toBeLessThan(200);
    expect(attested).toBeGreaterThan(0);
  });

  test('lines that the policy keeps from being sent; what is no policy is told', async () => {
    const run = start(['proxy', '--', node, program('server'), 'answer'], {
      ...env,
      BELAY_FILTER: 'x.frame, gap',
    });
    run.child.stdin.end(
      '{"jsonrpc":"2.0","id":0,"method":"ping"}\n{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}\n',
    );
    expect(await run.ended).toBe(0);
    expect(run.stderr()).toContain('belay: filter: "gap" is no kind of line that may be left out');
    expect(collector.envelopes().map(({ kind }) => kind)).not.toContain('x.frame');
    const [path] = tracesIn(join(state, 'traces')) as [string];
    const found = await check([path]);
    expect(found).toMatchObject({ code: 2, integrity: 'attested 2/4' });
    expect(codes(found)).toEqual(['filtered']);
    const status = await belay(['status', '--json']);
    expect(status.code).toBe(0);
    expect((JSON.parse(status.stdout) as { totals: object }).totals).toMatchObject({
      filtered: 2,
      dropped: 0,
    });
  });

  test('lines that were refused, and lines that contradict others', async () => {
    const path = await proxied();
    // The machine was set back to yesterday: the same numbers are used for another story.
    const dir = epochDir(path);
    const acks = join(dir, 'acks');
    const text = readFileSync(acks, 'utf8');
    writeFileSync(acks, text.replaceAll('"appended"', '"refused","code":"too_large"'));
    rmSync(join(dir, 'proofs'));
    const refused = await check([path]);
    expect(refused.code).toBe(2);
    expect(codes(refused)).toEqual(['refused', 'not_acknowledged']);
  });

  test('proofs that are not kept, a spool that is not there, a key that nobody knows', async () => {
    const path = await proxied();
    const dir = epochDir(path);
    renameSync(join(dir, 'proofs'), join(dir, 'elsewhere'));
    expect(codes(await check([path]))).toEqual(['not_kept']);
    renameSync(join(dir, 'elsewhere'), join(dir, 'proofs'));
    const elsewhere = { BELAY_STATE: freshFolder(), BELAY_URL: url, BELAY_TOKEN: collector.token };
    expect(await check([path], [], elsewhere)).toMatchObject({ code: 2, integrity: 'attested 0/10' });
    const noted = join(logDir(state, collector.origin), 'log.json');
    writeFileSync(noted, JSON.stringify({ origin: collector.origin }));
    expect(codes(await check([path], [], { BELAY_STATE: state }))).toEqual(['no_key']);
    // Lines that were given up for want of room, and lines that somebody took away.
    rmSync(join(dir, 'lines.gz'));
    expect(await check([path])).toMatchObject({ code: 2, integrity: 'attested 0/10' });
    expect(codes(await check([path]))).toEqual(['not_kept']);
    rmSync(join(dir, 'proofs'));
    expect(codes(await check([path]))).toEqual(['not_kept']);
  });
});

test('two stories under one number are bad, whoever told the second', async () => {
  const path = await proxied();
  const dir = epochDir(path);
  // The state directory as it was before the run, put back while the log remembers: lines of other content are sent.
  const lines = gunzipSync(readFileSync(join(dir, 'lines.gz'))).toString();
  rmSync(join(dir, 'lines.gz'));
  for (const name of ['acks', 'proofs']) rmSync(join(dir, name));
  writeFileSync(
    join(dir, 'lines'),
    lines.replaceAll(/(\d)Z"/g, (_, digit: string) => `${(Number(digit) + 1) % 10}Z"`),
  );
  expect(await belay(['forward'])).toMatchObject({ code: 1 });
  const found = await check([path]);
  expect(found).toMatchObject({ code: 1, verdict: 'DAMAGED' });
  expect(codes(found)).toEqual(['conflict']);
});

test('hooks: a run in one trace, a run that was taken up again in two, and another run beside them', async () => {
  const use = (id: string) => ({ tool_name: 'Bash', tool_input: { command: id }, tool_use_id: id });
  const say = async (session: string, ...names: [string, object?][]) => {
    for (const [name, more] of names)
      await hook({ ...claudeEvent(name, more), session_id: session }, env, '--sink', 'hook');
  };
  await say(
    'one',
    ['SessionStart'],
    ['PreToolUse', use('a')],
    ['PostToolUse', { ...use('a'), tool_response: 'ok' }],
  );
  await say('two', ['PreToolUse', use('b')]);
  await say('one', ['Stop'], ['SessionEnd']);
  await say('one', ['PreToolUse', use('c')], ['SessionEnd']);
  await say('two', ['SessionEnd']);
  await endForwarding(state);
  await belay(['forward']);
  const paths = tracesIn(join(state, 'traces'));
  expect(paths).toHaveLength(3);
  expect(await check(paths)).toMatchObject({ code: 0, verdict: 'INTACT' });
  // Each alone as well: the others stand beside it.
  for (const path of paths) expect(await check([path])).toMatchObject({ code: 0 });
  const [changed] = paths as [string];
  chainAnew(changed, (records) =>
    records.map((record) =>
      record['event'] === 'PreToolUse'
        ? withContent(record, textOf(record).replace('"command"', '"changed"'))
        : record,
    ),
  );
  const found = await check(paths);
  expect(found.code).toBe(1);
  expect(codes(found)).toEqual(['changed']);
});

test('otlp: spans that became lines are attested; where they came from has the chain alone', async () => {
  const run = start(['otlp', '--listen', '127.0.0.1:0', '--json'], env);
  await expect.poll(() => run.stdout().toString()).toContain('\n');
  const { url: address } = JSON.parse(run.stdout().toString()) as { url: string };
  const spans = [1, 2, 3].map((id) => ({
    traceId: '5b8efff798038103d269b633813fc60c',
    spanId: String(id).padStart(16, '0'),
    attributes: [{ key: 'gen_ai.tool.name', value: { stringValue: 'add' } }],
  }));
  const answer = await fetch(`${address}/v1/traces`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ resourceSpans: [{ scopeSpans: [{ spans }] }] }),
  });
  expect(answer.status).toBe(200);
  run.child.kill('SIGTERM');
  expect(await run.ended).toBe(0);
  const [path] = tracesIn(join(state, 'traces')) as [string];
  expect(await check([path])).toMatchObject({ code: 0, integrity: 'attested 3/3' });
  chainAnew(path, (records) =>
    records.map((record) =>
      record['seqs'] === undefined ? record : withContent(record, textOf(record).replace('add', 'sub')),
    ),
  );
  const found = await check([path]);
  expect(found.traces[0]?.acks.findings).toMatchObject([{ code: 'changed', bad: true, seqs: '2-4' }]);
  expect(found.code).toBe(1);
});

test('after a log has started over, what was sent again is attested anew', async () => {
  const path = await proxied();
  collector.reset();
  expect(await belay(['forward', '--start-over'])).toMatchObject({ code: 0 });
  expect(collector.envelopes()).toHaveLength(14);
  const found = await check([path]);
  expect(found).toMatchObject({ code: 0, integrity: 'attested 10/10' });
});

test('status and forward say what a published checkpoint covers', async () => {
  const path = await proxied();
  collector.publish();
  const { code, stdout } = await belay(['forward', '--json']);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ published: { size: 15 }, kept: { epochs: 1, uncovered: 0 } });
  expect((await check([path])).traces[0]?.acks.published).toBe(true);
  const status = JSON.parse((await belay(['status', '--all', '--json'])).stdout) as {
    logs: {
      published: { size: number };
      kept: { bytes: number };
      sinks: { epochs: { published: number }[] }[];
    }[];
  };
  expect(status.logs[0]).toMatchObject({ published: { size: 15 }, kept: { epochs: 1, uncovered: 0 } });
  expect(status.logs[0]?.sinks[0]?.epochs[0]?.published).toBe(15);
  expect((await belay(['status'])).stdout).toContain('published  size 15');
  copyFileSync(path, join(freshFolder(), 'copy.jsonl'));
  expect(readdirSync(epochDir(path)).sort()).toEqual(['acks', 'epoch.json', 'lines.gz', 'proofs']);
});
