/**
 * OpenTelemetry's protocol, as far as an agent's run is told in it: export requests in protobuf and JSON, decoded
 * within limits, and what their spans and log records become as envelopes. Pure. FORMAT.md beside this package has
 * the rules.
 */
export { encodeAnswer, encodeStatus, RPC_CODE, type Refusals } from './answer.js';
export { DECODE_LIMITS, type Decoded, type DecodeLimits, Refused } from './build.js';
export { OtlpError, type OtlpErrorCode, type RefusalReason } from './error.js';
export {
  type ItemCounts,
  type Mapped,
  type MapperParts,
  type SpanEnvelope,
  SpanMapper,
  type Statement,
} from './mapper.js';
export {
  decodeRequest,
  type Emitter,
  type OtlpEncoding,
  type OtlpRequest,
  type OtlpSignal,
} from './request.js';
