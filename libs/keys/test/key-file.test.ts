import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createKeyFile, deriveLogSeed, KeysError, loadOrCreateKeyFile, readKeyFile } from '@belay/keys';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const now = new Date('2026-03-01T12:00:00.000Z');
const seed = Buffer.alloc(32, 5);
const purpose = 'log-master';
let directory: string;
let path: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'belay-keys-'));
  path = join(directory, 'master.key');
});

afterEach(async () => {
  await rm(directory, { recursive: true });
});

async function code(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof KeysError) return error.code;
    throw error;
  }
  return 'accepted';
}

describe('key files', () => {
  test('plain: mode 0600, read back, never overwritten, nothing left beside it', async () => {
    await createKeyFile(path, seed, { purpose, now });
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await readKeyFile(path, { purpose })).toEqual(seed);
    expect(await code(createKeyFile(path, Buffer.alloc(32, 6), { purpose, now }))).toBe('exists');
    expect(await readKeyFile(path, { purpose })).toEqual(seed);
    expect(await readdir(directory)).toEqual(['master.key']);
  });

  test('the mode does not depend on the umask', async () => {
    const before = process.umask(0);
    try {
      await createKeyFile(path, seed, { purpose, now });
    } finally {
      process.umask(before);
    }
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  test('readable by others: refused', async () => {
    await createKeyFile(path, seed, { purpose, now });
    for (const mode of [0o640, 0o604, 0o620, 0o601]) {
      await chmod(path, mode);
      expect([mode, await code(readKeyFile(path, { purpose }))]).toEqual([mode, 'permissions']);
    }
  });

  test('sealed: the seed is not in the file, and only the passphrase opens it', async () => {
    await createKeyFile(path, seed, { purpose, now, passphrase: 'pässword' });
    const text = await readFile(path, 'utf8');
    expect(text).not.toContain(seed.toString('base64').slice(0, 20));
    expect(await readKeyFile(path, { purpose, passphrase: 'pässword' })).toEqual(seed);
    expect(await readKeyFile(path, { purpose, passphrase: 'pa\u0308ssword' })).toEqual(seed);
    expect(await code(readKeyFile(path, { purpose, passphrase: 'password' }))).toBe('passphrase');
    expect(await code(readKeyFile(path, { purpose }))).toBe('passphrase');
  });

  test('sealed: time, cost and ciphertext are bound', async () => {
    await createKeyFile(path, seed, { purpose, now, passphrase: 'p' });
    const text = await readFile(path, 'utf8');
    const changed = async (edit: (text: string) => string): Promise<string> => {
      await writeFile(path, edit(text), { mode: 0o600 });
      return await code(readKeyFile(path, { purpose, passphrase: 'p' }));
    };
    expect(await changed((t) => t.replace('2026-03-01', '2025-03-01'))).toBe('passphrase');
    expect(await changed((t) => t.replace('"n":32768', '"n":16384'))).toBe('passphrase');
    expect(await changed((t) => t.replace('"n":32768', '"n":33554432'))).toBe('malformed');
    expect(await changed((t) => t.replace('"r":8', '"r":0'))).toBe('malformed');
    expect(await changed((t) => t.replace(/"box":"(.)/u, (_, c) => `"box":"${c === 'A' ? 'B' : 'A'}`))).toBe(
      'passphrase',
    );
    expect(await changed((t) => t)).toBe('accepted');
  });

  test('a passphrase for a file that is not sealed is a mistake, not a detail', async () => {
    await createKeyFile(path, seed, { purpose, now });
    expect(await code(readKeyFile(path, { purpose, passphrase: 'p' }))).toBe('passphrase');
    expect(await code(createKeyFile(join(directory, 'b'), seed, { purpose, now, passphrase: '' }))).toBe(
      'passphrase',
    );
    expect(await readdir(directory)).toEqual(['master.key']);
  });

  test('another purpose, another format, damage', async () => {
    await createKeyFile(path, seed, { purpose, now });
    const text = await readFile(path, 'utf8');
    expect(await code(readKeyFile(path, { purpose: 'x509-root' }))).toBe('malformed');
    for (const wrong of [
      '',
      '[]',
      'null',
      text.replace('key/v1', 'key/v2'),
      text.replace(/"seed":"../u, '"seed":"'),
      text.replace(/"seed":"[^"]+"/u, '"seed":7'),
      text.replace(/\[(.*)\]/u, '[$1,$1]'),
      text.replace(/\[.*\]/u, '[]'),
      text.padEnd(20_000),
    ]) {
      await writeFile(path, wrong, { mode: 0o600 });
      expect([wrong, await code(readKeyFile(path, { purpose }))]).toEqual([wrong, 'malformed']);
    }
    expect(await code(readKeyFile(join(directory, 'none'), { purpose }))).toBe('missing');
    expect(await code(readKeyFile(directory, { purpose }))).toBe('malformed');
    expect(await code(createKeyFile(join(directory, 'c'), Buffer.alloc(31), { purpose, now }))).toBe(
      'malformed',
    );
  });

  test('many at once make one key', async () => {
    const all = await Promise.all(
      Array.from({ length: 8 }, async () => await loadOrCreateKeyFile(path, { purpose, now })),
    );
    expect(new Set(all.map((one) => one.seed.toString('hex'))).size).toBe(1);
    expect(all.filter((one) => one.created)).toHaveLength(1);
    expect(await readdir(directory)).toEqual(['master.key']);
    expect((await loadOrCreateKeyFile(path, { purpose, now })).created).toBe(false);
  });
});

describe('derivation', () => {
  test('is HKDF-SHA256, and different for each log', () => {
    // Made once with another language's HMAC: extract with 32 zero bytes, expand one block.
    expect(deriveLogSeed(Buffer.alloc(32, 1), 'belay.example/a').toString('hex')).toBe(
      'eeda3891e0313efec199cf61436a6a19c16b0fd4b28495e530b1d4b211a10a7a',
    );
    const seeds = ['a', 'b', 'a/ack', ''].map((origin) => deriveLogSeed(seed, origin).toString('hex'));
    expect(new Set(seeds).size).toBe(4);
    expect(() => deriveLogSeed(Buffer.alloc(31), 'a')).toThrow(KeysError);
  });
});
