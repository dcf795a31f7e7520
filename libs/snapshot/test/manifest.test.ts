import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeState,
  encodeState,
  type Entry,
  entryDigest,
  entrySize,
  leafDigest,
  LeafSet,
  makeState,
  readEntry,
  stateDigest,
  treeDigest,
  writeEntry,
} from '../src/manifest.js';
import { Chance } from './trees.js';

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');
const empty = Buffer.alloc(0);

const file: Entry = {
  path: Buffer.from('a.txt'),
  type: 'file',
  mode: 0o644,
  uid: 1000,
  gid: 1000,
  mtime: 1_700_000_000_123_456_789n,
  size: 6,
  content: hex('5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03'),
};
const dir: Entry = {
  path: empty,
  type: 'dir',
  mode: 0o755,
  uid: 1000,
  gid: 1000,
  mtime: 1_700_000_000_000_000_000n,
};

const encoded = (entry: Entry): Buffer => {
  const bytes = Buffer.alloc(entrySize(entry));
  expect(writeEntry(entry, bytes)).toBe(bytes.length);
  return bytes;
};

const bytes = (max: number): fc.Arbitrary<Buffer> =>
  fc.uint8Array({ minLength: 1, maxLength: max }).map((each) => Buffer.from(each));
const meta = {
  path: bytes(40),
  mode: fc.integer({ min: 0, max: 0o7777 }),
  uid: fc.nat(2 ** 32 - 1),
  gid: fc.nat(2 ** 32 - 1),
  mtime: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
};
const extras = {
  linkGroup: bytes(30),
  xattrs: fc.array(fc.tuple(bytes(20), bytes(50)), { minLength: 1, maxLength: 3 }),
};
const entries: fc.Arbitrary<Entry> = fc.oneof(
  fc.record(
    {
      ...meta,
      ...extras,
      type: fc.constant('file' as const),
      size: fc.nat(),
      content: bytes(32).map((each) => Buffer.concat([each, Buffer.alloc(32)], 32)),
    },
    { requiredKeys: ['path', 'type', 'mode', 'uid', 'gid', 'mtime', 'size', 'content'] },
  ),
  fc.record(
    { ...meta, ...extras, type: fc.constant('link' as const), target: bytes(60) },
    { requiredKeys: ['path', 'type', 'mode', 'uid', 'gid', 'mtime', 'target'] },
  ),
  fc.record(
    { ...meta, xattrs: extras.xattrs, type: fc.constant('dir' as const) },
    { requiredKeys: ['path', 'type', 'mode', 'uid', 'gid', 'mtime'] },
  ),
) as fc.Arbitrary<Entry>;

describe('the example of FORMAT.md', () => {
  const e = hex('087917b0e0c88f1dbd1eb470c6124672269b72b3607c397b8bdb7bebb6c083d8');
  const leaf = hex('e868542dcc7eed2654cfbfd710380dc93b4c0d6b76b1dc596fcfe7866c6d420e');
  const tree = hex('f2c8a4f91f9938c146eb5da9afc4eedd42b7e9bf9250e7fc4ac7af8050813592');

  it('has these bytes and digests', () => {
    expect(encoded(file)).toEqual(
      hex(
        '01 01a4 000003e8 000003e8 17979cfe3d85cd15 0000 00000000 0000000000000006 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03',
      ),
    );
    expect(encoded(dir)).toEqual(hex('02 01ed 000003e8 000003e8 17979cfe362a0000 0000 00000000'));
    expect(entryDigest(file)).toEqual(e);
    expect(leafDigest(file.path, e)).toEqual(leaf);
    expect(LeafSet.of([leaf]).digest()).toEqual(
      hex('c9ed025516ea5913e03d380080346b9ea897d14110dc563df3bbf3f0cd836ea1'),
    );
    expect(treeDigest([file, dir])).toEqual(tree);
  });

  it('and this state', () => {
    const state = makeState(
      [{ path: Buffer.from('/w'), tree }],
      [],
      ['inode', 'ctime', 'birthtime', 'atime'],
    );
    expect(stateDigest(state)).toBe(
      'sha256:10cf425aec8fcf8d39db6d3bb1a2fec286fa40aa9a0854299c278aba3cc745a9',
    );
    expect(decodeState(encodeState(state))).toEqual(state);
  });
});

it('an entry is read as it was written', () => {
  fc.assert(
    fc.property(entries, (entry) => {
      const written = encoded(entry);
      expect(readEntry(entry.path, written)).toEqual({ entry, end: written.length });
      for (let cut = 0; cut < written.length; cut++)
        expect(() => readEntry(entry.path, written.subarray(0, cut))).toThrow(/entry/);
    }),
    { numRuns: 50 },
  );
});

it('every field of an entry is part of its digest', () => {
  const full: Entry = {
    ...file,
    linkGroup: Buffer.from('a'),
    xattrs: [[Buffer.from('user.a'), Buffer.from('1')]],
  };
  const others: Entry[] = [
    { ...full, mode: 0o4644 },
    { ...full, uid: 0 },
    { ...full, gid: 0 },
    { ...full, mtime: full.mtime + 1n },
    { ...full, size: 7 },
    { ...full, content: Buffer.alloc(32) },
    { ...full, linkGroup: Buffer.from('b') },
    { ...full, xattrs: [[Buffer.from('user.a'), Buffer.from('2')]] },
    { ...full, xattrs: [[Buffer.from('user.b'), Buffer.from('1')]] },
    file,
  ];
  const digests = [full, ...others].map((entry) => entryDigest(entry).toString('hex'));
  expect(new Set(digests).size).toBe(digests.length);
});

it('a set of leaves has one digest, however it came to be', () => {
  const chance = new Chance(7);
  for (const size of [0, 1, 64, 65, 66, 500, 5000]) {
    const leaves = Array.from({ length: size }, () => chance.bytes(32));
    const whole = LeafSet.of(leaves);
    const grown = new LeafSet();
    const others = Array.from({ length: 100 }, () => chance.bytes(32));
    for (const leaf of [...others, ...leaves]) grown.add(leaf);
    grown.digest();
    for (const leaf of others) expect(grown.remove(leaf)).toBe(true);
    expect(grown.digest()).toEqual(whole.digest());
    expect(grown.size).toBe(size);
    expect(grown.remove(chance.bytes(32))).toBe(false);
    expect(grown.digest()).toEqual(LeafSet.of(leaves.reverse()).digest());
  }
});

it('a tree with a gap, two of a name, or no root is refused', () => {
  expect(() => treeDigest([file])).toThrow(/root/);
  expect(() => treeDigest([dir, file, file])).toThrow(/twice/);
  expect(() => treeDigest([dir, { ...file, path: Buffer.from('x/y') }])).toThrow(/not in a directory/);
  expect(() => treeDigest([dir, file, { ...file, path: Buffer.from('a.txt/y') }])).toThrow(
    /not in a directory/,
  );
});

it('a state that is not in its one form is refused', () => {
  const state = encodeState(makeState([{ path: Buffer.from('/w'), tree: Buffer.alloc(32) }], ['b', 'a'], []));
  expect(() => decodeState(Buffer.concat([state, Buffer.alloc(1)]))).toThrow(/canonical/);
  expect(() => decodeState(state.subarray(1))).toThrow(/state/);
  for (let cut = 0; cut < state.length; cut++)
    expect(() => decodeState(state.subarray(0, cut))).toThrow(/state/);
});
