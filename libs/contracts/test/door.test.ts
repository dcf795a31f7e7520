import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

/** Packages that a source file loads, through its own relative imports; `import type` loads nothing. */
function packages(entry: URL, seen = new Set<string>(), found = new Set<string>()): string[] {
  if (!seen.has(entry.href)) {
    seen.add(entry.href);
    const source = readFileSync(entry, 'utf8');
    for (const [, type, from = ''] of source.matchAll(
      /^(?:import|export) (type )?[^;]*?from '([^']+)';/gms,
    )) {
      if (type) continue;
      if (from.startsWith('.')) packages(new URL(from.replace(/\.js$/, '.ts'), entry), seen, found);
      else found.add(from);
    }
  }
  return [...found].sort();
}

const source = (name: string) => new URL(`../src/${name}`, import.meta.url);

it('the doors the sidecar uses load no zod', () => {
  expect(packages(source('index.ts'))).toEqual(['node:crypto']);
  expect(packages(source('credential.ts'))).toEqual(['node:crypto']);
  expect(packages(source('frame.ts'))).not.toContain('zod');
  expect(packages(source('http.ts'))).toEqual(['@belay/coverage', '@belay/receipt', 'zod']);
  expect(packages(source('verification.ts'))).toEqual(['zod']);
});
