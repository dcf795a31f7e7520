/** The official client and server, direct and through `belay proxy --http`, with taps before and after the proxy. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { connect, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkTrace, readTrace } from '@belay/trace';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { readTurns, type Turn } from '../src/turns.js';
import { contentOf, endAll, later, listen, ofType } from './http-proxied.js';
import { freshFolder, node, program, recordsIn, start, tracesIn } from './proxied.js';

const EVERYTHING = join(
  dirname(createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/package.json')),
  'dist/index.js',
);

type Mode = 'streamableHttp' | 'sse';
const PATH: Readonly<Record<Mode, string>> = { streamableHttp: '/mcp', sse: '/sse' };

/** Starts the server and waits until something listens on its port. */
async function everything(mode: Mode): Promise<{ child: ChildProcess; port: number }> {
  const port = await freePort();
  const child = spawn(node, [EVERYTHING, mode], {
    env: { ...process.env, PORT: String(port) },
    stdio: 'ignore',
  });
  for (let i = 0; ; i++) {
    const socket = connect(port, '127.0.0.1');
    const open = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ]).catch(() => false);
    socket.destroy();
    if (open) return { child, port };
    if (i > 200) throw new Error('the server does not listen');
    await sleep(50);
  }
}

async function freePort(): Promise<number> {
  const port = await listen(() => undefined);
  await endAll();
  return port;
}

/** All bytes of both directions of every connection through it. */
interface Tap {
  readonly port: number;
  readonly connections: { c2s: Buffer[]; s2c: Buffer[] }[];
}

async function tap(target: () => number): Promise<Tap> {
  const connections: Tap['connections'] = [];
  const port = await listen((near: Socket) => {
    const seen = { c2s: [] as Buffer[], s2c: [] as Buffer[] };
    connections.push(seen);
    const far = connect(target(), '127.0.0.1');
    far.on('error', () => near.destroy());
    near.on('data', (bytes: Buffer) => {
      seen.c2s.push(bytes);
      far.write(bytes);
    });
    far.on('data', (bytes: Buffer) => {
      seen.s2c.push(bytes);
      near.write(bytes);
    });
    near.on('close', () => far.destroy());
    far.on('close', () => near.destroy());
  });
  return { port, connections };
}

const HOP = /^(connection|keep-alive|transfer-encoding|host):/i;

/** Messages of one direction of a connection: start line, fields that pass, body without its framing. */
function messages(bytes: Buffer, bodiless: (start: string) => boolean): string[] {
  const found: string[] = [];
  let text = bytes.toString('latin1');
  while (text.length > 0) {
    const end = text.indexOf('\r\n\r\n');
    if (end < 0) throw new Error(`no head: ${text.slice(0, 200)}`);
    const [startLine = '', ...fields] = text.slice(0, end).split('\r\n');
    text = text.slice(end + 4);
    let body = '';
    const length = fields.map((field) => /^content-length: *(\d+)/i.exec(field)?.[1]).find((each) => each);
    if (fields.some((field) => /^transfer-encoding: *chunked/i.test(field))) {
      for (let size = -1; size !== 0 && text.length > 0;) {
        const line = text.indexOf('\r\n');
        size = Number.parseInt(text.slice(0, line), 16);
        body += text.slice(line + 2, line + 2 + size);
        text = text.slice(line + 4 + size);
      }
    } else if (!bodiless(startLine)) {
      body = text.slice(0, Number(length ?? 0));
      text = text.slice(Number(length ?? 0));
    }
    found.push([startLine, ...fields.filter((field) => !HOP.test(field)), '', body].join('\n'));
  }
  return found;
}

/** What passed a tap, without regard to which connection carried it. */
function passed({ connections }: Tap): { c2s: string[]; s2c: string[] } {
  const of = (direction: 'c2s' | 's2c'): string[] =>
    connections
      .flatMap((each) => messages(Buffer.concat(each[direction]), () => false))
      .sort((a, b) => (a < b ? -1 : 1));
  return { c2s: of('c2s'), s2c: of('s2c') };
}

/** What the official client was told. A process of its own, as clients are. */
async function drive(mode: Mode, url: string): Promise<unknown> {
  return await told([program('http-client'), mode, url]);
}

/** What a client, a process of its own, printed of what it was told. */
async function told(client: readonly string[]): Promise<unknown> {
  const child = spawn(node, client, { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number];
  expect(code).toBe(0);
  return JSON.parse(text) as unknown;
}

/** client -> tap -> belay proxy --http -> tap -> server. `stop` returns the folder of the trace. */
async function between(
  serverPort: number,
  path: string,
): Promise<{ url: string; before: Tap; after: Tap; stop: () => Promise<string> }> {
  const after = await tap(() => serverPort);
  let port = 0;
  const before = await tap(() => port);
  const folder = freshFolder();
  const run = start(
    [
      'proxy',
      '--json',
      '--http',
      `http://127.0.0.1:${after.port}${path}`,
      '--allow-host',
      `127.0.0.1:${before.port}`,
    ],
    { BELAY_TRACE_DIR: folder },
  );
  later(() => void run.child.kill('SIGKILL'));
  await expect.poll(() => run.stdout().toString(), { timeout: 10_000 }).toContain('\n');
  const { url } = JSON.parse(run.stdout().toString()) as { url: string };
  expect(run.stderr()).toContain(`belay: proxy listening on ${url}\n`);
  port = Number(new URL(url).port);
  return {
    url: `http://127.0.0.1:${before.port}${path}`,
    before,
    after,
    stop: async () => {
      run.child.kill('SIGTERM');
      expect(await run.ended).toBe(0);
      return folder;
    },
  };
}

describe.each<Mode>(['streamableHttp', 'sse'])('server-everything %s', (mode) => {
  let server: { child: ChildProcess; port: number };
  beforeAll(async () => {
    server = await everything(mode);
  });
  afterAll(() => void server.child.kill('SIGKILL'));
  afterEach(endAll);

  const proxied = () => between(server.port, PATH[mode]);

  test('the client is told the same, direct and through the proxy, and the taps saw the same bytes', async () => {
    const direct = await drive(mode, `http://127.0.0.1:${server.port}${PATH[mode]}`);
    const { url, before, after, stop } = await proxied();
    expect(await drive(mode, url)).toEqual(direct);
    const folder = await stop();
    const [near, far] = [passed(before), passed(after)];
    expect(far.c2s).toEqual(near.c2s);
    expect(far.s2c).toEqual(near.s2c);
    expect(near.c2s.length).toBeGreaterThan(8);

    const [path] = tracesIn(folder) as [string];
    expect((await checkTrace(path)).problems).toEqual([]);
    const records = await recordsIn(folder);
    const frames = ofType(records, 'frame');
    // The client asks for a tool that does not exist. If the server says first that its list is another, as it does some
    // time after it was asked to log, that can't be told.
    const findings = frames.flatMap(({ findings: odd }) => odd ?? []);
    const isStale = findings.includes('TOOL_LIST_STALE');
    const others = findings.filter((finding) => finding !== 'TOOL_LIST_STALE');
    expect(isStale ? [[], ['TOOL_NOT_LISTED']] : [['TOOL_NOT_LISTED']]).toContainEqual(others);
    expect(frames.length).toBeGreaterThan(20);
    // The id of the session is a secret of the two peers.
    const session = /(?:mcp-session-id: |sessionId=)([0-9a-f-]{36})/i.exec(near.c2s.join('\n'))?.[1];
    expect(session).toBeDefined();
    expect(contentOf(folder)).not.toContain(session as string);
  });

  test('three clients at once do not mix', async () => {
    const { url, stop } = await proxied();
    const all = await Promise.all([drive(mode, url), drive(mode, url), drive(mode, url)]);
    expect(all[1]).toEqual(all[0]);
    expect(all[2]).toEqual(all[0]);
    const frames = ofType(await recordsIn(await stop()), 'frame');
    const conversations = new Set(frames.map(({ conversation }) => conversation));
    // Over streamable HTTP, what opens a session is not yet part of it.
    expect(conversations.size).toBe(mode === 'sse' ? 3 : 6);
  });
});

describe.each([
  ['a server of the official library', '2026-07-28', modern],
  ['server-everything, which does not speak it', '2025-11-25', () => everything('streamableHttp')],
] as const)('the official client of 2026-07-28 and %s', (_, version, startServer) => {
  let server: { child: ChildProcess; port: number };
  beforeAll(async () => {
    server = await startServer();
  });
  afterAll(() => void server.child.kill('SIGKILL'));
  afterEach(endAll);

  test('is told the same, direct and through the proxy, and the taps saw the same bytes', async () => {
    const client = [program('modern-client'), 'auto', 'http'];
    const direct = await told([...client, `http://127.0.0.1:${server.port}/mcp`]);
    const { url, before, after, stop } = await between(server.port, '/mcp');
    expect(await told([...client, url])).toEqual(direct);
    const folder = await stop();
    const [near, far] = [passed(before), passed(after)];
    expect(far.c2s).toEqual(near.c2s);
    expect(far.s2c).toEqual(near.s2c);
    const [path] = tracesIn(folder) as [string];
    expect((await checkTrace(path)).problems).toEqual([]);
    // The probe, and what was decided by its answer, are on record whichever way it went: an old server refuses it by a
    // status of HTTP and an answer without an id.
    const turns: Turn[] = [];
    for await (const item of readTurns(readTrace(path))) if (item.type === 'turn') turns.push(item);
    expect(turns[0]).toMatchObject({
      method: 'server/discover',
      outcome: version === '2026-07-28' ? 'ok' : 'unanswered',
    });
    expect(turns.find(({ method }) => method === 'initialize')?.protocol).toBe(
      version === '2026-07-28' ? undefined : version,
    );
    const asked = turns.find(({ outcome }) => outcome === 'input_required');
    expect(
      turns.filter(({ continues }) => continues !== undefined && continues === asked?.call),
    ).toHaveLength(version === '2026-07-28' ? 1 : 0);
  });
});

/** A server of the official library that speaks 2026-07-28. */
async function modern(): Promise<{ child: ChildProcess; port: number }> {
  const child = spawn(node, [program('modern-server'), 'http'], { stdio: ['ignore', 'ignore', 'pipe'] });
  const [port] = (await once(child.stderr, 'data')) as [Buffer];
  return { child, port: Number(port.toString()) };
}
