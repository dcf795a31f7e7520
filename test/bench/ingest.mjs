// Durable, deduplicated, signed appends over HTTP against raw binary COPY of the same rows, interleaved in one run on
// one PostgreSQL. Two references: COPY into this project's `entries` with all its indexes, and COPY into the wide
// table other designs use (one row an event with its sender, number and hash, and two more unique indexes).
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { request as httpRequest, Agent } from 'node:http';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { migrate, MIGRATIONS, openPool, startEmbedded } from '@belay/db';
import { newUlid } from '@belay/envelope';
import { from as copyFrom } from 'pg-copy-streams';
import { cpuOf, median, quantile, table } from './measure.mjs';

const BATCH = 100;
const COPY_ROWS = 2_000;
const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-'));
  chmodSync(dir, 0o755);
  const postgres = await startEmbedded(join(dir, 'data'));
  const pool = openPool(postgres.connection);
  try {
    await migrate(postgres.connection, MIGRATIONS);
    const durability = {};
    for (const name of [
      'fsync',
      'synchronous_commit',
      'full_page_writes',
      'wal_sync_method',
      'shared_buffers',
      'max_wal_size',
    ]) {
      durability[name] = (await pool.query(`show ${name}`)).rows[0][name];
    }
    console.log(
      `${cpus().length} cores, ${(await pool.query('show server_version')).rows[0].server_version}, Node ${process.version}`,
    );
    console.log(
      Object.entries(durability)
        .map(([name, value]) => `${name}=${value}`)
        .join(' '),
    );
    const service = await startService(postgres.connection, join(dir, 'service'));
    try {
      const place = await register(service);
      await pool.query('create table bench_narrow (like entries including all)');
      await pool.query(`create table bench_wide (log bigint, index bigint, sink int, epoch uuid, seq bigint, received timestamptz,
        token text, line bytea, leaf bytea, primary key (log, index), unique (log, sink, epoch, seq), unique (log, leaf))`);
      const rounds = Math.max(3, Math.round(5 * scale));
      const per = { 1: 10_000 * scale, 8: 40_000 * scale, 64: 60_000 * scale };
      const found = { narrow: [], wide: [], 1: [], 8: [], 64: [] };
      await drive(service, place, 8, 8_000);
      for (let round = 0; round < rounds; round++) {
        found.narrow.push(await copy(pool, 'bench_narrow', lines(place.origin, 60_000 * scale)));
        for (const clients of [1, 8, 64])
          found[clients].push(await drive(service, place, clients, per[clients]));
        found.wide.push(await copy(pool, 'bench_wide', lines(place.origin, 60_000 * scale)));
        process.stderr.write(`round ${round + 1} of ${rounds}\n`);
      }
      const narrow = median(found.narrow);
      const wide = median(found.wide);
      const rows = [1, 8, 64].map((clients) => {
        const rate = median(found[clients].map((one) => one.rate));
        const latencies = found[clients].flatMap((one) => one.latencies);
        return {
          clients,
          'events/s': Math.round(rate),
          'x COPY, own table': (rate / narrow).toFixed(2),
          'x COPY, 3-index table': (rate / wide).toFixed(2),
          'p50 ms': median(latencies).toFixed(1),
          'p99 ms': quantile(latencies, 0.99).toFixed(1),
          'CPU us/event, service': median(found[clients].map((one) => one.cpu)).toFixed(1),
          PostgreSQL: median(found[clients].map((one) => one.postgres)).toFixed(1),
        };
      });
      console.log(table(rows));
      console.log(
        `COPY, transactions of ${COPY_ROWS}: own table ${Math.round(narrow)}/s, 3-index table ${Math.round(wide)}/s (medians of ${rounds} interleaved rounds)`,
      );
      return { durability, copy: { narrow, wide }, rows };
    } finally {
      service.child.kill('SIGTERM');
      await new Promise((resolve) => service.child.once('exit', resolve));
    }

    async function drive(service, place, clients, events) {
      const each = Math.max(1, Math.floor(events / clients / BATCH));
      const bodies = Array.from({ length: clients }, () => {
        const epoch = newUlid(Date.now(), randomBytes(10));
        return Array.from({ length: each }, (_, at) =>
          Buffer.from(envelopes(place.origin, epoch, at * BATCH + 1, BATCH).join('\n') + '\n'),
        );
      });
      const agent = new Agent({ keepAlive: true, maxSockets: clients });
      const latencies = [];
      const cpu = cpuOf(service.child.pid);
      const other = cpuOf(postgres.pid);
      const start = performance.now();
      await Promise.all(
        bodies.map(async (mine) => {
          for (const body of mine) {
            const before = performance.now();
            await post(
              agent,
              service.url,
              `/v1/projects/${place.project}/events`,
              place.token,
              body,
              'application/x-ndjson',
            );
            latencies.push(performance.now() - before);
          }
        }),
      );
      const seconds = (performance.now() - start) / 1_000;
      agent.destroy();
      const done = clients * each * BATCH;
      return {
        rate: done / seconds,
        latencies,
        cpu: (cpuOf(service.child.pid) - cpu) / done,
        postgres: (cpuOf(postgres.pid) - other) / done,
      };
    }
  } finally {
    await pool.end();
    await postgres.stop();
    rmSync(dir, { recursive: true, force: true });
  }
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
      return { child, ...JSON.parse(text.slice(0, end)) };
    }
  }
  throw new Error('the service did not start');
}

async function register(service) {
  const agent = new Agent();
  const json = async (path, key, body) =>
    JSON.parse(
      await post(agent, service.url, path, key, Buffer.from(JSON.stringify(body)), 'application/json'),
    );
  const tenant = await json('/v1/tenants', service.operatorKey, { name: 'bench' });
  const project = await json('/v1/projects', tenant.admin.credential, { name: 'bench' });
  agent.destroy();
  return { project: project.project, origin: project.origin, token: project.token.credential };
}

function post(agent, base, path, key, body, type) {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      new URL(path, base),
      {
        method: 'POST',
        agent,
        headers: { authorization: `Bearer ${key}`, 'content-type': type, 'content-length': body.length },
      },
      (response) => {
        const parts = [];
        response.on('data', (part) => parts.push(part));
        response.on('end', () => {
          const text = Buffer.concat(parts).toString();
          if (response.statusCode >= 300) reject(new Error(`${response.statusCode} ${text.slice(0, 300)}`));
          else resolve(text);
        });
      },
    );
    request.on('error', reject);
    request.end(body);
  });
}

function envelopes(origin, epoch, from, count) {
  return Array.from({ length: count }, (_, at) =>
    JSON.stringify({
      v: 1,
      log: origin,
      sink: 'proxy',
      epoch,
      seq: from + at,
      kind: 'call',
      time: '2026-01-01T00:00:00.000Z',
      digest: `sha256:${randomBytes(32).toString('hex')}`,
      session: '01JD0000000000000000000000',
      attrs: { tool: 'read_file', bytes: 123 },
    }),
  );
}

function lines(origin, count) {
  return envelopes(origin, newUlid(Date.now(), randomBytes(10)), 1, count).map((line) => Buffer.from(line));
}

let copied = 0;

async function copy(pool, name, rows) {
  const wide = name === 'bench_wide';
  const columns = wide ? 'log, index, sink, epoch, seq, received, token, line, leaf' : 'log, index, line';
  const epoch = randomBytes(16);
  const encoded = rows.map((line, at) => {
    const index = copied++;
    return wide
      ? tuple([
          int8(1),
          int8(index),
          int4(1),
          epoch,
          int8(at),
          int8(8e14),
          Buffer.from('tok_01jd0000000000000000000000'),
          line,
          randomBytes(32),
        ])
      : tuple([int8(1), int8(index), line]);
  });
  const client = await pool.connect();
  const start = performance.now();
  for (let at = 0; at < encoded.length; at += COPY_ROWS) {
    await client.query('begin');
    const stream = client.query(copyFrom(`copy ${name} (${columns}) from stdin binary`));
    const bytes = Buffer.concat([
      Buffer.from('5047434f50590aff0d0a000000000000000000', 'hex'),
      ...encoded.slice(at, at + COPY_ROWS),
      Buffer.from('ffff', 'hex'),
    ]);
    await new Promise((resolve, reject) => {
      stream.on('finish', resolve);
      stream.on('error', reject);
      stream.end(bytes);
    });
    await client.query('commit');
  }
  const rate = encoded.length / ((performance.now() - start) / 1_000);
  client.release();
  return rate;
}

function tuple(fields) {
  const parts = [Buffer.alloc(2)];
  parts[0].writeInt16BE(fields.length);
  for (const field of fields) {
    const length = Buffer.alloc(4);
    length.writeInt32BE(field.length);
    parts.push(length, field);
  }
  return Buffer.concat(parts);
}

function int8(value) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(value));
  return bytes;
}

function int4(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}
