import { sign, type KeyObject } from 'node:crypto';
import type { AppendCredential } from '@belay/contracts';
import { batchMessage, batchRoot } from '@belay/envelope';
import { formatVkey } from '@belay/note';
import { type SignedHead, type VerifiedAck, verifyAck } from './ack.js';
import { ClientError } from './error.js';
import type { Answer, Transport } from './http.js';

/** Where and as whom to append. */
export interface AppendTarget {
  readonly transport: Transport;
  /** The token's text. */
  readonly token: string;
  readonly credential: AppendCredential;
}

export interface AppendBatch {
  readonly sink: string;
  readonly epoch: string;
  readonly firstSeq: number;
  readonly lines: readonly Buffer[];
  /** Private key of a keyed sink. */
  readonly key: KeyObject | undefined;
  readonly head: SignedHead | undefined;
}

/**
 * One append: POST, and the ack verified against what was sent. Throws ClientError; `too_large` is not among them but
 * told by `problem` `body_too_large` or `too_many_lines` (send fewer lines).
 */
export async function append(target: AppendTarget, batch: AppendBatch): Promise<VerifiedAck> {
  const { credential, token, transport } = target;
  const { sink, epoch, firstSeq, lines, key, head } = batch;
  const headers: Record<string, string> = {
    authorization: `Bearer ${token}`,
    'content-type': 'application/x-ndjson',
    'belay-sink': sink,
  };
  if (head !== undefined) headers['belay-head'] = String(head.size);
  if (key !== undefined) {
    const root = batchRoot(lines);
    const message = batchMessage({
      log: credential.origin,
      sink,
      epoch,
      firstSeq,
      count: lines.length,
      root,
    });
    headers['belay-signature'] = sign(null, message, key).toString('base64');
  }
  const body = Buffer.concat(lines.flatMap((line) => [line, LF]));
  const answer = await transport.post(`/v1/projects/${credential.project}/events`, headers, body);
  if (answer.status !== 200) throw failure(answer, { origin: credential.origin, head });
  let ack: unknown;
  try {
    ack = JSON.parse(answer.body.toString('utf8'));
  } catch (error) {
    throw new ClientError('retry', 'answer_malformed', 'the answer is not JSON', { cause: error });
  }
  return verifyAck(ack, {
    origin: credential.origin,
    vkey: formatVkey(credential.origin, credential.publicKey),
    sink,
    token: credential.id,
    lines,
    head,
  });
}

const LF = Buffer.from('\n');

function failure(answer: Answer, sent: { origin: string; head: SignedHead | undefined }): ClientError {
  const { status } = answer;
  const problem = problemOf(answer);
  const said =
    problem === undefined ? `the service answered ${status}` : `${problem.code}: ${problem.detail}`;
  const details = { problem: problem?.code, retryAfter: retryAfterOf(answer) };
  if (problem?.code === 'head_ahead') {
    return new ClientError('accuse', 'rolled_back', `the log no longer has what its key signed: ${said}`, {
      ...details,
      evidence: {
        log: sent.origin,
        held: sent.head ?? null,
        answer: answer.body.toString('utf8').slice(0, 4096),
      },
    });
  }
  if (status >= 300 && status < 400) {
    return new ClientError(
      'give_up',
      'redirected',
      `the service redirects (${status}); a credential follows no redirect`,
    );
  }
  if (status === 408 || status === 429 || status >= 500)
    return new ClientError('retry', 'busy', said, details);
  return new ClientError('give_up', 'refused', said, details);
}

function problemOf(answer: Answer): { code: string; detail: string } | undefined {
  if (!answer.headers['content-type']?.startsWith('application/problem+json')) return undefined;
  try {
    const { code, detail } = JSON.parse(answer.body.toString('utf8')) as Record<string, unknown>;
    return typeof code === 'string' ? { code, detail: typeof detail === 'string' ? detail : '' } : undefined;
  } catch {
    return undefined;
  }
}

/** Seconds or a date; at most an hour is believed. */
function retryAfterOf(answer: Answer): number | undefined {
  const text = answer.headers['retry-after'];
  if (text === undefined) return undefined;
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isFinite(ms) ? Math.min(Math.max(ms, 0), 3_600_000) : undefined;
}
