import type { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { MAX_BODY_BYTES } from '@belay/contracts/rpc';
import type { Visit } from './admission.js';
import { ProblemError } from './problem.js';

/** Bytes of a compressed body as sent. */
export const MAX_COMPRESSED_BYTES = 1024 * 1024;

/** What one body may need while it is unpacked. */
export const MAX_HELD_BYTES = MAX_BODY_BYTES + MAX_COMPRESSED_BYTES;

/** Milliseconds. */
const DISCARD_MS = 2000;

/** How long a body may take to arrive, in milliseconds: between two pieces of it, and in all. */
export interface Pace {
  readonly idleMs: number;
  readonly totalMs: number;
}

const inflate = promisify(gunzip);

/**
 * The body of an append, decompressed. Limits hold before anything is stored: what is too long by its own account is
 * not read at all, what turns out too long is not read further, and decompression ends at the limit.
 */
export async function readBody(
  stream: Readable,
  headers: { readonly encoding: string | undefined; readonly length: string | undefined },
  visit: Visit,
  pace: Pace,
): Promise<Buffer> {
  const encoding = headers.encoding?.trim().toLowerCase() ?? 'identity';
  switch (encoding) {
    case 'identity':
      return collect(stream, headers.length, MAX_BODY_BYTES, visit, pace);
    case 'gzip': {
      const compressed = await collect(stream, headers.length, MAX_COMPRESSED_BYTES, visit, pace);
      // Asked for at its worst before it is known: deflate packs up to a thousand to one.
      visit.hold(MAX_BODY_BYTES);
      try {
        const body = await inflate(compressed, { maxOutputLength: MAX_BODY_BYTES });
        visit.release(MAX_BODY_BYTES - body.length + compressed.length);
        return body;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE')
          throw tooLarge(MAX_BODY_BYTES, 'decompressed');
        throw new ProblemError('invalid', 'The body is not valid gzip.', { field: 'Content-Encoding' });
      }
    }
    default:
      throw new ProblemError(
        'unsupported_encoding',
        'A body is sent as it is or with Content-Encoding: gzip.',
        {
          field: 'Content-Encoding',
        },
      );
  }
}

async function collect(
  stream: Readable,
  length: string | undefined,
  limit: number,
  visit: Visit,
  pace: Pace,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let total = 0;
  try {
    if (length !== undefined && Number(length) > limit) throw tooLarge(limit, 'long');
    await each(stream, pace, (chunk) => {
      total += chunk.length;
      if (total > limit) throw tooLarge(limit, 'long');
      visit.hold(chunk.length);
      chunks.push(chunk);
    });
  } catch (error) {
    chunks.length = 0;
    if (!isTimeout(error)) await discard(stream);
    throw error;
  }
  return chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, total);
}

/** Not by `for await`, which destroys the stream when it is left early, and the connection and the answer with it. */
function each(stream: Readable, { idleMs, totalMs }: Pace, take: (chunk: Buffer) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const late = () => settle(new ProblemError('request_timeout', 'The body took too long to arrive.'));
    const total = setTimeout(late, totalMs);
    const idle = setTimeout(late, idleMs);
    const settle = (error?: Error) => {
      clearTimeout(total);
      clearTimeout(idle);
      stream.off('data', onData).off('end', onEnd).off('error', onError).off('close', onClose);
      if (error === undefined) resolve();
      else reject(error);
    };
    const onData = (chunk: Buffer) => {
      idle.refresh();
      try {
        take(chunk);
      } catch (error) {
        settle(error as Error);
      }
    };
    const onEnd = () => settle();
    const onError = () => settle(new ProblemError('invalid', 'The body could not be read.'));
    const onClose = () => settle(new ProblemError('invalid', 'The body was cut off.'));
    stream.on('data', onData).on('end', onEnd).on('error', onError).on('close', onClose);
  });
}

const isTimeout = (error: unknown): boolean =>
  error instanceof ProblemError && error.code === 'request_timeout';

/**
 * Lets a sender that is too long come to its end, unread and for a moment: one whose connection closes in the middle
 * of its writing sees a reset and never the answer.
 */
async function discard(stream: Readable): Promise<void> {
  const moment = new AbortController();
  stream.resume();
  await Promise.race([
    finished(stream, { signal: moment.signal }).catch(() => undefined),
    sleep(DISCARD_MS, undefined, { signal: moment.signal }).catch(() => undefined),
  ]);
  moment.abort();
}

function tooLarge(limit: number, what: 'long' | 'decompressed'): ProblemError {
  return new ProblemError(
    'body_too_large',
    what === 'long'
      ? `A body is at most ${MAX_COMPRESSED_BYTES} bytes compressed and ${MAX_BODY_BYTES} bytes otherwise; this one has more than ${limit}.`
      : `A body is at most ${limit} bytes decompressed.`,
  );
}
