import { collectorLine, entryBytes, newUlid, parseEntry, SinkTree } from '@belay/envelope';
import { CompactRange, leafHash } from '@belay/merkle';
import type { SentEntry } from '@belay/coverage';
import fc from 'fast-check';

/**
 * A source that is known to the last line: what every sink numbered, kept and stated, and what then became of each
 * line on the way. The log is what is left of it; the oracle knows the rest.
 */

export const ORIGIN = 'belay.example/acme/agents';
export const START = Date.parse('2026-01-01T00:00:00.000Z');
export const KEY = '795ed5ffe9039bf5';
const TOKEN = 'tok_01kdvdna00081040g2081040g2';

/** What a sink does next. `drop` makes the next lines miss the spool, until the `gap` line that `speak` brings. */
export type Step =
  | { readonly do: 'note' | 'beat' | 'speak' | 'wrongRoot' | 'wrongSize' | 'wrongGap' | 'close' }
  | {
      readonly do: 'drop';
      readonly hashes: 'right' | 'wrong' | 'short' | 'none';
      readonly reason: 'overflow' | 'filtered' | 'lost';
      /** The lines leave all the same: what wrote them down did not know. */
      readonly leaks?: boolean;
    };

export interface EpochScript {
  readonly steps: readonly Step[];
  readonly end: 'close' | 'kill' | 'expire';
  /** Of the lines before an `expire`, how many are given up. */
  readonly given: number;
  /** What the next epoch says of this one. */
  readonly account: 'right' | 'none' | 'wrong' | 'short';
  /** Whether the whole epoch is lost on the way. */
  readonly lost: boolean;
}

/** What becomes of a line, by turns over all lines of the world. */
export interface Fate {
  readonly kind: 'arrives' | 'lost' | 'forged' | 'twice';
  /** Places it is late by. */
  readonly shift: number;
  /** Milliseconds of the collector's clock after the line before. */
  readonly after: number;
  /** Milliseconds that the sink's clock is off. */
  readonly skew: number;
}

/** A line at the source. */
export interface SourceLine {
  readonly sink: string;
  readonly epoch: string;
  readonly seq: number;
  readonly kind: string;
  readonly bytes: Buffer;
  readonly emitted: boolean;
  /** The statement in it is not what the sink's lines are. */
  readonly lie: boolean;
  readonly gap?: {
    readonly from: number;
    readonly to: number;
    readonly hashed: boolean;
    readonly reason: string;
  };
  readonly stated?: { readonly size: number; readonly dropped: number };
}

export interface SourceEpoch {
  readonly sink: string;
  readonly epoch: string;
  readonly counter: number;
  readonly previous?: string;
  /** What its opening says of the one before, and whether that is so. */
  readonly account?: { readonly size: number; readonly lie: boolean };
  readonly lines: readonly SourceLine[];
}

/** A line in the log. `true` is whether it is the source's own. */
export interface Arrival {
  readonly line: SourceLine;
  readonly true: boolean;
  readonly second: boolean;
  readonly entry: SentEntry;
}

export interface World {
  readonly epochs: readonly SourceEpoch[];
  readonly arrivals: readonly Arrival[];
  readonly keyed: boolean;
}

export interface WorldScript {
  readonly sinks: readonly (readonly EpochScript[])[];
  readonly fates: readonly Fate[];
  readonly keyed: boolean;
}

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.constant({ do: 'note' } as const) },
  { weight: 4, arbitrary: fc.constant({ do: 'beat' } as const) },
  { weight: 3, arbitrary: fc.constant({ do: 'speak' } as const) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('drop' as const),
      hashes: fc.constantFrom('right', 'right', 'right', 'none', 'wrong', 'short'),
      reason: fc.constantFrom('overflow', 'filtered', 'lost'),
      leaks: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Step>(
      { do: 'wrongRoot' },
      { do: 'wrongSize' },
      { do: 'wrongGap' },
      { do: 'close' },
    ),
  },
);

const honestStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.constant({ do: 'note' } as const) },
  { weight: 4, arbitrary: fc.constant({ do: 'beat' } as const) },
  { weight: 3, arbitrary: fc.constant({ do: 'speak' } as const) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('drop' as const),
      hashes: fc.constantFrom('right', 'none'),
      reason: fc.constantFrom('overflow', 'filtered', 'lost'),
    }),
  },
);

/** Scripts of a world; an honest one has sinks that state what is so, and a way that only loses and reorders. */
export function worlds(honest: boolean): fc.Arbitrary<WorldScript> {
  const epoch: fc.Arbitrary<EpochScript> = fc.record({
    steps: fc.array(honest ? honestStep : step, { maxLength: 24 }),
    end: fc.constantFrom('close', 'close', 'kill', 'expire'),
    given: fc.integer({ min: 1, max: 12 }),
    account: honest
      ? fc.constantFrom('right', 'right', 'none')
      : fc.constantFrom('right', 'right', 'right', 'none', 'wrong', 'short'),
    lost: fc.oneof({ weight: 7, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
  });
  const fate: fc.Arbitrary<Fate> = fc.record({
    kind: fc.oneof(
      { weight: 30, arbitrary: fc.constant('arrives' as const) },
      { weight: 2, arbitrary: fc.constant('lost' as const) },
      ...(honest ? [] : [{ weight: 1, arbitrary: fc.constantFrom('forged' as const, 'twice' as const) }]),
    ),
    shift: fc.oneof(
      { weight: 5, arbitrary: fc.constant(0) },
      { weight: 1, arbitrary: fc.integer({ min: 0, max: 30 }) },
    ),
    after: fc.constantFrom(0, 1, 500, 500, 500, 40_000, 150_000, 4_000_000),
    skew: fc.integer({ min: -1e10, max: 1e10 }),
  });
  return fc.record({
    sinks: fc.array(fc.array(epoch, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 2 }),
    // One shape for a whole world now and then, so that some worlds lose or reorder nothing.
    fates: fc.oneof(
      fc.array(fate, { minLength: 1, maxLength: 60 }),
      fc.constant([{ kind: 'arrives', shift: 0, after: 500, skew: 0 } as const]),
    ),
    keyed: fc.boolean(),
  });
}

const ulid = (n: number): string => newUlid(START + n, Buffer.alloc(10, n));

function sourceOf(
  sink: string,
  base: number,
  scripts: readonly EpochScript[],
  fates: readonly Fate[],
): SourceEpoch[] {
  const epochs: SourceEpoch[] = [];
  let before:
    { id: string; script: EpochScript; tree: SinkTree; closed?: { size: number; root: string } } | undefined;
  scripts.forEach((script, counter) => {
    const epoch = ulid(base + counter);
    const tree = new SinkTree();
    const lines: SourceLine[] = [];
    let hole: { from: number; leaves: CompactRange; drop: Extract<Step, { do: 'drop' }> } | undefined;
    let dropped = 0;
    const write = (
      kind: string,
      attrs: Record<string, unknown> | undefined,
      extra: Partial<Pick<SourceLine, 'lie' | 'gap' | 'stated'>> = {},
      must = false,
    ): void => {
      const seq = tree.size + 1;
      const { skew } = fates[(base + seq) % fates.length] as Fate;
      const time = new Date(START + skew).toISOString();
      const bytes = Buffer.from(JSON.stringify({ v: 1, log: ORIGIN, sink, epoch, seq, kind, time, attrs }));
      const leaf = tree.append(bytes);
      const inside = !must && hole !== undefined;
      const emitted = !inside || hole?.drop.leaks === true;
      if (inside) {
        dropped++;
        hole?.leaves.append(leaf);
      }
      lines.push({ sink, epoch, seq, kind, bytes, emitted, lie: false, ...extra });
    };
    const state = (kind: string, wrong?: 'root' | 'size', must = false): void => {
      const { size, root } = tree.stated();
      const stated = { size: wrong === 'size' ? size + 1 : size, dropped };
      write(
        kind,
        {
          size: stated.size,
          root: wrong === 'root' ? leafHash(Buffer.from('other')).toString('base64') : root,
          dropped,
          filtered: 0,
        },
        { lie: wrong !== undefined, stated },
        must,
      );
    };
    const gapLine = (
      span: { from: number; leaves: CompactRange },
      drop: Extract<Step, { do: 'drop' }>,
    ): void => {
      const last = Number(span.leaves.end);
      const right = span.leaves.hashes.map((hash) => hash.toString('base64'));
      const hashes =
        drop.hashes === 'none'
          ? undefined
          : drop.hashes === 'right'
            ? right
            : drop.hashes === 'short'
              ? right.slice(1)
              : [leafHash(Buffer.from('other')).toString('base64'), ...right.slice(1)];
      write(
        'gap',
        { first: span.from, last, reason: drop.reason, hashes },
        {
          lie: drop.hashes === 'wrong',
          gap: {
            from: span.from,
            to: last + 1,
            hashed: drop.hashes === 'right' || drop.hashes === 'wrong',
            reason: drop.reason,
          },
        },
        true,
      );
    };
    const speak = (): void => {
      if (hole === undefined) return;
      const span = hole;
      hole = undefined;
      if (Number(span.leaves.end) >= span.from) gapLine(span, span.drop);
    };
    const account =
      before === undefined || before.script.account === 'none'
        ? undefined
        : accountOf(before.closed ?? before.tree.stated(), before.script.account);
    write(
      'epoch.open',
      {
        counter,
        prev_epoch: before?.id,
        prev_size: account?.size,
        prev_root: account?.root,
        sink_kind: 'proxy',
      },
      {},
      true,
    );
    for (const each of script.steps) {
      if (each.do === 'drop') {
        hole ??= { from: tree.size + 1, leaves: CompactRange.empty(BigInt(tree.size)), drop: each };
      } else if (each.do === 'note') write('x.note', { n: tree.size });
      else if (each.do === 'beat') state('heartbeat');
      else if (each.do === 'wrongGap') {
        // It speaks of its own number, too.
        const last = tree.size + 1;
        write('gap', { first: last, last, reason: 'lost', hashes: [] }, { lie: true });
      } else if (each.do === 'wrongRoot') state('heartbeat', 'root');
      else if (each.do === 'wrongSize') state('heartbeat', 'size');
      else if (each.do === 'close') {
        speak();
        state('epoch.close', undefined, true);
      } else speak();
    }
    let closed: { size: number; root: string } | undefined;
    if (script.end !== 'kill') {
      speak();
      state('epoch.close', undefined, true);
      closed = tree.stated();
    }
    if (script.end === 'expire') {
      const from = Math.max(1, tree.size + 1 - script.given);
      const leaves = CompactRange.empty(BigInt(from - 1));
      for (const line of lines.slice(from - 1)) leaves.append(leafHash(line.bytes));
      gapLine({ from, leaves }, { do: 'drop', hashes: 'right', reason: 'overflow' });
    }
    epochs.push({
      sink,
      epoch,
      counter,
      ...(before === undefined ? {} : { previous: before.id }),
      ...(account === undefined ? {} : { account: { size: account.size, lie: account.lie } }),
      lines,
    });
    before = { id: epoch, script, tree, ...(closed === undefined ? {} : { closed }) };
  });
  return epochs;
}

function accountOf(
  { size, root }: { size: number; root: string },
  how: 'right' | 'wrong' | 'short',
): { size: number; root: string; lie: boolean } {
  if (how === 'short') return { size: Math.max(0, size - 1), root, lie: true };
  if (how === 'wrong') return { size, root: leafHash(Buffer.from('other')).toString('base64'), lie: true };
  return { size, root, lie: false };
}

/** A line of the same number and meaning, and other bytes. */
export function forged(line: SourceLine): Buffer {
  const value = JSON.parse(line.bytes.toString()) as { time: string };
  return Buffer.from(JSON.stringify({ ...value, time: '2096-02-02T00:00:00.000Z' }));
}

export function entryOf(
  index: number,
  received: number,
  sink: string,
  body: Buffer,
  extra: { conflict?: number; signed?: string; role?: 'agent' | 'sink' | 'verifier' } = {},
): SentEntry {
  const line = collectorLine({
    index,
    log: ORIGIN,
    received: new Date(received).toISOString(),
    role: extra.role ?? 'sink',
    token: TOKEN,
    sink,
    ...(extra.signed === undefined ? {} : { signed: extra.signed }),
    ...(extra.conflict === undefined ? {} : { conflict: extra.conflict }),
  });
  return parseEntry(entryBytes(line, body)) as SentEntry;
}

/** Runs a script: the source writes, the way does its part, the collector gives what arrives its places. */
export function worldOf(script: WorldScript): World {
  const epochs = script.sinks.flatMap((scripts, i) =>
    sourceOf(`sink${i}`, i * 10 + 1, scripts, script.fates),
  );
  const lost = new Set(
    epochs
      .filter(({ sink, counter }) => script.sinks[Number(sink.slice(4))]?.[counter]?.lost)
      .map((e) => e.epoch),
  );
  const sent = epochs.flatMap(({ lines }) => lines.filter(({ emitted }) => emitted));
  const under = sent.map((line, i) => {
    const fate = script.fates[i % script.fates.length] as Fate;
    return {
      line,
      fate: lost.has(line.epoch) ? ({ ...fate, kind: 'lost' } as const) : fate,
      at: i + fate.shift,
    };
  });
  under.sort((a, b) => a.at - b.at);
  const arrivals: Arrival[] = [];
  let now = START;
  const first = new Map<string, number>();
  const append = (line: SourceLine, genuine: boolean): void => {
    const key = `${line.epoch}/${line.seq}`;
    const conflict = first.get(key);
    const index = arrivals.length;
    if (conflict === undefined) first.set(key, index);
    const entry = entryOf(index, now, line.sink, genuine ? line.bytes : forged(line), {
      ...(conflict === undefined ? {} : { conflict }),
      ...(script.keyed ? { signed: KEY } : {}),
    });
    arrivals.push({ line, true: genuine, second: conflict !== undefined, entry });
  };
  for (const { line, fate } of under) {
    if (fate.kind === 'lost') continue;
    now += fate.after;
    append(line, fate.kind !== 'forged');
    if (fate.kind === 'twice') append(line, false);
  }
  return { epochs, arrivals, keyed: script.keyed };
}
