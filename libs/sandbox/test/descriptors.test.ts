import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const DIST = fileURLToPath(new URL('../dist/descriptors.js', import.meta.url));

/** What a child of a process started with descriptor 40 of /etc has open, before and after. */
const SCRIPT = `
import { spawnSync } from 'node:child_process';
import { keepDescriptors } from ${JSON.stringify(DIST)};
const child = () => spawnSync('ls', ['-l', '/proc/self/fd'], { encoding: 'utf8' }).stdout;
const before = child().includes('/etc');
keepDescriptors();
console.log(JSON.stringify({ before, after: child().includes('/etc') }));
`;

describe('descriptors that we were started with', () => {
  it('do not go on to what we start', () => {
    const open = 'exec 40</etc; exec "$0" --input-type=module -e "$1"';
    const { stdout, stderr } = spawnSync('bash', ['-c', open, process.execPath, SCRIPT], {
      encoding: 'utf8',
    });
    expect(stderr).toBe('');
    // The first half is Node's doing, which closes only those below the first gap.
    expect(JSON.parse(stdout)).toEqual({ before: true, after: false });
  });
});
