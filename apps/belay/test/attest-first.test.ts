import { realpathSync, writeFileSync, mkdirSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { ForwardEvent } from '@belay/client';
import { problem, SmallCollector } from '@belay/testkit';
import { checkTrace, recordData, type TraceRecord } from '@belay/trace';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { AttestFirst } from '../src/attest-first.js';
import { freshFolder, node, program, recordsIn, start, type Started, tracesIn } from './proxied.js';

describe('how long a call is held', () => {
  const LIMIT = 2_000;
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  const settled = (last: number, ms = 5): ForwardEvent => ({
    type: 'settled',
    sink: 'proxy',
    epoch: 'e',
    lines: 1,
    seqs: [1, last],
    duplicates: 0,
    signed: true,
    indexes: [0, 0],
    head: { size: 1, root: '', signature: '' },
    ms,
  });
  const opened = (
    parts: { spooled?: boolean; stopped?: boolean } = {},
  ): { first: AttestFirst; urged: () => number; away: () => number } => {
    let urged = 0;
    let away = 0;
    const first = new AttestFirst({
      limit: LIMIT,
      spooled: () => parts.spooled ?? true,
      stopped: () => parts.stopped ?? false,
      urge: () => urged++,
      onAway: () => away++,
    });
    return { first, urged: () => urged, away: () => away };
  };
  const timeUp = async (waiting: Promise<unknown>): Promise<unknown> => {
    await vi.advanceTimersByTimeAsync(LIMIT);
    return await waiting;
  };

  test('until its line is acknowledged, which is asked for at once; not by the lines of others', async () => {
    const { first, urged } = opened();
    const ends: string[] = [];
    const waiting = [3, 5].map((seq) =>
      first.acknowledged(seq).then((odd) => ends.push(`${seq} ${odd ?? 'ok'}`)),
    );
    expect(urged()).toBe(2);
    first.observe(settled(9), false);
    first.observe(settled(2), true);
    await vi.advanceTimersByTimeAsync(1);
    expect(ends).toEqual([]);
    first.observe(settled(4), true);
    await waiting[0];
    expect(ends).toEqual(['3 ok']);
    first.observe(settled(5), true);
    await waiting[1];
    // What was acknowledged before it was asked for is not waited for.
    expect(await first.acknowledged(4)).toBeUndefined();
  });

  test('a collector that is away costs one call its time, until it has answered within it', async () => {
    const { first, away } = opened();
    expect(await timeUp(first.acknowledged(1))).toBe('ATTEST_TIME_UP');
    expect(await first.acknowledged(2)).toBe('ATTEST_AWAY');
    // One that takes longer than a call may be held would cost every other call as much.
    first.observe(settled(2, LIMIT + 1), true);
    expect(await first.acknowledged(3)).toBe('ATTEST_AWAY');
    first.observe(settled(3), true);
    expect(await timeUp(first.acknowledged(4))).toBe('ATTEST_TIME_UP');
    expect(away()).toBe(1);
  });

  test('what will never be acknowledged is not waited for', async () => {
    expect(await opened({ spooled: false }).first.acknowledged(1)).toBe('ATTEST_NOT_SENT');
    expect(await opened({ stopped: true }).first.acknowledged(1)).toBe('ATTEST_STOPPED');
    expect(await opened().first.acknowledged(undefined)).toBe('ATTEST_NOT_SENT');
    const { first } = opened();
    const [refused, other] = [first.acknowledged(1), first.acknowledged(2)];
    const refusal = { line: 0, code: 'oversize', message: '' };
    first.observe({ type: 'refused', sink: 'proxy', epoch: 'e', seq: 1, refusal }, true);
    expect(await refused).toBe('ATTEST_REFUSED');
    first.observe({ type: 'stopped', error: new Error() as never }, true);
    expect(await other).toBe('ATTEST_STOPPED');
  });
});

/** What stands between proxy and collector: passes bytes, or keeps answers back for the time being. */
class Hop {
  keeping = false;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #kept: (() => void)[] = [];

  constructor(port: number) {
    this.#server = createServer((near) => {
      const far = connect(port, '127.0.0.1');
      for (const socket of [near, far]) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => (near.destroy(), far.destroy()));
      }
      near.pipe(far);
      far.on('data', (chunk: Buffer) => {
        if (this.keeping) this.#kept.push(() => near.write(chunk));
        else near.write(chunk);
      });
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  release(): void {
    this.keeping = false;
    for (const each of this.#kept.splice(0)) each();
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

describe('the proxy', () => {
  let collector: SmallCollector;
  let hop: Hop;
  let url: string;
  let folder: string;
  let workspace: string;
  beforeEach(async () => {
    collector = new SmallCollector();
    hop = new Hop(Number(new URL(await collector.listen()).port));
    url = await hop.listen();
    folder = realpathSync(freshFolder());
    workspace = join(folder, 'workspace');
    mkdirSync(workspace);
    writeFileSync(join(workspace, 'a.txt'), 'alpha\n');
  });
  afterEach(async () => {
    await hop.close();
    await collector.close();
  });

  const env = (to = url): Record<string, string> => ({
    BELAY_URL: to,
    BELAY_TOKEN: collector.token,
    BELAY_STATE: join(folder, 'state'),
    BELAY_TRACE_DIR: join(folder, 'traces'),
  });
  // A machine that is busy with other tests is no reason to let a call go.
  const proxy = (options: readonly string[] = ['--attest-first', '600000'], to = url): Started =>
    start(
      [
        'proxy',
        '--workspace',
        workspace,
        '--hold-limit',
        '60000',
        ...options,
        '--',
        node,
        program('workspace-server'),
      ],
      env(to),
    );
  const call = (run: Started, id: number, name = 'read'): void => {
    const message = { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: {} } };
    run.child.stdin.write(`${JSON.stringify(message)}\n`);
  };
  const answered = async (run: Started, ...ids: readonly number[]): Promise<void> => {
    for (const id of ids)
      await expect.poll(() => run.stdout().toString(), { timeout: 20_000 }).toContain(`"id":${id},`);
  };
  const ended = async (run: Started): Promise<TraceRecord[]> => {
    run.child.stdin.end();
    expect(await run.ended).toBe(0);
    const [path] = tracesIn(join(folder, 'traces')) as [string];
    expect((await checkTrace(path)).problems).toEqual([]);
    return await recordsIn(join(folder, 'traces'));
  };
  /** Of each call of the trace, in order: its id, and what was odd. */
  const calls = (records: readonly TraceRecord[]): string[] =>
    records.flatMap((record) => {
      if (record.type !== 'frame' || record.dir !== 'c2s') return [];
      const { id } = JSON.parse((recordData(record) as Buffer).toString()) as { id: number };
      return [[id, ...(record.findings ?? [])].join(' ')];
    });
  const kinds = (): string[] =>
    collector
      .envelopes()
      .map(({ kind, attrs }) => (kind === 'state' ? `state ${String(attrs?.['phase'])}` : kind));

  test('a call reaches its server when the state before it is acknowledged; those in flight with it go with it', async () => {
    const run = proxy();
    await expect.poll(kinds, { timeout: 20_000 }).toContain('state open');
    hop.keeping = true;
    call(run, 1, 'seen');
    call(run, 2, 'seen');
    // The log has it, and the proxy can't know.
    await expect.poll(kinds, { timeout: 20_000 }).toContain('state pre');
    run.child.stdin.write('{"jsonrpc":"2.0","id":9,"method":"ping"}\n');
    await answered(run, 9);
    hop.release();
    await answered(run, 1, 2);
    expect(run.stdout().toString()).toMatch(/"id":1,.*"text":"ping tools\/call:seen/);
    call(run, 3);
    await answered(run, 3);
    expect(calls(await ended(run))).toEqual(['9', '1', '2', '3']);
    expect(run.stderr()).toBe('');
    expect(kinds().filter((kind) => /^(state (pre|post)|call|result)$/.test(kind))).toEqual([
      'state pre',
      'call',
      'call',
      'result',
      'result',
      'state post',
      'state pre',
      'call',
      'result',
      'state post',
    ]);
    // Never in one request with what came of it, so never in one commit.
    const requests = collector.requests.map(({ lines }) => lines);
    let at = 0;
    const batches = requests.map((lines) => kinds().slice(at, (at += lines)));
    for (const batch of batches) {
      const pre = batch.lastIndexOf('state pre');
      if (pre >= 0) expect(batch.slice(pre + 1)).not.toContain('result');
    }
  });

  test('nobody answers: one call is held for its time, the others not; then somebody does', async () => {
    hop.keeping = true;
    const run = proxy(['--attest-first=300']);
    call(run, 1);
    await answered(run, 1);
    call(run, 2);
    await answered(run, 2);
    hop.release();
    await expect.poll(kinds, { timeout: 20_000 }).toContain('state post');
    // Its answer to that is on its way: from then on calls wait again.
    let id = 2;
    await expect
      .poll(
        async () => {
          call(run, ++id);
          await answered(run, id);
          return calls(await recordsIn(join(folder, 'traces'))).at(-1);
        },
        { timeout: 20_000 },
      )
      .toMatch(/^\d+$/);
    const all = calls(await ended(run));
    expect(all.slice(0, 2)).toEqual(['1 ATTEST_TIME_UP', '2 ATTEST_AWAY']);
    expect(run.stderr()).toMatch(
      /^belay: the log has not answered within 300 ms: until it does, calls go without --attest-first\nbelay: \d of \d calls went before the state before them was acknowledged: ATTEST_TIME_UP 1, ATTEST_AWAY \d\n$/,
    );
  });

  test('nobody is there', async () => {
    const run = proxy(['--attest-first=50'], 'http://127.0.0.1:9');
    for (const id of [1, 2, 3]) {
      call(run, id);
      await answered(run, id);
    }
    expect(calls(await ended(run))).toEqual(['1 ATTEST_TIME_UP', '2 ATTEST_AWAY', '3 ATTEST_AWAY']);
    expect(run.stderr()).toContain('3 of 3 calls went before');
  });

  test('nothing is taken: nothing is waited for', async () => {
    collector.faults = [(_, response) => (problem(response, 401, 'token_revoked'), 'answered')];
    const run = proxy();
    call(run, 1);
    await answered(run, 1);
    expect(calls(await ended(run))).toEqual(['1 ATTEST_STOPPED']);
  });

  test('kill -9 of the proxy while a call is held: it never went, and its state is sent by the next run', async () => {
    collector.faults = Array.from({ length: 5 }, () => () => 'answered' as const);
    const run = proxy();
    call(run, 1);
    await expect
      .poll(
        async () =>
          (await recordsIn(join(folder, 'traces')).catch(() => [])).map(
            (each) => each.type === 'state' && each.phase,
          ),
        {
          timeout: 20_000,
        },
      )
      .toContain('pre');
    run.child.kill('SIGKILL');
    await run.ended;
    expect(calls(await recordsIn(join(folder, 'traces')))).toEqual([]);
    expect(run.stdout().length).toBe(0);
    collector.faults = [];
    expect(await start(['forward'], env()).ended).toBe(0);
    expect(kinds()).toEqual(['epoch.open', 'session.open', 'state open', 'state pre']);
  });

  test('where there is nothing to wait for, that is said', async () => {
    const server = ['--', node, program('workspace-server')];
    const without = start(['proxy', '--attest-first', ...server], env());
    without.child.stdin.end();
    expect(await without.ended).toBe(0);
    expect(without.stderr()).toContain('--attest-first is of no effect: no states are kept (--workspace)');
    const { BELAY_URL: _url, BELAY_TOKEN: _token, ...alone } = env();
    const recorded = start(['proxy', '--workspace', workspace, '--attest-first', ...server], alone);
    recorded.child.stdin.end();
    expect(await recorded.ended).toBe(0);
    expect(recorded.stderr()).toContain('--attest-first is of no effect: nothing is sent (belay login)');
    expect(await start(['proxy', '--attest-first', '--http', 'http://127.0.0.1:9']).ended).toBe(64);
  });
});
