import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const SCRIPT = fileURLToPath(new URL('../bin/start-bwrap.sh', import.meta.url));
let base: string;

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'belay-start-'));
});
afterEach(() => {
  rmSync(base, { recursive: true, force: true });
});

/** In a root where no place for a mount can be made; `log` can be written. */
function start(masks: readonly string[], command: readonly string[], input = '') {
  const own = [
    'bwrap --json-status-fd 4 --unshare-user --ro-bind / / --bind'.split(' '),
    [base, base],
    ...masks.map((path) => ['--ro-bind', '/dev/null', path]),
    ['--'],
  ].flat();
  const args = [SCRIPT, String(own.length), ...own, ...command];
  return spawnSync('sh', args, { encoding: 'utf8', input });
}
const gone = join(homedir(), 'belay-no-such-socket');
const logged = (): string => readFileSync(join(base, 'log'), 'utf8');

describe('starting bubblewrap', () => {
  it('goes on without masks whose sockets are gone', () => {
    writeFileSync(join(base, 'secret'), 'x');
    const script = 'echo started >> "$0/log"; cat; cat "$0/secret"; exit 7';
    const masks = [gone, join(base, 'secret'), `${gone}-2`];
    const { status, stdout, stderr } = start(masks, ['sh', '-c', script, base], 'what was sent\n');
    expect(status).toBe(7);
    expect(stdout).toBe('what was sent\n');
    expect(stderr).toContain("Can't create file");
    // The mask of what is still there has stayed.
    expect(stderr).toContain('secret: Permission denied');
    expect(logged()).toBe('started\n');
  });

  it('starts the command once, whatever it ends with', () => {
    for (const [script, status] of [
      ['exit 0', 0],
      ['exit 1', 1],
      ['kill -9 $$', 137],
    ] as const) {
      writeFileSync(join(base, 'log'), '');
      const words = ['sh', '-c', `echo started >> "$0/log"; ${script}`, base, '--ro-bind', '/dev/null', gone];
      expect(start([], words).status, script).toBe(status);
      expect(logged(), script).toBe('started\n');
    }
  });

  it('leaves the words of the command as they are', () => {
    const words = ['printf', '%s|', 'a b', '--ro-bind', '/dev/null', gone, '', '*', '$x', "'"];
    expect(start([gone], words).stdout).toBe(`${words.slice(2).join('|')}|`);
  });

  it('does not try for ever, and says what is wrong', () => {
    const { status, stderr } = start([], ['--no-such-option']);
    expect(status).toBe(1);
    expect(stderr.match(/bwrap:/g)).toHaveLength(1);
  });

  it('hands down no descriptor of its own', () => {
    const listed = (stdout: string) => stdout.split('\n').filter((fd) => fd !== '' && Number(fd) < 10);
    const { stdout } = start([gone], ['ls', '/proc/self/fd']);
    // The fourth is the folder that is being listed; who started us may have left some far above.
    expect(listed(stdout)).toEqual(['0', '1', '2', '3']);
  });
});
