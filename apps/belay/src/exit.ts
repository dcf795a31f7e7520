/** Exit codes of every command. 1 and 2 are answers, not failures: the thing checked is bad, or can't be decided. */
export const EXIT = {
  good: 0,
  bad: 1,
  undecided: 2,
  usage: 64,
  badInput: 65,
  unavailable: 69,
  internal: 70,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** A failure told to a person: what is wrong, and what to do next. Shown without a stack trace. */
export class CliError extends Error {
  readonly exit: ExitCode;
  /** Stable word for scripts, shown by `--json`. */
  readonly code: string;
  /** One sentence or command that gets the reader further. */
  readonly next: string | undefined;

  constructor(exit: ExitCode, code: string, message: string, next?: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'CliError';
    this.exit = exit;
    this.code = code;
    this.next = next;
  }
}

export const usage = (message: string, next?: string): CliError =>
  new CliError(EXIT.usage, 'usage', message, next);

export const badInput = (code: string, message: string, next?: string, cause?: unknown): CliError =>
  new CliError(EXIT.badInput, code, message, next, cause);

export const unavailable = (code: string, message: string, next?: string, cause?: unknown): CliError =>
  new CliError(EXIT.unavailable, code, message, next, cause);
