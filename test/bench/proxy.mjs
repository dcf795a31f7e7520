// What `belay proxy` adds to a small call, what it leaves of the throughput of large answers, and the memory it takes.
// Small calls: the same MCP server behind the proxy and bare, calls alternating in one run so that both see the same
// machine. Two at a time and no more: what a third pair of processes takes from the caches is no cost of a proxy. What a
// process with nothing but pipe() adds is measured the same way, and is what is left for the recorder to add to.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { randomBytes } from 'node:crypto';
import { formatCredential, newIdentifier } from '@belay/contracts';
import { median, quantile, table } from './measure.mjs';

// A collector in a process of its own: it takes lines and signs for them.
const COLLECTOR = `import { SmallCollector } from '@belay/testkit';
const collector = new SmallCollector();
console.log(JSON.stringify({ BELAY_URL: await collector.listen(), BELAY_TOKEN: collector.token }));`;

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const require = createRequire(import.meta.url);

// A server that answers at once: what is measured is the way there and back.
const ECHO = `process.stdin.setEncoding('utf8'); let rest = '';
process.stdin.on('data', (text) => { rest += text; let end; while ((end = rest.indexOf('\\n')) >= 0) {
  const { id } = JSON.parse(rest.slice(0, end)); rest = rest.slice(end + 1);
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'ok' }] } }) + '\\n'); } });`;

// Answers of a size, one after the other, without a pause.
const FLOOD = `const [size, count] = process.argv.slice(2).map(Number);
const line = Buffer.alloc(size, 'x'); line.write('{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"');
line.write('"}]}}\\n', size - 6); let left = count;
const more = () => { while (left-- > 0) if (!process.stdout.write(line)) return void process.stdout.once('drain', more); };
more();`;
// The same way with nothing but pipe() on it.
const PIPE = `const { spawn } = require('node:child_process');
const child = spawn(process.execPath, process.argv.slice(2), { stdio: ['pipe', 'pipe', 'inherit'] });
process.stdin.pipe(child.stdin); child.stdout.pipe(process.stdout);`;
const MB = 1_000_000;

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-proxy-'));
  writeFileSync(join(dir, 'echo.cjs'), ECHO);
  const everything = join(
    dirname(require.resolve('@modelcontextprotocol/server-everything/package.json')),
    'dist/index.js',
  );
  writeFileSync(join(dir, 'flood.cjs'), FLOOD);
  writeFileSync(join(dir, 'pipe.cjs'), PIPE);
  const rows = [];
  try {
    const stream = await throughput(dir, scale);
    console.log(table(stream));
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
    const collector = await startCollector();
    const sent = { ...record, BELAY_STATE: join(dir, 'sent'), ...collector.env };
    const proxy = [CLI, 'proxy', '--', process.execPath];
    try {
      for (const { what, server, count } of [
        { what: 'server that answers at once', server: [join(dir, 'echo.cjs')], count: 3_000 },
        { what: 'server-everything, echo', server: [everything, 'stdio'], count: 1_000 },
      ]) {
        for (const { name, through, env } of [
          { name: 'pipe() alone', through: [join(dir, 'pipe.cjs')], env: {} },
          { name: 'recording', through: proxy, env: record },
          { name: 'recording, forwarding', through: proxy, env: sent },
          { name: 'recording, collector away', through: proxy, env: away },
        ]) {
          const [bare, found] = await measure(
            [
              { args: server, env: {} },
              { args: [...through, ...server], env },
            ],
            Math.round(count * scale),
          );
          rows.push({
            what: `${what}: ${name}`,
            'bare p50 us': median(bare).toFixed(0),
            'through p50 us': median(found).toFixed(0),
            'added p50 us': median(found.map((time, at) => time - bare[at])).toFixed(0),
            'added p99 us': (quantile(found, 0.99) - quantile(bare, 0.99)).toFixed(0),
          });
        }
      }
    } finally {
      collector.stop();
    }
    console.log(`\n${table(rows)}`);
    return { stream, calls: rows };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/**
 * Answers of 10 MB through pipe() and through the proxy, in turn, each first every second time; and how the proxy's memory
 * grows over a gigabyte. `sustained` leaves out the first fifth: until then both warm up, and the recorder's second thread
 * is being started.
 */
async function throughput(dir, scale) {
  const flood = (count) => [join(dir, 'flood.cjs'), String(10 * MB), String(count)];
  const piped = (count) => [join(dir, 'pipe.cjs'), ...flood(count)];
  const proxied = (count) => [CLI, 'proxy', '--', process.execPath, ...flood(count)];
  const count = Math.max(5, Math.round(100 * scale));
  const found = { pipe: [], proxy: [] };
  const ways = [
    ['pipe', piped],
    ['proxy', proxied],
  ];
  for (let round = 0; round < 11; round++) {
    for (const [name, way] of round % 2 === 0 ? ways : ways.toReversed())
      found[name].push(await flow(dir, way(count)));
  }
  const long = await flow(dir, proxied(Math.max(10, Math.round(100 * scale))));
  const [tenth, last] = [long.memory[Math.floor(long.memory.length / 10)], long.memory.at(-1)];
  return [
    ['sustained', 'sustained'],
    ['from the first byte', 'rate'],
  ].map(([what, rate]) => ({
    what: `answers of 10 MB, recording, ${what}`,
    'pipe() MB/s': median(found.pipe.map((each) => each[rate])).toFixed(0),
    'proxy MB/s': median(found.proxy.map((each) => each[rate])).toFixed(0),
    share: median(found.proxy.map((each, at) => each[rate] / found.pipe[at][rate])).toFixed(2),
    'RSS MB after a tenth': tenth.toFixed(0),
    'at the end': last.toFixed(0),
  }));
}

/**
 * Megabytes per second from the first byte to the last (`rate`) and from the end of the first fifth of the answers
 * (`sustained`), and the process's memory on the way.
 */
async function flow(dir, args) {
  const traces = join(dir, 'stream');
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...process.env, BELAY_STATE: join(dir, 'stream-state'), BELAY_TRACE_DIR: traces },
  });
  let [bytes, first, last] = [0, 0, 0];
  const memory = [];
  /** When each answer had come. */
  const ends = [];
  child.stdout.on('data', (chunk) => {
    last = performance.now();
    first ||= last;
    bytes += chunk.length;
    if (Math.floor(bytes / (10 * MB)) === ends.length) return;
    ends.push(last);
    memory.push(rss(child.pid));
  });
  await new Promise((resolve) => child.once('close', resolve));
  rmSync(traces, { recursive: true, force: true });
  const warm = Math.floor(ends.length / 5);
  return {
    rate: bytes / 1_000 / (last - first),
    sustained: ((ends.length - 1 - warm) * 10 * MB) / 1_000 / (ends.at(-1) - ends[warm]),
    memory: memory.filter((each) => each > 0),
  };
}

function rss(pid) {
  try {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024;
  } catch {
    return 0;
  }
}

async function startCollector() {
  const child = spawn(process.execPath, ['--input-type=module', '-e', COLLECTOR], {
    stdio: ['ignore', 'pipe', 'inherit'],
    cwd: fileURLToPath(new URL('.', import.meta.url)),
  });
  const env = await new Promise((resolve) => child.stdout.once('data', (line) => resolve(JSON.parse(line))));
  return { env, stop: () => child.kill() };
}

/** Microseconds per call for each way to start the server, one call of each in turn. */
async function measure(ways, calls) {
  const peers = ways.map(({ args, env }) => {
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
