import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkTrace, type TraceRecord } from '@belay/trace';
import { describe, expect, test } from 'vitest';
import {
  alive,
  freshFolder,
  grandchildOf,
  node,
  program,
  proxied,
  recordedBytes,
  recordsIn,
  start,
  tracesIn,
} from './proxied.js';

/** A folder for traces, and the environment that says so: nothing else is needed to record. */
function recorded(): { folder: string; env: Record<string, string> } {
  const folder = join(freshFolder(), 'made', 'when', 'missing');
  return { folder, env: { BELAY_TRACE_DIR: folder } };
}

const framesOf = (records: readonly TraceRecord[]) => records.filter((record) => record.type === 'frame');

describe('bytes', () => {
  test('BELAY_TRACE_DIR alone is enough to record; a missing folder is made', async () => {
    const { folder, env } = recorded();
    const run = proxied(['echo'], env);
    run.child.stdin.end('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
    expect(await run.ended).toBe(0);
    expect(run.stderr()).toBe('');
    const [path] = tracesIn(folder) as [string];
    expect(await checkTrace(path)).toMatchObject({ frames: 2, problems: [], close: { exit: 0 } });
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
  });

  test('what is sent byte by byte arrives as it was, and is recorded so: CRLF, split and invalid UTF-8, NUL, separators', async () => {
    const { folder, env } = recorded();
    const run = proxied(['echo'], env);
    const sent = Buffer.concat([
      Buffer.from('{"n":9007199254740993,"x":1.0,"a":1,"a":2}\n'),
      Buffer.from('{"text":"\ud83d\ude00\u2028\\u0000\\ud800"}\r\n'),
      Buffer.from('\n\r\n'),
      Buffer.from('7b22ff22c328e282227d0a', 'hex'),
      Buffer.from('Starting…\n[]\n'),
      Buffer.from('no end of line'),
    ]);
    for (const byte of sent) run.child.stdin.write(Buffer.of(byte));
    run.child.stdin.end();
    await run.ended;
    expect(run.stdout()).toEqual(sent);
    const records = await recordsIn(folder);
    expect(recordedBytes(records, 'c2s')).toEqual(sent);
    expect(recordedBytes(records, 's2c')).toEqual(sent);
    const findings = framesOf(records)
      .filter(({ dir }) => dir === 's2c')
      .map((record) => record.findings?.join() ?? '');
    expect(findings).toEqual([
      'NOT_JSON_RPC',
      'NOT_JSON_RPC',
      '',
      '',
      'INVALID_UTF8,NON_JSON',
      'NON_JSON',
      '',
      'NON_JSON',
    ]);
  });

  test.each([65_535, 65_536, 65_537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 10 << 20])(
    'a line of %d bytes',
    async (size) => {
      const { folder, env } = recorded();
      const run = proxied([`big:${size}`], env);
      await run.ended;
      const expected = Buffer.alloc(size, 'b');
      expected[size - 1] = 0x0a;
      expect(run.stdout().equals(expected)).toBe(true);
      const [frame] = framesOf(await recordsIn(folder));
      expect(frame).toMatchObject({ size, sha256: createHash('sha256').update(expected).digest('hex') });
    },
  );

  test('a line past the observation limit arrives whole and is recorded by its hash', async () => {
    const { folder, env } = recorded();
    const size = 40 << 20;
    const run = proxied([`big:${size}`], env);
    await run.ended;
    expect(run.stdout().length).toBe(size);
    const [frame] = framesOf(await recordsIn(folder));
    expect(frame).toMatchObject({
      size,
      oversize: true,
      sha256: createHash('sha256').update(run.stdout()).digest('hex'),
    });
    expect(statSync((tracesIn(folder) as [string])[0]).size).toBeLessThan(20_000);
  });

  test('a slow reader gets the last byte, and the server feels the back-pressure', async () => {
    const run = proxied(['big:3000000', 'say:last\\n'], {}, false);
    const parts: Buffer[] = [];
    for await (const part of run.child.stdout as AsyncIterable<Buffer>) {
      parts.push(part);
      await sleep(20);
    }
    expect(Buffer.concat(parts)).toHaveLength(3_000_005);
    expect(Buffer.concat(parts).subarray(-5).toString()).toBe('last\n');
    expect(await run.ended).toBe(0);
  });

  test('a client that reads nothing can still be heard', async () => {
    const run = proxied(['big:8000000', 'echo'], {}, false);
    await sleep(500);
    // The output is stuck; a cancellation must get through all the same: the proxy takes it off our hands.
    const taken = await new Promise<boolean>((resolve) => {
      run.child.stdin.write('{"method":"notifications/cancelled"}\n', () => resolve(true));
      setTimeout(() => resolve(false), 2_000).unref();
    });
    expect(taken).toBe(true);
    run.child.kill('SIGKILL');
    await run.ended;
  });

  test('10 MB of stderr before the first answer, read by nobody', async () => {
    const { folder, env } = recorded();
    const run = start(['proxy', '--', node, program('server'), 'err:10000000', 'say:ready\\n'], env);
    run.child.stderr.removeAllListeners('data');
    run.child.stderr.pause();
    await expect.poll(() => run.stdout().toString(), { timeout: 15_000 }).toBe('ready\n');
    run.child.stderr.resume();
    expect(await run.ended).toBe(0);
    const kept = (await recordsIn(folder)).map((record) => (record.type === 'stderr' ? record.size : 0));
    expect(kept.reduce((sum, size) => sum + size)).toBe(10_000_000);
  });

  test('stderr is passed on', async () => {
    const run = proxied(['err:100000']);
    await run.ended;
    expect(run.stderr()).toBe('e'.repeat(100_000));
  });
});

describe('process life', () => {
  test.each([
    [['exit:0'], 0],
    [['exit:3'], 3],
    [['exit:255'], 255],
    [['kill:SIGTERM', 'wait:5000'], 143],
    [['kill:SIGKILL', 'wait:5000'], 137],
  ] as const)('%j ends it with %d', async (steps, code) => {
    const { folder, env } = recorded();
    const run = proxied(steps, env);
    expect(await run.ended).toBe(code);
    const close = (await recordsIn(folder)).at(-1);
    expect(close).toMatchObject(
      code > 128 && code < 160 ? { signal: code === 143 ? 'SIGTERM' : 'SIGKILL' } : { exit: code },
    );
  });

  test('a program that does not exist: 127, nothing on stdout', async () => {
    const run = start(['proxy', '--', 'no-such-program-here']);
    expect(await run.ended).toBe(127);
    expect(run.stdout()).toHaveLength(0);
    expect(run.stderr()).toBe('belay: cannot start no-such-program-here: no such program\n');
  });

  test('a file that is no program: 126', async () => {
    const run = start(['proxy', '--', program('server')]);
    expect(await run.ended).toBe(126);
  });

  test('without a command: usage', async () => {
    const run = start(['proxy']);
    expect(await run.ended).toBe(64);
  });

  test.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)(
    '%s goes to the server, whose end is ours',
    async (signal) => {
      const { folder, env } = recorded();
      const run = proxied(['say:up\\n', 'wait:60000'], env);
      await expect.poll(() => run.stdout().length).toBeGreaterThan(0);
      run.child.kill(signal);
      expect(await run.ended).toBe({ SIGINT: 130, SIGTERM: 143, SIGHUP: 129 }[signal]);
      expect((await recordsIn(folder)).at(-1)).toMatchObject({ type: 'close', signal });
    },
  );

  test('a signal while the server is being started is not lost', async () => {
    const run = proxied(['wait:60000']);
    await sleep(60);
    run.child.kill('SIGTERM');
    // Either the proxy was not yet there to pass it on, and died of it, or the server did.
    expect([143, 'SIGTERM']).toContain(await run.ended);
  });

  test('a server that ignores SIGTERM and the end of its input is killed', async () => {
    const run = proxied(['say:up\\n', 'hang']);
    await expect.poll(() => run.stdout().length).toBeGreaterThan(0);
    run.child.stdin.end();
    run.child.kill('SIGTERM');
    const started = Date.now();
    expect(await run.ended).toBe(137);
    expect(Date.now() - started).toBeLessThan(3_000);
  });

  test.each(['exit:0', 'SIGTERM', 'SIGINT'])(
    'a grandchild that ignores SIGTERM and holds the output is gone after %s',
    async (how) => {
      const run = proxied(['child', 'say:up\\n', how === 'exit:0' ? how : 'wait:60000']);
      await expect.poll(() => run.stdout().length).toBeGreaterThan(0);
      const pid = await grandchildOf(run);
      expect(alive(pid)).toBe(how !== 'exit:0' || alive(pid));
      if (how !== 'exit:0') run.child.kill(how as NodeJS.Signals);
      await run.ended;
      await expect.poll(() => alive(pid)).toBe(false);
    },
  );

  test('the end of input with an answer in flight: the answer arrives', async () => {
    const run = proxied(['wait:800', 'answer']);
    run.child.stdin.end('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}\n');
    expect(await run.ended).toBe(0);
    expect(run.stdout().toString()).toContain('"id":1');
  });

  test('a client that is gone is noticed: the server does not stay behind', async () => {
    const run = proxied(['say:up\\n', 'hang']);
    await expect.poll(() => run.stdout().length).toBeGreaterThan(0);
    run.child.stdout.destroy();
    run.child.stdin.destroy();
    const started = Date.now();
    expect(await run.ended).toBe(137);
    expect(Date.now() - started).toBeLessThan(10_000);
  });

  test('the server sees our environment and the arguments as given, but none of our secrets', async () => {
    const { folder, env } = recorded();
    const script = 'process.stdout.write(JSON.stringify([process.env, process.argv.slice(1)]))';
    const run = start(['proxy', '--', node, '-e', script, 'two words', '--json', 'q"uote'], {
      ...env,
      HTTPS_PROXY: 'http://proxy',
      BELAY_TOKEN: 'secret',
      BELAY_ADMIN_KEY: 'secret',
      CANARY: 'canary-value',
    });
    await run.ended;
    const [seen, args] = JSON.parse(run.stdout().toString()) as [Record<string, string>, string[]];
    expect(args).toEqual(['two words', '--json', 'q"uote']);
    expect(seen).toMatchObject({
      HTTPS_PROXY: 'http://proxy',
      CANARY: 'canary-value',
      PATH: process.env['PATH'],
    });
    expect(Object.keys(seen).filter((name) => /^BELAY_.*(TOKEN|KEY)$/.test(name))).toEqual([]);
    const records = JSON.stringify((await recordsIn(folder))[0]);
    expect(records).toContain('"CANARY":"hmac-sha256:');
    expect(records).not.toContain('canary-value');
  });
});

describe('recording goes wrong, traffic goes on', () => {
  test('a trace folder that can not be made', async () => {
    const run = proxied(['echo'], { BELAY_TRACE_DIR: '/dev/null/traces', BELAY_STATE: '/dev/null/state' });
    run.child.stdin.end('hello\n');
    expect(await run.ended).toBe(0);
    expect(run.stdout().toString()).toBe('hello\n');
    expect(run.stderr()).toContain('belay: this run is not recorded');
  });

  test('a token that is cut short', async () => {
    const { folder, env } = recorded();
    const run = proxied(['echo'], {
      ...env,
      BELAY_URL: 'http://127.0.0.1:1',
      BELAY_TOKEN: 'belay_append_AAAA',
    });
    run.child.stdin.end('hello\n');
    expect(await run.ended).toBe(0);
    expect(run.stderr()).toContain('belay: credentials are not usable');
    expect(framesOf(await recordsIn(folder))).toHaveLength(2);
  });

  test('a full disk: the server is served to the end, the gap is in the trace', async () => {
    const { folder, env } = recorded();
    const run = start(['proxy', '--', 'sh', '-c', 'cat'], env);
    await sleep(700);
    execFileSync('prlimit', ['--pid', String(run.child.pid), '--fsize=20000:unlimited']);
    const line = `${'x'.repeat(5_000)}\n`;
    for (let i = 0; i < 20; i++) run.child.stdin.write(line);
    await expect.poll(() => run.stdout().length).toBe(20 * 5_001);
    execFileSync('prlimit', ['--pid', String(run.child.pid), '--fsize=unlimited:unlimited']);
    run.child.stdin.end('end\n');
    await run.ended;
    const [path] = tracesIn(folder) as [string];
    const report = await checkTrace(path);
    expect(report.problems).toEqual([]);
    expect(report.gaps.length).toBeGreaterThan(0);
    expect(report.close?.lost).toBeGreaterThan(30);
  });
});

test('what is loaded for a run has neither Nest nor a database nor a schema library in it', async () => {
  // V8's coverage report names every script that was loaded.
  const { env } = recorded();
  const reports = freshFolder();
  const run = start(['proxy', '--', 'true'], { ...env, NODE_V8_COVERAGE: reports });
  expect(await run.ended).toBe(0);
  const loaded = readdirSync(reports).flatMap((name) => {
    const { result } = JSON.parse(readFileSync(join(reports, name), 'utf8')) as { result: { url: string }[] };
    return result.map(({ url }) => url).filter((url) => url.startsWith('file:'));
  });
  expect(loaded.filter((url) => url.includes('/libs/')).length).toBeGreaterThan(20);
  expect(loaded.filter((url) => /node_modules/.test(url) && !/commander/.test(url))).toEqual([]);
  expect(loaded.filter((url) => /apps\/(gateway|collector|worker)|libs\/db/.test(url))).toEqual([]);
});

test('nothing of a port is opened by recording alone', async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  let connections = 0;
  server.on('connection', () => connections++);
  const { env } = recorded();
  const run = proxied(['exit:0'], {
    ...env,
    BELAY_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  });
  expect(await run.ended).toBe(0);
  expect(connections).toBe(0);
  expect(existsSync(join(env['BELAY_TRACE_DIR'] as string))).toBe(true);
  server.close();
});
