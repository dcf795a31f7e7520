import { type Gathered, Gatherer, type Hashing, OBSERVATION_LIMIT, type Place, type Room } from './gather.js';

const LF = 0x0a;
const CR = 0x0d;

/** One message of a stream, exactly as it was received; SHA-256 and size include its terminator. */
export interface Frame extends Gathered {
  /** `none` for what was left when the stream ended, and for what is framed by something else than its own bytes. */
  readonly terminator: 'lf' | 'crlf' | 'none';
}

/**
 * Cuts a byte stream into frames at LF. The same bytes give the same frames however they are chunked. Never holds
 * more than `limit` bytes: a longer frame goes on as a hash and a skim.
 */
export class Framer {
  readonly #gatherer: Gatherer;
  /** The last two bytes of the frame so far, the last one low. */
  #tail = 0;

  constructor(limit: number = OBSERVATION_LIMIT, hashing: Hashing = 'as-it-comes', room?: Room) {
    this.#gatherer = new Gatherer(limit, hashing, room);
  }

  /** Bytes of the frame that has not ended yet. */
  get pending(): number {
    return this.#gatherer.size;
  }

  /** Where the next bytes of the stream are best read to; what is read there goes to `push` before anything else. */
  place(): Place | undefined {
    return this.#gatherer.place();
  }

  /**
   * Takes the next bytes of the stream and calls back for every frame that they complete, in order. True when nothing of
   * the chunk's memory is held but by who keeps it for the content: it has completed no frame, and what it began or went
   * on with was copied or hashed; or it was read to `place`.
   */
  push(chunk: Buffer, onFrame: (frame: Frame) => void): boolean {
    const isPlaced = this.#gatherer.isInRoom(chunk);
    let rest = chunk;
    let start = 0;
    while (start < rest.length) {
      const lf = rest.indexOf(LF, start);
      if (lf < 0) {
        this.#add(rest.subarray(start));
        return isPlaced || (start === 0 && !this.#gatherer.shares);
      }
      this.#add(rest.subarray(start, lf + 1));
      start = lf + 1;
      // With the frame, its memory is somebody else's.
      if (isPlaced && rest === chunk) [rest, start] = [Buffer.from(chunk.subarray(start)), 0];
      onFrame(this.#take());
    }
    return isPlaced;
  }

  /** The stream has ended: what is left, if anything, is a frame without terminator. */
  end(onFrame: (frame: Frame) => void): void {
    if (this.#gatherer.size > 0) onFrame(this.#take());
  }

  #add(piece: Buffer): void {
    for (let i = Math.max(0, piece.length - 2); i < piece.length; i++) {
      this.#tail = ((this.#tail & 0xff) << 8) | (piece[i] as number);
    }
    this.#gatherer.add(piece);
  }

  #take(): Frame {
    const terminator: Frame['terminator'] =
      (this.#tail & 0xff) !== LF ? 'none' : this.#tail >> 8 === CR ? 'crlf' : 'lf';
    this.#tail = 0;
    return Object.assign(this.#gatherer.take(), { terminator });
  }
}
