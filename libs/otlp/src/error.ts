/**
 * `undecodable`: the body is not what its content type says; sending it again can't help. `too_much`: it is, and holds
 * more than is taken in one request.
 */
export type OtlpErrorCode = 'undecodable' | 'too_much';

/** The request as a whole was not taken; nothing of it has been used. */
export class OtlpError extends Error {
  readonly code: OtlpErrorCode;

  constructor(code: OtlpErrorCode, message: string) {
    super(message);
    this.name = 'OtlpError';
    this.code = code;
  }
}

/** Why one span or log record is not taken while its neighbours are. */
export type RefusalReason =
  /** A trace or span id that is missing, zero, of another length or not hexadecimal. */
  | 'invalid_id'
  /** Text that is not Unicode: invalid UTF-8, or half of a surrogate pair. */
  | 'invalid_text'
  /** Attribute values nested deeper than is taken. */
  | 'too_deep'
  /** Of an agent's run, and larger than is kept. */
  | 'too_large';

/** Thrown while one item is decoded, and caught where its list is. */
export class ItemFault extends Error {
  readonly reason: RefusalReason;

  constructor(reason: RefusalReason) {
    super(reason);
    this.name = 'ItemFault';
    this.reason = reason;
  }
}
