/** What is answered, in the encoding of the request. */

import type { OtlpEncoding, OtlpSignal } from './request.js';

/** google.rpc.Code, as far as it is used here. */
export const RPC_CODE = {
  invalidArgument: 3,
  notFound: 5,
  permissionDenied: 7,
  resourceExhausted: 8,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
} as const;

/** How many items of a request were refused for good, and why. */
export interface Refusals {
  readonly rejected: number;
  readonly message: string;
}

const REJECTED = {
  traces: 'rejectedSpans',
  logs: 'rejectedLogRecords',
  metrics: 'rejectedDataPoints',
} as const;

/**
 * Export...ServiceResponse. `partial_success` stands in it only when something was refused: a client never sends such
 * items again.
 */
export function encodeAnswer(
  encoding: OtlpEncoding,
  signal: OtlpSignal | 'metrics',
  refused: Refusals | undefined,
): Buffer {
  if (refused === undefined) return encoding === 'json' ? Buffer.from('{}') : Buffer.alloc(0);
  const { rejected, message } = refused;
  if (encoding === 'json') {
    // A 64-bit integer: text in JSON.
    const partialSuccess = { [REJECTED[signal]]: String(rejected), errorMessage: message };
    return Buffer.from(JSON.stringify({ partialSuccess }));
  }
  return lengthField(1, Buffer.concat([varintField(1, rejected), lengthField(2, Buffer.from(message))]));
}

/** google.rpc.Status. */
export function encodeStatus(encoding: OtlpEncoding, code: number, message: string): Buffer {
  return encoding === 'json'
    ? Buffer.from(JSON.stringify({ code, message }))
    : Buffer.concat([varintField(1, code), lengthField(2, Buffer.from(message))]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 0x80) {
    bytes.push((rest % 0x80) | 0x80);
    rest = Math.floor(rest / 0x80);
  }
  return Buffer.from([...bytes, rest]);
}

const varintField = (number: number, value: number): Buffer =>
  Buffer.concat([varint(number << 3), varint(value)]);

const lengthField = (number: number, bytes: Buffer): Buffer =>
  Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);
