import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A folder of a test's own, which the user that PostgreSQL runs as may enter. */
export function makeScratch(name: string): { readonly dir: string; remove(): void } {
  const dir = mkdtempSync(join(tmpdir(), `belay-${name}-`));
  chmodSync(dir, 0o755);
  return { dir, remove: () => rmSync(dir, { recursive: true, force: true }) };
}
