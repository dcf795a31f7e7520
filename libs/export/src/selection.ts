import type { IndexSpan } from './entries-file.js';

/** What a log tells of one epoch of one sink. Indexes are those of entries before M. */
export interface EpochFacts {
  readonly sink: string;
  readonly epoch: string;
  /** Whether one of its entries names a chosen session. */
  readonly named: boolean;
  /**
   * Where its entries are; needed of those that `wholeEpochs` tells only. Spans may have entries of others inside: these
   * are taken too.
   */
  readonly spans?: readonly IndexSpan[] | undefined;
  /** First entry, first `epoch.open` with number 1, first entry that is none such; second stories aside. */
  readonly first?: number | undefined;
  readonly opened?: number | undefined;
  readonly spoke?: number | undefined;
  /** The epoch that its first opening names. */
  readonly previous: string | undefined;
}

/** What a log tells of who was asked for. */
export interface SelectionFacts {
  /** Size of the checkpoint, M. */
  readonly size: number;
  /** Entries that the collector wrote. */
  readonly collector: readonly IndexSpan[];
  /** Sinks that were declared. */
  readonly declared: readonly string[];
  /** Every epoch of the sinks that are declared or have a named epoch. */
  readonly epochs: readonly EpochFacts[];
  /** What verdicts that name a chosen session cite. */
  readonly cited: readonly number[];
}

/**
 * The epochs of which every entry is needed (E2): those that name a chosen session, and those beside these by what the
 * openings name. They are at least those that any of the statements on the sessions was made from, at whatever size.
 */
export function wholeEpochs<Facts extends Omit<EpochFacts, 'spans'>>(epochs: readonly Facts[]): Set<Facts> {
  const keyOf = (sink: string, epoch: string): string => `${sink} ${epoch}`;
  const all = new Map(epochs.map((facts) => [keyOf(facts.sink, facts.epoch), facts]));
  const speaking = new Set(epochs.flatMap(({ sink, named }) => (named ? sink : [])));
  const whole = new Set(epochs.filter(({ named }) => named));
  /** Whether going back from an epoch comes to a named one: once it is known of one, it is of all that come by it. */
  const arrives = new Map<Facts, boolean>();
  for (const from of epochs) {
    const { sink, previous, first, opened } = from;
    if (!speaking.has(sink)) continue;
    // As long as its opening had not come, nobody could tell what it is beside.
    if (first !== undefined && (opened === undefined || first < opened)) whole.add(from);
    if (previous !== undefined && all.get(keyOf(sink, previous))?.named === true) whole.add(from);
    if (!from.named) continue;
    const passed: Facts[] = [];
    let found: boolean | undefined;
    for (let at: Facts = from; found === undefined;) {
      const before = at.previous === undefined ? undefined : all.get(keyOf(sink, at.previous));
      if (before === undefined) found = false;
      else if (before.named) found = true;
      else {
        found = arrives.get(before);
        if (found === undefined) arrives.set(before, false);
        passed.push(before);
        at = before;
      }
    }
    if (passed[0] !== undefined) whole.add(passed[0]);
    for (const one of passed) {
      if (!found) continue;
      arrives.set(one, true);
      whole.add(one);
    }
  }
  // After each named one, those that name none before them, to the first that has said more by when the next begins: their
  // sink may have lost its state in between. One that others name may turn out to be before the named one, and ends nothing.
  const followed = new Set(
    epochs.flatMap(({ sink, previous }) => (previous === undefined ? [] : keyOf(sink, previous))),
  );
  const until = new Map<string, number>();
  const placed = epochs.filter(({ first, sink }) => first !== undefined && speaking.has(sink));
  for (const facts of placed.sort((a, b) => (a.first as number) - (b.first as number))) {
    const { sink, epoch, named, previous, opened, spoke = Number.POSITIVE_INFINITY } = facts;
    const first = facts.first as number;
    if (previous === undefined && opened === first && first <= (until.get(sink) ?? -1)) {
      whole.add(facts);
      if (!followed.has(keyOf(sink, epoch))) until.set(sink, Math.min(until.get(sink) as number, spoke));
    }
    if (named) until.set(sink, Number.POSITIVE_INFINITY);
  }
  return whole;
}

/** The entries that an export of sessions or of a period has, FORMAT.md section 4: ascending, none touching the next. */
export function selectEntries({ size, collector, declared, epochs, cited }: SelectionFacts): IndexSpan[] {
  const sinks = new Set(declared);
  for (const { sink, named } of epochs) if (named) sinks.add(sink);
  const spans: IndexSpan[] = [...collector];
  const one = (index: number | undefined): void => {
    if (index !== undefined) spans.push({ from: index, to: index + 1 });
  };
  const whole = wholeEpochs(epochs);
  for (const epoch of epochs) {
    if (whole.has(epoch)) spans.push(...(epoch.spans ?? []));
    else if (sinks.has(epoch.sink)) for (const index of [epoch.first, epoch.opened, epoch.spoke]) one(index);
  }
  for (const index of cited) one(index);
  return merged(spans, size);
}

/** The same indexes in as few spans as there can be, ascending, those at or past `size` left out. */
function merged(spans: readonly IndexSpan[], size: number): IndexSpan[] {
  const result: { from: number; to: number }[] = [];
  for (const { from, to } of [...spans].sort((a, b) => a.from - b.from)) {
    const span = { from, to: Math.min(to, size) };
    if (span.from >= span.to) continue;
    const last = result.at(-1);
    if (last !== undefined && span.from <= last.to) last.to = Math.max(last.to, span.to);
    else result.push(span);
  }
  return result;
}
