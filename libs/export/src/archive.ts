import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { crc32 } from 'node:zlib';
import { ExportError } from './error.js';
import type { ManifestFile } from './manifest.js';

/** What does not fit 32 bits, where that value itself stands for "see the zip64 field". */
const LARGE = 0xffff_ffff;

/** Limits of what is read before anything is known of it. */
const MAX_FILES = 64;
const MAX_NAME = 64;
const MAX_DIRECTORY = 16 * 1024;

const END_SIZE = 22;
const END64_SIZE = 56;
const LOCATOR_SIZE = 20;
/** Zip64 field of a local header: two sizes. */
const LOCAL_EXTRA = 20;

/** Bytes that are read at once. */
const BLOCK = 256 * 1024;

/** A file of an archive, and where its content begins. */
export interface ArchivedFile {
  readonly name: string;
  readonly size: number;
  readonly crc32: number;
  readonly offset: number;
}

type Stored = Omit<ArchivedFile, 'offset'>;

/** Every byte of an archive that is no file's content. */
interface Frame {
  /** Where each local header begins, and its bytes. */
  readonly headers: readonly { readonly at: number; readonly bytes: Buffer }[];
  /** Where the directory begins; directory and end. */
  readonly at: number;
  readonly tail: Buffer;
}

/**
 * Writes an archive in the one form of FORMAT.md section 2, file after file: one block of content is in memory. The
 * checksum is written over the header once it is known. A crash leaves an archive without its end, which no reader takes
 * for one.
 */
export class ArchiveWriter {
  readonly #handle: FileHandle;
  readonly #large: number;
  readonly #files: ManifestFile[] = [];
  #at = 0;

  /** `large` is where zip64 begins: never anything but the default outside of tests. */
  constructor(handle: FileHandle, large: number = LARGE) {
    this.#handle = handle;
    this.#large = large;
  }

  /** Writes the next file, which has to be of the size that is said. */
  async add(
    name: string,
    size: number,
    content: AsyncIterable<Buffer> | Iterable<Buffer>,
  ): Promise<ManifestFile> {
    const begin = this.#at;
    this.#at += localHeader({ name, size, crc32: 0 }, this.#large).length;
    const first = this.#at;
    const sha256 = createHash('sha256');
    let crc = 0;
    for await (const block of content) {
      sha256.update(block);
      crc = crc32(block, crc);
      await this.#put(block, this.#at);
      this.#at += block.length;
    }
    if (this.#at - first !== size)
      throw new ExportError('source', `${name} is not as large as it was said to be`);
    const file = { name, size, crc32: crc >>> 0, sha256: sha256.digest('hex') };
    await this.#put(localHeader(file, this.#large), begin);
    this.#files.push(file);
    return file;
  }

  /** Writes the directory and the end. Returns the size of the archive. */
  async finish(): Promise<number> {
    const { at, tail } = frameOf(this.#files, this.#large);
    await this.#put(tail, at);
    await this.#handle.truncate(at + tail.length);
    return at + tail.length;
  }

  async #put(bytes: Buffer, at: number): Promise<void> {
    for (let done = 0; done < bytes.length;) {
      const { bytesWritten } = await this.#handle.write(bytes, done, bytes.length - done, at + done);
      done += bytesWritten;
    }
  }
}

/**
 * Takes an archive apart and refuses every byte that `ArchiveWriter` would not have written around the same contents.
 * Of the contents nothing is read. Throws ExportError `malformed`.
 */
export async function readArchive(handle: FileHandle, large: number = LARGE): Promise<ArchivedFile[]> {
  const { size } = await handle.stat();
  if (size < END_SIZE) throw malformed('too short for an archive: it may be cut off');
  const end = await readExactly(handle, size - END_SIZE, END_SIZE);
  if (end.readUInt32LE(0) !== 0x06054b50)
    throw malformed(
      "it does not end as an archive does: it may be cut off, so compare its size and SHA-256 with the sender's",
    );
  let tailSize = END_SIZE;
  let at = end.readUInt32LE(16);
  if (at === LARGE) {
    tailSize += LOCATOR_SIZE + END64_SIZE;
    if (size < tailSize) throw malformed('too short for its end');
    const end64 = await readExactly(handle, size - tailSize, END64_SIZE);
    at = safe(end64.readBigUInt64LE(48));
  }
  const directorySize = size - tailSize - at;
  if (directorySize < 0 || directorySize > MAX_DIRECTORY) throw malformed('a directory of no likely size');
  const tail = await readExactly(handle, at, size - at);
  const files = parseDirectory(tail.subarray(0, directorySize));

  const frame = frameOf(files, large);
  if (frame.at !== at || !frame.tail.equals(tail)) {
    throw malformed(`its directory or end is not what its files make: ${REPACKED}`);
  }
  for (const [i, { at: begin, bytes }] of frame.headers.entries()) {
    const header = await readExactly(handle, begin, bytes.length);
    if (!header.equals(bytes))
      throw malformed(`the header of ${(files[i] as Stored).name} is not what it has to be: ${REPACKED}`);
  }
  return files.map((file, i) => {
    const { at: begin, bytes } = frame.headers[i] as Frame['headers'][number];
    return { ...file, offset: begin + bytes.length };
  });
}

/** The content of a file in blocks, each of them the reader's to keep. */
export async function* contentOf(
  handle: FileHandle,
  file: Pick<ArchivedFile, 'offset' | 'size'>,
): AsyncGenerator<Buffer> {
  for await (const block of blocksOf(handle, file)) yield Buffer.from(block);
}

/**
 * The content of a file in blocks that share their memory: each is good until the next one is asked for. Fresh memory
 * for each block of a large file would be hundreds of megabytes before anybody takes it back.
 */
export async function* blocksOf(
  handle: FileHandle,
  { offset, size }: Pick<ArchivedFile, 'offset' | 'size'>,
): AsyncGenerator<Buffer> {
  const memory = Buffer.allocUnsafeSlow(Math.min(BLOCK, size));
  for (let done = 0; done < size;) {
    const block = memory.subarray(0, Math.min(BLOCK, size - done));
    await fill(handle, offset + done, block);
    yield block;
    done += block.length;
  }
}

/** So many bytes from a position; throws ExportError `malformed` when the file ends before. */
export async function readExactly(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(length);
  await fill(handle, position, bytes);
  return bytes;
}

async function fill(handle: FileHandle, position: number, bytes: Buffer): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, position + done);
    if (bytesRead === 0) throw malformed('it ends too early');
    done += bytesRead;
  }
}

/** Names, sizes and checksums of a directory. What else is in it is compared afterwards. */
function parseDirectory(directory: Buffer): Stored[] {
  const files: Stored[] = [];
  for (let at = 0; at < directory.length;) {
    if (files.length === MAX_FILES) throw malformed('too many files');
    if (directory.length - at < 46) throw malformed('its directory ends too early');
    const nameSize = directory.readUInt16LE(at + 28);
    const extraSize = directory.readUInt16LE(at + 30);
    const next = at + 46 + nameSize + extraSize;
    if (nameSize > MAX_NAME || next > directory.length) throw malformed('its directory ends too early');
    let size = directory.readUInt32LE(at + 24);
    if (size === LARGE) {
      if (extraSize < 12) throw malformed('a size without its zip64 field');
      size = safe(directory.readBigUInt64LE(at + 46 + nameSize + 4));
    }
    files.push({
      name: directory.toString('latin1', at + 46, at + 46 + nameSize),
      size,
      crc32: directory.readUInt32LE(at + 16),
    });
    at = next;
  }
  return files;
}

/** All that an archive of these files has besides their contents. */
function frameOf(files: readonly Stored[], large: number): Frame {
  const headers: { at: number; bytes: Buffer }[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  for (const file of files) {
    const bytes = localHeader(file, large);
    headers.push({ at, bytes });
    directory.push(directoryHeader(file, at, large));
    at += bytes.length + file.size;
  }
  const size = directory.reduce((sum, { length }) => sum + length, 0);
  return { headers, at, tail: Buffer.concat([...directory, ...endOf(files.length, size, at, large)]) };
}

function localHeader({ name, size, crc32: crc }: Stored, large: number): Buffer {
  const wide = size >= large;
  const header = Buffer.alloc(30 + name.length + (wide ? LOCAL_EXTRA : 0));
  header.writeUInt32LE(0x04034b50, 0);
  common(header, 4, wide, crc, wide ? LARGE : size, name);
  header.writeUInt16LE(wide ? LOCAL_EXTRA : 0, 28);
  header.write(name, 30, 'latin1');
  if (wide) writeZip64(header, 30 + name.length, [size, size]);
  return header;
}

function directoryHeader({ name, size, crc32: crc }: Stored, offset: number, large: number): Buffer {
  const wide = [...(size >= large ? [size, size] : []), ...(offset >= large ? [offset] : [])];
  const extra = wide.length === 0 ? 0 : 4 + 8 * wide.length;
  const header = Buffer.alloc(46 + name.length + extra);
  header.writeUInt32LE(0x02014b50, 0);
  header.writeUInt16LE(extra > 0 ? 45 : 20, 4);
  common(header, 6, extra > 0, crc, size >= large ? LARGE : size, name);
  header.writeUInt16LE(extra, 30);
  header.writeUInt32LE(offset >= large ? LARGE : offset, 42);
  header.write(name, 46, 'latin1');
  if (extra > 0) writeZip64(header, 46 + name.length, wide);
  return header;
}

/** Version needed up to the length of the name: the same in both headers. */
function common(header: Buffer, at: number, wide: boolean, crc: number, size: number, name: string): void {
  header.writeUInt16LE(wide ? 45 : 20, at);
  header.writeUInt16LE(0x0800, at + 2);
  header.writeUInt16LE(0, at + 4);
  header.writeUInt16LE(0, at + 6);
  header.writeUInt16LE(0x0021, at + 8);
  header.writeUInt32LE(crc, at + 10);
  header.writeUInt32LE(size, at + 14);
  header.writeUInt32LE(size, at + 18);
  header.writeUInt16LE(name.length, at + 22);
}

function writeZip64(header: Buffer, at: number, values: readonly number[]): void {
  header.writeUInt16LE(1, at);
  header.writeUInt16LE(8 * values.length, at + 2);
  values.forEach((value, i) => header.writeBigUInt64LE(BigInt(value), at + 4 + 8 * i));
}

function endOf(files: number, size: number, offset: number, large: number): Buffer[] {
  const wide = offset >= large;
  const end = Buffer.alloc(END_SIZE);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(files, 8);
  end.writeUInt16LE(files, 10);
  end.writeUInt32LE(size, 12);
  end.writeUInt32LE(wide ? LARGE : offset, 16);
  if (!wide) return [end];
  const end64 = Buffer.alloc(END64_SIZE);
  end64.writeUInt32LE(0x06064b50, 0);
  end64.writeBigUInt64LE(BigInt(END64_SIZE - 12), 4);
  end64.writeUInt16LE(45, 12);
  end64.writeUInt16LE(45, 14);
  end64.writeBigUInt64LE(BigInt(files), 24);
  end64.writeBigUInt64LE(BigInt(files), 32);
  end64.writeBigUInt64LE(BigInt(size), 40);
  end64.writeBigUInt64LE(BigInt(offset), 48);
  const locator = Buffer.alloc(LOCATOR_SIZE);
  locator.writeUInt32LE(0x07064b50, 0);
  locator.writeBigUInt64LE(BigInt(offset + size), 8);
  locator.writeUInt32LE(1, 16);
  return [end64, locator, end];
}

function safe(value: bigint): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw malformed('a number of no likely size');
  return Number(value);
}

/** The likeliest reason, where nobody meant harm. */
const REPACKED = 'changed, or unpacked and packed again?';

function malformed(what: string): ExportError {
  return new ExportError('malformed', `the archive: ${what}`);
}
