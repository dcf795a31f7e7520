/**
 * Protobuf wire format, by the schema's table: https://protobuf.dev/programming-guides/encoding/. Every length is
 * checked against what is there before anything is made of it.
 */

import { isUtf8 } from 'node:buffer';
import { Builder, type Decoded, type DecodeLimits, doubleValue } from './build.js';
import { ItemFault, OtlpError } from './error.js';
import { type Embedded, type Field, isEmbedded, type Message, type Scalar } from './schema.js';

const VARINT = 0;
const FIXED64 = 1;
const LENGTH = 2;
const GROUP_START = 3;
const GROUP_END = 4;
const FIXED32 = 5;
/** Unknown groups inside each other. */
const MAX_GROUPS = 64;

const WIRE_TYPE: Readonly<Record<Scalar, number>> = {
  string: LENGTH,
  hex: LENGTH,
  bytes: LENGTH,
  bool: VARINT,
  double: FIXED64,
  uint32: VARINT,
  fixed32: FIXED32,
  int64: VARINT,
  fixed64: FIXED64,
  enum: VARINT,
};

const truncated = (): OtlpError => new OtlpError('undecodable', 'the protobuf message ends too early');

/** Decodes a whole message. Throws OtlpError. */
export function decodeProtobuf(type: Message, bytes: Buffer, limits: DecodeLimits): Decoded {
  const root: Decoded = {};
  new WireDecoder(bytes, limits).message(type, root, bytes.length, 0);
  return root;
}

class WireDecoder {
  readonly #bytes: Buffer;
  readonly #builder: Builder;
  #at = 0;

  constructor(bytes: Buffer, limits: DecodeLimits) {
    this.#bytes = bytes;
    this.#builder = new Builder(limits);
  }

  message(type: Message, target: Decoded, end: number, depth: number): void {
    const inner = this.#builder.deeper(type, depth);
    while (this.#at < end) {
      const tag = this.#tag(end);
      const wire = tag & 7;
      const field = type.byNumber.get(tag >>> 3);
      // A known field of another wire type is an unknown field: that is how protobuf lets types change.
      if (field === undefined || wire !== wireTypeOf(field)) this.#skip(tag, end);
      else if (isEmbedded(field)) this.#embedded(field, target, end, inner);
      else this.#builder.set(target, field, this.#value(field.type as Scalar, end));
    }
  }

  #embedded(field: Embedded, target: Decoded, end: number, depth: number): void {
    const until = this.#length(end);
    const made = this.#builder.enter(target, field);
    if (!field.type.item) {
      this.message(field.type, made, until, depth);
      return;
    }
    try {
      this.message(field.type, made, until, depth);
    } catch (fault) {
      this.#builder.refuse(target, field, fault);
      this.#at = until;
    }
  }

  #value(type: Scalar, end: number): string | number | boolean {
    switch (type) {
      case 'string': {
        const bytes = this.#slice(end);
        if (!isUtf8(bytes)) throw new ItemFault('invalid_text');
        return bytes.toString('utf8');
      }
      case 'hex':
        return this.#slice(end).toString('hex');
      case 'bytes':
        return this.#slice(end).toString('base64');
      case 'bool':
        return this.#varint(end) !== 0n;
      case 'uint32':
        return Number(BigInt.asUintN(32, this.#varint(end)));
      case 'enum':
        return Number(BigInt.asIntN(32, this.#varint(end)));
      case 'int64':
        return BigInt.asIntN(64, this.#varint(end)).toString();
      case 'double':
        return doubleValue(this.#bytes.readDoubleLE(this.#fixed(8, end)));
      case 'fixed64':
        return this.#bytes.readBigUInt64LE(this.#fixed(8, end)).toString();
      case 'fixed32':
        return this.#bytes.readUInt32LE(this.#fixed(4, end));
    }
  }

  #tag(end: number): number {
    const tag = this.#varint(end);
    if (tag > 0xffff_ffffn || tag < 8n) throw new OtlpError('undecodable', 'not a protobuf field');
    return Number(tag);
  }

  /** At most ten bytes, of which the last holds one bit. */
  #varint(end: number): bigint {
    const bytes = this.#bytes;
    let at = this.#at;
    if (at >= end) throw truncated();
    // One to four bytes, which is nearly all of them, need no big integer on the way.
    let low = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      if (at >= end) throw truncated();
      const byte = bytes[at++] as number;
      low |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        this.#at = at;
        return BigInt(low);
      }
    }
    let value = BigInt(low);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      if (at >= end) throw truncated();
      const byte = bytes[at++] as number;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) {
        this.#at = at;
        return BigInt.asUintN(64, value);
      }
    }
    throw new OtlpError('undecodable', 'a protobuf integer has more than ten bytes');
  }

  /** Reads a length and returns where what it is the length of ends. */
  #length(end: number): number {
    const length = this.#varint(end);
    if (length > BigInt(end - this.#at)) throw truncated();
    return this.#at + Number(length);
  }

  #slice(end: number): Buffer {
    const until = this.#length(end);
    const bytes = this.#bytes.subarray(this.#at, until);
    this.#at = until;
    return bytes;
  }

  #fixed(size: number, end: number): number {
    const at = this.#at;
    if (end - at < size) throw truncated();
    this.#at = at + size;
    return at;
  }

  #skip(tag: number, end: number): void {
    const open: number[] = [];
    for (let next = tag; ; next = this.#tag(end)) {
      switch (next & 7) {
        case VARINT:
          this.#varint(end);
          break;
        case FIXED64:
          this.#fixed(8, end);
          break;
        case LENGTH:
          this.#at = this.#length(end);
          break;
        case FIXED32:
          this.#fixed(4, end);
          break;
        case GROUP_START:
          if (open.length === MAX_GROUPS) throw new OtlpError('undecodable', 'protobuf groups nest too deep');
          open.push(next >>> 3);
          break;
        case GROUP_END:
          if (open.pop() !== next >>> 3) throw new OtlpError('undecodable', 'a protobuf group ends unopened');
          break;
        default:
          throw new OtlpError('undecodable', 'not a protobuf wire type');
      }
      if (open.length === 0) return;
    }
  }
}

function wireTypeOf({ type }: Field): number {
  return typeof type === 'string' ? WIRE_TYPE[type] : LENGTH;
}
