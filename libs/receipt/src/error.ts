/** Why no receipt came out, or why one can't be relied on. */
export type ReceiptErrorCode =
  /** The evidence given does not make a receipt that verifies; nothing was signed for it to be handed out. */
  | 'evidence'
  /** The bytes are not a receipt or proof in its one canonical form. */
  | 'malformed'
  /** What the reader pinned (verifier key, root certificate) is not one. */
  | 'pin'
  /** At least one check failed. */
  | 'invalid'
  /** No check failed, and at least one could not be decided. */
  | 'indeterminate';

/** The only error that this package throws for bad input. */
export class ReceiptError extends Error {
  readonly code: ReceiptErrorCode;
  /** What was stated and what it should have been, where a comparison failed. */
  readonly evidence: Readonly<Record<string, string | number>>;

  constructor(
    code: ReceiptErrorCode,
    message: string,
    evidence: Readonly<Record<string, string | number>> = {},
  ) {
    super(message);
    this.name = 'ReceiptError';
    this.code = code;
    this.evidence = evidence;
  }
}
