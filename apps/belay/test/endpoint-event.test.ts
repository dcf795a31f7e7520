import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { EndpointRewriter } from '../src/endpoint-event.js';

const SERVER = new URL('http://127.0.0.1:3001/sse');
const PROXY = 'http://localhost:9';

function passed(chunks: readonly Buffer[], server = SERVER): { text: string; rewritten: boolean } {
  const rewriter = new EndpointRewriter(server, PROXY);
  const out: Buffer[] = chunks.map((chunk) => Buffer.from(rewriter.push(chunk)));
  out.push(rewriter.end());
  return { text: Buffer.concat(out).toString('latin1'), rewritten: rewriter.rewritten };
}
const whole = (text: string, server = SERVER): string => passed([Buffer.from(text, 'latin1')], server).text;
const split = (bytes: Buffer, places: readonly number[]): Buffer[] => {
  const at = [...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  return at.map((end, i) => bytes.subarray(at[i - 1] ?? 0, end));
};

describe('the one change', () => {
  test.each([
    [
      'event: endpoint\ndata: http://127.0.0.1:3001/m?s=1\n\n',
      'event: endpoint\ndata: http://localhost:9/m?s=1\n\n',
    ],
    [
      'event:endpoint\r\ndata:http://127.0.0.1:3001/m\r\n\r\n',
      'event:endpoint\r\ndata:http://localhost:9/m\r\n\r\n',
    ],
    [
      '\xef\xbb\xbfevent: endpoint\rdata: http://localhost:3001?x\r\r',
      '\xef\xbb\xbfevent: endpoint\rdata: http://localhost:9?x\r\r',
    ],
    [
      ': hello\n\nevent: endpoint\nid: 1\ndata: http://[::1]:3001\n\n',
      ': hello\n\nevent: endpoint\nid: 1\ndata: http://localhost:9\n\n',
    ],
  ])('%j', (sent, expected) => {
    expect(whole(sent)).toBe(expected);
  });

  test.each([
    'event: endpoint\ndata: /message?sessionId=1\n\n',
    'event: endpoint\ndata: https://127.0.0.1:3001/m\n\n',
    'event: endpoint\ndata: http://127.0.0.1:3002/m\n\n',
    'event: endpoint\ndata: http://evil.example:3001/m\n\n',
    'data: http://127.0.0.1:3001/m\nevent: endpoint\n\n',
    'event: message\ndata: {}\n\nevent: endpoint\ndata: http://127.0.0.1:3001/m\n\n',
    'event: endpoint\ndata: http://127.0.0.1:3001',
    `event: endpoint\ndata: ${'x'.repeat(20_000)}\n\n`,
  ])('not %j', (text) => {
    expect(whole(text)).toBe(text);
  });

  test('only once', () => {
    const event = 'event: endpoint\ndata: http://127.0.0.1:3001/m\n\n';
    expect(whole(event + event)).toBe(event.replace('http://127.0.0.1:3001', PROXY) + event);
  });
});

const lines = fc.constantFrom(
  'event: endpoint',
  'event:endpoint',
  'data: http://127.0.0.1:3001/m?a',
  'data: /m',
  'id: 4',
  ': x',
  '',
  'event: message',
  'é\xff',
);
const stream = fc
  .array(fc.tuple(lines, fc.constantFrom('\n', '\r', '\r\n')), { maxLength: 10 })
  .map((parts) => Buffer.from(parts.flat().join(''), 'latin1'));

test('chunking changes nothing, and without an endpoint event neither does it', () => {
  fc.assert(
    fc.property(stream, fc.array(fc.nat(), { maxLength: 20 }), (bytes, places) => {
      const expected = passed([bytes]);
      expect(passed(split(bytes, places))).toEqual(expected);
      expect(passed([...bytes].map((byte) => Buffer.of(byte)))).toEqual(expected);
      expect(expected.rewritten).toBe(expected.text !== bytes.toString('latin1'));
      expect(expected.text.replace(PROXY, 'http://127.0.0.1:3001')).toBe(bytes.toString('latin1'));
    }),
    { numRuns: 500 },
  );
});

test('nothing is held back but the line that may have to be changed', () => {
  const rewriter = new EndpointRewriter(SERVER, PROXY);
  expect(rewriter.push(Buffer.from('eve')).toString()).toBe('eve');
  expect(rewriter.push(Buffer.from('nt: endpoint\nda')).toString()).toBe('nt: endpoint\n');
  expect(rewriter.push(Buffer.from('ta: /m')).toString()).toBe('');
  expect(rewriter.push(Buffer.from('\n\ndata: {')).toString()).toBe('data: /m\n\ndata: {');
  expect(rewriter.push(Buffer.from('}')).toString()).toBe('}');
});
