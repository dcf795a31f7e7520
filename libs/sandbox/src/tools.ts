/** Programs of this machine that a boundary is made with. */

import { accessSync, constants, statSync } from 'node:fs';
import { join } from 'node:path';

/** Where distributions have them, also where a user's PATH does not say so. */
const USUAL = ['/usr/bin', '/bin', '/usr/local/bin', '/usr/sbin', '/sbin', '/run/current-system/sw/bin'];

/**
 * The path of a program. What an agent's PATH says comes last: it may lead into a workspace that the agent writes.
 */
export function findTool(name: string, path: string | undefined): string | undefined {
  for (const folder of [...USUAL, ...(path ?? '').split(':')]) {
    if (!folder.startsWith('/')) continue;
    const candidate = join(folder, name);
    try {
      accessSync(candidate, constants.X_OK);
      if (statSync(candidate).isFile()) return candidate;
    } catch {
      // Not here.
    }
  }
  return undefined;
}
