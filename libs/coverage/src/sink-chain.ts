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
  /** Its number 1 was received, and is no opening that counts: it has none, and that is no line that is missing. */
  readonly odd?: true | undefined;
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

/** What changed of a chain, for who keeps what follows from it. */
export interface ChainChanges {
  /** Epochs of which it knows more than before, by their first such entries. */
  readonly epochs: readonly string[];
  /** An opening came after other lines of its epoch: whatever goes back by it may end elsewhere. */
  readonly late: boolean;
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
  /** Their epochs, by their first entries. */
  readonly #order: string[];
  /** Identifiers of the epochs that name one as theirs before. */
  readonly #next = new Map<string, string[]>();
  /** Those of which there are two or more. */
  readonly #forks = new Set<string>();
  /** Epochs before which something may be missing, or wrong: no other is. */
  readonly #suspects = new Set<string>();
  /** Those whose opening was not received, by their first entries. */
  readonly #unopened = new Set<string>();
  /** Epochs that name none before them, by their first entries. */
  readonly #beginnings: string[] = [];
  /** Counters of all that were opened, ascending; undefined: to be made again. */
  #counters: number[] | undefined;
  #changed = new Set<string>();
  #late = false;

  constructor(of: { readonly log: string; readonly sink: string } | ChainState) {
    this.log = of.log;
    this.sink = of.sink;
    if ('v' in of && of.v !== 1) throw new CoverageError('state', 'not version 1 of a stored chain');
    this.#through = 'v' in of ? of.through : -1;
    this.#links = new Map('v' in of ? of.links.map((link) => [link.epoch, link]) : []);
    this.#order = [...this.#links.keys()];
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
    const isFirst = seq === 1;
    const opens = kind === 'epoch.open' && isFirst;
    // A second opening that nobody marked as the conflict it is: the first one counts, as in the epoch's own account.
    if (known !== undefined && (isFirst ? known.opened !== undefined || known.odd : known.spoke))
      return false;
    const counts = line.signed !== undefined || !keyed();
    if (known !== undefined && !isFirst && !counts) return false;
    const link = known ?? { epoch, first: line.index, signed: false, spoke: false };
    if (known === undefined) this.#order.push(epoch);
    this.#changed.add(epoch);
    if (!opens || !counts) {
      const spoke = link.spoke || (counts && !opens);
      this.#links.set(epoch, { ...link, spoke, ...(isFirst ? { odd: true } : {}) });
      if (link.opened === undefined) this.#unopened.add(epoch);
      return true;
    }
    if (known !== undefined) this.#late = true;
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

  /** What changed since this was last asked. */
  takeChanges(): ChainChanges {
    const changes = { epochs: [...this.#changed], late: this.#late };
    this.#changed = new Set();
    this.#late = false;
    return changes;
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
      beginnings: [...this.#beginnings],
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
      const single = this.#beginnings.length <= 1 && counter !== undefined && from < counter;
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
      if (link !== undefined && this.#isAlone(epoch)) alone.push(link);
    }
    // Of one that nothing followed, what followed may be one that can't say so, or one whose sink had lost its state.
    for (const epoch of alone.length > 0 ? this.#mayFollow(alone) : []) {
      if (!ours.has(epoch)) epochs.add(epoch);
    }
    this.#lostAfter(ours, lost);
    return { epochs: [...epochs].sort((a, b) => firstOf(a) - firstOf(b)), lost };
  }

  /**
   * Epochs after which this one may come though it does not name them. With those that it names, and those that hold it to
   * be beside a session already, these are all to which it is news.
   */
  preceding(epoch: string): string[] {
    const link = this.#links.get(epoch);
    const isUnopened = link?.opened === undefined;
    if (link === undefined || (isUnopened ? !link.spoke : link.previous !== undefined)) return [];
    const found: string[] = [];
    const placeOf = countOf(this.#order, (each) => (this.#links.get(each) as Link).first < link.first);
    for (let at = placeOf - 1; at >= 0; at--) {
      const one = this.#links.get(this.#order[at] as string) as Link;
      if (this.#isAlone(one.epoch)) found.push(one.epoch);
      // Whatever is before this has it as the next; of one that is named by others, not everything has.
      const isNext = isUnopened ? isLoose(one) : isStart(one) && one.spoke && !this.#next.has(one.epoch);
      if (isNext) break;
    }
    return found;
  }

  /** Whether nothing names it that has said more than that. One that only opened was killed in doing so. */
  #isAlone(epoch: string): boolean {
    return !(this.#next.get(epoch) ?? []).some((each) => this.#links.get(each)?.spoke === true);
  }

  /** Epochs that name none of these, and that may be what came after one of them all the same. */
  #mayFollow(alone: readonly Link[]): string[] {
    const found: string[] = [];
    const roots = new Map<string, string>();
    const firstOf = (epoch: string): number => (this.#links.get(epoch) as Link).first;
    for (const { epoch, first } of alone) {
      for (
        let at = countOf(this.#beginnings, (each) => firstOf(each) <= first);
        at < this.#beginnings.length;
        at++
      ) {
        const start = this.#beginnings[at] as string;
        // It may have come late: then it is before this one, and not after it.
        if (this.#next.has(start) && this.#root(epoch, roots) === start) continue;
        found.push(start);
        if (this.#links.get(start)?.spoke === true) break;
      }
    }
    // One without its opening lacks a line, so that the next such is enough.
    const waiting = alone.map(({ first }) => first).sort((a, b) => a - b);
    let at = 0;
    let isAwaited = false;
    for (const epoch of this.#unopened) {
      const link = this.#links.get(epoch) as Link;
      if (!link.spoke) continue;
      for (; at < waiting.length && (waiting[at] as number) < link.first; at++) isAwaited = true;
      if (isAwaited) found.push(epoch);
      if (isLoose(link)) isAwaited = false;
    }
    return found;
  }

  /** The epoch at which going back from one ends. */
  #root(epoch: string, roots: Map<string, string>): string {
    const passed = new Set<string>();
    let at = epoch;
    for (;;) {
      passed.add(at);
      const before = this.#before(at);
      if (typeof before !== 'object' || passed.has(before.epoch)) break;
      const known = roots.get(before.epoch);
      at = known ?? before.epoch;
      if (known !== undefined) break;
    }
    for (const each of passed) roots.set(each, at);
    return at;
  }

  /**
   * Losses that show after an epoch in which a session was not closed, and before the next in which it is named; where
   * something followed that epoch by name, only if there is no such next.
   */
  #lostAfter(ours: ReadonlyMap<string, Ends>, lost: Set<string>): void {
    const places = [...ours.keys()]
      .flatMap((epoch) => this.#links.get(epoch) ?? [])
      .sort((a, b) => a.first - b.first);
    const isOpen = ({ epoch }: Link, at: number): boolean =>
      ours.get(epoch)?.closes === false && (at === places.length - 1 || this.#isAlone(epoch));
    if (!places.some(isOpen)) return;
    for (const { before, index } of this.breaks().lost) {
      const at = countOf(places, ({ first }) => first < index) - 1;
      const place = places[at];
      if (place !== undefined && place.epoch !== before && isOpen(place, at)) lost.add(before);
    }
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
    if (previous === undefined) {
      const firstOf = (each: string): number => (this.#links.get(each) as Link).first;
      const at = countOf(this.#beginnings, (each) => firstOf(each) < firstOf(epoch));
      this.#beginnings.splice(at, 0, epoch);
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

/** Whether it names none before it. */
const isStart = ({ opened, previous }: Link): boolean => opened !== undefined && previous === undefined;

/** Whether all that is known of where it belongs is that its opening is missing. */
const isLoose = ({ opened, spoke, odd }: Link): boolean => opened === undefined && spoke && odd !== true;

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
