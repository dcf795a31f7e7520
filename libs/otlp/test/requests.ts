/** Export requests made at random, and written down in both encodings by a hand of their own. */

import fc from 'fast-check';

export type Any =
  | { readonly stringValue: string }
  | { readonly boolValue: boolean }
  | { readonly intValue: bigint }
  | { readonly doubleValue: number }
  | { readonly bytesValue: Buffer }
  | { readonly arrayValue: readonly Any[] }
  | { readonly kvlistValue: readonly Pair[] };
export type Pair = readonly [string, Any | undefined];

export interface SpanModel {
  readonly traceId: Buffer;
  readonly spanId: Buffer;
  readonly parentSpanId: Buffer;
  readonly name: string;
  readonly kind: number;
  readonly start: bigint;
  readonly end: bigint;
  readonly attributes: readonly Pair[];
  readonly dropped: number;
  readonly events: readonly {
    readonly time: bigint;
    readonly name: string;
    readonly attributes: readonly Pair[];
  }[];
  readonly links: readonly { readonly traceId: Buffer; readonly spanId: Buffer }[];
  readonly status: { readonly message: string; readonly code: number } | undefined;
  readonly flags: number;
}

export interface GroupModel {
  readonly resource: readonly Pair[] | undefined;
  readonly scope: { readonly name: string; readonly version: string } | undefined;
  readonly schemaUrl: string;
  readonly spans: readonly SpanModel[];
}

const text = fc.string({ unit: 'grapheme', maxLength: 12 });
const any: fc.Arbitrary<Any> = fc.letrec<{ any: Any }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 3, depthSize: 'small' },
    fc.record({ stringValue: text }),
    fc.record({ boolValue: fc.boolean() }),
    fc.record({ intValue: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }) }),
    fc.record({ doubleValue: fc.double() }),
    fc.record({ bytesValue: fc.uint8Array({ maxLength: 6 }).map((bytes) => Buffer.from(bytes)) }),
    fc.record({ arrayValue: fc.array(tie('any'), { maxLength: 3 }) }),
    fc.record({
      kvlistValue: fc.array(fc.tuple(text, tie('any')), { maxLength: 3 }) as fc.Arbitrary<Pair[]>,
    }),
  ),
})).any;

const known: fc.Arbitrary<Pair> = fc.oneof(
  fc.tuple(
    fc.constantFrom('gen_ai.operation.name', 'mcp.method.name', 'gen_ai.provider.name'),
    fc.record({ stringValue: fc.constantFrom('execute_tool', 'chat', 'tools/call', 'openai', 'made up') }),
  ),
  fc.tuple(
    fc.constantFrom('gen_ai.tool.name', 'gen_ai.tool.call.id', 'gen_ai.conversation.id', 'error.type'),
    fc.record({ stringValue: fc.constantFrom('add', 'mcp__files__add', '-32601', 'two words', '') }),
  ),
  fc.tuple(
    fc.constantFrom('gen_ai.tool.call.arguments', 'gen_ai.tool.call.result'),
    fc.oneof(any, fc.record({ stringValue: fc.json({ maxDepth: 2 }) })),
  ),
  fc.tuple(
    fc.constant('gen_ai.usage.input_tokens'),
    fc.record({ intValue: fc.bigInt({ min: 0n, max: 2n ** 60n }) }),
  ),
);
const pairs = fc.array(fc.oneof(known, fc.tuple(text, fc.option(any, { nil: undefined }))), { maxLength: 6 });
const id = (size: number): fc.Arbitrary<Buffer> =>
  fc
    .oneof(
      fc.uint8Array({ minLength: size, maxLength: size }),
      fc.constantFrom(1, 2, 3).map((n) => new Uint8Array(size).fill(n)),
    )
    .map((bytes) => Buffer.from(bytes));
const time = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });

const span: fc.Arbitrary<SpanModel> = fc.record({
  traceId: fc.oneof({ weight: 9, arbitrary: id(16) }, { weight: 1, arbitrary: id(3) }),
  spanId: id(8),
  parentSpanId: fc.oneof(id(8), fc.constant(Buffer.alloc(0))),
  name: text,
  kind: fc.integer({ min: 0, max: 6 }),
  start: time,
  end: time,
  attributes: pairs,
  dropped: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  events: fc.array(fc.record({ time, name: text, attributes: pairs }), { maxLength: 2 }),
  links: fc.array(fc.record({ traceId: id(16), spanId: id(8) }), { maxLength: 2 }),
  status: fc.option(fc.record({ message: text, code: fc.constantFrom(0, 1, 2) }), { nil: undefined }),
  flags: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
});

export const groups: fc.Arbitrary<readonly GroupModel[]> = fc.array(
  fc.record({
    resource: fc.option(pairs, { nil: undefined }),
    scope: fc.option(fc.record({ name: text, version: text }), { nil: undefined }),
    schemaUrl: text,
    spans: fc.array(span, { maxLength: 4 }),
  }),
  { maxLength: 3 },
);

// JSON. Integers of 64 bits in either of the ways that are allowed, names that nobody knows in between.

const unknownMember = { zz_unknown: [{ 'a"b': [1e300, null, '\\"}'] }, {}] } as unknown;
function jsonAny(value: Any): unknown {
  if ('intValue' in value) {
    // As a number when a number can hold it, else as text.
    const { intValue } = value;
    return { intValue: Number.isSafeInteger(Number(intValue)) ? Number(intValue) : String(intValue) };
  }
  if ('doubleValue' in value) {
    const { doubleValue } = value;
    return { doubleValue: Number.isFinite(doubleValue) ? doubleValue : String(doubleValue) };
  }
  if ('bytesValue' in value) return { bytesValue: value.bytesValue.toString('base64') };
  if ('arrayValue' in value) return { arrayValue: { values: value.arrayValue.map(jsonAny) } };
  if ('kvlistValue' in value) return { kvlistValue: { values: value.kvlistValue.map(jsonPair) } };
  return value;
}

const jsonPair = ([key, value]: Pair): unknown => ({
  key,
  ...(value === undefined ? { value: null } : { value: jsonAny(value) }),
});

const jsonSpan = (model: SpanModel): unknown => ({
  droppedAttributesCount: model.dropped,
  name: model.name,
  traceId: model.traceId.toString('hex').toUpperCase(),
  spanId: model.spanId.toString('hex'),
  parentSpanId: model.parentSpanId.toString('hex'),
  unknown: unknownMember,
  kind: model.kind,
  startTimeUnixNano: String(model.start),
  endTimeUnixNano: String(model.end),
  attributes: model.attributes.map(jsonPair),
  events: model.events.map(({ time: at, name, attributes }) => ({
    timeUnixNano: String(at),
    name,
    attributes: attributes.map(jsonPair),
  })),
  links: model.links.map((link) => ({
    traceId: link.traceId.toString('hex'),
    spanId: link.spanId.toString('hex'),
  })),
  ...(model.status === undefined ? { status: null } : { status: model.status }),
  flags: model.flags,
});

export const toJson = (models: readonly GroupModel[]): Buffer =>
  Buffer.from(
    JSON.stringify({
      unknownMember,
      resourceSpans: models.map(({ resource, scope, schemaUrl, spans }) => ({
        scopeSpans: [{ spans: spans.map(jsonSpan), scope, schemaUrl }],
        ...(resource === undefined ? {} : { resource: { attributes: resource.map(jsonPair) } }),
      })),
    }),
  );

// Protobuf, field numbers as in the .proto files of OTLP 1.x.

export function varint(value: bigint): Buffer {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, value);
  for (; rest >= 128n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return Buffer.from([...bytes, Number(rest)]);
}
export const field = (number: number, wire: number, ...payload: readonly Buffer[]): Buffer =>
  Buffer.concat([varint(BigInt(number * 8 + wire)), ...payload]);
export const bytes = (number: number, payload: Uint8Array | string): Buffer => {
  const content = Buffer.from(payload as string);
  return field(number, 2, varint(BigInt(content.length)), content);
};
const integer = (number: number, value: bigint | number): Buffer => field(number, 0, varint(BigInt(value)));
const fixed64 = (number: number, value: bigint): Buffer => {
  const content = Buffer.alloc(8);
  content.writeBigUInt64LE(value);
  return field(number, 1, content);
};
const fixed32 = (number: number, value: number): Buffer => {
  const content = Buffer.alloc(4);
  content.writeUInt32LE(value);
  return field(number, 5, content);
};
/** Field 1000 in every wire type there is, a group inside a group included. */
const unknownFields = Buffer.concat([
  integer(1000, 7),
  fixed64(1000, 1n),
  bytes(1000, 'nobody knows'),
  field(1000, 3, field(7, 3, integer(1, 1), field(7, 4)), field(1000, 4)),
  fixed32(1000, 3),
]);

function protoAny(value: Any): Buffer {
  if ('stringValue' in value) return bytes(1, value.stringValue);
  if ('boolValue' in value) return integer(2, value.boolValue ? 1 : 0);
  if ('intValue' in value) return integer(3, value.intValue);
  if ('doubleValue' in value) {
    const content = Buffer.alloc(8);
    content.writeDoubleLE(value.doubleValue);
    return field(4, 1, content);
  }
  if ('bytesValue' in value) return bytes(7, value.bytesValue);
  if ('arrayValue' in value) {
    return bytes(5, Buffer.concat(value.arrayValue.map((each) => bytes(1, protoAny(each)))));
  }
  return bytes(6, Buffer.concat(value.kvlistValue.map((each) => bytes(1, protoPair(each)))));
}

const protoPair = ([key, value]: Pair): Buffer =>
  Buffer.concat([bytes(1, key), value === undefined ? Buffer.alloc(0) : bytes(2, protoAny(value))]);

export const protoSpan = (model: SpanModel): Buffer =>
  Buffer.concat([
    bytes(1, model.traceId),
    bytes(2, model.spanId),
    bytes(4, model.parentSpanId),
    bytes(5, model.name),
    unknownFields,
    integer(6, model.kind),
    fixed64(7, model.start),
    fixed64(8, model.end),
    ...model.attributes.map((each) => bytes(9, protoPair(each))),
    integer(10, model.dropped),
    ...model.events.map(({ time: at, name, attributes }) =>
      bytes(
        11,
        Buffer.concat([
          fixed64(1, at),
          bytes(2, name),
          ...attributes.map((each) => bytes(3, protoPair(each))),
        ]),
      ),
    ),
    ...model.links.map((link) => bytes(13, Buffer.concat([bytes(1, link.traceId), bytes(2, link.spanId)]))),
    model.status === undefined
      ? Buffer.alloc(0)
      : bytes(15, Buffer.concat([bytes(2, model.status.message), integer(3, model.status.code)])),
    fixed32(16, model.flags),
  ]);

export const toProtobuf = (models: readonly GroupModel[]): Buffer =>
  Buffer.concat(
    models.map(({ resource, scope, schemaUrl, spans }) =>
      bytes(
        1,
        Buffer.concat([
          resource === undefined
            ? Buffer.alloc(0)
            : bytes(1, Buffer.concat(resource.map((each) => bytes(1, protoPair(each))))),
          bytes(
            2,
            Buffer.concat([
              unknownFields,
              ...spans.map((each) => bytes(2, protoSpan(each))),
              scope === undefined
                ? Buffer.alloc(0)
                : bytes(1, Buffer.concat([bytes(1, scope.name), bytes(2, scope.version)])),
              bytes(3, schemaUrl),
            ]),
          ),
        ]),
      ),
    ),
  );
