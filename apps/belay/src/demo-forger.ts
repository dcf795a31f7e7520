/** What somebody in the demo does to evidence: to lines that wait on the machine, and to an export that was handed over. */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { sinkDir } from '@belay/client';

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

/** Copies of an export that a careful forger would make: whole zip files, their own checksums right. */
export function forgeries(archive: Buffer): Forgery[] {
  return [
    {
      what: 'entries.ndjson: one digit of one commitment',
      bytes: changed(archive, 'entries.ndjson', (content) => {
        const at = content.indexOf('"digest":"sha256:') + '"digest":"sha256:'.length;
        content[at] = content[at] === 0x30 ? 0x31 : 0x30;
      }),
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
  const at = header(copy, LOCAL, name);
  const start =
    at + LOCAL.name + copy.readUInt16LE(at + LOCAL.nameLength) + copy.readUInt16LE(at + LOCAL.extraLength);
  const content = copy.subarray(start, start + copy.readUInt32LE(at + LOCAL.size));
  change(content);
  const sum = crc32(content);
  copy.writeUInt32LE(sum, at + LOCAL.crc);
  copy.writeUInt32LE(sum, header(copy, CENTRAL, name) + CENTRAL.crc);
  return copy;
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
