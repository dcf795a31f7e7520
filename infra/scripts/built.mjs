// Compiles whatever is out of date. TypeScript's build mode keeps its own record of what each package was made from,
// so a tree that is up to date costs a second and no second opinion of ours on staleness is needed.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const tsc = fileURLToPath(new URL('../../node_modules/typescript/bin/tsc', import.meta.url));
const installing = process.env.npm_lifecycle_event === 'prepare';

if (!existsSync(tsc)) {
  // `npm install --omit=dev` runs `prepare` too, and has no compiler: an image copies `dist` from its build stage.
  if (installing) process.exit(0);
  console.error('Dependencies are not installed: run `npm ci` first.');
  process.exit(69);
}
const { status } = spawnSync(process.execPath, [tsc, '-b'], { cwd: root, stdio: 'inherit' });
if (installing && status !== 0) {
  // A half-edited source must not keep anybody from installing a dependency; whatever needs the build fails by name.
  console.error('Dependencies are installed, but the sources do not compile: `npm run build` shows why.');
  process.exit(0);
}
process.exit(status ?? 70);
