import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { type ArchivedFile, ArchiveWriter, contentOf, readArchive } from '@belay/export';

const folder = mkdtempSync(join(tmpdir(), 'belay-archive-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const path = join(folder, 'some.zip');

async function write(
  files: readonly (readonly [name: string, content: Buffer])[],
  large?: number,
): Promise<Buffer> {
  const handle = await open(path, 'w+');
  try {
    const writer = new ArchiveWriter(handle, large);
    for (const [name, content] of files) await writer.add(name, content.length, [content]);
    const size = await writer.finish();
    const bytes = readFileSync(path);
    expect(bytes.length).toBe(size);
    return bytes;
  } finally {
    await handle.close();
  }
}

async function read(bytes: Buffer, large?: number): Promise<(ArchivedFile & { content: Buffer })[]> {
  writeFileSync(path, bytes);
  const handle = await open(path, 'r');
  try {
    const found = [];
    for (const file of await readArchive(handle, large)) {
      const blocks = [];
      for await (const block of contentOf(handle, file)) blocks.push(block);
      found.push({ ...file, content: Buffer.concat(blocks) });
    }
    return found;
  } finally {
    await handle.close();
  }
}

const FILES = [
  ['a.md', Buffer.from('first\n')],
  ['empty', Buffer.alloc(0)],
  ['z.json', Buffer.from('{"last":true}')],
] as const;

describe('an archive', () => {
  test.each([
    ['plain', undefined],
    ['zip64 for a large file', 10],
    ['zip64 throughout', 1],
  ] as const)('is read as it was written, by others too: %s', async (_, large) => {
    const bytes = await write(FILES, large);
    expect((await read(bytes, large)).map(({ name, content }) => [name, content])).toEqual(FILES);
    const python = `import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
assert z.testzip() is None
print([(i.filename, z.read(i).decode()) for i in z.infolist()])`;
    expect(execFileSync('python3', ['-c', python, path], { encoding: 'utf8' })).toBe(
      `[('a.md', 'first\\n'), ('empty', ''), ('z.json', '{"last":true}')]\n`,
    );
  });

  test('has one form: any other byte around the contents is refused', async () => {
    for (const large of [undefined, 10, 1]) {
      const bytes = await write(FILES, large);
      const files = await read(bytes, large);
      const inContent = (at: number): boolean =>
        files.some(({ offset, size }) => at >= offset && at < offset + size);
      for (let at = 0; at < bytes.length; at++) {
        if (inContent(at)) continue;
        const changed = Buffer.from(bytes);
        changed[at] = (changed[at] as number) ^ (1 << (at % 8));
        // A name or a checksum that was changed in one of its two places only; in both it is another archive.
        await expect(read(changed, large), `byte ${at}`).rejects.toMatchObject({ code: 'malformed' });
      }
      for (const other of [
        bytes.subarray(0, -1),
        Buffer.concat([bytes, Buffer.alloc(1)]),
        Buffer.concat([Buffer.alloc(1), bytes]),
        Buffer.concat([bytes, bytes]),
        bytes.subarray(0, 10),
      ]) {
        await expect(read(other, large)).rejects.toMatchObject({ code: 'malformed' });
      }
    }
  });

  test('with bytes at random is refused or whole, and nothing is allocated for what it claims', async () => {
    const bytes = await write(FILES);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(bytes.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 }),
        async (changes) => {
          const changed = Buffer.from(bytes);
          for (const [at, value] of changes) changed[at] = value;
          try {
            await read(changed);
          } catch (error) {
            expect(error).toMatchObject({ name: 'ExportError', code: 'malformed' });
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  test('says when a file is not of the size that was said', async () => {
    const handle = await open(path, 'w+');
    try {
      const writer = new ArchiveWriter(handle);
      await expect(writer.add('a', 2, [Buffer.from('abc')])).rejects.toMatchObject({ code: 'source' });
    } finally {
      await handle.close();
    }
  });
});
