// A process that changes a tree and captures it, over and over, until it is killed: `ROOT STORE SEED`. What it was told
// is a state, it says at once.
import { mkdirSync, renameSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { Capturer, Store } from '../dist/index.js';

const [root, dir, seed] = process.argv.slice(2);
const capturer = Capturer.open({ store: Store.open(dir), roots: [root] });
let n = Number(seed) * 1_000_000;
for (;;) {
  const folder = join(root, `d${n % 5}`);
  mkdirSync(folder, { recursive: true });
  for (let i = 0; i < 40; i++, n++) writeFileSync(join(folder, `f${n % 60}`), `${n} `.repeat(1 + (n % 4000)));
  writeFileSync(join(root, 'large'), Buffer.alloc(5_000_000, `${n}`));
  if (n % 7 === 0) rmSync(join(root, `d${(n + 1) % 5}`), { recursive: true, force: true });
  if (n % 11 === 0) renameSync(folder, join(root, `r${n}`));
  const captured = capturer.capture();
  writeSync(1, `${captured.kind === 'state' ? captured.digest : captured.cause}\n`);
}
