import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { machineSecret, pendingSpools } from '@belay/client';
import { batchRoot, commitment, commitmentSalt, matchId, sessionKey, weakCallId } from '@belay/envelope';
import { privateKeyObject, rawPublicKey } from '@belay/keys';
import { checkTrace, recordData, type TraceRecord } from '@belay/trace';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { problem, SmallCollector } from '@belay/testkit';
import { loadOrCreateSinkKey } from '../src/credentials.js';
import { freshFolder, node, program, recordsIn, start, type Started, tracesIn } from './proxied.js';

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

const proxy = (...steps: string[]): Started => start(['proxy', '--', node, program('server'), ...steps], env);
const say = (run: Started, ...messages: object[]): void => {
  for (const message of messages)
    run.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
};
const call = (id: number | string, name: string, args: object = {}): object => ({
  id,
  method: 'tools/call',
  params: { name, arguments: args },
});
const kinds = (): string[] => collector.envelopes().map(({ kind }) => kind);

async function session(messages: object[]): Promise<Started> {
  const run = proxy('answer');
  say(run, ...messages);
  run.child.stdin.end();
  expect(await run.ended).toBe(0);
  return run;
}

test('a session becomes envelopes: what opens, each call and result, every other frame, what closes', async () => {
  await session([
    { id: 0, method: 'initialize' },
    call(1, 'read_file', { path: '/w' }),
    { method: 'notifications/x' },
    call(2, 'read_file', { path: '/w' }),
  ]);
  const envelopes = collector.envelopes();
  expect(kinds()).toEqual(
    expect.arrayContaining([
      'epoch.open',
      'session.open',
      'call',
      'result',
      'call',
      'result',
      'x.frame',
      'session.close',
      'epoch.close',
    ]),
  );
  expect(kinds().slice(0, 2)).toEqual(['epoch.open', 'session.open']);
  expect(kinds().slice(-2)).toEqual(['session.close', 'epoch.close']);
  expect(envelopes.map(({ seq }) => seq)).toEqual(envelopes.map((_, at) => at + 1));
  const lines = collector.entries
    .slice(1)
    .map((entry) => Buffer.from(entry.toString().split('\n')[1] as string));
  const { size, root } = (envelopes.at(-1)?.attrs ?? {}) as { size: number; root: string };
  expect(root).toBe(batchRoot(lines.slice(0, size)).toString('base64'));
  expect(envelopes.at(-2)?.attrs).toMatchObject({ calls: 2, exit: 0, dropped: 0, filtered: 0 });
  expect(pendingSpools(state, collector.origin)).toEqual([]);
});

test('every envelope commits to a frame of the trace, and the trace names the envelope', async () => {
  await session([call(1, 'a'), call(2, 'b'), { id: 3, method: 'tools/list' }]);
  const records = await recordsIn(join(state, 'traces'));
  const [open] = records as [TraceRecord & { type: 'open' }];
  const [dir] = readdirSync(join(state, 'logs'));
  const secret = JSON.parse(
    readFileSync(join(state, 'logs', dir as string, 'sinks', 'proxy', open.epoch, 'epoch.json'), 'utf8'),
  ) as { secret: string };
  const envelopes = new Map(collector.envelopes().map((envelope) => [envelope.seq, envelope]));
  const frames = records.filter((record) => record.type === 'frame');
  expect(frames).toHaveLength(6);
  for (const frame of frames) {
    const [seq] = frame.seqs as [number];
    const salt = commitmentSalt(Buffer.from(secret.secret, 'base64'), seq);
    expect(envelopes.get(seq)?.digest).toBe(commitment(salt, recordData(frame) as Buffer));
  }
  expect(open).toMatchObject({
    log: collector.origin,
    sink: 'proxy',
    epoch: collector.envelopes()[0]?.epoch,
  });
});

test('call and match are what any other sink of the session would make of it', async () => {
  const args = { b: 1, a: ['x'] };
  await session([call(1, 'read', args), call(2, 'read', args), call(3, 'other', args)]);
  const sent = collector.envelopes() as unknown as {
    kind: string;
    session: string;
    call: string;
    match: string;
    attrs: Record<string, unknown>;
  }[];
  const calls = sent.filter(({ kind }) => kind === 'call');
  const key = sessionKey(machineSecret(state), calls[0]?.session as string);
  expect(calls.map((each) => each.call)).toEqual([
    weakCallId(key, 'read', 1, args),
    weakCallId(key, 'read', 2, args),
    weakCallId(key, 'other', 1, args),
  ]);
  expect(new Set(calls.map((each) => each.match))).toEqual(new Set([matchId(key, args)]));
  const results = sent.filter(({ kind }) => kind === 'result');
  expect(results.map((each) => each.call).sort()).toEqual(calls.map((each) => each.call).sort());
  expect(results[0]?.attrs).toMatchObject({ tool: 'read', ok: true });
});

test('nothing of arguments, results, names, paths, environment or stderr leaves the machine', async () => {
  const canary = (where: string): string => `CANARY-${where}-0123456789`;
  const bodies: string[] = [];
  collector.change = (ack) => (bodies.push(...collector.entries.map(String)), ack);
  env['SECRET_IN_ENV'] = canary('env');
  const run = start(
    [
      'proxy',
      '--workspace',
      `/tmp/${canary('path')}`,
      '--',
      node,
      program('server'),
      `say:${canary('stdout')}\\n`,
      'answer',
      canary('argv'),
    ],
    env,
  );
  run.child.stdin.write(`not json ${canary('text')}\n`);
  say(run, call(1, `tool ${canary('tool')}`, { secret: canary('argument'), [canary('key')]: 1 }));
  say(run, {
    id: canary('id'),
    method: canary('method'),
    params: { _meta: { progressToken: canary('token') } },
  });
  run.child.stdin.end();
  await run.ended;
  const headers = JSON.stringify(collector.requests);
  const sent = [...bodies, ...collector.entries.map(String)].join('\n') + headers;
  expect(sent.length).toBeGreaterThan(2_000);
  expect(sent).not.toContain('CANARY');
  expect(sent).not.toContain(Buffer.from('CANARY').toString('base64').slice(0, 7));
  expect(sent).not.toContain(Buffer.from('CANARY').toString('hex'));
});

test('an idle proxy says that it lives; under strict it does not say what its tools are called', async () => {
  Object.assign(env, { BELAY_HEARTBEAT: '1', BELAY_PRIVACY: 'strict' });
  const run = proxy('answer');
  say(run, call(1, 'read_file'));
  await expect.poll(() => kinds().filter((kind) => kind === 'heartbeat').length).toBeGreaterThan(1);
  run.child.stdin.end();
  expect(await run.ended).toBe(0);
  const tools = collector.envelopes().flatMap(({ attrs }) => attrs?.['tool'] ?? []);
  expect(tools).toHaveLength(2);
  for (const tool of tools) expect(tool).toMatch(/^hmac-sha256:/);
});

test('a keyed sink signs its batches and states its key', async () => {
  const { seed } = await loadOrCreateSinkKey(state, collector.origin, 'proxy');
  const key = rawPublicKey(privateKeyObject(seed));
  collector.sinkKeys.set('proxy', key);
  await session([call(1, 'a')]);
  expect(collector.envelopes()[0]?.attrs).toMatchObject({ key: key.toString('base64'), counter: 0 });
});

describe('a collector that is away, slow or hostile', () => {
  async function timed(): Promise<{ run: Started; median: number; end: number }> {
    const run = proxy('answer');
    const times: number[] = [];
    for (let i = 0; i < 50; i++) {
      const before = run.stdout().length;
      const started = performance.now();
      say(run, call(i, 'a'));
      await expect.poll(() => run.stdout().length, { interval: 1 }).toBeGreaterThan(before);
      times.push(performance.now() - started);
    }
    run.child.stdin.end();
    const started = performance.now();
    expect(await run.ended).toBe(0);
    times.sort((a, b) => a - b);
    return { run, median: times[25] as number, end: performance.now() - started };
  }

  test('nobody listens: calls are as fast as ever, the end comes at once, the next run sends both', async () => {
    const good = { ...env };
    env['BELAY_URL'] = 'http://127.0.0.1:9';
    const { run, median, end } = await timed();
    expect(median).toBeLessThan(50);
    expect(end).toBeLessThan(1_500);
    expect(run.stderr()).toContain('belay: events wait in the spool');
    Object.assign(env, good);
    const left = start(['forward', '--json'], env);
    left.child.stdin.end();
    expect(await left.ended).toBe(0);
    expect(JSON.parse(left.stdout().toString())).toMatchObject({
      spools: { settled: 1, left: 0, running: 0 },
    });
    expect(kinds().filter((kind) => kind === 'call')).toHaveLength(50);
    expect(pendingSpools(state, collector.origin)).toEqual([]);
  });

  test('it accepts and never answers: bounded at the end by --flush-timeout', async () => {
    collector.faults = Array.from({ length: 100 }, () => () => 'answered' as const);
    const { run, median, end } = await timed();
    expect(median).toBeLessThan(50);
    expect(end).toBeGreaterThan(2_500);
    expect(end).toBeLessThan(5_000);
    expect(run.stderr()).toContain('belay: events wait in the spool');
  });

  test('a signal while the rest is being sent ends that at once', async () => {
    collector.faults = Array.from({ length: 100 }, () => () => 'answered' as const);
    const run = proxy('answer');
    say(run, call(1, 'a'));
    run.child.stdin.end();
    await expect.poll(() => run.stdout().toString()).toContain('"id":1');
    await new Promise((resolve) => setTimeout(resolve, 500));
    const started = performance.now();
    run.child.kill('SIGTERM');
    expect(await run.ended).toBe(0);
    expect(performance.now() - started).toBeLessThan(1_200);
  });

  test('it refuses the token: told once, at the end; the lines stay', async () => {
    collector.faults = [(_, response) => (problem(response, 401, 'token_revoked'), 'answered')];
    const { run } = await timed();
    expect(run.stderr()).toMatch(/^belay: nothing more is sent: token_revoked/m);
    expect(pendingSpools(state, collector.origin)).toHaveLength(1);
  });

  test('it shows another history: accused, with evidence, and the agent is served to the end', async () => {
    await session([call(1, 'a')]);
    collector.reset();
    const run = await session([call(1, 'b')]);
    expect(run.stderr()).toMatch(/^belay: the log contradicts itself, evidence was kept/m);
  });
});

test.each([
  ['true', [], 0, ''],
  ['echo', ['{"jsonrpc":"2.0"}'], 0, '{"jsonrpc":"2.0"}\n'],
  ['false', [], 1, ''],
  ['no-such-program', [], 127, ''],
] as const)('a server that ends at once: %s', async (command, args, code, output) => {
  const run = start(['proxy', '--', command, ...args], env);
  expect(await run.ended).toBe(code);
  expect(run.stdout().toString()).toBe(output);
  expect(collector.envelopes().at(-2)).toMatchObject({ kind: 'session.close', attrs: { exit: code } });
});

describe('killed', () => {
  test('kill -9 of the proxy: the trace has what passed, the next run sends what was not sent', async () => {
    collector.faults = Array.from({ length: 2 }, () => () => 'answered' as const);
    const run = proxy('answer');
    for (let i = 0; i < 20; i++) say(run, call(i, 'a'));
    await expect.poll(() => run.stdout().toString().split('\n').length).toBe(21);
    const [path] = tracesIn(join(state, 'traces')) as [string];
    // An answer is passed on before it is recorded: the last one may be a moment behind.
    await expect.poll(async () => (await checkTrace(path)).frames).toBe(40);
    // And its line is written when nothing has come for a moment: the kill would cost it before.
    const [spool] = pendingSpools(state, collector.origin) as [string];
    const spooled = (): number => readFileSync(join(spool, 'lines')).toString().split('\n').length - 1;
    await expect.poll(spooled, { timeout: 10_000 }).toBe(42);
    run.child.kill('SIGKILL');
    await run.ended;
    expect(await checkTrace(path)).toMatchObject({ frames: 40, problems: [{ code: 'missing_close' }] });
    expect(kinds()).toEqual([]);
    collector.faults = [];
    const left = start(['forward'], env);
    expect(await left.ended).toBe(0);
    expect(kinds()).toEqual([
      'epoch.open',
      'session.open',
      ...Array.from({ length: 40 }, () => expect.stringMatching(/^(call|result)$/) as string),
    ]);
  });

  test('a run that goes on adopts what a dead one left', async () => {
    collector.faults = [() => 'answered'];
    const dead = proxy('answer');
    say(dead, call(1, 'left-behind'));
    await expect.poll(() => dead.stdout().toString()).toContain('"id":1');
    dead.child.kill('SIGKILL');
    await dead.ended;
    collector.faults = [];
    const run = proxy('answer');
    await expect
      .poll(() => collector.envelopes().some(({ attrs }) => attrs?.['tool'] === 'left-behind'), {
        timeout: 5_000,
      })
      .toBe(true);
    run.child.stdin.end();
    await run.ended;
    expect(pendingSpools(state, collector.origin)).toEqual([]);
  });
});

test('the same session id in the environment is the same session in two sinks', async () => {
  env['BELAY_SESSION'] = 'agent run 7';
  await session([call(1, 'a')]);
  await session([call(1, 'a')]);
  const sessions = new Set(
    (collector.envelopes() as { session?: string }[]).flatMap((envelope) => envelope.session ?? []),
  );
  expect([...sessions]).toEqual([expect.stringMatching(/^hmac-sha256:[0-9a-f]{64}$/)]);
  expect(new Set(collector.envelopes().map(({ epoch }) => epoch)).size).toBe(2);
});
