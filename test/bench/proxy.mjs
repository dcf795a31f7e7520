// What `belay proxy` adds to a small call: the same MCP server behind the proxy and bare, calls alternating in one run
// so that both see the same machine. Trace on; forwarding on where a service answers (`--url`/BELAY_TOKEN are not used
// here: the recorder's cost is the same, the lines go to a spool).
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { randomBytes } from 'node:crypto';
import { formatCredential, newIdentifier } from '@belay/contracts';
import { median, quantile, table } from './measure.mjs';

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const require = createRequire(import.meta.url);

// A server that answers at once: what is measured is the way there and back.
const ECHO = `process.stdin.setEncoding('utf8'); let rest = '';
process.stdin.on('data', (text) => { rest += text; let end; while ((end = rest.indexOf('\\n')) >= 0) {
  const { id } = JSON.parse(rest.slice(0, end)); rest = rest.slice(end + 1);
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'ok' }] } }) + '\\n'); } });`;

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-proxy-'));
  writeFileSync(join(dir, 'echo.cjs'), ECHO);
  const everything = join(
    dirname(require.resolve('@modelcontextprotocol/server-everything/package.json')),
    'dist/index.js',
  );
  const rows = [];
  try {
    // A token of a service that is not there: lines are spooled and retried in the background, the agent never waits.
    const token = formatCredential({
      kind: 'append',
      id: newIdentifier('tok', Date.now(), randomBytes(10)),
      secret: randomBytes(24),
      project: newIdentifier('prj', Date.now(), randomBytes(10)),
      publicKey: randomBytes(32),
      origin: 'bench.local/log',
    });
    const record = { BELAY_STATE: join(dir, 'record'), BELAY_TRACE_DIR: join(dir, 'traces') };
    const away = {
      ...record,
      BELAY_STATE: join(dir, 'away'),
      BELAY_URL: 'http://127.0.0.1:9',
      BELAY_TOKEN: token,
    };
    for (const [what, server, count] of [
      ['server that answers at once', [join(dir, 'echo.cjs')], 3_000],
      ['server-everything, echo', [everything, 'stdio'], 1_000],
    ]) {
      const calls = Math.round(count * scale);
      const [bare, recorded, forwarded] = await measure(server, [null, record, away], calls);
      for (const [name, found] of [
        ['recording', recorded],
        ['recording, collector away', forwarded],
      ]) {
        rows.push({
          what: `${String(what)}: ${name}`,
          'bare p50 us': median(bare).toFixed(0),
          'proxied p50 us': median(found).toFixed(0),
          'added p50 us': median(found.map((time, at) => time - bare[at])).toFixed(0),
          'added p99 us': (quantile(found, 0.99) - quantile(bare, 0.99)).toFixed(0),
        });
      }
    }
    console.log(table(rows));
    return rows;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Microseconds per call for each way to start the server, one call of each in turn. */
async function measure(server, ways, calls) {
  const peers = ways.map((env) => {
    const args = env === null ? server : [CLI, 'proxy', '--', process.execPath, ...server];
    const child = spawn(process.execPath, args, {
      stdio: ['pipe', 'pipe', 'ignore'],
      env: { ...process.env, ...env },
    });
    return new Peer(child);
  });
  for (const peer of peers) {
    await peer.call('initialize', {
      protocolVersion: '2025-06-18',
      capabilities: {},
      clientInfo: { name: 'bench', version: '1' },
    });
    for (let at = 0; at < 200; at++) await peer.echo(at);
  }
  const times = peers.map(() => []);
  for (let at = 0; at < calls; at++) {
    for (let turn = 0; turn < peers.length; turn++) {
      const which = (turn + at) % peers.length;
      const start = process.hrtime.bigint();
      await peers[which].echo(at);
      times[which].push(Number(process.hrtime.bigint() - start) / 1_000);
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
  constructor(child) {
    this.#child = child;
    child.stdout.setEncoding('utf8').on('data', (text) => {
      this.#rest += text;
      let end;
      while ((end = this.#rest.indexOf('\n')) >= 0) {
        const message = JSON.parse(this.#rest.slice(0, end));
        this.#rest = this.#rest.slice(end + 1);
        this.#waiting.get(message.id)?.(message);
        this.#waiting.delete(message.id);
      }
    });
  }
  call(method, params) {
    const id = ++this.#id;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    });
  }
  echo(at) {
    return this.call('tools/call', { name: 'echo', arguments: { message: `hello ${at}` } });
  }
  close() {
    return new Promise((resolve) => {
      this.#child.once('exit', resolve);
      this.#child.stdin.end();
    });
  }
}
