// What judging a recorded session costs: 20 calls that each change a file, in workspaces of two sizes; the same with one
// answer that is other each time, so that a second session is played; and how time and memory grow with the calls.
import { spawn } from 'node:child_process';
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { median, table } from './measure.mjs';

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const FILE = 'x'.repeat(3_950);
const ROUNDS = 3;

// `text` is written; an empty one is answered with chance.
const SERVER = `const fs = require('node:fs'); const at = require('node:path').join(process.argv[2], 'changed.txt');
const { createInterface } = require('node:readline');
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, params } = JSON.parse(line); const given = params && params.arguments;
  if (given && given.text) fs.writeFileSync(at, given.text);
  const text = given && !given.text ? String(Math.random()) : 'ok';
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text }] } })); });`;

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-verify-'));
  const server = join(dir, 'server.cjs');
  writeFileSync(server, SERVER);
  try {
    const turns = [];
    for (const files of [400, Math.max(400, Math.round(20_000 * Math.min(1, scale)))]) {
      for (const divergent of [0, 1]) {
        const trace = await record(dir, server, files, 20, divergent);
        const runs = [];
        for (let round = 0; round < ROUNDS; round++) runs.push(await verify(trace));
        const of = (pick) => median(runs.map(pick)).toFixed(1);
        turns.push({
          files,
          calls: divergent ? '20, one by chance' : '20',
          'start ms': of(({ timing }) => timing.start),
          'first restore ms': of(({ timing }) => timing.restore),
          'as many empty files ms': emptyFiles(dir, files).toFixed(1),
          'a call again ms': of(({ parts }) => median(parts.flatMap(({ ms }) => ms ?? []))),
          'per turn ms': of(({ timing }) => (timing.total - timing.start - timing.restore) / 20),
          'verify, all, ms': of(({ timing }) => timing.total),
          'command, all, ms': of(({ wall }) => wall),
          found: Object.entries(runs[0].tally.counts)
            .filter(([, count]) => count > 0)
            .map(([status, count]) => `${count} ${status}`)
            .join(', '),
        });
        rmSync(trace.folder, { recursive: true });
      }
    }
    console.log(table(turns));
    const growth = [];
    for (const calls of [100, Math.max(200, Math.round(1_000 * scale))]) {
      const trace = await record(dir, server, 400, calls, 0);
      const { timing, wall, rss } = await verify(trace);
      growth.push({
        calls,
        'per turn ms': ((timing.total - timing.start - timing.restore) / calls).toFixed(1),
        'command, all, ms': wall.toFixed(0),
        'peak RSS MB': (rss / 1024).toFixed(0),
      });
      rmSync(trace.folder, { recursive: true });
    }
    console.log(table(growth));
    return { turns, growth };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** A session through the proxy, in the sandbox; its last `divergent` calls are answered with chance. */
async function record(dir, server, files, calls, divergent) {
  const folder = mkdtempSync(join(dir, 'session-'));
  const [work, state] = [join(folder, 'work'), join(folder, 'state')];
  mkdirSync(work);
  for (let at = 0; at < files; at++) {
    const place = join(work, `folder-${Math.floor(at / 50)}`);
    if (at % 50 === 0) mkdirSync(place);
    writeFileSync(join(place, `file-${at}.txt`), `file ${at}\n${FILE}`);
  }
  const options = ['--state', state, '--workspace', work, '--sandbox', 'default', '--hold-limit', '60000'];
  const args = [CLI, 'proxy', ...options, '--', process.execPath, server, work];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ask = async (message) => {
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
    await answers.next();
  };
  await ask({ id: 0, method: 'initialize', params: {} });
  for (let id = 1; id <= calls; id++) {
    const text = id > calls - divergent ? '' : `text ${id}`;
    await ask({ id, method: 'tools/call', params: { name: 'write', arguments: { text } } });
  }
  child.stdin.end();
  await new Promise((resolve) => child.once('exit', resolve));
  const [trace] = readdirSync(join(state, 'traces'));
  return { folder, state, path: join(state, 'traces', trace) };
}

/**
 * Milliseconds to make as many files without content and nothing else: of a restore, what is the file system's. On an
 * ext4 that is busy or has just lost many files, that is most of it.
 */
function emptyFiles(dir, files) {
  const folder = mkdtempSync(join(dir, 'empty-'));
  const began = performance.now();
  for (let at = 0; at < files; at++) {
    const place = join(folder, `folder-${Math.floor(at / 50)}`);
    if (at % 50 === 0) mkdirSync(place);
    closeSync(openSync(join(place, `file-${at}.txt`), 'wx', 0o600));
  }
  const ms = performance.now() - began;
  rmSync(folder, { recursive: true });
  return ms;
}

/** What `belay verify` found and said of its time, with the time of the whole command and the most memory it had. */
async function verify({ state, path }) {
  const began = performance.now();
  const child = spawn(process.execPath, [CLI, 'verify', '--json', '--state', state, path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let [text, rss] = ['', 0];
  child.stdout.setEncoding('utf8').on('data', (piece) => (text += piece));
  const look = setInterval(() => {
    try {
      rss = Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1] ?? rss);
    } catch {
      // Ended meanwhile.
    }
  }, 20);
  await new Promise((resolve) => child.once('close', resolve));
  clearInterval(look);
  return { ...JSON.parse(text), wall: performance.now() - began, rss };
}
