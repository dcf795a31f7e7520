/** Files that appear whole or not at all. */

import { open, rename, unlink } from 'node:fs/promises';

/** A crash leaves the file as it was or whole. */
export async function writeWhole(path: string, bytes: Buffer): Promise<void> {
  const fresh = `${path}.${process.pid}.new`;
  const handle = await open(fresh, 'wx', 0o644);
  try {
    await handle.writeFile(bytes);
    await handle.close();
    await rename(fresh, path);
  } catch (error) {
    await handle.close().catch(() => undefined);
    await unlink(fresh).catch(() => undefined);
    throw error;
  }
}
