// `npm run bench [-- NAME ...]`: each benchmark is a module here with a `run({ scale })` that prints a table and
// returns its figures; `--json` prints them all at the end. Benchmarks measure, they never assert.
import { parseArgs } from 'node:util';

const BENCHES = [
  'merkle',
  'ingest',
  'proxy',
  'proxy-http',
  'gate',
  'attest-first',
  'hook',
  'sandbox',
  'snapshot',
  'restore',
  'verify',
  'receipt',
  'export',
  'coverage',
];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: 'boolean' }, scale: { type: 'string', default: '1' } },
});
const names = positionals.length > 0 ? positionals : BENCHES;
const unknown = names.filter((name) => !BENCHES.includes(name));
if (unknown.length > 0) {
  console.error(`no benchmark ${unknown.join(', ')}; there are ${BENCHES.join(', ')}`);
  process.exit(64);
}
const figures = {};
for (const name of names) {
  console.log(`\n== ${name}`);
  const { run } = await import(`./${name}.mjs`);
  figures[name] = await run({ scale: Number(values.scale) });
}
if (values.json) console.log(JSON.stringify(figures, null, 2));
