import { CompactRange, leafHash, type NodeId, nodeHash } from '@belay/merkle';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  cutAt,
  type EntriesItem,
  EntriesReader,
  EntriesWriter,
  type IndexSpan,
} from '../src/entries-file.js';

const RUNS = Number(process.env.BELAY_RUNS ?? 60);
const entryOf = (n: number): Buffer => Buffer.from(`{"index":${n}}\n{"body":"${'x'.repeat(n % 50)}"}`);

/** A tree of so many entries, of which `span`s are in the file. */
interface Made {
  readonly bytes: Buffer;
  readonly root: Buffer;
  readonly spans: readonly IndexSpan[];
  readonly sizes: readonly number[];
}

function rootOf(size: number): Buffer {
  const range = CompactRange.empty();
  for (let n = 0; n < size; n++) range.append(leafHash(entryOf(n)));
  return range.root();
}

function nodeOf({ level, index }: NodeId): Buffer {
  if (level === 0) return leafHash(entryOf(Number(index)));
  const child = { level: level - 1, index: index * 2n };
  return nodeHash(nodeOf(child), nodeOf({ ...child, index: child.index + 1n }));
}

async function make(kept: readonly boolean[], sizes: readonly number[]): Promise<Made> {
  const writer = new EntriesWriter();
  const parts: Buffer[] = [];
  const spans: IndexSpan[] = [];
  const omitUpTo = async (to: number): Promise<void> => {
    if (writer.size === to) return;
    for (const part of cutAt({ from: writer.size, to }, sizes)) {
      spans.push(part);
      parts.push(await writer.omit(part.to, async (ids) => ids.map(nodeOf)));
    }
  };
  for (const [n, keep] of kept.entries()) {
    if (!keep) continue;
    await omitUpTo(n);
    parts.push(...writer.entry(entryOf(n)).lines);
  }
  await omitUpTo(kept.length);
  return { bytes: Buffer.concat(parts), root: writer.root(), spans, sizes };
}

/** Everything that a reader gives, in blocks of a size. */
function read(bytes: Buffer, size: number, sizes: readonly number[], block: number) {
  const reader = new EntriesReader(size, sizes);
  const items: EntriesItem[] = [];
  for (let at = 0; at < bytes.length; at += block) {
    const found = reader.push(bytes.subarray(at, at + block));
    // Good until the next block.
    items.push(
      ...found.map((item) => ('omitted' in item ? item : { ...item, bytes: Buffer.from(item.bytes) })),
    );
  }
  return { root: reader.end(), items, reader };
}

const trees = fc.array(fc.boolean(), { minLength: 1, maxLength: 70 }).chain((kept) =>
  fc.record({
    kept: fc.constant(kept),
    sizes: fc
      .uniqueArray(fc.integer({ min: 1, max: kept.length }), { maxLength: 6 })
      .map((sizes) => [...sizes].sort((a, b) => a - b)),
    block: fc.integer({ min: 1, max: 3_000 }),
  }),
);

describe('entries.ndjson', () => {
  test('of any selection of any tree leads to the root, and tells exactly what was left out', async () => {
    await fc.assert(
      fc.asyncProperty(trees, async ({ kept, sizes, block }) => {
        const { bytes, root, spans } = await make(kept, sizes);
        expect(root).toEqual(rootOf(kept.length));
        const { root: found, items, reader } = read(bytes, kept.length, sizes, block);
        expect(found).toEqual(root);
        expect(reader.entries).toBe(kept.filter(Boolean).length);
        expect(reader.omitted).toBe(kept.length - reader.entries);
        expect(items.flatMap((item) => ('omitted' in item ? item.omitted : []))).toEqual(spans);
        for (const item of items) {
          if ('omitted' in item) continue;
          expect(item.bytes).toEqual(entryOf(item.index));
          expect(bytes.subarray(item.at, item.at + item.bytes.length)).toEqual(item.bytes);
        }
        for (const size of sizes) expect(reader.roots.get(size)).toBe(rootOf(size).toString('base64'));
      }),
      { numRuns: RUNS },
    );
  });

  test('with any one byte changed leads elsewhere or is refused', async () => {
    await fc.assert(
      fc.asyncProperty(trees, fc.nat(), fc.integer({ min: 1, max: 255 }), async ({ kept, sizes }, at, by) => {
        const { bytes, root } = await make(kept, sizes);
        const changed = Buffer.from(bytes);
        const place = at % bytes.length;
        changed[place] = (changed[place] as number) ^ by;
        const outcome = (): Buffer => read(changed, kept.length, sizes, 1_000).root;
        let found: Buffer | undefined;
        try {
          found = outcome();
        } catch {
          return;
        }
        expect(found).not.toEqual(root);
      }),
      { numRuns: 5 * RUNS },
    );
  });

  test('has one form: a span cut elsewhere, not cut, empty, out of place, or of other hashes is refused', async () => {
    const kept = Array.from({ length: 20 }, (_, n) => n < 3 || n === 12);
    const { bytes } = await make(kept, [7]);
    const refused = (changed: Buffer | string, sizes = [7], size = 20): unknown => {
      try {
        read(Buffer.from(changed), size, sizes, 1_000);
      } catch (error) {
        return (error as { code?: string }).code;
      }
      return undefined;
    };
    expect(refused(bytes)).toBeUndefined();
    expect(refused(bytes, [])).toBe('malformed');
    expect(refused(bytes, [5, 7])).toBe('malformed');
    expect(refused(bytes, [7], 19)).toBe('malformed');
    expect(refused(bytes, [7], 21)).toBe('malformed');
    expect(refused((await make(kept, [])).bytes)).toBe('malformed');
    expect(refused((await make(kept, [5, 7])).bytes)).toBe('malformed');
    const text = bytes.toString();
    const swap = (from: RegExp | string, to: string): string => {
      const swapped = text.replace(from, to);
      expect(swapped).not.toBe(text);
      return swapped;
    };
    expect(refused(swap('"from":3', '"from":4'))).toBe('malformed');
    expect(refused(swap('"to":7', '"to":8'))).toBe('malformed');
    expect(refused(swap('"to":7', '"to":3'))).toBe('malformed');
    expect(refused(swap('"to":7', '"to":7.0'))).toBe('malformed');
    expect(refused(swap('"to":7', '"to": 7'))).toBe('malformed');
    expect(refused(swap('"from":3,"to":7', '"to":7,"from":3'))).toBe('malformed');
    expect(refused(swap(/\{"hashes":\["[^"]*",/, '{"hashes":['))).toBe('proof-length');
    expect(refused(swap(/\{"hashes":\["[^"]*"/, '{"hashes":["AAAA"'))).toBe('malformed');
    expect(refused(`${text}\n`)).toBe('malformed');
    expect(refused(text.slice(0, -1))).toBe('malformed');
    expect(refused(`${text}${text}`)).toBe('malformed');
    expect(refused('x'.repeat(10_000))).toBe('malformed');
  });
});
