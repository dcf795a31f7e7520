export type PolicyErrorCode =
  | 'NOT_YAML'
  | 'TOO_LARGE'
  | 'WRONG_VERSION'
  | 'UNKNOWN_MEMBER'
  | 'UNKNOWN_RULE'
  | 'MISSING_MEMBER'
  | 'WRONG_TYPE'
  | 'WRONG_VALUE'
  | 'TWICE';

/** A policy file that can not be meant. Says where, and what would be right. */
export class PolicyError extends Error {
  readonly code: PolicyErrorCode;
  /** Counted from 1. */
  readonly line: number;
  readonly column: number;
  /** Members that lead there: `invariants.rules.0.paths`. */
  readonly at: string;
  /** What would be right. */
  readonly wanted: string;

  constructor(
    code: PolicyErrorCode,
    message: string,
    where: { line: number; column: number; at: string },
    wanted: string,
  ) {
    super(`line ${where.line}, column ${where.column}: ${message}; ${wanted}`);
    this.name = 'PolicyError';
    this.code = code;
    this.line = where.line;
    this.column = where.column;
    this.at = where.at;
    this.wanted = wanted;
  }
}
