import { appendFileSync, renameSync, statSync, truncateSync, writeFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pendingSpools } from '@belay/client';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { problem, SmallCollector } from '@belay/testkit';
import { freshFolder, start, type Started } from './proxied.js';

let collector: SmallCollector;
let folder: string;
let env: Record<string, string>;
let source: string;
beforeEach(async () => {
  collector = new SmallCollector();
  folder = freshFolder();
  source = join(folder, 'events.ndjson');
  env = {
    BELAY_URL: await collector.listen(),
    BELAY_TOKEN: collector.token,
    BELAY_STATE: join(folder, 'state'),
  };
});
afterEach(() => collector.close());

const forward = (...args: string[]): Started => start(['forward', ...args], env);
const events = (): number => collector.envelopes().filter(({ kind }) => kind === 'x.event').length;
const lines = (from: number, to: number): string =>
  Array.from({ length: to - from }, (_, at) => `{"event":${from + at}}\n`).join('');

/** Runs to its end, and reads the document that `--json` prints. */
async function forwarded(
  ...args: string[]
): Promise<Record<string, unknown> & { code: number | string; stderr: string }> {
  const run = forward('--json', ...args);
  run.child.stdin.end();
  const code = await run.ended;
  return { ...(JSON.parse(run.stdout().toString() || '{}') as object), code, stderr: run.stderr() };
}

test('a file becomes one commitment a line, blank lines aside', async () => {
  writeFileSync(source, `${lines(0, 600)}\n\r\n{"crlf":1}\r\nnot json\n{"no":"end"}`);
  const result = await forwarded(source);
  expect(result).toMatchObject({
    code: 0,
    lines: 603,
    acknowledged: 605,
    refused: [],
    pendingBytes: 0,
    found: 'fresh',
    from: 0,
  });
  expect(result['to']).toBe(statSync(source).size);
  expect(events()).toBe(603);
  expect(await forwarded(source)).toMatchObject({ lines: 0 });
  appendFileSync(source, `\n${lines(0, 1)}`);
  expect(await forwarded(source)).toMatchObject({ lines: 1, found: 'resumed' });
  expect(collector.envelopes()[0]).toMatchObject({ kind: 'epoch.open', attrs: { sink_kind: 'forward' } });
  expect(collector.envelopes()[601]).toMatchObject({ kind: 'x.event', attrs: { bytes: 10 } });
  expect(collector.entries.map(String).join()).not.toContain('{"crlf"');
});

test('running again sends nothing twice, and goes on where the file grew', async () => {
  writeFileSync(source, lines(0, 10));
  await forwarded(source);
  const size = collector.entries.length;
  expect(await forwarded(source)).toMatchObject({ code: 0, lines: 0 });
  expect(collector.entries).toHaveLength(size);
  appendFileSync(source, lines(10, 13));
  expect(await forwarded(source)).toMatchObject({ code: 0, lines: 3, found: 'resumed' });
  expect(events()).toBe(13);
});

test('a line that is not finished is left to the next run', async () => {
  writeFileSync(source, `${lines(0, 2)}{"event":`);
  expect(await forwarded(source)).toMatchObject({ lines: 2, unfinished: 9 });
  appendFileSync(source, '2}\n');
  expect(await forwarded(source)).toMatchObject({ lines: 1 });
  expect(events()).toBe(3);
});

test('another file under the name is read from its beginning', async () => {
  writeFileSync(source, lines(0, 10));
  await forwarded(source);
  writeFileSync(source, lines(100, 120));
  expect(await forwarded(source)).toMatchObject({ lines: 20, found: 'changed' });
  truncateSync(source, 30);
  expect(await forwarded(source)).toMatchObject({ found: 'changed' });
});

test('two sinks read the same file each for itself', async () => {
  writeFileSync(source, lines(0, 5));
  await forwarded(source);
  expect(await forwarded('--sink', 'other', '--kind', 'x.audit', source)).toMatchObject({
    lines: 5,
    sink: 'other',
    found: 'fresh',
  });
  expect(collector.envelopes().filter(({ kind }) => kind === 'x.audit')).toHaveLength(5);
});

describe('interrupted', () => {
  test('kill -9 at any moment: every line exactly once in the end', async () => {
    const total = 30_000;
    writeFileSync(source, lines(0, total));
    for (const delay of [180, 260, 340, 420]) {
      const run = forward(source);
      run.child.stdin.end();
      await Promise.race([new Promise((resolve) => setTimeout(resolve, delay)), run.ended]);
      run.child.kill('SIGKILL');
      await run.ended;
    }
    await forwarded(source);
    expect((await forwarded()).code).toBe(0);
    expect(events()).toBe(total);
    const place = ({ epoch, seq }: { epoch: string; seq: number }): string => `${epoch} ${seq}`;
    expect(new Set(collector.envelopes().map(place)).size).toBe(collector.entries.length - 1);
  }, 60_000);

  test('the collector is away: 69, and the next run sends it, once', async () => {
    writeFileSync(source, lines(0, 20));
    const good = env['BELAY_URL'] as string;
    env['BELAY_URL'] = 'http://127.0.0.1:9';
    const away = await forwarded(source);
    expect(away).toMatchObject({ code: 69, lines: 20, acknowledged: 0 });
    expect(away.stderr).toMatch(/not everything was acknowledged \(127\.0\.0\.1:9: ECONNREFUSED\)/);
    env['BELAY_URL'] = good;
    expect(await forwarded(source)).toMatchObject({ code: 0, lines: 0, leftovers: { acknowledged: 22 } });
    expect(events()).toBe(20);
  });

  test('a refused token: 65, told why', async () => {
    writeFileSync(source, lines(0, 3));
    collector.faults = [(_, response) => (problem(response, 401, 'token_revoked'), 'answered')];
    const result = await forwarded(source);
    expect(result.code).toBe(65);
    expect(result.stderr).toContain('token_revoked');
    expect(pendingSpools(env['BELAY_STATE'] as string, collector.origin)).toHaveLength(1);
  });

  test('a log that was rolled back: 1', async () => {
    writeFileSync(source, lines(0, 3));
    await forwarded(source);
    collector.reset();
    appendFileSync(source, lines(3, 4));
    const result = await forwarded(source);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain('the log contradicts itself');
  });
});

test('options say where to send before the environment does', async () => {
  writeFileSync(source, lines(0, 2));
  writeFileSync(join(folder, 'token'), `${collector.token}\n`);
  const { BELAY_URL: there = '' } = env;
  env = { ...env, BELAY_URL: 'http://127.0.0.1:9', BELAY_TOKEN: 'belay_append_nonsense' };
  expect(await forwarded('--url', there, '--token', `@${join(folder, 'token')}`, source)).toMatchObject({
    code: 0,
    lines: 2,
  });
});

describe('--follow', () => {
  test('sends lines as they are written, through a rotation, until it is interrupted', async () => {
    writeFileSync(source, lines(0, 2));
    const run = forward('--json', '--follow', source);
    await expect.poll(events).toBe(2);
    appendFileSync(source, lines(2, 5));
    await expect.poll(events).toBe(5);
    renameSync(source, `${source}.1`);
    writeFileSync(source, lines(50, 53));
    await expect.poll(events, { timeout: 3_000 }).toBe(8);
    run.child.kill('SIGINT');
    expect(await run.ended).toBe(0);
    expect(JSON.parse(run.stdout().toString())).toMatchObject({ lines: 8, pendingBytes: 0 });
    expect(await forwarded(source)).toMatchObject({ lines: 0 });
  });

  test('a second process on the same file is refused', async () => {
    writeFileSync(source, lines(0, 2));
    const run = forward('--follow', source);
    await expect.poll(events).toBe(2);
    const second = await forwarded(source);
    expect(second.code).toBe(65);
    expect(JSON.stringify(second)).toContain(`by process ${run.child.pid}`);
    run.child.kill('SIGTERM');
    await run.ended;
  });
});

test('standard input is forwarded as it comes', async () => {
  const run = forward('--json', '-');
  run.child.stdin.write(lines(0, 3));
  await expect.poll(events).toBe(3);
  run.child.stdin.end(lines(3, 4));
  expect(await run.ended).toBe(0);
  expect(JSON.parse(run.stdout().toString())).toMatchObject({ source: '-', lines: 4, found: 'stream' });
});

test.each([
  ['no credentials', {}, ['x'], 64, 'belay login'],
  ['a file that is not there', undefined, ['/no/such/file'], 65, 'no such file'],
  ['a folder', undefined, ['/tmp'], 65, 'is not a file'],
  ['a kind of its own', undefined, ['--kind', 'call', 'x'], 64, 'x.'],
  ['a sink with a slash', undefined, ['--sink', 'a/b', 'x'], 64, 'letter or digit'],
] as const)('%s', async (_, other, args, code, said) => {
  if (other !== undefined) env = { BELAY_STATE: join(folder, 'state'), ...other };
  const run = forward(...args);
  run.child.stdin.end();
  expect(await run.ended).toBe(code);
  expect(run.stderr()).toContain(said);
});

describe('belay login', () => {
  test('writes a file that only its owner reads, from an option, a file or standard input', async () => {
    const config = join(folder, 'config');
    const login = (args: string[], input = ''): Started => {
      const run = start(['login', '--json', ...args], { XDG_CONFIG_HOME: config });
      run.child.stdin.end(input);
      return run;
    };
    const first = login(['--url', env['BELAY_URL'] as string], `${collector.token}\n`);
    expect(await first.ended).toBe(0);
    const path = join(config, 'belay', 'credentials');
    expect(JSON.parse(first.stdout().toString())).toMatchObject({
      credentials: path,
      origin: collector.origin,
      token: collector.credential.id,
    });
    expect(first.stdout().toString()).not.toContain(collector.token);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual({
      v: 1,
      url: env['BELAY_URL'],
      token: collector.token,
    });
    expect(await login(['--token', collector.token]).ended).toBe(0);
    const other = login(['--url', 'http://elsewhere', '--token', collector.token]);
    expect(await other.ended).toBe(65);
    expect(await login(['--url', 'http://elsewhere', '--token', collector.token, '--replace']).ended).toBe(0);
    writeFileSync(join(folder, 'token'), collector.token);
    expect(
      await login(['--url', env['BELAY_URL'] as string, '--token', `@${join(folder, 'token')}`, '--replace'])
        .ended,
    ).toBe(0);
    expect(await login(['--token', collector.token.slice(0, -2)]).ended).toBe(65);
  });

  test('what is stored is what the others use', async () => {
    const config = join(folder, 'config');
    const home = { XDG_CONFIG_HOME: config, BELAY_STATE: env['BELAY_STATE'] as string };
    const run = start(['login', '--url', env['BELAY_URL'] as string, '--token', collector.token], home);
    run.child.stdin.end();
    expect(await run.ended).toBe(0);
    writeFileSync(source, lines(0, 2));
    const sent = start(['forward', source], home);
    expect(await sent.ended).toBe(0);
    expect(events()).toBe(2);
  });
});
