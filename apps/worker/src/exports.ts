import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { chmod, mkdir, open, readdir, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { buildExport, ExportError, type ExportRequest, normaliseRequest, thriftily } from '@belay/export';
import type { AccountStore, CheckpointRow, Job, JobProgress, LogRow, Reader } from '@belay/db';
import type { Logger } from 'pino';
import type { Accountant } from './accountant.js';
import { exportSource } from './export-source.js';
import type { WorkerCollector } from './nats-collector.js';
import type { Publisher } from './publisher.js';
import { JobFailure, type Working } from './work.js';

/** Sessions judged in one turn of the log. */
const AT_ONCE = 100;
/** How often it is tried to judge what could not be, with a pause between. */
const TRIES = 30;
const PAUSE_MS = 500;
/** How often it is looked how much room exports take. */
const ROOM_MS = 2_000;
/** Names of the files of a job: its identifier, and what follows it, which is another one at every run. */
const OWN_FILE = /^(exp_[0-9a-hjkmnp-tv-z]{26})\..+$/;

export interface ExportsParts {
  readonly store: AccountStore;
  readonly reader: Reader;
  readonly accountant: Accountant;
  readonly publisher: Publisher;
  readonly collector: Pick<WorkerCollector, 'signExport'>;
  readonly dir: string;
  /** Days that an export is kept. */
  readonly keepDays: number;
  /** Bytes that all exports in the directory may have, those being made too. */
  readonly maxBytes: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
}

/**
 * Makes exports in a directory that the gateway reads. A file has its name only when it is whole and on disk; what a
 * crash leaves has another one, and is swept.
 */
export class Exports {
  readonly #parts: ExportsParts;

  constructor(parts: ExportsParts) {
    this.#parts = parts;
  }

  readonly make: Working = async (job, progress, signal) => {
    const { store, reader, collector, dir } = this.#parts;
    await mkdir(dir, { recursive: true, mode: 0o700 });
    await this.#requireRoom();
    const request = requestOf(job);
    const log = await reader.logById(job.log.id);
    if (log === undefined) throw new JobFailure('the project is gone');
    const chosen = await this.#judgeAll(log, request, progress, signal);
    const checkpoint = await this.#checkpoint(log, signal);
    // Of this run alone: who lost the job and does not know it yet writes to files of its own, and removes no other's.
    const file = `${job.id}.${randomBytes(5).toString('hex')}.zip`;
    const path = join(dir, file);
    const room = this.#watchRoom(signal);
    try {
      const source = exportSource({ store, reader, collector }, log, checkpoint, chosen, room.signal);
      const { bytes } = await thriftily(() =>
        buildExport(source, request, path, {
          pdf: async (model, out) => (await import('@belay/export/pdf')).renderPdf(model, out),
          progress,
          signal: room.signal,
        }),
      );
      progress({ phase: 'digest', done: 0, total: bytes });
      const sha256 = await digestOf(path, room.signal);
      await chmod(path, 0o600);
      await syncDirectory(dir);
      return { state: 'done', file, bytes, sha256 };
    } catch (error) {
      await unlink(path).catch(() => undefined);
      if (error instanceof ExportError) throw new JobFailure(error.message);
      if ((error as NodeJS.ErrnoException).code === 'ENOSPC')
        throw new JobFailure('the disk of exports is full');
      throw error;
    } finally {
      room.end();
    }
  };

  /** Removes what is too old or not wanted any more, and what belongs to no job that is done or under way. */
  async tidy(): Promise<void> {
    const { store, dir, keepDays, now, log } = this.#parts;
    const since = new Date(now() - keepDays * 86_400_000);
    for (const { id, file } of await store.jobs.old(since)) {
      if (file !== null && OWN_FILE.test(file)) await remove(join(dir, file));
      await store.jobs.remove(id);
    }
    const files = (await listed(dir)).flatMap((name) => {
      const id = OWN_FILE.exec(name)?.[1];
      return id === undefined ? [] : { id, name };
    });
    if (files.length === 0) return;
    const jobs = new Map(
      (await store.jobs.states([...new Set(files.map(({ id }) => id))])).map((job) => [job.id, job]),
    );
    for (const { id, name } of files) {
      const job = jobs.get(id);
      if (job?.state === 'queued' || job?.state === 'running' || job?.file === name) continue;
      await remove(join(dir, name));
      log.info({ file: name }, 'a file of no export was removed');
    }
  }

  /** Has every chosen session judged, and returns their names, for an export that is not of everything. */
  async #judgeAll(
    log: LogRow,
    request: ExportRequest,
    progress: (progress: JobProgress) => void,
    signal: AbortSignal,
  ): Promise<{ evaluated: number; sessions: string[] | undefined }> {
    const { store } = this.#parts;
    const evaluated = await this.#parts.accountant.waitForLog(log, signal, (_turn, lane) =>
      Promise.resolve(lane.size),
    );
    const names: string[] = [];
    if (request.sessions === undefined) {
      for await (const page of store.sessionNames(log, evaluated, request.period)) names.push(...page);
    } else names.push(...request.sessions);
    for (let at = 0; at < names.length; at += AT_ONCE) {
      signal.throwIfAborted();
      progress({ phase: 'sessions', done: at, total: names.length });
      await this.#judge(log, names.slice(at, at + AT_ONCE), signal);
    }
    progress({ phase: 'sessions', done: names.length, total: names.length });
    if (request.sessions !== undefined) {
      // In the order in which they began, and only those that there are.
      const wanted = new Set(request.sessions);
      const found: string[] = [];
      for await (const page of store.sessionNames(log, evaluated)) {
        for (const name of page) if (wanted.has(name)) found.push(name);
        if (found.length === wanted.size) break;
      }
      return { evaluated, sessions: found };
    }
    return { evaluated, sessions: request.period === undefined ? undefined : names };
  }

  async #judge(log: LogRow, names: readonly string[], signal: AbortSignal): Promise<void> {
    let left = names;
    for (let tries = 0; left.length > 0; tries++) {
      if (tries === TRIES)
        throw new JobFailure(`no receipt could be made for ${left.length} sessions, ${left[0]} first`);
      if (tries > 0) await pause(PAUSE_MS, signal);
      left = await this.#parts.accountant.waitForLog(log, signal, (turn, lane, evaluator) =>
        evaluator.judge(turn, lane, left),
      );
    }
  }

  /** A published head that has everything the log has now: the receipts that were made too. */
  async #checkpoint(log: LogRow, signal: AbortSignal): Promise<CheckpointRow> {
    const { reader, publisher } = this.#parts;
    const size = (await reader.head(log))?.size ?? 0;
    for (let tries = 0; tries < TRIES; tries++) {
      await publisher.publish(log);
      const checkpoint = await reader.latestCheckpoint(log);
      if (checkpoint !== undefined && checkpoint.size >= size) return checkpoint;
      await pause(PAUSE_MS, signal);
    }
    throw new JobFailure('no checkpoint was published that has all receipts');
  }

  async #requireRoom(): Promise<void> {
    const { dir, maxBytes } = this.#parts;
    const bytes = await bytesIn(dir);
    if (bytes < maxBytes) return;
    throw new JobFailure(`exports take ${bytes} bytes, and may take ${maxBytes}: remove some of them`);
  }

  /** Ends a job that fills the directory. */
  #watchRoom(signal: AbortSignal): { readonly signal: AbortSignal; readonly end: () => void } {
    const control = new AbortController();
    const stop = (): void => control.abort(signal.reason);
    signal.addEventListener('abort', stop);
    if (signal.aborted) stop();
    const timer = setInterval(() => {
      this.#requireRoom().catch((error: unknown) => control.abort(error));
    }, ROOM_MS);
    return {
      signal: control.signal,
      end: () => {
        clearInterval(timer);
        signal.removeEventListener('abort', stop);
      },
    };
  }
}

function requestOf({ spec }: Job): ExportRequest {
  try {
    return normaliseRequest(spec as Parameters<typeof normaliseRequest>[0]);
  } catch (error) {
    if (error instanceof ExportError) throw new JobFailure(error.message);
    throw error;
  }
}

/** Rejects with the signal's reason once it is aborted. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}

async function digestOf(path: string, signal: AbortSignal): Promise<Buffer> {
  const hash = createHash('sha256');
  for await (const part of createReadStream(path, { highWaterMark: 1024 * 1024, signal }))
    hash.update(part as Buffer);
  return hash.digest();
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function listed(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

async function bytesIn(dir: string): Promise<number> {
  let bytes = 0;
  for (const name of await listed(dir)) {
    // It may be gone since it was listed.
    bytes += (await stat(join(dir, name)).catch(() => undefined))?.size ?? 0;
  }
  return bytes;
}

async function remove(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
