import { createHash, createHmac } from 'node:crypto';
import {
  batchMessage,
  batchRoot,
  callId,
  canonical,
  commitment,
  commitmentSalt,
  isUlid,
  keyFingerprint,
  matchId,
  normalisedTool,
  newUlid,
  sessionId,
  sessionKey,
  SinkTree,
  weakCallId,
} from '@belay/envelope';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

describe('canonical JSON', () => {
  test("RFC 8785's own example", () => {
    const input = JSON.parse(
      '{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/","literals":[null,true,false]}',
    ) as unknown;
    expect(canonical(input)).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    );
  });

  test('members sort by UTF-16 code units (RFC 8785, 3.2.3)', () => {
    const keys = ['\u20ac', '\r', '\ufb33', '1', '\u{1f600}', '\u0080', '\u00f6'];
    const text = canonical(Object.fromEntries(keys.map((key) => [key, 0])));
    expect(Object.keys(JSON.parse(text) as object)).toEqual([
      '1',
      '\r',
      '\u0080',
      '\u00f6',
      '\u20ac',
      '\u{1f600}',
      '\ufb33',
    ]);
  });

  test('does not depend on the order of members, and is stable', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        // What is not well-formed can't be canonical; fast-check makes well-formed strings by default.
        const text = canonical(value);
        expect(canonical(JSON.parse(text))).toBe(text);
      }),
    );
  });

  test('refuses what JSON cannot carry', () => {
    let deep: unknown = 0;
    for (let i = 0; i < 600; i++) deep = [deep];
    for (const value of [Number.NaN, Infinity, '\ud800', { '\udc00': 1 }, () => 0, 1n, deep]) {
      expect(() => canonical(value)).toThrow(TypeError);
    }
  });
});

describe('ULID', () => {
  test('time and randomness in 26 characters, in order of time', () => {
    expect(newUlid(0, new Uint8Array(10))).toBe('0'.repeat(26));
    expect(newUlid(2 ** 48 - 1, new Uint8Array(10).fill(255))).toBe(`7${'Z'.repeat(25)}`);
    fc.assert(
      fc.property(fc.nat(2 ** 48 - 2), fc.uint8Array({ minLength: 10, maxLength: 10 }), (time, random) => {
        const ulid = newUlid(time, random);
        expect(isUlid(ulid)).toBe(true);
        expect(ulid < newUlid(time + 1, new Uint8Array(10))).toBe(true);
      }),
    );
  });

  test.each([
    '',
    '0'.repeat(25),
    '8'.padEnd(26, '0'),
    'i'.padStart(26, '0'),
    'U'.padStart(26, '0'),
    `${'0'.repeat(26)}\n`,
  ])('%j is none', (text) => {
    expect(isUlid(text)).toBe(false);
  });
});

test('commitments of equal content differ by line, and open to salt and content', () => {
  const secret = Buffer.alloc(32, 1);
  const content = Buffer.from('{"jsonrpc":"2.0"}\n');
  const salt = commitmentSalt(secret, 5);
  expect(commitment(salt, content)).toBe(
    `sha256:${createHash('sha256').update(salt).update(content).digest('hex')}`,
  );
  expect(commitment(commitmentSalt(secret, 6), content)).not.toBe(commitment(salt, content));
});

test('identifiers are equal for equal things of one session only', () => {
  const machine = Buffer.alloc(32, 2);
  const key = sessionKey(machine, 's1');
  expect(key).toEqual(createHmac('sha256', machine).update('belay/session/v1\ns1').digest());
  expect(sessionId(machine, 'run 1')).toMatch(/^hmac-sha256:[0-9a-f]{64}$/);
  expect(sessionId(machine, 'run 1')).not.toBe(sessionId(Buffer.alloc(32), 'run 1'));
  expect(matchId(key, { b: 1, a: [2] })).toBe(matchId(key, { a: [2], b: 1 }));
  expect(matchId(key, { a: 1 })).not.toBe(matchId(sessionKey(machine, 's2'), { a: 1 }));
  expect(callId(key, 'toolu_1')).toMatch(/^hmac-sha256:[0-9a-f]{64}$/);
  expect(weakCallId(key, 'read', 1, {})).toMatch(/^weak:hmac-sha256:[0-9a-f]{64}$/);
  expect(weakCallId(key, 'read', 1, {})).not.toBe(weakCallId(key, 'read', 2, {}));
});

test("a sink's tree goes on from its kept state", () => {
  fc.assert(
    fc.property(fc.array(fc.string(), { maxLength: 40 }), fc.nat(40), (lines, cut) => {
      const buffers = lines.map((line) => Buffer.from(line));
      const whole = new SinkTree();
      for (const line of buffers) whole.append(line);
      const first = new SinkTree();
      for (const line of buffers.slice(0, cut)) first.append(line);
      const second = new SinkTree(JSON.parse(JSON.stringify(first.state())) as ReturnType<SinkTree['state']>);
      for (const line of buffers.slice(cut)) second.append(line);
      expect(second.stated()).toEqual(whole.stated());
      expect(whole.stated()).toEqual({ size: lines.length, root: batchRoot(buffers).toString('base64') });
    }),
  );
});

test('a batch message names log, sink, epoch, first line, count and root', () => {
  const root = batchRoot([Buffer.from('a')]);
  const message = batchMessage({ log: 'l', sink: 's', epoch: 'e', firstSeq: 3, count: 1, root });
  expect(message.toString()).toBe(`belay/batch/v1\nl\ns\ne\n3\n1\n${root.toString('base64')}\n`);
  expect(keyFingerprint(Buffer.alloc(32))).toBe(
    createHash('sha256').update(Buffer.alloc(32)).digest('hex').slice(0, 16),
  );
});

test.each([
  ['read_file', 'read_file'],
  ['mcp__files__read_file', 'read_file'],
  ['mcp__files__read__file', 'read__file'],
  ['mcp__plugin_a_b__x', 'x'],
  ['files/read.file', 'files_read_file'],
  ['mcp__files__read.file', 'read_file'],
  ['mcp__', 'mcp__'],
  ['mcp____', 'mcp____'],
  ['Bash', 'Bash'],
  ['lés', 'l_s'],
])('the tool %s is called %s in every sink', (name, bare) => {
  expect(normalisedTool(name)).toBe(bare);
  expect(normalisedTool(bare)).toBe(bare);
});
