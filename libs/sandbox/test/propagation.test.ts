import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { placeOutside } from '../src/probe.js';
import { mountsPropagate } from '../src/propagation.js';

const DIST = fileURLToPath(new URL('../dist', import.meta.url));

/** As `/proc/self/mountinfo` has it. */
const line = (fields: string, path = '/'): string =>
  `43 42 254:0 / ${path} rw,relatime ${fields}- ext4 /dev/vda rw,discard\n`;

describe('mounts that come later', () => {
  it('are seen where mounts are shared, or follow others', () => {
    expect(mountsPropagate(line(''))).toBe(false);
    expect(mountsPropagate(line('shared:1 '))).toBe(true);
    expect(mountsPropagate(line('master:7 '))).toBe(true);
    expect(mountsPropagate(line('') + line('shared:12 master:1 ', '/mnt'))).toBe(true);
    expect(mountsPropagate(line('propagate_from:2 unbindable '))).toBe(false);
    // A folder of that name is none.
    expect(mountsPropagate(line('', '/srv/shared:1'))).toBe(false);
    expect(mountsPropagate('')).toBe(false);
  });
});

// Only root can make a machine whose mounts are shared, and mount something in it.
if (process.getuid?.() === 0)
  describe('on a machine whose mounts are shared', () => {
    let base: string;
    beforeEach(() => {
      base = mkdtempSync(join(placeOutside(['/srv', '/opt'], []) ?? tmpdir(), 'belay-test-'));
      mkdirSync(join(base, 'work'));
      mkdirSync(join(base, 'outside'));
    });
    afterEach(() => {
      rmSync(base, { recursive: true, force: true });
    });

    it('nothing that is mounted after the start can be written', () => {
      writeFileSync(
        join(base, 'check.mjs'),
        `import { checkBoundary } from '${DIST}/probe.js';
       import { DEFAULT_POLICY } from '${DIST}/policy.js';
       import { mountsPropagate } from '${DIST}/propagation.js';
       const { record, rows, verdict } = await checkBoundary({
         policy: { ...DEFAULT_POLICY, backend: 'bwrap', roots: ['${base}/work'] },
         host: {}, env: process.env, outside: '${base}/outside', workspace: '${base}/work', tmp: '/tmp', home: '/',
         credentials: [], realSockets: [], rows: ['escape-write', 'escape-late-mount', 'escape-remount', 'life-write'],
       });
       const marks = Object.fromEntries(rows.map(({ row, mark, control }) => [row, [mark, control]]));
       console.log(JSON.stringify({ shared: mountsPropagate(), verdict, late: record.holes.includes('late-mount'), marks }));`,
      );
      const script = 'mount --make-rshared / && exec "$0" "$1"';
      const args = [
        '--mount',
        '--propagation',
        'private',
        'sh',
        '-c',
        script,
        process.execPath,
        join(base, 'check.mjs'),
      ];
      const { stdout, stderr } = spawnSync('unshare', args, { encoding: 'utf8' });
      expect(stderr).toBe('');
      expect(JSON.parse(stdout)).toEqual({
        shared: true,
        verdict: 'holds',
        late: false,
        marks: {
          'escape-write': ['refused', 'works'],
          'escape-late-mount': ['refused', 'works'],
          'escape-remount': ['refused', 'works'],
          'life-write': ['works', 'works'],
        },
      });
    });
  });
