import { ProblemError } from './problem.js';

/**
 * What may be in the gateway at one moment: requests that append, and the bytes of their bodies. Whoever comes on
 * top is told at once to come back; nobody queues here, so load can't turn into latency or memory.
 */
export class Admission {
  readonly #maxRequests: number;
  readonly #maxBytes: number;
  #requests = 0;
  #bytes = 0;

  constructor(maxRequests: number, maxBytes: number) {
    this.#maxRequests = maxRequests;
    this.#maxBytes = maxBytes;
  }

  get requests(): number {
    return this.#requests;
  }

  /** Throws `overloaded`. The visit has to be ended. */
  enter(): Visit {
    if (this.#requests >= this.#maxRequests) throw overloaded();
    this.#requests += 1;
    let bytes = 0;
    let over = false;
    return {
      hold: (more) => {
        if (this.#bytes + more > this.#maxBytes) throw overloaded();
        this.#bytes += more;
        bytes += more;
      },
      end: () => {
        if (over) return;
        over = true;
        this.#requests -= 1;
        this.#bytes -= bytes;
      },
    };
  }
}

export interface Visit {
  /** Says that this many more bytes are held, before they are. Throws `overloaded`. */
  hold(bytes: number): void;
  end(): void;
}

function overloaded(): ProblemError {
  return new ProblemError('overloaded', 'More is being appended than this service takes at once.', {
    retryAfter: 1,
  });
}
