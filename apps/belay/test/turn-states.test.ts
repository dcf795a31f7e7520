import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { machineSecret } from '@belay/client';
import { sessionKey, stateId } from '@belay/envelope';
import { Store } from '@belay/snapshot';
import { SmallCollector } from '@belay/testkit';
import { checkTrace, repairTrace, type TraceRecord, type WorkspaceState } from '@belay/trace';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { BELAY, node, program, recordedBytes, recordsIn, start, type Started, tracesIn } from './proxied.js';

const require = createRequire(import.meta.url);

let folder: string;
let workspace: string;
let traces: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'belay-turns-')));
  workspace = join(folder, 'workspace');
  traces = join(folder, 'traces');
  mkdirSync(workspace);
  writeFileSync(join(workspace, 'a.txt'), 'alpha\n');
});

/** A proxy before the server that does as it is told; asks one thing after the other. */
class Session {
  readonly run: Started;
  readonly sent: Buffer[] = [];
  #id = 0;

  constructor(options: readonly string[] = [], env: Record<string, string> = {}) {
    // A machine that is busy with other tests is no reason to let a call go.
    const patient = ['--hold-limit', '60000'];
    const server = [node, program('workspace-server')];
    const args = ['proxy', '--workspace', workspace, ...patient, ...options, '--', ...server];
    this.run = start(args, { BELAY_STATE: join(folder, 'state'), BELAY_TRACE_DIR: traces, ...env });
  }

  send(message: object): void {
    const line = Buffer.from(`${JSON.stringify(message)}\n`);
    this.sent.push(line);
    this.run.child.stdin.write(line);
  }

  call(name: string, args: object = {}): number {
    const id = ++this.#id;
    this.send({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });
    return id;
  }

  ping(): number {
    const id = ++this.#id;
    this.send({ jsonrpc: '2.0', id, method: 'ping' });
    return id;
  }

  /** Resolves with the text of the answer. */
  async answer(id: number): Promise<string> {
    let found: string | undefined;
    await expect
      .poll(() => (found = this.answers().find((each) => each.id === id)?.text), { interval: 5 })
      .toBeDefined();
    return found as string;
  }

  answers(): { id: number; text: string }[] {
    return this.run
      .stdout()
      .toString()
      .split('\n')
      .slice(0, -1)
      .map((line) => {
        const { id, result } = JSON.parse(line) as { id: number; result: { content: [{ text: string }] } };
        return { id, text: result.content[0].text };
      });
  }

  write(name: string, text = name): Promise<string> {
    return this.answer(this.call('write', { path: join(workspace, name), text }));
  }

  /** Until the first look at the workspace is on record: a ping that comes after it. */
  async ready(): Promise<void> {
    await expect
      .poll(async () => {
        if (!existsSync(traces)) return 0;
        return (await recordsIn(traces)).filter(({ type }) => type === 'state').length;
      })
      .toBeGreaterThan(0);
  }

  async end(): Promise<TraceRecord[]> {
    this.run.child.stdin.end();
    expect(await this.run.ended).toBe(0);
    const [path] = tracesIn(traces) as [string];
    expect((await checkTrace(path)).problems).toEqual([]);
    return recordsIn(traces);
  }
}

type State = TraceRecord & { type: 'state' } & WorkspaceState;

const statesOf = (records: readonly TraceRecord[]): State[] =>
  records.flatMap((record) => (record.type === 'state' ? [record] : []));

/** `open`, `pre1`, `post1/1`, `close`, each with what is odd about it. */
const shown = (records: readonly TraceRecord[]): string[] =>
  statesOf(records).map(
    ({ phase, group, calls, cause, drift }) =>
      `${phase}${group ?? ''}${calls === undefined ? '' : `/${calls}`}${cause === undefined ? '' : ` ${cause}`}${drift === undefined ? '' : ` drift:${drift}`}`,
  );

const digestOf = (records: readonly TraceRecord[], phase: string, group?: number): string =>
  statesOf(records).find((each) => each.phase === phase && each.group === group)?.state ?? 'none';

/** Content of a file in a state, as the store gives it. */
function fileIn(store: string, digest: string, name: string): string | undefined {
  const opened = Store.open(store);
  try {
    const entry = opened.manifest(digest).get(0, Buffer.from(name));
    return entry?.content && opened.content(entry.content).toString();
  } finally {
    opened.close();
  }
}

test('every call has the state before it and the one after it, and they can be had from the store', async () => {
  const session = new Session();
  await session.ready();
  await session.write('b.txt', 'one');
  await session.answer(session.call('read'));
  await session.write('b.txt', 'two');
  const records = await session.end();
  expect(shown(records)).toEqual(['open', 'pre1', 'post1/1', 'pre2', 'post2/1', 'pre3', 'post3/1', 'close']);
  const store = join(folder, 'state', 'snapshots');
  const content = (phase: string, group?: number): string | undefined =>
    fileIn(store, digestOf(records, phase, group), 'b.txt');
  expect([
    content('open'),
    content('pre', 1),
    content('post', 1),
    content('pre', 3),
    content('close'),
  ]).toEqual([undefined, undefined, 'one', 'one', 'two']);
  expect(digestOf(records, 'pre', 2)).toBe(digestOf(records, 'post', 2));
  const [opening, , post] = statesOf(records);
  expect(opening).toMatchObject({ roots: [workspace], ignored: [], store, entries: 2 });
  expect(post?.changed).toEqual({ created: 1, modified: 0, deleted: 0, metadata: 1 });
  expect(recordedBytes(records, 'c2s')).toEqual(Buffer.concat(session.sent));
});

test('in the trace, a call stands between its states, whatever overtook it', async () => {
  for (let at = 0; at < 3_000; at++) writeFileSync(join(workspace, `f${at}`), `${at}`);
  const session = new Session();
  const call = session.call('write', { path: join(workspace, 'b.txt'), text: 'one' });
  const ping = session.ping();
  await session.answer(ping);
  await session.answer(call);
  expect(await session.answer(session.call('seen'))).toBe('ping tools/call:write tools/call:seen');
  expect(session.answers().map(({ id }) => id)).toEqual([ping, call, 3]);
  const records = await session.end();
  const order = records.flatMap((record) => {
    if (record.type === 'state') return [`${record.phase}${record.group ?? ''}`];
    if (record.type !== 'frame') return [];
    const { id, method } = JSON.parse(Buffer.from(record.data as string, 'base64').toString()) as {
      id: number;
      method?: string;
    };
    return [`${method === undefined ? 'answer' : method} ${id}`];
  });
  expect(order.filter((each) => each !== 'open' && !each.includes('2'))).toEqual([
    'pre1',
    'tools/call 1',
    'answer 1',
    'post1',
    'tools/call 3',
    'answer 3',
    'close',
  ]);
  expect(order.indexOf('ping 2')).toBeLessThan(order.indexOf('pre1'));
});

test('past the limit a call goes, and the trace says that there is no state', async () => {
  const session = new Session(['--hold-limit', '0']);
  await session.write('b.txt');
  const records = await session.end();
  expect(shown(records)).toContain('pre1 HOLD_LIMIT');
  expect(statesOf(records).at(-1)).toMatchObject({
    phase: 'close',
    state: expect.stringMatching(/^sha256:/) as string,
  });
});

test('calls that overlap are one group; a batch is one frame; a cancelled call is over', async () => {
  const session = new Session();
  await session.ready();
  const open = session.call('open');
  await session.write('b.txt');
  await session.answer(session.call('close'));
  await session.answer(open);
  session.send(
    [10, 11].map((id) => ({
      jsonrpc: '2.0',
      id,
      method: 'tools/call',
      params: { name: 'write', arguments: { path: join(workspace, `${id}`), text: 'x' } },
    })),
  );
  await session.answer(10);
  await session.answer(11);
  const late = session.call('later', { path: join(workspace, 'late.txt') });
  session.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: late } });
  // The state after it is on record before the next thing happens.
  await expect.poll(async () => shown(await recordsIn(traces))).toContain('post3/1');
  session.send({ jsonrpc: '2.0', method: 'notifications/now' });
  await expect.poll(() => existsSync(join(workspace, 'late.txt'))).toBe(true);
  await session.answer(session.call('read'));
  expect(shown(await session.end())).toEqual([
    'open',
    'pre1',
    'post1/3',
    'pre2',
    'post2/2',
    'pre3',
    'post3/1',
    'pre4 drift:outside',
    'post4/1',
    'close',
  ]);
});

test('what happens between two calls is drift: of the server where it left something running, else from outside', async () => {
  const session = new Session();
  await session.ready();
  await session.answer(session.call('read'));
  writeFileSync(join(workspace, 'mine.txt'), 'mine');
  const when = join(folder, 'when');
  await session.answer(session.call('child', { path: join(workspace, 'child.txt'), when }));
  writeFileSync(when, '');
  await expect.poll(() => existsSync(join(workspace, 'child.txt'))).toBe(true);
  await session.answer(session.call('read'));
  const records = await session.end();
  expect(shown(records).slice(0, 7)).toEqual([
    'open',
    'pre1',
    'post1/1',
    'pre2 drift:outside',
    'post2/1',
    'pre3 drift:server',
    expect.stringMatching(/^post3/),
  ]);
});

test('several roots are one state; our own folders in one are not the workspace', async () => {
  const second = join(folder, 'second');
  mkdirSync(second);
  const state = join(workspace, '.belay');
  const session = new Session(['--workspace', second, '--ignore', '*.log'], {
    BELAY_STATE: state,
    BELAY_TRACE_DIR: join(workspace, 'traces'),
  });
  traces = join(workspace, 'traces');
  await session.ready();
  await session.write('noise.log');
  await session.answer(session.call('write', { path: join(second, 'c.txt'), text: 'c' }));
  const records = await session.end();
  const [opening, , log, , other] = statesOf(records);
  expect(opening).toMatchObject({
    roots: [second, workspace],
    ignored: ['*.log', state, join(state, 'snapshots'), join(workspace, 'traces')],
    entries: 3,
  });
  // The folder's own time, which the file that is left out has changed.
  expect(log?.changed).toEqual({ created: 0, modified: 0, deleted: 0, metadata: 1 });
  expect(other?.changed).toEqual({ created: 1, modified: 0, deleted: 0, metadata: 1 });
});

test.each([
  ['the file system', '/'],
  ['the home directory', 'HOME'],
  ['a file', 'FILE'],
])('%s is no workspace: that is said, on record, and nothing waits', async (_, what) => {
  const home = join(folder, 'home');
  mkdirSync(home);
  workspace = what === 'HOME' ? home : what === 'FILE' ? join(workspace, 'a.txt') : what;
  const session = new Session([], { HOME: home });
  await session.answer(session.call('read'));
  expect(session.run.stderr()).toContain('no states are kept');
  expect(shown(await session.end())).toEqual(['open WORKSPACE_UNSET']);
});

test('what can not be kept is named, and nothing waits for it', async () => {
  execFileSync('mkfifo', [join(workspace, 'pipe')]);
  const session = new Session();
  await session.answer(session.call('read'));
  const records = await session.end();
  expect(shown(records)).toEqual(['open FIFO', 'pre1 FIFO', 'post1/1 FIFO', 'close FIFO']);
  expect(statesOf(records)[1]?.path).toBe(join(workspace, 'pipe'));
});

test('a folder of states that is something else: no states, and the server is served', async () => {
  const store = join(folder, 'store');
  mkdirSync(store);
  writeFileSync(join(store, 'something'), 'else');
  const session = new Session(['--snapshots', store]);
  await session.answer(session.call('read'));
  expect(shown(await session.end())).toEqual([
    'open SNAPSHOT_UNAVAILABLE',
    'pre1 SNAPSHOT_UNAVAILABLE',
    'post1/1 SNAPSHOT_UNAVAILABLE',
    'close SNAPSHOT_UNAVAILABLE',
  ]);
  expect(session.run.stderr()).toContain('no states of the workspace are kept');
});

test('a workspace that is taken away while the server runs', async () => {
  const session = new Session();
  await session.ready();
  await session.answer(session.call('read'));
  renameSync(workspace, join(folder, 'elsewhere'));
  await session.answer(session.call('read'));
  expect(shown(await session.end()).slice(3)).toEqual([
    'pre2 ROOT_GONE',
    'post2/1 ROOT_GONE',
    'close ROOT_GONE',
  ]);
});

test('BELAY_SNAPSHOT_DIR is used by two servers at once, and again on the next day', async () => {
  const env = { BELAY_SNAPSHOT_DIR: join(folder, 'shared') };
  const digests = async (runs: readonly Session[]): Promise<string[]> => {
    for (const run of runs) await run.write(`by-${runs.indexOf(run)}`);
    for (const run of runs) run.run.child.stdin.end();
    for (const run of runs) expect(await run.run.ended).toBe(0);
    const found = [];
    for (const path of tracesIn(traces)) {
      renameSync(path, join(folder, 'one.jsonl'));
      mkdirSync(join(folder, 'one'));
      renameSync(join(folder, 'one.jsonl'), join(folder, 'one', 'one.jsonl'));
      found.push(...statesOf(await recordsIn(join(folder, 'one'))).map(({ state }) => state));
      rmSync(join(folder, 'one'), { recursive: true });
    }
    return found;
  };
  const first = await digests([new Session([], env), new Session([], env)]);
  const second = await digests([new Session([], env)]);
  const store = Store.open(env.BELAY_SNAPSHOT_DIR);
  for (const digest of [...first, ...second]) if (digest !== 'unrestorable') store.check(digest);
  expect([...first, ...second].filter((digest) => digest !== 'unrestorable').length).toBeGreaterThan(4);
  store.close();
});

test('killed at any moment: what the trace says of states is in the store, and the next run goes on', async () => {
  for (let round = 0; round < 4; round++) {
    rmSync(traces, { recursive: true, force: true });
    const session = new Session();
    await session.ready();
    let answered = 0;
    const writing = (async () => {
      for (let at = 0; at < 200; at++) {
        await session.write(`r${round}-${at}`, 'x'.repeat(5_000));
        answered++;
      }
    })().catch(() => undefined);
    await expect.poll(() => answered, { interval: 1 }).toBeGreaterThan(3 + 3 * round);
    session.run.child.kill('SIGKILL');
    await session.run.ended;
    await Promise.race([writing, Promise.resolve()]);
    const [path] = tracesIn(traces) as [string];
    await repairTrace(path, new Date().toISOString());
    const { problems } = await checkTrace(path);
    expect(problems.map(({ code }) => code)).toEqual(['missing_close']);
    const states = statesOf(await recordsIn(traces));
    expect(states.length).toBeGreaterThan(4);
    const store = Store.open(join(folder, 'state', 'snapshots'));
    for (const { state } of states) if (state !== 'unrestorable') store.check(state);
    store.close();
  }
});

describe('what leaves the machine', () => {
  let collector: SmallCollector;
  afterEach(() => collector.close());

  test('of a state, a digest that means nothing elsewhere', async () => {
    collector = new SmallCollector();
    const url = await collector.listen();
    const session = new Session([], { BELAY_URL: url, BELAY_TOKEN: collector.token });
    await session.ready();
    await session.write('b.txt');
    unlinkSync(join(workspace, 'b.txt'));
    await session.answer(session.call('read'));
    const records = await session.end();
    const sent = collector.envelopes().filter(({ kind }) => kind === 'state');
    const recorded = statesOf(records);
    expect(sent.map(({ seq }) => [seq])).toEqual(recorded.map(({ seqs }) => seqs));
    const [opening] = records as [TraceRecord & { type: 'open' }];
    const key = sessionKey(machineSecret(join(folder, 'state')), opening.session);
    expect(sent.map(({ attrs }) => attrs?.['state'])).toEqual(
      recorded.map(({ state }) => stateId(key, state)),
    );
    expect(
      sent.map(({ attrs }) => [attrs?.['phase'], attrs?.['files'], attrs?.['changed'], attrs?.['drift']]),
    ).toEqual([
      ['open', 2, undefined, undefined],
      ['pre', 2, 0, undefined],
      ['post', 3, 2, undefined],
      ['pre', 2, 2, true],
      ['post', 2, 0, undefined],
      ['close', 2, 0, undefined],
    ]);
    // A state before a call has its number before the call.
    const order = collector
      .envelopes()
      .map(({ kind, attrs }) => (kind === 'state' ? attrs?.['phase'] : kind));
    expect(order.slice(order.indexOf('pre'), order.indexOf('pre') + 4)).toEqual([
      'pre',
      'call',
      'result',
      'post',
    ]);
  });
});

test('server-filesystem, driven by the official client', async () => {
  const server = join(
    dirname(require.resolve('@modelcontextprotocol/server-filesystem/package.json')),
    'dist/index.js',
  );
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(
    new StdioClientTransport({
      command: node,
      args: [
        BELAY,
        'proxy',
        '--hold-limit',
        '60000',
        '--workspace',
        workspace,
        '--',
        node,
        server,
        workspace,
      ],
      env: {
        BELAY_STATE: join(folder, 'state'),
        BELAY_TRACE_DIR: traces,
        HOME: folder,
        PATH: process.env['PATH'] ?? '',
      },
      stderr: 'ignore',
    }),
  );
  const tool = (name: string, args: Record<string, unknown>): Promise<unknown> =>
    client.callTool({ name, arguments: args });
  await tool('write_file', { path: join(workspace, 'b.txt'), content: 'b'.repeat(100_000) });
  await Promise.all([
    tool('edit_file', { path: join(workspace, 'a.txt'), edits: [{ oldText: 'alpha', newText: 'beta' }] }),
    tool('create_directory', { path: join(workspace, 'd') }),
  ]);
  await tool('move_file', { source: join(workspace, 'a.txt'), destination: join(workspace, 'd', 'c.txt') });
  await client.close();
  await expect.poll(async () => shown(await recordsIn(traces)).at(-1)).toBe('close');
  const records = await recordsIn(traces);
  const groups = statesOf(records).flatMap(({ calls }) => calls ?? []);
  expect(groups.reduce((sum, count) => sum + count, 0)).toBe(4);
  expect(shown(records).filter((each) => each.includes(' '))).toEqual([]);
  const last = digestOf(records, 'close');
  const store = join(folder, 'state', 'snapshots');
  expect(fileIn(store, last, 'd/c.txt')).toBe('beta\n');
  expect(fileIn(store, digestOf(records, 'post', 1), 'b.txt')).toHaveLength(100_000);
}, 60_000);
