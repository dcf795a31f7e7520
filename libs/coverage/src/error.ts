/** What was wrong with what this package was given. */
export type CoverageErrorCode =
  /** Bytes that are not a statement, or a policy, in its one canonical form. */
  | 'malformed'
  /** A stored state that no run of this version left. */
  | 'state'
  /** An entry of another log, sink, epoch or session than the reducer's. */
  | 'misrouted';

export class CoverageError extends Error {
  readonly code: CoverageErrorCode;

  constructor(code: CoverageErrorCode, message: string) {
    super(message);
    this.name = 'CoverageError';
    this.code = code;
  }
}
