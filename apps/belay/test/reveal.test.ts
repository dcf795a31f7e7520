import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { SmallCollector } from '@belay/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { belay } from './command.js';
import { claudeEvent, endForwarding, hook } from './hooked.js';
import { freshFolder, node, program, start } from './proxied.js';

let collector: SmallCollector;
let state: string;
let folder: string;
beforeAll(async () => {
  collector = new SmallCollector();
  const url = await collector.listen();
  folder = freshFolder();
  state = join(folder, 'state');
  const env = { BELAY_URL: url, BELAY_TOKEN: collector.token, BELAY_STATE: state };
  const run = start(['proxy', '--', node, program('server'), 'answer'], env);
  const params = { name: 'read_file', arguments: { path: '/etc/motd' } };
  run.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params })}\n`);
  run.child.stdin.end();
  await run.ended;
  await hook(claudeEvent('Stop', { last_assistant_message: 'Done.' }), env);
  await hook(claudeEvent('SessionEnd'), env);
  // The hook's lines are sent by a process of its own, some time after the proxy's.
  await vi.waitFor(() => expect(envelope('hook', 'session.close')).toBeDefined(), { timeout: 20_000 });
});
afterAll(async () => {
  await endForwarding(state);
  await collector.close();
});

const traceOf = (sink: string): string => {
  const traces = join(state, 'traces');
  return join(traces, readdirSync(traces).find((name) => name.startsWith(`${sink}-`)) as string);
};
const envelope = (sink: string, kind: string): { seq: number; digest?: string } =>
  collector.envelopes().find((each) => each.sink === sink && each.kind === kind) as { seq: number };
const reveal = (sink: string, seq: number, ...more: string[]): ReturnType<typeof belay> =>
  belay('reveal', traceOf(sink), '--seq', String(seq), '--state', state, ...more);

describe.each([
  ['proxy', 'call', '"path":"/etc/motd"'],
  ['proxy', 'result', '"result"'],
  ['hook', 'claim', 'Done.'],
])('%s: %s', (sink, kind, part) => {
  test('is opened, and the opening is of the envelope in the log', async () => {
    const { seq, digest } = envelope(sink, kind);
    const out = join(folder, `${sink}-${kind}.json`);
    const { code, json } = await reveal(sink, seq, '--json', '--out', out);
    expect(code).toBe(0);
    expect(json).toMatchObject({ seq, sink, digest, log: collector.origin });
    expect(Buffer.from((json as { content: string }).content, 'base64').toString()).toContain(part);
    expect(statSync(out).mode & 0o777).toBe(0o600);
    const entry = collector.entries.find((each) => each.includes(digest as string)) as Buffer;
    const file = join(folder, `${sink}-${kind}.entry`);
    writeFileSync(file, entry);
    const checked = await belay('reveal', '--check', out, '--envelope', file, '--json');
    expect(checked).toMatchObject({ code: 0, json: { verdict: 'VALID', bound: true, digest } });
    const byDigest = await belay('reveal', '--check', out, '--digest', digest as string);
    expect(byDigest).toMatchObject({ code: 0 });
    // What the page says that it can be checked with, without us.
    const { salt, content } = json as { salt: string; content: string };
    const bytes = Buffer.concat([Buffer.from(salt, 'base64'), Buffer.from(content, 'base64')]);
    expect(`sha256:${execFileSync('sha256sum', { input: bytes }).toString().slice(0, 64)}`).toBe(digest);
  });
});

test('an opening of another line, or with one changed byte, is told', async () => {
  const { json } = await reveal('proxy', envelope('proxy', 'call').seq, '--json');
  const opening = json as Record<string, string>;
  const other = join(folder, 'other.json');
  const entry = join(folder, 'other.entry');
  writeFileSync(entry, collector.entries.find((each) => each.includes('"kind":"result"')) as Buffer);
  writeFileSync(other, JSON.stringify(opening));
  expect(await belay('reveal', '--check', other, '--envelope', entry)).toMatchObject({ code: 1 });
  const content = Buffer.from(opening['content'] as string, 'base64');
  content[3] = (content[3] as number) ^ 1;
  writeFileSync(other, JSON.stringify({ ...opening, content: content.toString('base64') }));
  const { code, stdout } = await belay('reveal', '--check', other);
  expect(code).toBe(1);
  expect(stdout).toContain('INVALID');
  writeFileSync(other, '{}');
  expect((await belay('reveal', '--check', other)).code).toBe(65);
});

test('without the secret, the line, or a run that was sent, there is nothing to open', async () => {
  expect((await reveal('proxy', 1)).code).toBe(65);
  expect((await reveal('proxy', 9_999)).code).toBe(65);
  expect((await belay('reveal', traceOf('proxy'))).code).toBe(64);
  const { seq } = envelope('proxy', 'call');
  const elsewhere = await belay('reveal', traceOf('proxy'), '--seq', String(seq), '--state', freshFolder());
  expect(elsewhere.code).toBe(65);
  expect(elsewhere.stderr).toContain('the secret of epoch');
});

test('content that was changed in the trace is not opened', async () => {
  const { seq } = envelope('proxy', 'call');
  const text = readFileSync(traceOf('proxy'), 'utf8');
  const [, data] = /"data":"([^"]{40})/.exec(text) as unknown as [string, string];
  const forged = join(folder, 'forged.jsonl');
  writeFileSync(forged, text.replace(data, `${data.slice(0, -4)}AAAA`));
  expect((await belay('reveal', forged, '--seq', String(seq), '--state', state)).code).toBe(1);
  rmSync(forged);
});
