/** What somebody in the demo does to evidence: to lines that wait on the machine, and to an export that was handed over. */

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { sinkDir } from '@belay/client';
import { canonical } from '@belay/envelope';

/** A line that is gone. */
export interface TakenOut {
  readonly seq: number;
  readonly kind: string;
}

/** Takes the line of a call of this tool out of what a sink has not sent yet. */
export function takeOut(state: string, log: string, sink: string, tool: string): TakenOut {
  const folder = sinkDir(state, log, sink);
  for (const epoch of readdirSync(folder)) {
    const path = join(folder, epoch, 'lines');
    let lines: string[];
    try {
      lines = readFileSync(path, 'latin1').split('\n');
    } catch {
      continue;
    }
    for (const [at, line] of lines.entries()) {
      if (line === '') continue;
      const { seq, kind, attrs } = JSON.parse(line) as TakenOut & { attrs?: { tool?: string } };
      if (kind !== 'call' || attrs?.tool !== tool) continue;
      writeFileSync(path, lines.toSpliced(at, 1).join('\n'), 'latin1');
      return { seq, kind };
    }
  }
  throw new Error(`no call of ${tool} waits to be sent`);
}

/** A changed copy of an export. */
export interface Forgery {
  readonly what: string;
  readonly bytes: Buffer;
}

/** Changes the first digit of the first commitment. */
function oneDigit(content: Buffer): void {
  const at = content.indexOf('"digest":"sha256:') + '"digest":"sha256:'.length;
  content[at] = content[at] === 0x30 ? 0x31 : 0x30;
}

/** Copies of an export that a careful forger would make: whole zip files, their own checksums right. */
export function forgeries(archive: Buffer): Forgery[] {
  return [
    {
      what: 'entries.ndjson: one digit of one commitment',
      bytes: changed(archive, 'entries.ndjson', oneDigit),
    },
    {
      what: 'the same, and a manifest made anew to fit it',
      bytes: withManifest(archive, 'entries.ndjson', oneDigit),
    },
    {
      what: 'report.html: violated becomes affirmed',
      bytes: changed(archive, 'report.html', (content) => {
        for (let at = content.indexOf('violated'); at >= 0; at = content.indexOf('violated', at + 8))
          content.write('affirmed', at);
      }),
    },
  ];
}

/** Offsets in the two headers of a stored file (APPNOTE 6.3.10, 4.3.7 and 4.3.12). */
const LOCAL = { signature: 0x04034b50, crc: 14, size: 18, nameLength: 26, extraLength: 28, name: 30 };
const CENTRAL = { signature: 0x02014b50, crc: 16, nameLength: 28, name: 46 };

/** A copy with the content of one file changed in place, and its checksums with it. */
function changed(archive: Buffer, name: string, change: (content: Buffer) => void): Buffer {
  const copy = Buffer.from(archive);
  const content = contentOf(copy, name);
  change(content);
  const sum = crc32(content);
  copy.writeUInt32LE(sum, header(copy, LOCAL, name) + LOCAL.crc);
  copy.writeUInt32LE(sum, header(copy, CENTRAL, name) + CENTRAL.crc);
  return copy;
}

/** What of a manifest binds a file. */
interface Manifest {
  readonly subject: readonly { readonly name: string; readonly digest: { sha256: string } }[];
  readonly predicate: { readonly files: readonly { readonly name: string; crc32: string }[] };
}

/** The same, and the manifest states the digests of what is there now: all of it fits, but the log has not signed it. */
function withManifest(archive: Buffer, name: string, change: (content: Buffer) => void): Buffer {
  const copy = changed(archive, name, change);
  const content = contentOf(copy, name);
  const envelope = JSON.parse(contentOf(copy, 'manifest.json').toString('utf8')) as { payload: string };
  const manifest = JSON.parse(Buffer.from(envelope.payload, 'base64').toString('utf8')) as Manifest;
  for (const each of manifest.subject)
    if (each.name === name) each.digest.sha256 = createHash('sha256').update(content).digest('hex');
  for (const each of manifest.predicate.files)
    if (each.name === name) each.crc32 = crc32(content).toString(16).padStart(8, '0');
  envelope.payload = Buffer.from(canonical(manifest)).toString('base64');
  // Every value is as long as the one before, so that nothing moves.
  return changed(copy, 'manifest.json', (there) => void there.write(canonical(envelope)));
}

/** The bytes of a file, in place. */
function contentOf(archive: Buffer, name: string): Buffer {
  const at = header(archive, LOCAL, name);
  const start =
    at +
    LOCAL.name +
    archive.readUInt16LE(at + LOCAL.nameLength) +
    archive.readUInt16LE(at + LOCAL.extraLength);
  return archive.subarray(start, start + archive.readUInt32LE(at + LOCAL.size));
}

function header(archive: Buffer, kind: typeof LOCAL | typeof CENTRAL, name: string): number {
  const signature = Buffer.alloc(4);
  signature.writeUInt32LE(kind.signature);
  for (let at = archive.indexOf(signature); at >= 0; at = archive.indexOf(signature, at + 4)) {
    const length = archive.readUInt16LE(at + kind.nameLength);
    if (archive.toString('utf8', at + kind.name, at + kind.name + length) === name) return at;
  }
  throw new Error(`the export has no ${name}`);
}
