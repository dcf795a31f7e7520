import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openDatabase } from '../src/connection.js';
import { type EmbeddedPostgres, startEmbedded } from '../src/embedded.js';
import { migrate, MIGRATIONS } from '../src/migrate.js';
import { createFirstOperator } from '../src/operator.js';

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

it('of collectors that start together, one makes the first operator', async () => {
  const databases = Array.from({ length: 6 }, () =>
    openDatabase(server.connection, { role: 'belay_collector', size: 1 }),
  );
  try {
    const answers = await Promise.all(
      databases.map((database, i) =>
        createFirstOperator(database, { id: `opr_${i}`, secretHash: Buffer.alloc(32, i) }),
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
