import { ProblemError } from './problem.js';

/** Whose share something is held in. */
export interface Holder {
  readonly tenant: string;
  readonly project: string;
}

/**
 * What may be in the gateway at one moment: appends whose body is there, and the bytes of bodies, there or arriving.
 * Whoever comes on top is told at once to come back; nobody queues here, so load can't turn into latency or memory.
 *
 * One project gets half of everything and one tenant three quarters, so that no token can shut the others out. A body
 * that is still arriving holds its bytes but no place: the number of those is limited for each project alone, because
 * it costs nothing to send slowly.
 */
export class Admission {
  readonly #requests: Shares;
  readonly #bytes: Shares;
  readonly #arriving = new Map<string, number>();
  readonly #maxArriving: number;
  #arrivingInAll = 0;

  /** `leastBytes` is what the largest single body needs: no share is smaller. */
  constructor(maxRequests: number, maxBytes: number, leastBytes: number) {
    this.#requests = new Shares(maxRequests, 1);
    this.#bytes = new Shares(maxBytes, leastBytes);
    this.#maxArriving = maxRequests;
  }

  get requests(): number {
    return this.#requests.inAll;
  }

  get arriving(): number {
    return this.#arrivingInAll;
  }

  /** A body begins to arrive. Throws `overloaded`. The visit has to be ended. */
  arrive(holder: Holder): Visit {
    const before = this.#arriving.get(holder.project) ?? 0;
    if (before >= this.#maxArriving) throw overloaded();
    this.#arriving.set(holder.project, before + 1);
    this.#arrivingInAll += 1;
    let bytes = 0;
    let state: 'arriving' | 'entered' | 'over' = 'arriving';
    const arrived = () => {
      const left = (this.#arriving.get(holder.project) ?? 1) - 1;
      if (left === 0) this.#arriving.delete(holder.project);
      else this.#arriving.set(holder.project, left);
      this.#arrivingInAll -= 1;
    };
    return {
      hold: (more) => {
        if (!this.#bytes.take(holder, more)) throw overloaded();
        bytes += more;
      },
      release: (fewer) => {
        this.#bytes.give(holder, fewer);
        bytes -= fewer;
      },
      enter: () => {
        if (!this.#requests.take(holder, 1)) throw overloaded();
        arrived();
        state = 'entered';
      },
      end: () => {
        if (state === 'arriving') arrived();
        if (state === 'entered') this.#requests.give(holder, 1);
        if (state !== 'over') this.#bytes.give(holder, bytes);
        state = 'over';
      },
    };
  }
}

export interface Visit {
  /** Says that this many more bytes are held, before they are. Throws `overloaded`. */
  hold(bytes: number): void;
  /** Says that this many bytes, held before, are so no more. */
  release(bytes: number): void;
  /** The body is there: takes a place among the appends in flight. Throws `overloaded`. */
  enter(): void;
  end(): void;
}

/** An amount that is shared: all of it, half of it for one project, three quarters for one tenant. */
export class Shares {
  readonly #all: number;
  readonly #project: number;
  readonly #tenant: number;
  readonly #taken = new Map<string, number>();
  #inAll = 0;

  constructor(all: number, least: number) {
    this.#all = all;
    this.#project = Math.min(all, Math.max(least, Math.floor(all / 2)));
    this.#tenant = Math.min(all, Math.max(least, Math.floor((all * 3) / 4)));
  }

  get inAll(): number {
    return this.#inAll;
  }

  /** As much of an amount as one project may have: what is larger counts as a whole share. */
  most(amount: number): number {
    return Math.min(amount, this.#project);
  }

  /** False when there is not that much left for this holder; nothing is taken then. */
  take({ tenant, project }: Holder, amount: number): boolean {
    const ofTenant = (this.#taken.get(tenant) ?? 0) + amount;
    const ofProject = (this.#taken.get(project) ?? 0) + amount;
    if (this.#inAll + amount > this.#all || ofTenant > this.#tenant || ofProject > this.#project)
      return false;
    this.#inAll += amount;
    this.#taken.set(tenant, ofTenant).set(project, ofProject);
    return true;
  }

  give({ tenant, project }: Holder, amount: number): void {
    this.#inAll -= amount;
    for (const name of [tenant, project]) {
      const left = (this.#taken.get(name) ?? 0) - amount;
      if (left > 0) this.#taken.set(name, left);
      else this.#taken.delete(name);
    }
  }
}

function overloaded(): ProblemError {
  return new ProblemError('overloaded', 'More is being appended than this service takes at once.', {
    retryAfter: 1,
  });
}
