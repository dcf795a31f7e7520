export type EmbeddedErrorCode =
  /** No PostgreSQL for this platform, or it does not run here. */
  | 'unsupported'
  /** The account PostgreSQL runs as can't reach the data directory, or the directory belongs to somebody else. */
  | 'unreachable'
  | 'init_failed'
  | 'start_failed'
  /** A server of an earlier run does not end. */
  | 'orphan';

/** The embedded PostgreSQL can't be had. The message says what a person can do about it. */
export class EmbeddedError extends Error {
  readonly code: EmbeddedErrorCode;

  constructor(code: EmbeddedErrorCode, message: string) {
    super(message);
    this.name = 'EmbeddedError';
    this.code = code;
  }
}
