/** A large file of the service on its way to this disk: goes on where it broke off, and is looked at before it has its name. */

import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, open, rename, unlink } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CliError, EXIT, unavailable } from './exit.js';
import type { Service, Stream } from './service.js';

/** Tries in a row that bring nothing; pauses between them, milliseconds. */
const MOST_TRIES = 6;
const FIRST_PAUSE = 200;
const LAST_PAUSE = 5_000;
const PIECE = 1024 * 1024;

export interface Wanted {
  /** Of the file, on the service. */
  readonly path: string;
  readonly bytes: number;
  /** Hex. */
  readonly sha256: string;
  /** What it is to be called, and what it is called until it is whole. */
  readonly file: string;
  readonly part: string;
  /** What to run to go on. */
  readonly again: string;
  readonly onBytes: (done: number) => void;
}

/** Bytes that are there, and the hash over them. */
interface Progress {
  size: number;
  hash: Hash;
}

/**
 * Throws CliError `unavailable` where it broke off for good: what came stays and is gone on with; `digest` where it is
 * not what it should be: then nothing stays.
 */
export async function download(service: Service, wanted: Wanted): Promise<void> {
  const { bytes, sha256, file, part } = wanted;
  const handle = await open(part, 'a+', 0o644);
  let same = false;
  try {
    const progress = await begun(handle, bytes);
    await fetched(service, wanted, handle, progress);
    await handle.sync();
    same = progress.hash.digest('hex') === sha256;
  } finally {
    await handle.close();
  }
  if (!same) {
    await unlink(part);
    throw new CliError(
      EXIT.bad,
      'digest',
      `${file}: what came is not what the service made (SHA-256 ${sha256})`,
      'It was thrown away. Download it again.',
    );
  }
  await rename(part, file);
}

/** What an earlier run has left. */
async function begun(handle: FileHandle, bytes: number): Promise<Progress> {
  const hash = createHash('sha256');
  const { size } = await handle.stat();
  if (size > bytes) {
    await handle.truncate(0);
    return { size: 0, hash };
  }
  const piece = Buffer.allocUnsafe(Math.min(PIECE, Math.max(1, size)));
  for (let at = 0; at < size;) {
    const { bytesRead } = await handle.read(piece, 0, Math.min(piece.length, size - at), at);
    if (bytesRead === 0) throw new Error('a file that shrinks while it is read');
    hash.update(piece.subarray(0, bytesRead));
    at += bytesRead;
  }
  return { size, hash };
}

async function fetched(
  service: Service,
  { path, bytes, sha256, again, onBytes }: Wanted,
  handle: FileHandle,
  progress: Progress,
): Promise<void> {
  let tries = 0;
  while (progress.size < bytes) {
    const before = progress.size;
    try {
      const stream = await service.stream(path, {
        accept: '*/*',
        // A file that was made anew in between is sent whole.
        ...(before === 0 ? {} : { range: `bytes=${before}-`, 'if-range': `"${sha256}"` }),
      });
      if (before > 0 && stream.status !== 206) {
        await handle.truncate(0);
        progress.size = 0;
        progress.hash = createHash('sha256');
      }
      await written(stream, handle, progress, bytes, onBytes);
      // An answer that ends early ends without an error where its length was not said.
      if (progress.size < bytes) throw unavailable('cut_off', 'the answer ended early');
    } catch (error) {
      if (!(error instanceof CliError) || error.exit !== EXIT.unavailable) throw error;
      tries = progress.size > before ? 0 : tries + 1;
      if (tries >= MOST_TRIES)
        throw unavailable(error.code, `${error.message}; ${progress.size} of ${bytes} bytes are here`, again);
      await sleep(Math.min(LAST_PAUSE, FIRST_PAUSE * 2 ** tries));
    }
  }
}

async function written(
  { parts }: Stream,
  handle: FileHandle,
  progress: Progress,
  bytes: number,
  onBytes: (done: number) => void,
): Promise<void> {
  for await (const part of parts) {
    if (progress.size + part.length > bytes)
      throw new CliError(EXIT.bad, 'too_large', `more comes than the ${bytes} bytes that were said`);
    await handle.appendFile(part);
    progress.hash.update(part);
    progress.size += part.length;
    onBytes(progress.size);
  }
}
