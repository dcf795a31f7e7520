import { createHash, type Hash, hash } from 'node:crypto';
import { Skimmer } from './skim.js';

/** Content up to this size is kept whole; larger is hashed as it streams. Bytes. */
export const OBSERVATION_LIMIT = 16 * 1024 * 1024;

const LF = 0x0a;
/** Pieces below this are gathered in slabs, so that content sent byte by byte costs no more memory than its bytes. */
const SMALL = 1024;
const SLAB = 16 * 1024;
/** Content above this is hashed as it comes, so that its last piece has no long wait behind it. Bytes. */
const HASH_AT_ONCE = 128 * 1024;
/** Content above this is worth memory that somebody keeps for it. Bytes. */
const WORTH_ROOM = 192 * 1024;
/** Less than this is not worth reading to. Bytes. */
const LEAST_PLACE = 64 * 1024;

/** Memory of at least OBSERVATION_LIMIT bytes for one content, which is its own until the next is begun. */
export interface RoomMemory {
  readonly memory: Buffer;
  /** A part of it is on its way to somewhere else, too, until the function that this returns is called. */
  lend(): () => void;
}

/**
 * Asks for memory; undefined where there is none. Pieces that go there can be let go of as they come: as long as they are
 * held, they cost more than they weigh.
 */
export type Room = () => RoomMemory | undefined;

/** Where the next bytes of content are to be read to, if they can be, so that they need not be copied there. */
export interface Place {
  readonly memory: Buffer;
  readonly lend: () => () => void;
}

/**
 * When content that is kept gets its digest: as it comes, so that nothing is left to do at its end, or when somebody asks
 * for it, because that may be nobody.
 */
export type Hashing = 'as-it-comes' | 'when-asked';

/** Content as it was received, or what is known of it when it was too large to keep. */
export interface Gathered {
  /**
   * All bytes; undefined when there were more than the limit. May share memory with a chunk that was added. Content
   * of several parts is put together when it is first asked for.
   */
  readonly bytes: Buffer | undefined;
  /** The same bytes in the pieces they are held in; may be absent where `bytes` is there. */
  readonly parts?: readonly Buffer[] | undefined;
  /** What could be seen of oversize content as it went by. */
  readonly skimmed: Skimmer | undefined;
  readonly size: number;
  /** SHA-256 over all bytes; 64 hex digits. */
  readonly sha256: string;
}

/** Puts content together from pieces. Never holds more than `limit` bytes: what is longer goes on as a hash and a skim. */
export class Gatherer {
  readonly #limit: number;
  readonly #hashing: Hashing;
  readonly #askRoom: Room | undefined;
  /** Where this content is kept, in place of `#parts`; null when there was no room for it. */
  #room: RoomMemory | null | undefined;
  #roomUsed = 0;
  #parts: Buffer[] = [];
  /** Where small pieces are gathered, after the last of `#parts`. */
  #slab: Buffer | undefined;
  #slabUsed = 0;
  #size = 0;
  /** Of what is in `#parts`, and of what was too much to keep; undefined while the content is small. */
  #hash: Hash | undefined;
  /** Present once there was more than the limit. */
  #skimmer: Skimmer | undefined;

  constructor(limit: number = OBSERVATION_LIMIT, hashing: Hashing = 'as-it-comes', room?: Room) {
    this.#limit = limit;
    this.#hashing = hashing;
    this.#askRoom = room;
  }

  /** Bytes since the last `take`. */
  get size(): number {
    return this.#size;
  }

  /** Whether what is held is, in part, memory of pieces that were added. */
  get shares(): boolean {
    return this.#parts.length > 0;
  }

  /** Where the content goes on, as long as it is in memory that somebody keeps for it. */
  place(): Place | undefined {
    if (!this.#room) return undefined;
    const room = this.#room;
    if (this.#limit - this.#roomUsed < LEAST_PLACE) return undefined;
    return { memory: room.memory.subarray(this.#roomUsed, this.#limit), lend: () => room.lend() };
  }

  /** Whether a piece lies in the memory that is kept for this content. */
  isInRoom(piece: Buffer): boolean {
    return this.#room ? piece.buffer === this.#room.memory.buffer : false;
  }

  add(piece: Buffer): void {
    this.#size += piece.length;
    if (this.#skimmer === undefined && this.#size > this.#limit) {
      this.#skimmer = new Skimmer();
      this.#startHash();
      for (const part of this.#flushParts()) this.#skimmer.push(part);
    }
    if (this.#skimmer !== undefined) {
      this.#hash?.update(piece);
      this.#skimmer.push(piece);
    } else if (this.#size > WORTH_ROOM && this.#hasRoom()) {
      if (this.#hashing === 'as-it-comes') this.#startHash();
      this.#hash?.update(piece);
      const { memory } = this.#room as RoomMemory;
      const isThere = this.isInRoom(piece) && piece.byteOffset === memory.byteOffset + this.#roomUsed;
      this.#roomUsed += isThere ? piece.length : piece.copy(memory, this.#roomUsed);
    } else if (
      piece.length >= SMALL ||
      (this.#parts.length === 0 && this.#slab === undefined && piece.at(-1) === LF)
    ) {
      this.#closeSlab();
      this.#keep(piece);
    } else {
      this.#addSmall(piece);
    }
  }

  /** What was added since the last `take`. */
  take(): Gathered {
    const size = this.#size;
    const parts = this.#flushParts();
    const running = this.#hash;
    const skimmed = this.#skimmer;
    this.#size = 0;
    this.#hash = undefined;
    this.#skimmer = undefined;
    if (skimmed !== undefined) {
      return { bytes: undefined, skimmed, size, sha256: (running as Hash).digest('hex') };
    }
    if (size <= HASH_AT_ONCE) {
      const bytes = parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts, size);
      return { bytes, skimmed: undefined, size, sha256: hash('sha256', bytes, 'hex') };
    }
    let bytes: Buffer | undefined;
    let sha256 = running?.digest('hex');
    return {
      get bytes() {
        return (bytes ??= parts.length === 1 ? parts[0] : Buffer.concat(parts, size));
      },
      parts,
      skimmed: undefined,
      size,
      get sha256() {
        return (sha256 ??= digestOf(parts));
      },
    };
  }

  /** Moves what is held of the content there when it is asked for. */
  #hasRoom(): boolean {
    if (this.#room === undefined) {
      const room = this.#askRoom?.();
      this.#room = null;
      if (room !== undefined && room.memory.length >= this.#limit) {
        for (const part of this.#flushParts()) this.#roomUsed += part.copy(room.memory, this.#roomUsed);
        this.#room = room;
      }
    }
    return this.#room !== null;
  }

  #addSmall(piece: Buffer): void {
    if (this.#slab === undefined || this.#slab.length - this.#slabUsed < piece.length) {
      this.#closeSlab();
      this.#slab = Buffer.allocUnsafeSlow(SLAB);
    }
    piece.copy(this.#slab, this.#slabUsed);
    this.#slabUsed += piece.length;
  }

  #closeSlab(): void {
    if (this.#slab !== undefined) this.#keep(this.#slab.subarray(0, this.#slabUsed));
    this.#slab = undefined;
    this.#slabUsed = 0;
  }

  #keep(part: Buffer): void {
    this.#parts.push(part);
    if (this.#hash !== undefined) this.#hash.update(part);
    else if (this.#size > HASH_AT_ONCE && this.#hashing === 'as-it-comes') this.#startHash();
  }

  /** Starts the running hash with what there is. */
  #startHash(): void {
    if (this.#hash !== undefined) return;
    this.#hash = createHash('sha256');
    for (const part of this.#held()) this.#hash.update(part);
  }

  #held(): Buffer[] {
    return this.#room ? [this.#room.memory.subarray(0, this.#roomUsed)] : this.#parts;
  }

  #flushParts(): Buffer[] {
    this.#closeSlab();
    const parts = this.#held();
    this.#room = undefined;
    this.#roomUsed = 0;
    this.#parts = [];
    return parts;
  }
}

function digestOf(parts: readonly Buffer[]): string {
  const hashing = createHash('sha256');
  for (const part of parts) hashing.update(part);
  return hashing.digest('hex');
}
