import { createHash, hash, type Hash } from 'node:crypto';
import { Skimmer } from './skim.js';

/** Frames up to this size are kept whole; larger ones are hashed as they stream. */
export const OBSERVATION_LIMIT = 16 * 1024 * 1024;

const LF = 0x0a;
const CR = 0x0d;
/** Pieces below this are gathered in slabs, so that a frame sent byte by byte costs no more memory than its bytes. */
const SMALL = 1024;
const SLAB = 16 * 1024;

/** One line of a newline-framed stream, exactly as it was received. */
export interface Frame {
  /** All bytes, terminator included; undefined when the frame is oversize. May share memory with a pushed chunk. */
  readonly bytes: Buffer | undefined;
  /** What could be seen of an oversize frame as it went by. */
  readonly skimmed: Skimmer | undefined;
  /** Bytes, terminator included. */
  readonly size: number;
  /** SHA-256 over all bytes, terminator included; 64 hex digits. */
  readonly sha256: string;
  /** `none` only for what was left when the stream ended. */
  readonly terminator: 'lf' | 'crlf' | 'none';
}

/**
 * Cuts a byte stream into frames at LF. The same bytes give the same frames however they are chunked. Never holds
 * more than `limit` bytes: a longer frame goes on as a hash and a skim.
 */
export class Framer {
  readonly #limit: number;
  #parts: Buffer[] = [];
  /** Where small pieces are gathered, after the last of `#parts`. */
  #slab: Buffer | undefined;
  #slabUsed = 0;
  #size = 0;
  #hash: Hash | undefined;
  #skimmer: Skimmer | undefined;
  /** The last two bytes of the frame so far, the last one low. */
  #tail = 0;

  constructor(limit: number = OBSERVATION_LIMIT) {
    this.#limit = limit;
  }

  /** Bytes of the frame that has not ended yet. */
  get pending(): number {
    return this.#size;
  }

  /** Takes the next bytes of the stream and calls back for every frame that they complete, in order. */
  push(chunk: Buffer, onFrame: (frame: Frame) => void): void {
    let start = 0;
    while (start < chunk.length) {
      const lf = chunk.indexOf(LF, start);
      if (lf < 0) {
        this.#add(chunk.subarray(start));
        return;
      }
      this.#add(chunk.subarray(start, lf + 1));
      start = lf + 1;
      onFrame(this.#take());
    }
  }

  /** The stream has ended: what is left, if anything, is a frame without terminator. */
  end(onFrame: (frame: Frame) => void): void {
    if (this.#size > 0) onFrame(this.#take());
  }

  #add(piece: Buffer): void {
    this.#size += piece.length;
    for (let i = Math.max(0, piece.length - 2); i < piece.length; i++) {
      this.#tail = ((this.#tail & 0xff) << 8) | (piece[i] as number);
    }
    if (this.#hash === undefined && this.#size > this.#limit) {
      this.#hash = createHash('sha256');
      this.#skimmer = new Skimmer();
      for (const part of this.#flushParts()) {
        this.#hash.update(part);
        this.#skimmer.push(part);
      }
    }
    if (this.#hash !== undefined) {
      this.#hash.update(piece);
      this.#skimmer?.push(piece);
    } else if (
      piece.length >= SMALL ||
      (this.#parts.length === 0 && this.#slab === undefined && piece.at(-1) === LF)
    ) {
      this.#closeSlab();
      this.#parts.push(piece);
    } else {
      this.#addSmall(piece);
    }
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
    if (this.#slab !== undefined) this.#parts.push(this.#slab.subarray(0, this.#slabUsed));
    this.#slab = undefined;
    this.#slabUsed = 0;
  }

  #flushParts(): Buffer[] {
    this.#closeSlab();
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  #take(): Frame {
    const size = this.#size;
    const terminator = (this.#tail & 0xff) !== LF ? 'none' : this.#tail >> 8 === CR ? 'crlf' : 'lf';
    const parts = this.#flushParts();
    const running = this.#hash;
    const skimmed = this.#skimmer;
    this.#size = 0;
    this.#tail = 0;
    this.#hash = undefined;
    this.#skimmer = undefined;
    if (running !== undefined) {
      return { bytes: undefined, skimmed, size, sha256: running.digest('hex'), terminator };
    }
    const bytes = parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts, size);
    return { bytes, skimmed: undefined, size, sha256: hash('sha256', bytes, 'hex'), terminator };
  }
}
