// Tidies a store up and kills itself at its Nth act on the file system: `STORE N DIGEST...`. Says `done` where it got
// to its end. The calls are the real ones; they are only counted.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const [dir, limit, ...keep] = process.argv.slice(2);
let acts = 0;
for (const name of [
  'openSync',
  'writeSync',
  'fsyncSync',
  'renameSync',
  'unlinkSync',
  'linkSync',
  'writeFileSync',
]) {
  const call = fs[name];
  fs[name] = (...args) => {
    if (++acts === Number(limit)) process.kill(process.pid, 'SIGKILL');
    return call(...args);
  };
}
syncBuiltinESMExports();
const { gc } = await import('../dist/index.js');
gc(dir, { keep });
fs.writeSync(1, `done ${acts}\n`);
