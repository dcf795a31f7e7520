// A session that keeps three states of a workspace and ends: `STORE WORKSPACE`. Prints their digests.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Capturer, Store } from '@belay/snapshot';

const [dir, work] = process.argv.slice(2);
const capturer = Capturer.open({ store: Store.open(dir), roots: [work] });
for (const text of ['1', '2', '3']) {
  writeFileSync(join(work, 'f'), text.repeat(50_000));
  console.log(capturer.capture().digest);
}
capturer.close();
