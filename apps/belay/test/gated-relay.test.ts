import { PassThrough, Writable } from 'node:stream';
import fc from 'fast-check';
import { type Content, OBSERVATION_LIMIT } from '@belay/mcp';
import { expect, test } from 'vitest';
import { gatedRelay } from '../src/gated-relay.js';

/** A sink that keeps what it gets, and takes it when it likes. */
class Kept extends Writable {
  readonly chunks: Buffer[] = [];
  readonly #slow: boolean;
  #current = 0;

  constructor(slow: boolean) {
    super({ highWaterMark: slow ? 16 : 1 << 20 });
    this.#slow = slow;
  }

  override _write(chunk: Buffer, _: string, done: () => void): void {
    this.chunks.push(chunk);
    this.#current = chunk.length;
    if (this.#slow)
      setImmediate(() => {
        this.#current = 0;
        done();
      });
    else done();
  }

  /** Bytes that were given to it and that it has not begun to take. */
  get waiting(): number {
    return this.writableLength - this.#current;
  }

  get bytes(): Buffer {
    return Buffer.concat(this.chunks);
  }
}

interface Run {
  readonly sink: Kept;
  /** In the order in which they were put on record, and how many bytes had gone then. */
  readonly recorded: { readonly line: string; readonly gone: number }[];
  readonly held: (() => void)[];
  readonly done: Promise<void>;
}

const idOf = ({ messages: [message] }: Content): number =>
  message?.type === 'request' ? Number(message.id.slice(2)) : 0;

function run(
  source: PassThrough,
  holds: (id: number) => boolean,
  options: {
    readonly slow?: boolean;
    readonly gated?: () => boolean;
    readonly recorded?: 'before' | 'after';
  } = {},
): Run {
  const sink = new Kept(options.slow === true);
  const recorded: { line: string; gone: number }[] = [];
  const held: (() => void)[] = [];
  const ended = new Promise<void>((resolve) => {
    gatedRelay(
      source,
      sink,
      {
        gated: options.gated ?? (() => true),
        recorded: options.recorded ?? 'before',
        decide: (content, go, passed) => {
          if (!passed && holds(idOf(content))) held.push(go);
          else go();
        },
        record: (frame) =>
          recorded.push({
            line: frame.bytes?.toString('latin1') ?? `oversize ${frame.size}`,
            gone: sink.bytes.length + (options.slow === true ? sink.waiting : 0),
          }),
      },
      { onEnd: resolve, onBroken: () => undefined },
    );
  });
  const finished = new Promise((resolve) => sink.once('close', resolve));
  return { sink, recorded, held, done: ended.then(async () => void (await finished)) };
}

const line = (id: number, size = 0): string =>
  `${JSON.stringify({ jsonrpc: '2.0', id, method: 'm', params: { filler: 'x'.repeat(size) } })}\n`;

test('frames are whole and as they came, however they are cut, held and let go; only their order may differ', async () => {
  const frames = fc.array(fc.record({ hold: fc.boolean(), size: fc.nat(400), blank: fc.boolean() }), {
    maxLength: 12,
  });
  await fc.assert(
    fc.asyncProperty(
      frames,
      fc.array(fc.nat(), { maxLength: 20 }),
      fc.infiniteStream(fc.nat()),
      fc.boolean(),
      async (wanted, cuts, picks, slow) => {
        const lines = wanted.map(({ size, blank }, at) =>
          blank ? `${' '.repeat(at)}\r\n` : line(at + 1, size),
        );
        const tail = wanted.length % 2 === 0 ? '' : '{"torn';
        const bytes = Buffer.from(lines.join('') + tail);
        const source = new PassThrough();
        const { sink, recorded, held, done } = run(
          source,
          (id) => id > 0 && (wanted[id - 1]?.hold ?? false),
          { slow },
        );
        const places = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
        let from = 0;
        for (const to of places) {
          source.write(bytes.subarray(from, to));
          from = to;
          await new Promise(setImmediate);
          if (held.length > 0 && picks.next().value % 3 === 0)
            held.splice(picks.next().value % held.length, 1)[0]?.();
        }
        source.end();
        let over = false;
        void done.then(() => (over = true));
        while (!over) {
          held.splice(picks.next().value % Math.max(1, held.length), 1)[0]?.();
          await new Promise(setImmediate);
        }
        const out = sink.bytes.toString();
        const got = out.split(/(?<=\n)/).filter(Boolean);
        expect(new Set(got)).toEqual(new Set([...lines, ...(tail === '' ? [] : [tail])]));
        expect(out).toHaveLength(bytes.length);
        expect(recorded.map((each) => each.line).join('')).toBe(out);
        // Each was on record when none of it had gone.
        let gone = 0;
        for (const each of recorded) {
          expect(each.gone).toBe(gone);
          gone += each.line.length;
        }
        const isFree = (each: string): boolean => !(wanted[lines.indexOf(each)]?.hold ?? true);
        expect(got.filter(isFree)).toEqual(lines.filter(isFree));
      },
    ),
    { numRuns: 120 },
  );
});

test('a frame that is too large to hold passes as it comes, and nothing gets into its middle', async () => {
  const source = new PassThrough();
  const { sink, recorded, held, done } = run(source, () => true);
  source.write(line(1));
  await expect.poll(() => held.length).toBe(1);
  const large = Buffer.from(line(2, OBSERVATION_LIMIT));
  const half = OBSERVATION_LIMIT + 20;
  for (let at = 0; at < half; at += 1 << 20) source.write(large.subarray(at, Math.min(half, at + (1 << 20))));
  await expect.poll(() => sink.bytes.length).toBe(half);
  held[0]?.();
  expect(sink.bytes.length).toBe(half);
  source.end(large.subarray(half));
  await done;
  expect(sink.bytes.equals(Buffer.concat([large, Buffer.from(line(1))]))).toBe(true);
  expect(recorded.map((each) => each.line.slice(0, 8))).toEqual(['oversize', '{"jsonrp']);
});

test('while nobody looks, bytes go as they come; from the next frame on they wait', async () => {
  const source = new PassThrough();
  let gated = false;
  const { sink, recorded, held, done } = run(source, (id) => id > 1, {
    gated: () => gated,
    recorded: 'after',
  });
  const bytes = Buffer.from(line(1) + line(2));
  source.write(bytes.subarray(0, 10));
  await expect.poll(() => sink.bytes.length).toBe(10);
  gated = true;
  source.write(bytes.subarray(10));
  await expect.poll(() => held.length).toBe(1);
  expect(sink.bytes.toString()).toBe(line(1));
  expect(recorded).toEqual([{ line: line(1), gone: line(1).length }]);
  held[0]?.();
  source.end();
  await done;
  expect(sink.bytes.equals(bytes)).toBe(true);
});

test('a receiver that is gone ends nothing: what comes is still read and on record', async () => {
  const source = new PassThrough();
  const { sink, recorded, done } = run(source, () => false);
  sink.destroy(new Error('gone'));
  for (let id = 1; id <= 50; id++) source.write(line(id, 1_000));
  source.end();
  await done;
  expect(recorded).toHaveLength(50);
});
