/** Why a tree operation refused. Closed, so that callers can decide on it. */
export type MerkleErrorCode =
  /** A size, index or bound is negative, too large, or the bounds contradict each other. */
  | 'bounds'
  /** A hash is not exactly 32 bytes. */
  | 'hash-length'
  /** A proof has fewer or more hashes than this (index, size) has, or more than the cap. */
  | 'proof-length'
  /** The [start, end) given is not a subtree that RFC 6962 trees can contain. */
  | 'not-a-subtree'
  /** Everything had the right shape and the recomputed root is another one. The only code that accuses. */
  | 'root-mismatch'
  /** A tile path, a tile coordinate or the bytes of a tile or bundle are malformed. */
  | 'tile';

/** What was expected and what was found, printable: hashes as lower-case hex, numbers as decimals. */
export type MerkleEvidence = Readonly<Record<string, string>>;

/** The only error that this package throws for bad input. Verification has no return value to forget. */
export class MerkleError extends Error {
  readonly code: MerkleErrorCode;
  readonly evidence: MerkleEvidence;

  constructor(code: MerkleErrorCode, message: string, evidence: MerkleEvidence = {}) {
    super(message);
    this.name = 'MerkleError';
    this.code = code;
    this.evidence = Object.freeze({ ...evidence });
  }
}
