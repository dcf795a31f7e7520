import type { FastifyInstance, FastifyReply } from 'fastify';
import { type Holder, Shares } from './admission.js';
import { sendable } from './problem-filter.js';
import { ProblemError } from './problem.js';

/** Answers below this are not counted: sockets hold as much anyway. */
const SMALL = 64 * 1024;
/** Milliseconds a reader has for a whole answer. */
const READ_MS = 120_000;

/**
 * Counts the bytes of answers that nobody has read yet. A reader that does not read makes us hold its answer; so many
 * bytes, and no more, are held for all of them, and none for longer than two minutes.
 */
export function limitOutgoing(
  fastify: FastifyInstance,
  maxBytes: number,
  holderOf: (request: object) => Holder,
): void {
  const shares = new Shares(maxBytes, 0);
  fastify.addHook('onSend', async (request, reply, payload) => {
    const length = lengthOf(payload);
    if (length < SMALL) return payload;
    const holder = holderOf(request);
    const amount = shares.most(length);
    if (!shares.take(holder, amount)) {
      return sendable(
        reply,
        new ProblemError('overloaded', 'More is being read than this service sends at once.', {
          retryAfter: 1,
        }),
      );
    }
    untilSent(reply, () => shares.give(holder, amount));
    // One copy, as bytes: a long string would be copied once more for the socket.
    return typeof payload === 'string' ? Buffer.from(payload, 'utf8') : payload;
  });
}

function untilSent({ raw }: FastifyReply, done: () => void): void {
  const late = setTimeout(() => raw.destroy(), READ_MS);
  let over = false;
  const settle = () => {
    if (over) return;
    over = true;
    clearTimeout(late);
    done();
  };
  raw.once('finish', settle).once('close', settle);
}

function lengthOf(payload: unknown): number {
  if (typeof payload === 'string') return Buffer.byteLength(payload);
  return Buffer.isBuffer(payload) ? payload.length : 0;
}
