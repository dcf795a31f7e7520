/** Folders that replays work in. Each says whose it is, so that what a killed run left behind is cleared by the next. */

import {
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { badInput } from './exit.js';

const PREFIX = 'belay-replay-';
const OWNER = 'owner';

/** Throws CliError where there is no place for one. */
export function scratchFolder(): string {
  const parent = tmpdir();
  clearAbandoned(parent);
  try {
    const folder = mkdtempSync(join(parent, `${PREFIX}${process.pid}-`));
    const owner = ownerOf('self');
    if (owner !== undefined) writeFileSync(join(folder, OWNER), owner);
    return folder;
  } catch (error) {
    throw badInput(
      'no_scratch',
      `nothing can be made in ${parent}`,
      'Set TMPDIR to a folder with room.',
      error,
    );
  }
}

/** Folders of processes that are known to be gone. Others' are left alone, and those that can't be removed. */
function clearAbandoned(parent: string): void {
  try {
    for (const name of readdirSync(parent)) {
      const [, pid] = /^belay-replay-(\d+)-\w+$/.exec(name) ?? [];
      if (pid !== undefined && isAbandoned(join(parent, name), pid)) {
        rmSync(join(parent, name), { recursive: true, force: true });
      }
    }
  } catch {
    // What can't be read or removed is in nobody's way.
  }
}

function isAbandoned(folder: string, pid: string): boolean {
  try {
    const { uid } = lstatSync(folder);
    if (uid !== process.getuid?.()) return false;
    const owner = readFileSync(join(folder, OWNER), 'utf8');
    // Numbers of processes mean the same only in one name space of one boot.
    return owner.startsWith(`${machineOf()}\n`) && ownerOf(pid) !== owner;
  } catch {
    return false;
  }
}

/** Machine and beginning of a process; undefined where it is gone, or where the system does not tell. */
function ownerOf(pid: string): string | undefined {
  try {
    // The name of a process may hold spaces and brackets: what follows the last one counts. The 22nd field is its start.
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const start = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    return `${machineOf()}\n${start}`;
  } catch {
    return undefined;
  }
}

const machineOf = (): string =>
  `${readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()} ${readlinkSync('/proc/self/ns/pid')}`;
