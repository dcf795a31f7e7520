/** What a person is told of a run that is not what was asked for. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, test } from 'vitest';
import { BELAY, freshFolder, node, proxied, start } from './proxied.js';

async function said(args: readonly string[], env: Record<string, string> = {}) {
  const run = start(['proxy', ...args], { BELAY_TRACE_DIR: freshFolder(), ...env });
  run.child.stdin.end();
  return { exit: await run.ended, stderr: run.stderr() };
}

describe('belay proxy says', () => {
  test('that a network policy without a boundary holds nothing', async () => {
    const run = proxied(['echo'], { BELAY_TRACE_DIR: freshFolder(), BELAY_SANDBOX_NETWORK: 'deny-all' });
    run.child.stdin.end();
    expect(await run.ended).toBe(0);
    expect(run.stderr()).toContain('BELAY_SANDBOX_NETWORK is of no effect');
  });

  test('that an empty name is no workspace, not the folder it was started in', async () => {
    const { exit, stderr } = await said(['--workspace', '', '--', 'true']);
    expect(exit).toBe(64);
    expect(stderr).toContain('--workspace is empty');
  });

  test('that its own folder is no workspace: each record would be a change of it', async () => {
    const folder = freshFolder();
    const { exit, stderr } = await said(['--workspace', folder, '--', 'true'], { BELAY_TRACE_DIR: folder });
    expect(exit).toBe(0);
    expect(stderr).toContain('keeps its own files');
  });

  test('that a policy is a folder', async () => {
    const { exit, stderr } = await said(['--policy', freshFolder(), '--', 'true']);
    expect(exit).toBe(65);
    expect(stderr).toContain('is a folder');
  });

  test('that a server over HTTP has no states and no boundary', async () => {
    const folder = freshFolder();
    const run = start(['proxy', '--http', 'http://127.0.0.1:9/mcp', '--workspace', folder], {
      BELAY_TRACE_DIR: freshFolder(),
    });
    await expect.poll(() => run.stderr(), { timeout: 10_000 }).toContain('listening on');
    run.child.kill('SIGTERM');
    await run.ended;
    expect(run.stderr()).toContain('no states of a workspace, and no boundary');
  });

  test.runIf(process.platform === 'linux')('that records could not be written', async () => {
    // No file may be larger than this: what a full disk is, for one process.
    const limited = ['--fsize=65536', node, BELAY, 'proxy', '--', 'cat'];
    const child = spawn('prlimit', limited, {
      stdio: ['pipe', 'ignore', 'pipe'],
      env: { PATH: process.env['PATH'], HOME: freshFolder(), BELAY_TRACE_DIR: freshFolder() },
    });
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    child.stdin.end(`${JSON.stringify({ text: 'x'.repeat(200_000) })}\n`);
    expect((await once(child, 'close'))[0]).toBe(0);
    expect(stderr).toContain('could not be written');
  });
});
