/** What holds each limit of a policy: rlimits set by a program inside, control groups from outside. */

import { ControlGroup } from './cgroup.js';
import type { Limits } from './policy.js';
import type { HeldLimit } from './record.js';

/** `data` and not `as`: runtimes reserve far more address space than they use. */
const RLIMITS = [
  ['memory', 'data', 'memory'],
  ['processes', 'nproc', 'pids'],
  ['cpu', 'cpu', undefined],
  ['fileSize', 'fsize', undefined],
] as const;

export class LimitPlan {
  readonly held: readonly HeldLimit[];
  readonly #prefix: readonly string[];
  readonly #group: ControlGroup | undefined;

  /** `root`: no rlimit on processes holds it. `prlimit`: path of the program that sets them. */
  constructor(limits: Limits, root: boolean, prlimit: string | undefined) {
    const { memory, processes } = limits;
    const together = [
      ...(memory === undefined ? [] : [{ name: 'memory' as const, value: memory }]),
      ...(processes === undefined ? [] : [{ name: 'pids' as const, value: processes }]),
    ];
    this.#group = together.length === 0 ? undefined : ControlGroup.make(together);
    const options: string[] = [];
    const held: HeldLimit[] = [];
    for (const [limit, option, controller] of RLIMITS) {
      const value = limits[limit];
      if (value === undefined) continue;
      if (controller !== undefined && this.#group?.held.has(controller) === true) {
        held.push({ limit, value, by: 'cgroup' });
      } else if (prlimit !== undefined && !(root && limit === 'processes')) {
        options.push(`--${option}=${value}`);
        held.push({ limit, value, by: 'rlimit' });
      } else held.push({ limit, value, by: 'none' });
    }
    this.held = held;
    this.#prefix = options.length === 0 || prlimit === undefined ? [] : [prlimit, ...options, '--'];
  }

  wrap(argv: readonly [string, ...string[]]): [string, ...string[]] {
    return [...this.#prefix, ...argv] as [string, ...string[]];
  }

  /** The whole command line, inside of the control groups. */
  enter(argv: readonly [string, ...string[]]): readonly [string, ...string[]] {
    return this.#group?.enter(argv) ?? argv;
  }

  remove(): void {
    this.#group?.remove();
  }
}
