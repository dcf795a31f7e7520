import { type ChainState, type EpochState, LogCoverage, type SessionState } from '@belay/coverage';
import type { Entry, IssuedScope, LogGenesis } from '@belay/envelope';
import { Standing } from '@belay/receipt';
import { Ascending } from './ascending.js';
import { ExportError } from './error.js';
import { KeysFile } from './keys-file.js';
import { TextStore } from './text-store.js';

/** What the entries say of a session by naming it. */
export interface NamedSession {
  readonly session: string;
  /** The entry with which it began (receipts, section 10), as of `evaluated`: the first that names it until then. */
  began: { readonly index: number; readonly received: string };
  /** Last entry that names it. */
  last: { readonly index: number; readonly received: string };
  /** Indexes of all of them, ascending. */
  readonly indexes: Ascending;
}

/** A receipt as the entry that says it was issued has it. */
export interface IssuedReceipt {
  /** Of the entry. */
  readonly index: number;
  readonly digest: string;
  readonly scope: Extract<IssuedScope, { readonly type: 'session' | 'period' }>;
  readonly asOf: number;
  readonly supersedes?: string | undefined;
}

/** Lines of one epoch that the report counts. */
export interface EpochTally {
  readonly sink: string;
  readonly epoch: string;
  /** Whether one of them names a chosen session. */
  named: boolean;
  denials: number;
  agentLines: number;
  /** When the first and the last of them were received. */
  first: string;
  last: string;
}

/** Which sessions an export is about. */
export interface Chosen {
  /** Their names; absent: every one that an entry before `evaluated` names. */
  readonly names?: ReadonlySet<string> | undefined;
  readonly evaluated: number;
  /** The period that was asked for. */
  readonly period?: { readonly from: string; readonly to: string } | undefined;
}

/** States of epochs, sinks and sessions in memory; past that they are set aside as text, a fifth of the size. */
const MOST_HELD = 3_000;

/**
 * One pass over the entries of an export, in the log's order: all that its tables, its report and its checks need of
 * them. Who makes an export and who verifies one walk the same way. Memory grows with epochs, sessions and admin
 * entries, by about a kilobyte for each, and by a byte or two for each entry that names a session.
 */
export class Walk {
  readonly coverage: LogCoverage;
  readonly standing = new Standing();
  readonly keys = new KeysFile();
  /** Chosen sessions that an entry names, by the first that does. */
  readonly sessions = new Map<string, NamedSession>();
  readonly epochs = new Map<string, EpochTally>();
  /** Receipts of sessions and periods, chosen or not. */
  readonly issued: IssuedReceipt[] = [];
  genesis: LogGenesis | undefined;
  /** Of an export of everything, entries of sessions that nobody named before sessions were looked for. */
  unchosenLines = 0;
  /**
   * Those sessions, and how many receipts the entries say were issued of them. Of an export of a period that went on after
   * sessions were looked for: who is not chosen and was first named in the rest of it, or first judged after.
   */
  readonly unchosen = new Set<string>();
  unchosenReceipts = 0;
  /** Names of the sessions that labels are about, with how often. */
  readonly #labelled = new Map<string, number>();
  readonly #chosen: Chosen;
  readonly #mostHeld: number;
  readonly #sinkNames = new Set<string>();
  readonly #sessionNames = new Set<string>();
  /** JSON of what was set aside, by name. */
  readonly #kept = {
    epochs: new TextStore(),
    chains: new TextStore(),
    sessions: new TextStore(),
  };
  #next = 0;
  #received = '';
  #settled = false;
  /** Whether the period went on after sessions were looked for. */
  #wentOn = false;

  /** `mostHeld` is the default outside of tests. */
  constructor(log: string, chosen: Chosen, mostHeld = MOST_HELD) {
    this.#chosen = chosen;
    this.#mostHeld = mostHeld;
    const kept = this.#kept;
    const read = (known: TextStore, key: string): unknown => {
      const state = known.get(key);
      return state === undefined ? undefined : JSON.parse(state);
    };
    this.coverage = new LogCoverage(
      { log },
      {
        epoch: (sink, epoch) => read(kept.epochs, `${sink} ${epoch}`) as EpochState | undefined,
        chain: (sink) => read(kept.chains, sink) as ChainState | undefined,
        session: (session) => read(kept.sessions, session) as SessionState | undefined,
      },
    );
  }

  /** Names of all sinks that wrote, and of all sessions that were named, chosen or not. */
  get sinkNames(): Iterable<string> {
    return this.#sinkNames;
  }

  get sessionNames(): Iterable<string> {
    return this.#sessionNames;
  }

  /** Sets aside what coverage holds when that is much. Nothing that was got from `coverage` before is of use after. */
  relieve(): void {
    if (this.coverage.held <= this.#mostHeld) return;
    const { epochs, chains, sessions } = this.coverage.takeTouched();
    for (const each of epochs) {
      this.#kept.epochs.set(`${each.sink} ${each.epoch}`, JSON.stringify(each.state()));
    }
    for (const each of chains) this.#kept.chains.set(each.sink, JSON.stringify(each.state()));
    for (const each of sessions) this.#kept.sessions.set(each.session, JSON.stringify(each.state()));
    this.coverage.forget();
  }

  /** Whether nothing was left out. */
  get isEverything(): boolean {
    return this.#chosen.names === undefined;
  }

  /** Whether a session is one that the export is about, as far as entries name it. */
  isChosen(session: string): boolean {
    const { names } = this.#chosen;
    return names === undefined ? this.sessions.has(session) : names.has(session);
  }

  /** Whether a receipt is part of the export: of a chosen session, or of a period where nothing was left out. */
  isPart({ scope }: Pick<IssuedReceipt, 'scope'>): boolean {
    return scope.type === 'session' ? this.isChosen(scope.session) : this.isEverything;
  }

  /** Whether an epoch is one of which everything has to be here. */
  isWhole({ named }: EpochTally): boolean {
    return this.isEverything || named;
  }

  /** Chosen sessions that an entry names, in the order in which they began. Asked for after the last entry. */
  inOrder(): readonly NamedSession[] {
    if (!this.#settled) this.#settle();
    return [...this.sessions.values()].sort((a, b) => a.began.index - b.began.index);
  }

  /** How many labels are about chosen sessions. */
  labelsOfChosen(): number {
    let count = 0;
    for (const [session, times] of this.#labelled) if (this.isChosen(session)) count += times;
    return count;
  }

  /** Entries up to `size` were left out. */
  pass(size: number): void {
    this.#next = size;
  }

  /** Makes `coverage` stand at exactly so many entries, so that statements as of them can be made. */
  standAt(size: number): void {
    this.coverage.pass(size);
  }

  /** Takes in the next entry. Throws ExportError `invalid` when it can't follow those before it. */
  apply(entry: Entry): void {
    const { line } = entry;
    const index = this.#next;
    if (line.index !== index) throw invalid(`entry ${index} says that it is ${line.index}`);
    if (line.log !== this.coverage.log) throw invalid(`entry ${index} is of another log`);
    // Fixed width and zone, so text order is time order.
    if (line.received < this.#received) throw invalid(`entry ${index} was received before the one before`);
    this.#received = line.received;
    if (line.conflict !== undefined && line.conflict >= index) {
      throw invalid(`entry ${index} conflicts with one that is not before it`);
    }
    const genesis = entry.by === 'collector' && entry.statement.kind === 'log.genesis';
    if (genesis !== (index === 0)) throw invalid('a log begins with its genesis entry, and has one');
    const { evaluated, period } = this.#chosen;
    if (index >= evaluated && !this.#settled) this.#settle();
    if (index >= evaluated && period !== undefined && line.received < period.to) this.#wentOn = true;
    this.#next = index + 1;
    this.coverage.apply(entry);
    if (entry.by === 'collector') {
      this.standing.apply(entry);
      this.keys.apply(entry);
      this.#applyStatement(entry);
    } else this.#applySent(entry);
    this.relieve();
  }

  /** Who spoke of a session after sessions were looked for can't move it to another period. */
  #settle(): void {
    this.#settled = true;
    for (const named of this.sessions.values()) {
      const index = this.coverage.beganAt(named.session);
      const began = this.coverage
        .session(named.session)
        .beginnings()
        .find((each) => each.index === index);
      if (began !== undefined) named.began = { index, received: began.received };
      this.relieve();
    }
  }

  #applyStatement({ line, statement }: Extract<Entry, { readonly by: 'collector' }>): void {
    const { index } = line;
    if (statement.kind === 'log.genesis') this.genesis = statement;
    else if (statement.kind === 'label.set') {
      this.#labelled.set(statement.session, (this.#labelled.get(statement.session) ?? 0) + 1);
    } else if (statement.kind === 'receipt.issued') {
      const { receipt: digest, scope, asOf, supersedes } = statement;
      if (scope.type !== 'session' && scope.type !== 'period') return;
      if (scope.type === 'session') {
        // A session that was judged before had begun before, and was found or is of another period.
        if (supersedes === undefined && this.#wentOn && this.#isBeside(scope.session, line)) {
          this.unchosen.add(scope.session);
        }
        if (this.unchosen.has(scope.session)) this.unchosenReceipts++;
      }
      this.issued.push({ index, digest, scope, asOf, supersedes });
    }
  }

  /** Of an export of a period: whether who is spoken of is not chosen, and that was after the period began. */
  #isBeside(session: string, { received }: Entry['line']): boolean {
    const { names, period } = this.#chosen;
    return period !== undefined && names?.has(session) === false && received >= period.from;
  }

  #applySent({ line, envelope }: Extract<Entry, { readonly by: 'sender' }>): void {
    const { sink, epoch, session, kind } = envelope;
    const at = { index: line.index, received: flat(line.received) };
    const key = `${sink} ${epoch}`;
    let tally = this.epochs.get(key);
    if (tally === undefined) {
      tally = { sink, epoch, named: false, denials: 0, agentLines: 0, first: at.received, last: at.received };
      this.epochs.set(key, tally);
      this.#sinkNames.add(sink);
    }
    tally.last = at.received;
    if (kind === 'denial') tally.denials++;
    if (line.role === 'agent') tally.agentLines++;
    if (session === undefined) return;
    const known = this.#sessionNames.has(session);
    this.#sessionNames.add(session);
    let named = this.sessions.get(session);
    if (named === undefined) {
      const { names, evaluated } = this.#chosen;
      if (names === undefined ? line.index >= evaluated : !names.has(session)) {
        if (names === undefined) {
          this.unchosenLines++;
          this.unchosen.add(session);
        } else if (!known && line.index >= evaluated && this.#isBeside(session, line)) {
          const { to } = this.#chosen.period ?? { to: '' };
          if (line.received < to) this.unchosen.add(session);
        }
        return;
      }
      named = { session, began: at, last: at, indexes: new Ascending() };
      this.sessions.set(session, named);
    }
    named.last = at;
    named.indexes.push(line.index);
    tally.named = true;
  }
}

/** The same text in memory of its own: what was cut out of a line keeps all of the line. */
function flat(text: string): string {
  return Buffer.from(text).toString();
}

function invalid(what: string): ExportError {
  return new ExportError('invalid', what);
}
