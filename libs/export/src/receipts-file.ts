import { createHash } from 'node:crypto';
import type { IssuedScope } from '@belay/envelope';
import { type AnyReceipt, MAX_RECEIPT_BYTES } from '@belay/receipt';
import { ExportError } from './error.js';

const LF = 0x0a;

/** Where a receipt stands in `receipts.ndjson`, and what has to be known of it while the entries are read. */
export interface FiledReceipt {
  /** Its bytes in the file, without the LF. */
  readonly at: number;
  readonly length: number;
  /** `sha256:` digest of its bytes. */
  readonly digest: string;
  readonly scope: Extract<IssuedScope, { readonly type: 'session' | 'period' }>;
  /** Size of the checkpoint it stands on. */
  readonly asOf: number;
  readonly coverage: {
    /** Of the `coverage.stated` of a session's receipt. */
    readonly index?: number | undefined;
    readonly size: number;
    readonly time: string;
  };
  readonly supersedes?: string | undefined;
}

/** What is kept of a receipt. Throws ExportError `malformed` for one that is of no session or period. */
export function filedReceipt(bytes: Buffer, at: number, opened: AnyReceipt): FiledReceipt {
  if (opened.type === 'entries') throw malformed('a receipt that is of no session and no period');
  const { scope, asOf, coverage, supersedes } = opened.receipt;
  return {
    at,
    length: bytes.length,
    digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}`,
    scope,
    asOf: asOf.size,
    coverage: {
      ...(opened.type === 'session' ? { index: opened.receipt.coverage.index } : {}),
      size: coverage.size,
      time: coverage.time,
    },
    supersedes,
  };
}

/** The lines of a file in blocks, of which none is kept, each with where it begins. Throws ExportError `malformed`. */
export async function* linesOf(
  blocks: AsyncIterable<Buffer>,
): AsyncGenerator<{ readonly at: number; readonly bytes: Buffer }> {
  let parts: Buffer[] = [];
  let length = 0;
  let at = 0;
  for await (const block of blocks) {
    let from = 0;
    for (let end = block.indexOf(LF); end >= 0; end = block.indexOf(LF, from)) {
      const bytes = Buffer.concat([...parts, block.subarray(from, end)]);
      yield { at, bytes };
      at += bytes.length + 1;
      from = end + 1;
      parts = [];
      length = 0;
    }
    parts.push(Buffer.from(block.subarray(from)));
    length += block.length - from;
    if (length > MAX_RECEIPT_BYTES) throw malformed('a line that is longer than any receipt');
  }
  if (length > 0) throw malformed('its last line has no end');
}

function malformed(what: string): ExportError {
  return new ExportError('malformed', `receipts.ndjson: ${what}`);
}
