/** Why a sandbox can't be had as it was asked for. Nothing is ever started with less than that. */
export type SandboxErrorCode =
  /** A policy file that is none: see `line`. */
  | 'POLICY_INVALID'
  /** A policy that contradicts itself or names what may not be named (`/` as a root, a relative path). */
  | 'POLICY_REFUSED'
  /** The back end asked for is not on this machine, or its kernel does not let us use it. */
  | 'BACKEND_UNAVAILABLE'
  /** The back end is there and can't do this: `ports` under Landlock, binds under Seatbelt. */
  | 'NOT_SUPPORTED'
  /** The program to run is nowhere inside the boundary. */
  | 'PROGRAM_UNREACHABLE';

export class SandboxError extends Error {
  readonly code: SandboxErrorCode;
  /** Line of the policy file, from 1. */
  readonly line: number | undefined;
  /** One sentence that gets the reader further. */
  readonly next: string | undefined;

  constructor(
    code: SandboxErrorCode,
    message: string,
    more: { readonly line?: number | undefined; readonly next?: string | undefined } = {},
  ) {
    super(message);
    this.name = 'SandboxError';
    this.code = code;
    this.line = more.line;
    this.next = more.next;
  }
}
