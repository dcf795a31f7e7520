import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { acquire } from '@belay/dirlock';
import { privateKeyObject, rawPublicKey } from '@belay/keys';
import fc from 'fast-check';
import { loadOrCreateSinkKey } from '../src/credentials.js';
import { readHookEvent } from '../src/hook-event.js';
import { readEpochRecord, SharedEpoch, sinkDir } from '@belay/client';
import { commitment, commitmentSalt } from '@belay/envelope';
import { SmallCollector } from '@belay/testkit';
import { checkTrace, readTrace, recordData, type TraceRecord } from '@belay/trace';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { claudeEvent, endForwarding, hook } from './hooked.js';
import { alive, BELAY, freshFolder, node, program, start } from './proxied.js';

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
afterEach(async () => {
  await endForwarding(state);
  await collector.close();
});

interface Sent {
  readonly seq: number;
  readonly kind: string;
  readonly sink: string;
  readonly epoch: string;
  readonly digest?: string;
  readonly session?: string;
  readonly call?: string;
  readonly match?: string;
  readonly attrs?: Record<string, unknown>;
}
const sent = (sink = 'hook'): Sent[] =>
  (collector.envelopes() as Sent[]).filter((envelope) => envelope.sink === sink);
const kinds = (): string[] => sent().map(({ kind }) => kind);
const traces = (): string[] => readdirSync(join(state, 'traces')).map((name) => join(state, 'traces', name));
async function recordsOf(path: string): Promise<TraceRecord[]> {
  const records: TraceRecord[] = [];
  for await (const line of readTrace(path)) if ('record' in line) records.push(line.record);
  return records;
}

const bash = { tool_name: 'Bash', tool_input: { command: 'ls' }, tool_use_id: 'toolu_1' };
const run = [
  claudeEvent('SessionStart', { source: 'startup' }),
  claudeEvent('UserPromptSubmit', { prompt: 'list the files' }),
  claudeEvent('PreToolUse', bash),
  claudeEvent('PostToolUse', { ...bash, tool_response: { stdout: 'a\n', stderr: '' } }),
  claudeEvent('Stop', { last_assistant_message: 'There is one file.' }),
  claudeEvent('SessionEnd', { reason: 'exit' }),
];

test('a run becomes one epoch and one trace, which commit to each other; it is sent in the background', async () => {
  for (const event of run) expect(await hook(event, env)).toEqual({ code: 0, stdout: '', stderr: '' });
  await expect
    .poll(kinds)
    .toEqual([
      'epoch.open',
      'session.open',
      'x.hook',
      'call',
      'result',
      'claim',
      'session.close',
      'epoch.close',
    ]);
  const [, open, prompt, call, result, claim, close] = sent() as Sent[];
  expect(open?.attrs).toEqual({ agent: 'claude-code' });
  expect(prompt?.attrs).toEqual({ event: 'UserPromptSubmit', bytes: JSON.stringify(run[1]).length });
  expect(call?.attrs).toMatchObject({ tool: 'Bash' });
  expect(result).toMatchObject({ call: call?.call, attrs: { ok: true } });
  expect(claim?.attrs).toEqual({ bytes: 18 });
  expect(close?.attrs).toMatchObject({ calls: 1, size: 6, dropped: 0 });
  expect(
    new Set(
      sent()
        .slice(1, -1)
        .map(({ session }) => session),
    ).size,
  ).toBe(1);

  const [path, ...more] = traces() as [string, ...string[]];
  expect(more).toEqual([]);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect((await checkTrace(path)).problems).toEqual([]);
  const record = readEpochRecord(join(sinkDir(state, collector.origin, 'hook'), open?.epoch as string));
  const secret = Buffer.from(record?.secret as string, 'base64');
  const named = (await recordsOf(path)).filter((each) => 'seqs' in each && each.seqs !== undefined);
  expect(named).toHaveLength(6);
  for (const each of named) {
    const [seq] = (each as unknown as { seqs: number[] }).seqs as [number];
    const { digest } = sent().find((envelope) => envelope.seq === seq) as Sent;
    expect(digest).toBe(commitment(commitmentSalt(secret, seq), recordData(each) as Buffer));
  }
});

test('events at once: one epoch, one trace, one sender; nothing is missing', async () => {
  await Promise.all(
    Array.from({ length: 12 }, (_, i) =>
      hook(claudeEvent('PreToolUse', { ...bash, tool_use_id: `t${i}` }), env),
    ),
  );
  await hook(claudeEvent('SessionEnd'), env);
  await expect.poll(kinds).toHaveLength(16);
  expect(sent().map(({ seq }) => seq)).toEqual(Array.from({ length: 16 }, (_, at) => at + 1));
  expect(new Set(sent().map(({ call }) => call)).size).toBe(13);
  expect(traces()).toHaveLength(1);
  expect((await checkTrace(traces()[0] as string)).problems).toEqual([]);
  // Nothing is left to do: it ends by itself.
  await expect.poll(() => readdirSync(join(state, 'logs')).length).toBe(1);
  const [log] = readdirSync(join(state, 'logs')) as [string];
  await expect.poll(() => readdirSync(join(state, 'logs', log, 'forwarder'))).not.toContain('belay.lock');
});

describe('the agent goes on', () => {
  const events: readonly (readonly [string, object | string | Buffer])[] = [
    ['nothing', ''],
    ['no JSON', 'not json {'],
    ['a list', '[1,2]'],
    ['null', 'null'],
    ['invalid UTF-8', Buffer.from([0x7b, 0xff, 0xfe])],
    ['an unknown event', claudeEvent('SomethingNew', { a: 1 })],
    ['names of the wrong type', { hook_event_name: 7, session_id: {}, tool_name: [] }],
    ['a tool without arguments', claudeEvent('PreToolUse', { tool_name: 'Bash' })],
    ['a lone surrogate', '{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":"\\ud800"}'],
    ['17 MB', JSON.stringify(claudeEvent('PostToolUse', { tool_response: 'x'.repeat(17_000_000) }))],
  ];
  test.each(events)('with %s', async (_name, event) => {
    expect(await hook(event, env)).toEqual({ code: 0, stdout: '', stderr: '' });
    if (event === '') return;
    await expect.poll(() => sent().length).toBeGreaterThan(1);
    expect((await checkTrace(traces()[0] as string)).problems.map(({ code }) => code)).toEqual([
      'missing_close',
    ]);
  });

  const places: readonly (readonly [string, () => Record<string, string>])[] = [
    ['without credentials', () => ({ BELAY_STATE: state })],
    ['with half a token', () => ({ ...env, BELAY_TOKEN: 'bly_nonsense' })],
    ['with nobody listening', () => ({ ...env, BELAY_URL: 'http://127.0.0.1:9' })],
    ['with a broken settings file', () => ({ ...env, XDG_CONFIG_HOME: brokenSettings() })],
  ];
  test.each(places)('%s, and the event is recorded', async (_name, environment) => {
    expect(await hook(run[2] as object, environment())).toEqual({ code: 0, stdout: '', stderr: '' });
    expect((await recordsOf(traces()[0] as string)).map(({ type }) => type)).toEqual(['open', 'hook']);
  });

  test('with a state directory that is a file', async () => {
    writeFileSync(state, '');
    expect(await hook(run[2] as object, env)).toEqual({ code: 0, stdout: '', stderr: '' });
  });

  test('with options that are none', async () => {
    const ran = await hook(run[2] as object, env, '--nonsense', '--sink', 'no name/', '--privacy', 'loose');
    expect(ran).toEqual({ code: 0, stdout: '', stderr: '' });
    await expect
      .poll(() => sent().find(({ kind }) => kind === 'call')?.attrs?.['tool'])
      .toMatch(/^hmac-sha256:/);
  });

  test('with a full disk; what was lost is disclosed when there is room again', async () => {
    const log = collector.origin;
    SharedEpoch.use({ state, log, sink: 'hook', sinkKind: 'hook' }, (epoch) => {
      for (let i = 0; i < 200; i++) epoch.append({ kind: 'x.hook', content: Buffer.from('before') });
    });
    // A file size limit stands for it: the spool is longer than that already, what is written in place is not.
    const limited = ['-c', 'ulimit -S -f 64; trap "" XFSZ; exec "$0" "$@"', node, BELAY, 'hook'];
    const options = { input: JSON.stringify(run[3]), env: { PATH: process.env['PATH'], ...env } };
    const { status, stdout, stderr } = spawnSync('sh', limited, options);
    expect([status, String(stdout), String(stderr)]).toEqual([0, '', '']);
    await hook(run[4] as object, env);
    await expect.poll(() => sent().at(-1)?.kind).toBe('claim');
    const gap = sent().find(({ kind }) => kind === 'gap');
    // Of the event that came while the disk was full: `session.open`, a gap line that did not fit either, `result`.
    expect(gap?.attrs).toMatchObject({ first: 202, last: 204, reason: 'lost' });
    expect(sent().at(-1)?.seq).toBe(206);
  });
});

function brokenSettings(): string {
  const folder = freshFolder();
  mkdirSync(join(folder, 'belay'));
  writeFileSync(join(folder, 'belay', 'settings.json'), '{"privacy": ');
  return folder;
}

test('the last words are taken from the transcript where the event has none', async () => {
  const transcript = join(freshFolder(), 'transcript.jsonl');
  const lines = [
    { type: 'assistant', message: { content: [{ type: 'text', text: 'First.' }] } },
    { type: 'assistant', message: { content: [{ type: 'text', text: 'All tests pass.' }] } },
    { type: 'assistant', message: { content: [{ type: 'tool_use', name: 'Bash' }] } },
    { type: 'user', message: { content: 'assistant' } },
  ];
  writeFileSync(transcript, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  await hook(claudeEvent('Stop', { transcript_path: transcript }), env);
  const records = await recordsOf(traces()[0] as string);
  const claim = records.find(({ type }) => type === 'claim') as TraceRecord;
  expect(recordData(claim)?.toString()).toBe('All tests pass.');
});

describe('one run seen by a proxy and by hooks', () => {
  /** An agent that asks twice for the same, once for something else, and has a tool of its own. */
  async function agentRun(shared: boolean, ...args: string[]): Promise<void> {
    const both = { ...env, BELAY_SESSION: 'one-run-of-an-agent' };
    const proxy = start(['proxy', '--', node, program('server'), 'answer'], both);
    const calls = [
      ['read.file', { path: '/w', b: 1 }],
      ['read.file', { b: 1, path: '/w' }],
      ['write', { path: '/v' }],
    ] as const;
    for (const [i, [tool, args_]] of calls.entries()) {
      const named = `mcp__files__${tool.replace('.', '_')}`;
      const told = { tool_name: named, tool_input: args_, tool_use_id: `toolu_${i}` };
      await hook(claudeEvent('PreToolUse', told), both, ...args);
      const before = proxy.stdout().length;
      const meta = shared ? { _meta: { 'claudecode/toolUseId': `toolu_${i}` } } : {};
      const params = { name: tool, arguments: args_, ...meta };
      proxy.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: i, method: 'tools/call', params })}\n`);
      await expect.poll(() => proxy.stdout().length).toBeGreaterThan(before);
      const answer = JSON.parse(proxy.stdout().subarray(before).toString()) as { result: object };
      await hook(claudeEvent('PostToolUse', { ...told, tool_response: answer.result }), both, ...args);
    }
    await hook(claudeEvent('PreToolUse', { ...bash, tool_use_id: 'toolu_bash' }), both, ...args);
    await hook(claudeEvent('SessionEnd'), both, ...args);
    proxy.child.stdin.end();
    expect(await proxy.ended).toBe(0);
    await expect.poll(() => sent().at(-1)?.kind).toBe('epoch.close');
  }

  test.each([
    ['by the ids that the client shares', true, []],
    ['by what was called, where it shares none', false, ['--weak-ids']],
  ] as const)(
    'calls and results match pairwise, %s; a built-in tool is seen by the hook alone',
    async (_, shared, args) => {
      await agentRun(shared, ...args);
      const of = (sink: string, kind: string): Sent[] => sent(sink).filter((each) => each.kind === kind);
      for (const kind of ['call', 'result']) {
        const [proxied, hooked] = [of('proxy', kind), of('hook', kind)];
        expect(proxied).toHaveLength(3);
        const key = ({ session, call, match, attrs }: Sent): unknown => ({
          session,
          call,
          match,
          tool: attrs?.['tool'],
        });
        expect(hooked.slice(0, 3).map(key)).toEqual(proxied.map(key));
        expect(new Set(proxied.map(({ call }) => call)).size).toBe(3);
        expect(proxied.every(({ call, match }) => call !== undefined && match !== undefined)).toBe(true);
        expect(proxied[0]?.call?.startsWith('weak:')).toBe(!shared);
      }
      const [builtIn, ...none] = of('hook', 'call').slice(3);
      expect(none).toEqual([]);
      expect(builtIn?.attrs).toMatchObject({ tool: 'Bash' });
      expect(of('proxy', 'call').map(({ call }) => call)).not.toContain(builtIn?.call);
    },
  );
});

test('strict: not even names of tools or agents are said', async () => {
  for (const event of run) await hook(event, { ...env, BELAY_PRIVACY: 'strict' });
  await expect.poll(() => sent().at(-1)?.kind).toBe('epoch.close');
  const [, open, , call, result] = sent();
  expect(open?.attrs).toBeUndefined();
  expect(call?.attrs?.['tool']).toMatch(/^hmac-sha256:[0-9a-f]{64}$/);
  expect(result?.attrs?.['tool']).toBe(call?.attrs?.['tool']);
  expect(readFileSync(traces()[0] as string, 'utf8')).toContain('"event":"PreToolUse"');
});

test('a call that was not allowed has a record of what was intended, and no result', async () => {
  await hook(claudeEvent('PreToolUse', bash), env);
  await hook(claudeEvent('PermissionDenied', bash), env);
  await hook(claudeEvent('SessionEnd'), env);
  await expect.poll(kinds).toContain('epoch.close');
  expect(kinds()).toEqual(['epoch.open', 'session.open', 'call', 'x.hook', 'session.close', 'epoch.close']);
});

test('kill -9 of hooks at any moment: the spool has no hole, the trace reads to its end', async () => {
  for (let i = 0; i < 25; i++) {
    const child = spawn(node, [BELAY, 'hook'], { stdio: ['pipe', 'ignore', 'ignore'], env: { ...env } });
    child.stdin.on('error', () => undefined);
    child.stdin.end(JSON.stringify(claudeEvent('PreToolUse', { ...bash, tool_use_id: `killed ${i}` })));
    const closed = once(child, 'close');
    await sleep(50 + i * 2);
    child.kill('SIGKILL');
    await closed;
  }
  await hook(claudeEvent('SessionEnd'), env);
  await expect.poll(() => sent().at(-1)?.kind).toBe('epoch.close');
  // Killed while it made the epoch or the trace, it leaves one that nobody goes on with.
  for (const epoch of new Set(sent().map((each) => each.epoch))) {
    const seqs = sent().flatMap((each) => (each.epoch === epoch ? each.seq : []));
    expect(seqs).toEqual(seqs.map((_, at) => at + 1));
  }
  const problems = await Promise.all(traces().map(async (path) => (await checkTrace(path)).problems));
  // One that was killed before its first record leaves an empty file; every other reads to its end.
  for (const each of problems.filter(({ length }) => length > 0)) {
    expect(each).toEqual([
      expect.objectContaining({ code: expect.stringMatching(/^(missing_close|empty)$/) as string }),
    ]);
  }
  expect(problems.filter((each) => each.length === 0)).toHaveLength(1);
});

test('signs of life while nothing happens, sent by one process in the background, as long as the epoch is open', async () => {
  env['BELAY_HEARTBEAT'] = '1';
  await hook(claudeEvent('PreToolUse', bash), env);
  await expect.poll(() => kinds().filter((kind) => kind === 'heartbeat').length).toBeGreaterThan(1);
  const [log] = readdirSync(join(state, 'logs')) as [string];
  const lock = (): number =>
    (JSON.parse(readFileSync(join(state, 'logs', log, 'forwarder', 'belay.lock'), 'utf8')) as { pid: number })
      .pid;
  const pid = lock();
  await hook(claudeEvent('PostToolUse', bash), env);
  const second = start(['forward', '--background', '--state', state], env);
  second.child.stdin.end();
  expect(await second.ended).toBe(0);
  expect(lock()).toBe(pid);
});

test('a forwarder that was killed is started again by the next event, also where its number is in use', async () => {
  env['BELAY_HEARTBEAT'] = '1';
  await hook(claudeEvent('PreToolUse', bash), env);
  await expect.poll(() => kinds().includes('call')).toBe(true);
  const [log] = readdirSync(join(state, 'logs')) as [string];
  const folder = join(state, 'logs', log, 'forwarder');
  const lock = (): { pid: number; start: string } =>
    JSON.parse(readFileSync(join(folder, 'belay.lock'), 'utf8')) as { pid: number; start: string };
  const first = lock();
  process.kill(first.pid, 'SIGKILL');
  await expect.poll(() => alive(first.pid)).toBe(false);
  // What was killed is forgotten, as is when it was started; its number is that of another process now.
  writeFileSync(join(folder, 'belay.lock'), JSON.stringify({ ...first, pid: process.pid }));
  rmSync(join(folder, 'started'));
  await hook(claudeEvent('PostToolUse', { ...bash, tool_response: 'ok' }), env);
  await expect.poll(() => kinds().includes('result'), { timeout: 20_000 }).toBe(true);
  expect(lock().pid).not.toBe(process.pid);
});

test('a forwarder that was killed after the last event: a proxy that runs sends what it left', async () => {
  env['BELAY_HEARTBEAT'] = '1';
  const proxy = start(['proxy', '--sink', 'proxy', '--', node, program('server'), 'answer'], env);
  await expect.poll(() => sent('proxy').length, { timeout: 10_000 }).toBeGreaterThan(2);
  // What an event leaves, without the process that it would have started.
  const log = collector.origin;
  SharedEpoch.use({ state, log, sink: 'hook', sinkKind: 'hook' }, (epoch) => {
    epoch.append({ kind: 'x.hook', content: Buffer.from('left behind') });
  });
  await expect.poll(() => sent('hook').some(({ kind }) => kind === 'x.hook')).toBe(true);
  proxy.child.stdin.end();
  await proxy.ended;
});

test('who holds the sink for too long costs the event its envelope, which the next one says, and not the agent its time', async () => {
  await hook(run[2] as object, env);
  const held = acquire(sinkDir(state, collector.origin, 'hook'));
  const began = performance.now();
  expect(await hook(run[3] as object, env)).toEqual({ code: 0, stdout: '', stderr: '' });
  expect(performance.now() - began).toBeLessThan(4_000);
  held.release();
  const records = await recordsOf(traces()[0] as string);
  expect(records.map(({ type }) => type)).toEqual(['open', 'hook', 'hook']);
  await hook(run[4] as object, env);
  await hook(run[5] as object, env);
  await expect.poll(kinds).toContain('epoch.close');
  expect(sent().find(({ attrs }) => attrs?.['missed'] !== undefined)).toMatchObject({ attrs: { missed: 1 } });
});

test('a keyed sink states its key and has its lines signed', async () => {
  const { seed } = await loadOrCreateSinkKey(state, collector.origin, 'hook');
  const key = rawPublicKey(privateKeyObject(seed));
  collector.sinkKeys.set('hook', key);
  await hook(run[2] as object, env);
  await hook(run[5] as object, env);
  await expect.poll(kinds).toContain('epoch.close');
  expect(sent()[0]?.attrs).toMatchObject({ key: key.toString('base64') });
});

test('whatever an event is, it is read', () => {
  const names = fc.constantFrom(
    'hook_event_name',
    'session_id',
    'tool_name',
    'tool_input',
    'tool_response',
    'x',
  );
  const values = fc.oneof(
    fc.jsonValue(),
    fc.constantFrom('PreToolUse', 'PostToolUse', 'Stop', 'SessionStart'),
  );
  fc.assert(
    fc.property(fc.oneof(fc.dictionary(names, values), fc.jsonValue()), (event) => {
      const { name, meaning } = readHookEvent(Buffer.from(JSON.stringify(event)));
      expect(meaning.type).toBeDefined();
      expect(name ?? 'Stop').toMatch(/^[A-Z][A-Za-z]+$/);
    }),
  );
  fc.assert(fc.property(fc.uint8Array(), (bytes) => readHookEvent(Buffer.from(bytes)).name === undefined));
});
