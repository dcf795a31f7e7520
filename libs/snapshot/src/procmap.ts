/**
 * Asks the kernel for the shared file mappings of a process one by one (`PROCMAP_QUERY`, Linux 6.11), which costs
 * microseconds where reading `/proc/PID/maps` of a Node process costs a millisecond.
 */

import { createRequire } from 'node:module';

export interface SharedMapping {
  readonly ino: bigint;
  readonly writable: boolean;
}

type Query = (fd: number) => SharedMapping[] | undefined;

let query: Query | undefined | null = null;

/** The shared file mappings behind an open `/proc/PID/maps`; undefined where the kernel or koffi does not know how. */
export function sharedMappings(fd: number): SharedMapping[] | undefined {
  if (query === null) query = load();
  const found = query?.(fd);
  // What is not known the first time will not be the next.
  if (!found) query = undefined;
  return found;
}

// From <linux/fs.h>: struct procmap_query, 104 bytes.
const SIZE = 104;
const [QUERY_FLAGS, QUERY_ADDR, VMA_END, VMA_FLAGS, INODE] = [8, 16, 32, 40, 64];
const [WRITABLE, SHARED, COVERING_OR_NEXT, FILE_BACKED] = [0x02n, 0x08n, 0x10n, 0x20n];
/** `_IOWR('f', 17, struct procmap_query)` */
const PROCMAP_QUERY = 0xc0686611;
const [ENOENT, ESRCH] = [2, 3];
/** More shared mappings than this are not looked at one by one. */
const MOST = 4096;

function load(): Query | undefined {
  if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) return undefined;
  try {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    const ioctl = koffi.load(null).func('int ioctl(int, unsigned long, void *)');
    const request = Buffer.alloc(SIZE);
    return (fd) => {
      const found: SharedMapping[] = [];
      for (let address = 0n; found.length < MOST;) {
        request.fill(0);
        request.writeBigUInt64LE(BigInt(SIZE), 0);
        request.writeBigUInt64LE(SHARED | COVERING_OR_NEXT | FILE_BACKED, QUERY_FLAGS);
        request.writeBigUInt64LE(address, QUERY_ADDR);
        if (ioctl(fd, PROCMAP_QUERY, request) !== 0) {
          const errno = koffi.errno();
          return errno === ENOENT || errno === ESRCH ? found : undefined;
        }
        const writable = (request.readBigUInt64LE(VMA_FLAGS) & WRITABLE) !== 0n;
        found.push({ ino: request.readBigUInt64LE(INODE), writable });
        address = request.readBigUInt64LE(VMA_END);
      }
      return undefined;
    };
  } catch {
    return undefined;
  }
}
