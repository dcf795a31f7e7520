import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { mountsOf, otherPaths } from '../src/aliases.js';
import { placeOutside } from '../src/probe.js';

const DIST = fileURLToPath(new URL('../dist', import.meta.url));

describe('other paths of the same thing', () => {
  const mounts = mountsOf(
    [
      '27 1 254:0 / / rw,relatime - ext4 /dev/vda rw',
      '28 27 254:1 /@home /home rw,relatime shared:2 - btrfs /dev/vdb rw',
      '29 27 254:1 / /mnt/all\\040of\\040it rw,relatime - btrfs /dev/vdb rw',
      '30 27 254:0 /srv/data /var/data rw,relatime - ext4 /dev/vda rw',
      '31 27 0:40 / /tmp rw,relatime - tmpfs tmpfs rw',
      '',
    ].join('\n'),
  );

  it.each([
    ['/home/me/.ssh', ['/mnt/all of it/@home/me/.ssh']],
    ['/mnt/all of it/@home/me/.ssh', ['/home/me/.ssh']],
    ['/srv/data/key', ['/var/data/key']],
    ['/srv/data', ['/var/data']],
    ['/var/data/key', ['/srv/data/key']],
    ['/srv/database', []],
    ['/etc/shadow', []],
    ['/tmp/x', []],
  ])('%s', (path, others) => {
    expect(otherPaths(path, mounts)).toEqual(others);
  });
});

// Only root mounts a folder twice.
if (process.getuid?.() === 0)
  describe('a hidden folder that is mounted twice', () => {
    let base: string;
    beforeEach(() => {
      base = mkdtempSync(join(placeOutside(['/srv', '/opt'], []) ?? tmpdir(), 'belay-test-'));
      for (const name of ['work', 'home', 'again']) mkdirSync(join(base, name));
      mkdirSync(join(base, 'home', 'keys'));
      writeFileSync(join(base, 'home', 'keys', 'one'), 'secret');
      writeFileSync(join(base, 'home', 'token'), 'secret');
    });
    afterEach(() => {
      rmSync(base, { recursive: true, force: true });
    });

    it.each(['bwrap', 'landlock'])('is hidden at both places (%s)', (backend) => {
      writeFileSync(
        join(base, 'run.mjs'),
        `import { spawnSync } from 'node:child_process';
         import { prepare } from '${DIST}/sandbox.js';
         import { DEFAULT_POLICY } from '${DIST}/policy.js';
         const policy = { ...DEFAULT_POLICY, backend: '${backend}', denials: 'off', roots: ['${base}/work'],
           hide: ['${base}/home/keys', '${base}/home/token'] };
         const script = 'cat ${base}/home/keys/one ${base}/home/token ${base}/again/keys/one ${base}/again/token; echo done';
         const { argv: [program, ...args], fds, env, cwd, dispose, started } = await prepare(policy,
           { argv: ['sh', '-c', script], cwd: '${base}/work', env: { PATH: process.env.PATH } }, { canary: false });
         const { stdout } = spawnSync(program, args, { cwd, env, stdio: ['pipe', 'pipe', 'ignore', ...fds] });
         started(undefined);
         await dispose();
         process.stdout.write(stdout);`,
      );
      const script = 'mount --bind "$1/home" "$1/again" && exec "$0" "$1/run.mjs"';
      const args = ['--mount', '--propagation', 'private', 'sh', '-c', script, process.execPath, base];
      const { stdout, stderr } = spawnSync('unshare', args, { encoding: 'utf8' });
      expect({ stdout, stderr }).toEqual({ stdout: 'done\n', stderr: '' });
    });
  });
