import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * Where a machine keeps what it has to send. Folders are made 0700, files 0600.
 *
 *     <state>/secrets/machine                          32 bytes, base64
 *     <state>/logs/<log>/log.json                      the origin in clear, and the key that its first token pinned
 *     <state>/logs/<log>/head.json                     last verified head
 *     <state>/logs/<log>/published.json                largest published checkpoint that was seen and verified
 *     <state>/logs/<log>/kept.json                     when what is kept of settled lines was last gone over
 *     <state>/logs/<log>/superseded/<time>/            head and checkpoint of a log that started over: evidence
 *     <state>/logs/<log>/last-error.json               what last kept lines from being sent; none after an ack
 *     <state>/logs/<log>/accusations/<time>.json       evidence against the log
 *     <state>/logs/<log>/sinks/<sink>/chain.json       counter and id of the last epoch
 *     <state>/logs/<log>/sinks/<sink>/sources/<id>/position.json   how far a source was read
 *     <state>/logs/<log>/sinks/<sink>/<epoch>/         one spool: epoch.json, lines, acks; writer of a shared one;
 *                                                      lines.gz and proofs: settled lines, and what proves them
 *
 * `<log>` is the first 16 hex digits of SHA-256 of the origin, which may hold slashes.
 */
export function logDir(state: string, origin: string): string {
  return join(state, 'logs', createHash('sha256').update(origin).digest('hex').slice(0, 16));
}

export function sinkDir(state: string, origin: string, sink: string): string {
  return join(logDir(state, origin), 'sinks', sink);
}

/** The last epoch of a sink, in `chain.json` of its folder. */
export interface Chain {
  readonly counter: number;
  readonly epoch: string;
}

export const readChain = (folder: string): Chain | undefined =>
  readJson(join(folder, 'chain.json')) as Chain | undefined;

export function makeDir(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
}

/** Replaces a file whole: after a crash it holds the old content or the new. */
export function writeJson(path: string, value: unknown): void {
  const fresh = `${path}.${process.pid}.${randomBytes(4).toString('hex')}.new`;
  const fd = openSync(fresh, 'wx', 0o600);
  try {
    writeSync(fd, `${JSON.stringify(value)}\n`);
    fsyncSync(fd);
    closeSync(fd);
    renameSync(fresh, path);
  } catch (error) {
    try {
      unlinkSync(fresh);
    } catch {
      // It was renamed, or the directory is gone.
    }
    throw error;
  }
}

/**
 * The same for a process that must not wait for the disk. Replaces the file only if `still` says so when all but that is
 * done: nothing else of this process comes in between.
 */
export async function replaceJson(path: string, value: unknown, still: () => boolean): Promise<void> {
  const fresh = `${path}.${process.pid}.${randomBytes(4).toString('hex')}.new`;
  const file = await open(fresh, 'wx', 0o600);
  let replaced = false;
  try {
    await file.writeFile(`${JSON.stringify(value)}\n`);
    await file.sync();
    await file.close();
    if (still()) {
      renameSync(fresh, path);
      replaced = true;
    }
  } finally {
    // Closing what is closed is no error.
    await file.close();
    if (!replaced) unlinkSync(fresh);
  }
}

/** The parsed file, or undefined when there is none. A file that is not JSON throws. */
export function readJson(path: string): unknown {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return JSON.parse(text) as unknown;
}

/**
 * The machine's secret (32 bytes), made on first use and shared by all sinks of this state directory: what `call` and
 * `match` are keyed with. Never sent.
 */
export function machineSecret(state: string): Buffer {
  const folder = join(state, 'secrets');
  const path = join(folder, 'machine');
  for (;;) {
    try {
      const secret = Buffer.from(readFileSync(path, 'utf8').trim(), 'base64');
      if (secret.length !== 32) throw new Error(`${path} does not hold 32 bytes in base64`);
      return secret;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    makeDir(folder);
    try {
      createWhole(path, `${randomBytes(32).toString('base64')}\n`);
    } catch (error) {
      // Two processes start at once: the one that came second uses what the first made.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

function createWhole(path: string, text: string): void {
  const fresh = `${path}.${process.pid}.${randomBytes(4).toString('hex')}.new`;
  const fd = openSync(fresh, 'wx', 0o600);
  try {
    writeSync(fd, text);
    fsyncSync(fd);
    linkSync(fresh, path);
  } finally {
    closeSync(fd);
    unlinkSync(fresh);
  }
}
