import { EnvelopeError, parseEnvelope, splitLines } from '@belay/envelope';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { bytes, parse, sample } from './sample.js';

function refusal(line: Buffer): { code: string; field: string; message: string } {
  try {
    parseEnvelope(line);
  } catch (error) {
    if (error instanceof EnvelopeError)
      return { code: error.code, field: error.field, message: error.message };
    throw error;
  }
  throw new Error('not refused');
}

const H = 'a'.repeat(64);
const ROOT = Buffer.alloc(32, 7).toString('base64');

describe('accepted', () => {
  test('the least a line can hold, as sent by curl', () => {
    expect(parse()).toEqual(sample());
  });

  test('white space, escapes and any order of keys, as received', () => {
    const line = Buffer.from(
      `{ "kind":"x.note", "v":1,\t"seq": 7, "sink":"a", "log":"l", "epoch":"01K6B3YB80041061050R3GG28A", "attrs":{"\\u0061":[1,2][0]}, "time":"2026-01-01T00:00:00Z"}`.replace(
        '[1,2][0]',
        '12',
      ),
    );
    expect(parseEnvelope(line)).toMatchObject({ seq: 7, attrs: { a: 12 } });
  });

  test.each([
    [
      'epoch.open',
      {
        counter: 3,
        prev_epoch: '01K6B3YB80041061050R3GG28A',
        prev_size: 0,
        prev_root: ROOT,
        key: ROOT,
        sink_kind: 'hook',
      },
    ],
    [
      'session.open',
      {
        agent: 'claude-code/2.1',
        server: '@scope/server+x',
        policy: `sha256:${H}`,
        sandbox: 'none',
        network: 'allow',
      },
    ],
    ['call', { tool: 'read_file', bytes: 0, oversize: false, batch: true, tooldef: `hmac-sha256:${H}` }],
    [
      'result',
      {
        tool: `hmac-sha256:${H}`,
        bytes: 9007199254740991,
        ok: true,
        error: 32601,
        error_negative: true,
        ms: 1,
        late: true,
      },
    ],
    ['gap', { first: 3, last: 3, reason: 'overflow', hashes: [ROOT] }],
    ['heartbeat', { size: 0, root: ROOT, dropped: 0, filtered: 0 }],
    ['session.close', { size: 2, root: ROOT, dropped: 0, filtered: 0, calls: 4, exit: 0, signal: 'SIGTERM' }],
    ['x.my-kind_2.a', { anything: 1, goes: false, here: 'name', d: `sha256:${H}` }],
  ])('%s with every attribute of its table', (kind, attrs) => {
    expect(parse({ kind, attrs }).attrs).toEqual(attrs);
  });

  test('2^53 - 2 and a leap day', () => {
    expect(parse({ seq: 9007199254740990, time: '2024-02-29T23:59:59.999999999Z' }).seq).toBe(
      9007199254740990,
    );
  });
});

describe('refused with code and field', () => {
  test.each<[string, string, string]>([
    ['a byte order mark', `\u{feff}${JSON.stringify(sample())}`, 'byte_order_mark '],
    ['a CR at the end', `${JSON.stringify(sample())}\r`, 'carriage_return '],
    ['a CR between tokens', JSON.stringify(sample()).replace(',', ',\r'), 'carriage_return '],
    ['cut JSON', JSON.stringify(sample()).slice(0, -1), 'invalid_json '],
    ['two objects', '{}{}', 'invalid_json '],
    ['an array', '[]', 'not_an_object '],
    ['null', 'null', 'not_an_object '],
    ['a key twice', JSON.stringify(sample()).replace('"v":1', '"v":1,"v":1'), 'duplicate_key v'],
    [
      'a key twice, once escaped',
      JSON.stringify(sample()).replace('"v":1', '"v":1,"\\u0076":1'),
      'duplicate_key v',
    ],
    [
      'a key twice below',
      JSON.stringify(sample({ attrs: { tool: 'a' } })).replace('"tool":"a"', '"tool":"a","tool":"a"'),
      'duplicate_key attrs.tool',
    ],
    ['1.0', JSON.stringify(sample()).replace('"seq":1', '"seq":1.0'), 'bad_value seq'],
    ['1e0', JSON.stringify(sample()).replace('"seq":1', '"seq":1e0'), 'bad_value seq'],
    [
      '-0',
      JSON.stringify(sample({ attrs: { bytes: 0 } })).replace('"bytes":0', '"bytes":-0'),
      'bad_value attrs.bytes',
    ],
    ['2^53', JSON.stringify(sample()).replace('"seq":1', '"seq":9007199254740992'), 'bad_value seq'],
    ['2^53 + 1', JSON.stringify(sample()).replace('"seq":1', '"seq":9007199254740993'), 'bad_value seq'],
    [
      '__proto__',
      JSON.stringify(sample()).replace('"v":1', '"v":1,"__proto__":{}'),
      'unknown_field __proto__',
    ],
  ])('%s', (_, text, expected) => {
    const { code, field } = refusal(Buffer.from(text, 'utf8'));
    expect(`${code} ${field}`).toBe(expected);
  });

  test.each<[string, Record<string, unknown>, string]>([
    ['another version', { v: 2 }, 'bad_value v'],
    ['a version as text', { v: '1' }, 'bad_value v'],
    ['an empty origin', { log: '' }, 'bad_value log'],
    ['an origin with a space', { log: 'a b' }, 'bad_value log'],
    ['an origin that is too long', { log: 'a'.repeat(256) }, 'bad_value log'],
    ['a sink that starts with a dot', { sink: '.x' }, 'bad_value sink'],
    ['a trailing LF in a name', { sink: 'x\n' }, 'bad_value sink'],
    ['an epoch in lower case', { epoch: '01k6b3yb80041061050r3gg28a' }, 'bad_value epoch'],
    ['an epoch past 128 bits', { epoch: '8ZZZZZZZZZZZZZZZZZZZZZZZZZ' }, 'bad_value epoch'],
    ['seq 0', { seq: 0 }, 'bad_value seq'],
    ['seq as text', { seq: '1' }, 'bad_value seq'],
    ['a kind that does not exist', { kind: 'calls' }, 'unknown_kind kind'],
    ['an inherited name as kind', { kind: 'constructor' }, 'unknown_kind kind'],
    ['an empty extension kind', { kind: 'x.' }, 'unknown_kind kind'],
    ['a time with an offset', { time: '2026-01-01T00:00:00+00:00' }, 'bad_value time'],
    ['a 30th of February', { time: '2026-02-30T00:00:00Z' }, 'bad_value time'],
    ['a 29th of February in 2100', { time: '2100-02-29T00:00:00Z' }, 'bad_value time'],
    ['hour 24', { time: '2026-01-01T24:00:00Z' }, 'bad_value time'],
    ['ten fractional digits', { time: '2026-01-01T00:00:00.0123456789Z' }, 'bad_value time'],
    ['a digest in upper case', { digest: `sha256:${H.toUpperCase()}` }, 'bad_value digest'],
    ['a weak match', { match: `weak:hmac-sha256:${H}` }, 'bad_value match'],
    ['free text', { text: 'x' }, 'unknown_field text'],
    ['attrs that is a list', { attrs: [] }, 'bad_value attrs'],
    ['an attribute of another kind', { attrs: { ok: true } }, 'unknown_field attrs.ok'],
    ['an inherited name as attribute', { attrs: { toString: 1 } }, 'unknown_field attrs.toString'],
    ['free text in an attribute', { attrs: { tool: 'two words' } }, 'bad_value attrs.tool'],
    [
      'too many attributes',
      { kind: 'x.a', attrs: Object.fromEntries([...Array(17).keys()].map((i) => [`a${i}`, i])) },
      'bad_value attrs',
    ],
    ['a list in an extension', { kind: 'x.a', attrs: { a: [ROOT] } }, 'bad_value attrs.a'],
    [
      'a base64 with other trailing bits',
      { kind: 'epoch.open', attrs: { key: `${ROOT.slice(0, 42)}d=` } },
      'bad_value attrs.key',
    ],
    ['a gap without attributes', { kind: 'gap' }, 'missing_field attrs.first'],
    [
      'a gap that ends before it begins',
      { kind: 'gap', attrs: { first: 2, last: 1, reason: 'lost' } },
      'bad_value attrs.last',
    ],
    [
      'too many hashes',
      { kind: 'gap', attrs: { first: 1, last: 1, reason: 'lost', hashes: Array(65).fill(ROOT) } },
      'bad_value attrs.hashes',
    ],
    [
      'a heartbeat without root',
      { kind: 'heartbeat', attrs: { size: 1, dropped: 0, filtered: 0 } },
      'missing_field attrs.root',
    ],
  ])('%s', (_, changes, expected) => {
    const { code, field, message } = refusal(bytes(sample(changes)));
    expect(`${code} ${field}`).toBe(expected);
    expect(message).not.toBe('');
  });

  test.each(['v', 'log', 'sink', 'epoch', 'seq', 'kind', 'time'])('%s missing', (field) => {
    const { [field]: _, ...rest } = sample();
    expect(refusal(bytes(rest))).toMatchObject({ code: 'missing_field', field });
  });

  test('4,096 bytes pass, 4,097 do not', () => {
    const line = JSON.stringify(sample());
    const padded = (length: number): Buffer => Buffer.from(line + ' '.repeat(length - line.length));
    expect(parseEnvelope(padded(4096)).seq).toBe(1);
    expect(refusal(padded(4097)).code).toBe('too_long');
  });

  test('invalid UTF-8 wherever it stands', () => {
    const line = bytes(sample());
    fc.assert(
      fc.property(
        fc.nat(line.length),
        fc.constantFrom([0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf0, 0x9f]),
        (at, bad) => {
          const broken = Buffer.concat([line.subarray(0, at), Buffer.from(bad), line.subarray(at)]);
          expect(refusal(broken).code).toBe('invalid_utf8');
        },
      ),
    );
  });

  test('a refusal never repeats what was sent', () => {
    const secret = 'hunter2 hunter2';
    for (const changes of [
      { log: secret },
      { kind: secret },
      { attrs: { tool: secret } },
      { [secret]: 1 },
      { attrs: { [secret]: 1 } },
    ]) {
      expect(JSON.stringify(refusal(bytes(sample(changes))))).not.toContain('hunter2');
    }
  });
});

test('any change of one byte is either refused or read as JSON reads it', () => {
  const line = bytes(sample({ attrs: { tool: 'read_file', bytes: 10 }, digest: `sha256:${H}` }));
  fc.assert(
    fc.property(fc.nat(line.length - 1), fc.nat(255), (at, byte) => {
      const changed = Buffer.from(line);
      changed[at] = byte;
      try {
        expect(parseEnvelope(changed)).toEqual(JSON.parse(changed.toString('utf8')));
      } catch (error) {
        expect(error).toBeInstanceOf(EnvelopeError);
      }
    }),
    { numRuns: 3000 },
  );
});

describe('splitLines', () => {
  test('skips empty lines, needs no last LF, copies nothing', () => {
    const body = Buffer.from('\n\na\nbb\n\nccc');
    expect(splitLines(body).map(String)).toEqual(['a', 'bb', 'ccc']);
    expect(splitLines(body)[0]?.buffer).toBe(body.buffer);
    expect(splitLines(Buffer.alloc(1000, '\n'))).toEqual([]);
  });

  test('stops at the limit', () => {
    expect(splitLines(Buffer.from('a\nb\n'), 2)).toHaveLength(2);
    expect(() => splitLines(Buffer.from('a\nb\nc'), 2)).toThrow(EnvelopeError);
  });
});
