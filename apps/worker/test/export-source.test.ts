import type { CollectorApi } from '@belay/contracts';
import { openDatabase, Reader } from '@belay/db';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { exportSource } from '../src/export-source.js';
import { openStored, type Stored, StoredLog } from './stored-log.js';

let stored: Stored;
let log: StoredLog;
beforeAll(async () => {
  stored = await openStored();
  log = await StoredLog.create(stored.pool, 'belay.example/acme/agents');
});
afterAll(async () => stored?.close());

type Answer = Awaited<ReturnType<CollectorApi['signExport']>>;

const AWAY: Answer = {
  ok: false,
  fault: { kind: 'retry', code: 'unavailable', message: 'starting', retryAfter: 1 },
};
const REFUSED: Answer = {
  ok: false,
  fault: { kind: 'refused', code: 'invalid', message: 'not of this log' },
};
const SIGNED: Answer = { ok: true, value: { bytes: '{}' } };

/** Has something signed by a collector that answers so, and says how often that was asked. */
async function sign(answers: Answer[], signal?: AbortSignal): Promise<{ bytes: string; asked: number }> {
  const database = openDatabase(stored.connection, { role: 'belay_worker', size: 1 });
  let asked = 0;
  try {
    const source = exportSource(
      {
        store: stored.store,
        reader: new Reader(database),
        collector: { signExport: () => Promise.resolve(answers[asked++] as Answer) },
      },
      { ...log.record, name: 'agents', public: false },
      { size: 0, note: '', root: Buffer.alloc(32), published: new Date(0) },
      { evaluated: 0, sessions: undefined },
      signal,
    );
    return { bytes: (await source.sign(Buffer.from('{}'))).toString(), asked };
  } finally {
    await database.destroy();
  }
}

it('a collector that is away for a moment costs no export that is all but made', async () => {
  expect(await sign([AWAY, SIGNED])).toEqual({ bytes: '{}', asked: 2 });
  await expect(sign([REFUSED, SIGNED])).rejects.toThrow('not of this log');
});

it('an export that is cancelled is not waited for', async () => {
  await expect(sign([AWAY, SIGNED], AbortSignal.abort())).rejects.toThrow('abort');
});
