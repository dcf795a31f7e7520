/** Why a note, key or checkpoint was refused. */
export type NoteErrorCode =
  /** The bytes are not a signed note, or not in the one form it can be written in. */
  | 'malformed'
  /** More bytes or signature lines than the caps. */
  | 'too-large'
  /** A key name is empty or has whitespace or `+` in it. */
  | 'name'
  /** A verifier or signer key is malformed, of an unsupported type, or its id is not that of its key. */
  | 'key'
  /** A line by a known key does not verify. The whole note is worthless then. */
  | 'bad-signature'
  /** No line is by a known key. */
  | 'unsigned'
  /** The note is well signed and its text is not a checkpoint (or not this log's). */
  | 'checkpoint';

/** The only error that this package throws for bad input. */
export class NoteError extends Error {
  readonly code: NoteErrorCode;
  readonly evidence: Readonly<Record<string, string>>;

  constructor(code: NoteErrorCode, message: string, evidence: Readonly<Record<string, string>> = {}) {
    super(message);
    this.name = 'NoteError';
    this.code = code;
    this.evidence = Object.freeze({ ...evidence });
  }
}
