import type { AppendRequest, LineRefusal } from '@belay/contracts';
import { MAX_REQUEST_LINES } from '@belay/contracts/rpc';
import { type Envelope, EnvelopeError, parseEnvelope, splitLines } from '@belay/envelope';
import type { Sender } from './access.js';
import { ProblemError } from './problem.js';

/** The headers of an append that mean something to us, as sent. */
export interface AppendHeaders {
  readonly sink: string | undefined;
  readonly signature: string | undefined;
  readonly head: string | undefined;
}

/** Names of sinks, as libs/envelope/FORMAT.md has them. */
export const SINK = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/**
 * A body's lines, validated one by one: what is wrong with a line refuses that line. Throws a problem when the request
 * as a whole can't be an append.
 *
 * A request is of one sink and one epoch. The sink is the header's, else the only one the token may use, else that of
 * the first valid line; the epoch is that of the first valid line of the sink.
 */
export function takeIn(sender: Sender, headers: AppendHeaders, body: Buffer): AppendRequest {
  const { log } = sender;
  const signature = parseSignature(headers.signature);
  const head = parseHead(headers.head);
  const lines = split(body);
  let sink = resolveSink(sender, headers.sink);
  let epoch: string | undefined;
  const seqs: (number | null)[] = [];
  const refused: LineRefusal[] = [];

  for (const [line, bytes] of lines.entries()) {
    const envelope = read(line, bytes, refused);
    if (!envelope) {
      seqs.push(null);
      continue;
    }
    const wrong =
      envelope.log !== log.origin
        ? refusal(line, 'wrong_log', 'log', `this token appends to ${log.origin}`)
        : envelope.sink !== (sink ??= allowed(sender, envelope.sink))
          ? refusal(line, 'wrong_sink', 'sink', `this request is of sink ${sink}`)
          : envelope.epoch !== (epoch ??= envelope.epoch)
            ? refusal(line, 'mixed_epoch', 'epoch', `this request is of epoch ${epoch}; send others apart`)
            : undefined;
    if (wrong) refused.push(wrong);
    seqs.push(wrong ? null : envelope.seq);
  }
  if (sink === undefined || epoch === undefined) {
    throw new ProblemError('no_valid_line', 'No line of this request can be appended.', { refused });
  }
  return {
    project: log.project,
    token: sender.id,
    sink,
    epoch,
    lines,
    seqs,
    refused,
    ...(signature && { signature }),
    ...(head !== undefined && { head }),
  };
}

function split(body: Buffer): Buffer[] {
  let lines: Buffer[];
  try {
    lines = splitLines(body, MAX_REQUEST_LINES);
  } catch (error) {
    if (error instanceof EnvelopeError && error.code === 'too_many_lines') {
      throw new ProblemError('too_many_lines', `A request has at most ${MAX_REQUEST_LINES} lines.`);
    }
    throw error;
  }
  if (lines.length === 0) throw new ProblemError('empty', 'The body has no lines.');
  return lines;
}

function read(line: number, bytes: Buffer, refused: LineRefusal[]): Envelope | undefined {
  try {
    return parseEnvelope(bytes);
  } catch (error) {
    if (!(error instanceof EnvelopeError)) throw error;
    refused.push(refusal(line, error.code, error.field, error.message));
    return undefined;
  }
}

function refusal(line: number, code: string, field: string, message: string): LineRefusal {
  return field === '' ? { line, code, message } : { line, code, field, message };
}

function resolveSink(sender: Sender, header: string | undefined): string | undefined {
  if (header === undefined) return sender.sinks?.length === 1 ? sender.sinks[0] : undefined;
  if (!SINK.test(header))
    throw new ProblemError('invalid', 'Belay-Sink is no sink name.', { field: 'Belay-Sink' });
  return allowed(sender, header);
}

function allowed(sender: Sender, sink: string): string {
  if (sender.sinks && !sender.sinks.includes(sink)) {
    throw new ProblemError('sink_not_allowed', 'This token may not append as that sink.', { field: 'sink' });
  }
  return sink;
}

function parseSignature(header: string | undefined): Buffer | undefined {
  if (header === undefined) return undefined;
  const bytes = Buffer.from(header, 'base64');
  if (bytes.length !== 64 || bytes.toString('base64') !== header) {
    throw new ProblemError('invalid', 'Belay-Signature is the base64 of 64 bytes.', {
      field: 'Belay-Signature',
    });
  }
  return bytes;
}

function parseHead(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const size = /^(?:0|[1-9][0-9]{0,15})$/.test(header) ? Number(header) : Number.NaN;
  if (!Number.isSafeInteger(size)) {
    throw new ProblemError('invalid', 'Belay-Head is the size of the last head that was verified.', {
      field: 'Belay-Head',
    });
  }
  return size;
}
