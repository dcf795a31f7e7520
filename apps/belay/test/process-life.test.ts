import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { checkTrace } from '@belay/trace';
import { describe, expect, test } from 'vitest';
import {
  alive,
  freshFolder,
  grandchildOf,
  node,
  program,
  proxied,
  recordsIn,
  start,
  type Started,
  tracesIn,
} from './proxied.js';

/** Process group of a process, or undefined when it is gone or a zombie. */
function groupOf(pid: number): number | undefined {
  try {
    const [state, , group] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    return state === 'Z' || state === 'X' ? undefined : Number(group);
  } catch {
    return undefined;
  }
}

const members = (group: number): number[] =>
  readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && groupOf(pid) === group);

/** Waits until the server and its grandchild are there; the number of their group. */
async function groupWhenUp(run: Started): Promise<number> {
  await expect.poll(() => run.stdout().toString(), { timeout: 25_000 }).toContain('up');
  const grandchild = await grandchildOf(run);
  const group = groupOf(grandchild) as number;
  expect(group).not.toBe(groupOf(process.pid));
  expect(members(group)).toContain(grandchild);
  return group;
}

const server = (...steps: string[]): string =>
  [node, program('server'), ...steps].map((word) => `'${word}'`).join(' ');
/** What is between us and the server: `; true` keeps a shell from becoming it. */
const WAYS: Readonly<Record<string, (...steps: string[]) => string[]>> = {
  'sh -c': (...steps) => ['sh', '-c', `${server(...steps)}; true`],
  npx: (...steps) => ['npx', '--offline', '-c', server(...steps)],
};

describe('case 20: a grandchild that ignores SIGTERM leaves nothing of the group behind', () => {
  test.each([
    ['sh -c', 'end of input'],
    ['sh -c', 'SIGTERM'],
    ['sh -c', 'SIGINT'],
    ['sh -c', 'SIGHUP'],
    ['sh -c', 'SIGKILL'],
    ['npx', 'end of input'],
    ['npx', 'SIGTERM'],
    ['npx', 'SIGKILL'],
  ] as const)(
    'server by %s, proxy ended by %s',
    async (way, how) => {
      const steps =
        how === 'end of input' ? ['child', 'say:up\\n', 'echo'] : ['child', 'say:up\\n', 'wait:60000'];
      const run = start(['proxy', '--', ...(WAYS[way] as (typeof WAYS)[string])(...steps)]);
      const group = await groupWhenUp(run);
      if (how === 'end of input') run.child.stdin.end();
      else run.child.kill(how);
      // A killed proxy leaves our pipes with the server until the guard ends it.
      await expect.poll(() => members(group), { timeout: 20_000 }).toEqual([]);
      await run.ended;
    },
    60_000,
  );

  test('a proxy that is killed leaves a trace of all that was forwarded, and nobody waiting for it', async () => {
    const folder = freshFolder();
    const run = proxied(['child', 'say:up\\n', 'answer'], { BELAY_TRACE_DIR: folder });
    const group = await groupWhenUp(run);
    run.child.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
    await expect.poll(() => run.stdout().toString()).toContain('"id":1');
    const guards = guardsOf(run.child.pid as number);
    expect(guards).toHaveLength(1);
    run.child.kill('SIGKILL');
    expect(await run.ended).toBe('SIGKILL');
    await expect.poll(() => members(group)).toEqual([]);
    await expect.poll(() => guards.filter(alive)).toEqual([]);
    const [path] = tracesIn(folder) as [string];
    const report = await checkTrace(path);
    expect(report.problems.map(({ code }) => code)).toEqual(['missing_close']);
    expect(report.frames).toBe(3);
  });

  test('the guard is gone with the proxy that ended its server itself', async () => {
    const run = proxied(['say:up\\n', 'echo']);
    await expect.poll(() => run.stdout().toString()).toContain('up');
    const guards = guardsOf(run.child.pid as number);
    expect(guards).toHaveLength(1);
    run.child.stdin.end();
    expect(await run.ended).toBe(0);
    await expect.poll(() => guards.filter(alive)).toEqual([]);
  });
});

/** Shells started by a process that are not of its server's group. */
function guardsOf(proxy: number): number[] {
  return readFileSync(`/proc/${proxy}/task/${proxy}/children`, 'utf8')
    .trim()
    .split(' ')
    .map(Number)
    .filter((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('end-group.sh'));
}

describe('case 21: the end of input', () => {
  test('reaches the server, which ends by itself', async () => {
    const run = proxied(['echo', 'say:saw the end\\n', 'exit:5']);
    run.child.stdin.end();
    expect(await run.ended).toBe(5);
    expect(run.stdout().toString()).toBe('saw the end\n');
  });

  test('a server that closed its input and goes on does not lose what it still says', async () => {
    const script =
      "process.stdin.destroy(); setTimeout(() => { console.log('later'); process.exit(0) }, 300)";
    const run = start(['proxy', '--', node, '-e', script]);
    for (let at = 0; at < 50; at++) run.child.stdin.write(`${'x'.repeat(10_000)}\n`);
    expect(await run.ended).toBe(0);
    expect(run.stdout().toString()).toBe('later\n');
  });

  test('with several answers in flight, all of them arrive', async () => {
    const run = proxied(['wait:300', 'answer']);
    const ids = Array.from({ length: 50 }, (_, id) => id);
    run.child.stdin.end(
      ids.map((id) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"t"}}\n`).join(''),
    );
    expect(await run.ended).toBe(0);
    const answered = run.stdout().toString().trim().split('\n');
    expect(answered.map((line) => (JSON.parse(line) as { id: number }).id)).toEqual(ids);
  });
});

describe('case 23: ends within its bounds', () => {
  test('a signal before the server is started ends the server at its start', async () => {
    const folder = freshFolder();
    const run = proxied(['wait:60000'], { BELAY_TRACE_DIR: folder });
    // The trace is made before the server is started, and signals are kept from before that.
    await expect.poll(() => tracesIn(folder).length, { interval: 1 }).toBe(1);
    run.child.kill('SIGTERM');
    expect(await run.ended).toBe(143);
    expect((await recordsIn(folder)).at(-1)).toMatchObject({ type: 'close', signal: 'SIGTERM' });
  });

  test('a second signal while the last lines are sent ends that too', async () => {
    const run = proxied(['say:up\\n', 'hang']);
    await expect.poll(() => run.stdout().toString()).toContain('up');
    run.child.kill('SIGTERM');
    run.child.kill('SIGINT');
    expect([130, 137]).toContain(await run.ended);
  });
});

describe('case 29: exit codes', () => {
  test.each(['SIGINT', 'SIGQUIT', 'SIGUSR2'] as const)(
    'a server that dies of %s: 128 and its number',
    async (signal) => {
      const run = proxied([`kill:${signal}`, 'wait:5000']);
      const numbers = { SIGINT: 2, SIGQUIT: 3, SIGUSR2: 12 };
      expect(await run.ended).toBe(128 + numbers[signal]);
    },
  );

  test('a program that can not be started is on record', async () => {
    const folder = freshFolder();
    const run = start(['proxy', '--', 'no-such-program-here'], { BELAY_TRACE_DIR: folder });
    expect(await run.ended).toBe(127);
    const records = await recordsIn(folder);
    expect(records.map(({ type }) => type)).toEqual(['open', 'close']);
    expect(records.at(-1)).toMatchObject({ exit: 127 });
  });
});

test('case 19: 10 MB of stderr before the first answer do not hold the answer up', async () => {
  const run = proxied(['err:10000000', 'answer']);
  run.child.stdin.end('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
  expect(await run.ended).toBe(0);
  expect(run.stdout().toString()).toBe('{"jsonrpc":"2.0","id":1,"result":{}}\n');
});

test('case 25: a call whose outcome is unknown is not made again', async () => {
  const file = join(freshFolder(), 'written');
  const script = `process.stdin.once('data', () => {
    require('fs').appendFileSync(${JSON.stringify(file)}, 'x'); process.kill(process.pid, 'SIGKILL') })`;
  const run = start(['proxy', '--', node, '-e', script]);
  run.child.stdin.write('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"append"}}\n');
  expect(await run.ended).toBe(137);
  expect(run.stdout()).toHaveLength(0);
  expect(statSync(file).size).toBe(1);
});
