/** Why something of the store could not be had, by what the caller does next. */
export type SnapshotErrorCode =
  /** Bytes that should be in a form of `FORMAT.md` are not. */
  | 'malformed'
  /** The directory is no store, or one of a version that this program does not know. */
  | 'no-store'
  /** The store does not have this state (or not any more). */
  | 'unknown-state'
  /** A state refers to content that is not there. */
  | 'content-missing'
  /** Content is there, but its bytes are not those of its hash. */
  | 'content-damaged'
  /** The store was tidied up meanwhile, and what this writer relied on may be gone. */
  | 'tidied'
  /** What is captured, or where it is kept, was named wrongly. */
  | 'arguments';

/** The only error that this package throws for what it finds in a store; a system call's errors pass as they are. */
export class SnapshotError extends Error {
  readonly code: SnapshotErrorCode;

  constructor(code: SnapshotErrorCode, message: string) {
    super(message);
    this.name = 'SnapshotError';
    this.code = code;
  }
}
