import { setImmediate as others } from 'node:timers/promises';
import {
  CoverageError,
  type EpochCoverage,
  type EpochName,
  type EpochState,
  type EpochStatement,
  type KeptStates,
  LogCoverage,
  type SessionState,
  type SinkChain,
  type Touched,
} from '@belay/coverage';
import type { AccountState, AccountTurn, BatchWrite, Concerned } from '@belay/db';
import { OPEN_END } from '@belay/db';
import { type Entry, type Envelope, parseEntry } from '@belay/envelope';
import { Standing } from '@belay/receipt';

/** States kept in memory of one log; past it all are forgotten and read again as they are needed. */
const MOST_HELD = 8_000;
/** States read at a time. */
const PAGE = 1_000;
/** Entries taken in before what else is due on this thread has its turn. */
const AT_A_TIME = 500;
/** How far the clocks of two workers of one log may be apart for what one of them found to be looked at again in time. */
const CLOCKS_APART_MS = 5_000;
/** How long a status that may pass waits until it is stated, and one that will not; milliseconds. */
const MAY_PASS_MS = 10_000;
const WILL_STAY_MS = 1_000;

/** What was kept of a log can't be gone on from. It is thrown away and made again from the entries. */
export class DamagedState extends Error {
  constructor(what: string, cause: unknown) {
    super(`${what}: ${cause instanceof Error ? cause.message : String(cause)}`);
    this.name = 'DamagedState';
  }
}

type Of<Kind extends Entry['by']> = Extract<Entry, { readonly by: Kind }>;

/** What one batch says of a session. */
interface Named {
  /** Index of the last entry before the batch that names it; -1 for none. */
  readonly before: number;
  readonly runs: { first: number; last: number }[];
  readonly epochs: Set<string>;
  /** When the first and the last of its entries in the batch were received. */
  began: string;
  received: string;
  closing: boolean;
  heard: boolean;
}

/**
 * One log as a worker goes through it: coverage and standing up to `size`, of which only a part is in memory. The cost
 * of a batch follows its entries and what they change, never the length of the log.
 *
 * Invariant: after each batch, what the database holds under `fence` is the state of the entries before `size`. A lane
 * that failed in the middle is ahead of it, and must not be used again.
 */
export class Lane {
  readonly coverage: LogCoverage;
  readonly standing: Standing;
  fence: number;
  readonly #standingAt: number[];
  readonly #kept: Kept;
  /** What was last found of every epoch and chain in memory; the next batch is compared with it. */
  readonly #epochs = new Map<string, EpochStatement>();
  readonly #chains = new Map<string, ReturnType<SinkChain['breaks']>>();
  readonly #stated = new Map<string, string | null>();
  #ahead: { readonly from: number; readonly to: number; readonly entries: Promise<Entry[]> } | undefined;

  private constructor(
    of: { readonly log: string } | AccountState['coverage'],
    standing: Standing,
    standingAt: number[],
    fence: number,
  ) {
    this.#kept = new Kept();
    this.coverage = new LogCoverage(of, this.#kept);
    this.standing = standing;
    this.#standingAt = standingAt;
    this.fence = fence;
  }

  /** Goes on from what was kept. Throws DamagedState. */
  static async open(turn: AccountTurn): Promise<Lane> {
    const { through, fence, state } = await turn.cursor();
    if (through === 0) return new Lane({ log: turn.log.origin }, new Standing(), [], fence);
    try {
      if (state?.v !== 1 || state.coverage.log !== turn.log.origin) throw new Error('no state of version 1');
      const entries = await turn.entriesAt(state.standing);
      const standing = new Standing(entries.map(({ bytes }) => parseEntry(bytes)));
      return new Lane({ ...state.coverage, size: through }, standing, [...state.standing], fence);
    } catch (error) {
      throw new DamagedState(`state of ${turn.log.origin}`, error);
    }
  }

  get size(): number {
    return this.coverage.size;
  }

  /** States in memory. */
  get held(): number {
    return this.coverage.held;
  }

  /** Forgets the states of epochs, sinks and sessions; they are read again when they are needed. */
  forget(): void {
    this.coverage.forget();
    this.#kept.clear();
    this.#epochs.clear();
    this.#chains.clear();
    this.#stated.clear();
  }

  /**
   * Takes in the entries [size, to), or the first of them, and writes down what they change. Those up to `then` are read
   * meanwhile, for the next step. Throws DamagedState, and Fenced.
   */
  async step(turn: AccountTurn, to: number, now: Date, then = to): Promise<void> {
    if (this.held > MOST_HELD) this.forget();
    const entries = await this.#read(turn, to);
    if (entries.length === 0) return;
    const end = this.size + entries.length;
    if (end < then) this.#readAhead(turn, end, then);
    const named = await this.#prepare(turn, entries, now);
    const labelled: string[] = [];
    const stated = new Map<string, BatchWrite['stated'][number]>();
    const opened: { sink: string; epoch: string }[] = [];
    const policies = this.coverage.policyAt(this.size);
    const declared = this.coverage.declarations.length;
    const standings = this.#standingAt.length;
    let applied = 0;
    let last = { sink: '', epoch: '', key: '' };
    for (const entry of entries) {
      if (++applied % AT_A_TIME === 0) await others();
      this.coverage.apply(entry);
      if (entry.by === 'collector') this.#state(entry, labelled, stated);
      else {
        const { sink, epoch, kind, attrs } = entry.envelope;
        if (epoch !== last.epoch || sink !== last.sink) {
          last = { sink, epoch, key: keyOf(sink, epoch) };
          this.#kept.seeEpoch(sink, epoch);
        }
        this.#name(entry, last.key, named);
        const previous = kind === 'epoch.open' ? attrs?.['prev_epoch'] : undefined;
        if (typeof previous === 'string' && this.#kept.knowsEpoch(sink, previous)) {
          opened.push({ sink, epoch: previous });
        }
      }
    }
    const touched = this.coverage.takeTouched();
    const concerned: Concerned[] = [];
    const epochs = this.#epochsOf(touched, opened, now, concerned);
    for (const chain of touched.chains) this.#compareChain(chain, concerned);
    let heartbeats = false;
    for (const { sink, index, heartbeat } of this.coverage.declarations.slice(declared)) {
      const before = this.coverage.declarationAt(sink, index);
      // A sink that was declared only after a session began is a member of it when it speaks.
      if (before === undefined) concerned.push({ sink, after: 0, upto: OPEN_END, before: OPEN_END });
      else if (before.heartbeat !== heartbeat) {
        heartbeats = true;
        concerned.push({ sink, after: OPEN_END - 1, upto: OPEN_END, before: OPEN_END });
      }
    }
    const isNew = touched.log || this.#standingAt.length > standings;
    const batch: BatchWrite = {
      through: this.size,
      ...(isNew || standings === 0 ? { state: this.#account() } : {}),
      epochs,
      chains: touched.chains.map((chain) => ({ sink: chain.sink, state: chain.state() })),
      ...this.#sessionsOf(touched, named, now),
      concerned,
      allEpochs: heartbeats || this.coverage.policyAt(this.size) !== policies,
      unbegun: touched.log,
      labelled,
      stated: [...stated.values()],
    };
    this.fence = await turn.write(this.fence, batch, now);
  }

  async #read(turn: AccountTurn, to: number): Promise<Entry[]> {
    const ahead = this.#ahead;
    this.#ahead = undefined;
    if (ahead?.from === this.size && ahead.to <= to) return ahead.entries;
    return turn.parsed(this.size, to);
  }

  /** Entries don't change: what is read now is the same later, in another turn too. */
  #readAhead(turn: AccountTurn, from: number, to: number): void {
    const entries = turn.parsed(from, to);
    // Who takes them finds out.
    entries.catch(() => undefined);
    this.#ahead = { from, to, entries };
  }

  /** Brings what a statement on these sessions needs into memory. Throws DamagedState. */
  async load(turn: AccountTurn, sessions: readonly string[]): Promise<void> {
    if (this.held > MOST_HELD) this.forget();
    await this.#loadSessions(turn, sessions);
    const keys: { sink: string; epoch: string }[] = [];
    for (const session of sessions) {
      if (this.#kept.knowsSession(session)) keys.push(...this.coverage.session(session).epochs());
    }
    await this.#loadEpochs(turn, keys);
    await this.#loadChains(
      turn,
      keys.map(({ sink }) => sink),
    );
    await this.#loadEpochs(
      turn,
      sessions.flatMap((session) =>
        this.#kept.knowsSession(session) ? this.coverage.besideOf(session).epochs : [],
      ),
    );
  }

  /** The same for epochs. */
  async loadEpochs(
    turn: AccountTurn,
    keys: readonly { readonly sink: string; readonly epoch: string }[],
  ): Promise<void> {
    if (this.held > MOST_HELD) this.forget();
    await this.#loadEpochs(turn, keys);
    await this.#loadChains(
      turn,
      keys.map(({ sink }) => sink),
    );
  }

  /** Epochs of which no line names a session, loaded before, and which concern it all the same. */
  beside(session: string): readonly EpochName[] {
    const { epochs, lost } = this.coverage.besideOf(session);
    return [...epochs, ...lost];
  }

  /** Everything of these sinks, if they have at most so many epochs in all. Returns how many they have. */
  async loadSinks(turn: AccountTurn, sinks: readonly string[], most: number): Promise<number> {
    await this.#loadChains(turn, sinks);
    const keys = sinks.flatMap((sink) =>
      this.coverage
        .chain(sink)
        .findings()
        .epochs.map((epoch) => ({ sink, epoch })),
    );
    for (let at = 0; keys.length <= most && at < keys.length; at += PAGE) {
      await this.#loadEpochs(turn, keys.slice(at, at + PAGE));
    }
    return keys.length;
  }

  #account(): AccountState {
    return { v: 1, coverage: this.coverage.state(), standing: [...this.#standingAt] };
  }

  /** Loads what a batch touches, and remembers what is found of it before. */
  async #prepare(turn: AccountTurn, entries: readonly Entry[], now: Date): Promise<Map<string, Named>> {
    const sinks = new Set<string>();
    const epochs = new Map<string, { sink: string; epoch: string }>();
    const sessions = new Set<string>();
    let last: Partial<Envelope> = {};
    for (const entry of entries) {
      if (entry.by !== 'sender') continue;
      const { sink, epoch, session, kind, attrs } = entry.envelope;
      if (session !== undefined && session !== last.session) sessions.add(session);
      if (epoch !== last.epoch || sink !== last.sink) {
        sinks.add(sink);
        epochs.set(keyOf(sink, epoch), { sink, epoch });
      }
      const previous = kind === 'epoch.open' ? attrs?.['prev_epoch'] : undefined;
      if (typeof previous === 'string') epochs.set(keyOf(sink, previous), { sink, epoch: previous });
      last = entry.envelope;
    }
    await this.#loadChains(turn, [...sinks]);
    await this.#loadEpochs(turn, [...epochs.values()]);
    await this.#loadSessions(turn, [...sessions]);
    for (const [key, { sink, epoch }] of epochs) {
      if (!this.#epochs.has(key) && this.#kept.knowsEpoch(sink, epoch)) {
        this.#epochs.set(key, this.#statementOf(sink, epoch, now));
      }
    }
    for (const sink of sinks) {
      if (!this.#chains.has(sink)) this.#chains.set(sink, this.coverage.chain(sink).breaks());
    }
    return new Map(
      [...sessions].map((session): [string, Named] => {
        const before = this.#kept.knowsSession(session) ? this.coverage.session(session).state().through : -1;
        return [
          session,
          { before, runs: [], epochs: new Set(), began: '', received: '', closing: false, heard: false },
        ];
      }),
    );
  }

  #name({ line, envelope }: Of<'sender'>, epoch: string, named: Map<string, Named>): void {
    const { session, kind } = envelope;
    if (session === undefined) return;
    this.#kept.seeSession(session);
    const one = named.get(session) as Named;
    const run = one.runs.at(-1);
    if (run?.last === line.index - 1) run.last = line.index;
    else one.runs.push({ first: line.index, last: line.index });
    one.epochs.add(epoch);
    if (one.began === '') one.began = line.received;
    one.received = line.received;
    if (kind === 'session.close') one.closing = true;
    if (kind === 'verdict') one.heard = true;
  }

  /** `stated`: the last of the batch about each session and epoch. */
  #state(
    entry: Of<'collector'>,
    labelled: string[],
    stated: Map<string, BatchWrite['stated'][number]>,
  ): void {
    const { statement, line } = entry;
    if (statement.kind === 'label.set') labelled.push(statement.session);
    switch (statement.kind) {
      case 'label.set':
      case 'sink.declared':
      case 'token.issued':
        this.standing.apply(entry);
        this.#standingAt.push(line.index);
        return;
      case 'coverage.stated': {
        const digest = statement.statement.slice('sha256:'.length);
        if (statement.type === 'session') {
          const { session } = statement;
          stated.set(`\n${session}`, { session, index: line.index, digest });
          return;
        }
        const { sink, epoch, status } = statement;
        stated.set(keyOf(sink, epoch), { sink, epoch, status, digest });
        if (this.#stated.has(keyOf(sink, epoch))) this.#stated.set(keyOf(sink, epoch), status);
        return;
      }
      default:
        return;
    }
  }

  #epochsOf(
    touched: Touched,
    opened: readonly { readonly sink: string; readonly epoch: string }[],
    now: Date,
    concerned: Concerned[],
  ): BatchWrite['epochs'][number][] {
    const all = new Set<EpochCoverage>(touched.epochs);
    const patience = leastPatience(this.coverage);
    for (const { sink, epoch } of opened) all.add(this.coverage.epoch(sink, epoch));
    return [...all].map((coverage) => {
      const { sink, epoch } = coverage;
      const key = keyOf(sink, epoch);
      const before = this.#epochs.get(key);
      const after = this.#statementOf(sink, epoch, now);
      if (before !== undefined) compareEpoch(before, after, { now, patience }, concerned);
      this.#epochs.set(key, after);
      return { sink, epoch, state: coverage.state(), ...this.dueOf(after, now) };
    });
  }

  /** When an epoch has to be looked at next, given what was stated of it. */
  dueOf(statement: EpochStatement, now: Date): { readonly due: string | null; readonly waits: boolean } {
    const stated = this.#stated.get(keyOf(statement.sink, statement.epoch)) ?? null;
    if (statement.status !== 'open' && statement.status !== stated) {
      const stays = statement.ending !== undefined || statement.status === 'conflict';
      const pause = stays ? WILL_STAY_MS : MAY_PASS_MS;
      return { due: new Date(now.getTime() + pause).toISOString(), waits: true };
    }
    return { due: overdueAt(statement, now)?.toISOString() ?? null, waits: false };
  }

  #compareChain(chain: SinkChain, concerned: Concerned[]): void {
    const { sink } = chain;
    const before = this.#chains.get(sink);
    const after = chain.breaks();
    this.#chains.set(sink, after);
    const all = { sink, after: 0, upto: OPEN_END, before: OPEN_END };
    const open = { ...all, after: OPEN_END - 1 };
    const { epochs, late } = chain.takeChanges();
    if (late) concerned.push(open);
    // What may follow an epoch may have more of a session that was not closed there.
    const near = new Set(epochs);
    for (const epoch of epochs) {
      const previous = chain.previous(epoch);
      if (previous !== undefined) near.add(previous);
      if (!late) for (const each of chain.preceding(epoch)) near.add(each);
    }
    for (const epoch of near) concerned.push({ ...open, epoch });
    if (before === undefined) return;
    for (const { before: epoch } of different(before.lost, after.lost)) {
      concerned.push({ ...all, epoch }, open);
    }
    for (const { epochs: branch } of different(before.branches, after.branches)) {
      for (const epoch of branch) concerned.push({ ...all, epoch });
    }
    for (const { epoch } of different(before.miscounted, after.miscounted)) concerned.push({ ...all, epoch });
  }

  #sessionsOf(
    touched: Touched,
    named: ReadonlyMap<string, Named>,
    now: Date,
  ): Pick<BatchWrite, 'sessions' | 'extents' | 'runs'> {
    const sessions: BatchWrite['sessions'][number][] = [];
    const extents: BatchWrite['extents'][number][] = [];
    const runs: BatchWrite['runs'][number][] = [];
    for (const coverage of touched.sessions) {
      const { session } = coverage;
      const { before, runs: own, epochs, began, received, closing, heard } = named.get(session) as Named;
      const state = coverage.state();
      // By the entry that its policy goes by, which need not be the first that names it: anyone can write that.
      const index = this.coverage.beganAt(session);
      const counted = coverage.beginnings().find((each) => each.index === index);
      const soon = heard ? new Date(now.getTime() + WILL_STAY_MS).toISOString() : null;
      sessions.push({
        session,
        state,
        began: counted?.received ?? began,
        began_index: counted?.index ?? (own[0]?.first as number),
        last: received,
        last_index: own.at(-1)?.last as number,
        due: closing ? now.toISOString() : soon,
        heard,
      });
      for (const { sink, epoch, first, last, opened, closed } of state.extents) {
        if (!epochs.has(keyOf(sink, epoch))) continue;
        const from = opened !== undefined && opened === first ? first : 1;
        const end = closed !== undefined && closed === last ? closed + 1 : OPEN_END;
        extents.push({ session, sink, epoch, first: from, last: end });
      }
      // A sink that is declared later may be a member by a second story alone.
      // (All of the epoch: it may be beside the session, too.)
      for (const { sink, epoch } of state.stories) {
        const isExtent = state.extents.some((one) => one.sink === sink && one.epoch === epoch);
        if (isExtent || !epochs.has(keyOf(sink, epoch))) continue;
        extents.push({ session, sink, epoch, first: 1, last: OPEN_END });
      }
      own.forEach(({ first, last }, at) => {
        runs.push({ session, first, last, more: at === 0 && before >= 0 && first === before + 1 });
      });
    }
    return { sessions, extents, runs };
  }

  #statementOf(sink: string, epoch: string, now: Date): EpochStatement {
    return this.coverage.epochStatement(sink, epoch, { size: this.size, time: now.toISOString() });
  }

  async #loadEpochs(
    turn: AccountTurn,
    keys: readonly { readonly sink: string; readonly epoch: string }[],
  ): Promise<void> {
    const missing = this.#kept.missingEpochs(keys);
    for (const { sink, epoch, state, stated } of await turn.epochs(missing)) {
      this.#kept.putEpoch(sink, epoch, state);
      this.#stated.set(keyOf(sink, epoch), stated);
      this.#reading(state, { sink, epoch }, () => this.coverage.epoch(sink, epoch));
    }
  }

  async #loadChains(turn: AccountTurn, sinks: readonly string[]): Promise<void> {
    for (const { sink, state } of await turn.chains(this.#kept.missingChains(sinks))) {
      this.#kept.putChain(sink, state);
      this.#reading(state, { sink }, () => this.coverage.chain(sink));
    }
  }

  async #loadSessions(turn: AccountTurn, sessions: readonly string[]): Promise<void> {
    for (const { session, state } of await turn.sessions(this.#kept.missingSessions(sessions))) {
      this.#kept.putSession(session, state);
      this.#reading(state, { session }, () => this.coverage.session(session));
    }
  }

  /** A state has to say itself what it is of, and to be one that can be gone on from. */
  #reading(state: unknown, of: Readonly<Record<string, string>>, read: () => unknown): void {
    const what = Object.values(of).join(' ');
    const given = state as Readonly<Record<string, unknown>> | null;
    const expected = Object.entries({ ...of, log: this.coverage.log });
    if (given?.['v'] !== 1 || expected.some(([key, value]) => given[key] !== value)) {
      throw new DamagedState(what, new Error('not a state of version 1 of this'));
    }
    try {
      read();
    } catch (error) {
      throw new DamagedState(what, error);
    }
  }
}

const keyOf = (sink: string, epoch: string): string => `${sink} ${epoch}`;

/**
 * Stored states on their way into memory. Whether there is one has to be asked of the database before it is needed: a
 * question nobody asked there would be answered by an empty state, and that would be written over the real one.
 */
class Kept implements KeptStates {
  /** Asked for: true when there is one, stored or made since. */
  readonly #epochs = new Map<string, boolean>();
  readonly #chains = new Set<string>();
  readonly #sessions = new Map<string, boolean>();
  readonly #states = new Map<string, unknown>();

  epoch(sink: string, epoch: string): EpochState | undefined {
    return this.#take(`epoch ${keyOf(sink, epoch)}`, this.#epochs.has(keyOf(sink, epoch))) as
      EpochState | undefined;
  }

  chain(sink: string): ReturnType<KeptStates['chain']> {
    return this.#take(`chain ${sink}`, this.#chains.has(sink)) as ReturnType<KeptStates['chain']>;
  }

  session(session: string): SessionState | undefined {
    return this.#take(`session ${session}`, this.#sessions.has(session)) as SessionState | undefined;
  }

  knowsEpoch(sink: string, epoch: string): boolean {
    return this.#epochs.get(keyOf(sink, epoch)) === true;
  }

  knowsSession(session: string): boolean {
    return this.#sessions.get(session) === true;
  }

  seeEpoch(sink: string, epoch: string): void {
    this.#epochs.set(keyOf(sink, epoch), true);
  }

  seeSession(session: string): void {
    this.#sessions.set(session, true);
  }

  putEpoch(sink: string, epoch: string, state: EpochState): void {
    this.seeEpoch(sink, epoch);
    this.#states.set(`epoch ${keyOf(sink, epoch)}`, state);
  }

  putChain(sink: string, state: unknown): void {
    this.#states.set(`chain ${sink}`, state);
  }

  putSession(session: string, state: SessionState): void {
    this.seeSession(session);
    this.#states.set(`session ${session}`, state);
  }

  /** Those that were never asked for; they count as asked for from now on. */
  missingEpochs<Key extends { readonly sink: string; readonly epoch: string }>(keys: readonly Key[]): Key[] {
    return keys.filter(({ sink, epoch }) => {
      const key = keyOf(sink, epoch);
      if (this.#epochs.has(key)) return false;
      this.#epochs.set(key, false);
      return true;
    });
  }

  missingChains(sinks: readonly string[]): string[] {
    return sinks.filter((sink) => !this.#chains.has(sink) && this.#chains.add(sink));
  }

  missingSessions(sessions: readonly string[]): string[] {
    return sessions.filter((session) => {
      if (this.#sessions.has(session)) return false;
      this.#sessions.set(session, false);
      return true;
    });
  }

  clear(): void {
    this.#epochs.clear();
    this.#chains.clear();
    this.#sessions.clear();
    this.#states.clear();
  }

  #take(key: string, asked: boolean): unknown {
    if (!asked) throw new CoverageError('state', `${key} was not read before it was needed`);
    const state = this.#states.get(key);
    this.#states.delete(key);
    return state;
  }
}

/** When time alone makes a statement another one; undefined: never. */
export function overdueAt(statement: EpochStatement, now: Date): Date | undefined {
  const { ending, last, limits } = statement;
  if (ending !== undefined || last === undefined) return undefined;
  const since = Date.parse(last.received);
  // A moment later than the limit: it has to be longer than that.
  const times = [
    ...(limits.heartbeat > 0 ? [since + (limits.heartbeat + limits.lateness) * 1_000 + 1] : []),
    since + limits.closeTimeout * 1_000 + 1,
  ].filter((time) => time > now.getTime());
  return times.length === 0 ? undefined : new Date(Math.min(...times));
}

/** After how many seconds without a line an epoch may be overdue for some session of the log: each has its own policy. */
function leastPatience({ policies, declarations }: Pick<LogCoverage, 'policies' | 'declarations'>): number {
  // 0: none is expected.
  const shorter = (a: number, b: number | undefined): number =>
    b === undefined || b === 0 ? a : Math.min(a, b);
  const declared = declarations.reduce(
    (least, { heartbeat }) => shorter(least, heartbeat),
    Number.POSITIVE_INFINITY,
  );
  return policies.reduce(
    (least, { heartbeat, lateness, closeTimeout }) =>
      Math.min(least, closeTimeout, shorter(declared, heartbeat) + lateness),
    Number.POSITIVE_INFINITY,
  );
}

/** Which sessions a change of what is found of an epoch concerns. `patience` is in seconds. */
function compareEpoch(
  before: EpochStatement,
  after: EpochStatement,
  { now, patience }: { readonly now: Date; readonly patience: number },
  concerned: Concerned[],
): void {
  const { sink, epoch } = after;
  const all = { sink, epoch, after: 0, upto: OPEN_END, before: OPEN_END };
  const losses = ({ stated }: EpochStatement): number => (stated?.dropped ?? 0) + (stated?.filtered ?? 0);
  if (
    before.conflictsOmitted !== after.conflictsOmitted ||
    before.unknown.includes('sender') !== after.unknown.includes('sender') ||
    losses(before) !== losses(after)
  ) {
    concerned.push(all);
    return;
  }
  const spans = [
    ...different(before.conflicts, after.conflicts),
    ...different(before.missing, after.missing),
    ...different(before.unbound, after.unbound),
  ];
  if (spans.length > 0) {
    const from = Math.min(...spans.map((span) => span.from));
    const to = Math.max(...spans.map((span) => span.to));
    concerned.push({ ...all, after: from, before: to });
  }
  // A session that is closed with its line `last - 1` needs a root over `last - 2` lines.
  if (before.matched !== after.matched) {
    concerned.push({ ...all, after: before.matched + 2, upto: Math.min(after.matched + 2, OPEN_END - 1) });
  }
  if (JSON.stringify(before.ending) !== JSON.stringify(after.ending)) {
    concerned.push({ ...all, after: Math.min(after.matched + 2, OPEN_END - 1) });
  }
  // It may have counted as silent until now, for a session that goes by an earlier policy: a line that came in time may
  // have been under way when that was looked at.
  const quiet = now.getTime() + CLOCKS_APART_MS - Date.parse(before.last?.received ?? '');
  if (quiet > patience * 1_000) concerned.push({ ...all, after: OPEN_END - 1 });
}

/** What is in one list and not in the other. Both are short, or the same but for their ends. */
function different<T>(before: readonly T[], after: readonly T[]): T[] {
  if (before.length === 0 && after.length === 0) return [];
  const texts = new Set(before.map((one) => JSON.stringify(one)));
  const found: T[] = [];
  for (const one of after) if (!texts.delete(JSON.stringify(one))) found.push(one);
  if (texts.size > 0) found.push(...before.filter((one) => texts.has(JSON.stringify(one))));
  return found;
}
