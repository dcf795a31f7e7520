/**
 * The part of the OTLP 1.x messages that is read here. One table serves both encodings, so that they can't differ in
 * what they know: by number for protobuf, by lowerCamelCase name for JSON. A field that is not in the table is ignored
 * in both, as OTLP has it.
 */

/** `hex` is what OTLP does to trace and span ids: bytes in protobuf, hexadecimal text in JSON. */
export type Scalar =
  'string' | 'hex' | 'bytes' | 'bool' | 'double' | 'uint32' | 'fixed32' | 'int64' | 'fixed64' | 'enum';

export interface Field {
  readonly number: number;
  readonly name: string;
  readonly type: Scalar | Message;
  readonly repeated?: true;
  /** One of a group of which the last one that was set counts; a default value is told from none. */
  readonly oneof?: true;
}

/** A field that holds messages. */
export type Embedded = Field & { readonly type: Message };

export const isEmbedded = (field: Field): field is Embedded => typeof field.type !== 'string';

/** One message type. */
export class Message {
  readonly name: string;
  /** A member of a list of spans or log records: refused by itself, counted, limited in number. */
  readonly item: boolean;
  /** A value that can hold others of its type. */
  readonly nests: boolean;
  readonly byNumber = new Map<number, Field>();
  readonly byName = new Map<string, Field>();

  constructor(name: string, traits: { readonly item?: boolean; readonly nests?: boolean } = {}) {
    this.name = name;
    this.item = traits.item === true;
    this.nests = traits.nests === true;
  }

  with(...fields: readonly Field[]): this {
    for (const field of fields) {
      this.byNumber.set(field.number, field);
      this.byName.set(field.name, field);
    }
    return this;
  }
}

const one = (number: number, name: string, type: Scalar | Message): Field => ({ number, name, type });
const many = (number: number, name: string, type: Message): Field => ({
  number,
  name,
  type,
  repeated: true,
});
const either = (number: number, name: string, type: Scalar | Message): Field => ({
  number,
  name,
  type,
  oneof: true,
});

const anyValue = new Message('AnyValue', { nests: true });
const keyValue = new Message('KeyValue').with(one(1, 'key', 'string'), one(2, 'value', anyValue));
anyValue.with(
  either(1, 'stringValue', 'string'),
  either(2, 'boolValue', 'bool'),
  either(3, 'intValue', 'int64'),
  either(4, 'doubleValue', 'double'),
  either(5, 'arrayValue', new Message('ArrayValue').with(many(1, 'values', anyValue))),
  either(6, 'kvlistValue', new Message('KeyValueList').with(many(1, 'values', keyValue))),
  either(7, 'bytesValue', 'bytes'),
);

const resource = new Message('Resource').with(
  many(1, 'attributes', keyValue),
  one(2, 'droppedAttributesCount', 'uint32'),
);
const scope = new Message('InstrumentationScope').with(
  one(1, 'name', 'string'),
  one(2, 'version', 'string'),
  many(3, 'attributes', keyValue),
  one(4, 'droppedAttributesCount', 'uint32'),
);

const span = new Message('Span', { item: true }).with(
  one(1, 'traceId', 'hex'),
  one(2, 'spanId', 'hex'),
  one(3, 'traceState', 'string'),
  one(4, 'parentSpanId', 'hex'),
  one(5, 'name', 'string'),
  one(6, 'kind', 'enum'),
  one(7, 'startTimeUnixNano', 'fixed64'),
  one(8, 'endTimeUnixNano', 'fixed64'),
  many(9, 'attributes', keyValue),
  one(10, 'droppedAttributesCount', 'uint32'),
  many(
    11,
    'events',
    new Message('Event').with(
      one(1, 'timeUnixNano', 'fixed64'),
      one(2, 'name', 'string'),
      many(3, 'attributes', keyValue),
      one(4, 'droppedAttributesCount', 'uint32'),
    ),
  ),
  one(12, 'droppedEventsCount', 'uint32'),
  many(
    13,
    'links',
    new Message('Link').with(
      one(1, 'traceId', 'hex'),
      one(2, 'spanId', 'hex'),
      one(3, 'traceState', 'string'),
      many(4, 'attributes', keyValue),
      one(5, 'droppedAttributesCount', 'uint32'),
      one(6, 'flags', 'fixed32'),
    ),
  ),
  one(14, 'droppedLinksCount', 'uint32'),
  one(15, 'status', new Message('Status').with(one(2, 'message', 'string'), one(3, 'code', 'enum'))),
  one(16, 'flags', 'fixed32'),
);

const logRecord = new Message('LogRecord', { item: true }).with(
  one(1, 'timeUnixNano', 'fixed64'),
  one(2, 'severityNumber', 'enum'),
  one(3, 'severityText', 'string'),
  one(5, 'body', anyValue),
  many(6, 'attributes', keyValue),
  one(7, 'droppedAttributesCount', 'uint32'),
  one(8, 'flags', 'fixed32'),
  one(9, 'traceId', 'hex'),
  one(10, 'spanId', 'hex'),
  one(11, 'observedTimeUnixNano', 'fixed64'),
  one(12, 'eventName', 'string'),
);

const grouped = (what: string, inner: string, items: string, item: Message): Message =>
  new Message(what).with(
    one(1, 'resource', resource),
    many(
      2,
      inner,
      new Message(inner).with(one(1, 'scope', scope), many(2, items, item), one(3, 'schemaUrl', 'string')),
    ),
    one(3, 'schemaUrl', 'string'),
  );

export const EXPORT_TRACES = new Message('ExportTraceServiceRequest').with(
  many(1, 'resourceSpans', grouped('ResourceSpans', 'scopeSpans', 'spans', span)),
);
export const EXPORT_LOGS = new Message('ExportLogsServiceRequest').with(
  many(1, 'resourceLogs', grouped('ResourceLogs', 'scopeLogs', 'logRecords', logRecord)),
);
