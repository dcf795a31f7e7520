import { closeSync, fdatasyncSync, ftruncateSync, writeSync } from 'node:fs';
import type { AttributeValue, EnvelopeKind } from '@belay/envelope';
import { commitment, commitmentSalt, SinkTree, type SinkTreeState } from '@belay/envelope/sink';
import { CompactRange } from '@belay/merkle';
import type { EpochRecord } from './epoch-record.js';
import { filterOf, type LineFilter } from './line-filter.js';
import type { SpoolRoom } from './spool-room.js';

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

/** `overflow`: the spool's limits; `lost`: the disk; `filtered`: the policy. */
type Loss = 'overflow' | 'lost' | 'filtered';

/** Lines that are not in the spool and that no `gap` line speaks of yet. */
interface Hole {
  readonly first: number;
  readonly reason: Loss;
  readonly leaves: CompactRange;
}

/** Everything a writer knows that its lines don't say: what is kept between short processes. */
export interface WriterState {
  /** End of the last whole line. */
  readonly offset: number;
  readonly tree: SinkTreeState;
  readonly dropped: number;
  readonly filtered?: number | undefined;
  readonly hole?:
    { readonly first: number; readonly reason: Loss; readonly hashes: readonly string[] } | undefined;
}

/**
 * Numbers the envelopes of one epoch, commits to their content, keeps the sink's own tree and appends the lines to the
 * spool. Never throws for the disk's sake: a line that does not get into the spool keeps its number, and a `gap` line
 * with the hashes of what is missing follows as soon as one can be written; until then nothing else is.
 */
export class LineWriter {
  readonly #record: EpochRecord;
  readonly #secret: Buffer;
  readonly #now: () => Date;
  readonly #room: SpoolRoom;
  readonly #tree: SinkTree;
  #fd: number | undefined;
  #offset: number;
  #hole: Hole | undefined;
  #dropped: number;
  #filtered: number;
  readonly #leavesOut: ((kind: EnvelopeKind) => boolean) | undefined;
  /** Envelopes that have their numbers, those after the tree's last, and are not written yet. */
  #reserved: (() => Draft)[] = [];

  constructor(
    record: EpochRecord,
    fd: number,
    room: SpoolRoom,
    now: () => Date,
    filter?: LineFilter,
    state?: WriterState,
  ) {
    this.#record = record;
    this.#secret = Buffer.from(record.secret, 'base64');
    this.#fd = fd;
    this.#room = room;
    this.#now = now;
    this.#tree = new SinkTree(state?.tree);
    this.#offset = state?.offset ?? 0;
    this.#dropped = state?.dropped ?? 0;
    this.#filtered = state?.filtered ?? 0;
    this.#leavesOut = filterOf(filter, record.sink);
    this.#hole = state?.hole && {
      first: state.hole.first,
      reason: state.hole.reason,
      leaves: CompactRange.from(
        BigInt(state.hole.first - 1),
        BigInt(state.tree.size),
        state.hole.hashes.map((hash) => Buffer.from(hash, 'base64')),
      ),
    };
  }

  /** Lines so far, those included that are missing from the spool. */
  get size(): number {
    return this.#tree.size + this.#reserved.length;
  }

  get dropped(): number {
    return this.#dropped;
  }

  /** Whether the last line that was written is in the spool. */
  get spooled(): boolean {
    return this.#hole === undefined && this.#fd !== undefined;
  }

  /** Lines that the policy kept from being sent. */
  get filtered(): number {
    return this.#filtered;
  }

  /** Appends one envelope and returns its `seq`, by which it stays known even when it did not get into the spool. */
  append(draft: Draft): number {
    this.settle();
    if (this.#leavesOut?.(draft.kind) === true) return this.#leaveOut(draft);
    this.#speak(false);
    return this.#write(draft, false);
  }

  /**
   * Returns the `seq` of an envelope that is made and written by the next `settle`, at the latest in front of whatever
   * else is appended. `make` is called once and must not throw. Until then, kill -9 of this process costs the line.
   */
  reserve(make: () => Draft): number {
    // Whether it is sent decides what stands in front of the next one, so it has to be known now.
    if (this.#leavesOut !== undefined) return this.append(make());
    // Numbers that were given away stand: of what is missing is spoken before the first of them, or after the last.
    if (this.#reserved.length === 0) this.#speak(false);
    this.#reserved.push(make);
    return this.size;
  }

  /** Writes what was reserved. */
  settle(): void {
    if (this.#reserved.length === 0) return;
    const reserved = this.#reserved;
    this.#reserved = [];
    for (const make of reserved) this.#write(make(), false);
  }

  /** Appends an envelope that states (size, root, dropped, filtered) of the lines before it. */
  appendStated(draft: Draft): number {
    this.settle();
    this.#speak(false);
    return this.#write({ ...draft, attrs: { ...this.#stated(), ...draft.attrs } }, false);
  }

  /** Appends `epoch.open`, for which there is always room. */
  open(attrs: Draft['attrs']): void {
    this.#write({ kind: 'epoch.open', attrs }, true);
  }

  /**
   * Appends `epoch.close`, for which there is always room, and makes the spool durable. Returns size and root of the
   * whole tree, or undefined when the disk refused: what is there then is sent all the same.
   */
  close(): { readonly size: number; readonly root: string } | undefined {
    this.settle();
    this.#speak(true);
    this.#write({ kind: 'epoch.close', attrs: this.#stated() }, true);
    const fd = this.#fd;
    this.#fd = undefined;
    if (fd === undefined) return undefined;
    try {
      fdatasyncSync(fd);
      return this.#tree.stated();
    } catch {
      return undefined;
    } finally {
      closeSync(fd);
    }
  }

  /** Gives the file back without a last word; another process goes on from `state()`. */
  leave(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  state(): WriterState {
    this.settle();
    const hole = this.#hole;
    return {
      offset: this.#offset,
      tree: this.#tree.state(),
      dropped: this.#dropped,
      filtered: this.#filtered,
      hole: hole && {
        first: hole.first,
        reason: hole.reason,
        hashes: hole.leaves.hashes.map((hash) => hash.toString('base64')),
      },
    };
  }

  #stated(): Readonly<Record<'size' | 'root' | 'dropped' | 'filtered', AttributeValue>> {
    return { ...this.#tree.stated(), dropped: this.#dropped, filtered: this.#filtered };
  }

  /** A line that is not sent. Where others are missing already, it is missing with them, for their reason. */
  #leaveOut(draft: Draft): number {
    const { seq, bytes } = this.#line(draft, this.#now());
    this.#miss(seq, this.#tree.append(bytes.subarray(0, -1)), this.#hole?.reason ?? 'filtered');
    return seq;
  }

  #write(draft: Draft, must: boolean): number {
    const now = this.#now();
    const { seq, bytes } = this.#line(draft, now);
    const leaf = this.#tree.append(bytes.subarray(0, -1));
    const loss = this.#hole?.reason ?? this.#put(bytes, must, now.getTime());
    if (loss !== undefined) this.#miss(seq, leaf, loss);
    return seq;
  }

  #miss(seq: number, leaf: Buffer, reason: Loss): void {
    if (reason === 'filtered') this.#filtered++;
    else this.#dropped++;
    this.#hole ??= { first: seq, reason, leaves: CompactRange.empty(BigInt(seq - 1)) };
    this.#hole.leaves.append(leaf);
  }

  #line(draft: Draft, now: Date): { readonly seq: number; readonly bytes: Buffer } {
    const seq = this.#tree.size + 1;
    const { kind, content, session, call, match, attrs } = draft;
    const line = JSON.stringify({
      v: 1,
      log: this.#record.log,
      sink: this.#record.sink,
      epoch: this.#record.epoch,
      seq,
      kind,
      time: now.toISOString(),
      digest: content === undefined ? undefined : commitment(commitmentSalt(this.#secret, seq), content),
      session,
      call,
      match,
      attrs,
    });
    return { seq, bytes: Buffer.from(`${line}\n`, 'latin1') };
  }

  #put(bytes: Buffer, must: boolean, now: number): Loss | undefined {
    if (!must && !this.#room.has(this.#offset + bytes.length, now)) return 'overflow';
    return this.#store(bytes) ? undefined : 'lost';
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

  /**
   * Speaks of what is missing, if anything is and there is room for it. The gap line takes the next number; if the
   * disk refuses it too, it is missing like any other, and the hole grows.
   */
  #speak(must: boolean): void {
    const hole = this.#hole;
    if (hole === undefined) return;
    if (!must && hole.reason === 'overflow' && !this.#room.has(this.#offset, this.#now().getTime())) return;
    const hashes = hole.leaves.hashes.map((hash) => hash.toString('base64'));
    const attrs = { first: hole.first, last: this.#tree.size, reason: hole.reason, hashes };
    this.#hole = undefined;
    this.#write({ kind: 'gap', attrs }, true);
    const failed = this.#hole as Hole | undefined;
    if (failed === undefined) return;
    hole.leaves.appendRange(failed.leaves);
    this.#hole = hole;
    if (hole.reason !== 'filtered') return;
    // What speaks of them is missing too: now all of it is, and not by the policy.
    const left = failed.first - hole.first;
    this.#filtered -= left;
    this.#dropped += left;
    this.#hole = { ...hole, reason: failed.reason };
  }
}
