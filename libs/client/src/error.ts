/**
 * What the caller does next.
 *
 * `retry`: nothing is known to be wrong; send the same again later. `give_up`: it will not get better by itself; keep
 * the lines and tell a person. `accuse`: the log key signed something it must not have, or the log can't show that it
 * only grew; the evidence is kept and nothing more is sent.
 */
export type ClientAction = 'retry' | 'give_up' | 'accuse';

export type ClientErrorCode =
  // retry
  | 'unreachable'
  | 'timeout'
  | 'busy'
  | 'answer_malformed'
  // give up
  | 'refused'
  | 'redirected'
  | 'wrong_log'
  | 'bad_signature'
  | 'ack_incomplete'
  | 'proof_invalid'
  // accuse
  | 'rolled_back'
  | 'split_view'
  | 'not_consistent';

export interface ClientErrorDetails {
  /** Stable code of the service's problem details, where it sent any. */
  readonly problem?: string | undefined;
  /** Milliseconds that the service asks to wait. */
  readonly retryAfter?: number | undefined;
  /** What an accusation rests on: signed heads, as they were received. */
  readonly evidence?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/** A request that did not end in a verified ack. The message never carries a credential. */
export class ClientError extends Error {
  readonly action: ClientAction;
  readonly code: ClientErrorCode;
  readonly problem: string | undefined;
  readonly retryAfter: number | undefined;
  readonly evidence: Readonly<Record<string, unknown>> | undefined;

  constructor(
    action: ClientAction,
    code: ClientErrorCode,
    message: string,
    details: ClientErrorDetails = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = 'ClientError';
    this.action = action;
    this.code = code;
    this.problem = details.problem;
    this.retryAfter = details.retryAfter;
    this.evidence = details.evidence;
  }
}
