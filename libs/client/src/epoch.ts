import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fdatasyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  statSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { acquire, type DirLock, DirLocked } from '@belay/dirlock';
import {
  type AttributeValue,
  commitment,
  commitmentSalt,
  type EnvelopeKind,
  newUlid,
  type SinkKind,
  SinkTree,
} from '@belay/envelope';
import { CompactRange } from '@belay/merkle';
import {
  type EpochRecord,
  isLocked,
  LINES,
  readEpochRecord,
  treeOfLines,
  writeEpochRecord,
} from './epoch-record.js';
import { makeDir, readJson, sinkDir, writeJson } from './state.js';

/** Larger spools are not read again only to state the root of an epoch that was killed. Bytes. */
const MAX_REREAD = 64 * 1024 * 1024;
/** How long another process may take to open an epoch of the same sink. Milliseconds. */
const OPENING_PATIENCE = 2_000;

/** One envelope before it has a number. */
export interface Draft {
  readonly kind: EnvelopeKind;
  /**
   * What the digest commits to: the content, or the SHA-256 (32 bytes) of content that was too large to keep. The
   * latter is content like any other to this class.
   */
  readonly content?: Uint8Array | undefined;
  readonly session?: string | undefined;
  readonly call?: string | undefined;
  readonly match?: string | undefined;
  readonly attrs?: Readonly<Record<string, AttributeValue | undefined>> | undefined;
}

export interface EpochOptions {
  readonly state: string;
  /** Origin of the log. */
  readonly log: string;
  readonly sink: string;
  readonly sinkKind: SinkKind;
  /** Ed25519 public key of a keyed sink, 32 bytes. */
  readonly key?: Buffer | undefined;
  readonly now?: () => Date;
}

interface Chain {
  readonly counter: number;
  readonly epoch: string;
}

/** Lines that the disk refused and that no `gap` line speaks of yet. */
interface Hole {
  readonly first: number;
  readonly leaves: CompactRange;
}

/**
 * One run of one sink: numbers its envelopes, commits to their content, keeps the sink's own tree and appends the
 * lines to the spool.
 *
 * Owns its spool directory by a lock that lives until `release`. `append` never throws: a line that the disk refused
 * keeps its number and is later spoken of by a `gap` line with the hashes of what is missing. A line that `append`
 * returned from survives kill -9 of this process; loss of power may cost the last ones.
 */
export class Epoch {
  readonly dir: string;
  readonly id: string;
  readonly log: string;
  readonly sink: string;
  readonly #secret: Buffer;
  readonly #now: () => Date;
  readonly #tree = new SinkTree();
  readonly #lock: DirLock;
  #record: EpochRecord;
  #fd: number | undefined;
  #offset = 0;
  #hole: Hole | undefined;
  #dropped = 0;

  private constructor(dir: string, fd: number, lock: DirLock, record: EpochRecord, now: () => Date) {
    this.dir = dir;
    this.id = record.epoch;
    this.log = record.log;
    this.sink = record.sink;
    this.#secret = Buffer.from(record.secret, 'base64');
    this.#fd = fd;
    this.#lock = lock;
    this.#record = record;
    this.#now = now;
  }

  /** Opens the next epoch of a sink and appends its `epoch.open`, which names the one before. */
  static async open(options: EpochOptions): Promise<Epoch> {
    const { state, log, sink, sinkKind } = options;
    const now = options.now ?? (() => new Date());
    const folder = sinkDir(state, log, sink);
    makeDir(folder);
    const opening = await acquirePatiently(folder);
    try {
      const chainPath = join(folder, 'chain.json');
      const before = readJson(chainPath) as Chain | undefined;
      const counter = before === undefined ? 0 : before.counter + 1;
      const id = newUlid(now().getTime(), randomBytes(10));
      const dir = join(folder, id);
      makeDir(dir);
      const lock = acquire(dir);
      const secret = randomBytes(32).toString('base64');
      const record: EpochRecord = {
        v: 1,
        log,
        sink,
        epoch: id,
        counter,
        secret,
        opened: now().toISOString(),
      };
      writeEpochRecord(dir, record);
      const fd = openSync(
        join(dir, LINES),
        constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND,
        0o600,
      );
      const epoch = new Epoch(dir, fd, lock, record, now);
      const previous = before === undefined ? undefined : stateOfPrevious(join(folder, before.epoch));
      epoch.append({
        kind: 'epoch.open',
        attrs: {
          counter,
          prev_epoch: before?.epoch,
          prev_size: previous?.size,
          prev_root: previous?.root,
          key: options.key?.toString('base64'),
          sink_kind: sinkKind,
        },
      });
      // The counter moves last: a crash before this line leaves an epoch that the next one will not name, and whose
      // number it takes again; its lines are sent all the same.
      writeJson(chainPath, { counter, epoch: id } satisfies Chain);
      return epoch;
    } finally {
      opening.release();
    }
  }

  /** Lines so far, those included that were lost. */
  get size(): number {
    return this.#tree.size;
  }

  /** Lines that are on the disk of this machine only as hashes. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Appends one envelope and returns its `seq`, by which it stays known even when the disk refused it. */
  append(draft: Draft): number {
    if (this.#hole !== undefined) this.#speakOfHole(this.#hole);
    return this.#write(draft);
  }

  /** (size, root, dropped, filtered) of the lines before the one that will state it. */
  stated(): Readonly<Record<'size' | 'root' | 'dropped' | 'filtered', AttributeValue>> {
    return { ...this.#tree.stated(), dropped: this.#dropped, filtered: 0 };
  }

  /** Appends `epoch.close` and makes the spool durable. Nothing can be appended afterwards; the lock is kept. */
  close(): void {
    if (this.#fd === undefined) return;
    if (this.#hole !== undefined) this.#speakOfHole(this.#hole);
    this.#write({ kind: 'epoch.close', attrs: this.stated() });
    const fd = this.#fd;
    this.#fd = undefined;
    try {
      fdatasyncSync(fd);
      this.#record = { ...this.#record, closed: this.#tree.stated() };
      writeEpochRecord(this.dir, this.#record);
    } catch {
      // The lines that reached the disk are sent; without `closed`, the next epoch reads them to name their root.
    }
    closeSync(fd);
  }

  /** Gives the spool to whoever adopts it. The lines stay. */
  release(): void {
    this.#lock.release();
  }

  #write(draft: Draft): number {
    const seq = this.#tree.size + 1;
    const { kind, content, session, call, match, attrs } = draft;
    const line = JSON.stringify({
      v: 1,
      log: this.log,
      sink: this.sink,
      epoch: this.id,
      seq,
      kind,
      time: this.#now().toISOString(),
      digest: content === undefined ? undefined : commitment(commitmentSalt(this.#secret, seq), content),
      session,
      call,
      match,
      attrs,
    });
    const bytes = Buffer.from(`${line}\n`, 'latin1');
    const leaf = this.#tree.append(bytes.subarray(0, -1));
    if (this.#store(bytes)) return seq;
    this.#dropped++;
    this.#hole ??= { first: seq, leaves: CompactRange.empty(BigInt(seq - 1)) };
    this.#hole.leaves.append(leaf);
    return seq;
  }

  #store(bytes: Buffer): boolean {
    const fd = this.#fd;
    if (fd === undefined) return false;
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(fd, bytes, written, bytes.length - written);
      this.#offset += bytes.length;
      return true;
    } catch {
      if (written > 0) {
        try {
          ftruncateSync(fd, this.#offset);
        } catch {
          // A torn line may now stand before the next: stop writing, so that only this line is in doubt.
          this.#fd = undefined;
          closeSync(fd);
        }
      }
      return false;
    }
  }

  /** The gap line takes the next number. If the disk refuses it too, it is lost like any other, and the hole grows. */
  #speakOfHole(hole: Hole): void {
    const hashes = hole.leaves.hashes.map((hash) => hash.toString('base64'));
    const attrs = { first: hole.first, last: this.#tree.size, reason: 'lost', hashes };
    this.#hole = undefined;
    const dropped = this.#dropped;
    this.#write({ kind: 'gap', attrs });
    if (this.#dropped === dropped) return;
    const failed = (this.#hole as Hole | undefined)?.leaves;
    if (failed !== undefined) hole.leaves.appendRange(failed);
    this.#hole = hole;
  }
}

async function acquirePatiently(folder: string): Promise<DirLock> {
  const deadline = Date.now() + OPENING_PATIENCE;
  for (;;) {
    try {
      return acquire(folder);
    } catch (error) {
      if (!(error instanceof DirLocked) || Date.now() > deadline) throw error;
    }
    await sleep(20);
  }
}

/** What the next `epoch.open` can say of the epoch before: nothing while that is still running. */
function stateOfPrevious(dir: string): { readonly size: number; readonly root: string } | undefined {
  try {
    const record = readEpochRecord(dir);
    if (record?.closed !== undefined) return record.closed;
    if (record === undefined || isLocked(dir)) return undefined;
    const path = join(dir, LINES);
    return statSync(path).size > MAX_REREAD ? undefined : treeOfLines(readFileSync(path)).stated();
  } catch {
    return undefined;
  }
}
