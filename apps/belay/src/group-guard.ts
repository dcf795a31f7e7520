/** Sees to it that a server's process group ends even when this process is killed. */

import { type ChildProcess, spawn } from 'node:child_process';
import type { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';

const SCRIPT = fileURLToPath(new URL('../bin/end-group.sh', import.meta.url));

/**
 * A shell of its own session that waits at the other end of a pipe. Nothing but the death of this process, of whatever
 * kind, closes the pipe without a word; then it sends the group SIGTERM and, a second later, SIGKILL. What has left the
 * group is out of its reach, as it is out of ours.
 */
export class GroupGuard {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, onMissing: () => void) {
    this.#child = child;
    child.once('error', onMissing);
    // It may have been killed; whoever does that has seen to the group, or means to leave it alone.
    child.stdin?.on('error', () => undefined);
    child.unref();
    (child.stdin as Writable & { unref?: () => void }).unref?.();
  }

  /** Before the server is started, so that nothing has to be waited for afterwards. */
  static start(onMissing: () => void): GroupGuard {
    // The root as working directory keeps no file system from being unmounted; the environment is none of its business.
    const child = spawn('/bin/sh', [SCRIPT], {
      cwd: '/',
      env: { PATH: '/usr/bin:/bin' },
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    });
    return new GroupGuard(child, onMissing);
  }

  watch(group: number): void {
    this.#child.stdin?.write(`${group}\n`);
  }

  /** The group has been ended, and its number may soon be another's. */
  settle(): void {
    this.#child.stdin?.end('settled\n');
  }
}
