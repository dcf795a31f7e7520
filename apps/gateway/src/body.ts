import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { MAX_BODY_BYTES } from '@belay/contracts/rpc';
import type { Visit } from './admission.js';
import { ProblemError } from './problem.js';

/** Bytes of a compressed body as sent. */
export const MAX_COMPRESSED_BYTES = 1024 * 1024;

const inflate = promisify(gunzip);

/**
 * The body of an append, decompressed. Limits hold before anything is stored: what is too long by its own account is
 * not read at all, what turns out too long is not read further, and decompression ends at the limit.
 */
export async function readBody(
  stream: Readable,
  headers: { readonly encoding: string | undefined; readonly length: string | undefined },
  visit: Visit,
): Promise<Buffer> {
  const encoding = headers.encoding?.trim().toLowerCase() ?? 'identity';
  switch (encoding) {
    case 'identity':
      return collect(stream, headers.length, MAX_BODY_BYTES, visit);
    case 'gzip': {
      const compressed = await collect(stream, headers.length, MAX_COMPRESSED_BYTES, visit);
      // Asked for at its worst before it is known: deflate packs up to a thousand to one.
      visit.hold(MAX_BODY_BYTES);
      try {
        return await inflate(compressed, { maxOutputLength: MAX_BODY_BYTES });
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

function collect(stream: Readable, length: string | undefined, limit: number, visit: Visit): Promise<Buffer> {
  if (length !== undefined && Number(length) > limit) return Promise.reject(tooLarge(limit, 'long'));
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let total = 0;
    const settle = (act: () => void) => {
      stream.off('data', onData).off('end', onEnd).off('error', onError).off('close', onClose);
      act();
    };
    const fail = (error: Error) => settle(() => reject(error));
    const onData = (chunk: Buffer) => {
      total += chunk.length;
      try {
        if (total > limit) throw tooLarge(limit, 'long');
        visit.hold(chunk.length);
      } catch (error) {
        // Not destroyed: that would take the connection with it, and the answer.
        stream.pause();
        fail(error as Error);
        return;
      }
      chunks.push(chunk);
    };
    const onEnd = () =>
      settle(() => resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, total)));
    const onError = () => fail(new ProblemError('invalid', 'The body could not be read.'));
    const onClose = () => fail(new ProblemError('invalid', 'The body was cut off.'));
    stream.on('data', onData).on('end', onEnd).on('error', onError).on('close', onClose);
  });
}

function tooLarge(limit: number, what: 'long' | 'decompressed'): ProblemError {
  return new ProblemError(
    'body_too_large',
    what === 'long'
      ? `A body is at most ${MAX_COMPRESSED_BYTES} bytes compressed and ${MAX_BODY_BYTES} bytes otherwise; this one has more than ${limit}.`
      : `A body is at most ${limit} bytes decompressed.`,
  );
}
