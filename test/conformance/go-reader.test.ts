import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, normalize } from 'node:path';
import {
  CompactRange,
  entriesPath,
  entryBundle,
  type Hash,
  leafHash,
  partialWidth,
  TILE_WIDTH,
  tilePath,
} from '@belay/merkle';
import { ed25519Signer, formatCheckpoint, signNote } from '@belay/note';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildGoReader, type GoReader, goReaderAbsent } from './go-reader.js';

const origin = 'belay.example/conformance/go';
const signer = ed25519Signer(origin, Buffer.alloc(32, 0x21));
const AUTH = 'Bearer only-for-readers';

/** Writes what a log of `size` entries publishes, as plain files. Returns the checkpoint. */
async function publish(folder: string, size: number): Promise<string> {
  const entries = Array.from({ length: size }, (_, i) => Buffer.from(`entry ${i} ${'.'.repeat(i % 90)}`));
  const levels: Hash[][] = [];
  const tree = CompactRange.empty();
  for (const entry of entries) {
    tree.append(leafHash(entry), (id, hash) => {
      if (id.level % 8 === 0) (levels[id.level / 8] ??= []).push(hash);
    });
  }
  const files = new Map<string, Buffer>();
  for (const [level, hashes] of levels.entries()) {
    const partial = partialWidth(level, BigInt(size));
    for (let n = 0; n * TILE_WIDTH < hashes.length; n++) {
      const tile = hashes.slice(n * TILE_WIDTH, (n + 1) * TILE_WIDTH);
      expect(tile.length).toBe(n < Math.floor(hashes.length / TILE_WIDTH) ? TILE_WIDTH : partial);
      files.set(tilePath(level, BigInt(n), tile.length), Buffer.concat(tile));
    }
  }
  for (let n = 0; n * TILE_WIDTH < size; n++) {
    const bundle = entries.slice(n * TILE_WIDTH, (n + 1) * TILE_WIDTH);
    files.set(entriesPath(BigInt(n), bundle.length), entryBundle(bundle));
  }
  const checkpoint = signNote(formatCheckpoint({ origin, size: tree.end, root: tree.root() }), [signer]);
  files.set('checkpoint', Buffer.from(checkpoint));
  for (const [path, bytes] of files) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), bytes);
  }
  return checkpoint;
}

describe.skipIf(goReaderAbsent !== undefined)(
  `a log reader that is not ours${goReaderAbsent === undefined ? '' : ` (skipped: ${goReaderAbsent})`}`,
  () => {
    let reader: GoReader;
    let folder: string;
    let server: Server;
    let root: string;

    beforeAll(async () => {
      reader = await buildGoReader();
      folder = await mkdtemp(join(tmpdir(), 'belay-tiles-'));
      server = createServer((request, response) => {
        const path = normalize(decodeURIComponent(new URL(request.url ?? '/', 'http://x').pathname));
        const allowed = !path.startsWith('/private/') || request.headers.authorization === AUTH;
        void (allowed ? readFile(join(folder, path)) : Promise.reject(new Error('no key'))).then(
          (bytes) => response.writeHead(200).end(bytes),
          () => response.writeHead(allowed ? 404 : 401).end(),
        );
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      root = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    });

    afterAll(async () => {
      await new Promise((resolve) => server?.close(resolve));
      await reader?.close();
      await rm(folder, { recursive: true, force: true });
    });

    test.each([1, 2, 255, 256, 257, 700])('every entry of a log of %i', async (size) => {
      await publish(join(folder, `log-${size}`), size);
      const outcome = await reader.read(`${root}/log-${size}/`, signer.vkey);
      expect(outcome).toMatchObject({
        ok: true,
        report: { origin, size, included: size, consistent: size > 1 ? [Math.floor(size / 2)] : [] },
      });
    });

    test('an empty log', async () => {
      await publish(join(folder, 'empty'), 0);
      expect(await reader.read(`${root}/empty`, signer.vkey)).toMatchObject({
        ok: true,
        report: { size: 0 },
      });
    });

    test('from an earlier checkpoint of the same log', async () => {
      const size = 1_300;
      const old = join(folder, 'old-checkpoint');
      await writeFile(old, await publish(join(folder, 'before'), 900));
      await publish(join(folder, 'after'), size);
      const outcome = await reader.read(`${root}/after`, signer.vkey, { old });
      expect(outcome).toMatchObject({ ok: true, report: { size, included: size, consistent: [900] } });
    });

    test('behind an Authorization header', async () => {
      await publish(join(folder, 'private/log'), 3);
      const base = `${root}/private/log`;
      expect(await reader.read(base, signer.vkey, { auth: AUTH })).toMatchObject({ ok: true });
      expect(await reader.read(base, signer.vkey)).toMatchObject({ ok: false });
    });

    test('it complains about what it should: another key, a changed entry, a changed tile, another past', async () => {
      const log = join(folder, 'bad');
      await publish(log, 300);
      const base = `${root}/bad`;
      const other = ed25519Signer(origin, Buffer.alloc(32, 0x22));
      expect(await reader.read(base, other.vkey)).toMatchObject({ ok: false });

      const spoil = async (path: string, at: number): Promise<string> => {
        const good = await readFile(join(log, path));
        const bad = Buffer.from(good);
        bad[at] = (bad[at] as number) ^ 1;
        await writeFile(join(log, path), bad);
        const outcome = await reader.read(base, signer.vkey);
        await writeFile(join(log, path), good);
        return outcome.ok ? 'accepted' : outcome.complaint;
      };
      expect(await spoil(entriesPath(0n), 1_000)).toMatch(/entry \d+: /u);
      expect(await spoil(tilePath(0, 0n), 100)).toMatch(/inconsistent tile|invalid transparency proof/u);
      expect(await spoil(tilePath(0, 1n, 44), 100)).toMatch(/inconsistent tile|invalid transparency proof/u);
      expect(await spoil('checkpoint', origin.length + 10)).toMatch(/checkpoint: /u);

      const old = join(folder, 'fork');
      const forged = formatCheckpoint({ origin, size: 200n, root: leafHash(Buffer.from('another past')) });
      await writeFile(old, signNote(forged, [signer]));
      expect(await reader.read(base, signer.vkey, { old })).toMatchObject({ ok: false });
    });
  },
);
