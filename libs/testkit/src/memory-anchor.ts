import { type Anchor, type AnchorPoint, mayFollow } from '@belay/log';
import type { Hash } from '@belay/merkle';
import { type Fault, InjectedFault } from './memory-log-store.js';

/** `Anchor` in memory, with faults on both sides of the write. */
export class MemoryAnchor implements Anchor {
  readonly #points = new Map<string, AnchorPoint>();
  readonly trouble = null;
  readonly faults: (Fault | undefined)[] = [];

  last(origin: string): AnchorPoint | null {
    return this.#points.get(origin) ?? null;
  }

  origins(): string[] {
    return [...this.#points.keys()];
  }

  async record(origin: string, size: number, root: Hash): Promise<void> {
    const fault = this.faults.shift();
    if (fault === 'before') throw new InjectedFault('before');
    if (mayFollow(origin, this.last(origin), size, root)) this.#points.set(origin, { size, root });
    if (fault === 'after') throw new InjectedFault('after');
  }
}
