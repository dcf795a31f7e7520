import { createHash } from 'node:crypto';
import { Framer, readFrame, type Frame } from '@belay/mcp';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

function frames(chunks: readonly Buffer[], limit?: number): Frame[] {
  const framer = new Framer(limit);
  const found: Frame[] = [];
  for (const chunk of chunks) framer.push(chunk, (frame) => found.push(frame));
  framer.end((frame) => found.push(frame));
  return found;
}

/** Cuts at the given places, so that a chunk may be empty, one byte, or everything. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  // Copies, each to be overwritten once it was pushed: nothing may depend on a chunk after a frame was handed out.
  return at.map((end, i) => Buffer.from(bytes.subarray(at[i - 1] ?? 0, end)));
}

const line = fc.oneof(
  fc.json().map((text) => Buffer.from(text)),
  fc
    .uint8Array({ maxLength: 40 })
    .map((bytes) => Buffer.from(bytes.map((byte) => (byte === 0x0a ? 0x20 : byte)))),
  fc
    .constantFrom(
      '',
      ' ',
      'Starting…',
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}',
      '"\ud83d\ude00"',
    )
    .map((text) => Buffer.from(text)),
  fc
    .nat(4000)
    .map((length) =>
      Buffer.from(JSON.stringify({ id: length, method: 'x', params: { name: 'y'.repeat(length) } })),
    ),
);
const stream = fc
  .tuple(fc.array(fc.tuple(line, fc.constantFrom('\n', '\r\n')), { maxLength: 12 }), line)
  .map(([lines, rest]) =>
    Buffer.concat([...lines.flatMap(([bytes, end]) => [bytes, Buffer.from(end)]), rest]),
  );

test('random chunking changes no frame and nothing that is read from it', () => {
  fc.assert(
    fc.property(
      stream,
      fc.array(fc.nat(), { maxLength: 60 }),
      fc.constantFrom(16, 200, 1 << 24),
      (bytes, places, limit) => {
        const seen = (chunks: readonly Buffer[]): unknown[] =>
          frames(chunks, limit).map(({ bytes: held, size, sha256, terminator, ...frame }) => ({
            held: held?.toString('latin1'),
            size,
            sha256,
            terminator,
            content: readFrame({ bytes: held, size, sha256, terminator, ...frame }),
          }));
        const whole = seen([bytes]);
        expect(seen(cut(bytes, places))).toEqual(whole);
        expect(seen([...bytes].map((byte) => Buffer.of(byte)))).toEqual(whole);
      },
    ),
    { numRuns: 400 },
  );
});

test('the frames are the stream, hashed', () => {
  fc.assert(
    fc.property(stream, fc.array(fc.nat(), { maxLength: 20 }), (bytes, places) => {
      const found = frames(cut(bytes, places));
      expect(Buffer.concat(found.map((frame) => frame.bytes as Buffer))).toEqual(bytes);
      for (const frame of found) {
        expect(frame.sha256).toBe(
          createHash('sha256')
            .update(frame.bytes as Buffer)
            .digest('hex'),
        );
        expect(frame.size).toBe(frame.bytes?.length);
      }
      expect(found.slice(0, -1).every((frame) => frame.terminator !== 'none')).toBe(true);
    }),
  );
});

describe('terminators', () => {
  test.each<[string, string[]]>([
    ['a\nb\r\nc', ['lf', 'crlf', 'none']],
    ['\n\r\n\r', ['lf', 'crlf', 'none']],
    ['a\r\r\n', ['crlf']],
    ['a\rb\n', ['lf']],
  ])('%j', (text, expected) => {
    expect(
      frames([...Buffer.from(text)].map((byte) => Buffer.of(byte))).map((frame) => frame.terminator),
    ).toEqual(expected);
    expect(frames([Buffer.from(text)], 0).map((frame) => frame.terminator)).toEqual(expected);
  });
});

test('frames put into memory that is used again are the same, in whatever pieces they come', () => {
  const limit = 4 << 20;
  const rooms = [Buffer.alloc(limit), Buffer.alloc(limit)];
  const sizes = [100, 1 << 20, (1 << 20) + 1, 3 << 20, limit, limit + 1, 2 << 20, 5, limit - 1];
  const frame = (size: number, fill: number): Buffer => {
    const bytes = Buffer.alloc(size, 97 + fill);
    bytes[size - 1] = 0x0a;
    return bytes;
  };
  const bytes = Buffer.concat(sizes.map(frame));
  const cases = (['as-it-comes', 'when-asked'] as const).flatMap((hashing) =>
    [1 << 16, 300_007, 1_000_003, bytes.length].flatMap((step) =>
      [false, true].map((isPlaced) => ({ hashing, step, isPlaced })),
    ),
  );
  for (const { hashing, step, isPlaced } of cases) {
    let asked = 0;
    const lend = () => () => undefined;
    const framer = new Framer(limit, hashing, () => ({ memory: rooms[asked++ % 2] as Buffer, lend }));
    const seen: Pick<Frame, 'size' | 'sha256'>[] = [];
    let placed = 0;
    for (let at = 0; at < bytes.length;) {
      // What a reader that is told where to read to gives, and one that never asks.
      const memory = isPlaced ? framer.place()?.memory.subarray(0, step) : undefined;
      const chunk = memory ?? Buffer.alloc(step);
      const read = bytes.copy(chunk, 0, at, at + chunk.length);
      if (memory !== undefined) placed++;
      at += read;
      const isFree = framer.push(chunk.subarray(0, read), ({ size, sha256, bytes: held, skimmed }) => {
        expect(held === undefined).toBe(size > limit);
        expect(skimmed === undefined).toBe(size <= limit);
        if (held !== undefined) expect(createHash('sha256').update(held).digest('hex')).toBe(sha256);
        const room = rooms.find(({ buffer }) => buffer === held?.buffer);
        if (held !== undefined && size > 1 << 20) expect(room).toBeDefined();
        // With its frame, a room goes to somebody else.
        room?.fill(0x0b);
        seen.push({ size, sha256 });
      });
      if (memory !== undefined) expect(isFree).toBe(true);
      // Whoever gave memory that is free writes over it; what is in the room stays.
      else if (isFree) chunk.fill(0x0a);
    }
    expect(placed > 0).toBe(isPlaced && step < limit);
    expect(seen).toEqual(
      sizes.map((size, fill) => ({
        size,
        sha256: createHash('sha256').update(frame(size, fill)).digest('hex'),
      })),
    );
  }
});

describe('frames past the limit', () => {
  const big = (text: string): Frame => {
    const [frame] = frames(cut(Buffer.from(`${text}\n`), [7, 100, 1001]), 64);
    return frame as Frame;
  };
  const filler = 'x'.repeat(5000);

  test('65,535 / 65,536 / 65,537 bytes and 1 MiB ± 1 are whole; past the limit they are hashed', () => {
    for (const size of [65_535, 65_536, 65_537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1]) {
      const bytes = Buffer.alloc(size, 'a');
      bytes[size - 1] = 0x0a;
      const chunks = cut(bytes, [1, 65_535, 65_536]);
      const [kept] = frames(chunks, 1 << 20);
      expect(kept?.bytes === undefined).toBe(size > 1 << 20);
      expect(kept).toMatchObject({ size, sha256: createHash('sha256').update(bytes).digest('hex') });
    }
  });

  test('a request keeps id, method and tool', () => {
    const frame = big(
      JSON.stringify({
        jsonrpc: '2.0',
        params: { arguments: { name: 'no', id: 5, text: filler }, name: 'write_file' },
        id: 'a"b',
        method: 'tools/call',
      }),
    );
    expect(frame.bytes).toBeUndefined();
    expect(readFrame(frame)).toEqual({
      kind: 'message',
      messages: [{ type: 'request', id: 's:a"b', method: 'tools/call', params: { name: 'write_file' } }],
      findings: [],
    });
  });

  test('a result and an error keep what they were', () => {
    expect(
      readFrame(big(JSON.stringify({ result: { content: [filler], isError: true }, id: 7 }))).messages,
    ).toEqual([{ type: 'response', id: 'n:7', ok: true, result: { isError: true }, error: undefined }]);
    expect(
      readFrame(big(JSON.stringify({ id: 7, error: { data: filler, code: -32603 } }))).messages,
    ).toMatchObject([{ type: 'response', ok: false, error: { code: -32603 } }]);
  });

  test('a batch is said to be one; a flood without structure is text', () => {
    expect(readFrame(big(JSON.stringify([{ id: 1, method: filler }])))).toMatchObject({
      kind: 'oversize-batch',
      messages: [],
    });
    expect(readFrame(big(filler))).toMatchObject({ kind: 'text', findings: ['NON_JSON'] });
    expect(readFrame(big(`{"id.x":1,"params.name":"spoof","method":"${filler}"`))).toMatchObject({
      kind: 'text',
    });
  });

  test('a gigabyte without LF is held as a hash', () => {
    const framer = new Framer(1 << 20);
    const chunk = Buffer.alloc(1 << 20, '[');
    const before = process.memoryUsage().rss;
    for (let i = 0; i < 64; i++) framer.push(chunk, () => expect.unreachable());
    expect(framer.pending).toBe(64 << 20);
    expect(process.memoryUsage().rss - before).toBeLessThan(48 << 20);
  });
});
