import { chmodSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type EmbeddedPostgres, startEmbedded } from '../src/embedded.js';
import { migrate, MigrationError, type MigrationErrorCode, MIGRATIONS } from '../src/migrate.js';

let base: string;
let server: EmbeddedPostgres;
let database: EmbeddedPostgres['connection'];
let folder: string;
let round = 0;

beforeAll(async () => {
  base = mkdtempSync(join(tmpdir(), 'belay-migrate-'));
  chmodSync(base, 0o755);
  server = await startEmbedded(join(base, 'data'));
});

afterAll(async () => {
  await server.stop();
  rmSync(base, { recursive: true });
});

beforeEach(async () => {
  round += 1;
  await query(server.connection, `create database case_${round}`);
  database = { ...server.connection, database: `case_${round}` };
  folder = join(base, `migrations-${round}`);
  mkdirSync(folder);
  file('0001_first.sql', 'create table a (n int);');
  file('0002_second.sql', 'insert into a values (1); do $$ begin insert into a values (2); end $$;');
});

const file = (name: string, sql: string) => writeFileSync(join(folder, name), sql);

async function query<T extends object>(connection: pg.ClientConfig, sql: string): Promise<T[]> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    return (await client.query<T>(sql)).rows;
  } finally {
    await client.end();
  }
}

async function refusal(): Promise<[MigrationErrorCode, string]> {
  try {
    await migrate(database, folder);
  } catch (error) {
    if (error instanceof MigrationError) return [error.code, error.migration];
    throw error;
  }
  throw new Error('was not refused');
}

describe('migrations', () => {
  it('are applied once, in order, and later ones after earlier ones', async () => {
    expect(await migrate(database, folder)).toEqual(['0001_first.sql', '0002_second.sql']);
    expect(await migrate(database, folder)).toEqual([]);
    file('0003_third.sql', 'update a set n = n * 10;');
    expect(await migrate(database, folder)).toEqual(['0003_third.sql']);
    expect(await query(database, 'select n from a order by n')).toEqual([{ n: 10 }, { n: 20 }]);
  });

  it('are applied once when many processes start together', async () => {
    const answers = await Promise.all(Array.from({ length: 6 }, () => migrate(database, folder)));
    expect(answers.flat()).toEqual(['0001_first.sql', '0002_second.sql']);
    expect(await query(database, 'select count(*)::int as n from a')).toEqual([{ n: 2 }]);
  });

  it('are refused when one was edited, removed or renumbered, and nothing is changed', async () => {
    await migrate(database, folder);
    file('0003_third.sql', 'drop table a;');
    file('0001_first.sql', 'create table a (n bigint);');
    expect(await refusal()).toEqual(['edited', '0001_first.sql']);
    file('0001_first.sql', 'create table a (n int);');
    rmSync(join(folder, '0003_third.sql'));
    renameSync(join(folder, '0002_second.sql'), join(folder, 'second'));
    expect(await refusal()).toEqual(['missing', '0002_second.sql']);
    renameSync(join(folder, 'second'), join(folder, '0003_second.sql'));
    expect(await refusal()).toEqual(['bad_folder', '0003_second.sql']);
    file('0002_second.sql', '');
    file('later.sql', '');
    expect(await refusal()).toEqual(['bad_folder', 'later.sql']);
    expect(await query(database, 'select count(*)::int as n from a')).toEqual([{ n: 2 }]);
  });

  it('leave nothing of one that fails, and everything before it', async () => {
    file('0003_third.sql', 'create table b (n int); select nonsense;');
    expect(await refusal()).toEqual(['failed', '0003_third.sql']);
    expect(await query(database, "select to_regclass('b') as b, count(*)::int as n from a")).toEqual([
      { b: null, n: 2 },
    ]);
    file('0003_third.sql', 'create table b (n int);');
    expect(await migrate(database, folder)).toEqual(['0003_third.sql']);
  });

  it('of this version apply, and give each process only what it needs', async () => {
    expect(await migrate(database, MIGRATIONS)).toEqual(readdirSync(MIGRATIONS).sort());
    const as = (role: string, sql: string) => query({ ...database, options: `-c role=${role}` }, sql);
    for (const role of ['belay_gateway', 'belay_worker']) {
      await expect(as(role, "insert into entries values (1, 0, 'x')")).rejects.toMatchObject({
        code: '42501',
      });
      await expect(as(role, 'update heads set size = 0')).rejects.toMatchObject({ code: '42501' });
      await expect(as(role, 'select from entries')).resolves.toEqual([]);
    }
    for (const table of ['entries', 'runs', 'tiles', 'checkpoints', 'receipts']) {
      for (const role of ['belay_gateway', 'belay_collector', 'belay_worker']) {
        await expect(as(role, `delete from ${table}`)).rejects.toMatchObject({ code: '42501' });
      }
    }
  });
});
