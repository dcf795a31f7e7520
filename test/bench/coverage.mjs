// Sessions over HTTP into `belay serve`, on an embedded PostgreSQL: how long after the last event everything is
// reconciled, and every session has its receipt; then the same log reconciled again from its first entry.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { migrate, MIGRATIONS, openPool, startEmbedded } from '@belay/db';
import { newUlid, SinkTree } from '@belay/envelope';
import { cpuOf } from './measure.mjs';

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const CLIENTS = 8;
const BATCH = 500;
/** Lines of one session. */
const SESSION = 1_000;
const EVENTS = 1_000_000;

export async function run({ scale }) {
  const events = Math.max(
    CLIENTS * SESSION,
    Math.round((EVENTS * scale) / CLIENTS / SESSION) * CLIENTS * SESSION,
  );
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-'));
  chmodSync(dir, 0o755);
  const postgres = await startEmbedded(join(dir, 'data'));
  const pool = openPool(postgres.connection);
  let service;
  try {
    await migrate(postgres.connection, MIGRATIONS);
    service = await startService(postgres.connection, join(dir, 'service'));
    const place = await register(service);
    const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
    const cpu = cpuOf(service.child.pid);
    const database = cpuOf(postgres.pid);
    const start = performance.now();
    await Promise.all(Array.from({ length: CLIENTS }, () => send(service, place, agent, events / CLIENTS)));
    const sent = performance.now();
    const { rows: early } = await pool.query('select count(*) as n from sessions where receipt is not null');
    const behind = await until(
      pool,
      'select max(h.size - coalesce(r.through, 0)) as n from heads h left join reconciled r on r.log = h.log',
    );
    const reconciled = performance.now();
    await until(
      pool,
      'select count(*) as n from sessions where receipt is null or dirty is not null or due <= now()',
    );
    const settled = performance.now();
    agent.destroy();
    const used = (cpuOf(service.child.pid) - cpu) / events;
    const usedByDatabase = (cpuOf(postgres.pid) - database) / events;
    const rss = peakOf(service.child.pid);
    await stop(service.child);

    // Everything that was kept is thrown away, as if these entries were older than this version.
    for (const name of [
      'epoch_states',
      'sink_states',
      'session_runs',
      'session_epochs',
      'sessions',
      'reconciled',
    ]) {
      await pool.query(`truncate ${name}`);
    }
    await pool.query('vacuum analyze');
    service = await startService(postgres.connection, join(dir, 'service'));
    const again = performance.now();
    const cpuAgain = cpuOf(service.child.pid);
    const { rows } = await pool.query('select max(size) as size from heads');
    await until(
      pool,
      'select max(h.size - coalesce(r.through, 0)) as n from heads h left join reconciled r on r.log = h.log',
    );
    const seconds = (performance.now() - again) / 1_000;
    const row = {
      events,
      sessions: events / SESSION,
      'ingest/s, with all of it': Math.round(events / ((sent - start) / 1_000)),
      'behind at the last ack': behind,
      'receipts by then': early[0].n,
      'reconciled after, s': ((reconciled - sent) / 1_000).toFixed(2),
      'receipts after, s': ((settled - sent) / 1_000).toFixed(1),
      'CPU us/event': used.toFixed(1),
      PostgreSQL: usedByDatabase.toFixed(1),
      'peak RSS MB': Math.round(rss),
      'again, entries/s': Math.round(Number(rows[0].size) / seconds),
      'CPU us/entry': ((cpuOf(service.child.pid) - cpuAgain) / Number(rows[0].size)).toFixed(1),
    };
    console.log(
      Object.entries(row)
        .map(([name, value]) => `${name.padStart(26)}  ${value}`)
        .join('\n'),
    );
    return row;
  } finally {
    if (service) await stop(service.child);
    await pool.end();
    await postgres.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Asks until the answer is 0; returns the first answer. */
async function until(pool, text) {
  let first;
  for (;;) {
    const n = Number((await pool.query(text)).rows[0].n);
    first ??= n;
    if (n === 0) return first;
    await sleep(20);
  }
}

/** One sender: one epoch, one session after the other, each stated and closed. */
async function send(service, place, agent, count) {
  const tree = new SinkTree();
  const epoch = newUlid(Date.now(), randomBytes(10));
  const line = (kind, more) => {
    const text = JSON.stringify({
      v: 1,
      log: place.origin,
      sink: 'proxy',
      epoch,
      seq: tree.size + 1,
      kind,
      time: '2026-01-01T00:00:00.000Z',
      ...more,
    });
    tree.append(Buffer.from(text));
    return text;
  };
  let lines = [];
  let inSession = 0;
  let session = '';
  for (let made = 0; made < count; made++) {
    if (inSession === 0) {
      session = `run-${randomBytes(8).toString('hex')}`;
      lines.push(line('session.open', { session }));
    } else if (inSession === SESSION - 1) {
      lines.push(line('session.close', { session, attrs: { ...tree.stated(), dropped: 0, filtered: 0 } }));
    } else {
      const id = `hmac-sha256:${randomBytes(16).toString('hex').padEnd(64, '0')}`;
      const kind = inSession % 2 === 1 ? 'call' : 'result';
      lines.push(
        line(kind, { session, call: id, match: id, attrs: kind === 'call' ? { tool: 'read_file' } : {} }),
      );
    }
    inSession = (inSession + 1) % SESSION;
    if (lines.length < BATCH && made < count - 1) continue;
    await post(
      agent,
      service.url,
      `/v1/projects/${place.project}/events`,
      place.token,
      lines.join('\n'),
      'application/x-ndjson',
    );
    lines = [];
  }
}

function peakOf(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/VmHWM:\s+(\d+)/.exec(status)[1]) / 1024;
}

async function startService(connection, data) {
  const url = `postgresql://${connection.user}:${encodeURIComponent(connection.password)}@/${connection.database}?host=${encodeURIComponent(connection.host)}&port=${connection.port}`;
  const child = spawn(process.execPath, [CLI, 'serve', '--json', '--port', '0', '--data', data], {
    env: { ...process.env, DATABASE_URL: url },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  for await (const chunk of child.stdout) {
    text += chunk;
    const end = text.indexOf('\n');
    if (end >= 0) {
      child.stdout.resume();
      const service = JSON.parse(text.slice(0, end));
      // The key is shown before it is worth anything.
      while (!(await fetch(new URL('/readyz', service.url)).then(({ ok }) => ok))) await sleep(20);
      return { child, ...service };
    }
  }
  throw new Error('the service did not start');
}

async function stop(child) {
  if (child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await ended;
}

async function register(service) {
  const agent = new Agent();
  const json = async (method, path, key, body) =>
    JSON.parse(await post(agent, service.url, path, key, JSON.stringify(body), 'application/json', method));
  const tenant = await json('POST', '/v1/tenants', service.operatorKey, { name: 'bench' });
  const admin = tenant.admin.credential;
  const project = await json('POST', '/v1/projects', admin, { name: 'bench' });
  await json('PUT', `/v1/projects/${project.project}/sinks/proxy`, admin, { kind: 'proxy', required: true });
  agent.destroy();
  return { project: project.project, origin: project.origin, token: project.token.credential };
}

function post(agent, base, path, key, text, type, method = 'POST') {
  const body = Buffer.from(text);
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      new URL(path, base),
      {
        method,
        agent,
        headers: { authorization: `Bearer ${key}`, 'content-type': type, 'content-length': body.length },
      },
      (response) => {
        const parts = [];
        response.on('data', (part) => parts.push(part));
        response.on('end', () => {
          const answer = Buffer.concat(parts).toString();
          if (response.statusCode >= 300) reject(new Error(`${response.statusCode} ${answer.slice(0, 300)}`));
          else resolve(answer);
        });
      },
    );
    request.on('error', reject);
    request.end(body);
  });
}
