import { createHash } from 'node:crypto';
import {
  chmodSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { resolveRunner } from '../src/package-runner.js';
import { DigestCache, identify } from '../src/provenance.js';
import { freshFolder, node, program, recordsIn, start } from './proxied.js';

const sha256 = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

/** An npm package in a `node_modules` folder; the file that its only program is. */
function npmPackage(folder: string, name: string, version: string, bin: unknown = 'cli.js'): string {
  const home = join(folder, 'node_modules', name);
  mkdirSync(home, { recursive: true });
  writeFileSync(join(home, 'package.json'), JSON.stringify({ name, version, bin }));
  const file = join(home, 'cli.js');
  writeFileSync(
    file,
    '#!/usr/bin/env node\nprocess.stdout.write(JSON.stringify(process.argv.slice(2)) + "\\n")\n',
  );
  return realpathSync(file);
}

const npxFolder = (cache: string, spec: string): string =>
  join(cache, '_npx', createHash('sha512').update(spec).digest('hex').slice(0, 16));

describe('npx', () => {
  const cwd = freshFolder();
  const cache = freshFolder();
  const env = { npm_config_cache: cache };
  const local = npmPackage(cwd, '@scope/local', '1.2.3');
  const cached = npmPackage(npxFolder(cache, 'cached'), 'cached', '0.0.4', {
    cached: 'cli.js',
    also: 'cli.js',
  });
  const exact = npmPackage(npxFolder(cache, 'exact@2.0.0'), 'exact', '2.0.0');
  npmPackage(npxFolder(cache, 'tagged@latest'), 'tagged', '1.0.0');
  npmPackage(npxFolder(cache, 'stale@2.0.0'), 'stale', '1.0.0');
  npmPackage(npxFolder(cache, 'many'), 'many', '1.0.0', { one: 'cli.js', two: 'other.js' });
  const npx = (...args: string[]) => resolveRunner('/usr/bin/npx', args, env, cwd);

  test.each<[string[], string[], string]>([
    [['@scope/local', 'a b', '--flag'], ['node', local, 'a b', '--flag'], '1.2.3'],
    [['-y', '@scope/local@1.2.3'], ['node', local], '1.2.3'],
    [['--yes', '--', 'cached', '-y'], ['node', cached, '-y'], '0.0.4'],
    [['-p', 'cached', 'also', 'x'], ['node', cached, 'x'], '0.0.4'],
    [['--package=exact@2.0.0', 'exact'], ['node', exact], '2.0.0'],
  ])('%j is what is on this machine', (args, argv, version) => {
    expect(npx(...args)?.found).toMatchObject({ argv, package: { version } });
  });

  test.each([
    [['not-there']],
    [['@scope/local@1.2.4']],
    [['tagged@latest']],
    [['stale@2.0.0']],
    [['cached@^0.0.4']],
    [['many']],
    [['-c', 'cached']],
    [['--registry=http://elsewhere', 'cached']],
    [['-p', 'cached', '-p', 'exact@2.0.0', 'exact']],
    [['github:owner/repository']],
    [['./local']],
    [['../../node_modules/cached']],
    [[]],
    [['-y']],
  ])('%j is left to npx', (args) => {
    expect(npx(...args)).toMatchObject({ runner: 'npx' });
    expect(npx(...args)?.found).toBeUndefined();
  });

  test('anything else is no package runner', () => {
    expect(resolveRunner('node', ['npx'], env, cwd)).toBeUndefined();
    expect(resolveRunner('npx.cmd', ['cached'], env, cwd)?.found?.argv).toEqual(['node', cached]);
  });

  test('what is on this machine is started, arguments intact, and the record says so', async () => {
    const folder = freshFolder();
    const run = start(['proxy', '--', 'npx', '-y', 'cached', 'a b', 'q"uote', '--json'], {
      ...env,
      BELAY_TRACE_DIR: folder,
    });
    expect(await run.ended).toBe(0);
    expect(run.stdout().toString()).toBe('["a b","q\\"uote","--json"]\n');
    expect((await recordsIn(folder))[0]).toMatchObject({
      command: {
        argv: ['npx', '-y', 'cached', 'a b', 'q"uote', '--json'],
        started: ['node', cached, 'a b', 'q"uote', '--json'],
        runner: { name: 'npx', spec: 'cached', resolved: true },
        script: { path: cached, sha256: sha256(cached) },
        package: { name: 'cached', version: '0.0.4' },
      },
    });
  });
});

describe('uvx', () => {
  const tools = freshFolder();
  const env = { UV_TOOL_DIR: tools };
  const site = join(tools, 'mcp-server-time', 'lib', 'python3.12', 'site-packages');
  mkdirSync(join(site, 'mcp_server_time-2.1.0.dist-info'), { recursive: true });
  mkdirSync(join(tools, 'mcp-server-time', 'bin'));
  const path = join(tools, 'mcp-server-time', 'bin', 'mcp-server-time');
  writeFileSync(path, '#!/bin/sh\n');
  const uvx = (...args: string[]) => resolveRunner('uvx', args, env, '/');

  test.each([
    [['mcp-server-time']],
    [['mcp-server-time@2.1.0']],
    [['--from', 'mcp-server-time==2.1.0', 'mcp-server-time']],
  ])('%j is the installed tool', (args) => {
    expect(uvx(...args)?.found).toEqual({
      argv: [path],
      package: { name: 'mcp-server-time', version: '2.1.0' },
    });
  });

  test.each([
    [['mcp-server-time@2.1.1']],
    [['mcp-server-time@latest']],
    [['other']],
    [['--python', '3.12', 'other']],
  ])('%j is left to uvx', (args) => {
    expect(uvx(...args)).toMatchObject({ runner: 'uvx' });
    expect(uvx(...args)?.found).toBeUndefined();
  });
});

describe('program, script and package', () => {
  const digests = new DigestCache(join(freshFolder(), 'digests.json'));

  test('a script of an interpreter, past its options; its package is the nearest', () => {
    const folder = freshFolder();
    const file = npmPackage(folder, 'served', '3.1.4');
    const found = identify(node, ['--enable-source-maps', file, '--port=1'], folder, digests);
    expect(found).toMatchObject({
      executable: { path: node },
      script: { path: file, sha256: sha256(file) },
      package: { name: 'served', version: '3.1.4' },
    });
  });

  test('a program by a link into its package', () => {
    const folder = freshFolder();
    const file = npmPackage(folder, 'linked', '1.0.0');
    chmodSync(file, 0o755);
    const link = join(folder, 'linked');
    symlinkSync(file, link);
    expect(identify(link, [], folder, digests)).toEqual({
      executable: { path: link, sha256: sha256(file) },
      script: undefined,
      package: { name: 'linked', version: '1.0.0' },
    });
  });

  test('what is on the command line itself is no script', () => {
    expect(identify(node, ['-e', program('server')], '/', digests).script).toBeUndefined();
    expect(identify('/bin/true', [program('server')], '/', digests).script).toBeUndefined();
  });

  test('a large program is read once, in the background, and again when it has changed', async () => {
    const folder = freshFolder();
    const store = join(folder, 'state', 'digests.json');
    const large = join(folder, 'large');
    writeFileSync(large, Buffer.alloc(33 << 20, 'l'));
    const { signal } = new AbortController();
    expect(new DigestCache(store).now(large)).toBeUndefined();
    expect(await new DigestCache(store).later(large, signal)).toBe(sha256(large));
    expect(new DigestCache(store).now(large)).toBe(sha256(large));
    utimesSync(large, 1, 1);
    expect(new DigestCache(store).now(large)).toBeUndefined();
    expect(await new DigestCache(store).later(large, AbortSignal.abort())).toBeUndefined();
    expect(new DigestCache(store).now(join(folder, 'missing'))).toBeUndefined();
    writeFileSync(store, '{"not": "ours"}');
    expect(new DigestCache(store).now(large)).toBeUndefined();
  });

  test('the digest is in the trace: at its end the first time, at its beginning the next', async () => {
    const state = freshFolder();
    const run = async () => {
      const folder = freshFolder();
      const env = { BELAY_TRACE_DIR: folder, BELAY_STATE: state };
      const served = start(['proxy', '--', node, program('server'), 'say:up\\n', 'echo'], env);
      await expect.poll(() => served.stdout().length).toBeGreaterThan(0);
      const store = join(state, 'digests.json');
      await expect.poll(() => readable(store)).toBe(true);
      served.child.stdin.end();
      await served.ended;
      const records = await recordsIn(folder);
      const [open, close] = [records[0], records.at(-1)];
      return [open?.type === 'open' && open.command?.executable, close?.type === 'close' && close.executable];
    };
    const path = node;
    const digest = sha256(node);
    const stat = expect.stringMatching(/^\d+(?::\d+){4}$/) as string;
    expect(await run()).toEqual([
      { path, stat },
      { path, sha256: digest },
    ]);
    expect(await run()).toEqual([{ path, sha256: digest }, undefined]);
  });
});

function readable(path: string): boolean {
  try {
    return readFileSync(path).length > 0;
  } catch {
    return false;
  }
}
