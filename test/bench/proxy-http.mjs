// What `belay proxy --http` adds to a small call, and how fast a large answer passes: the same HTTP server behind the
// proxy and bare, calls alternating in one run so that both see the same machine. Trace on.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { median, quantile, table } from './measure.mjs';

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const LARGE = 10 * 1024 * 1024;

// A server that answers at once, as JSON or, for /mcp?events, as an event stream; a large answer where `id` is 0.
const SERVER = `const large = JSON.stringify({ jsonrpc: '2.0', id: 0, result: { content: 'x'.repeat(${LARGE}) } });
require('node:http').createServer((request, response) => {
  let text = ''; request.on('data', (part) => { text += part; }).on('end', () => {
    const { id } = JSON.parse(text);
    const answer = id === 0 ? large : JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'ok' }] } });
    const events = request.url.includes('events');
    response.writeHead(200, { 'Content-Type': events ? 'text/event-stream' : 'application/json' });
    response.end(events ? 'event: message\\ndata: ' + answer + '\\n\\n' : answer);
  });
}).listen(0, '127.0.0.1', function () { console.log(JSON.stringify({ url: 'http://127.0.0.1:' + this.address().port + '/mcp' })); });`;

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-http-'));
  writeFileSync(join(dir, 'server.cjs'), SERVER);
  const started = [];
  const start = async (args) => {
    const child = spawn(process.execPath, args, {
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { ...process.env, BELAY_STATE: join(dir, 'state'), BELAY_TRACE_DIR: join(dir, 'traces') },
    });
    started.push(child);
    return await new Promise((resolve) => child.stdout.once('data', (line) => resolve(JSON.parse(line).url)));
  };
  try {
    const bare = await start([join(dir, 'server.cjs')]);
    const proxied = await start([CLI, 'proxy', '--json', '--http', bare]);
    const rows = [];
    for (const [what, suffix] of [
      ['JSON', ''],
      ['event stream', '?events'],
    ]) {
      const small = await alternate([bare + suffix, proxied + suffix], 1, Math.round(2_000 * scale), 200);
      const large = await alternate(
        [bare + suffix, proxied + suffix],
        0,
        Math.max(4, Math.round(20 * scale)),
        2,
      );
      const rate = (times) => (LARGE / median(times)).toFixed(0);
      rows.push({
        what,
        'bare p50 us': median(small[0]).toFixed(0),
        'proxied p50 us': median(small[1]).toFixed(0),
        'added p50 us': median(small[1].map((time, at) => time - small[0][at])).toFixed(0),
        'added p99 us': (quantile(small[1], 0.99) - quantile(small[0], 0.99)).toFixed(0),
        'bare MB/s': rate(large[0]),
        'proxied MB/s': rate(large[1]),
      });
    }
    console.log(table(rows));
    return rows;
  } finally {
    for (const child of started.toReversed()) {
      child.kill('SIGTERM');
      await new Promise((resolve) => child.once('exit', resolve));
    }
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Microseconds per call for each address, one call of each in turn. */
async function alternate(urls, id, calls, warmUp) {
  const agents = urls.map(() => new Agent({ keepAlive: true }));
  const times = urls.map(() => []);
  for (let at = -warmUp; at < calls; at++) {
    for (let turn = 0; turn < urls.length; turn++) {
      const which = (turn + Math.abs(at)) % urls.length;
      const start = process.hrtime.bigint();
      await call(urls[which], agents[which], id);
      if (at >= 0) times[which].push(Number(process.hrtime.bigint() - start) / 1_000);
    }
  }
  for (const agent of agents) agent.destroy();
  return times;
}

function call(url, agent, id) {
  const body = JSON.stringify({
    jsonrpc: '2.0',
    id,
    method: 'tools/call',
    params: { name: 'echo', arguments: {} },
  });
  return new Promise((resolve, reject) => {
    const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length };
    request(url, { method: 'POST', agent, headers }, (response) => {
      response.on('data', () => undefined).on('end', resolve);
    })
      .on('error', reject)
      .end(body);
  });
}
