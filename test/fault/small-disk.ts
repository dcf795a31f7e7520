import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A disk of a test's own, which can be filled to its last byte. */
export interface SmallDisk {
  readonly dir: string;
  /** What is full: everything on it, or the files of the processes named. */
  readonly whole: boolean;
  /** From here to `free`, it takes no more bytes of these processes (of any process where it is `whole`). */
  stuff(pids: readonly number[]): void;
  free(pids: readonly number[]): void;
  close(): void;
}

/**
 * A file system in memory where we may mount one, which takes root: then the whole machine of the test is full. Else a
 * limit on the size of files of the processes that write, which the kernel keeps for everybody.
 */
export function smallDisk(megabytes: number): SmallDisk {
  const dir = mkdtempSync(join(tmpdir(), 'belay-disk-'));
  chmodSync(dir, 0o755);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=755`, 'belay-test', dir]);
  return mounted.status === 0 ? new MountedDisk(dir) : new LimitedFiles(dir);
}

class MountedDisk implements SmallDisk {
  readonly dir: string;
  readonly whole = true;

  constructor(dir: string) {
    this.dir = dir;
  }

  stuff(): void {
    const fd = openSync(join(this.dir, 'filler'), 'a');
    try {
      for (const size of [1 << 20, 4096, 1]) {
        const piece = Buffer.alloc(size, 0x66);
        while (takes(fd, piece));
      }
    } finally {
      closeSync(fd);
    }
  }

  free(): void {
    rmSync(join(this.dir, 'filler'), { force: true });
  }

  close(): void {
    // What is still open there must not keep a test from ending.
    spawnSync('umount', ['--lazy', this.dir]);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

function takes(fd: number, piece: Buffer): boolean {
  try {
    return writeSync(fd, piece) === piece.length;
  } catch {
    return false;
  }
}

class LimitedFiles implements SmallDisk {
  readonly dir: string;
  readonly whole = false;

  constructor(dir: string) {
    this.dir = dir;
  }

  stuff(pids: readonly number[]): void {
    this.#limit(pids, String(Math.max(...this.#sizes(), 1)));
  }

  free(pids: readonly number[]): void {
    this.#limit(pids, 'unlimited');
  }

  close(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }

  #limit(pids: readonly number[], soft: string): void {
    for (const pid of pids) {
      if (existsSync(`/proc/${pid}`))
        execFileSync('prlimit', ['--pid', String(pid), `--fsize=${soft}:unlimited`]);
    }
  }

  #sizes(): number[] {
    return readdirSync(this.dir, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.jsonl') || name.endsWith('lines'))
      .map((name) => statSync(join(this.dir, name)).size);
  }
}
