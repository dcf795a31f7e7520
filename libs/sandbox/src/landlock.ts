/**
 * The boundary where user name spaces are closed: Landlock, through a launcher of ours. It holds what is written and
 * read by path and TCP, and nothing else; its holes are in the record.
 */

import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { entriesOf, look, type Seen, within } from './hidden.js';
import type { SandboxPolicy } from './policy.js';
import type { Hole } from './record.js';

export const LANDLOCK_SCRIPT = fileURLToPath(new URL('../bin/landlock-launch.mjs', import.meta.url));

const bit = (number: number): number => 2 ** number;

/** Rights over files; those that a kernel's version does not know yet are not asked for. */
const WRITE_FILE = bit(1);
const READ_FILE = bit(2);
const READ_DIR = bit(3);
/** Remove a folder, a file; make a character device, a folder, a file, a socket, a FIFO, a block device, a link. */
const CHANGE = [4, 5, 6, 7, 8, 9, 10, 11, 12].map(bit).reduce((sum, each) => sum + each, 0);
const REFER = bit(13);
const TRUNCATE = bit(14);
const NET_BIND_AND_CONNECT = bit(0) + bit(1);
const SCOPE_ABSTRACT_AND_SIGNAL = bit(0) + bit(1);

export interface LandlockPlan {
  readonly fs: number;
  readonly net: number;
  readonly scoped: number;
  /** Bytes of `struct landlock_ruleset_attr` that this kernel knows. */
  readonly size: number;
  readonly rules: readonly (readonly [path: string, access: number])[];
}

/**
 * All that is had of `/dev`. Not terminals, which are the user's own, and not shared memory, which is everybody's: there
 * is no other in its place.
 */
const WRITABLE_DEVICES = ['/dev/null', '/dev/zero', '/dev/full'];
const READABLE_DEVICES = [...WRITABLE_DEVICES, '/dev/random', '/dev/urandom'];

/** `abi`: version of Landlock, at least 1. `temporary`: a private folder. */
export function landlockPlan(
  policy: SandboxPolicy,
  hidden: readonly Seen[],
  temporary: string,
  abi: number,
): LandlockPlan {
  const write = WRITE_FILE + CHANGE + (abi >= 2 ? REFER : 0) + (abi >= 3 ? TRUNCATE : 0);
  const onFiles = WRITE_FILE + (abi >= 3 ? TRUNCATE : 0);
  const writable = [...policy.roots, temporary];
  return {
    fs: write + READ_FILE + READ_DIR,
    net: abi >= 4 && policy.network.mode !== 'allow' ? NET_BIND_AND_CONNECT : 0,
    scoped: abi >= 6 ? SCOPE_ABSTRACT_AND_SIGNAL : 0,
    size: abi >= 6 ? 24 : abi >= 4 ? 16 : 8,
    rules: [
      // Names can be listed everywhere: a right to a folder is one to all below it, so a hole can't be left for one.
      ['/', READ_DIR],
      ...readable('/', [...hidden.map(({ path }) => path), '/dev']).map((path): [string, number] => [
        path,
        READ_FILE,
      ]),
      ...writable.map((path): [string, number] => [
        path,
        write + READ_DIR + (hidden.some((each) => within(each.path, path)) ? 0 : READ_FILE),
      ]),
      ...READABLE_DEVICES.flatMap((path): [string, number][] => {
        const seen = look(path);
        const access = READ_FILE + (WRITABLE_DEVICES.includes(path) ? onFiles : 0);
        return seen === undefined ? [] : [[seen.path, access]];
      }),
    ],
  };
}

/** What covers `folder` but for what is hidden: itself where nothing in it is, else its entries. */
function readable(folder: string, hidden: readonly string[]): string[] {
  if (hidden.some((path) => within(folder, path))) return [];
  if (!hidden.some((path) => within(path, folder))) return [folder];
  return entriesOf(folder).flatMap((name) => {
    const entry = join(folder, name);
    // Links have no rights of their own; what they lead to is reached under its own name.
    return look(entry)?.path === entry ? readable(entry, hidden) : [];
  });
}

/** What Landlock of this version does not hold, for a policy. */
export function landlockHoles(policy: SandboxPolicy, abi: number, filtered: boolean): Hole[] {
  const networked = policy.network.mode === 'allow';
  return [
    'chmod',
    'utime',
    'xattr',
    'udp',
    'list',
    'host-network',
    ...(networked || abi < 4 ? (['network'] as const) : []),
    ...(policy.profile === 'strict' && filtered ? [] : (['unix-socket'] as const)),
    ...(abi < 6 ? (['abstract-socket', 'signal'] as const) : []),
    'host-process',
    ...(filtered ? [] : (['filter'] as const)),
  ];
}

const CREATE_RULESET = 444;
const VERSION_FLAG = 1;

/** Version of the kernel's Landlock; 0 where it has none, or nobody can ask it. */
export function landlockAbi(): number {
  if (process.platform !== 'linux') return 0;
  try {
    // Loaded here only: a run that bubblewrap confines has no use for it.
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    const syscall = koffi.load(null).func('long syscall(long number, ...)');
    const version = syscall(CREATE_RULESET, 'void *', null, 'size_t', 0, 'uint32_t', VERSION_FLAG) as number;
    return version > 0 ? version : 0;
  } catch {
    return 0;
  }
}
