/** Records of a journal (`FORMAT.md`, Store): framing, and the three bodies. */

import { fstatSync, readSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import { DIGEST_BYTES, type Entry, entrySize, readEntry, Reader, writeEntry } from './manifest.js';

/** First bytes of every journal. */
export const JOURNAL_MAGIC = Buffer.from('belay-snapshot-journal 1\n');
export const RECORD = { WRITER: 1, CONTENTS: 2, CHECKPOINT: 3, DELTA: 4, HELD: 5 } as const;
export const RECORD_OVERHEAD = 9;
/** Bytes of one content in a CONTENTS record. */
const CONTENT_BYTES = DIGEST_BYTES + 16;

/** A change of one path: what is there now, or that nothing is there any more. */
export interface Change {
  /** Position among the state's roots. */
  readonly root: number;
  readonly path: Buffer;
  readonly entry: Entry | undefined;
}

/** The whole records in `bytes`, each with where its frame begins and ends; stops at the first that is not whole. */
export function* records(
  bytes: Buffer,
): Generator<{ type: number; body: Buffer; start: number; end: number }> {
  for (let start = 0; start + RECORD_OVERHEAD <= bytes.length;) {
    const length = bytes.readUInt32BE(start);
    const end = start + length + RECORD_OVERHEAD;
    if (end > bytes.length) return;
    if (crc32(bytes.subarray(start + 4, end - 4)) !== bytes.readUInt32BE(end - 4)) return;
    yield { type: bytes[start + 4] as number, body: bytes.subarray(start + 5, end - 4), start, end };
    start = end;
  }
}

/** A journal is read in pieces of this; a longer record is read whole. Bytes. */
const READ_BYTES = 4 * 1024 * 1024;

/**
 * The whole records of an open journal from one of them on (0: from the first); nothing of what is no journal. `start`
 * and `end` are places in the file. What is not whole at the end is torn, or is being written.
 */
export function* journalRecords(
  fd: number,
  from: number,
): Generator<{ type: number; body: Buffer; start: number; end: number }> {
  const size = fstatSync(fd).size;
  let at = from;
  if (at === 0) {
    const magic = Buffer.alloc(JOURNAL_MAGIC.length);
    if (!readFully(fd, magic, 0) || !magic.equals(JOURNAL_MAGIC)) return;
    at = magic.length;
  }
  for (let piece = READ_BYTES; at < size;) {
    const bytes = Buffer.allocUnsafe(Math.min(piece, size - at));
    if (!readFully(fd, bytes, at)) return;
    let end = 0;
    for (const record of records(bytes)) {
      yield { type: record.type, body: record.body, start: at + record.start, end: at + record.end };
      end = record.end;
    }
    at += end;
    if (end > 0) continue;
    // A record longer than the piece, or the end is torn: nothing behind it can be told from nonsense.
    const needed = bytes.length >= 4 ? bytes.readUInt32BE(0) + RECORD_OVERHEAD : size;
    if (needed <= bytes.length || at + needed > size) return;
    piece = needed;
  }
}

/** False: the file ends before. */
export function readFully(fd: number, into: Buffer, position: number): boolean {
  for (let at = 0; at < into.length;) {
    const count = readSync(fd, into, at, into.length - at, position + at);
    if (count === 0) return false;
    at += count;
  }
  return true;
}

export interface ContentAt {
  readonly hash: Buffer;
  readonly offset: number;
  readonly size: number;
}

/** What a CONTENTS record says; the hashes are views. */
export function* contentPlaces(body: Buffer): Generator<ContentAt> {
  for (let at = 0; at + CONTENT_BYTES <= body.length; at += CONTENT_BYTES) {
    yield {
      hash: body.subarray(at, at + DIGEST_BYTES),
      offset: Number(body.readBigUInt64BE(at + DIGEST_BYTES)),
      size: Number(body.readBigUInt64BE(at + DIGEST_BYTES + 8)),
    };
  }
}

/** Body of a CONTENTS record. */
export function encodeContents(places: readonly ContentAt[]): Buffer {
  const body = Buffer.allocUnsafe(places.length * CONTENT_BYTES);
  places.forEach(({ hash, offset, size }, i) => {
    const at = i * CONTENT_BYTES;
    hash.copy(body, at);
    body.writeBigUInt64BE(BigInt(offset), at + DIGEST_BYTES);
    body.writeBigUInt64BE(BigInt(size), at + DIGEST_BYTES + 8);
  });
  return body;
}

/** Collects a record: length of the body, type, body, CRC-32 of type and body. Grows by doubling. */
class RecordSink {
  #bytes: Buffer;
  length = 5;

  constructor(type: number, capacity = 4096) {
    this.#bytes = Buffer.allocUnsafeSlow(capacity);
    this.#bytes[4] = type;
  }

  /** Room for `size` more bytes: where they go, in `bytes`. */
  reserve(size: number): number {
    const start = this.length;
    if (start + size > this.#bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(this.#bytes.length * 2, start + size));
      this.#bytes.copy(larger, 0, 0, start);
      this.#bytes = larger;
    }
    this.length = start + size;
    return start;
  }

  u8(value: number): void {
    const at = this.reserve(1);
    this.#bytes[at] = value;
  }

  u16(value: number): void {
    const at = this.reserve(2);
    this.#bytes.writeUInt16BE(value, at);
  }

  u32(value: number): void {
    const at = this.reserve(4);
    this.#bytes.writeUInt32BE(value, at);
  }

  u64(value: number): void {
    const at = this.reserve(8);
    this.#bytes.writeBigUInt64BE(BigInt(value), at);
  }

  bytes(value: Buffer): void {
    const at = this.reserve(value.length);
    value.copy(this.#bytes, at);
  }

  entry(entry: Entry): void {
    const at = this.reserve(entrySize(entry));
    writeEntry(entry, this.#bytes, at);
  }

  /** The whole record. */
  finish(): Buffer {
    const end = this.length;
    this.u32(0);
    this.#bytes.writeUInt32BE(end - 5, 0);
    this.#bytes.writeUInt32BE(crc32(this.#bytes.subarray(4, end)), end);
    return this.#bytes.subarray(0, this.length);
  }
}

/** A record whose body is at hand. */
export function makeRecord(type: number, body: Buffer): Buffer {
  const sink = new RecordSink(type, body.length + RECORD_OVERHEAD);
  sink.bytes(body);
  return sink.finish();
}

/** A path as what it shares with the one before it and the rest; entries in order of a tree share much. */
class PathWriter {
  #last: Buffer = Buffer.alloc(0);

  write(sink: RecordSink, path: Buffer): void {
    const last = this.#last;
    const most = Math.min(last.length, path.length);
    let shared = 0;
    while (shared < most && last[shared] === path[shared]) shared++;
    sink.u16(shared);
    sink.u16(path.length - shared);
    sink.bytes(path.subarray(shared));
    this.#last = path;
  }
}

class PathReader {
  #last: Buffer = Buffer.alloc(0);

  read(reader: Reader): Buffer {
    const shared = reader.u16();
    const rest = reader.bytes(reader.u16());
    if (shared > this.#last.length) throw new RangeError('path');
    const path = shared === 0 ? Buffer.from(rest) : Buffer.concat([this.#last.subarray(0, shared), rest]);
    this.#last = path;
    return path;
  }
}

/** A CHECKPOINT: every entry of every root, parents before what is in them. */
export function encodeCheckpoint(at: number, state: Buffer, roots: readonly Iterable<Entry>[]): Buffer {
  const sink = new RecordSink(RECORD.CHECKPOINT, 1 << 16);
  sink.u64(at);
  sink.u32(state.length);
  sink.bytes(state);
  roots.forEach((entries, root) => {
    const paths = new PathWriter();
    for (const entry of entries) {
      sink.u8(1);
      sink.u16(root);
      paths.write(sink, entry.path);
      sink.entry(entry);
    }
  });
  sink.u8(0);
  return sink.finish();
}

/** A DELTA: the digest of the state it is a change of, and the changes, each path once, root by root. */
export function encodeDelta(at: number, parent: Buffer, state: Buffer, changes: readonly Change[]): Buffer {
  const sink = new RecordSink(RECORD.DELTA);
  sink.u64(at);
  sink.bytes(parent);
  sink.u32(state.length);
  sink.bytes(state);
  let paths = new PathWriter();
  let last = 0;
  for (const { root, path, entry } of changes) {
    if (root !== last) paths = new PathWriter();
    last = root;
    sink.u8(entry ? 1 : 2);
    sink.u16(root);
    paths.write(sink, path);
    if (entry) sink.entry(entry);
  }
  sink.u8(0);
  return sink.finish();
}

/** What begins a CHECKPOINT or DELTA. */
export interface StateHead {
  /** When it was captured, milliseconds since 1970. */
  readonly at: number;
  readonly parent: Buffer | undefined;
  /** Canonical bytes of the state. */
  readonly state: Buffer;
  /** Where its changes begin. */
  readonly changes: number;
}

/** Throws RangeError where the body is not whole. */
export function stateHead(type: number, body: Buffer): StateHead {
  const reader = new Reader(body);
  const at = reader.size();
  const parent = type === RECORD.DELTA ? reader.bytes(DIGEST_BYTES) : undefined;
  const state = reader.bytes(reader.u32());
  return { at, parent, state, changes: reader.at };
}

/** The changes of a body, each with where its entry's bytes begin. */
export function* stateChanges(
  body: Buffer,
  start: number,
): Generator<{ root: number; path: Buffer; entryAt: number | undefined }> {
  const reader = new Reader(body, start);
  let paths = new PathReader();
  let last = 0;
  for (;;) {
    const kind = reader.u8();
    if (kind === 0) return;
    const root = reader.u16();
    // Each root's paths begin anew.
    if (root !== last) paths = new PathReader();
    last = root;
    const path = paths.read(reader);
    if (kind === 2) {
      yield { root, path, entryAt: undefined };
      continue;
    }
    const entryAt = reader.at;
    yield { root, path, entryAt };
    reader.at = readEntry(path, body, entryAt).end;
  }
}
