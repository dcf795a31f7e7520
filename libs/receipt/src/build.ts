import { parseEntry } from '@belay/envelope';
import type { NoteSigner } from '@belay/note';
import { authorityOf } from './authority.js';
import { dispositionOf } from './disposition.js';
import { ReceiptError } from './error.js';
import { signPayload } from './sign.js';
import { formatStatement, type Issuer, type Receipt } from './statement.js';
import { bundleDigest, verifyReceipt } from './verify.js';

/** What a receipt is made of: all of it from the log, nothing of it decided by the caller. */
export type ReceiptEvidence = Omit<Receipt, 'authority' | 'disposition' | 'issuers'> & {
  /** Who issued the tokens; those that no entry was sent with are left out. */
  readonly tokens: readonly Issuer[];
  /** Trust domain that an admin has declared for what this sink sends with this token. */
  readonly domainOf?: (sink: string, token: string) => string | undefined;
};

/**
 * Makes and signs a receipt. The same evidence gives the same bytes.
 *
 * `log` signs as the log's origin does: its name and key are those of `evidence.log`. What would not verify is never
 * handed out: the finished receipt goes through every check first, and a failing one throws ReceiptError `evidence`.
 */
export function buildReceipt(evidence: ReceiptEvidence, log: NoteSigner): Buffer {
  const { scope, asOf, proof, entries, tokens, domainOf } = evidence;
  let parsed;
  try {
    parsed = entries.map(parseEntry);
  } catch (error) {
    throw new ReceiptError('evidence', `an entry is malformed: ${(error as Error).message}`);
  }
  const issuers: Issuer[] = [];
  const seen = new Set<string>();
  for (const { line } of parsed) {
    if (line.token === undefined || seen.has(line.token)) continue;
    seen.add(line.token);
    const issuer = tokens.find(({ token }) => token === line.token);
    if (issuer === undefined) throw new ReceiptError('evidence', `nothing says who issued ${line.token}`);
    issuers.push({ token: issuer.token, issuedBy: issuer.issuedBy, index: issuer.index });
  }
  const receipt: Receipt = {
    scope,
    log: evidence.log,
    asOf: { size: asOf.size, checkpoint: asOf.checkpoint, time: asOf.time },
    proof,
    entries,
    authority: authorityOf(parsed, domainOf),
    disposition: dispositionOf(parsed),
    issuers,
  };
  const payload = formatStatement(receipt, bundleDigest(entries));
  const bytes = signPayload(payload, log);
  const report = verifyReceipt(bytes, { key: evidence.log.vkey });
  const wrong = report.checks.find(({ status }) => status !== 'ok');
  if (wrong !== undefined) throw new ReceiptError('evidence', `${wrong.name}: ${wrong.detail}`);
  return bytes;
}
