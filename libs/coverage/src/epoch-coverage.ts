import type { Entry } from '@belay/envelope';
import { leafHash } from '@belay/merkle';
import { CoverageError } from './error.js';
import { type KnownNode, type Place, placesOf, SparseTree, type SparseTreeState } from './sparse-tree.js';
import { meet, type Span, Spans } from './spans.js';

/** A sender's entry, as `parseEntry` of the envelope library reads it. */
export type SentEntry = Extract<Entry, { readonly by: 'sender' }>;

/** How long is too long, in milliseconds of the collector's clock. */
export interface Timing {
  /** After a close, how long lines may still be under way. */
  readonly lateness: number;
  /** After its last line, when an epoch without a close counts as gone. */
  readonly closeTimeout: number;
}

/** Two stories. The union is closed; each concerns the line numbers [from, to). */
export type ConflictKind =
  /** One number, two lines. */
  | 'number'
  /** A root that the sink states is not that of the lines before it. */
  | 'root'
  /** A line's statement does not fit its own number. */
  | 'misstated'
  /** The hashes of a `gap` line are not those of the lines that came all the same. */
  | 'gap'
  /** The next epoch of the sink states another root for this one. */
  | 'successor'
  /** The next epoch of the sink states fewer lines than it had sent. A machine that lost its power does this too. */
  | 'rewound';

export interface Conflict extends Span {
  readonly kind: ConflictKind;
  /** Index of the entry that shows it. */
  readonly index: number;
  /** Of `root`, `gap` and `successor`: what the received lines give, base64. */
  readonly computed?: string | undefined;
}

/** Why lines are missing, in the words of a `gap` line. */
export type GapReason = 'overflow' | 'filtered' | 'lost' | 'crash';

/** Numbers that a `gap` line spoke of. */
export interface Disclosure extends Span {
  readonly reason: GapReason;
  /** Index of the entry of the `gap` line. */
  readonly index: number;
  /** Whether it brought the hashes of the missing leaves, so that the sink's roots can be followed past them. */
  readonly hashed: boolean;
}

/** What the first line of an epoch says of the sink's run before. All of it is the sender's word. */
export interface Opening {
  readonly counter?: number | undefined;
  readonly previous?: string | undefined;
  readonly size?: number | undefined;
  readonly root?: string | undefined;
}

/** What a later epoch of the same sink says of this one. */
export interface Account {
  /** The later epoch, and the index of its `epoch.open`. */
  readonly epoch: string;
  readonly index: number;
  /** Whether that line was signed under a declared key. */
  readonly signed: boolean;
  readonly size?: number | undefined;
  readonly root?: string | undefined;
}

interface Received {
  readonly index: number;
  /** RFC 3339, by the collector's clock. */
  readonly received: string;
}

interface Close extends Received {
  readonly seq: number;
  /** Root over the lines up to and with the close, base64, once all of them are known. */
  readonly root?: string | undefined;
}

/** What the sink stated last, by size. */
interface Stated {
  readonly size: number;
  readonly index: number;
  readonly dropped: number;
  readonly filtered: number;
}

/** A root that is to be computed at a size: to compare with one stated, or to keep for a close. */
interface Pending {
  readonly size: number;
  readonly index: number;
  /** Base64; absent for a close. */
  readonly root?: string | undefined;
}

/** A subtree whose hash only a `gap` line gave. */
interface Claim extends Place {
  readonly hash: Buffer;
  /** Index of the entry of the `gap` line. */
  readonly entry: number;
}

/** `[level, index, hash in base64, entry]` of a claim. */
type StoredClaim = readonly [level: number, index: number, hash: string, entry: number];

/** How an epoch is known to be over. */
export type Ending =
  | {
      readonly by: 'close';
      readonly seq: number;
      readonly index: number;
      /** Whether the root that the close states was found to be that of the lines before it. */
      readonly compared: boolean;
    }
  | {
      readonly by: 'successor';
      readonly epoch: string;
      readonly index: number;
      /** Lines it says there were. */
      readonly size: number;
      /** Whether the root that it states was found to be that of the lines. */
      readonly compared: boolean;
    };

/** Numbers without a line. */
export interface Missing extends Span {
  /** The `gap` line that speaks of them; absent: nothing does. */
  readonly gap?: { readonly index: number; readonly reason: GapReason; readonly hashed: boolean } | undefined;
}

/** What the log shows of an epoch, whatever the time is. */
export interface EpochFindings {
  /** Lines received, one for each number. */
  readonly lines: number;
  /** One past the greatest number that there is a line for, or that the sink says there was. */
  readonly next: number;
  readonly missing: readonly Missing[];
  readonly unbound: readonly Span[];
  readonly late: readonly Span[];
  readonly conflicts: readonly Conflict[];
  readonly conflictsOmitted: number;
  readonly ending: Ending | undefined;
  /** Greatest size whose stated root was that of the lines before it; 0 for none. */
  readonly matched: number;
  readonly stated: Stated | undefined;
  readonly signed: Readonly<Record<string, number>>;
  readonly unsigned: number;
  readonly first: Received | undefined;
  readonly last: Received | undefined;
  readonly opening: Opening | undefined;
}

/** Everything an `EpochCoverage` knows, as JSON: what is kept between two jobs. */
export interface EpochState {
  readonly v: 1;
  readonly log: string;
  readonly sink: string;
  readonly epoch: string;
  /** Index of the last entry taken in. */
  readonly through: number;
  readonly received: readonly number[];
  readonly disclosed: readonly Disclosure[];
  readonly known: readonly number[];
  readonly unbound: readonly number[];
  readonly late: readonly number[];
  readonly tree: SparseTreeState;
  readonly beside: SparseTreeState;
  readonly claims: readonly StoredClaim[];
  readonly pending: readonly Pending[];
  readonly matched: number;
  readonly unsigned: number;
  readonly signed: Readonly<Record<string, number>>;
  readonly conflicts: readonly Conflict[];
  readonly conflictsOmitted: number;
  readonly first?: Received | undefined;
  readonly last?: Received | undefined;
  readonly opening?: Opening | undefined;
  readonly close?: Close | undefined;
  readonly stated?: Stated | undefined;
  /** Greatest number of a line that is neither `gap` nor `epoch.close`. */
  readonly spoke: number;
}

/** Most roots that wait for what is missing before them; past it, the one over the fewest lines is given up. */
const MAX_PENDING = 1_000;

/** Most conflicts that are listed; how many more there are is counted. */
export const MAX_CONFLICTS = 100;

/** Greatest number of a line. One past it is still a safe integer. */
const MAX_SEQ = Number.MAX_SAFE_INTEGER - 1;

const STATING: ReadonlySet<string> = new Set(['heartbeat', 'session.close', 'epoch.close']);
const keyOf = ({ level, index }: Place): string => `${level}.${index}`;
const leavesOf = ({ level, index }: Place): Span => ({
  from: index * 2 ** level + 1,
  to: (index + 1) * 2 ** level + 1,
});

/**
 * What the log holds of one epoch of one sink, taken in entry by entry in the log's order. The cost of an entry is a
 * constant number of hashes, amortised, and the logarithm of what is missing; the state is O(log n) for each hole and
 * each `gap` line. A run that goes on from `state()` comes to the same as one from the start.
 *
 * Spans are of line numbers; the leaf of line `seq` is `seq - 1`. Invariant: a number is in `known` exactly when its
 * leaf, or a node over it, is in the tree.
 */
export class EpochCoverage {
  readonly log: string;
  readonly sink: string;
  readonly epoch: string;
  #through = -1;
  readonly #received: Spans;
  /** Sorted, without overlap: who spoke of a number first is who disclosed it. */
  readonly #disclosed: Disclosure[];
  readonly #known: Spans;
  /** Received, but where the tree has only a hash that the sink sent. */
  readonly #unbound: Spans;
  readonly #late: Spans;
  readonly #tree: SparseTree;
  /** The lines of `#unbound`, until they fill a subtree whose hash a `gap` line stated. */
  readonly #beside: SparseTree;
  readonly #claims = new Map<string, Claim>();
  /** By size, ascending. Their sizes are the ones the tree holds. */
  readonly #pending: Pending[];
  /** Greatest size whose stated root was that of the lines. */
  #matched = 0;
  #unsigned = 0;
  readonly #signed = new Map<string, number>();
  readonly #conflicts: Conflict[];
  #conflictsOmitted = 0;
  #first: Received | undefined;
  #last: Received | undefined;
  #opening: Opening | undefined;
  #close: Close | undefined;
  #stated: Stated | undefined;
  #spoke = 0;

  constructor(of: { readonly log: string; readonly sink: string; readonly epoch: string } | EpochState) {
    this.log = of.log;
    this.sink = of.sink;
    this.epoch = of.epoch;
    const state = 'v' in of ? of : undefined;
    try {
      this.#received = new Spans(state?.received);
      this.#known = new Spans(state?.known);
      this.#unbound = new Spans(state?.unbound);
      this.#late = new Spans(state?.late);
    } catch (error) {
      throw new CoverageError('state', (error as Error).message);
    }
    this.#tree = new SparseTree(state?.tree);
    this.#beside = new SparseTree(state?.beside);
    this.#disclosed = [...(state?.disclosed ?? [])];
    this.#pending = [...(state?.pending ?? [])];
    this.#conflicts = [...(state?.conflicts ?? [])];
    if (state === undefined) return;
    if (state.v !== 1) throw new CoverageError('state', 'not version 1 of a stored epoch');
    for (const [level, index, hash, entry] of state.claims) {
      this.#claims.set(keyOf({ level, index }), { level, index, hash: Buffer.from(hash, 'base64'), entry });
    }
    for (const [key, lines] of Object.entries(state.signed)) this.#signed.set(key, lines);
    this.#through = state.through;
    this.#matched = state.matched;
    this.#unsigned = state.unsigned;
    this.#conflictsOmitted = state.conflictsOmitted;
    this.#first = state.first;
    this.#last = state.last;
    this.#opening = state.opening;
    this.#close = state.close;
    this.#stated = state.stated;
    this.#spoke = state.spoke;
  }

  /**
   * Takes in the next entry of this epoch. Entries come in the log's order; one at or before the last is taken to be
   * known and does nothing, so that a job that is run twice does no harm. `timing` is the policy's in force.
   */
  apply(entry: SentEntry, timing: Timing): void {
    const { line, envelope, body } = entry;
    if (envelope.log !== this.log || envelope.sink !== this.sink || envelope.epoch !== this.epoch) {
      throw new CoverageError('misrouted', `entry ${line.index} is of another epoch`);
    }
    if (line.index <= this.#through) return;
    this.#through = line.index;
    const { index, received } = line;
    const { seq, kind } = envelope;
    const one = { from: seq, to: seq + 1 };
    if (line.conflict !== undefined || this.#received.has(seq)) {
      this.#contradict({ kind: 'number', ...one, index });
      return;
    }
    if (line.signed === undefined) this.#unsigned++;
    else this.#signed.set(line.signed, (this.#signed.get(line.signed) ?? 0) + 1);
    if (line.late === true || this.#isLate(received, timing)) this.#late.add(one);
    this.#first ??= { index, received };
    this.#last = { index, received };
    this.#received.add(one);
    if (kind !== 'gap' && kind !== 'epoch.close') this.#spoke = Math.max(this.#spoke, seq);
    const attrs = envelope.attrs ?? {};
    if (kind === 'epoch.open' && seq === 1) {
      this.#opening = {
        counter: attrs['counter'] as number | undefined,
        previous: attrs['prev_epoch'] as string | undefined,
        size: attrs['prev_size'] as number | undefined,
        root: attrs['prev_root'] as string | undefined,
      };
    }
    const states = STATING.has(kind) ? attrs : undefined;
    // Of a line that came after the sink gave it up, the tree has no leaf: no root can be computed before or after it.
    const isLeaf = !this.#known.has(seq);
    if (kind === 'epoch.close' && seq > (this.#close?.seq ?? 0)) {
      this.#close = { seq, index, received };
      if (isLeaf) this.#want({ size: seq, index });
    }
    if (states !== undefined && states['size'] === seq - 1) {
      if (isLeaf) this.#want({ size: seq - 1, index, root: states['root'] as string });
      if (seq - 1 >= (this.#stated?.size ?? 0)) {
        const [dropped, filtered] = [states['dropped'] as number, states['filtered'] as number];
        this.#stated = { size: seq - 1, index, dropped, filtered };
      }
    } else if (states !== undefined) this.#contradict({ kind: 'misstated', ...one, index });
    this.#place(seq, leafHash(body));
    if (kind === 'gap') {
      const span = { from: attrs['first'] as number, to: (attrs['last'] as number) + 1 };
      if (span.to > seq) this.#contradict({ kind: 'misstated', ...one, index });
      else this.#disclose(span, attrs['reason'] as GapReason, attrs['hashes'] as string[] | undefined, index);
    }
    this.#settle();
  }

  /**
   * What the log shows, given what a later epoch of the sink says of this one. That account counts only when it is
   * signed as this epoch's lines are: who has no more than a token can't say how a keyed sink's epoch ended.
   */
  findings(account?: Account): EpochFindings {
    const conflicts = [...this.#conflicts];
    const close = this.#close;
    const closed = close !== undefined && this.#nothingAfter(close.seq) ? close : undefined;
    let ending: Ending | undefined =
      closed === undefined
        ? undefined
        : { by: 'close', seq: closed.seq, index: closed.index, compared: this.#matched >= closed.seq - 1 };
    let next = Math.max(this.#received.end, 1);
    const { root } = account ?? {};
    // No line has a greater number, whatever the next epoch says.
    const size = account?.size === undefined ? undefined : Math.min(account.size, MAX_SEQ);
    if (account !== undefined && size !== undefined && (account.signed || this.#signed.size === 0)) {
      const least = Math.max(this.#spoke, close?.seq ?? 0);
      const span = { from: this.#matched + 1, to: Math.max(size, this.#matched) + 1 };
      const computed = this.#rootAt(size);
      if (size < least) {
        conflicts.push({ kind: 'rewound', from: size + 1, to: least + 1, index: account.index });
      } else if (root !== undefined && computed !== undefined && computed !== root) {
        conflicts.push({ kind: 'successor', ...span, index: account.index, computed });
      }
      next = Math.max(next, size + 1);
      ending ??= {
        by: 'successor',
        epoch: account.epoch,
        index: account.index,
        size,
        compared: root !== undefined && computed === root,
      };
    }
    return {
      lines: this.#received.count,
      next,
      missing: this.#missing(next),
      unbound: this.#unbound.spans(),
      late: this.#late.spans(),
      conflicts,
      conflictsOmitted: this.#conflictsOmitted,
      ending,
      matched: this.#matched,
      stated: this.#stated,
      signed: Object.fromEntries([...this.#signed].sort(([a], [b]) => (a < b ? -1 : 1))),
      unsigned: this.#unsigned,
      first: this.#first,
      last: this.#last,
      opening: this.#opening,
    };
  }

  state(): EpochState {
    return {
      v: 1,
      log: this.log,
      sink: this.sink,
      epoch: this.epoch,
      through: this.#through,
      received: this.#received.bounds(),
      disclosed: [...this.#disclosed],
      known: this.#known.bounds(),
      unbound: this.#unbound.bounds(),
      late: this.#late.bounds(),
      tree: this.#tree.state(),
      beside: this.#beside.state(),
      claims: [...this.#claims.values()]
        .sort((a, b) => leavesOf(a).from - leavesOf(b).from || a.level - b.level)
        .map(({ level, index, hash, entry }) => [level, index, hash.toString('base64'), entry]),
      pending: [...this.#pending],
      matched: this.#matched,
      unsigned: this.#unsigned,
      signed: Object.fromEntries([...this.#signed].sort(([a], [b]) => (a < b ? -1 : 1))),
      conflicts: [...this.#conflicts],
      conflictsOmitted: this.#conflictsOmitted,
      first: this.#first,
      last: this.#last,
      opening: this.#opening,
      close: this.#close,
      stated: this.#stated,
      spoke: this.#spoke,
    };
  }

  /** Received after statements that counted on nothing more to come. */
  #isLate(received: string, { lateness, closeTimeout }: Timing): boolean {
    // Most lines come with the one before, in one commit.
    if (this.#close === undefined && received === this.#last?.received) return false;
    const now = Date.parse(received);
    const since = (when: Received | undefined): number => now - Date.parse(when?.received ?? received);
    return since(this.#close) > lateness || since(this.#last) > closeTimeout;
  }

  #contradict(conflict: Conflict): void {
    if (this.#conflicts.length < MAX_CONFLICTS) this.#conflicts.push(conflict);
    else this.#conflictsOmitted++;
  }

  /** Whether every number after `seq` was received and is a `gap` line, which may follow a close. */
  #nothingAfter(seq: number): boolean {
    return this.#spoke < seq && this.#received.endFrom(seq) === this.#received.end;
  }

  #missing(next: number): Missing[] {
    const missing: Missing[] = [];
    const undisclosed = (from: number, to: number): void => {
      if (from < to) missing.push({ from, to });
    };
    for (const hole of this.#received.without({ from: 1, to: next })) {
      let at = hole.from;
      for (let i = this.#disclosedBefore(hole.from); i < this.#disclosed.length; i++) {
        const { index, reason, hashed, ...span } = this.#disclosed[i] as Disclosure;
        if (span.from >= hole.to) break;
        const from = Math.max(span.from, at);
        const to = Math.min(span.to, hole.to);
        if (from >= to) continue;
        undisclosed(at, from);
        missing.push({ from, to, gap: { index, reason, hashed } });
        at = to;
      }
      undisclosed(at, hole.to);
    }
    return missing;
  }

  /** Position of the first disclosure that ends after `number`. */
  #disclosedBefore(number: number): number {
    let low = 0;
    let high = this.#disclosed.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#disclosed[middle] as Disclosure).to <= number) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Asks for the root at a size before a leaf beyond it can be grown over it. */
  #want(pending: Pending): void {
    const { size } = pending;
    let at = this.#pending.length;
    while (at > 0 && (this.#pending[at - 1] as Pending).size > size) at--;
    this.#pending.splice(at, 0, pending);
    this.#tree.hold(size);
    if (this.#pending.length <= MAX_PENDING) return;
    // The roots over more lines cover its lines too.
    const given = this.#pending.shift() as Pending;
    if (this.#pending[0]?.size !== given.size) this.#tree.release(given.size);
  }

  #place(seq: number, hash: Buffer): void {
    const one = { from: seq, to: seq + 1 };
    const leaf = { level: 0, index: seq - 1, hash, received: true };
    if (this.#known.has(seq)) {
      this.#unbound.add(one);
      this.#setBeside(leaf);
    } else {
      this.#known.add(one);
      this.#tree.add(leaf);
    }
  }

  /** Keeps received lines beside the tree until they fill a subtree whose hash was stated, and then compares. */
  #setBeside(node: KnownNode): void {
    this.#beside.add(node, (place, hash) => {
      const claim = this.#claims.get(keyOf(place));
      if (claim === undefined) return false;
      this.#claims.delete(keyOf(place));
      const span = leavesOf(place);
      if (claim.hash.equals(hash)) this.#unbound.remove(span);
      else {
        const computed = hash.toString('base64');
        this.#contradict({ kind: 'gap', ...span, index: claim.entry, computed });
      }
      return true;
    });
  }

  #disclose(span: Span, reason: GapReason, hashes: readonly string[] | undefined, index: number): void {
    const places = placesOf(span.from - 1, span.to - 1);
    // Other than as many hashes as the range has, they belong to no tree.
    const hashed = hashes?.length === places.length;
    const before = this.#disclosedBefore(span.from);
    const parts: Disclosure[] = [];
    let [at, from] = [before, span.from];
    for (; at < this.#disclosed.length; at++) {
      const known = this.#disclosed[at] as Disclosure;
      if (known.from >= span.to) break;
      if (from < known.from) parts.push({ from, to: known.from, reason, index, hashed });
      parts.push(known);
      from = known.to;
    }
    if (from < span.to) parts.push({ from, to: span.to, reason, index, hashed });
    this.#disclosed.splice(before, at - before, ...parts);
    if (!hashed) return;
    places.forEach((place, i) => {
      this.#claim({ ...place, hash: Buffer.from(hashes[i] as string, 'base64'), entry: index });
    });
  }

  #claim(claim: Claim): void {
    const span = leavesOf(claim);
    // What is known already is held to the roots that the sink states, and needs no hash of its own.
    if (this.#known.covers(span)) return;
    const parts = this.#known.within(span);
    const nodes: KnownNode[] = [];
    if (parts.length > 0) {
      // Some of these lines came before the sink gave them up. From here on the tree follows the sink's hash, and
      // what is inside it is compared once all of it is there.
      this.#forgetWithin(span);
      for (const { from, to } of parts) nodes.push(...this.#tree.take(from - 1, to - 1));
      for (const part of this.#received.within(span)) this.#unbound.add(part);
    }
    if (nodes.every(({ received }) => received)) {
      this.#claims.set(keyOf(claim), claim);
      for (const node of nodes) this.#setBeside(node);
    } else {
      // A hash that was stated before is inside this one: of its leaves nothing is known, so this one can never be
      // computed of lines, and that one no longer has a part in the tree.
      for (const [key, other] of this.#claims) if (meet(leavesOf(other), span)) this.#claims.delete(key);
    }
    this.#known.add(span);
    this.#tree.add({ level: claim.level, index: claim.index, hash: claim.hash, received: false });
  }

  /** Gives up the roots that would have to be computed inside a span. */
  #forgetWithin({ from, to }: Span): void {
    for (let i = this.#pending.length - 1; i >= 0; i--) {
      const { size } = this.#pending[i] as Pending;
      if (size < from || size >= to - 1) continue;
      this.#pending.splice(i, 1);
      this.#tree.forget(size);
    }
  }

  /** How many lines from the first on the tree can be computed of. */
  #prefix(): number {
    return this.#known.endFrom(1) - 1;
  }

  /** Computes the roots that can be computed by now, in order of their sizes. */
  #settle(): void {
    const prefix = this.#prefix();
    let done = 0;
    for (; done < this.#pending.length; done++) {
      const { size, index, root } = this.#pending[done] as Pending;
      if (size > prefix) break;
      const computed = this.#tree.root(size)?.toString('base64');
      if (computed === undefined) throw new CoverageError('state', `no root at ${size} of what is known`);
      if (root === undefined) {
        if (this.#close?.seq === size) this.#close = { ...this.#close, root: computed };
      } else if (root === computed) this.#matched = Math.max(this.#matched, size);
      else {
        const from = Math.min(this.#matched, size) + 1;
        // One over no lines concerns the line that states it.
        this.#contradict({ kind: 'root', from, to: Math.max(size, from) + 1, index, computed });
      }
      // The next larger root is computed of nodes that grew over this size.
      if (this.#pending[done + 1]?.size !== size) this.#tree.release(size);
    }
    if (done > 0) this.#pending.splice(0, done);
  }

  /** Root over the lines [1, size], base64, where it can still be told: at a close, and at the end of what is known. */
  #rootAt(size: number): string | undefined {
    if (size === this.#close?.seq && this.#close.root !== undefined) return this.#close.root;
    if (size !== this.#known.end - 1 || size !== this.#prefix()) return undefined;
    return this.#tree.root(size)?.toString('base64');
  }
}
