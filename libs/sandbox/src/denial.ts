/** What the boundary refused, and how well it could be said. */

/**
 * `named`: the kernel's own verdict with operation and path or address; `class`: the seccomp filter refused it, so only
 * the kind of call is known; `unnamed`: something was refused and nobody was there to see what.
 */
export type Naming = 'named' | 'class' | 'unnamed';

/** What was attempted. `other` is a system call that stands for itself. */
export type Operation =
  | 'read'
  | 'write'
  | 'create'
  | 'delete'
  | 'rename'
  | 'link'
  | 'metadata'
  | 'mount'
  | 'execute'
  | 'connect'
  | 'send'
  | 'bind'
  | 'socket'
  | 'process'
  | 'kernel'
  | 'other';

/** One refused attempt. A fact about the boundary, not a fault of whoever attempted it. */
export interface Denial {
  readonly operation: Operation;
  /** The system call, or the class of calls that the filter knows it by. */
  readonly syscall: string;
  /** As the kernel would have resolved it, where that could still be said afterwards; else as it was passed. */
  readonly path?: string | undefined;
  /** Where `path` was made absolute or followed links: as it was passed. */
  readonly passed?: string | undefined;
  /** `10.0.0.1:443`, `[::1]:53`, `unix:/run/docker.sock`, `unix:@abstract`. */
  readonly address?: string | undefined;
  /** `EROFS`, `EACCES`, `ENETUNREACH` ... */
  readonly errno: string;
  /** Process number on the host; undefined where nobody saw it. */
  readonly pid: number | undefined;
  /** Unix time in milliseconds, with a fraction, of the attempt. */
  readonly time: number;
  readonly naming: Naming;
  /**
   * What refused: `file-system`, `hidden`, `network`, `privilege`, or a class of the filter (`io_uring`, `keyring` ...).
   */
  readonly class: string;
  /** How many attempts that differ in nothing else, one right after the other, this stands for. */
  readonly count: number;
}
