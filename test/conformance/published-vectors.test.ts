import { createHash } from 'node:crypto';
import {
  CompactRange,
  consistencyPlan,
  decompose,
  EMPTY_ROOT,
  foldNodes,
  inclusionPlan,
  leafHash,
  type NodeId,
  nodeHash,
  partialWidth,
  tilePath,
  verifyConsistency,
  verifyInclusion,
  verifyRange,
} from '@belay/merkle';
import {
  cosignatureSigner,
  cosignatureTime,
  cosignatureVerifier,
  ed25519Signer,
  ed25519Verifier,
  formatCheckpoint,
  formatSkey,
  openCheckpoint,
  openNote,
  parseSkey,
  parseVkey,
  signNote,
} from '@belay/note';
import { describe, expect, test } from 'vitest';

/** Hash of any node over these leaves, the slow way. */
function nodesOf(leaves: readonly Buffer[]): (id: NodeId) => Buffer {
  return ({ level, index }) => {
    const begin = Number(index << BigInt(level));
    const range = CompactRange.empty();
    for (const leaf of leaves.slice(begin, begin + 2 ** level)) range.append(leaf);
    return range.root();
  };
}

describe('RFC 6962 tree', () => {
  test('leaf, node and empty hashes', () => {
    expect(EMPTY_ROOT.toString('base64')).toBe('47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=');
    expect(leafHash(Buffer.alloc(0)).toString('hex')).toBe(
      '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
    );
    expect(leafHash(Buffer.from('L123456')).toString('hex')).toBe(
      '395aa064aa4c29f7010acfe3f25db9485bbd4b91897b6ad7ad547639252b4d56',
    );
  });

  test('the published node over "N123" and "N456" is refused: they are not hashes', () => {
    // The value checks the prefix byte all the same; this library only makes nodes of 32-byte hashes.
    expect(() => nodeHash(Buffer.from('N123'), Buffer.from('N456'))).toThrow(/32 bytes/u);
    const node = createHash('sha256').update('\u0001N123N456', 'latin1').digest('hex');
    expect(node).toBe('aa217fe888e47007fa15edab33c2b492a722cb106c64667fc2b044444de66bbb');
  });

  test('the classic eight leaves', () => {
    const leaves = [
      '',
      '00',
      '10',
      '2021',
      '3031',
      '40414243',
      '5051525354555657',
      '606162636465666768696a6b6c6d6e6f',
    ].map((hex) => leafHash(Buffer.from(hex, 'hex')));
    const roots = [
      '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
      'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
      'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
      'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
      '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
      '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
      'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
      '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
    ];
    const tree = CompactRange.empty();
    for (const [i, leaf] of leaves.entries()) {
      tree.append(leaf);
      expect(tree.root().toString('hex')).toBe(roots[i]);
    }
  });

  test('tile widths and paths of the examples', () => {
    expect([0, 1, 2].map((level) => partialWidth(level, 70_000n))).toEqual([112, 17, 1]);
    expect(70_000n >> 8n).toBe(273n);
    expect(tilePath(0, 1_234_067n)).toBe('tile/0/x001/x234/067');
  });
});

describe('signed notes', () => {
  test('the example of C2SP signed-note', () => {
    const vkey = 'example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k';
    const note =
      'This is an example message.\n\n' +
      '— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n';
    const opened = openNote(Buffer.from(note), [ed25519Verifier(vkey)]);
    expect(opened.text).toBe('This is an example message.\n');
    expect(parseVkey(vkey).keyId).toBe('530d903a');
  });

  test('the example of Go sumdb/note, which also has the signer key', () => {
    const vkey = 'PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW';
    const skey = 'PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz';
    const text =
      "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
    const { name, seed } = parseSkey(skey);
    const signer = ed25519Signer(name, seed);
    expect(signer.vkey).toBe(vkey);
    expect(formatSkey(name, seed)).toBe(skey);
    const note = signNote(text, [signer]);
    expect(note).toBe(
      `${text}\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n`,
    );
    expect(openNote(note, [ed25519Verifier(vkey)]).text).toBe(text);
  });
});

describe('checkpoint and cosignature', () => {
  const origin = 'log.example/t/acme';
  const log = ed25519Signer(origin, Buffer.alloc(32, 1));
  const witness = cosignatureSigner('witness.example/w1', Buffer.alloc(32, 2), () => 1_767_225_600n);
  const leaves = [0, 1, 2, 3, 4].map((i) => leafHash(Buffer.from(`event-${i}`)));
  const node = nodesOf(leaves);
  const base64 = (hashes: readonly Buffer[]): string[] => hashes.map((hash) => hash.toString('base64'));
  const rootOf = (size: number): Buffer => {
    const range = CompactRange.empty();
    for (const leaf of leaves.slice(0, size)) range.append(leaf);
    return range.root();
  };
  const PUBLISHED =
    'log.example/t/acme\n5\nC3TUMA55gFbNSHKLT7AenxWtPgp5UPvFiXT/Z1MnHSQ=\n\n' +
    '— log.example/t/acme B1U70FZupIomN5Crzp8L2Na8RsAfwYcK28aKAhikZheUGHIQq49/sizss4b+m/Mn95AP07IbQ6HR/gmJmeBVCQxZ2AY=\n' +
    '— witness.example/w1 3xwKNQAAAABpVbkAJdxO9KTf1t3TDaOLNj4DFnVdi65Ok5GFxpvkzQzUvqS9La3tPQXOrIwvos9RY4CaqawV2tILeFbyj3+gtRG8AQ==\n';

  test('keys', () => {
    expect(log.vkey).toBe('log.example/t/acme+07553bd0+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c');
    expect(witness.vkey).toBe('witness.example/w1+df1c0a35+BIE5dw6ofRdfVqNUZsNMfszLjYqRtO43ol32D1uPybOU');
    expect(parseVkey(log.vkey).key.toString('hex')).toBe(
      '8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c',
    );
    expect(parseVkey(witness.vkey).key.toString('hex')).toBe(
      '8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394',
    );
  });

  test('made again byte for byte, and opened', () => {
    const text = formatCheckpoint({ origin, size: 5n, root: rootOf(5) });
    expect(signNote(text, [log, witness])).toBe(PUBLISHED);
    const opened = openCheckpoint(PUBLISHED, ed25519Verifier(log.vkey), [cosignatureVerifier(witness.vkey)]);
    expect(opened.root).toEqual(rootOf(5));
    expect(cosignatureTime(opened.signatures[1]?.signature as Buffer)).toBe(1_767_225_600n);
  });

  test('consistency from 3 to 5', () => {
    const proof = consistencyPlan(3n, 5n).map((ids) => foldNodes(ids.map(node)));
    expect(base64(proof)).toEqual([
      'T7cNqgptqvfpPys3xeXfczRmMP2KUZltUPHY7v8nlCY=',
      'Xz5pjPk3YirKfGvyc+8hdgkuwzwWLcyuOd+HAWJdGJ8=',
      'P9HVoFmrFxo0X5kSyDwt2LeTO06VDmdJvIPbsfQ8y94=',
      'rjI5dK4fR82yRuuDuHBjZtQ8ZK0Pr0gMeerLnPSn6Kc=',
    ]);
    verifyConsistency({ size1: 3n, size2: 5n, root1: rootOf(3), root2: rootOf(5), proof });
  });

  test('inclusion of 3 in 5', () => {
    const proof = inclusionPlan(3n, 5n).map((ids) => foldNodes(ids.map(node)));
    expect(base64(proof)).toEqual([
      'T7cNqgptqvfpPys3xeXfczRmMP2KUZltUPHY7v8nlCY=',
      'P9HVoFmrFxo0X5kSyDwt2LeTO06VDmdJvIPbsfQ8y94=',
      'rjI5dK4fR82yRuuDuHBjZtQ8ZK0Pr0gMeerLnPSn6Kc=',
    ]);
    verifyInclusion({ index: 3n, size: 5n, leaf: leaves[3] as Buffer, proof, root: rootOf(5) });
  });

  test('range [1, 4) of 5', () => {
    const left = decompose(0n, 1n).map(node);
    const right = decompose(4n, 5n).map(node);
    expect(base64(left)).toEqual(['ZzTbOxm2Tcg3A/mh9K7naX37KS+04IJ8xj+KNRsbNgk=']);
    expect(base64(right)).toEqual(['rjI5dK4fR82yRuuDuHBjZtQ8ZK0Pr0gMeerLnPSn6Kc=']);
    verifyRange({ index: 1n, size: 5n, leaves: leaves.slice(1, 4), left, right, root: rootOf(5) });
  });
});
