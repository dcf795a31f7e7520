import type { IndexSpan } from './entries-file.js';

/** What a log tells of one epoch of one sink. Indexes are those of entries before M. */
export interface EpochFacts {
  readonly sink: string;
  readonly epoch: string;
  /** Whether one of its entries names a chosen session. */
  readonly named: boolean;
  /** Where its entries are; needed of a named one only. Spans may have entries of others inside: these are taken too. */
  readonly spans?: readonly IndexSpan[] | undefined;
  /** First entry, first `epoch.open` with number 1, first entry that is none such; second stories aside. */
  readonly first?: number | undefined;
  readonly opened?: number | undefined;
  readonly spoke?: number | undefined;
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

/** The entries that an export of sessions or of a period has, FORMAT.md section 4: ascending, none touching the next. */
export function selectEntries({ size, collector, declared, epochs, cited }: SelectionFacts): IndexSpan[] {
  const sinks = new Set(declared);
  for (const { sink, named } of epochs) if (named) sinks.add(sink);
  const spans: IndexSpan[] = [...collector];
  const one = (index: number | undefined): void => {
    if (index !== undefined) spans.push({ from: index, to: index + 1 });
  };
  for (const epoch of epochs) {
    if (epoch.named) spans.push(...(epoch.spans ?? []));
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
