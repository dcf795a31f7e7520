/** `belay proxy` with a boundary: real servers live in it, what it refuses is on record in its turn, nothing outlives it. */

import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { SmallCollector } from '@belay/testkit';
import { checkTrace, type TraceRecord } from '@belay/trace';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import {
  alive,
  BELAY,
  freshFolder,
  node,
  program,
  recordsIn,
  start,
  type Started,
  tracesIn,
} from './proxied.js';

/** The folder of an official server's package, from the development dependencies. */
const official = (name: string): string =>
  dirname(createRequire(import.meta.url).resolve(`@modelcontextprotocol/${name}/package.json`));

let home: string;
let workspace: string;
let elsewhere: string;
let traces: string;
beforeEach(() => {
  home = realpathSync(freshFolder());
  [workspace, elsewhere, traces] = ['ws', 'else', 'traces'].map((name) => join(home, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(workspace);
  mkdirSync(elsewhere);
  writeFileSync(join(elsewhere, 'file'), 'kept\n');
});

const inside = (...more: string[]): string[] => [
  'proxy',
  '--trace',
  traces,
  '--workspace',
  workspace,
  '--no-snapshots',
  ...more,
];

async function connected(
  options: readonly string[],
  server: readonly string[],
  env: Record<string, string> = {},
): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(
    new StdioClientTransport({
      command: node,
      args: [BELAY, ...options, '--', ...server],
      env: { PATH: process.env['PATH'] ?? '', HOME: home, ...env },
      stderr: 'ignore',
    }),
  );
  return client;
}

const textOf = async (client: Client, name: string, args: Record<string, unknown>): Promise<string> => {
  const { content } = (await client.callTool({ name, arguments: args })) as { content: { text?: string }[] };
  return content.map(({ text }) => text ?? '').join('\n');
};

const denialsIn = (records: readonly TraceRecord[]): string[] =>
  records.flatMap((record) =>
    record.type === 'denial' ? [`${record.op ?? ''} ${record.path ?? record.address ?? ''}`] : [],
  );

/** Of the only trace, once it is closed: intact, and its records. */
async function recorded(): Promise<TraceRecord[]> {
  const [path] = tracesIn(traces) as [string];
  await expect.poll(async () => (await checkTrace(path)).problems).toEqual([]);
  return recordsIn(traces);
}

describe('servers as they come run under the default profile', () => {
  test('server-filesystem', async () => {
    const client = await connected(inside('--sandbox', 'default'), [
      node,
      join(official('server-filesystem'), 'dist', 'index.js'),
      workspace,
      elsewhere,
    ]);
    expect((await client.listTools()).tools.length).toBeGreaterThan(5);
    expect(await textOf(client, 'write_file', { path: join(workspace, 'a'), content: 'x' })).toContain(
      'Successfully',
    );
    expect(await textOf(client, 'read_text_file', { path: join(workspace, 'a') })).toBe('x');
    expect(await textOf(client, 'write_file', { path: join(elsewhere, 'a'), content: 'x' })).toContain(
      'EROFS',
    );
    await client.close();
    expect(existsSync(join(elsewhere, 'a'))).toBe(false);
    const records = await recorded();
    expect(denialsIn(records)).toEqual([`create ${join(elsewhere, 'a')}`]);
    expect(records[0]).toMatchObject({
      type: 'open',
      sandbox: {
        backend: 'bwrap',
        profile: 'default',
        network: 'deny',
        naming: 'named',
        roots: [workspace],
        canary: { read: true, write: true, connect: true },
      },
    });
  });

  test('server-everything, started by npx from what an earlier npx has left', async () => {
    const spec = '@modelcontextprotocol/server-everything@latest';
    const key = createHash('sha512').update(spec).digest('hex').slice(0, 16);
    const cache = join(home, '.npm', '_npx', key);
    mkdirSync(cache, { recursive: true });
    symlinkSync(join(official('server-everything'), '..', '..'), join(cache, 'node_modules'));
    const client = await connected(inside('--sandbox', 'default'), ['npx', '-y', spec]);
    expect(await textOf(client, 'echo', { message: 'hello' })).toContain('hello');
    expect((await client.listTools()).tools.length).toBeGreaterThan(3);
    await client.close();
    const records = await recorded();
    expect(denialsIn(records)).toEqual([]);
    expect(records[0]).toMatchObject({ command: { runner: { name: 'npx', spec, resolved: true } } });
  });

  test('server-memory', async () => {
    const client = await connected(
      inside('--sandbox', 'default'),
      [node, join(official('server-memory'), 'dist', 'index.js')],
      { MEMORY_FILE_PATH: join(workspace, 'memory.jsonl') },
    );
    await client.callTool({
      name: 'create_entities',
      arguments: { entities: [{ name: 'a', entityType: 't', observations: ['o'] }] },
    });
    expect(await textOf(client, 'read_graph', {})).toContain('"a"');
    await client.close();
    expect(readFileSync(join(workspace, 'memory.jsonl'), 'utf8')).toContain('"a"');
    expect(denialsIn(await recorded())).toEqual([]);
  });

  test('a server in Python, with all that Python does', async () => {
    const script = program('server').replace(/server\.mjs$/, 'server.py');
    const client = await connected(inside('--sandbox', 'default'), ['python3', script]);
    expect(await textOf(client, 'life', { folder: workspace })).toBe('sub [1, 4, 9, 1] own');
    await client.close();
    expect(denialsIn(await recorded())).toEqual([]);
  });
});

/** `belay proxy ... -- worker`, spoken to line by line. */
class Worker {
  readonly run: Started;
  #id = 0;

  /** `elsewhere` stands in its command line, or nothing of it would be there: it lies in the folder for temporary files. */
  constructor(options: readonly string[], env: Record<string, string> = {}) {
    this.run = start([...options, '--', node, program('worker'), join(workspace, 'ended'), elsewhere], {
      HOME: home,
      ...env,
    });
    onTestFinished(() => void this.run.child.kill('SIGKILL'));
  }

  async call(name: string, args: Record<string, unknown>): Promise<string> {
    const id = ++this.#id;
    this.run.child.stdin.write(
      `${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } })}\n`,
    );
    let answer: { id: number; result: { content: { text: string }[] } } | undefined;
    await expect
      .poll(
        () => {
          const lines = this.run.stdout().toString().split('\n').slice(0, -1);
          answer = lines.map((line) => JSON.parse(line) as typeof answer).find((each) => each?.id === id);
          return answer !== undefined;
        },
        { interval: 5, timeout: 20_000 },
      )
      .toBe(true);
    return answer?.result.content[0]?.text ?? '';
  }

  end(): Promise<number | string> {
    this.run.child.stdin.end();
    return this.run.ended;
  }
}

describe('what is refused', () => {
  test('is a record and an envelope in the turn that it belongs to', async () => {
    const collector = new SmallCollector();
    onTestFinished(() => collector.close());
    const state = join(home, 'state');
    const env = { BELAY_URL: await collector.listen(), BELAY_TOKEN: collector.token, BELAY_STATE: state };
    const worker = new Worker(inside('--sandbox', 'default'), env);
    const port = 9;
    expect(await worker.call('write', { path: join(workspace, 'a') })).toBe('done');
    expect(await worker.call('write', { path: join(elsewhere, 'file') })).toBe('EROFS');
    expect(await worker.call('read', { path: join(workspace, 'a') })).toBe('written\n');
    expect(await worker.call('connect', { port, host: '192.0.2.1' })).toBe('ENETUNREACH');
    // Our own evidence and secrets, by their paths.
    expect(await worker.call('list', { path: state })).toMatch(/^$|EACCES|ENOENT/);
    expect(await worker.call('list', { path: traces })).toMatch(/^$|EACCES|ENOENT/);
    expect(await worker.end()).toBe(0);
    const records = await recorded();
    const story = records.flatMap((record) =>
      record.type === 'frame'
        ? [record.dir]
        : record.type === 'denial'
          ? [`${record.op ?? ''} ${record.errno ?? ''}`]
          : [],
    );
    expect(story.slice(0, 10)).toEqual([
      'c2s',
      's2c',
      'c2s',
      'write EROFS',
      's2c',
      'c2s',
      's2c',
      'c2s',
      'connect ENETUNREACH',
      's2c',
    ]);
    const write = records.find((record) => record.type === 'denial');
    expect(write).toMatchObject({
      syscall: 'openat',
      path: join(elsewhere, 'file'),
      class: 'file-system',
      naming: 'named',
    });
    const envelopes = collector.envelopes();
    const opening = envelopes.find(({ kind }) => kind === 'session.open');
    expect(opening?.attrs).toMatchObject({
      sandbox: 'bwrap',
      network: 'deny',
      policy: expect.stringMatching(/^hmac-sha256:[0-9a-f]{64}$/),
    });
    const turns = envelopes.filter(({ kind }) => ['call', 'result', 'denial'].includes(kind));
    expect(turns.map(({ kind }) => kind).slice(0, 9)).toEqual([
      'call',
      'result',
      'call',
      'denial',
      'result',
      'call',
      'result',
      'call',
      'denial',
    ]);
    expect(turns[3]?.attrs).toEqual({ op: 'write', errno: 'EROFS', class: 'file-system', count: 1 });
    expect([turns[3]?.seq]).toEqual(write?.seqs);
    expect(JSON.stringify(envelopes)).not.toContain(elsewhere);
    const policy = records.find(({ type }) => type === 'policy');
    expect(policy).toMatchObject({
      digest: (records[0] as { sandbox?: { policy: string } }).sandbox?.policy,
      policy: { roots: [workspace] },
    });
  });

  test('is what the policy says: options over the file, the environment as the reference system has it', async () => {
    const server = createServer((socket) => socket.end('outside'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const secret = join(workspace, 'secret');
    writeFileSync(secret, 'secret\n');
    const file = join(home, 'policy.yaml');
    writeFileSync(file, `version: 1\nsandbox:\n  hide: [ws/secret]\n  roots: [else]\n  limits: {cpu: 60}\n`);
    const worker = new Worker(['proxy', '--trace', traces, '--no-snapshots', '--policy', file], {
      BELAY_SANDBOX_SCOPE: workspace,
      BELAY_SANDBOX_NETWORK: `allow-ports:${port},9`,
    });
    expect(await worker.call('connect', { port, host: '127.0.0.1' })).toBe('outside');
    expect(await worker.call('read', { path: secret })).toBe('EACCES');
    expect(await worker.call('write', { path: join(elsewhere, 'a') })).toBe('done');
    expect(await worker.call('write', { path: join(workspace, 'a') })).toBe('done');
    expect(await worker.end()).toBe(0);
    const [opening] = await recorded();
    expect(opening).toMatchObject({
      sandbox: {
        network: 'ports',
        ports: [9, port].sort((a, b) => a - b),
        roots: [elsewhere, workspace],
        limits: [{ limit: 'cpu', value: 60, by: 'rlimit' }],
      },
    });
  });

  test('is warned of where the policy can be changed by whom it is for', async () => {
    const file = join(workspace, 'policy.json');
    writeFileSync(file, JSON.stringify({ version: 1, sandbox: { profile: 'strict' } }));
    const worker = new Worker(inside('--policy', file));
    expect(await worker.call('read', { path: file })).toContain('strict');
    expect(await worker.end()).toBe(0);
    expect(worker.run.stderr()).toContain('the policy lies in a folder that the server may write');
    expect((await recorded())[0]).toMatchObject({ sandbox: { profile: 'strict' } });
  });

  test('is nothing where none is asked for by name, and the record says so', async () => {
    const worker = new Worker(inside('--sandbox', 'none'));
    expect(await worker.call('write', { path: join(elsewhere, 'a') })).toBe('done');
    expect(await worker.end()).toBe(0);
    const [opening] = await recorded();
    expect(opening).toMatchObject({ sandbox: { backend: 'none', network: 'allow' } });
  });
});

describe('a boundary that can not be had', () => {
  const tried = async (
    options: readonly string[],
    env: Record<string, string> = {},
  ): Promise<[number | string, string]> => {
    const run = start([...options, '--', node, program('worker')], { HOME: home, ...env });
    run.child.stdin.end();
    return [await run.ended, run.stderr()];
  };

  test('is an error before anything is started', async () => {
    const policy = (text: string): string => {
      const file = join(home, 'policy.yaml');
      writeFileSync(file, `version: 1\nsandbox:\n${text}`);
      return file;
    };
    const cases: [string[], number, string, Record<string, string>?][] = [
      [['--policy', policy('  roots:\n    - /x\n  netwrok: deny\n')], 65, 'line 5'],
      [['--policy', join(home, 'missing.yaml')], 65, 'missing.yaml'],
      [['--sandbox', 'strict'], 65, 'unix sockets', { BELAY_SANDBOX_NETWORK: 'allow-ports:1' }],
      [['--sandbox', 'default'], 65, 'network policy', { BELAY_SANDBOX_NETWORK: 'allow-port:1' }],
      [['--sandbox', 'default', '--workspace', join(home, 'no-such-folder')], 65, 'no-such-folder'],
      [['--sandbox', 'open'], 64, 'open'],
    ];
    for (const [options, exit, message, env] of cases) {
      if (options[1] === join(home, 'policy.yaml')) policy('  roots:\n    - /x\n  netwrok: deny\n');
      const [code, stderr] = await tried(['proxy', '--trace', traces, '--no-snapshots', ...options], env);
      expect(stderr, options.join(' ')).toContain(message);
      expect(stderr, options.join(' ')).not.toContain('up\n');
      expect(code, options.join(' ')).toBe(exit);
    }
    const seatbelt = policy('  backend: seatbelt\n');
    expect((await tried(['proxy', '--policy', seatbelt]))[0]).toBe(69);
    const remote = start(['proxy', '--http', 'http://127.0.0.1:9/mcp', '--sandbox', 'default'], {
      HOME: home,
    });
    expect(await remote.ended).toBe(64);
    const missing = start([...inside('--sandbox', 'default'), '--', 'belay-no-such-program'], { HOME: home });
    expect([await missing.ended, missing.stderr()]).toEqual([
      127,
      expect.stringContaining('no such program'),
    ]);
  });
});

test('an ordinary user has all of it', async () => {
  // Whoever is none may become one; everybody else is one.
  const root = process.geteuid?.() === 0;
  const other = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', node] as const;
  if (root) spawnSync('chown', ['-R', '65534:65534', home]);
  const proxy = [BELAY, ...inside('--sandbox', 'default'), '--'];
  const server = [node, program('worker'), join(workspace, 'ended'), elsewhere];
  const [command, ...args] = root ? other : ([node] as const);
  const child = spawn(command, [...args, ...proxy, ...server], {
    env: { PATH: process.env['PATH'], HOME: home },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  for (const [id, path] of [join(elsewhere, 'file'), join(workspace, 'a')].entries()) {
    const params = { name: 'write', arguments: { path } };
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params })}\n`);
  }
  child.stdin.end();
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  await once(child, 'close');
  expect(text).toMatch(/EROFS[^]*done/);
  expect(readFileSync(join(elsewhere, 'file'), 'utf8')).toBe('kept\n');
  const records = await recorded();
  expect(denialsIn(records)).toEqual([`write ${join(elsewhere, 'file')}`]);
  expect(records[0]).toMatchObject({ sandbox: { backend: 'bwrap', naming: 'named' } });
});

describe('the life of a server inside', () => {
  /** Numbers of the server's processes, its boundary's included. */
  const processesOf = (proxy: number): number[] => {
    const children = (pid: number): number[] => {
      try {
        const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
        return text.split(' ').filter(Boolean).map(Number);
      } catch {
        return [];
      }
    };
    const all = (pid: number): number[] => children(pid).flatMap((child) => [child, ...all(child)]);
    return all(proxy);
  };

  test('ends in order when it is asked to, with its own exit code', async () => {
    const worker = new Worker(inside('--sandbox', 'default'));
    await expect.poll(() => worker.run.stderr(), { timeout: 20_000 }).toContain('up');
    worker.run.child.kill('SIGTERM');
    expect(await worker.run.ended).toBe(3);
    expect(readFileSync(join(workspace, 'ended'), 'utf8')).toBe('in order\n');
  });

  test.each(['default', 'strict'])('leaves no process when the proxy is killed (%s)', async (profile) => {
    const worker = new Worker(inside('--sandbox', profile));
    await expect.poll(() => worker.run.stderr(), { timeout: 20_000 }).toContain('up');
    void worker.call('run', { program: 'setsid', args: ['sleep', '600'] }).catch(() => undefined);
    await expect
      .poll(() => processesOf(worker.run.child.pid as number).length, { timeout: 20_000 })
      .toBeGreaterThanOrEqual(6);
    const pids = processesOf(worker.run.child.pid as number);
    worker.run.child.kill('SIGKILL');
    await expect.poll(() => pids.filter(alive), { timeout: 20_000 }).toEqual([]);
  });
});
