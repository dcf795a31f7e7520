/**
 * Snapshots that the file system makes itself: of a btrfs subvolume, read-only, in a few milliseconds, and of one moment
 * whoever is writing. Made in a directory of the same file system, and removed when its owner is done with it.
 */

import { randomBytes } from 'node:crypto';
import { closeSync, lstatSync, openSync, readdirSync, statfsSync } from 'node:fs';
import { createRequire } from 'node:module';

const BTRFS = 0x9123683e;
/** The inode of every subvolume's root, and of what stands in a snapshot where another subvolume was. */
const SUBVOLUME_ROOT = 256n;
export const NESTED_SUBVOLUME = 2n;

// From <linux/btrfs.h>: struct btrfs_ioctl_vol_args_v2 and struct btrfs_ioctl_vol_args, 4096 bytes each.
const SNAP_CREATE_V2 = 0x50009417;
const SNAP_DESTROY = 0x5000940f;
const RDONLY = 2n;
const [FLAGS, NAME_V2, NAME, SIZE] = [16, 56, 8, 4096];
const ENDING = '.subvol';

export interface Subvolume {
  readonly path: Buffer;
  remove(): void;
}

type Ioctl = (fd: number, request: number, argument: Buffer) => number;
let ioctl: Ioctl | undefined | null = null;

function load(): Ioctl | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    return koffi.load(null).func('int ioctl(int, unsigned long, void *)');
  } catch {
    return undefined;
  }
}

/** Whether a directory is the root of a btrfs subvolume. */
export function isSubvolume(root: Buffer): boolean {
  return statfsSync(root).type === BTRFS && lstatSync(root, { bigint: true }).ino === SUBVOLUME_ROOT;
}

/**
 * A snapshot of `root` in the directory `into`; undefined where there is none to be had: another file system, no
 * subvolume, no right to make or to remove one, no koffi.
 */
export function takeSubvolume(root: Buffer, into: string): Subvolume | undefined {
  if (ioctl === null) ioctl = load();
  const call = ioctl;
  if (!call || !isSubvolume(root)) return undefined;
  const name = `${process.pid}-${randomBytes(8).toString('hex')}${ENDING}`;
  const [source, directory] = [openSync(root, 'r'), openSync(into, 'r')];
  try {
    const argument = Buffer.alloc(SIZE);
    argument.writeBigInt64LE(BigInt(source), 0);
    argument.writeBigUInt64LE(RDONLY, FLAGS);
    argument.write(name, NAME_V2);
    if (call(directory, SNAP_CREATE_V2, argument) !== 0) return undefined;
  } finally {
    closeSync(source);
    closeSync(directory);
  }
  return { path: Buffer.from(`${into}/${name}`), remove: () => destroy(call, into, name) };
}

/** Removes what processes left that are gone. */
export function sweepSubvolumes(dir: string): void {
  for (const name of readdirSync(dir)) {
    const pid = /^([0-9]+)-[0-9a-f]{16}\.subvol$/.exec(name)?.[1];
    if (pid === undefined || isAlive(Number(pid))) continue;
    if (ioctl === null) ioctl = load();
    if (ioctl) destroy(ioctl, dir, name);
  }
}

function destroy(call: Ioctl, dir: string, name: string): void {
  const directory = openSync(dir, 'r');
  try {
    const argument = Buffer.alloc(SIZE);
    argument.write(name, NAME);
    call(directory, SNAP_DESTROY, argument);
  } finally {
    closeSync(directory);
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
