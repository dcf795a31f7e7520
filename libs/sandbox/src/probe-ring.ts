/** A ring of io_uring(7), as much of it as it takes to open, write, connect and send without the calls of that name. */

import { getSystemErrorName } from 'node:util';
import { cString, type Native, SyscallError } from './probe-native.js';

const ENTRIES = 8;
const SQE_BYTES = 64;
const CQE_BYTES = 16;
const SQES_AT = 0x1000_0000;
const CQ_AT = 0x800_0000;
const GETEVENTS = 1;
const OP = { CONNECT: 16, OPENAT: 18, WRITE: 23, SEND: 26, SOCKET: 45 } as const;

interface Entry {
  readonly fd: number;
  readonly off?: bigint;
  readonly address?: Buffer;
  readonly length?: number;
  readonly flags?: number;
}

export class Ring {
  readonly #native: Native;
  readonly #fd: number;
  readonly #parameters: Buffer;
  readonly #submission: Buffer;
  readonly #completion: Buffer;
  readonly #entries: Buffer;

  private constructor(native: Native, fd: number, parameters: Buffer) {
    this.#native = native;
    this.#fd = fd;
    this.#parameters = parameters;
    const map = (length: number, at: number): Buffer => {
      const [READ_WRITE, SHARED_POPULATE] = [3, 0x8001];
      return native.view(native.call('mmap', 0, length, READ_WRITE, SHARED_POPULATE, fd, at), length);
    };
    this.#submission = map(this.#sq(6) + ENTRIES * 4, 0);
    this.#completion = map(this.#cq(5) + parameters.readUInt32LE(4) * CQE_BYTES, CQ_AT);
    this.#entries = map(ENTRIES * SQE_BYTES, SQES_AT);
  }

  static open(native: Native): Ring {
    const parameters = Buffer.alloc(120);
    return new Ring(native, native.call('io_uring_setup', ENTRIES, parameters), parameters);
  }

  /** Offsets of `struct io_sqring_offsets` and `struct io_cqring_offsets`, by place. */
  #sq(place: number): number {
    return this.#parameters.readUInt32LE(40 + place * 4);
  }

  #cq(place: number): number {
    return this.#parameters.readUInt32LE(80 + place * 4);
  }

  openat(path: string, flags: number): number {
    return this.#submit(OP.OPENAT, 'openat', { fd: -100, address: cString(path), flags });
  }

  write(fd: number, text: string): number {
    const address = Buffer.from(text);
    return this.#submit(OP.WRITE, 'write', { fd, address, length: address.length });
  }

  socket(family: number, type: number): number {
    return this.#submit(OP.SOCKET, 'socket', { fd: family, off: BigInt(type) });
  }

  connect(fd: number, address: Buffer): number {
    return this.#submit(OP.CONNECT, 'connect', { fd, address, off: BigInt(address.length) });
  }

  send(fd: number, text: string): number {
    const address = Buffer.from(text);
    return this.#submit(OP.SEND, 'send', { fd, address, length: address.length });
  }

  /** One entry, and its completion. */
  #submit(operation: number, name: string, { fd, off, address, length, flags }: Entry): number {
    const [tailAt, maskAt, arrayAt] = [this.#sq(1), this.#sq(2), this.#sq(6)];
    const tail = this.#submission.readUInt32LE(tailAt);
    const slot = tail & this.#submission.readUInt32LE(maskAt);
    const entry = this.#entries.subarray(slot * SQE_BYTES, (slot + 1) * SQE_BYTES).fill(0);
    entry.writeUInt8(operation, 0);
    entry.writeInt32LE(fd, 4);
    entry.writeBigUInt64LE(off ?? 0n, 8);
    entry.writeBigUInt64LE(address === undefined ? 0n : this.#native.address(address), 16);
    entry.writeUInt32LE(length ?? 0, 24);
    entry.writeUInt32LE(flags ?? 0, 28);
    this.#submission.writeUInt32LE(slot, arrayAt + slot * 4);
    this.#submission.writeUInt32LE(tail + 1, tailAt);
    this.#native.call('io_uring_enter', this.#fd, 1, 1, GETEVENTS, null, 0);
    const head = this.#completion.readUInt32LE(this.#cq(0));
    const at = this.#cq(5) + (head & this.#completion.readUInt32LE(this.#cq(2))) * CQE_BYTES;
    const result = this.#completion.readInt32LE(at + 8);
    this.#completion.writeUInt32LE(head + 1, this.#cq(0));
    if (result < 0) throw new SyscallError(getSystemErrorName(result), `io_uring ${name}`);
    return result;
  }
}
