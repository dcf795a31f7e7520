import { join } from 'node:path';
import { acquire, DirLocked } from '@belay/dirlock';
import { SinkTree, type SinkTreeState } from '@belay/envelope';
import { CompactRange } from '@belay/merkle';
import { readJson, writeJson } from './state.js';

/** The spool's lines, in its directory. */
export const LINES = 'lines';
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
  /** Its whole tree, once no more lines come: what the next epoch of the sink names. */
  readonly closed?: { readonly size: number; readonly root: string } | undefined;
  /** Its writer was killed: there is no `epoch.close` in it. */
  readonly abandoned?: true | undefined;
  /** Every line was acknowledged or refused, and the lines were removed. */
  readonly settled?: true | undefined;
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
  let tree = new SinkTree();
  let start = 0;
  for (let lf = bytes.indexOf(0x0a); lf >= 0; lf = bytes.indexOf(0x0a, start)) {
    const line = bytes.subarray(start, lf);
    start = lf + 1;
    const { seq, kind, attrs } = JSON.parse(line.toString('latin1')) as {
      seq: number;
      kind: string;
      attrs?: { first: number; last: number; hashes?: string[] };
    };
    if (seq !== tree.size + 1 && kind === 'gap' && attrs?.first === tree.size + 1) {
      tree = withGap(tree.state(), attrs.last, attrs.hashes ?? []);
    }
    if (seq !== tree.size + 1) throw new Error(`line ${seq} follows line ${tree.size}`);
    tree.append(line);
  }
  return tree;
}

function withGap(state: SinkTreeState, last: number, hashes: readonly string[]): SinkTree {
  const decode = (all: readonly string[]): Buffer[] => all.map((hash) => Buffer.from(hash, 'base64'));
  const range = CompactRange.from(0n, BigInt(state.size), decode(state.hashes));
  range.appendRange(CompactRange.from(BigInt(state.size), BigInt(last), decode(hashes)));
  return new SinkTree({ size: last, hashes: range.hashes.map((hash) => hash.toString('base64')) });
}
