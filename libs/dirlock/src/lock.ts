import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  statSync,
  unlinkSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { type Holder, isAlive, parseHolder, self } from './holder.js';

const LOCK_NAME = 'belay.lock';
/** A holder whose pid can't be looked at from here is dead after this long without a touch. Milliseconds. */
export const SILENT_MS = 20_000;
/** Claims lost to others before we say "locked" without having seen by whom. */
const MAX_ROUNDS = 50;

/** Somebody living holds the directory. */
export class DirLocked extends Error {
  readonly dir: string;
  /** The holder's process id, in its own pid namespace; 0 when the lock does not say. */
  readonly pid: number;

  constructor(dir: string, pid: number) {
    super(`${dir} is in use by ${pid ? `process ${pid}` : 'another process'}`);
    this.name = 'DirLocked';
    this.dir = dir;
    this.pid = pid;
  }
}

export interface DirLock {
  /** Gives the directory back. Does nothing the second time, or when the lock is no longer ours. */
  release(): void;
}

/**
 * Takes `dir`, an existing directory, or throws DirLocked. File system errors come as they are. `durable: false` is for
 * locks of a moment: it leaves out the sync, and after a power cut the lock may be an empty file, which is given up on
 * after `SILENT_MS`.
 */
export function acquire(dir: string, { durable = true }: { readonly durable?: boolean } = {}): DirLock {
  const path = join(dir, LOCK_NAME);
  const mine = JSON.stringify({ ...self(), nonce: randomBytes(8).toString('hex') });
  claim(dir, path, mine, durable);
  const beat = setInterval(() => touch(path, mine), SILENT_MS / 4);
  beat.unref();
  let held = true;
  return {
    release() {
      if (!held) return;
      held = false;
      clearInterval(beat);
      if (contentOf(path) === mine) unlinkSync(path);
    },
  };
}

/**
 * Makes `path` ours. A dead holder's file is removed only by who holds the claim named after that very holder, and
 * only while it still is that holder's: so of two that saw the same corpse, the slower one can't remove the faster
 * one's fresh lock. That claim is taken by this same function, because who holds it may die as well.
 */
function claim(dir: string, path: string, mine: string, durable: boolean): void {
  const draft = join(dir, `.${LOCK_NAME}.${randomBytes(8).toString('hex')}`);
  write(draft, mine, durable);
  try {
    for (let round = 0; round < MAX_ROUNDS; round++) {
      try {
        linkSync(draft, path);
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      const theirs = contentOf(path);
      if (theirs === undefined) continue;
      const holder = parseHolder(theirs);
      if (!isDead(path, holder)) throw new DirLocked(dir, holder?.pid ?? 0);
      const removal = `${path}.${createHash('sha256').update(theirs).digest('hex').slice(0, 16)}`;
      claim(dir, removal, mine, durable);
      try {
        if (contentOf(path) === theirs) unlinkSync(path);
      } finally {
        unlinkSync(removal);
      }
    }
  } finally {
    unlinkSync(draft);
  }
  throw new DirLocked(dir, 0);
}

/** Process that holds a directory, by a look and nothing else; undefined where nobody living does, 0 where it is not said. */
export function holderOf(dir: string): number | undefined {
  const path = join(dir, LOCK_NAME);
  const content = contentOf(path);
  if (content === undefined) return undefined;
  const holder = parseHolder(content);
  return isDead(path, holder) ? undefined : (holder?.pid ?? 0);
}

function isDead(path: string, holder: Holder | undefined): boolean {
  const alive = holder && isAlive(holder);
  if (alive !== undefined) return !alive;
  try {
    return Date.now() - statSync(path).mtimeMs > SILENT_MS;
  } catch {
    return false;
  }
}

function touch(path: string, mine: string): void {
  try {
    if (contentOf(path) !== mine) return;
    const now = new Date();
    utimesSync(path, now, now);
  } catch {
    // The directory went away or the disk is read-only: the holder keeps working and will learn it there.
  }
}

/** Synced before the link: after a power cut the lock holds its content or does not exist. */
function write(path: string, content: string, durable: boolean): void {
  const fd = openSync(path, 'wx', 0o644);
  try {
    writeSync(fd, content);
    if (durable) fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function contentOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
