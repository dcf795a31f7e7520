import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TraceWriter, readTrace } from '@belay/trace';
import { describe, expect, test } from 'vitest';
import {
  type PlayedGroup,
  type PlayedRequest,
  playSession,
  type Server,
  type SessionOptions,
  survey,
} from '../src/index.js';

const PROGRAM = new URL('programs/server.mjs', import.meta.url).pathname;

async function start(): Promise<Server> {
  const child = spawn(process.execPath, [PROGRAM], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  await once(child, 'spawn');
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  return { stdin: child.stdin, stdout: child.stdout, exited, kill };
}

type Step =
  readonly ['c2s' | 's2c', object | readonly object[]] | readonly ['open' | 'pre' | 'post' | 'close', string];

/** A trace of these frames and states, as a recorder would have written it. */
function trace(...steps: readonly Step[]): string {
  const path = join(mkdtempSync(join(tmpdir(), 'belay-replay-')), 'proxy-01K6B3YB80041061050R3GG28A.jsonl');
  let at = 0;
  const writer = TraceWriter.create(
    path,
    {
      type: 'open',
      v: 1,
      epoch: '01K6B3YB80041061050R3GG28A',
      sink: 'proxy',
      session: 's',
      recorder: 'belay/0.1.0',
    },
    { wall: () => new Date(Date.UTC(2026, 0, 1) + at).toISOString(), monotonic: () => at * 1000 },
  );
  for (const [what, content] of steps) {
    at++;
    if (typeof content === 'string') {
      writer.append({ type: 'state', phase: what as 'pre', state: content });
      continue;
    }
    const data = Buffer.from(`${JSON.stringify(content)}\n`);
    const sha256 = createHash('sha256').update(data).digest('hex');
    writer.append({ type: 'frame', dir: what as 'c2s', size: data.length, sha256 }, data);
  }
  writer.close({ exit: 0 });
  return path;
}

const call = (id: number | string, name: string, args: object = {}): Step => [
  'c2s',
  { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } },
];
const said = (id: number | string, value: unknown): Step => [
  's2c',
  { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: String(value) }] } },
];
const cancel = (requestId: number): Step => [
  'c2s',
  { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } },
];

type Played = PlayedGroup<string> | PlayedRequest;

async function play(path: string, over: Partial<SessionOptions<string>> = {}): Promise<Played[]> {
  const surveyed = await survey(readTrace(path));
  const played: Played[] = [];
  for await (const each of playSession<string>(path, surveyed, {
    start,
    world: undefined,
    stateOf: ({ state }) => (state === 'unrestorable' ? undefined : state),
    order: 'recorded',
    timeout: 5_000,
    now: Date.now,
    ...over,
  })) {
    if (each.type !== 'tools') played.push(each);
  }
  return played;
}

/** Per group: each call as `recorded -> replayed`. */
function shown(played: readonly Played[]): string[][] {
  const textOf = (result: unknown): string =>
    (result as { content: [{ text: string }] } | undefined)?.content[0].text ?? 'error';
  return played.flatMap((each) =>
    each.type === 'request'
      ? []
      : [
          each.calls.map(({ recorded, replayed, cancelled }) => {
            const before = recorded === undefined ? 'nothing' : textOf(recorded.response.result);
            const after =
              replayed === undefined
                ? 'nothing'
                : 'silence' in replayed
                  ? replayed.silence
                  : textOf(replayed.response.result);
            return `${before} -> ${after}${cancelled ? ' (cancelled)' : ''}`;
          }),
        ],
  );
}

describe('session mode', () => {
  test('one server for the whole session: what it remembers is there again', async () => {
    const path = trace(
      call(1, 'count'),
      said(1, 1),
      call(2, 'echo', { value: 'x' }),
      said(2, 'y'),
      call(1, 'count'),
      said(1, 2),
    );
    expect(shown(await play(path))).toEqual([['1 -> 1'], ['y -> x'], ['2 -> 2']]);
  });

  test('requests that are no calls are answered again, too', async () => {
    const path = trace(
      ['c2s', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} }],
      ['s2c', { jsonrpc: '2.0', id: 0, result: { serverInfo: { name: 'other', version: '1' } } }],
      ['c2s', { jsonrpc: '2.0', method: 'notifications/initialized' }],
      call(1, 'echo', { value: 'x' }),
      said(1, 'x'),
    );
    const [request, group] = await play(path);
    expect(request).toMatchObject({
      type: 'request',
      call: { method: 'initialize' },
      recorded: { result: { serverInfo: { name: 'other' } } },
      replayed: { response: { result: { serverInfo: { name: 'habits' } } } },
    });
    expect(group).toMatchObject({ type: 'group', diverged: 0 });
  });

  test('calls that overlapped overlap again, in one group where they have one state', async () => {
    const path = trace(
      ['pre', 'a'],
      call(1, 'later', { value: 'first' }),
      call(2, 'echo', { value: 'second' }),
      said(2, 'second'),
      ['post', 'b'],
      said(1, 'first'),
    );
    expect(shown(await play(path))).toEqual([['first -> first', 'second -> second']]);
  });

  test('in another order, calls that overlapped are made one after the other, the last one first', async () => {
    const path = trace(
      ['pre', 'a'],
      call(1, 'count'),
      call(2, 'count'),
      call(3, 'echo', { value: 'x' }),
      said(1, 1),
      said(2, 2),
      ['post', 'b'],
      said(3, 'x'),
      ['pre', 'b'],
      call(4, 'count'),
      ['post', 'b'],
      said(4, 3),
    );
    expect(shown(await play(path))).toEqual([['1 -> 1', '2 -> 2', 'x -> x'], ['3 -> 3']]);
    expect(shown(await play(path, { order: 'reversed' }))).toEqual([
      ['1 -> 2', '2 -> 1', 'x -> x'],
      ['3 -> 3'],
    ]);
  });

  test('one call can be made alone, by a server that was told of no other', async () => {
    const path = trace(
      call(1, 'count'),
      said(1, 1),
      call(2, 'count'),
      said(2, 2),
      call(3, 'count'),
      said(3, 3),
    );
    expect(shown(await play(path, { only: 2 }))).toEqual([['1 -> nothing'], ['2 -> 1'], ['3 -> nothing']]);
    expect(shown(await play(path, { until: 2 }))).toEqual([['1 -> 1'], ['2 -> 2']]);
  });

  test('a batch is as many calls as it has', async () => {
    const batch = [call(1, 'count')[1], call(2, 'count')[1]] as object[];
    const path = trace(['c2s', batch], ['s2c', [said(1, 1)[1], said(2, 2)[1]] as object[]]);
    // This server does not know batches; that is what the replay says.
    const [group] = await play(path, { timeout: 50 });
    expect(group).toMatchObject({
      calls: [{ replayed: { silence: expect.stringMatching(/REPLAY_/) as string } }, {}],
    });
  });

  test('what the server asks is answered from the recording, under the id it asks with now', async () => {
    const request = (id: string, prompt: string): Step => [
      's2c',
      {
        jsonrpc: '2.0',
        id,
        method: 'sampling/createMessage',
        params: { prompt, _meta: { progressToken: 7 } },
      },
    ];
    const path = trace(
      call(1, 'ask', { prompt: 'p' }),
      request('ask-1-1', 'p'),
      ['c2s', { jsonrpc: '2.0', id: 'ask-1-1', result: { model: 'm' } }],
      said(1, '{"model":"m"}'),
      call(2, 'ask', { prompt: 'q' }),
      request('ask-1-2', 'another'),
      ['c2s', { jsonrpc: '2.0', id: 'ask-1-2', result: { model: 'm' } }],
      said(2, '{"model":"m"}'),
    );
    const played = await play(path);
    expect(played).toMatchObject([{ diverged: 0 }, { diverged: 1 }]);
    expect(shown(played)[0]).toEqual(['{"model":"m"} -> {"model":"m"}']);
  });

  test('a cancelled call, and one without an answer, hold nothing up', async () => {
    const path = trace(call(1, 'silent'), cancel(1), call(2, 'count'), said(2, 1), call(3, 'silent'));
    expect(shown(await play(path))).toEqual([
      ['nothing -> nothing (cancelled)', '1 -> 1'],
      ['nothing -> nothing'],
    ]);
  });

  test.each([
    ['silent', 'REPLAY_TIMEOUT', 1_500, 'x -> x'],
    ['die', 'REPLAY_DIED', 5_000, 'x -> REPLAY_DIED'],
    ['flood', 'REPLAY_FLOODED', 5_000, 'x -> REPLAY_FLOODED'],
  ])('a server that does "%s" is %s within its time', async (tool, silence, timeout, after) => {
    const path = trace(call(1, tool), said(1, 'ok'), call(2, 'echo', { value: 'x' }), said(2, 'x'));
    const bounds = { frame: 1024 * 1024, total: 4 * 1024 * 1024 };
    expect(shown(await play(path, { timeout, bounds }))).toEqual([[`ok -> ${silence}`], [after]]);
  });
});

describe('the workspace', () => {
  test('is entered before each group, and looked at after it', async () => {
    const seen: string[] = [];
    const world = {
      enter: (state: string) => {
        seen.push(`enter ${state}`);
        return Promise.resolve(state === 'c' ? ('changed' as const) : ('as-left' as const));
      },
      delta: () => {
        seen.push('delta');
        return Promise.resolve([`change ${seen.length}`]);
      },
    };
    const path = trace(
      ['open', 'a'],
      ['pre', 'a'],
      call(1, 'count'),
      ['post', 'b'],
      said(1, 1),
      ['pre', 'c'],
      call(2, 'count'),
      ['post', 'd'],
      said(2, 2),
      ['pre', 'unrestorable'],
      call(3, 'count'),
      ['post', 'e'],
      said(3, 3),
      ['close', 'e'],
    );
    const played = await play(path, { world });
    expect(seen).toEqual(['enter a', 'enter a', 'delta', 'enter c', 'delta']);
    expect(played).toMatchObject([
      { pre: { state: 'a' }, post: { state: 'b' }, driftApplied: false, delta: ['change 3'] },
      { pre: { state: 'c' }, post: { state: 'd' }, driftApplied: true, delta: ['change 5'] },
      { pre: { state: 'unrestorable' }, post: { state: 'e' }, driftApplied: false },
    ]);
    expect((played[2] as PlayedGroup<string>).delta).toBeUndefined();
  });
});

test('a state that can not be had as it was is said, and its change is not told', async () => {
  const world = {
    enter: (state: string) => Promise.resolve(state === 'b' ? ('wrong' as const) : ('as-left' as const)),
    delta: () => Promise.resolve(['change']),
  };
  const path = trace(
    ['pre', 'a'],
    call(1, 'count'),
    ['post', 'a'],
    said(1, 1),
    ['pre', 'b'],
    call(2, 'count'),
    ['post', 'b'],
    said(2, 2),
  );
  const played = await play(path, { world });
  expect(played).toMatchObject([{ misplaced: false, delta: ['change'] }, { misplaced: true }]);
  expect((played[1] as PlayedGroup<string>).delta).toBeUndefined();
});
