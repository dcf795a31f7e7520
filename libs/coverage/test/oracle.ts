import { decompose } from '@belay/merkle';
import type {
  Conflict,
  CoverageStatus,
  Ending,
  EpochFindings,
  GapReason,
  Missing,
  Span,
  Timing,
} from '@belay/coverage';
import type { Arrival, SourceEpoch } from './world.js';

/**
 * What a statement has to say, told by who saw everything. It knows of each line whether it is the source's own and of
 * each statement whether it is so, and therefore computes no hash: a root agrees when all that it is made of is true.
 * Slow on purpose: everything is looked up number by number, again after every arrival.
 */
type Told = Pick<EpochFindings, 'lines' | 'next' | 'missing' | 'unbound' | 'late' | 'ending' | 'matched'> & {
  readonly conflicts: readonly Omit<Conflict, 'computed'>[];
  /** Lines that the sink says it gave up, in its last statement that arrived. */
  readonly dropped: number;
};

interface Cover {
  readonly right: boolean;
  readonly claim?: Claim;
}

interface Claim extends Span {
  readonly lie: boolean;
  readonly index: number;
  live: boolean;
}

interface Wanted {
  readonly size: number;
  readonly index: number;
  readonly lie: boolean;
  readonly keep: boolean;
}

export function oracle(
  source: SourceEpoch,
  arrivals: readonly Arrival[],
  timing: Timing,
  next?: { readonly epoch: string; readonly index: number; readonly size: number; readonly lie: boolean },
): Told {
  const got = new Map<number, Arrival>();
  const cover = new Map<number, Cover>();
  const claims: Claim[] = [];
  const blind = new Set<number>();
  const unbound = new Set<number>();
  const late = new Set<number>();
  const gaps: { readonly gap: NonNullable<Arrival['line']['gap']>; readonly index: number }[] = [];
  const conflicts: Omit<Conflict, 'computed'>[] = [];
  let wanted: Wanted[] = [];
  let matched = 0;
  let close: { seq: number; index: number; at: number; right?: boolean } | undefined;
  let last: number | undefined;
  let stated0: { readonly size: number; readonly dropped: number } | undefined;

  const prefix = (): number => {
    let size = 0;
    while (cover.has(size + 1)) size++;
    return size;
  };
  const right = (size: number): boolean => {
    for (let seq = 1; seq <= size; seq++) if (cover.get(seq)?.right !== true) return false;
    return true;
  };
  const numbers = ({ from, to }: Span): number[] => Array.from({ length: to - from }, (_, i) => from + i);

  for (const { line, true: genuine, second, entry } of arrivals) {
    const { seq, kind, gap, stated } = line;
    const index = entry.line.index;
    const at = Date.parse(entry.line.received);
    if (second) {
      conflicts.push({ kind: 'number', from: seq, to: seq + 1, index });
      continue;
    }
    if (
      (close !== undefined && at - close.at > timing.lateness) ||
      (last !== undefined && at - last > timing.closeTimeout)
    ) {
      late.add(seq);
    }
    last = at;
    got.set(seq, { line, true: genuine, second, entry });
    const claimed = cover.has(seq);
    if (kind === 'epoch.close' && seq > (close?.seq ?? 0)) {
      close = { seq, index, at };
      if (!claimed) wanted.push({ size: seq, index, lie: false, keep: true });
    }
    if (stated !== undefined) {
      if (stated.size !== seq - 1) conflicts.push({ kind: 'misstated', from: seq, to: seq + 1, index });
      else {
        if (!claimed) wanted.push({ size: stated.size, index, lie: line.lie, keep: false });
        if (stated.size >= (stated0?.size ?? 0)) stated0 = stated;
      }
    }
    if (claimed) {
      unbound.add(seq);
      for (const claim of claims) {
        if (!claim.live || seq < claim.from || seq >= claim.to || !numbers(claim).every((n) => got.has(n)))
          continue;
        claim.live = false;
        if (!claim.lie && numbers(claim).every((n) => got.get(n)?.true))
          numbers(claim).forEach((n) => unbound.delete(n));
        else conflicts.push({ kind: 'gap', from: claim.from, to: claim.to, index: claim.index });
      }
    } else cover.set(seq, { right: genuine });
    if (kind === 'gap' && gap === undefined)
      conflicts.push({ kind: 'misstated', from: seq, to: seq + 1, index });
    if (gap !== undefined) {
      gaps.push({ gap, index });
      const nodes = gap.hashed ? decompose(BigInt(gap.from - 1), BigInt(gap.to - 1)) : [];
      nodes.forEach(({ level, index: place }, i) => {
        const from = Number(place) * 2 ** level + 1;
        const claim: Claim = { from, to: from + 2 ** level, lie: line.lie && i === 0, index, live: true };
        if (numbers(claim).every((n) => cover.has(n))) return;
        const inside = numbers(claim).filter((n) => cover.has(n));
        if (inside.length > 0) {
          wanted = wanted.filter(({ size }) => size < claim.from || size >= claim.to - 1);
          for (const n of numbers(claim)) if (got.has(n)) unbound.add(n);
        }
        if (inside.some((n) => cover.get(n)?.claim !== undefined)) {
          claim.live = false;
          for (const other of claims) if (other.from < claim.to && claim.from < other.to) other.live = false;
        }
        for (const n of numbers(claim)) {
          cover.set(n, { right: !claim.lie, claim });
          if (!claim.live) blind.add(n);
        }
        claims.push(claim);
      });
    }
    const size = prefix();
    const due = wanted.filter((each) => each.size <= size).sort((a, b) => a.size - b.size);
    wanted = wanted.filter((each) => each.size > size);
    for (const each of due) {
      const agrees = right(each.size) && !each.lie;
      if (each.keep) {
        if (close?.seq === each.size) close = { ...close, right: agrees };
      } else if (agrees) matched = Math.max(matched, each.size);
      else
        conflicts.push({
          kind: 'root',
          from: Math.min(matched, each.size) + 1,
          to: each.size + 1,
          index: each.index,
        });
    }
  }

  const greatest = Math.max(0, ...got.keys());
  const spoken = [...got.values()].filter(({ line }) => line.kind !== 'gap' && line.kind !== 'epoch.close');
  const spoke = Math.max(0, ...spoken.map(({ line }) => line.seq));
  const after = close === undefined ? [] : numbers({ from: close.seq, to: greatest + 1 });
  const isOver = close !== undefined && spoke < close.seq && after.every((n) => got.has(n));
  let ending: Ending | undefined =
    close !== undefined && isOver
      ? { by: 'close', seq: close.seq, index: close.index, compared: matched >= close.seq - 1 }
      : undefined;
  let end = greatest + 1;
  if (next !== undefined) {
    const end0 = Math.max(0, ...cover.keys());
    const told =
      close?.seq === next.size && close.right !== undefined
        ? close.right
        : next.size === end0 && prefix() === end0
          ? right(end0)
          : undefined;
    const least = Math.max(spoke, close?.seq ?? 0);
    if (next.size < least)
      conflicts.push({ kind: 'rewound', from: next.size + 1, to: least + 1, index: next.index });
    else if (told !== undefined && (!told || next.lie)) {
      conflicts.push({
        kind: 'successor',
        from: matched + 1,
        to: Math.max(next.size, matched) + 1,
        index: next.index,
      });
    }
    end = Math.max(end, next.size + 1);
    ending ??= {
      by: 'successor',
      epoch: next.epoch,
      index: next.index,
      size: next.size,
      compared: told === true && !next.lie,
    };
  }
  const missing: Missing[] = [];
  for (let n = 1; n < end; n++) {
    if (got.has(n)) continue;
    const by = gaps.find(({ gap }) => gap.from <= n && n < gap.to);
    const gap = by && { index: by.index, reason: by.gap.reason as GapReason, hashed: by.gap.hashed };
    const before = missing.at(-1);
    if (before?.to === n && before.gap?.index === gap?.index)
      missing[missing.length - 1] = { ...before, to: n + 1 };
    else missing.push({ from: n, to: n + 1, ...(gap === undefined ? {} : { gap }) });
  }
  return {
    lines: got.size,
    next: end,
    missing,
    unbound: spansOf(unbound),
    late: spansOf(late),
    conflicts,
    ending,
    matched,
    dropped: stated0?.dropped ?? 0,
  };
}

/** The first row of the page's table that holds. `quiet` is in seconds. */
export function statusIn(
  { conflicts, missing, unbound, ending, dropped }: Told,
  quiet: number,
  { heartbeat, lateness, closeTimeout }: { heartbeat: number; lateness: number; closeTimeout: number },
): CoverageStatus {
  let absent = 0;
  for (const { from, to } of missing) absent += to - from;
  if (conflicts.length > 0) return 'conflict';
  if (absent > 0 || unbound.length > 0) return 'gap';
  if (ending !== undefined) return ending.compared && dropped === 0 ? 'complete' : 'gap';
  if (quiet > closeTimeout) return 'unclosed';
  return quiet > heartbeat + lateness ? 'silent' : 'open';
}

export function spansOf(numbers: ReadonlySet<number>): Span[] {
  const spans: Span[] = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const before = spans.at(-1);
    if (before?.to === n) spans[spans.length - 1] = { from: before.from, to: n + 1 };
    else spans.push({ from: n, to: n + 1 });
  }
  return spans;
}
