// What a boundary costs: the start of a Node MCP server up to its first answer, bare, inside bubblewrap, and with
// refusals told by name; then opening files inside, and a small call through the proxy. Ways alternate within each
// round, and what is shown is the median of the differences within rounds: all see the same machine. Processor time is of
// all that took part, and says what a start costs where other work makes the clock say something else; as root only.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DEFAULT_POLICY, prepare } from '@belay/sandbox';
import { median, quantile, table } from './measure.mjs';

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const require = createRequire(import.meta.url);
const INITIALIZE = `${JSON.stringify({
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'bench', version: '1' } },
})}\n`;
const ECHO = `process.stdin.setEncoding('utf8'); let rest = '';
process.stdin.on('data', (text) => { rest += text; let end; while ((end = rest.indexOf('\\n')) >= 0) {
  const { id } = JSON.parse(rest.slice(0, end)); rest = rest.slice(end + 1);
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'ok' }] } }) + '\\n'); } });`;
const OPEN = `const fs = require('node:fs'); const [count] = process.argv.slice(2).map(Number);
const each = (act) => { const from = process.hrtime.bigint(); for (let i = 0; i < count; i++) act();
  return Number(process.hrtime.bigint() - from) / 1000 / count; };
fs.writeFileSync('file', 'x');
process.stdout.write(JSON.stringify({ read: each(() => fs.closeSync(fs.openSync('file', 'r'))),
  write: each(() => fs.closeSync(fs.openSync('file', 'w'))), stat: each(() => fs.statSync('file')) }));`;

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-sandbox-'));
  const workspace = join(dir, 'ws');
  mkdirSync(workspace);
  writeFileSync(join(workspace, 'echo.cjs'), ECHO);
  writeFileSync(join(workspace, 'open.cjs'), OPEN);
  try {
    const started = await starts(workspace, Math.max(3, Math.round(25 * scale)));
    console.log(table(started));
    const opened = await opens(workspace, Math.max(3, Math.round(7 * scale)));
    console.log(`\n${table(opened)}`);
    const called = await calls(workspace, dir, Math.max(200, Math.round(3_000 * scale)));
    console.log(`\n${table(called)}`);
    return { started, opened, called };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const policyOf = (workspace, more) => ({ ...DEFAULT_POLICY, roots: [workspace], ...more });

/** Spawns a command, inside a boundary if there is a policy. */
async function launch(policy, argv, cwd, stdio) {
  if (policy === undefined)
    return { child: spawn(argv[0], argv.slice(1), { cwd, stdio }), done: async () => {} };
  const prepared = await prepare(policy, { argv, cwd, env: process.env });
  const [program, ...args] = prepared.argv;
  const child = spawn(program, args, {
    cwd,
    env: prepared.env,
    stdio: [...stdio, ...prepared.fds],
    detached: true,
  });
  prepared.started(child.pid);
  return { child, done: () => prepared.dispose() };
}

/** Milliseconds of processor time of this process and all that it starts from now on; undefined where nobody counts. */
function processorTime() {
  const name = `belay-bench-${process.pid}`;
  const [folder, read] = existsSync('/sys/fs/cgroup/cpuacct/cgroup.procs')
    ? [`/sys/fs/cgroup/cpuacct/${name}`, (at) => Number(readFileSync(`${at}/cpuacct.usage`, 'utf8')) / 1e6]
    : [
        `/sys/fs/cgroup/${name}`,
        (at) => Number(/usage_usec (\d+)/.exec(readFileSync(`${at}/cpu.stat`, 'utf8'))[1]) / 1e3,
      ];
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${folder}/cgroup.procs`, String(process.pid));
    read(folder);
  } catch {
    return { now: () => undefined, end: () => {} };
  }
  return {
    now: () => read(folder),
    end: () => {
      writeFileSync(join(dirname(folder), 'cgroup.procs'), String(process.pid));
      try {
        rmdirSync(folder);
      } catch {
        // Somebody is being collected still.
      }
    },
  };
}

const gone = (child) => new Promise((resolve) => child.once('close', resolve));

async function starts(workspace, rounds) {
  const filesystem = join(
    dirname(require.resolve('@modelcontextprotocol/server-filesystem/package.json')),
    'dist/index.js',
  );
  const argv = [process.execPath, filesystem, workspace];
  const ways = {
    bare: undefined,
    bwrap: policyOf(workspace, { backend: 'bwrap', denials: 'off' }),
    'bwrap, named': policyOf(workspace, { backend: 'bwrap' }),
    'landlock, named': policyOf(workspace, { backend: 'landlock' }),
  };
  const processor = processorTime();
  const one = async (policy) => {
    const [from, before] = [performance.now(), processor.now()];
    const { child, done } = await launch(policy, argv, workspace, ['pipe', 'pipe', 'ignore']);
    child.stdin.write(INITIALIZE);
    await new Promise((resolve) => child.stdout.once('data', resolve));
    const wall = performance.now() - from;
    const cpu = before === undefined ? Number.NaN : processor.now() - before;
    child.stdin.end();
    child.kill('SIGKILL');
    await gone(child);
    await done();
    return { wall, cpu };
  };
  const taken = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
  for (const policy of Object.values(ways)) await one(policy);
  for (let round = 0; round < rounds; round++) {
    for (const [way, policy] of Object.entries(ways)) taken[way].push(await one(policy));
  }
  processor.end();
  return Object.entries(taken).map(([way, runs]) => {
    const times = runs.map(({ wall }) => wall);
    const over = times.map((time, round) => time - taken.bare[round].wall);
    const cpu = runs.map((run, round) => run.cpu - taken.bare[round].cpu);
    return {
      'start of server-filesystem': way,
      'ms min': Math.min(...times).toFixed(0),
      'ms median': median(times).toFixed(0),
      'over bare, median': way === 'bare' ? '' : median(over).toFixed(0),
      'over bare, p95': way === 'bare' ? '' : quantile(over, 0.95).toFixed(0),
      'processor over bare': way === 'bare' ? '' : median(cpu).toFixed(0),
    };
  });
}

async function opens(workspace, rounds) {
  const ways = {
    bare: undefined,
    bwrap: policyOf(workspace, { denials: 'off' }),
    'bwrap, named': policyOf(workspace, {}),
  };
  const taken = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [way, policy] of Object.entries(ways)) {
      const { child, done } = await launch(
        policy,
        [process.execPath, join(workspace, 'open.cjs'), '2000'],
        workspace,
        ['ignore', 'pipe', 'ignore'],
      );
      let text = '';
      child.stdout.on('data', (chunk) => (text += chunk));
      await gone(child);
      await done();
      taken[way].push(JSON.parse(text));
    }
  }
  return Object.entries(taken).map(([way, times]) => ({
    'system calls, us': way,
    'open to read': median(times.map(({ read }) => read)).toFixed(1),
    'open to write': median(times.map(({ write }) => write)).toFixed(1),
    stat: median(times.map(({ stat }) => stat)).toFixed(1),
  }));
}

/** The same echo server behind the proxy, without a boundary and with one; calls alternate. */
async function calls(workspace, dir, count) {
  const behind = (...options) => {
    const env = { ...process.env, HOME: dir, BELAY_STATE: join(dir, `state-${options.length}`) };
    const args = [CLI, 'proxy', '--no-snapshots', '--workspace', workspace, ...options, '--'];
    const child = spawn(process.execPath, [...args, process.execPath, join(workspace, 'echo.cjs')], {
      env,
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    return { child, times: [] };
  };
  const ways = { 'proxy alone': behind(), 'proxy --sandbox default': behind('--sandbox', 'default') };
  const one = ({ child }, id) =>
    new Promise((resolve) => {
      const from = performance.now();
      child.stdout.once('data', () => resolve((performance.now() - from) * 1000));
      const params = { name: 'echo', arguments: { text: 'x'.repeat(120) } };
      child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params })}\n`);
    });
  for (let id = 0; id < count; id++) {
    for (const way of Object.values(ways)) {
      const took = await one(way, id);
      if (id >= count / 10) way.times.push(took);
    }
  }
  for (const { child } of Object.values(ways)) {
    child.stdin.end();
    await gone(child);
  }
  return Object.entries(ways).map(([way, { times }]) => ({
    'small call, us': way,
    p50: median(times).toFixed(0),
    p95: quantile(times, 0.95).toFixed(0),
  }));
}
