/** Which states traces name: what a verdict may still need. */

import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** As a record has it. In a frame that a trace holds, quotes are escaped or encoded, so this is no text of a server's. */
const NAMED = /"state":"(sha256:[0-9a-f]{64})"/g;
/** Longer than any match. */
const OVERLAP = 128;

/**
 * By digest, the files that name it. Damaged records count as well: to keep too much costs room, to drop what is needed
 * costs a verdict. Folders that are not there hold no traces.
 */
export async function statesInTraces(folders: readonly string[]): Promise<Map<string, string[]>> {
  const named = new Map<string, string[]>();
  for (const folder of new Set(folders)) {
    for (const file of await tracesIn(folder)) {
      for (const digest of await statesIn(file)) named.set(digest, [...(named.get(digest) ?? []), file]);
    }
  }
  return named;
}

async function tracesIn(folder: string): Promise<string[]> {
  try {
    const names = await readdir(folder);
    return names.filter((name) => name.endsWith('.jsonl')).map((name) => join(folder, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

async function statesIn(file: string): Promise<Set<string>> {
  const found = new Set<string>();
  let rest = '';
  for await (const chunk of createReadStream(file, { encoding: 'latin1', highWaterMark: 1024 * 1024 })) {
    const text = rest + (chunk as string);
    for (const [, digest] of text.matchAll(NAMED)) if (digest !== undefined) found.add(digest);
    rest = text.slice(-OVERLAP);
  }
  return found;
}
