import type { CollectorFault, LineRefusal, Outcome } from '@belay/contracts';
import type { Problem, ProblemCode } from '@belay/contracts/http';

/** The one place where a problem gets an HTTP status. */
const STATUS: Readonly<Record<ProblemCode, number>> = {
  invalid: 400,
  invalid_json: 400,
  empty: 400,
  unauthenticated: 401,
  token_revoked: 401,
  token_expired: 401,
  forbidden: 403,
  sink_not_allowed: 403,
  signature_required: 403,
  signature_invalid: 403,
  not_found: 404,
  method_not_allowed: 405,
  not_acceptable: 406,
  request_timeout: 408,
  exists: 409,
  too_many: 409,
  head_ahead: 409,
  not_published: 409,
  gone: 410,
  body_too_large: 413,
  too_many_lines: 413,
  range_too_large: 413,
  unsupported_media_type: 415,
  unsupported_encoding: 415,
  range_not_satisfiable: 416,
  no_valid_line: 422,
  rate_limited: 429,
  headers_too_large: 431,
  internal: 500,
  overloaded: 503,
  unavailable: 503,
  shutting_down: 503,
  log_halted: 503,
};

const TITLE: Readonly<Record<number, string>> = {
  400: 'Bad request',
  401: 'Not authenticated',
  403: 'Not allowed',
  404: 'Not found',
  405: 'Method not allowed',
  406: 'Not acceptable',
  408: 'Request timeout',
  409: 'Conflict',
  410: 'Gone',
  413: 'Too large',
  415: 'Unsupported media type',
  416: 'Range not satisfiable',
  422: 'Nothing to process',
  429: 'Too many requests',
  431: 'Header fields too large',
  500: 'Internal error',
  503: 'Unavailable',
};

export const PROBLEM_TYPE = 'application/problem+json';

interface ProblemExtras {
  readonly field?: string | undefined;
  readonly refused?: readonly LineRefusal[] | undefined;
  /** Seconds; becomes `Retry-After`. */
  readonly retryAfter?: number | undefined;
  /** Methods that there are; becomes `Allow`. */
  readonly allow?: readonly string[] | undefined;
  /** How long the file is; becomes `Content-Range`. */
  readonly contentRange?: string | undefined;
}

/** Anything the gateway answers that is not what was asked for. */
export class ProblemError extends Error {
  readonly code: ProblemCode;
  readonly extras: ProblemExtras;

  constructor(code: ProblemCode, detail: string, extras: ProblemExtras = {}) {
    super(detail);
    this.name = 'ProblemError';
    this.code = code;
    this.extras = extras;
  }

  get status(): number {
    return STATUS[this.code];
  }

  headers(): Record<string, string> {
    return {
      ...(this.extras.retryAfter !== undefined && {
        'retry-after': String(Math.ceil(this.extras.retryAfter)),
      }),
      ...(this.extras.allow && { allow: this.extras.allow.join(', ') }),
      ...(this.extras.contentRange !== undefined && { 'content-range': this.extras.contentRange }),
      ...(this.status === 401 && { 'www-authenticate': 'Bearer realm="belay"' }),
      'cache-control': 'no-store',
    };
  }

  body(): Problem {
    const { field, refused } = this.extras;
    return {
      type: `urn:belay:problem:${this.code}`,
      title: TITLE[this.status] ?? 'Problem',
      status: this.status,
      code: this.code,
      detail: this.message,
      ...(field && { field }),
      ...(refused && { refused: [...refused] }),
    };
  }
}

/**
 * What does not exist and what belongs to somebody else are one answer, byte for byte, and callers get here by the
 * same steps for both.
 */
export function notFound(): ProblemError {
  return new ProblemError('not_found', 'There is nothing here, or nothing that this credential may see.');
}

/** A collector's fault as the caller sees it. */
function fromFault(fault: CollectorFault): ProblemError {
  if (fault.kind === 'refused' && fault.code === 'not_found') return notFound();
  // Why the collector could not be had is for our log; the caller is to try again.
  if (fault.kind === 'retry') {
    return new ProblemError(
      fault.code,
      'The collector can not answer now; nothing is lost by sending this again.',
      {
        retryAfter: fault.retryAfter,
      },
    );
  }
  return new ProblemError(fault.code, fault.message, {
    ...('field' in fault && { field: fault.field }),
    ...('retryAfter' in fault && { retryAfter: fault.retryAfter }),
  });
}

/** The value of an outcome; its fault is thrown as the problem it is. */
export function valueOf<T>(outcome: Outcome<T>): T {
  if (outcome.ok) return outcome.value;
  throw fromFault(outcome.fault);
}
