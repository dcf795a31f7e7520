import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, openSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SmallCollector } from '@belay/testkit';
import { checkTrace } from '@belay/trace';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { BELAY, freshFolder, node, program, tracesIn } from './proxied.js';

/**
 * A record that can't be kept does not keep the agent from its tools: that is the policy, and what is missing is told.
 * (A disk that is full: proxy.test.ts, hook.test.ts, and of a whole machine test/fault.)
 */

let collector: SmallCollector;
let folder: string;
let env: Record<string, string>;
beforeEach(async () => {
  collector = new SmallCollector();
  folder = freshFolder();
  env = {
    BELAY_URL: await collector.listen(),
    BELAY_TOKEN: collector.token,
    BELAY_STATE: join(folder, 'state'),
    BELAY_TRACE_DIR: join(folder, 'traces'),
  };
});
afterEach(() => collector.close());

/** Runs `belay ARGS` behind another command, which may have further files open from 3; two lines of input. */
async function ran(
  command: readonly string[],
  args: readonly string[],
  files: readonly number[] = [],
): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  const [name, ...rest] = [...command, node, BELAY, ...args] as [string, ...string[]];
  const child = spawn(name, rest, {
    stdio: ['pipe', 'pipe', 'pipe', ...files],
    env: { PATH: process.env['PATH'], HOME: folder, ...env },
  });
  let [stdout, stderr] = ['', ''];
  child.stdout?.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr?.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  child.stdin?.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
  await expect.poll(() => stdout).toContain('"id":1');
  child.stdin?.end('{"jsonrpc":"2.0","id":2,"method":"ping"}\n');
  const [code] = (await once(child, 'close')) as [number];
  expect(
    stdout
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { id: number }).id),
  ).toEqual([1, 2]);
  return { code, stdout, stderr };
}
const PROXY = ['proxy', '--', node, program('server'), 'answer'];

describe('folders that may not be written', () => {
  /** Root may do everything: it is run without that. */
  const plain =
    process.getuid?.() === 0 ? ['setpriv', '--bounding-set', '-dac_override,-dac_read_search'] : [];
  const locked = (name: string): void => {
    mkdirSync(join(folder, name));
    chmodSync(join(folder, name), 0o500);
  };

  test('the traces: the run is sent and not recorded, which is told', async () => {
    locked('traces');
    const { code, stderr } = await ran(plain, PROXY);
    expect(code).toBe(0);
    expect(stderr).toMatch(/belay: this run is not recorded: EACCES/);
    expect(collector.envelopes().at(-1)?.kind).toBe('epoch.close');
    expect(readdirSync(join(folder, 'traces'))).toEqual([]);
  });

  test('the state: the run is recorded and not sent, which is told', async () => {
    locked('state');
    const { code, stderr } = await ran(plain, PROXY);
    expect(code).toBe(0);
    expect(stderr).toMatch(/belay: nothing is sent: EACCES/);
    expect(collector.envelopes()).toEqual([]);
    const [path] = tracesIn(join(folder, 'traces')) as [string];
    const { problems, open, frames } = await checkTrace(path);
    expect([problems, open?.log, frames]).toEqual([[], undefined, 4]);
  });
});

describe('a disk that takes what is written and fails to make it durable', () => {
  /** Has the kernel answer fsync and fdatasync with EIO. */
  function withoutSync(): { readonly command: string[]; readonly filter: number } {
    const [fsync, fdatasync] = process.arch === 'arm64' ? [82, 83] : [74, 75];
    const [load, equal, answer] = [0x20, 0x15, 0x06];
    const [allow, refuse] = [0x7fff0000, 0x00050000 | 5];
    const steps: [code: number, yes: number, no: number, value: number][] = [
      [load, 0, 0, 0],
      [equal, 1, 0, fsync as number],
      [equal, 0, 1, fdatasync as number],
      [answer, 0, 0, refuse],
      [answer, 0, 0, allow],
    ];
    const bytes = Buffer.alloc(8 * steps.length);
    steps.forEach(([code, yes, no, value], at) => {
      bytes.writeUInt16LE(code, at * 8);
      bytes.writeUInt8(yes, at * 8 + 2);
      bytes.writeUInt8(no, at * 8 + 3);
      bytes.writeUInt32LE(value, at * 8 + 4);
    });
    const path = join(folder, 'filter');
    writeFileSync(path, bytes);
    return {
      command: ['bwrap', '--dev-bind', '/', '/', '--seccomp', '3', '--'],
      filter: openSync(path, 'r'),
    };
  }

  test('the trace says so, and is not taken for a whole one', async () => {
    const { command, filter } = withoutSync();
    const { code, stderr } = await ran(command, PROXY, [filter]);
    expect(code).toBe(0);
    // What is to be sent is not begun where it could not be kept until it is acknowledged.
    expect(stderr).toMatch(/belay: nothing is sent: EIO/);
    expect(collector.envelopes()).toEqual([]);
    const [path] = tracesIn(join(folder, 'traces')) as [string];
    const report = await checkTrace(path);
    expect(report).toMatchObject({ problems: [], frames: 4, close: { lost: 0 } });
    expect(report.gaps).toMatchObject([{ reason: 'sync', count: 0, code: 'EIO' }]);
  });
});
