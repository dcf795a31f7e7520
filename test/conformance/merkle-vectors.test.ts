import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  MerkleError,
  verifyConsistency,
  verifyInclusion,
  verifySubtreeConsistency,
  verifySubtreeInclusion,
} from '@belay/merkle';
import { describe, expect, test } from 'vitest';

// The vectors of transparency-dev/merkle are not part of this repository; a copy may lie beside it.
const folder = fileURLToPath(new URL('../../../shared/vectors/merkle', import.meta.url));
const absent = !existsSync(folder);

type Vector = Readonly<Record<string, string>> & {
  readonly desc: string;
  readonly wantErr: boolean;
  readonly proof: readonly string[] | null;
};

const hash = (text: string | undefined): Buffer => Buffer.from(text ?? '', 'base64');
const int = (text: string | undefined): bigint => BigInt(text as string);
const proofOf = (vector: Vector): Buffer[] => (vector.proof ?? []).map(hash);

const families: readonly { name: string; count: number; verify: (vector: Vector) => void }[] = [
  {
    name: 'inclusion',
    count: 98,
    verify: (v) =>
      verifyInclusion({
        index: int(v['leafIdx']),
        size: int(v['treeSize']),
        leaf: hash(v['leafHash']),
        root: hash(v['root']),
        proof: proofOf(v),
      }),
  },
  {
    name: 'consistency',
    count: 98,
    verify: (v) =>
      verifyConsistency({
        size1: int(v['size1']),
        size2: int(v['size2']),
        root1: hash(v['root1']),
        root2: hash(v['root2']),
        proof: proofOf(v),
      }),
  },
  {
    name: 'subtreeinclusion',
    count: 204,
    verify: (v) =>
      verifySubtreeInclusion({
        start: int(v['start']),
        end: int(v['end']),
        index: int(v['leafIdx']),
        leaf: hash(v['leafHash']),
        subtree: hash(v['root']),
        proof: proofOf(v),
      }),
  },
  {
    name: 'subtreeconsistency',
    count: 118,
    verify: (v) =>
      verifySubtreeConsistency({
        start: int(v['start']),
        end: int(v['end']),
        size: int(v['size']),
        subtree: hash(v['root1']),
        root: hash(v['root2']),
        proof: proofOf(v),
      }),
  },
];

/**
 * Where this library decides otherwise than the vectors' own, with the reason. Every line has to be true still: a
 * vector that agrees although it is listed fails the test, as does one that differs and is not.
 */
const JUDGEMENT_CALLS: Readonly<Record<string, string>> = {
  'consistency/additional/sizes-are-equal-one-and-proof-is-empty.json':
    'accepted there, refused here: two equal roots of 12 bytes; a root has 32',
  'subtreeconsistency/additional/sizes-are-equal-one-and-proof-is-empty.json':
    'accepted there, refused here: two equal roots of 12 bytes; a root has 32',
  'subtreeconsistency/additional/subtree-is-empty-sizes-are-equal-one-subtree-root-valid-tree-root-random-proof-is-empty.json':
    'accepted there, refused here: a tree root of 12 bytes, which the empty subtree does not look at',
  'subtreeconsistency/additional/subtree-is-empty-sizes-are-equal-zero-subtree-root-valid-tree-root-random-proof-is-empty.json':
    'accepted there, refused here: a tree root of 12 bytes, which the empty subtree does not look at',
};

/**
 * Vectors on which both decide alike for unlike reasons. Their library refuses to prove anything from size 0; ours
 * has the rule of C2SP tlog-witness (the empty root, and an empty proof, begin every tree) and refuses these for
 * the 12 bytes of their root2. With a root2 of 32 bytes we accept.
 */
const FROM_THE_EMPTY_TREE = [
  'consistency/additional/roots-do-not-match-and-sizes-are-zero.json',
  'consistency/additional/size1-is-zero-and-size2-is-not-zero.json',
];

function read(file: string): Vector {
  // Some integers are beyond 2^53, where JSON.parse would round them: they are made strings first.
  const text = readFileSync(file, 'utf8').replace(/(":\s*)(\d+)/gu, '$1"$2"');
  return JSON.parse(text) as Vector;
}

function outcome(run: () => void): string {
  try {
    run();
  } catch (error) {
    if (error instanceof MerkleError) return error.code;
    throw error;
  }
  return 'accepted';
}

const note = absent ? ' (skipped: ../shared/vectors/merkle is not beside this folder)' : '';
describe.skipIf(absent)(`published Merkle vectors${note}`, () => {
  for (const family of families) {
    test(`${family.name}: ${family.count} vectors`, () => {
      const files = readdirSync(join(folder, family.name), { recursive: true, encoding: 'utf8' })
        .filter((file) => file.endsWith('.json'))
        .sort();
      expect(files).toHaveLength(family.count);
      const different: string[] = [];
      const listed = Object.keys(JUDGEMENT_CALLS).filter((line) => line.startsWith(`${family.name}/`));
      for (const file of files) {
        const vector = read(join(folder, family.name, file));
        const got = outcome(() => family.verify(vector));
        if ((got !== 'accepted') !== vector.wantErr) different.push(`${family.name}/${file}`);
      }
      expect(different).toEqual(listed);
    });
  }

  test('from size 0: refused there for the size, here for the length of the root', () => {
    for (const file of FROM_THE_EMPTY_TREE) {
      const vector = read(join(folder, file));
      const given = {
        size1: int(vector['size1']),
        size2: int(vector['size2']),
        root1: hash(vector['root1']),
        root2: hash(vector['root2']),
        proof: proofOf(vector),
      };
      expect(vector.wantErr).toBe(true);
      expect([file, outcome(() => verifyConsistency(given))]).toEqual([file, 'hash-length']);
      const root2 = given.size2 === 0n ? given.root1 : Buffer.alloc(32);
      expect([file, outcome(() => verifyConsistency({ ...given, root2 }))]).toEqual([file, 'accepted']);
    }
  });
});
