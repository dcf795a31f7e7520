import { createHash } from 'node:crypto';
import { EventStream, type StreamEvent } from '@belay/mcp';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

interface Seen {
  readonly type: string;
  readonly data: string | undefined;
  readonly size: number;
  readonly sha256: string;
}

function read(chunks: readonly Buffer[], limit?: number): { events: Seen[]; pending: boolean } {
  const stream = new EventStream(limit);
  const events: Seen[] = [];
  const see = ({ type, data }: StreamEvent): void => {
    events.push({ type, data: data.bytes?.toString('latin1'), size: data.size, sha256: data.sha256 });
  };
  for (const chunk of chunks) stream.push(chunk, see);
  return { events, pending: stream.pending };
}

const sha256 = (text: string): string => createHash('sha256').update(text, 'latin1').digest('hex');

/** The same by the letter of the standard, over all of the text at once. */
function oracle(bytes: Buffer): Seen[] {
  const text = bytes.toString('latin1').replace(/^\xef\xbb\xbf/, '');
  const lines = text.split(/\r\n|\r|\n/);
  lines.pop();
  const events: Seen[] = [];
  let type = '';
  let data = '';
  for (const line of lines) {
    if (line === '') {
      if (data !== '') {
        const content = data.slice(0, -1);
        events.push({
          type: type || 'message',
          data: content,
          size: content.length,
          sha256: sha256(content),
        });
      }
      type = '';
      data = '';
      continue;
    }
    const colon = line.indexOf(':');
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'data') data += `${value}\n`;
    if (name === 'event') type = Buffer.from(value, 'latin1').toString('utf8');
  }
  return events;
}

const chunksOf = (bytes: Buffer, places: readonly number[]): Buffer[] => {
  const at = [...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  return at.map((end, i) => Buffer.from(bytes.subarray(at[i - 1] ?? 0, end)));
};

const word = fc.constantFrom(
  'data',
  'data: ',
  'data:',
  'event: endpoint',
  'event',
  'id: 1',
  ': ping',
  ':',
  'retry: 10',
  '{"id":1}',
  'datab: x',
  ' data: y',
  'longer-than-any-name: z',
  '\xef\xbb\xbf',
  '\xef\xbb',
  '',
);
const text = fc
  .array(
    fc.oneof(
      { weight: 3, arbitrary: word },
      { weight: 3, arbitrary: fc.constantFrom('\r', '\n', '\r\n', '\n\n', '\r\n\r\n', '\r\r') },
      { weight: 1, arbitrary: fc.string({ maxLength: 8 }) },
    ),
    { maxLength: 40 },
  )
  .map((parts) => Buffer.from(parts.join(''), 'latin1'));

test('events are those of the standard, however the stream is chunked', () => {
  fc.assert(
    fc.property(text, fc.array(fc.nat(), { maxLength: 40 }), (bytes, places) => {
      const expected = oracle(bytes);
      expect(read([bytes]).events).toEqual(expected);
      expect(read(chunksOf(bytes, places)).events).toEqual(expected);
      expect(read([...bytes].map((byte) => Buffer.of(byte))).events).toEqual(expected);
    }),
    { numRuns: 1500 },
  );
});

test('past the limit, an event is a hash of the same bytes', () => {
  fc.assert(
    fc.property(text, fc.array(fc.nat(), { maxLength: 10 }), fc.nat(12), (bytes, places, limit) => {
      expect(read(chunksOf(bytes, places), limit).events).toEqual(
        oracle(bytes).map((event) => (event.size > limit ? { ...event, data: undefined } : event)),
      );
    }),
  );
});

describe('cases', () => {
  const types = (source: string): string[] =>
    read([Buffer.from(source, 'latin1')]).events.map(({ type, data }) => `${type}=${data}`);

  test.each<[string, string[]]>([
    ['data: a\ndata: b\n\n', ['message=a\nb']],
    ['data: a\r\n\r\ndata: b\r\rdata: c\n\n', ['message=a', 'message=b', 'message=c']],
    ['\xef\xbb\xbfdata: a\n\n', ['message=a']],
    [': keep-alive\n\n:\n\n', []],
    ['id: 7\ndata:\n\n', ['message=']],
    ['event: endpoint\ndata: /message?sessionId=1\n\n', ['endpoint=/message?sessionId=1']],
    ['event: lost\n\ndata: a\n\n', ['message=a']],
    ['data:  two spaces\n\n', ['message= two spaces']],
    ['data: not ended\n', []],
  ])('%j', (source, expected) => {
    expect(types(source)).toEqual(expected);
  });

  test('what has not ended is pending', () => {
    expect(read([Buffer.from('data: a\n')]).pending).toBe(true);
    expect(read([Buffer.from('da')]).pending).toBe(true);
    expect(read([Buffer.from('data: a\n\n: x\n')]).pending).toBe(false);
  });

  test('an event of many megabytes on one line', () => {
    const size = 20 << 20;
    const source = Buffer.concat([Buffer.from('data: '), Buffer.alloc(size, 'x'), Buffer.from('\r\n\r\n')]);
    const cuts = Array.from({ length: 300 }, (_, i) => i * 70_001);
    const { events } = read(chunksOf(source, cuts));
    expect(events).toEqual([{ type: 'message', data: undefined, size, sha256: sha256('x'.repeat(size)) }]);
  });

  test('many short lines cost no more than their bytes', () => {
    const started = performance.now();
    for (const end of ['\r', '\n']) {
      read([Buffer.from(`:${end}`.repeat(500_000))]);
      read([Buffer.from(`data${end}`.repeat(200_000))]);
    }
    expect(performance.now() - started).toBeLessThan(3_000);
  });
});
