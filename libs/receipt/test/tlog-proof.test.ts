import { ed25519Signer } from '@belay/note';
import { formatTlogProof, parseTlogProof, TLOG_PROOF_CHECKS, verifyTlogProof } from '@belay/receipt';
import { describe, expect, test } from 'vitest';
import { checkpointOf, ENTRIES, inclusionOf, KEY, ORIGIN } from './sample.js';

const proofOf = (index: number, size: number = ENTRIES.length): Buffer =>
  Buffer.from(
    formatTlogProof({
      extra: ENTRIES[index] as Buffer,
      index: BigInt(index),
      proof: inclusionOf(index, size),
      checkpoint: checkpointOf(size),
    }),
  );

const bad = (bytes: Buffer, key: string | undefined = KEY): string[] =>
  verifyTlogProof(bytes, { key })
    .checks.filter(({ status }) => status !== 'ok')
    .map(({ name, status }) => name + (status === 'failed' ? '!' : '?'));

describe('tlog-proof', () => {
  test('of every entry at every size', () => {
    for (let size = 1; size <= ENTRIES.length; size++) {
      for (let index = 0; index < size; index++) {
        const bytes = proofOf(index, size);
        expect(verifyTlogProof(bytes, { key: KEY }).verdict).toBe('VALID');
        expect(formatTlogProof(parseTlogProof(bytes))).toBe(bytes.toString());
      }
    }
  });

  test('is the text that the format shows', () => {
    const lines = proofOf(3).toString().split('\n');
    expect(lines[0]).toBe('c2sp.org/tlog-proof@v1');
    expect(lines[1]).toBe(`extra ${(ENTRIES[3] as Buffer).toString('base64')}`);
    expect(lines[2]).toBe('index 3');
    expect(lines.slice(3, 7)).toEqual(inclusionOf(3).map((hash) => hash.toString('base64')));
    expect(lines[7]).toBe('');
    expect(lines.slice(8).join('\n')).toBe(checkpointOf(ENTRIES.length));
  });

  test('names no key: without a pin it is not decided, with another it is refused', () => {
    expect(verifyTlogProof(proofOf(3)).verdict).toBe('INDETERMINATE');
    expect(bad(proofOf(3), ed25519Signer(ORIGIN, Buffer.alloc(32, 1)).vkey)).toEqual(['checkpoint!']);
    expect(bad(proofOf(3), ed25519Signer('other.example', Buffer.alloc(32, 1)).vkey)).toEqual([
      'trust!',
      'checkpoint!',
    ]);
    expect(verifyTlogProof(Buffer.alloc(0), { key: KEY }).checks.map(({ name }) => name)).toEqual([
      ...TLOG_PROOF_CHECKS,
    ]);
  });

  test('every single byte changed: never VALID', () => {
    const bytes = proofOf(4, 5);
    for (let at = 0; at < bytes.length; at++) {
      for (const change of [1, 0x20, 0x80]) {
        const changed = Buffer.from(bytes);
        changed[at] = (changed[at] as number) ^ change;
        const { verdict } = verifyTlogProof(changed, { key: KEY });
        if (verdict !== 'INVALID') throw new Error(`byte ${at} ^ ${change}: ${verdict}`);
      }
    }
  });

  test('each lie by its check', () => {
    const good = parseTlogProof(proofOf(3));
    const lie = (change: Partial<typeof good>): string[] =>
      bad(Buffer.from(formatTlogProof({ ...good, ...change })));
    expect(lie({})).toEqual([]);
    expect(lie({ index: 2n })).toEqual(['entry!', 'inclusion!']);
    expect(lie({ extra: ENTRIES[4] as Buffer })).toEqual(['entry!', 'inclusion!']);
    expect(lie({ proof: good.proof.slice(1) })).toEqual(['inclusion!']);
    expect(lie({ proof: good.proof.toReversed() })).toEqual(['inclusion!']);
    expect(lie({ checkpoint: checkpointOf(7) })).toEqual(['inclusion!']);
    const { extra: _, ...bare } = good;
    expect(bad(Buffer.from(formatTlogProof(bare)))).toEqual(['entry?', 'inclusion?']);
  });

  test('other spellings are refused', () => {
    const text = proofOf(3).toString();
    for (const wrong of [
      text.replace('index 3', 'index 03'),
      text.replace('index 3', 'index +3'),
      text.replace('index 3', 'index 18446744073709551616'),
      text.replace('extra ', 'extra  '),
      text.replace('@v1', '@v2'),
      text.replace(/^extra .*\n/mu, (line) => line + line),
      text.replaceAll('\n', '\r\n'),
      `\n${text}`,
      text.replace('\n\n', `\n${'A'.repeat(43)}=\n`.repeat(70) + '\n'),
      `${text}${'x'.repeat(70_000)}`,
    ]) {
      expect(verifyTlogProof(Buffer.from(wrong), { key: KEY }).verdict).toBe('INVALID');
    }
  });
});
