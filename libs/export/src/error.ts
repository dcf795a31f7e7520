/** Why no export came out, or why one can't be read. */
export type ExportErrorCode =
  /** What was asked for is not something that can be exported. */
  | 'request'
  /** What the source gave does not fit together: no export is made of it. */
  | 'source'
  /** The bytes are not those of an export, or not in their one form. */
  | 'malformed'
  /** A part is of the right form and says what the rest does not. */
  | 'invalid';

/** The only error that this package throws for bad input. */
export class ExportError extends Error {
  readonly code: ExportErrorCode;

  constructor(code: ExportErrorCode, message: string) {
    super(message);
    this.name = 'ExportError';
    this.code = code;
  }
}
