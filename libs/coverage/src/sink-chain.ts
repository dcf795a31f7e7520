import type { Account, Opening, SentEntry } from './epoch-coverage.js';
import { CoverageError } from './error.js';

/** What is remembered of one epoch of a sink. */
interface Link extends Opening {
  readonly epoch: string;
  /** Index of the first entry of the epoch. */
  readonly first: number;
  /** Of its `epoch.open`; absent as long as that was not received. */
  readonly opened?: number | undefined;
  readonly signed: boolean;
  /** Whether it has said anything but that it opened. */
  readonly spoke: boolean;
}

/** Everything a `SinkChain` knows, as JSON. */
export interface ChainState {
  readonly v: 1;
  readonly log: string;
  readonly sink: string;
  readonly through: number;
  readonly links: readonly Link[];
}

/** Epochs of which nothing was received, before one that was. */
export interface LostEpochs {
  /** The epoch that says so, and the index of its `epoch.open`. */
  readonly before: string;
  readonly index: number;
  /** The last of them, where it is named: its identifier, and what the sink says it came to. */
  readonly epoch?: string | undefined;
  readonly size?: number | undefined;
  readonly root?: string | undefined;
  /** Counters of all of them, [from, to); absent where the sink's runs do not make one chain. */
  readonly counters?: { readonly from: number; readonly to: number } | undefined;
}

/** Two epochs that both say they are the next after the same one: the sink's state was copied, or was put back. */
export interface Branch {
  readonly previous: string;
  readonly epochs: readonly string[];
  /** Index of the entry by which it showed. */
  readonly index: number;
}

/** An epoch whose counter does not follow that of the one it names. */
export interface Miscount {
  readonly epoch: string;
  readonly index: number;
}

/** How a session stands in an epoch of which lines name it. */
export interface Ends {
  /** Its first line there is its `session.open`: no line of it can be before. */
  readonly opens: boolean;
  /** Its last line there is its `session.close`. */
  readonly closes: boolean;
}

/** Epochs of which no line names a session, and which may have held lines of it that were lost. */
export interface Beside {
  /** In the order of their first entries. */
  readonly epochs: readonly string[];
  /** Epochs before which one is lost, `LostEpochs.before`, where that may have held some. */
  readonly lost: ReadonlySet<string>;
}

/** Where going back from an epoch ends, and at which one: with `ours` that of the session, else the last come to. */
interface Way {
  readonly end: 'ours' | 'lost' | 'unopened' | 'first' | 'circle';
  readonly at: string;
  /** What it passes is beside the session. */
  added?: true;
}

export interface ChainFindings {
  /** In the order of their first entries. */
  readonly epochs: readonly string[];
  readonly lost: readonly LostEpochs[];
  readonly branches: readonly Branch[];
  readonly miscounted: readonly Miscount[];
  /** Epochs that name none before them. More than one: nothing links the runs before to those after. */
  readonly beginnings: readonly string[];
  /** Epochs whose `epoch.open` was not received: it can't be told what was before them. */
  readonly unopened: readonly string[];
}

/**
 * The epochs of one sink in one log, linked by what each `epoch.open` says of the one before. Entries come in the
 * log's order; what an entry says of an epoch that comes later is kept until that comes.
 */
export class SinkChain {
  readonly log: string;
  readonly sink: string;
  #through: number;
  readonly #links: Map<string, Link>;
  /** Identifiers of the epochs that name one as theirs before. */
  readonly #next = new Map<string, string[]>();
  /** Those of which there are two or more. */
  readonly #forks = new Set<string>();
  /** Epochs before which something may be missing, or wrong: no other is. */
  readonly #suspects = new Set<string>();
  /** Those whose opening was not received. */
  readonly #unopened = new Set<string>();
  /** Epochs that name none before them, by their openings. */
  readonly #beginnings = new Set<string>();
  /** Counters of all that were opened, ascending; undefined: to be made again. */
  #counters: number[] | undefined;
  /** Those of `#beginnings` by their first entries; undefined: to be made again. */
  #starts: Link[] | undefined;

  constructor(of: { readonly log: string; readonly sink: string } | ChainState) {
    this.log = of.log;
    this.sink = of.sink;
    if ('v' in of && of.v !== 1) throw new CoverageError('state', 'not version 1 of a stored chain');
    this.#through = 'v' in of ? of.through : -1;
    this.#links = new Map('v' in of ? of.links.map((link) => [link.epoch, link]) : []);
    for (const link of this.#links.values()) {
      if (link.opened === undefined) this.#unopened.add(link.epoch);
      this.#name(link);
    }
  }

  /**
   * Takes in the next entry of this sink, of whichever epoch. One at or before the last does nothing. Tells whether the
   * chain is another for it: most entries only move `through`. `keyed` tells whether a key was declared for the sink when
   * the entry was written: a line that is not signed then is by who has a token and not the key, and tells no more than
   * that its epoch has a line.
   */
  apply({ line, envelope }: SentEntry, keyed: () => boolean = () => false): boolean {
    if (envelope.log !== this.log || envelope.sink !== this.sink) {
      throw new CoverageError('misrouted', `entry ${line.index} is of another sink`);
    }
    if (line.index <= this.#through) return false;
    this.#through = line.index;
    if (line.conflict !== undefined) return false;
    const { epoch, kind, seq, attrs } = envelope;
    const known = this.#links.get(epoch);
    const opens = kind === 'epoch.open' && seq === 1;
    // A second opening that nobody marked as the conflict it is: the first one counts, as in the epoch's own account.
    if (known !== undefined && (opens ? known.opened !== undefined : known.spoke)) return false;
    const counts = line.signed !== undefined || !keyed();
    if (!counts && known !== undefined) return false;
    const link = known ?? { epoch, first: line.index, signed: false, spoke: false };
    if (!opens || !counts) {
      this.#links.set(epoch, { ...link, spoke: counts });
      if (link.opened === undefined) this.#unopened.add(epoch);
      return true;
    }
    const opened: Link = {
      ...link,
      opened: line.index,
      signed: line.signed !== undefined,
      counter: attrs?.['counter'] as number | undefined,
      previous: attrs?.['prev_epoch'] as string | undefined,
      size: attrs?.['prev_size'] as number | undefined,
      root: attrs?.['prev_root'] as string | undefined,
    };
    this.#links.set(epoch, opened);
    this.#unopened.delete(epoch);
    this.#name(opened);
    return true;
  }

  /** The epoch that the opening of this one names. */
  previous(epoch: string): string | undefined {
    return this.#links.get(epoch)?.previous;
  }

  /** What a later epoch says of this one: the first in the log that names it, a signed one before others. */
  account(epoch: string): Account | undefined {
    const naming = (this.#next.get(epoch) ?? [])
      .map((next) => this.#links.get(next) as Link)
      .sort((a, b) => Number(b.signed) - Number(a.signed) || (a.opened as number) - (b.opened as number));
    const link = naming.find(({ size }) => size !== undefined) ?? naming[0];
    return (
      link && {
        epoch: link.epoch,
        index: link.opened as number,
        signed: link.signed,
        size: link.size,
        root: link.root,
      }
    );
  }

  findings(): ChainFindings {
    const links = [...this.#links.values()].sort((a, b) => a.first - b.first);
    return {
      epochs: links.map(({ epoch }) => epoch),
      ...this.breaks(),
      beginnings: links.filter(({ epoch }) => this.#beginnings.has(epoch)).map(({ epoch }) => epoch),
      unopened: links.filter((link) => link.opened === undefined).map(({ epoch }) => epoch),
    };
  }

  /** Where the chain does not hold. Costs what is broken, not what is there: sessions ask for it one by one. */
  breaks(): Pick<ChainFindings, 'lost' | 'branches' | 'miscounted'> {
    const lost: LostEpochs[] = [];
    const miscounted: Miscount[] = [];
    const suspects = [...this.#suspects].map((epoch) => this.#links.get(epoch) as Link);
    for (const link of suspects.sort((a, b) => a.first - b.first)) {
      const { epoch, counter, previous, opened: index } = link as Link & { readonly opened: number };
      const before = this.#before(epoch);
      if (before !== 'lost') {
        const is = typeof before === 'object' ? before.counter : undefined;
        if (is !== undefined && counter !== is + 1) miscounted.push({ epoch, index });
        continue;
      }
      // With one chain, the lost ones begin after the greatest counter below that was received.
      const from = this.#greatestBelow(counter ?? 0) + 1;
      const single = this.#beginnings.size <= 1 && counter !== undefined && from < counter;
      lost.push({
        before: epoch,
        index,
        ...(previous === undefined ? {} : { epoch: previous, size: link.size, root: link.root }),
        ...(single ? { counters: { from, to: counter } } : {}),
      });
    }
    const branches: Branch[] = [];
    for (const previous of this.#forks) {
      // One that only opened was killed in doing so, before the sink had moved its counter.
      const spoken = (this.#next.get(previous) as string[])
        .map((epoch) => this.#links.get(epoch) as Link)
        .filter(({ spoke }) => spoke)
        .sort((a, b) => a.first - b.first);
      const last = spoken.at(-1);
      if (spoken.length > 1 && last !== undefined) {
        branches.push({ previous, epochs: spoken.map(({ epoch }) => epoch), index: last.first });
      }
    }
    branches.sort((a, b) => a.index - b.index);
    return { lost, branches, miscounted };
  }

  /**
   * What is beside the epochs of a session, FORMAT.md section 5: from each of its epochs back along what the openings
   * name until another of them, and, of one that it did not close, those that follow. The cost is what lies between,
   * once; of a session that opened and closed in one epoch, nothing.
   */
  beside(ours: ReadonlyMap<string, Ends>): Beside {
    const epochs = new Set<string>();
    const lost = new Set<string>();
    const firstOf = (epoch: string): number => this.#links.get(epoch)?.first ?? 0;
    let earliest = Number.POSITIVE_INFINITY;
    let unclosed = Number.POSITIVE_INFINITY;
    for (const [epoch, { closes }] of ours) {
      earliest = Math.min(earliest, firstOf(epoch));
      if (!closes) unclosed = Math.min(unclosed, firstOf(epoch));
    }
    const ways = new Map<string, Way>();
    /** Those in which it was not closed, and that nothing followed that names them. */
    const alone: Link[] = [];
    for (const [epoch, { opens, closes }] of ours) {
      const before = this.#before(epoch);
      if (!opens) {
        if (before === 'lost') lost.add(epoch);
        else if (typeof before === 'object' && !ours.has(before.epoch)) epochs.add(before.epoch);
      }
      if (ours.size > 1) {
        const { end, at } = this.#way(epoch, ours, ways);
        const first = firstOf(epoch);
        const concerns = !opens || unclosed < first;
        if (end === 'ours' && (!opens || ours.get(at)?.closes === false)) {
          for (
            let link = before;
            typeof link === 'object' && link.epoch !== at;
            link = this.#before(link.epoch)
          ) {
            const passed = ways.get(link.epoch) as Way;
            if (passed.added === true) break;
            passed.added = true;
            epochs.add(link.epoch);
          }
        } else if (end === 'lost' && concerns && earliest < first) lost.add(at);
        else if (end === 'unopened' && concerns && earliest < first && at !== epoch) epochs.add(at);
      }
      if (closes) continue;
      const next = this.#next.get(epoch) ?? [];
      for (const each of next) if (!ours.has(each)) epochs.add(each);
      // One that only opened was killed in doing so: it is not what followed.
      const link = this.#links.get(epoch);
      if (link !== undefined && !next.some((each) => this.#links.get(each)?.spoke === true)) alone.push(link);
    }
    // Of one that nothing followed, what followed may be one that can't say so, or one whose sink had lost its state.
    for (const epoch of alone.length > 0 ? this.#mayFollow(alone) : []) {
      if (!ours.has(epoch)) epochs.add(epoch);
    }
    return { epochs: [...epochs].sort((a, b) => firstOf(a) - firstOf(b)), lost };
  }

  /** Epochs that name none of these, and that may be what came after one of them all the same. */
  #mayFollow(alone: readonly Link[]): string[] {
    const found: string[] = [];
    this.#starts ??= [...this.#beginnings]
      .map((epoch) => this.#links.get(epoch) as Link)
      .sort((a, b) => a.first - b.first);
    for (const { first } of alone) {
      const start = this.#starts[countOf(this.#starts, (one) => one.first <= first)];
      if (start !== undefined) found.push(start.epoch);
    }
    // By counters: the earliest of those with each, and of those without; an unopened one follows what is one below its own.
    const earliest = new Map<number | undefined, number>();
    for (const { counter, first } of alone) {
      earliest.set(counter, Math.min(earliest.get(counter) ?? Number.POSITIVE_INFINITY, first));
    }
    const any = Math.min(...alone.map(({ first }) => first));
    for (const epoch of this.#unopened) {
      const { first, spoke } = this.#links.get(epoch) as Link;
      if (!spoke) continue;
      const isAfter = (of: number | undefined): boolean => (earliest.get(of) ?? first) < first;
      // What names it tells its counter. One that was the first of its chain may follow any, as one that is opened may.
      const told = (this.#next.get(epoch) ?? []).map((next) => this.#links.get(next)?.counter);
      const fits = (counter: number | undefined): boolean =>
        counter === undefined || counter <= 1 ? any < first : isAfter(counter - 2) || isAfter(undefined);
      if (told.length === 0 ? any < first : told.some(fits)) found.push(epoch);
    }
    return found;
  }

  /** Where going back from an epoch ends. What is known of an epoch that is passed is known for all who pass it. */
  #way(from: string, ours: ReadonlyMap<string, unknown>, ways: Map<string, Way>): Way {
    const passed: string[] = [];
    const under = new Set<string>();
    let way: Way | undefined;
    for (let at = from; way === undefined;) {
      const before = this.#before(at);
      if (typeof before !== 'object') way = { end: before, at };
      else if (ours.has(before.epoch)) way = { end: 'ours', at: before.epoch };
      // A circle is a lie of the sink's, and ends nowhere.
      else if (under.has(before.epoch)) way = { end: 'circle', at };
      else {
        way = ways.get(before.epoch);
        under.add(before.epoch);
        passed.push(before.epoch);
        at = before.epoch;
      }
    }
    for (const epoch of passed) if (!ways.has(epoch)) ways.set(epoch, { end: way.end, at: way.at });
    return way;
  }

  /** What the opening of an epoch names. `first`: it is the first of its chain. */
  #before(epoch: string): Link | 'lost' | 'unopened' | 'first' {
    const { opened, previous, counter } = this.#links.get(epoch) ?? {};
    if (opened === undefined) return 'unopened';
    if (previous === undefined) return (counter ?? 0) > 0 ? 'lost' : 'first';
    const named = this.#links.get(previous);
    // Of one of which no line counts, whoever has a token wrote what there is.
    return named === undefined || (named.opened === undefined && !named.spoke) ? 'lost' : named;
  }

  state(): ChainState {
    return {
      v: 1,
      log: this.log,
      sink: this.sink,
      through: this.#through,
      links: [...this.#links.values()],
    };
  }

  /** Takes in an opening. */
  #name({ epoch, previous, counter, opened }: Link): void {
    if (opened === undefined) return;
    this.#counters = undefined;
    this.#starts = undefined;
    if (previous === undefined) {
      this.#beginnings.add(epoch);
      if ((counter ?? 0) > 0) this.#suspects.add(epoch);
      return;
    }
    const before = this.#links.get(previous);
    // What was not opened yet may turn out to have another counter, and what is not there may come.
    if (before?.counter === undefined || counter !== before.counter + 1) this.#suspects.add(epoch);
    const next = this.#next.get(previous);
    if (next === undefined) this.#next.set(previous, [epoch]);
    else {
      next.push(epoch);
      this.#forks.add(previous);
    }
  }

  /** The greatest counter of an epoch that was opened, below `bound`; -1 for none. */
  #greatestBelow(bound: number): number {
    this.#counters ??= [...this.#links.values()]
      .flatMap(({ counter }) => counter ?? [])
      .sort((a, b) => a - b);
    return this.#counters[countOf(this.#counters, (counter) => counter < bound) - 1] ?? -1;
  }
}

/** How many of these are so; those that are come first. */
function countOf<T>(sorted: readonly T[], isSo: (one: T) => boolean): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isSo(sorted[middle] as T)) low = middle + 1;
    else high = middle;
  }
  return low;
}
