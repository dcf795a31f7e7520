import { DECODE_LIMITS, type Decoded, type DecodeLimits, Refused } from './build.js';
import { ItemFault, OtlpError, type RefusalReason } from './error.js';
import { decodeJson } from './json.js';
import { decodeProtobuf } from './protobuf.js';
import { EXPORT_LOGS, EXPORT_TRACES } from './schema.js';

export type OtlpEncoding = 'protobuf' | 'json';
export type OtlpSignal = 'traces' | 'logs';

/** What stands around a span or a log record: who emitted it, told once per group. */
export interface Emitter {
  /** `{resource, schemaUrl}`, without what is not there; the same object for all scopes of one resource. */
  readonly resource: Decoded;
  /** `{schemaUrl, scope}`, likewise. */
  readonly scope: Decoded;
  readonly items: readonly (Decoded | Refused)[];
}

/** A decoded request: its groups in order. */
export interface OtlpRequest {
  readonly signal: OtlpSignal;
  readonly emitters: readonly Emitter[];
}

const SHAPES = {
  traces: { type: EXPORT_TRACES, resources: 'resourceSpans', scopes: 'scopeSpans', items: 'spans' },
  logs: { type: EXPORT_LOGS, resources: 'resourceLogs', scopes: 'scopeLogs', items: 'logRecords' },
} as const;

/**
 * Decodes the body of an export request, decompressed. The whole of it, or it throws OtlpError: then nothing of it may
 * be used. A span or log record with a fault of its own is a `Refused` among its neighbours.
 */
export function decodeRequest(
  signal: OtlpSignal,
  encoding: OtlpEncoding,
  body: Buffer,
  limits: DecodeLimits = DECODE_LIMITS,
): OtlpRequest {
  const shape = SHAPES[signal];
  const decode = encoding === 'json' ? decodeJson : decodeProtobuf;
  let root: Decoded;
  try {
    root = decode(shape.type, body, limits);
  } catch (error) {
    if (!(error instanceof ItemFault)) throw error;
    throw new OtlpError('undecodable', `a resource or scope is not usable: ${error.reason}`);
  }
  const emitters = listOf(root[shape.resources]).flatMap((group) => {
    const resource = present({ resource: group['resource'], schemaUrl: group['schemaUrl'] });
    return listOf(group[shape.scopes]).map((inner) => ({
      resource,
      scope: present({ schemaUrl: inner['schemaUrl'], scope: inner['scope'] }),
      items: ((inner[shape.items] ?? []) as (Decoded | Refused)[]).map((item) => judged(signal, item)),
    }));
  });
  return { signal, emitters };
}

const listOf = (value: unknown): readonly Decoded[] => (value ?? []) as readonly Decoded[];

function present(members: Readonly<Record<string, Decoded[string] | undefined>>): Decoded {
  const kept: Decoded = {};
  for (const [name, value] of Object.entries(members)) if (value !== undefined) kept[name] = value;
  return kept;
}

/** An item without a fault in its text, but whose ids can't be any. */
function judged(signal: OtlpSignal, item: Decoded | Refused): Decoded | Refused {
  if (item instanceof Refused) return item;
  const reason = signal === 'traces' ? faultOfSpan(item) : faultOfLog(item);
  return reason === undefined ? item : new Refused(reason);
}

/** An id of `digits` hexadecimal digits that is not all zeros. */
const isId = (value: unknown, digits: number): boolean =>
  typeof value === 'string' && value.length === digits && /[^0]/.test(value);

function faultOfSpan({ traceId, spanId, parentSpanId }: Decoded): RefusalReason | undefined {
  if (!isId(traceId, 32) || !isId(spanId, 16)) return 'invalid_id';
  const root = parentSpanId === undefined || parentSpanId === '0000000000000000';
  return root || isId(parentSpanId, 16) ? undefined : 'invalid_id';
}

/** A log record need not belong to a span; where it says that it does, it has to say to which. */
function faultOfLog({ traceId, spanId }: Decoded): RefusalReason | undefined {
  const absent = (value: unknown): boolean => value === undefined || /^0*$/.test(value as string);
  return (absent(traceId) || isId(traceId, 32)) && (absent(spanId) || isId(spanId, 16))
    ? undefined
    : 'invalid_id';
}
