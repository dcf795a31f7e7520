// One capturer in a process of its own, told by lines what to do: `ROOT STORE OPTIONS`.
import { createInterface } from 'node:readline';
import { Capturer, Store } from '@belay/snapshot';

const [root, dir, options] = process.argv.slice(2);
let pids = [];
const started = performance.now();
const capturer = Capturer.open({
  store: Store.open(dir),
  roots: [root],
  processes: () => pids,
  ...JSON.parse(options),
});
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
say({ open: performance.now() - started });
for await (const line of createInterface({ input: process.stdin })) {
  const [what, ...rest] = line.split(' ');
  pids = rest.map(Number);
  if (what === 'capture' || what === 'verify') {
    const captured = capturer[what]();
    if (captured.kind !== 'state') throw new Error(JSON.stringify(captured));
    say(captured);
  } else if (what === 'memory') say({ rss: process.memoryUsage().rss / 1e6 });
  else if (what === 'written') say(capturer.written);
  else {
    capturer.close();
    say({});
  }
}
