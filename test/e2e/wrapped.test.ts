import { mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { afterAll, expect, it } from 'vitest';
import { Machine } from './belay-process.js';

/**
 * A client's configuration, wrapped once and used for many sessions: by the compiled program, with the official client
 * and official servers.
 */

const machine = new Machine();
afterAll(() => machine.close());

const server = (name: string): string =>
  createRequire(import.meta.url).resolve(`@modelcontextprotocol/${name}/dist/index.js`);

interface Entry {
  readonly command: string;
  readonly args: string[];
  readonly env?: Record<string, string>;
}

/** What a client does with an entry of its configuration, and nothing else: no PATH, none of our variables. */
async function connect({ command, args, env }: Entry): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' });
  const base = { HOME: machine.root, XDG_CONFIG_HOME: join(machine.root, 'config') };
  await client.connect(
    new StdioClientTransport({ command, args, env: { ...base, ...env }, stderr: 'ignore' }),
  );
  return client;
}

it('one wrapped configuration serves two servers at once, on two days, and comes back byte for byte', async () => {
  const workspace = realpathSync(mkdtempSync(join(machine.root, 'work-')));
  const config = join(machine.root, 'project', '.mcp.json');
  mkdirSync(join(machine.root, 'project'));
  const original = Buffer.from(
    `{\r\n\t// used by the whole team\r\n\t"mcpServers": {\r\n` +
      `\t\t"files": { "command": ${JSON.stringify(process.execPath)}, "args": [ ${JSON.stringify(server('server-filesystem'))}, ${JSON.stringify(workspace)}, ] },\r\n` +
      `\t\t"everything": {\r\n\t\t\t"type": "stdio",\r\n\t\t\t"command": ${JSON.stringify(process.execPath)},\r\n` +
      `\t\t\t"args": [\r\n\t\t\t\t${JSON.stringify(server('server-everything'))}, /* over */ "stdio"\r\n\t\t\t],\r\n\t\t\t"env": { "TOKEN": "s3cret" },\r\n\t\t},\r\n` +
      `\t\t"docs": { "type": "http", "url": "https://mcp.example/" }\r\n\t}\r\n}\r\n`,
  );
  writeFileSync(config, original);
  const state = join(machine.root, 'wrapped-state');

  const wrapped = await machine.belay(['wrap', config, '--state', state, '--sink', '{server}']);
  expect(wrapped).toMatchObject({ code: 0 });
  const text = readFileSync(config, 'utf8');
  // The client's own reader of comments and trailing commas is not under test.
  const { mcpServers } = JSON.parse(
    text.replaceAll(/\/\/[^\r\n"]*\r|\/\*.*?\*\//g, '').replaceAll(/,(\s*[\]}])/g, '$1'),
  ) as { mcpServers: Record<string, Entry> };

  for (const day of ['first', 'second']) {
    const [files, everything] = await Promise.all([
      connect(mcpServers['files'] as Entry),
      connect(mcpServers['everything'] as Entry),
    ]);
    const path = join(workspace, `${day}.txt`);
    await files.callTool({ name: 'write_file', arguments: { path, content: day } });
    const echo = await everything.callTool({ name: 'echo', arguments: { message: day } });
    expect(JSON.stringify(echo.content)).toContain(day);
    expect(readFileSync(path, 'utf8')).toBe(day);
    await Promise.all([files.close(), everything.close()]);
    expect(readFileSync(config, 'utf8')).toBe(text);
  }

  const traces = readdirSync(join(state, 'traces')).sort();
  expect(traces.map((name) => name.split('-')[0])).toEqual(['everything', 'everything', 'files', 'files']);
  const checked = await machine.belay(['trace', 'check', join(state, 'traces'), '--json']);
  expect(checked).toMatchObject({ code: 0 });
  expect(JSON.parse(checked.stdout)).toMatchObject({ verdict: 'INTACT', integrity: 'local-only' });
  for (const name of traces) {
    const { stdout, code } = await machine.belay(['trace', 'show', join(state, 'traces', name)]);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      name.startsWith('files') ? /tools\/call write_file .* ok/ : /tools\/call echo .* ok/,
    );
    expect(stdout).not.toContain('s3cret');
  }

  expect(await machine.belay(['unwrap', config, '--state', state])).toMatchObject({ code: 0 });
  expect(readFileSync(config)).toEqual(original);
});

it('a trace much larger than the heap is checked, shown and exported', async () => {
  const path = join(machine.root, 'large.jsonl');
  const { TraceWriter } = await import('@belay/trace');
  const { createHash } = await import('node:crypto');
  let us = 0;
  const writer = TraceWriter.create(
    path,
    {
      type: 'open',
      v: 1,
      epoch: '01K6B3YB80041061050R3GG28A',
      sink: 'proxy',
      session: 's',
      recorder: 'test/1',
    },
    { wall: () => '2026-01-01T00:00:00.000Z', monotonic: () => us },
  );
  const frame = (dir: 'c2s' | 's2c', message: object): void => {
    const data = Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
    us += 500;
    const sha256 = createHash('sha256').update(data).digest('hex');
    writer.append({ type: 'frame', dir, size: data.length, sha256 }, data);
  };
  const text = 'x'.repeat(5_000);
  for (let id = 0; id < 12_000; id++) {
    frame('c2s', { id, method: 'tools/call', params: { name: 'echo', arguments: { id } } });
    frame('s2c', { id, result: { content: [{ type: 'text', text }] } });
  }
  writer.close({ exit: 0 });
  const small = { NODE_OPTIONS: '--max-old-space-size=40' };
  const out = join(machine.root, 'large.out');
  expect(await machine.belay(['trace', 'check', path], small)).toMatchObject({ code: 0 });
  for (const format of ['json', 'html', 'har', 'otlp']) {
    const ran = await machine.belay(['trace', 'export', path, '--format', format, '--out', out], small);
    expect({ format, ...ran }).toMatchObject({ code: 0 });
  }
  const { stdout, code } = await machine.belay(['trace', 'show', path], small);
  expect(code).toBe(0);
  expect(stdout).toContain('12000 calls: 12000 ok');
});
