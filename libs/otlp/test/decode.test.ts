import { canonical } from '@belay/envelope';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  DECODE_LIMITS,
  type Decoded,
  decodeRequest,
  encodeAnswer,
  encodeStatus,
  OtlpError,
  Refused,
} from '../src/index.js';
import { bytes, field, groups, toJson, toProtobuf, varint } from './requests.js';

const TRACE = '5b8efff798038103d269b633813fc60c';
const SPAN = 'eee19b7ec3c1b174';

function decode(
  encoding: 'json' | 'protobuf',
  body: Uint8Array | string,
  signal: 'traces' | 'logs' = 'traces',
) {
  return decodeRequest(signal, encoding, Buffer.from(body as string));
}

const request = (span: object): string =>
  JSON.stringify({
    resourceSpans: [{ scopeSpans: [{ spans: [{ traceId: TRACE, spanId: SPAN, ...span }] }] }],
  });

const spanOf = (body: string): Decoded | Refused =>
  decode('json', body).emitters[0]?.items[0] as Decoded | Refused;

const attribute = (value: string): string =>
  request({ attributes: [{ key: 'k', value: '@' }] }).replace('"@"', value);
const valueOf = (value: string): unknown => {
  const span = spanOf(attribute(value)) as { attributes: { value: unknown }[] };
  return span.attributes[0]?.value;
};

describe('both encodings', () => {
  it('of the same spans decode to the same', () => {
    fc.assert(
      fc.property(groups, (models) => {
        const json = decode('json', toJson(models));
        const protobuf = decode('protobuf', toProtobuf(models));
        expect(JSON.parse(JSON.stringify(json))).toEqual(JSON.parse(JSON.stringify(protobuf)));
        for (const { items } of json.emitters) {
          for (const item of items) if (!(item instanceof Refused)) canonical(item);
        }
      }),
      { numRuns: 300 },
    );
  });

  it('what was decoded is OTLP/JSON and decodes to itself', () => {
    fc.assert(
      fc.property(groups, (models) => {
        const { emitters } = decode('protobuf', toProtobuf(models));
        const again = {
          resourceSpans: emitters.map(({ resource, scope, items }) => ({
            ...resource,
            scopeSpans: [{ ...scope, spans: items.filter((item) => !(item instanceof Refused)) }],
          })),
        };
        const twice = decode('json', JSON.stringify(again)).emitters;
        expect(twice.map(({ items }) => items.map((item) => canonical(item)))).toEqual(
          emitters.map(({ items }) =>
            items.filter((item) => !(item instanceof Refused)).map((item) => canonical(item)),
          ),
        );
      }),
    );
  });

  it('an empty request is one', () => {
    expect(decode('json', '{}').emitters).toEqual([]);
    expect(decode('protobuf', '').emitters).toEqual([]);
  });
});

describe('OTLP/JSON', () => {
  it('keeps all digits of 64-bit integers, as text or as number', () => {
    expect(valueOf('{"intValue":"9223372036854775807"}')).toEqual({ intValue: '9223372036854775807' });
    expect(valueOf('{"intValue":9223372036854775807}')).toEqual({ intValue: '9223372036854775807' });
    expect(valueOf('{"intValue":-9223372036854775808}')).toEqual({ intValue: '-9223372036854775808' });
    expect(valueOf('{"intValue":1e3}')).toEqual({ intValue: '1000' });
  });

  it('reads ids in hexadecimal of either case, never as base64', () => {
    expect(spanOf(request({ traceId: TRACE.toUpperCase() }))).toMatchObject({ traceId: TRACE });
    expect(spanOf(request({ traceId: 'W47/95gDgQPSabYzgT/GDA==' }))).toEqual(new Refused('invalid_id'));
  });

  it('ignores names it does not know, and the snake_case ones', () => {
    expect(spanOf(request({ span_name: 1, name: 'a', start_time_unix_nano: {} }))).toEqual({
      traceId: TRACE,
      spanId: SPAN,
      name: 'a',
    });
  });

  it.each([
    ['an enum by name', request({ kind: 'SPAN_KIND_CLIENT' })],
    ['an enum in quotes', request({ kind: '3' })],
    ['an integer past its type', attribute('{"intValue":"9223372036854775808"}')],
    ['a negative time', request({ startTimeUnixNano: '-1' })],
    ['a fraction for an integer', attribute('{"intValue":1.5}')],
    ['a number for text', request({ name: 5 })],
    ['an infinite number', attribute('{"doubleValue":1e999}')],
    ['a list for a message', request({ status: [] })],
    ['a comma too many', '{"resourceSpans":[],}'],
    ['two documents', '{}{}'],
    ['an open string', '{"a":"'],
    ['a control character', '{"a":"\u0001"}'],
    ['a bad escape in what is read', request({ name: '@' }).replace('"@"', '"\\x"')],
    ['brackets without end in what is skipped', `{"a":${'['.repeat(100_000)}`],
    ['mismatched brackets', '{"a":[}'],
    ['an array at the top', '[]'],
    ['nothing', ''],
  ])('refuses %s', (_title, body) => {
    expect(() => decode('json', body)).toThrow(OtlpError);
  });

  it('refuses bytes that are not UTF-8', () => {
    expect(() => decode('json', Buffer.from([0x7b, 0xff, 0x7d]))).toThrow(OtlpError);
  });
});

describe('a fault of one span', () => {
  const deep = (levels: number): string => {
    let value = '{"stringValue":"x"}';
    for (let level = 0; level < levels; level++) value = `{"arrayValue":{"values":[${value}]}}`;
    return value;
  };

  it.each([
    ['invalid_text', request({ name: '\ud800' })],
    ['invalid_id', request({ spanId: '0000000000000000' })],
    ['invalid_id', request({ traceId: 'abcd' })],
    ['invalid_id', request({ parentSpanId: 'abcd' })],
    ['too_deep', attribute(deep(32))],
  ])('%s: refuses it and no other', (reason, body) => {
    const good = request({ name: 'good' }).slice('{"resourceSpans":['.length, -2);
    const both = `${body.slice(0, -2)},${good}]}`;
    const items = decode('json', both).emitters.flatMap((emitter) => emitter.items);
    expect(items).toEqual([new Refused(reason as never), { traceId: TRACE, spanId: SPAN, name: 'good' }]);
  });

  it('of a protobuf span too', () => {
    const ids = [bytes(1, Buffer.from(TRACE, 'hex')), bytes(2, Buffer.from(SPAN, 'hex'))];
    const bad = Buffer.concat([...ids, bytes(5, Buffer.from([0xc0, 0x80])), bytes(5, 'later')]);
    const good = Buffer.concat(ids);
    const body = bytes(1, bytes(2, Buffer.concat([bytes(2, bad), bytes(2, good)])));
    expect(decode('protobuf', body).emitters[0]?.items).toEqual([
      new Refused('invalid_text'),
      { traceId: TRACE, spanId: SPAN },
    ]);
  });

  it('a resource that is not text refuses the request', () => {
    const body = bytes(1, bytes(1, bytes(1, bytes(1, Buffer.from([0xff])))));
    expect(() => decode('protobuf', body)).toThrow(/resource or scope/);
  });
});

describe('hostile bytes', () => {
  const survives = (run: () => unknown): void => {
    try {
      run();
    } catch (error) {
      expect(error).toBeInstanceOf(OtlpError);
    }
  };

  it('random ones decode or are refused', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (body) => {
        for (const signal of ['traces', 'logs'] as const) {
          for (const encoding of ['json', 'protobuf'] as const) {
            survives(() => decode(encoding, Buffer.from(body), signal));
          }
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it('requests with changed, cut and doubled bytes decode or are refused', () => {
    fc.assert(
      fc.property(groups, fc.nat(), fc.nat(), fc.nat(255), (models, at, length, byte) => {
        for (const [encoding, whole] of [
          ['json', toJson(models)],
          ['protobuf', toProtobuf(models)],
        ] as const) {
          const position = at % (whole.length + 1);
          const changed = Buffer.from(whole);
          if (position < changed.length) changed[position] = byte;
          const doubled = whole.subarray(position, position + (length % 64));
          survives(() => decode(encoding, changed));
          survives(() => decode(encoding, whole.subarray(0, position)));
          survives(() =>
            decode(encoding, Buffer.concat([whole.subarray(0, position), doubled, whole.subarray(position)])),
          );
        }
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['a length past the end', Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f])],
    ['a length of 2^64', Buffer.concat([Buffer.from([0x0a]), varint(2n ** 64n - 1n)])],
    ['an integer of eleven bytes', Buffer.concat([Buffer.from([0x08]), Buffer.alloc(11, 0xff)])],
    ['field 0', Buffer.from([0x00, 0x00])],
    ['wire type 7', Buffer.from([0x0f])],
    ['a group that does not end', field(9, 3)],
    ['a group that ends unopened', field(9, 4)],
    ['groups without end', Buffer.alloc(100_000, 0x4b)],
  ])('%s is undecodable', (_title, body) => {
    expect(() => decode('protobuf', body)).toThrow(OtlpError);
  });

  it('counts objects before it makes them', () => {
    const limits = { items: 3, messages: 100, depth: 32 };
    const many = bytes(1, bytes(2, bytes(2, Buffer.concat(Array.from({ length: 99 }, () => bytes(9, ''))))));
    const spans = bytes(1, bytes(2, Buffer.concat(Array.from({ length: 4 }, () => bytes(2, '')))));
    for (const body of [many, spans]) {
      expect(() => decodeRequest('traces', 'protobuf', body, limits)).toThrow(
        expect.objectContaining({ code: 'too_much' }) as Error,
      );
    }
    const empty = `{"resourceSpans":[${'{},'.repeat(100)}{}]}`;
    expect(() => decodeRequest('traces', 'json', Buffer.from(empty), limits)).toThrow(/more than 100/);
  });

  it('16 MiB that would be millions of objects cost no more than the limit', () => {
    const size = 16 * 1024 * 1024;
    const protobuf = Buffer.alloc(size);
    for (let at = 0; at < size; at += 2) protobuf[at] = 0x0a;
    const json = Buffer.from(`{"resourceSpans":[${'{},'.repeat(size / 3 - 20)}{}]}`);
    const skipped = Buffer.from(`{"zz":[${'{},'.repeat(size / 3 - 20)}{}]}`);
    const before = process.memoryUsage().heapUsed;
    expect(() => decode('protobuf', protobuf)).toThrow(/more than/);
    expect(() => decode('json', json)).toThrow(/more than/);
    expect(decode('json', skipped).emitters).toEqual([]);
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(400 * 1024 * 1024);
    expect(DECODE_LIMITS.messages).toBe(500_000);
  });
});

describe('answers', () => {
  it('say nothing when everything was taken', () => {
    expect(encodeAnswer('protobuf', 'traces', undefined)).toHaveLength(0);
    expect(encodeAnswer('json', 'logs', undefined).toString()).toBe('{}');
  });

  it('name the number of refused items, a 64-bit integer', () => {
    const refused = { rejected: 300, message: 'no' };
    expect(JSON.parse(encodeAnswer('json', 'traces', refused).toString())).toEqual({
      partialSuccess: { rejectedSpans: '300', errorMessage: 'no' },
    });
    expect(JSON.parse(encodeAnswer('json', 'logs', refused).toString())).toHaveProperty(
      'partialSuccess.rejectedLogRecords',
      '300',
    );
    expect(encodeAnswer('protobuf', 'traces', refused).toString('hex')).toBe('0a0708ac0212026e6f');
  });

  it('are a google.rpc.Status when nothing was', () => {
    expect(JSON.parse(encodeStatus('json', 3, 'why').toString())).toEqual({ code: 3, message: 'why' });
    expect(encodeStatus('protobuf', 3, 'why').toString('hex')).toBe('08031203776879');
  });
});
