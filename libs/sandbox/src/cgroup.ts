/** Limits for all processes of a command together, where this user may make control groups. */

import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { entriesOf } from './hidden.js';

const ROOT = '/sys/fs/cgroup';
const SCRIPT = fileURLToPath(new URL('../bin/join-group.sh', import.meta.url));

/** Groups made by this process. */
let made = 0;
/** Of a group: whose it is, and its number. */
const NAME = /^belay-(\d+)-[0-9a-z]+$/;

interface Controller {
  readonly name: 'memory' | 'pids';
  readonly value: number;
}

/** Files of the two generations. */
const LIMIT_FILE = {
  v2: { memory: 'memory.max', pids: 'pids.max' },
  v1: { memory: 'memory.limit_in_bytes', pids: 'pids.max' },
} as const;

export class ControlGroup {
  /** What is held. */
  readonly held: ReadonlySet<Controller['name']>;
  readonly #folders: readonly string[];

  private constructor(held: ReadonlySet<Controller['name']>, folders: readonly string[]) {
    this.held = held;
    this.#folders = folders;
  }

  /** What can't be held is left out. */
  static make(controllers: readonly Controller[]): ControlGroup {
    const name = `belay-${process.pid}-${(made++).toString(36)}`;
    const held = new Set<Controller['name']>();
    const folders = new Set<string>();
    const v2 = readQuietly(join(ROOT, 'cgroup.controllers'))?.trim().split(' ');
    for (const { name: controller, value } of controllers) {
      const generation = v2?.includes(controller) === true ? 'v2' : 'v1';
      const parent = generation === 'v2' ? ROOT : join(ROOT, controller);
      if (generation === 'v1' && !existsSync(join(parent, 'cgroup.procs'))) continue;
      const folder = join(parent, name);
      removeAbandoned(parent);
      try {
        if (generation === 'v2') writeFileSync(join(ROOT, 'cgroup.subtree_control'), `+${controller}`);
        // Of a process that had our number, perhaps; or of the other controller, in the same tree.
        if (!existsSync(folder)) mkdirSync(folder);
        folders.add(folder);
        writeFileSync(join(folder, LIMIT_FILE[generation][controller]), String(value));
        held.add(controller);
      } catch {
        // Not ours to make: said by not being held.
      }
    }
    return new ControlGroup(held, [...folders]);
  }

  /** The command line that enters the groups and becomes `argv`. */
  enter(argv: readonly [string, ...string[]]): readonly [string, ...string[]] {
    const files = this.#folders.map((folder) => join(folder, 'cgroup.procs'));
    return files.length === 0 ? argv : ['/bin/sh', SCRIPT, ...files, '--', ...argv];
  }

  remove(): void {
    for (const folder of this.#folders) {
      try {
        rmdirSync(folder);
      } catch {
        // Somebody is in it still; it holds nothing but a name.
      }
    }
  }
}

/** Groups of owners that were killed before they could remove them; those with somebody in them stay. */
function removeAbandoned(parent: string): void {
  for (const each of entriesOf(parent)) {
    const [, pid] = NAME.exec(each) ?? [];
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
    try {
      rmdirSync(join(parent, each));
    } catch {
      // Somebody is in it, or somebody else was faster.
    }
  }
}

function readQuietly(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
