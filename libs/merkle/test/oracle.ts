import { createHash } from 'node:crypto';

/**
 * RFC 6962, section 2.1, written down as its recursive definitions over whole lists of leaves. Slow on purpose,
 * and shares no line with the library that it judges.
 */

export function sha256(...parts: Uint8Array[]): Buffer {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
}

export function leafOf(data: Uint8Array): Buffer {
  return sha256(Buffer.from([0]), data);
}

export function nodeOf(left: Uint8Array, right: Uint8Array): Buffer {
  return sha256(Buffer.from([1]), left, right);
}

/** MTH over leaf hashes. */
export function mth(leaves: readonly Buffer[]): Buffer {
  if (leaves.length === 0) return sha256();
  if (leaves.length === 1) return leaves[0] as Buffer;
  const k = split(leaves.length);
  return nodeOf(mth(leaves.slice(0, k)), mth(leaves.slice(k)));
}

/** PATH(m, D[n]). */
export function path(m: number, leaves: readonly Buffer[]): Buffer[] {
  if (leaves.length === 1) return [];
  const k = split(leaves.length);
  return m < k
    ? [...path(m, leaves.slice(0, k)), mth(leaves.slice(k))]
    : [...path(m - k, leaves.slice(k)), mth(leaves.slice(0, k))];
}

/** PROOF(m, D[n]), for 0 < m <= n. */
export function proof(m: number, leaves: readonly Buffer[]): Buffer[] {
  return subproof(m, leaves, true);
}

function subproof(m: number, leaves: readonly Buffer[], whole: boolean): Buffer[] {
  if (m === leaves.length) return whole ? [] : [mth(leaves)];
  const k = split(leaves.length);
  return m <= k
    ? [...subproof(m, leaves.slice(0, k), whole), mth(leaves.slice(k))]
    : [...subproof(m - k, leaves.slice(k), false), mth(leaves.slice(0, k))];
}

/** Every [begin, end) that a compact range of [begin, end) consists of, found by trying all of them. */
export function cover(begin: number, end: number): [number, number][] {
  const found: [number, number][] = [];
  let at = begin;
  while (at < end) {
    let width = 1;
    for (let w = 1; at + w <= end; w *= 2) if (at % w === 0) width = w;
    found.push([at, at + width]);
    at += width;
  }
  return found;
}

/** Leaf hashes of `n` leaves that are all different. */
export function leavesOf(n: number): Buffer[] {
  return Array.from({ length: n }, (_, i) => leafOf(Buffer.from(`leaf ${i}`)));
}

function split(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}
