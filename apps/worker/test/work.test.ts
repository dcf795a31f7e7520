import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Reader, openDatabase } from '@belay/db';
import { newUlid } from '@belay/envelope';
import { createLogger } from '@belay/process';
import { Accountant, Evaluator, Publisher } from '@belay/worker';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Exports } from '../src/exports.js';
import { JobFailure, Work, type Working } from '../src/work.js';
import { openStored, type Stored, StoredLog } from './stored-log.js';

let stored: Stored;
let log: StoredLog;
beforeAll(async () => {
  stored = await openStored();
  log = await StoredLog.create(stored.pool, 'belay.example/acme/agents');
});
afterAll(async () => stored?.close());

const running: Work[] = [];
afterEach(async () => {
  for (const work of running.splice(0)) await work.stop();
  await stored.pool.query('delete from jobs');
});

const silent = createLogger('test', 'silent', { write: () => undefined });

function worker(make: Working, later = 0): Work {
  const work = new Work({
    store: stored.store,
    kinds: { export: make },
    tidy: () => Promise.resolve(),
    now: () => Date.now() + later,
    log: silent,
  });
  running.push(work);
  return work;
}

let made = 0;
async function ask(): Promise<string> {
  const id = `exp_${newUlid(Date.now(), Buffer.alloc(10, ++made)).toLowerCase()}`;
  await stored.pool.query(
    `insert into jobs (id, log, kind, spec, by) values ($1, $2, 'export', '{"oscal":true}', 'aud')`,
    [id, log.record.log],
  );
  return id;
}

interface Row {
  readonly state: string;
  readonly phase: string | null;
  readonly done: number;
  readonly total: number | null;
  readonly error: string | null;
  readonly cancel: boolean;
}

const rowOf = async (id: string): Promise<Row> =>
  (await stored.pool.query('select * from jobs where id = $1', [id])).rows[0] as Row;

/** Works until it is told to end, and says how. */
function endless(ends: unknown[] = []): Working {
  return (_job, progress, signal) =>
    new Promise((_resolve, reject) => {
      progress({ phase: 'entries', done: 7, total: 9 });
      signal.addEventListener('abort', () => {
        ends.push(signal.reason);
        reject(signal.reason as Error);
      });
    });
}

const done: Working = (job) =>
  Promise.resolve({ state: 'done', file: `${job.id}.zip`, bytes: 3, sha256: Buffer.alloc(32, 1) });

describe('a job', () => {
  it('is done once, by one of several workers, and says how far it is', async () => {
    const id = await ask();
    let times = 0;
    const counted: Working = (job, progress, signal) => {
      times++;
      expect(job).toMatchObject({ id, spec: { oscal: true }, log: { id: log.record.id } });
      return done(job, progress, signal);
    };
    const all = [worker(counted), worker(counted), worker(counted)];
    await Promise.all(all.map((one) => one.sweep()));
    await expect.poll(async () => (await rowOf(id)).state).toBe('done');
    await Promise.all(all.map((one) => one.sweep()));
    expect(times).toBe(1);
  });

  it('that is cancelled ends, whether it is under way or waits', async () => {
    const id = await ask();
    const ends: unknown[] = [];
    const work = worker(endless(ends));
    await work.sweep();
    await expect.poll(async () => await rowOf(id)).toMatchObject({ phase: 'entries', done: 7, total: 9 });
    const waiting = await ask();
    await stored.pool.query('update jobs set cancel = true');
    await expect.poll(async () => (await rowOf(id)).state).toBe('cancelled');
    await work.sweep();
    expect(await rowOf(waiting)).toMatchObject({ state: 'cancelled', cancel: false });
    expect(ends).toMatchObject([{ why: 'cancelled' }]);
  });

  it('of a worker that is gone is begun again by another, and what the first one says then does not count', async () => {
    const id = await ask();
    const ends: unknown[] = [];
    const gone = worker(endless(ends));
    await gone.sweep();
    // Its lease is over for a worker whose clock is a minute ahead; it notices with its next beat.
    await worker(done, 60_000).sweep();
    await expect.poll(async () => (await rowOf(id)).state).toBe('done');
    await expect.poll(() => ends).toMatchObject([{ why: 'lost' }]);
    await gone.stop();
    expect(await rowOf(id)).toMatchObject({ state: 'done' });
  });

  it('that ends every worker which takes it is given up, and says so', async () => {
    const id = await ask();
    for (let begun = 1; begun <= 5; begun++) {
      // Nothing is heard of this one again.
      expect((await stored.store.jobs.claim('export', new Date(), new Date(0)))?.id).toBe(id);
      expect(await rowOf(id)).toMatchObject({ state: 'running', attempts: begun });
    }
    await worker(done).sweep();
    expect(await rowOf(id)).toMatchObject({ state: 'failed', error: expect.stringContaining('5 times') });
  });

  it('of a worker that leaves is given back', async () => {
    const id = await ask();
    const leaving = worker(endless());
    await leaving.sweep();
    await leaving.stop();
    expect(await rowOf(id)).toMatchObject({ state: 'queued', done: 0, attempts: 0 });
    await worker(done).sweep();
    await expect.poll(async () => (await rowOf(id)).state).toBe('done');
  });

  it('that fails says why, but for what only the service’s people may see', async () => {
    const [foreseen, unforeseen] = [await ask(), await ask()];
    const work = worker((job) =>
      Promise.reject(job.id === foreseen ? new JobFailure('no room') : new Error('secret')),
    );
    await expect
      .poll(async () => {
        await work.sweep();
        return [(await rowOf(foreseen)).error, (await rowOf(unforeseen)).error];
      })
      .toEqual(['no room', 'it could not be made: the log of the service says why']);
  });
});

describe('the folder of exports', () => {
  it('loses what is old, not wanted, or of no job, and is not filled past what it may have', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'belay-exports-'));
    const database = openDatabase(stored.connection, { role: 'belay_worker', size: 2 });
    try {
      const collector = {
        checkpoint: () => Promise.reject(new Error('not asked')),
        record: () => Promise.reject(new Error('not asked')),
        issue: () => Promise.reject(new Error('not asked')),
        signExport: () => Promise.reject(new Error('not asked')),
      };
      const common = { reader: new Reader(database), collector, now: Date.now, log: silent };
      const publisher = new Publisher(common);
      const evaluator = new Evaluator({ ...common, publisher });
      const accountant = new Accountant({ ...common, store: stored.store, evaluator });
      const exports = new Exports({
        ...common,
        store: stored.store,
        accountant,
        publisher,
        dir,
        keepDays: 7,
        maxBytes: 10,
      });
      const [kept, old, unwanted, begun, lost] = [await ask(), await ask(), await ask(), await ask(), 'x'];
      const end = (id: string, days: number, cancel = false) =>
        stored.pool.query(
          `update jobs set state = 'done', file = $2, finished = now() - make_interval(days => $3), cancel = $4
           where id = $1`,
          [id, `${id}.zip`, days, cancel],
        );
      await end(kept, 6);
      await end(old, 8);
      await end(unwanted, 0, true);
      await stored.pool.query(
        `update jobs set state = 'running', lease = now() + interval '1 minute' where id = $1`,
        [begun],
      );
      const nobodys = `exp_${'0'.repeat(26)}.zip.entries`;
      for (const name of [
        `${kept}.zip`,
        `${kept}.zip.part`,
        `${old}.zip`,
        `${unwanted}.zip`,
        `${begun}.zip.entries`,
        nobodys,
        lost,
      ]) {
        writeFileSync(join(dir, name), 'abc');
      }
      await exports.tidy();
      expect(readdirSync(dir).sort()).toEqual([`${kept}.zip`, `${begun}.zip.entries`, lost].sort());
      expect((await rowOf(old)) ?? 'gone').toBe('gone');
      expect((await rowOf(unwanted)) ?? 'gone').toBe('gone');

      mkdirSync(join(dir, 'more'));
      writeFileSync(join(dir, 'large'), 'a'.repeat(20));
      const full = await ask();
      const work = worker(exports.make);
      await stored.pool.query('delete from jobs where id <> $1', [full]);
      await work.sweep();
      await expect
        .poll(async () => (await rowOf(full)).error)
        .toMatch(/^exports take \d+ bytes, and may take 10/);
    } finally {
      await database.destroy();
      rmSync(dir, { recursive: true, force: true });
    }
  });
});
