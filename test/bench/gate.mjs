// What states around calls add to a call that changes one file: the same server behind the proxy, with and without
// states (and inside the sandbox), and bare, calls alternating two at a time. Each server has a workspace of its own.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { median, quantile, table } from './measure.mjs';

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const FILE_BYTES = 4_000;
const PER_FOLDER = 100;
const WARM_UP = 50;

// Every call writes one file, and is answered at once.
const SERVER = `const { writeFileSync } = require('node:fs'); const path = require('node:path').join(process.argv[2], 'changed.txt');
process.stdin.setEncoding('utf8'); let rest = '';
process.stdin.on('data', (text) => { rest += text; let end; while ((end = rest.indexOf('\\n')) >= 0) {
  const { id, params } = JSON.parse(rest.slice(0, end)); rest = rest.slice(end + 1);
  if (params && params.arguments) writeFileSync(path, params.arguments.text);
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'ok' }] } }) + '\\n'); } });`;

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-gate-'));
  const server = join(dir, 'server.cjs');
  writeFileSync(server, SERVER);
  const rows = [];
  try {
    for (const files of [400, Math.max(400, Math.round(20_000 * Math.min(1, scale)))]) {
      const bare = workspace(dir, files);
      for (const { what, options } of [
        { what: 'trace', options: ['--no-snapshots'] },
        { what: 'gate + trace', options: [] },
        ...(sandboxed(dir, server)
          ? [{ what: 'gate + trace + sandbox', options: ['--sandbox', 'default'] }]
          : []),
      ]) {
        const own = workspace(dir, files);
        const traces = mkdtempSync(join(dir, 'traces-'));
        const peers = [
          await Peer.start([server, bare], {}),
          await Peer.start(
            [CLI, 'proxy', '--workspace', own, ...options, '--', process.execPath, server, own],
            {
              BELAY_STATE: mkdtempSync(join(dir, 'state-')),
              BELAY_TRACE_DIR: traces,
            },
          ),
        ];
        const times = await alternate(peers, Math.round(500 * scale), () => firstLook(traces, options));
        const states = recordsOf(traces).filter(({ type }) => type === 'state');
        rows.push({
          files,
          what,
          'bare p50 ms': median(times[0]).toFixed(2),
          'through p50 ms': median(times[1]).toFixed(2),
          'added p50 ms': median(times[1].map((time, at) => time - times[0][at])).toFixed(2),
          'added p95 ms': (quantile(times[1], 0.95) - quantile(times[0], 0.95)).toFixed(2),
          'capture p50 ms':
            states.length === 0 ? '' : median(states.flatMap(({ ms }) => ms ?? [])).toFixed(2),
          'no state': states.filter(({ state }) => state === 'unrestorable').length,
        });
        rmSync(own, { recursive: true });
      }
      rmSync(bare, { recursive: true });
    }
    console.log(table(rows));
    return rows;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

function workspace(dir, files) {
  const root = mkdtempSync(join(dir, 'workspace-'));
  for (let at = 0; at < files; at++) {
    const folder = join(root, `d${Math.floor(at / PER_FOLDER)}`);
    if (at % PER_FOLDER === 0) mkdirSync(folder);
    writeFileSync(join(folder, `f${at}`), `${at}\n`.padEnd(FILE_BYTES, 'x'));
  }
  return root;
}

/** Whether this machine and this version have a sandbox to measure. */
function sandboxed(dir, server) {
  const own = mkdtempSync(join(dir, 'probe-'));
  const args = [
    CLI,
    'proxy',
    '--sandbox',
    'default',
    '--workspace',
    own,
    '--',
    process.execPath,
    server,
    own,
  ];
  const env = { ...process.env, BELAY_STATE: join(dir, 'probe-state') };
  return (
    spawnSync(process.execPath, args, { input: '', env, stdio: ['pipe', 'ignore', 'ignore'] }).status === 0
  );
}

const recordsOf = (folder) =>
  readdirSync(folder).flatMap((name) =>
    readFileSync(join(folder, name), 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line)),
  );

async function firstLook(traces, options) {
  if (options.includes('--no-snapshots')) return;
  while (!recordsOf(traces).some(({ type }) => type === 'state')) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Milliseconds per call for each peer, one call of each in turn. */
async function alternate(peers, calls, ready) {
  await ready();
  const times = peers.map(() => []);
  for (let at = -WARM_UP; at < calls; at++) {
    for (let turn = 0; turn < peers.length; turn++) {
      const which = (turn + Math.abs(at)) % peers.length;
      const start = performance.now();
      await peers[which].call(`text ${at}`);
      if (at >= 0) times[which].push(performance.now() - start);
    }
  }
  await Promise.all(peers.map((peer) => peer.close()));
  return times;
}

class Peer {
  #child;
  #id = 0;
  #rest = '';
  #waiting = new Map();

  static async start(args, env) {
    const child = spawn(process.execPath, args, {
      stdio: ['pipe', 'pipe', 'ignore'],
      env: { ...process.env, ...env },
    });
    const peer = new Peer(child);
    await peer.#send('ping', {});
    return peer;
  }
  constructor(child) {
    this.#child = child;
    child.stdout.setEncoding('utf8').on('data', (text) => {
      this.#rest += text;
      for (let end; (end = this.#rest.indexOf('\n')) >= 0;) {
        const { id } = JSON.parse(this.#rest.slice(0, end));
        this.#rest = this.#rest.slice(end + 1);
        this.#waiting.get(id)?.();
        this.#waiting.delete(id);
      }
    });
  }
  #send(method, params) {
    const id = ++this.#id;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    });
  }
  call(text) {
    return this.#send('tools/call', { name: 'write', arguments: { text } });
  }
  close() {
    return new Promise((resolve) => {
      this.#child.once('exit', resolve);
      this.#child.stdin.end();
    });
  }
}
