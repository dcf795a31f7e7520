import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CreateMessageRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { checkTrace, readTrace, type TraceRecord } from '@belay/trace';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SmallCollector } from '@belay/testkit';
import { readTurns, type Turn } from '../src/turns.js';
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

interface Tapped {
  /** What a client starts in place of the server. */
  readonly command: string;
  readonly args: string[];
  readonly env: Record<string, string>;
  /** Compares what either tap saw, what the trace holds and what left the machine. Returns the trace's records. */
  readonly compare: () => Promise<TraceRecord[]>;
}

/** client -> tap A -> belay proxy -> tap B -> server. */
async function tapped(server: readonly string[], more: Record<string, string> = {}): Promise<Tapped> {
  const [outer, inner, traces] = ['outer', 'inner', 'traces'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  const proxy = [node, BELAY, 'proxy', '--trace', traces, '--'];
  const compare = async (): Promise<TraceRecord[]> => {
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
    return records;
  };
  return {
    command: node,
    args: [program('tap'), outer, ...proxy, node, program('tap'), inner, node, ...server],
    env: {
      PATH: process.env['PATH'] ?? '',
      HOME: folder,
      BELAY_STATE: join(folder, 'state'),
      BELAY_URL: await collector.listen(),
      BELAY_TOKEN: collector.token,
      ...more,
    },
    compare,
  };
}

/** Driven by the official client of the revisions up to 2025-11-25. */
async function driven(
  server: readonly string[],
  drive: (client: Client) => Promise<void>,
  more: Record<string, string> = {},
): Promise<void> {
  const { command, args, env, compare } = await tapped(server, more);
  const transport = new StdioClientTransport({ command, args, stderr: 'ignore', env });
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
  await compare();
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

test('server-memory, driven by the official client: byte-equal on both sides, in both directions', async () => {
  const file = join(folder, 'memory.jsonl');
  const drive = async (client: Client): Promise<void> => {
    const tool = (name: string, args: Record<string, unknown> = {}): Promise<unknown> =>
      client.callTool({ name, arguments: args });
    const { tools } = await client.listTools();
    expect(tools).toHaveLength(9);
    const entity = (name: string) => ({ name, entityType: 'person', observations: [`is ${name} \u2028 😀`] });
    await tool('create_entities', { entities: ['Ann', 'Ben', 'Zoë'].map(entity) });
    await tool('create_relations', { relations: [{ from: 'Ann', to: 'Ben', relationType: 'knows' }] });
    await tool('add_observations', { observations: [{ entityName: 'Ann', contents: ['x'.repeat(70_000)] }] });
    await tool('search_nodes', { query: 'Ann' });
    await tool('open_nodes', { names: ['Zoë'] });
    await tool('delete_observations', {
      deletions: [{ entityName: 'Ben', observations: ['is Ben \u2028 😀'] }],
    });
    await tool('delete_relations', { relations: [{ from: 'Ann', to: 'Ben', relationType: 'knows' }] });
    await tool('delete_entities', { entityNames: ['Ben'] });
    expect(JSON.stringify(await tool('read_graph'))).toContain('Zoë');
    expect(
      await tool('add_observations', { observations: [{ entityName: 'Nobody', contents: ['x'] }] }),
    ).toMatchObject({
      isError: true,
    });
  };
  await driven([official('server-memory')], drive, { MEMORY_FILE_PATH: file });
  expect(readFileSync(file, 'utf8')).toContain('Zoë');
}, 60_000);

test('the official client of 2026-07-28 and a server of the official library, over stdio: byte-equal', async () => {
  const direct = await modernClient([node, program('modern-server'), 'stdio'], {});
  const { command, args, env, compare } = await tapped([program('modern-server'), 'stdio']);
  expect(await modernClient([command, ...args], env)).toEqual(direct);
  const records = await compare();
  const said = recordedBytes(records, 'c2s').toString();
  for (const method of ['server/discover', 'subscriptions/listen', 'tools/call'])
    expect(said).toContain(method);
  expect(said).not.toContain('"initialize"');
  // What was asked for more input, and asked again with it, are turns of one chain.
  const turns: Turn[] = [];
  const [path] = tracesIn(join(folder, 'traces')) as [string];
  for await (const item of readTurns(readTrace(path))) if (item.type === 'turn') turns.push(item);
  const asked = turns.find(({ outcome }) => outcome === 'input_required');
  expect(asked).toBeDefined();
  expect(turns.filter(({ continues }) => continues === asked?.call)).toMatchObject([{ outcome: 'ok' }]);
}, 60_000);

/** A session of the official client of 2026-07-28, in a process of its own, as clients are. */
async function modernClient(command: readonly string[], env: Record<string, string>): Promise<unknown> {
  const child = spawn(node, [program('modern-client'), '2026-07-28', 'stdio', ...command], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: process.env['PATH'], ...env },
  });
  let told = '';
  child.stdout.on('data', (chunk: Buffer) => (told += chunk.toString()));
  expect(await once(child, 'close')).toEqual([0, null]);
  return JSON.parse(told) as unknown;
}
