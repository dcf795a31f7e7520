/**
 * What a capturer knows, kept for the next one over the same roots: it then looks at everything once, and reads only
 * what looks different. A cache: one that is missing, damaged, older or of another machine costs time, nothing else.
 */

import { hash as digestOf, randomBytes } from 'node:crypto';
import { readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { endianness } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { DIGEST_BYTES } from './manifest.js';
import type { Xattr } from './native.js';
import { KEPT_COLUMNS, TreeIndex } from './tree-index.js';

const MAGIC = Buffer.from('belay-snapshot-index 1\n');

/** What is kept beside the trees. */
export interface IndexHead {
  /** The state that the trees are. */
  readonly digest: string;
  readonly gaps: string;
  /** Wall clock when the last capture began, milliseconds. What changed since may look as it did. */
  readonly at: number;
}

interface Head extends IndexHead {
  readonly order: string;
  readonly trees: readonly { readonly end: number; readonly namesEnd: number; readonly extras: Extras }[];
}

/** By number: what few entries have; bytes in base64. */
interface Extras {
  readonly target: readonly [number, string][];
  readonly linkGroup: readonly [number, string][];
  readonly xattrs: readonly [number, readonly (readonly [string, string])[]][];
}

const base64 = (bytes: Buffer): string => bytes.toString('base64');
const fromBase64 = (text: string): Buffer => Buffer.from(text, 'base64');

/** The same roots and rules have the same file. */
export function indexPath(dir: string, roots: readonly Buffer[], rules: readonly string[]): string {
  const key = JSON.stringify([roots.map(base64), rules]);
  return join(dir, `${digestOf('sha256', key, 'hex').slice(0, 32)}.index`);
}

export function writeIndex(path: string, head: IndexHead, trees: readonly TreeIndex[]): void {
  const whole: Head = {
    ...head,
    order: endianness(),
    trees: trees.map(({ end, namesEnd, target, linkGroup, xattrs }) => ({
      end,
      namesEnd,
      extras: {
        target: [...target].map(([id, bytes]) => [id, base64(bytes)]),
        linkGroup: [...linkGroup].map(([id, bytes]) => [id, base64(bytes)]),
        xattrs: [...xattrs].map(([id, list]) => [id, list.map(([a, b]) => [base64(a), base64(b)])]),
      },
    })),
  };
  const text = Buffer.from(JSON.stringify(whole));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(text.length);
  const parts: Buffer[] = [MAGIC, length, text];
  for (const tree of trees) {
    for (const [name] of KEPT_COLUMNS) {
      const { buffer, byteOffset, BYTES_PER_ELEMENT } = tree[name];
      parts.push(Buffer.from(buffer, byteOffset, tree.end * BYTES_PER_ELEMENT));
    }
    parts.push(tree.contents.subarray(0, tree.end * DIGEST_BYTES));
    parts.push(tree.leaves.subarray(0, tree.end * DIGEST_BYTES));
    parts.push(tree.names.subarray(0, tree.namesEnd));
  }
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(parts.reduce((crc, part) => crc32(part, crc), 0));
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    writeFileSync(temporary, Buffer.concat([...parts, sum]), { mode: 0o600, flag: 'wx' });
    renameSync(temporary, path);
  } catch (error) {
    try {
      unlinkSync(temporary);
    } catch {
      // It was not made.
    }
    throw error;
  }
}

/** Undefined: there is none that is whole. */
export function readIndex(path: string): { head: IndexHead; trees: TreeIndex[] } | undefined {
  try {
    const bytes = readFileSync(path);
    const end = bytes.length - 4;
    if (end < MAGIC.length + 4 || !bytes.subarray(0, MAGIC.length).equals(MAGIC)) return undefined;
    if (crc32(bytes.subarray(0, end)) !== bytes.readUInt32BE(end)) return undefined;
    let at = MAGIC.length + 4;
    const length = bytes.readUInt32BE(MAGIC.length);
    const head = JSON.parse(bytes.toString('utf8', at, at + length)) as Head;
    if (head.order !== endianness()) return undefined;
    at += length;
    const take = (size: number): Buffer => {
      const start = at;
      at += size;
      return bytes.subarray(start, at);
    };
    const trees = head.trees.map(({ end: count, namesEnd, extras }) => {
      const tree = new TreeIndex(count);
      for (const [name] of KEPT_COLUMNS) {
        const column = tree[name];
        const into = Buffer.from(column.buffer, column.byteOffset, count * column.BYTES_PER_ELEMENT);
        take(into.length).copy(into);
      }
      take(count * DIGEST_BYTES).copy(tree.contents);
      take(count * DIGEST_BYTES).copy(tree.leaves);
      tree.names = Buffer.from(take(namesEnd));
      for (const [id, text] of extras.target) tree.target.set(id, fromBase64(text));
      for (const [id, text] of extras.linkGroup) tree.linkGroup.set(id, fromBase64(text));
      for (const [id, list] of extras.xattrs)
        tree.xattrs.set(
          id,
          list.map(([a, b]): Xattr => [fromBase64(a), fromBase64(b)]),
        );
      tree.restore(count, namesEnd);
      return tree;
    });
    return at === end ? { head, trees } : undefined;
  } catch {
    return undefined;
  }
}
