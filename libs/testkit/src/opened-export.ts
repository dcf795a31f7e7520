import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import {
  ArchiveWriter,
  contentOf,
  type ExportManifest,
  formatManifest,
  parseManifest,
  readArchive,
} from '@belay/export';
import type { NoteSigner } from '@belay/note';
import { parseDsse, signPayload } from '@belay/receipt';

/** The files of an export by name, the manifest apart. */
export interface OpenedExport {
  readonly files: Map<string, Buffer>;
  manifest: ExportManifest;
}

export async function openExport(path: string): Promise<OpenedExport> {
  const handle = await open(path, 'r');
  try {
    const files = new Map<string, Buffer>();
    for (const file of await readArchive(handle)) {
      const blocks = [];
      for await (const block of contentOf(handle, file)) blocks.push(block);
      files.set(file.name, Buffer.concat(blocks));
    }
    const manifest = parseManifest(parseDsse(files.get('manifest.json') as Buffer).payload);
    files.delete('manifest.json');
    return { files, manifest };
  } finally {
    await handle.close();
  }
}

/** What a collector that lies would have signed: the same export with its files changed, and a manifest to match. */
export async function resigned(
  path: string,
  target: string,
  { signer }: { readonly signer: NoteSigner },
  change: (opened: OpenedExport) => void,
): Promise<Buffer> {
  const opened = await openExport(path);
  change(opened);
  const handle = await open(target, 'w+');
  try {
    const writer = new ArchiveWriter(handle);
    const files = [];
    for (const [name, content] of opened.files) files.push(await writer.add(name, content.length, [content]));
    const envelope = signPayload(formatManifest({ ...opened.manifest, files }), signer);
    await writer.add('manifest.json', envelope.length, [envelope]);
    await writer.finish();
  } finally {
    await handle.close();
  }
  return readFileSync(target);
}
