import { ItemFault, OtlpError, type RefusalReason } from './error.js';
import type { Embedded, Field, Message } from './schema.js';

/** What one request may hold. */
export interface DecodeLimits {
  /** Spans or log records. */
  readonly items: number;
  /** Messages of any type, each of which costs an object: attributes, values, events. */
  readonly messages: number;
  /** Attribute values inside each other. */
  readonly depth: number;
}

export const DECODE_LIMITS: DecodeLimits = { items: 20_000, messages: 500_000, depth: 32 };

/**
 * A decoded message in the form of OTLP/JSON: integers of 64 bits as decimal text, ids in lowercase hexadecimal, bytes
 * in base64, fields that have their default value left out. Members are names of the schema and nothing else.
 */
export type Decoded = { [name: string]: DecodedValue };
export type DecodedValue = string | number | boolean | Decoded | (Decoded | Refused)[];

/** Stands in a list for an item that was refused. */
export class Refused {
  readonly reason: RefusalReason;

  constructor(reason: RefusalReason) {
    this.reason = reason;
  }
}

/** Objects are made here and nowhere else, and counted before they are made. */
export class Builder {
  readonly #limits: DecodeLimits;
  #items = 0;
  #messages = 0;

  constructor(limits: DecodeLimits) {
    this.#limits = limits;
  }

  /** The message to decode a field into: a new one, or, of a field that stands there twice, the one that is there. */
  enter(target: Decoded, { name, type, repeated, oneof }: Embedded): Decoded {
    const there = target[name];
    if (repeated !== true && there !== undefined) return there as Decoded;
    if (++this.#messages > this.#limits.messages) {
      throw new OtlpError('too_much', `more than ${this.#limits.messages} values in one request`);
    }
    if (type.item && ++this.#items > this.#limits.items) {
      throw new OtlpError('too_much', `more than ${this.#limits.items} items in one request`);
    }
    const made: Decoded = {};
    if (repeated === true) ((target[name] ??= []) as (Decoded | Refused)[]).push(made);
    else {
      if (oneof === true) clear(target);
      target[name] = made;
    }
    return made;
  }

  /** Depth of values inside `type`, which itself is `depth` deep. */
  deeper(type: Message, depth: number): number {
    if (!type.nests) return depth;
    if (depth >= this.#limits.depth) throw new ItemFault('too_deep');
    return depth + 1;
  }

  /** Puts a refusal in the place of the item that was entered last. */
  refuse(target: Decoded, { name }: Field, fault: unknown): void {
    if (!(fault instanceof ItemFault)) throw fault;
    const list = target[name] as (Decoded | Refused)[];
    list[list.length - 1] = new Refused(fault.reason);
  }

  set(target: Decoded, { name, oneof }: Field, value: string | number | boolean): void {
    if (oneof === true) {
      clear(target);
      target[name] = value;
    } else if (value === '' || value === 0 || value === false || value === '0') {
      delete target[name];
    } else {
      target[name] = value;
    }
  }
}

/** Of the members of a oneof, the last one counts. Messages with a oneof have no other members here. */
function clear(target: Decoded): void {
  for (const name of Object.keys(target)) delete target[name];
}

/** A `double` as OTLP/JSON has it. */
export function doubleValue(value: number): number | string {
  return Number.isFinite(value) ? value : String(value);
}
