/**
 * Secrets in every field that a sink sees, and every byte that it sends: captured at the socket, on the way to a
 * collector.
 */

import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { SmallCollector } from '@belay/testkit';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { claudeEvent, endForwarding, hook } from './hooked.js';
import { endAll, later, listen } from './http-proxied.js';
import { freshFolder, node, program, start, tracesIn } from './proxied.js';

let collector: SmallCollector;
let state: string;
let folder: string;
let env: Record<string, string>;
/** All bytes that were sent to the collector, over every connection. */
let sent: Buffer[];
let secrets: Map<string, string>;

beforeEach(async () => {
  collector = new SmallCollector();
  const { port } = new URL(await collector.listen());
  sent = [];
  secrets = new Map();
  const tap = await listen((socket) => {
    const onward = connect(Number(port), '127.0.0.1');
    onward.on('error', () => socket.destroy());
    socket.on('data', (chunk: Buffer) => sent.push(chunk));
    socket.pipe(onward).pipe(socket);
  });
  folder = freshFolder();
  state = join(folder, 'state');
  env = { BELAY_URL: `http://127.0.0.1:${tap}`, BELAY_TOKEN: collector.token, BELAY_STATE: state };
});
afterEach(async () => {
  await endForwarding(state);
  await endAll();
  await collector.close();
});

/** A fresh secret for a field; of characters that a name may have, so that nothing but a rule holds it back. */
function secret(field: string): string {
  const value = `canary-${randomBytes(12).toString('hex')}`;
  secrets.set(field, value);
  return value;
}

/** How a secret could stand in what is sent without being seen at first sight. */
function formsOf(value: string): string[] {
  const bytes = Buffer.from(value);
  const hash = createHash('sha256').update(bytes).digest();
  const base64 = [0, 1, 2].map((pad) =>
    Buffer.concat([Buffer.alloc(pad), bytes])
      .toString('base64')
      .slice(pad === 0 ? 0 : 4, -4),
  );
  return [
    value,
    value.toUpperCase(),
    value.slice(7),
    value.split('').toReversed().join(''),
    encodeURIComponent(`${value}/`).slice(0, -3),
    bytes.toString('hex'),
    ...base64,
    hash.toString('hex'),
    hash.toString('base64'),
    hash.toString('base64url').slice(0, -1),
  ];
}

function expectNothingTold(): void {
  const text = Buffer.concat(sent).toString('latin1');
  expect(text.length).toBeGreaterThan(1_000);
  expect(secrets.size).toBeGreaterThan(0);
  const told = [...secrets].flatMap(([field, value]) =>
    formsOf(value).some((form) => text.includes(form)) ? field : [],
  );
  expect(told).toEqual([]);
}

/** The content is on this machine all the same: the test would pass as well if nothing had been recorded. */
function expectRecorded(...fields: string[]): void {
  const traces = tracesIn(join(state, 'traces')).map((path) => readTraceText(path));
  for (const field of fields) {
    expect(
      traces.some((text) => text.includes(secrets.get(field) as string)),
      field,
    ).toBe(true);
  }
}

describe.each(['minimal', 'strict'] as const)('under %s', (privacy) => {
  beforeEach(() => {
    env['BELAY_PRIVACY'] = privacy;
  });
  /** A tool's name is said under minimal, if it is a name; the policy is what holds it back. */
  const toolName = (field: string): string =>
    privacy === 'strict' ? secret(field) : `a tool ${secret(field)}`;

  test('proxy over stdio', async () => {
    env['SECRET_VALUE'] = secret('value in the environment');
    env[`NAME_${secret('name in the environment')}`] = 'x';
    env['BELAY_SESSION'] = secret('BELAY_SESSION');
    const workspace = join(folder, secret('workspace'));
    const steps = [`say:${secret('stdout')}\\n`, 'err:100', `nothing:${secret('argv')}`, 'answer', 'exit:3'];
    env['SECRET_STDERR'] = secret('stderr');
    const shell = ['sh', '-c', 'echo "$SECRET_STDERR" >&2; exec "$@"', 'sh'];
    const run = start(
      ['proxy', '--workspace', workspace, '--', ...shell, node, program('server'), ...steps],
      env,
    );
    const say = (message: object): void =>
      void run.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
    say({
      id: secret('id'),
      method: 'initialize',
      params: { clientInfo: { name: secret('client'), version: secret('version') } },
    });
    say({
      id: 2,
      method: 'tools/call',
      params: {
        name: toolName('tool'),
        arguments: {
          a: secret('argument'),
          [secret('key of an argument')]: { deep: [secret('deep argument')] },
        },
        _meta: { 'claudecode/toolUseId': secret('tool-use id'), progressToken: secret('progress token') },
      },
    });
    say({ id: 3, method: secret('method'), params: { uri: `file:///${secret('uri')}` } });
    say({ method: `notifications/${secret('notification')}` });
    run.child.stdin.end();
    expect(await run.ended).toBe(3);
    expectNothingTold();
    expectRecorded('argument', 'deep argument', 'argv', 'stdout', 'tool', 'workspace', 'stderr');
  });

  test('proxy over HTTP', async () => {
    const upstream = createHttpServer((request, response) => {
      request.resume();
      request.on('end', () => {
        response.setHeader('content-type', 'application/json');
        response.setHeader('mcp-session-id', secret('session of the server'));
        response.setHeader('set-cookie', `id=${secret('cookie of the server')}`);
        response.setHeader('x-secret', secret('header of the server'));
        const result = { content: [{ type: 'text', text: secret('result') }] };
        response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result }));
      });
    });
    upstream.listen(0, '127.0.0.1');
    await once(upstream, 'listening');
    later(() => void upstream.close());
    const { port } = upstream.address() as AddressInfo;
    const address = `http://127.0.0.1:${port}/${secret('path of the URL')}/mcp?key=${secret('query of the URL')}`;
    const run = start(['proxy', '--http', address, '--json'], env);
    await vi.waitFor(() => expect(run.stdout().toString()).toContain('\n'));
    const { url } = JSON.parse(run.stdout().toString()) as { url: string };
    const params = { name: toolName('tool'), arguments: { a: secret('argument') } };
    const answer = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: `Bearer ${secret('authorization')}`,
        cookie: `id=${secret('cookie')}`,
        'x-api-key': secret('api key'),
        'mcp-session-id': secret('session'),
        'user-agent': secret('user agent'),
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
    });
    expect(await answer.text()).toContain(secrets.get('result'));
    run.child.kill('SIGTERM');
    await run.ended;
    expectNothingTold();
    expectRecorded('argument', 'result');
  });

  test('forward', async () => {
    const source = join(folder, `${secret('name of the source')}.ndjson`);
    writeFileSync(source, `${JSON.stringify({ [secret('key')]: secret('content') })}\n${secret('a line')}\n`);
    env['BELAY_SESSION'] = secret('BELAY_SESSION');
    const run = start(['forward', source], env);
    run.child.stdin.end();
    expect(await run.ended).toBe(0);
    expect(collector.envelopes()).toHaveLength(4);
    expectNothingTold();
  });

  test('hook', async () => {
    const transcript = join(folder, secret('name of the transcript'));
    const said = { type: 'assistant', message: { content: [{ type: 'text', text: secret('transcript') }] } };
    writeFileSync(transcript, `${JSON.stringify(said)}\n`);
    const cwd = join(folder, secret('cwd'));
    mkdirSync(cwd);
    const event = (name: string, more: object = {}): object =>
      claudeEvent(name, { session_id: secretOnce('session id'), transcript_path: transcript, cwd, ...more });
    const tool = {
      tool_name:
        privacy === 'strict' ? `mcp__${secret('server')}__${secret('tool')}` : `mcp__fs__a ${secret('tool')}`,
      tool_input: { command: secret('tool input'), [secret('key of the input')]: 1 },
      tool_use_id: secret('tool-use id'),
    };
    await hook(event('SessionStart', { source: secret('source'), model: secret('model') }), env);
    await hook(event('UserPromptSubmit', { prompt: secret('prompt') }), env);
    await hook(event('PreToolUse', tool), env);
    await hook(event('PostToolUse', { ...tool, tool_response: { content: [secret('response')] } }), env);
    await hook(event('PostToolUseFailure', { ...tool, error: secret('error') }), env);
    await hook(event('Notification', { message: secret('notification'), title: secret('title') }), env);
    await hook(event('Stop'), env);
    await hook(
      event('SubagentStop', { agent_id: secret('agent'), last_assistant_message: secret('last words') }),
      env,
    );
    await hook(event(secret('name of the event'), { [secret('member')]: secret('value') }), env);
    await hook(secret('no JSON'), env);
    await hook(event('SessionEnd', { reason: secret('reason') }), env);
    await vi.waitFor(
      () => expect(collector.envelopes().map(({ kind }) => kind)).toContain('session.close'),
      10_000,
    );
    expectNothingTold();
    expectRecorded('tool input', 'response', 'prompt', 'transcript', 'last words', 'no JSON', 'value');
  });
});

/** A trace as text, contents decoded. */
function readTraceText(path: string): string {
  return readFileSync(path, 'utf8').replaceAll(/"data":"([^"]*)"/g, (_, data: string) =>
    Buffer.from(data, 'base64').toString('latin1'),
  );
}

/** The same secret each time. */
const secretOnce = (field: string): string => secrets.get(field) ?? secret(field);
