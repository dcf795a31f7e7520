import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CreateMessageRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { checkTrace } from '@belay/trace';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SmallCollector } from '@belay/testkit';
import { BELAY, freshFolder, node, program, recordedBytes, recordsIn, tracesIn } from './proxied.js';

/** The program of an official server, from the development dependencies. */
const official = (name: string): string =>
  join(
    createRequire(import.meta.url).resolve(`@modelcontextprotocol/${name}/package.json`),
    '..',
    'dist',
    'index.js',
  );

let collector: SmallCollector;
let folder: string;
beforeEach(async () => {
  collector = new SmallCollector();
  folder = freshFolder();
});
afterEach(() => collector.close());

/**
 * client -> tap A -> belay proxy -> tap B -> server, driven by the official client. What either tap saw, what the trace
 * holds and what left the machine are compared afterwards.
 */
async function driven(server: readonly string[], drive: (client: Client) => Promise<void>): Promise<void> {
  const [outer, inner, traces] = ['outer', 'inner', 'traces'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  const proxy = [node, BELAY, 'proxy', '--trace', traces, '--'];
  const transport = new StdioClientTransport({
    command: node,
    args: [program('tap'), outer, ...proxy, node, program('tap'), inner, node, ...server],
    stderr: 'ignore',
    env: {
      PATH: process.env['PATH'] ?? '',
      HOME: folder,
      BELAY_STATE: join(folder, 'state'),
      BELAY_URL: await collector.listen(),
      BELAY_TOKEN: collector.token,
    },
  });
  const client = new Client(
    { name: 'taps', version: '1.0.0' },
    { capabilities: { sampling: {}, roots: {} } },
  );
  client.setRequestHandler(CreateMessageRequestSchema, () => ({
    model: 'none',
    role: 'assistant',
    content: { type: 'text', text: 'sampled' },
  }));
  await client.connect(transport);
  await drive(client);
  await client.close();
  const last = (): string | undefined => collector.envelopes().at(-1)?.kind;
  await expect.poll(last, { timeout: 10_000 }).toBe('epoch.close');
  const records = await recordsIn(traces);
  for (const [end, dir] of [
    ['in', 'c2s'],
    ['out', 's2c'],
  ] as const) {
    const [before, after] = [readFileSync(`${outer}.${end}`), readFileSync(`${inner}.${end}`)];
    expect(before.length).toBeGreaterThan(500);
    expect(sha256(after)).toBe(sha256(before));
    expect(sha256(recordedBytes(records, dir))).toBe(sha256(before));
  }
  const [path] = tracesIn(traces) as [string];
  const report = await checkTrace(path);
  expect(report.problems).toEqual([]);
  // Every frame of the trace is an envelope of the log, and the other way round.
  const seqs = records.flatMap((record) => (record.type === 'frame' ? (record.seqs ?? []) : []));
  const logged = collector.envelopes().filter(({ kind }) => ['call', 'result', 'x.frame'].includes(kind));
  expect(logged.map(({ seq }) => seq)).toEqual(seqs);
}

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

test('server-everything, driven by the official client: byte-equal on both sides, in both directions', async () => {
  await driven([official('server-everything'), 'stdio'], async (client) => {
    const { tools } = await client.listTools();
    expect(tools.length).toBeGreaterThan(8);
    await client.ping();
    for (let i = 0; i < 20; i++) {
      await client.callTool({ name: 'echo', arguments: { message: `hello ${i} \u2028 \ud83d\ude00` } });
    }
    await Promise.all(
      Array.from({ length: 10 }, (_, i) =>
        client.callTool({ name: 'echo', arguments: { message: `parallel ${i}` } }),
      ),
    );
    for (const { uri } of (await client.listResources()).resources.slice(0, 5))
      await client.readResource({ uri });
    const { prompts } = await client.listPrompts();
    expect(prompts.length).toBeGreaterThan(0);
    for (const tool of tools.filter(({ name }) => !name.includes('long-running'))) {
      // As they are, without arguments: many of these are errors, and errors are bytes too.
      await client
        .callTool({ name: tool.name, arguments: {} }, undefined, { timeout: 15_000 })
        .catch(() => undefined);
    }
    const cancelled = new AbortController();
    const long = client.callTool(
      { name: 'trigger-long-running-operation', arguments: { duration: 5, steps: 5 } },
      undefined,
      {
        signal: cancelled.signal,
        onprogress: () => cancelled.abort(),
      },
    );
    await expect(long).rejects.toThrow();
    await expect(client.callTool({ name: 'no-such-tool' })).resolves.toMatchObject({ isError: true });
  });
}, 90_000);

test('server-filesystem, driven by the official client: byte-equal on both sides, in both directions', async () => {
  const workspace = join(folder, 'workspace');
  mkdirSync(workspace);
  writeFileSync(join(workspace, 'a.txt'), 'alpha\n');
  await driven([official('server-filesystem'), workspace], async (client) => {
    const tool = (name: string, args: Record<string, unknown>): Promise<unknown> =>
      client.callTool({ name, arguments: args });
    await client.listTools();
    await tool('list_directory', { path: workspace });
    await tool('read_text_file', { path: join(workspace, 'a.txt') });
    await tool('write_file', { path: join(workspace, 'b.txt'), content: 'x'.repeat(300_000) });
    await tool('read_text_file', { path: join(workspace, 'b.txt') });
    await tool('edit_file', {
      path: join(workspace, 'a.txt'),
      edits: [{ oldText: 'alpha', newText: 'beta' }],
    });
    await tool('move_file', { source: join(workspace, 'a.txt'), destination: join(workspace, 'c.txt') });
    expect(await tool('read_text_file', { path: '/etc/passwd' })).toMatchObject({ isError: true });
    expect(readFileSync(join(workspace, 'c.txt'), 'utf8')).toBe('beta\n');
  });
}, 60_000);
