/**
 * A client's configuration file on disk, and what we remember of it to put it back: one record per file under
 * `<state>/wraps/`, 0600, because a configuration holds secrets.
 */

import { createHash } from 'node:crypto';
import { mkdir, open, readFile, realpath, rename, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { badInput } from './exit.js';

/** Claude Code keeps histories in the file that holds its servers; still no configuration is as large as this. Bytes. */
const MAX_CONFIG = 64 * 1024 * 1024;

/** A file as it was read. */
export interface ConfigFile {
  /** With symbolic links resolved: they are kept, and what they point to is replaced. */
  readonly path: string;
  readonly text: string;
  readonly sha256: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
}

/** What a file was before `belay proxy` came into it. */
export interface WrapRecord {
  readonly v: 1;
  readonly path: string;
  readonly time: string;
  /** SHA-256 of the file as wrapped: while it is this, the original is put back byte for byte. */
  readonly wrapped: string;
  /** The file's text before, a byte order mark included. */
  readonly original: string;
  /** Paths of the servers that were wrapped, and of those among them that had no `args`. */
  readonly servers: readonly (readonly string[])[];
  readonly argsAdded: readonly (readonly string[])[];
}

export const sha256 = (text: string): string => createHash('sha256').update(text, 'utf8').digest('hex');

/** Reads a configuration; undefined when there is none. Throws CliError for what can't be given back byte for byte. */
export async function readConfigFile(path: string): Promise<ConfigFile | undefined> {
  let real;
  try {
    real = await realpath(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  const { size, mode, uid, gid } = await stat(real);
  if (size > MAX_CONFIG) throw badInput('too_large', `${path} is too large for a configuration file`);
  const bytes = await readFile(real);
  // Buffer's own decoder keeps a byte order mark as U+FEFF.
  const text = bytes.toString('utf8');
  if (!Buffer.from(text, 'utf8').equals(bytes)) {
    throw badInput('not_utf8', `${path} is not UTF-8`, 'Save it as UTF-8 and try again.');
  }
  return { path: real, text, sha256: sha256(text), mode: mode & 0o7777, uid, gid };
}

/**
 * Replaces a configuration by `text`: whole, durable, with the mode and the owner it had. Returns false and changes
 * nothing when the file is no longer what was read; its client may write it at any moment.
 */
export async function replaceConfigFile(file: ConfigFile, text: string): Promise<boolean> {
  const fresh = `${file.path}.${process.pid}.belay`;
  const handle = await open(fresh, 'wx', 0o600);
  try {
    await handle.writeFile(text, 'utf8');
    if (process.getuid?.() === 0) await handle.chown(file.uid, file.gid);
    await handle.chmod(file.mode);
    await handle.sync();
    await handle.close();
    const now = await readConfigFile(file.path);
    if (now?.sha256 === file.sha256) {
      await rename(fresh, file.path);
      return true;
    }
  } catch (error) {
    await handle.close().catch(() => undefined);
    await unlink(fresh).catch(() => undefined);
    throw error;
  }
  await unlink(fresh);
  return false;
}

const wrapsDir = (state: string): string => join(state, 'wraps');
const recordPath = (state: string, path: string): string =>
  join(wrapsDir(state), `${sha256(path).slice(0, 16)}.json`);

/** The record of a file by its resolved path, or undefined. A record that is not ours to read is refused, not ignored. */
export async function readWrapRecord(state: string, path: string): Promise<WrapRecord | undefined> {
  const file = recordPath(state, path);
  let text;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  let value: Partial<WrapRecord> | undefined;
  try {
    value = JSON.parse(text) as WrapRecord;
  } catch {
    value = undefined;
  }
  if (value?.v !== 1 || typeof value.original !== 'string' || !Array.isArray(value.servers)) {
    throw badInput('record', `${file} is not a record of what was wrapped`, `Move it away and see ${path}.`);
  }
  return value as WrapRecord;
}

/** Replaces the record whole and durably. */
export async function writeWrapRecord(state: string, record: WrapRecord): Promise<void> {
  const path = recordPath(state, record.path);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const fresh = `${path}.${process.pid}.new`;
  const handle = await open(fresh, 'wx', 0o600);
  try {
    await handle.writeFile(`${JSON.stringify(record)}\n`);
    await handle.sync();
    await handle.close();
    await rename(fresh, path);
  } catch (error) {
    await handle.close().catch(() => undefined);
    await unlink(fresh).catch(() => undefined);
    throw error;
  }
}

export async function deleteWrapRecord(state: string, path: string): Promise<void> {
  await unlink(recordPath(state, path)).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
}
