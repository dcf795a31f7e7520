// What `belay proxy --attest-first` costs a call: the same server twice behind a proxy that keeps states, with it and
// without, calls alternating in one run, against a whole service on this machine (PostgreSQL, every commit synced).
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { median, quantile, table } from './measure.mjs';

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const ECHO = `process.stdin.setEncoding('utf8'); let rest = '';
process.stdin.on('data', (text) => { rest += text; let end; while ((end = rest.indexOf('\\n')) >= 0) {
  const { id } = JSON.parse(rest.slice(0, end)); rest = rest.slice(end + 1);
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'ok' }] } }) + '\\n'); } });`;
/** Between two calls, milliseconds: an agent thinks. */
const PAUSE = 80;

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-attest-'));
  // Started as root, PostgreSQL runs as another user, which has to get to its own folder through this one.
  chmodSync(dir, 0o711);
  let service;
  const servers = [];
  try {
    writeFileSync(join(dir, 'echo.cjs'), ECHO);
    const port = await freePort();
    service = spawn(process.execPath, [CLI, 'serve', '--data', join(dir, 'data'), '--port', String(port)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const url = `http://127.0.0.1:${port}`;
    const operator = await operatorKey(service);
    const env = { BELAY_STATE: join(dir, 'state'), XDG_CONFIG_HOME: join(dir, 'config') };
    const tenant = await belay(
      { ...env, BELAY_OPERATOR_KEY: operator },
      'tenant',
      'create',
      '--name',
      'bench',
      '--url',
      url,
    );
    await belay(
      { ...env, BELAY_ADMIN_KEY: tenant.admin.credential },
      'project',
      'register',
      '--name',
      'bench',
      '--url',
      url,
    );
    for (const options of [[], ['--attest-first=60000']]) {
      const workspace = join(dir, `workspace-${servers.length}`);
      mkdirSync(workspace);
      writeFileSync(join(workspace, 'a.txt'), 'alpha\n');
      servers.push(new Asked(['proxy', '--workspace', workspace, ...options], join(dir, 'echo.cjs'), env));
    }
    const times = servers.map(() => []);
    const count = Math.round(200 * scale);
    for (let i = 0; i < count + 10; i++) {
      for (const [at, server] of servers.entries()) {
        const took = await server.call();
        if (i >= 10) times[at].push(took);
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    }
    const [without, held] = times;
    const ms = (value) => value.toFixed(1);
    const figures = {
      'states p50 ms': ms(median(without)),
      'p95 ms ': ms(quantile(without, 0.95)),
      'attest first p50 ms': ms(median(held)),
      'p95 ms': ms(quantile(held, 0.95)),
      'added p50 ms': ms(median(held.map((time, at) => time - without[at]))),
    };
    console.log(table([figures]));
    return figures;
  } finally {
    for (const server of servers) await server.end();
    if (service !== undefined) {
      const gone = new Promise((resolve) => service.once('exit', resolve));
      service.kill('SIGTERM');
      await gone;
    }
    rmSync(dir, { recursive: true, force: true });
  }
}

class Asked {
  constructor(proxy, server, env) {
    this.child = spawn(process.execPath, [CLI, ...proxy, '--', process.execPath, server], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, ...env },
    });
    this.id = 0;
  }

  async call() {
    const began = performance.now();
    const answer = new Promise((resolve) => this.child.stdout.once('data', resolve));
    const message = {
      jsonrpc: '2.0',
      id: ++this.id,
      method: 'tools/call',
      params: { name: 'a', arguments: {} },
    };
    this.child.stdin.write(`${JSON.stringify(message)}\n`);
    await answer;
    return performance.now() - began;
  }

  async end() {
    const gone = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.stdin.end();
    await gone;
  }
}

function belay(env, ...args) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [CLI, ...args, '--json'], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...env },
    });
    let text = '';
    child.stdout.on('data', (chunk) => (text += chunk));
    child.once('close', (code) =>
      code === 0 ? resolve(JSON.parse(text)) : reject(new Error(`belay ${args[0]}: ${text}`)),
    );
  });
}

/** The key that the first start prints. */
function operatorKey(service) {
  return new Promise((resolve, reject) => {
    let text = '';
    service.stdout.on('data', (chunk) => {
      text += chunk;
      const [, key] = /Operator key, shown once: (\S+)\n/.exec(text) ?? [];
      if (key !== undefined) resolve(key);
    });
    service.once('exit', () => reject(new Error(`belay serve ended: ${text}`)));
  });
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
