import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openDatabase } from '../src/connection.js';
import { type EmbeddedPostgres, startEmbedded } from '../src/embedded.js';
import { migrate, MIGRATIONS } from '../src/migrate.js';
import { createFirstOperator, replaceOperators } from '../src/operator.js';

let base: string;
let server: EmbeddedPostgres;

beforeAll(async () => {
  base = mkdtempSync(join(tmpdir(), 'belay-operator-'));
  chmodSync(base, 0o755);
  server = await startEmbedded(join(base, 'data'));
  await migrate(server.connection, MIGRATIONS);
});

afterAll(async () => {
  await server.stop();
  rmSync(base, { recursive: true });
});

const show = () => Promise.resolve();

it('a key that could not be shown counts for nothing, and the next start makes another', async () => {
  const database = openDatabase(server.connection, { role: 'belay_collector', size: 1 });
  try {
    const first = { id: 'opr_unseen', secretHash: Buffer.alloc(32) };
    const broken = () => Promise.reject(new Error('the pipe is gone'));
    await expect(createFirstOperator(database, first, broken)).rejects.toThrow('the pipe is gone');
    expect(await database.selectFrom('operators').select('id').execute()).toEqual([]);
  } finally {
    await database.destroy();
  }
});

it('of collectors that start together, one makes the first operator', async () => {
  const databases = Array.from({ length: 6 }, () =>
    openDatabase(server.connection, { role: 'belay_collector', size: 1 }),
  );
  try {
    const answers = await Promise.all(
      databases.map((database, i) =>
        createFirstOperator(database, { id: `opr_${i}`, secretHash: Buffer.alloc(32, i) }, show),
      ),
    );
    expect(answers.filter(Boolean)).toHaveLength(1);
    const [database] = databases;
    expect(await database?.selectFrom('operators').select('id').execute()).toEqual([
      { id: `opr_${answers.indexOf(true)}` },
    ]);
  } finally {
    await Promise.all(databases.map((database) => database.destroy()));
  }
});

it('a new operator takes the place of all others; not by the right of a collector', async () => {
  const next = { id: 'opr_next', secretHash: Buffer.alloc(32, 9) };
  const collector = openDatabase(server.connection, { role: 'belay_collector', size: 1 });
  const owner = openDatabase(server.connection, { size: 1 });
  try {
    await expect(replaceOperators(collector, next, show)).rejects.toMatchObject({ code: '42501' });
    expect(await replaceOperators(owner, next, show)).toBe(1);
    expect(await owner.selectFrom('operators').select('id').execute()).toEqual([{ id: 'opr_next' }]);
  } finally {
    await Promise.all([collector.destroy(), owner.destroy()]);
  }
});
