/**
 * The output of a server, read in large pieces into memory that is used again. The platform's own stream for a child's
 * output reads 64 KiB at a time into memory that it allocates for each; of large answers, that is most of what a relay
 * does.
 */

import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';

/** As much as a socket of the platform holds. Bytes. */
const READ = 256 * 1024;
/** What is less is copied, and the memory read into again at once. */
const COPIED = 32 * 1024;
/** Pieces kept to be read into. */
const KEPT = 8;

/** Memory to read to that is somebody else's. */
export interface Lent {
  readonly memory: Buffer;
  /** Something was read to it; the function that this returns says that nobody refers to that any more. */
  readonly lend: () => () => void;
}

interface Events {
  /** `giveBack`, where it is there, may be called once, when nobody refers to the chunk any more. */
  data: [chunk: Buffer, giveBack?: () => void];
  end: [];
  close: [];
  error: [error: Error];
}

/** What a relay reads from. */
export type Source = Readable | ServerOutput;

/** The end that we read. Nothing is read before `resume`. */
export class ServerOutput extends EventEmitter<Events> {
  readonly #socket: Socket;
  readonly #peer: Socket;
  readonly #free: Buffer[] = [];
  #paused = true;
  #lender: (() => Lent | undefined) | undefined;
  /** What is being read to, and whose that is. */
  #into: Buffer | undefined;
  #lent: Lent | undefined;

  private constructor(socket: Socket, peer: Socket, piece: Reading) {
    super();
    this.#socket = socket;
    this.#peer = peer;
    piece.next = () => this.#next();
    piece.take = (size, buffer) => this.#take(size, buffer);
    socket.on('end', () => this.emit('end'));
    socket.on('error', (error) => this.emit('error', error));
    socket.on('close', () => this.emit('close'));
  }

  /**
   * A pair of connected sockets, as a child's output has them: `inherited` is what the child is given. Undefined where
   * the platform has none. Their path lies in a folder of our own, and is gone before anything is started.
   */
  static async open(): Promise<ServerOutput | undefined> {
    if (process.platform === 'win32') return undefined;
    let folder: string | undefined;
    let server: Server | undefined;
    try {
      folder = mkdtempSync(join(tmpdir(), 'belay-'));
      const path = join(folder, 'out');
      server = createServer({ pauseOnConnect: true }).listen(path);
      await once(server, 'listening');
      const accepted = once(server, 'connection') as Promise<[Socket]>;
      const reading = new Reading();
      const socket = connect({
        path,
        onread: {
          buffer: () => reading.next(),
          callback: (size, buffer) => reading.take(size, buffer as Buffer),
        },
      });
      const [[peer]] = await Promise.all([accepted, once(socket, 'connect')]);
      socket.pause();
      return new ServerOutput(socket, peer, reading);
    } catch {
      // Too long a path, no room for it: a child's output as the platform makes it does as well.
      return undefined;
    } finally {
      server?.close();
      if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
    }
  }

  /** Goes into `stdio` of the child. */
  get inherited(): Socket {
    return this.#peer;
  }

  /** The child has its end: when it closes it, so is the output's end reached. */
  started(): void {
    this.#peer.destroy();
  }

  /** Asks, before each read, whether it may go to somebody else's memory. */
  borrow(lender: () => Lent | undefined): void {
    this.#lender = lender;
  }

  isPaused(): boolean {
    return this.#paused;
  }

  pause(): this {
    this.#paused = true;
    this.#socket.pause();
    return this;
  }

  resume(): this {
    this.#paused = false;
    this.#socket.resume();
    return this;
  }

  destroy(): this {
    this.#peer.destroy();
    this.#socket.destroy();
    return this;
  }

  /** False: no more for now. */
  #take(size: number, buffer: Buffer): boolean {
    if (this.#lent !== undefined && buffer === this.#into) {
      this.emit('data', buffer.subarray(0, size), this.#lent.lend());
    } else if (size <= COPIED) {
      const chunk = Buffer.from(buffer.subarray(0, size));
      this.#keep(buffer);
      this.emit('data', chunk);
    } else {
      this.emit('data', buffer.subarray(0, size), () => this.#keep(buffer));
    }
    return !this.#paused;
  }

  #next(): Buffer {
    this.#lent = this.#lender?.();
    this.#into = this.#lent?.memory.subarray(0, READ) ?? this.#free.pop() ?? Buffer.allocUnsafeSlow(READ);
    return this.#into;
  }

  #keep(buffer: Buffer): void {
    if (this.#free.length < KEPT) this.#free.push(buffer);
  }
}

/** What the socket asks, before there is a `ServerOutput` to ask. */
class Reading {
  next: () => Buffer = () => Buffer.allocUnsafeSlow(READ);
  take: (size: number, buffer: Buffer) => boolean = () => false;
}
