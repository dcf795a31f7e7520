#!/usr/bin/env node
import { existsSync } from 'node:fs';

const main = new URL('../dist/main.js', import.meta.url);
if (!existsSync(main)) {
  console.error('belay: not built yet. Run `npm run build` in its folder.');
  process.exit(70);
}
const { run } = await import(main.href);
process.exitCode = await run(process.argv.slice(2));
