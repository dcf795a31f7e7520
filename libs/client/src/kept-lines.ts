import { createReadStream, createWriteStream, existsSync, statSync } from 'node:fs';
import { copyFile, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { LINES } from './epoch-record.js';
import { PROOFS } from './proofs.js';

/**
 * Lines of a spool that are settled, compressed: gzip members one after the other, in the order of the lines. They are
 * what is sent again if a log has to start over, and what shows later which content the log was told of.
 */
const KEPT = 'lines.gz';
const LF = 0x0a;
/** A longer line is none of ours. Bytes. */
const MAX_LINE = 65_536;

export const hasKeptLines = (dir: string): boolean => existsSync(join(dir, KEPT));

/** Bytes on the disk of what an epoch keeps of its settled lines, proofs included. */
export function keptBytes(dir: string): number {
  return sizeOf(join(dir, KEPT)) + (hasKeptLines(dir) ? sizeOf(join(dir, PROOFS)) : 0);
}

/** When lines were last added. Milliseconds since 1970; undefined where there are none. */
export function keptSince(dir: string): number | undefined {
  return statSync(join(dir, KEPT), { throwIfNoEntry: false })?.mtimeMs;
}

/**
 * Adds the first `end` bytes of `lines` to what is kept. Replaces the file whole; a crash before `lines` is removed
 * makes them be added again, so a reader takes a number once.
 */
export async function keepLines(dir: string, end: number): Promise<void> {
  if (end === 0) return;
  const path = join(dir, KEPT);
  const fresh = `${path}.new`;
  try {
    await rm(fresh, { force: true });
    if (existsSync(path)) await copyFile(path, fresh);
    await pipeline(
      createReadStream(join(dir, LINES), { end: end - 1 }),
      createGzip(),
      createWriteStream(fresh, { flags: 'a', mode: 0o600 }),
    );
    const file = await open(fresh, 'r+');
    try {
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(fresh, path);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  }
}

/** Puts what is kept back in front of what waits, as `lines` that were never sent. */
export async function restoreLines(dir: string): Promise<void> {
  const path = join(dir, LINES);
  const fresh = `${path}.new`;
  try {
    const file = await open(fresh, 'w', 0o600);
    try {
      for await (const { line } of spoolLines(dir))
        await file.appendFile(Buffer.concat([line, Buffer.of(LF)]));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(fresh, path);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  }
}

/** Gives up the lines, and the proofs with them: they prove nothing without. */
export async function forgetLines(dir: string): Promise<void> {
  for (const name of [KEPT, PROOFS]) await rm(join(dir, name), { force: true });
}

/**
 * Every line of an epoch that is on this machine, each number once, settled or not, in the order of the spool. A
 * half-written line at the end is left out. Throws when what is kept is damaged.
 */
export async function* spoolLines(
  dir: string,
): AsyncGenerator<{ readonly seq: number; readonly line: Buffer }> {
  let last = 0;
  for await (const line of wholeLines(dir)) {
    const { seq } = JSON.parse(line.toString('latin1')) as { seq: number };
    if (seq <= last) continue;
    last = seq;
    yield { seq, line };
  }
}

async function* wholeLines(dir: string): AsyncGenerator<Buffer> {
  if (hasKeptLines(dir)) {
    const source = createReadStream(join(dir, KEPT));
    const unpacked = createGunzip();
    source.on('error', (error) => unpacked.destroy(error));
    yield* split(source.pipe(unpacked));
  }
  if (existsSync(join(dir, LINES))) yield* split(createReadStream(join(dir, LINES)));
}

async function* split(stream: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest = Buffer.alloc(0);
  for await (const chunk of stream) {
    let from = 0;
    for (let lf = chunk.indexOf(LF); lf >= 0; lf = chunk.indexOf(LF, from)) {
      const piece = chunk.subarray(from, lf);
      yield rest.length === 0 ? piece : Buffer.concat([rest, piece]);
      rest = Buffer.alloc(0);
      from = lf + 1;
    }
    rest = Buffer.concat([rest, chunk.subarray(from)]);
    if (rest.length > MAX_LINE) throw new Error('a line of the spool is too long to be one');
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
