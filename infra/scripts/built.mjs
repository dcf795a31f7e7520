// Compiles whatever is out of date. TypeScript's build mode keeps its own record of what each package was made from,
// so a tree that is up to date costs a second and no second opinion of ours on staleness is needed.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const tsc = fileURLToPath(new URL('../../node_modules/typescript/bin/tsc', import.meta.url));

if (!existsSync(tsc)) {
  console.error('Dependencies are not installed: run `npm ci` first.');
  process.exit(69);
}
const { status } = spawnSync(process.execPath, [tsc, '-b'], { cwd: root, stdio: 'inherit' });
process.exit(status ?? 70);
