#!/usr/bin/env node
import { existsSync } from 'node:fs';

const main = new URL('../dist/main.js', import.meta.url);
if (!existsSync(main)) {
  console.error('belay: not built yet. Run `npm run build` in its folder.');
  process.exit(70);
}
const [command, first] = process.argv.slice(2);
if (command === 'hook' && (first === undefined || /^--(?!help)/.test(first))) {
  // An agent waits for each of its hooks: this one goes past everything that other commands need.
  const { runHook } = await import(new URL('../dist/hook.js', import.meta.url).href);
  process.exitCode = await runHook(process.argv.slice(3));
} else {
  const { run } = await import(main.href);
  process.exitCode = await run(process.argv.slice(2));
}
