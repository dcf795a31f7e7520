/** Why a line was refused. Stable: clients and operators match on these words. */
export type EnvelopeErrorCode =
  | 'too_long'
  | 'too_many_lines'
  | 'byte_order_mark'
  | 'invalid_utf8'
  | 'carriage_return'
  | 'invalid_json'
  | 'not_an_object'
  | 'duplicate_key'
  | 'unknown_field'
  | 'missing_field'
  | 'bad_value'
  | 'unknown_kind'
  | 'not_canonical'
  | 'mismatch';

/**
 * A line, entry or body that is not what FORMAT.md allows. `field` is a dotted path (`attrs.size`) or empty when
 * the line as a whole is at fault; `message` says what would be right and never repeats the refused value.
 */
export class EnvelopeError extends Error {
  readonly code: EnvelopeErrorCode;
  readonly field: string;

  constructor(code: EnvelopeErrorCode, field: string, message: string) {
    super(message);
    this.name = 'EnvelopeError';
    this.code = code;
    this.field = field;
  }
}
