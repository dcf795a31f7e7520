import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Capturer, Store } from '../src/index.js';

/** Makes folders and fills each at once, as an unpacker does. */
const UNPACK = `const { mkdirSync, writeFileSync } = require('node:fs');
for (let folder = 0; folder < 60; folder++) {
  const at = process.argv[1] + '/d' + folder;
  mkdirSync(at);
  for (let file = 0; file < 60; file++) writeFileSync(at + '/f' + file, String(file));
}`;

test('folders that are filled while they are looked at are what they are, to their times', async () => {
  for (let round = 0; round < 3; round++) {
    const base = mkdtempSync(join(tmpdir(), 'belay-burst-'));
    const root = join(base, 'w');
    mkdirSync(root);
    const store = Store.open(join(base, 's'));
    const capturer = Capturer.open({ store, roots: [root] });
    capturer.capture();
    const child = spawn(process.execPath, ['-e', UNPACK, root], { stdio: 'inherit' });
    const ended = once(child, 'exit');
    let running = true;
    void ended.then(() => (running = false));
    while (running) {
      capturer.capture();
      await new Promise((resolve) => setImmediate(resolve));
    }
    const quiet = capturer.capture();
    const whole = capturer.verify();
    expect(quiet).toMatchObject({ kind: 'state', entries: 1 + 60 + 3_600 });
    expect(whole).toMatchObject({
      kind: 'state',
      digest: quiet.kind === 'state' ? quiet.digest : '',
      changed: { created: 0, modified: 0, deleted: 0, metadata: 0 },
    });
    capturer.close();
    rmSync(base, { recursive: true });
  }
}, 60_000);
