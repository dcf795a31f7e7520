import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { SmallCollector } from '@belay/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { claudeEvent, endForwarding, hook } from './hooked.js';
import { freshFolder, node, program, start } from './proxied.js';

/** Sinks miss calls, each its own. What the log has tells of every call who saw it, and nobody speaks for another. */

let collector: SmallCollector;
let state: string;
let env: Record<string, string>;
beforeEach(async () => {
  collector = new SmallCollector();
  state = join(freshFolder(), 'state');
  env = {
    BELAY_URL: await collector.listen(),
    BELAY_TOKEN: collector.token,
    BELAY_STATE: state,
    BELAY_SESSION: 'one-run-of-an-agent',
  };
});
afterEach(async () => {
  await endForwarding(state);
  await collector.close();
});

test('calls that a proxy, a hook or a span alone has seen, a denied one, and one that all three saw', async () => {
  const proxy = start(['proxy', '--', node, program('server'), 'answer'], env);
  const otlp = start(['otlp', '--listen', '127.0.0.1:0', '--json'], env);
  await expect.poll(() => otlp.stdout().toString()).toContain('\n');
  const { url } = JSON.parse(otlp.stdout().toString()) as { url: string };

  const proxied = async (id: string, tool: string): Promise<void> => {
    const before = proxy.stdout().length;
    const params = { name: tool, arguments: { of: id }, _meta: { 'claudecode/toolUseId': id } };
    proxy.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params })}\n`);
    while (proxy.stdout().length === before) await sleep(5);
  };
  const told = (id: string, tool: string): object => ({
    tool_name: tool,
    tool_input: { of: id },
    tool_use_id: id,
  });
  const hooked = async (id: string, tool: string): Promise<void> => {
    await hook(claudeEvent('PreToolUse', told(id, tool)), env);
    await hook(claudeEvent('PostToolUse', { ...told(id, tool), tool_response: 'done' }), env);
  };
  const span = async (id: string, tool: string): Promise<void> => {
    const attributes = Object.entries({
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': tool,
      'gen_ai.tool.call.id': id,
    }).map(([key, stringValue]) => ({ key, value: { stringValue } }));
    const traceId = '5b8efff798038103d269b633813fc60c';
    const spanId = Buffer.from(id.padEnd(8, '0').slice(-8)).toString('hex');
    const body = JSON.stringify({
      resourceSpans: [{ scopeSpans: [{ spans: [{ traceId, spanId, attributes }] }] }],
    });
    const headers = { 'content-type': 'application/json' };
    expect((await fetch(`${url}/v1/traces`, { method: 'POST', headers, body })).status).toBe(200);
  };

  await hook(claudeEvent('PreToolUse', told('toolu_all', 'mcp__files__read')), env);
  await proxied('toolu_all', 'read');
  await hook(
    claudeEvent('PostToolUse', { ...told('toolu_all', 'mcp__files__read'), tool_response: 'done' }),
    env,
  );
  await span('toolu_all', 'read');
  await proxied('toolu_proxy', 'write');
  await hooked('toolu_hook', 'Bash');
  await span('toolu_span', 'search');
  await hook(claudeEvent('PreToolUse', told('toolu_denied', 'WebFetch')), env);
  await hook(claudeEvent('PermissionDenied', told('toolu_denied', 'WebFetch')), env);

  await hook(claudeEvent('SessionEnd'), env);
  proxy.child.stdin.end();
  otlp.child.kill('SIGTERM');
  expect(await Promise.all([proxy.ended, otlp.ended])).toEqual([0, 0]);
  await expect.poll(() => collector.envelopes().filter(({ kind }) => kind === 'epoch.close')).toHaveLength(3);

  const seen = new Map<string, string[]>();
  const sessions = new Set<string | undefined>();
  for (const { kind, sink, attrs, ...rest } of collector.envelopes()) {
    if (kind !== 'call' && kind !== 'result') continue;
    const { call, session } = rest as { call?: string; session?: string };
    sessions.add(session);
    const key = `${attrs?.['tool'] as string} ${call}`;
    seen.set(key, [...(seen.get(key) ?? []), `${sink} ${kind}`]);
  }
  expect(sessions.size).toBe(1);
  const table = [...seen].map(([key, who]) => [key.split(' ')[0], who.sort()]);
  expect(Object.fromEntries(table)).toEqual({
    read: ['hook call', 'hook result', 'otlp call', 'otlp result', 'proxy call', 'proxy result'],
    write: ['proxy call', 'proxy result'],
    Bash: ['hook call', 'hook result'],
    search: ['otlp call', 'otlp result'],
    // What was meant to be done, and no word of its having been done.
    WebFetch: ['hook call'],
  });
  expect(seen.size).toBe(5);
});
