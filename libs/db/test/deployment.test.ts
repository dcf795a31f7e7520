import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openDatabase } from '../src/connection.js';
import { claimDeployment, OtherDeployment } from '../src/deployment.js';
import { type EmbeddedPostgres, startEmbedded } from '../src/embedded.js';
import { migrate, MIGRATIONS } from '../src/migrate.js';

let base: string;
let server: EmbeddedPostgres;

beforeAll(async () => {
  base = mkdtempSync(join(tmpdir(), 'belay-deployment-'));
  chmodSync(base, 0o755);
  server = await startEmbedded(join(base, 'data'));
  await migrate(server.connection, MIGRATIONS);
});

afterAll(async () => {
  await server.stop();
  rmSync(base, { recursive: true });
});

it('belongs to the first that claims it, for ever', async () => {
  const database = openDatabase(server.connection, { role: 'belay_collector', size: 4 });
  const own = { master: Buffer.alloc(32, 1), originPrefix: 'a.example' };
  try {
    await Promise.all([claimDeployment(database, own), claimDeployment(database, own)]);
    await claimDeployment(database, own);
    const keys = claimDeployment(database, { ...own, master: Buffer.alloc(32, 2) });
    await expect(keys).rejects.toThrow(OtherDeployment);
    await expect(keys).rejects.toMatchObject({ differs: 'keys' });
    const prefix = claimDeployment(database, { ...own, originPrefix: 'b.example' });
    await expect(prefix).rejects.toMatchObject({
      differs: 'origin_prefix',
      message: expect.stringMatching(/a\.example, not with b\.example/) as string,
    });
    // Not by this role, whatever it is told.
    await expect(
      database.updateTable('deployment').set({ origin_prefix: 'c' }).execute(),
    ).rejects.toMatchObject({ code: '42501' });
    await expect(database.deleteFrom('deployment').execute()).rejects.toMatchObject({ code: '42501' });
    await claimDeployment(database, own);
  } finally {
    await database.destroy();
  }
});
