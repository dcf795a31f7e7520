import { join } from 'node:path';
import { acquire, DirLocked } from '@belay/dirlock';
import { SinkTree, type SinkTreeState } from '@belay/envelope/sink';
import { CompactRange, leafHash } from '@belay/merkle';
import { readJson, writeJson } from './state.js';

/** The spool's lines, in its directory. */
export const LINES = 'lines';
/** What became of them. */
export const ACKS = 'acks';
const EPOCH = 'epoch.json';

/** The record of an epoch. It outlives the lines, because its secret is what opens their commitments. */
export interface EpochRecord {
  readonly v: 1;
  readonly log: string;
  readonly sink: string;
  readonly epoch: string;
  readonly counter: number;
  /** 32 bytes, base64. */
  readonly secret: string;
  readonly opened: string;
  /** Bytes that waited in other spools of the log when it was opened. */
  readonly others?: number | undefined;
  /** Written by many short processes, one at a time, and open until it is closed or given up. */
  readonly shared?: true | undefined;
  /** Its whole tree, once no more lines come: what the next epoch of the sink names. */
  readonly closed?: { readonly size: number; readonly root: string } | undefined;
  /** Its writer was killed: there is no `epoch.close` in it. */
  readonly abandoned?: true | undefined;
  /** Lines that were too old to be kept and were given up: a `gap` line says so. */
  readonly expired?: number | undefined;
  /** Lines that the policy kept from being sent, of those that are not in `lines` any more. */
  readonly filtered?: number | undefined;
  /** Every line was acknowledged or refused. */
  readonly settled?: true | undefined;
  /** Size of a published checkpoint that covers all of its lines: they need not be kept to be sent again. */
  readonly published?: number | undefined;
  /** Why the settled lines are no longer kept, and whether a published checkpoint covered them then. */
  readonly forgotten?: Forgotten | undefined;
}

/** `age`, `size`: the limits of what is kept; `disk`: it refused them. */
export interface Forgotten {
  readonly reason: 'age' | 'size' | 'disk';
  readonly published: boolean;
  readonly time: string;
}

export function readEpochRecord(dir: string): EpochRecord | undefined {
  const record = readJson(join(dir, EPOCH)) as EpochRecord | undefined;
  return record?.v === 1 ? record : undefined;
}

export function writeEpochRecord(dir: string, record: EpochRecord): void {
  writeJson(join(dir, EPOCH), record);
}

/** Whether a living process holds the directory. */
export function isLocked(dir: string): boolean {
  try {
    acquire(dir).release();
    return false;
  } catch (error) {
    if (error instanceof DirLocked) return true;
    throw error;
  }
}

/** The sink's tree over the whole lines of a spool; what `gap` lines speak of is taken from their hashes. */
export function treeOfLines(bytes: Buffer): SinkTree {
  return new SinkTree(stateOf(rangeOfLines(bytes, CompactRange.empty())));
}

/** Takes the leaves of whole lines into a range that ends where they begin. Throws when a number is missing. */
export function rangeOfLines(bytes: Buffer, range: CompactRange): CompactRange {
  let start = 0;
  for (let lf = bytes.indexOf(0x0a); lf >= 0; lf = bytes.indexOf(0x0a, start)) {
    const line = bytes.subarray(start, lf);
    start = lf + 1;
    const { seq, kind, attrs } = JSON.parse(line.toString('latin1')) as {
      seq: number;
      kind: string;
      attrs?: { first: number; last: number; hashes?: string[] };
    };
    const next = Number(range.end) + 1;
    if (seq !== next && kind === 'gap' && attrs?.first === next) {
      const hashes = (attrs.hashes ?? []).map((hash) => Buffer.from(hash, 'base64'));
      range.appendRange(CompactRange.from(range.end, BigInt(attrs.last), hashes));
    }
    if (seq !== Number(range.end) + 1) throw new Error(`line ${seq} follows line ${range.end}`);
    range.append(leafHash(line));
  }
  return range;
}

/** Numbers of which the `gap` lines of a spool say that the policy kept them from being sent. */
export function filteredIn(bytes: Buffer): number {
  let sum = 0;
  for (let at = bytes.indexOf(FILTERED); at >= 0; at = bytes.indexOf(FILTERED, at + 1)) {
    const end = bytes.indexOf(0x0a, at);
    const line = bytes.toString('latin1', bytes.lastIndexOf(0x0a, at) + 1, end < 0 ? bytes.length : end);
    const { kind, attrs } = JSON.parse(line) as { kind: string; attrs: { first: number; last: number } };
    if (kind === 'gap') sum += attrs.last - attrs.first + 1;
  }
  return sum;
}

const FILTERED = Buffer.from('"reason":"filtered"');

function stateOf(range: CompactRange): SinkTreeState {
  return { size: Number(range.end), hashes: range.hashes.map((hash) => hash.toString('base64')) };
}
