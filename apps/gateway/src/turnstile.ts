import { type Holder } from './admission.js';
import { ProblemError } from './problem.js';

/** Milliseconds somebody waits for a turn before being told to come back. */
const WAIT_MS = 5_000;

interface Waiting {
  readonly holder: Holder;
  readonly go: () => void;
}

/**
 * Costly work, a few at a time and one project at most one of them. A few more wait for a short while, first come
 * first served among the projects that have none at work; everybody else is told to come back.
 */
export class Turnstile {
  readonly #atOnce: number;
  readonly #maxWaiting: number;
  readonly #working = new Set<string>();
  readonly #waiting: Waiting[] = [];

  constructor(atOnce: number, maxWaiting: number) {
    this.#atOnce = atOnce;
    this.#maxWaiting = maxWaiting;
  }

  /** Throws `overloaded` when there is no turn in time. */
  async pass<T>(holder: Holder, work: () => Promise<T>): Promise<T> {
    if (this.#mayWork(holder)) this.#working.add(holder.project);
    else await this.#wait(holder);
    try {
      return await work();
    } finally {
      this.#working.delete(holder.project);
      this.#next();
    }
  }

  #mayWork({ project }: Holder): boolean {
    return this.#working.size < this.#atOnce && !this.#working.has(project);
  }

  async #wait(holder: Holder): Promise<void> {
    const own = this.#waiting.filter((other) => other.holder.project === holder.project).length;
    if (this.#waiting.length >= this.#maxWaiting || own >= this.#maxWaiting / 2) throw overloaded();
    await new Promise<void>((resolve, reject) => {
      const waiting = {
        holder,
        go: () => {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        reject(overloaded());
      }, WAIT_MS);
      this.#waiting.push(waiting);
    });
  }

  #next(): void {
    const at = this.#waiting.findIndex(({ holder }) => this.#mayWork(holder));
    const [next] = at < 0 ? [] : this.#waiting.splice(at, 1);
    if (!next) return;
    this.#working.add(next.holder.project);
    next.go();
  }
}

function overloaded(): ProblemError {
  return new ProblemError('overloaded', 'More of this is asked for than this service makes at once.', {
    retryAfter: 1,
  });
}
