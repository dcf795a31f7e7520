import type { Entry } from '@belay/envelope';
import { sightingOf } from './calls.js';
import { EpochCoverage, type EpochState, type SentEntry } from './epoch-coverage.js';
import { type AsOf, type EpochStatement, epochStatement, timingOf } from './epoch-statement.js';
import { CoverageError } from './error.js';
import { DEFAULT_POLICY, policyDigest, type ProjectPolicy, readPolicy } from './policy.js';
import {
  type DeclaredSink,
  SessionCoverage,
  type SessionState,
  type SessionStatement,
} from './session-coverage.js';
import { type ChainState, SinkChain } from './sink-chain.js';
import { type SinkStatement, sinkStatement } from './sink-statement.js';

/** A policy and the entry that put it in force. */
export interface PolicyInForce {
  readonly index: number;
  readonly policy: ProjectPolicy;
}

/** One declaration of a sink. */
export interface Declaration extends DeclaredSink {
  readonly heartbeat?: number | undefined;
  /** Index of its entry. */
  readonly index: number;
}

/** What the collector's own entries say that coverage depends on, as JSON. */
export interface LogState {
  readonly v: 1;
  readonly log: string;
  readonly size: number;
  readonly policies: readonly PolicyInForce[];
  readonly declared: readonly Declaration[];
}

/** States kept from an earlier run; asked for once, when an entry or a statement needs one. */
export interface KeptStates {
  epoch(sink: string, epoch: string): EpochState | undefined;
  chain(sink: string): ChainState | undefined;
  session(session: string): SessionState | undefined;
}

/** One object: whether another policy is in force is told by it. */
const NONE_SET: PolicyInForce = Object.freeze({ index: 0, policy: DEFAULT_POLICY });

const NOTHING_KEPT: KeptStates = {
  epoch: () => undefined,
  chain: () => undefined,
  session: () => undefined,
};

/** One run of a sink. */
export interface EpochName {
  readonly sink: string;
  readonly epoch: string;
}

/** What changed since it was last asked. */
export interface Touched {
  readonly epochs: readonly EpochCoverage[];
  readonly chains: readonly SinkChain[];
  readonly sessions: readonly SessionCoverage[];
  /** Whether a policy or a declaration came. */
  readonly log: boolean;
}

/**
 * Coverage of a whole log, entry by entry in its order: every epoch, sink and session, under the policy in force when
 * an entry was written. Who reads the entries again from the first one comes to the same statements; so a service, the
 * maker of an export and who verifies one run this very code over entries from three places.
 */
export class LogCoverage {
  readonly log: string;
  readonly #kept: KeptStates;
  readonly #policies: PolicyInForce[];
  readonly #declared: Declaration[];
  readonly #epochs = new Map<string, EpochCoverage>();
  readonly #chains = new Map<string, SinkChain>();
  readonly #sessions = new Map<string, SessionCoverage>();
  #touchedEpochs = new Set<EpochCoverage>();
  #touchedChains = new Set<SinkChain>();
  #touchedSessions = new Set<SessionCoverage>();
  #touchedLog = false;
  #size: number;
  #timing = timingOf(DEFAULT_POLICY);

  constructor(of: { readonly log: string } | LogState, kept: KeptStates = NOTHING_KEPT) {
    const state = 'v' in of ? of : undefined;
    if (state !== undefined && state.v !== 1)
      throw new CoverageError('state', 'not version 1 of a stored log');
    this.log = of.log;
    this.#kept = kept;
    this.#policies =
      state?.policies.map(({ index, policy }) => ({ index, policy: readPolicy(policy) })) ?? [];
    this.#declared = [...(state?.declared ?? [])];
    this.#size = state?.size ?? 0;
    this.#timing = timingOf(this.policyAt(this.#size).policy);
  }

  /** One past the last entry taken in or passed over. */
  get size(): number {
    return this.#size;
  }

  /** Takes in the next entry. One before `size` is known already and does nothing. */
  apply(entry: Entry): void {
    const { line } = entry;
    if (line.log !== this.log) throw new CoverageError('misrouted', `entry ${line.index} is of another log`);
    if (line.index < this.#size) return;
    this.#size = line.index + 1;
    if (entry.by === 'collector') {
      this.#applyStatement(entry);
      return;
    }
    const { sink, epoch, session } = entry.envelope;
    const coverage = this.epoch(sink, epoch);
    coverage.apply(entry, this.#timing);
    this.#touchedEpochs.add(coverage);
    const chain = this.chain(sink);
    const keyed = (): boolean => this.declarationAt(sink, line.index)?.keyed === true;
    if (chain.apply(entry, keyed)) this.#touchedChains.add(chain);
    if (session === undefined) return;
    const named = this.session(session);
    named.apply(entry);
    this.#touchedSessions.add(named);
  }

  /** Passes over entries before `size` that are not at hand: nothing they say is taken in. */
  pass(size: number): void {
    this.#size = Math.max(this.#size, size);
  }

  /** What changed since the last call. */
  takeTouched(): Touched {
    const touched = {
      epochs: [...this.#touchedEpochs],
      chains: [...this.#touchedChains],
      sessions: [...this.#touchedSessions],
      log: this.#touchedLog,
    };
    this.#touchedEpochs = new Set();
    this.#touchedChains = new Set();
    this.#touchedSessions = new Set();
    this.#touchedLog = false;
    return touched;
  }

  /** Forgets every state but the log's own: what is needed again is asked of what was kept. Take what was touched before. */
  forget(): void {
    this.#epochs.clear();
    this.#chains.clear();
    this.#sessions.clear();
  }

  /** States held in memory. */
  get held(): number {
    return this.#epochs.size + this.#chains.size + this.#sessions.size;
  }

  state(): LogState {
    return { v: 1, log: this.log, size: this.#size, policies: this.#policies, declared: this.#declared };
  }

  /** The policy in force for the entry at `index`: the last that was set before it. */
  policyAt(index: number): PolicyInForce {
    return this.#policies.findLast((policy) => policy.index < index) ?? NONE_SET;
  }

  /** Every policy that was in force, the default one included. */
  get policies(): readonly ProjectPolicy[] {
    return [DEFAULT_POLICY, ...this.#policies.map(({ policy }) => policy)];
  }

  /** The last declaration of a sink before `index`. */
  declarationAt(sink: string, index: number): Declaration | undefined {
    return this.#declared.findLast((declared) => declared.sink === sink && declared.index < index);
  }

  /** Every declaration, in order. */
  get declarations(): readonly Declaration[] {
    return this.#declared;
  }

  /** Those in memory; without kept states, all of the log. */
  get epochs(): Iterable<EpochCoverage> {
    return this.#epochs.values();
  }

  get chains(): Iterable<SinkChain> {
    return this.#chains.values();
  }

  get sessions(): Iterable<SessionCoverage> {
    return this.#sessions.values();
  }

  epoch(sink: string, epoch: string): EpochCoverage {
    const key = `${sink} ${epoch}`;
    let coverage = this.#epochs.get(key);
    if (coverage === undefined) {
      coverage = new EpochCoverage(this.#kept.epoch(sink, epoch) ?? { log: this.log, sink, epoch });
      this.#epochs.set(key, coverage);
    }
    return coverage;
  }

  chain(sink: string): SinkChain {
    let chain = this.#chains.get(sink);
    if (chain === undefined) {
      chain = new SinkChain(this.#kept.chain(sink) ?? { log: this.log, sink });
      this.#chains.set(sink, chain);
    }
    return chain;
  }

  session(session: string): SessionCoverage {
    let coverage = this.#sessions.get(session);
    if (coverage === undefined) {
      coverage = new SessionCoverage(this.#kept.session(session) ?? { log: this.log, session });
      this.#sessions.set(session, coverage);
    }
    return coverage;
  }

  /** The statement on an epoch, under the policy in force at the end, or under one that is given. */
  epochStatement(
    sink: string,
    epoch: string,
    asOf: AsOf,
    policy = this.policyAt(asOf.size).policy,
  ): EpochStatement {
    this.#requireSize(asOf);
    return epochStatement(this.epoch(sink, epoch), {
      asOf,
      policy,
      heartbeat: this.declarationAt(sink, asOf.size)?.heartbeat,
      account: this.chain(sink).account(epoch),
    });
  }

  sinkStatement(sink: string, asOf: AsOf, policy = this.policyAt(asOf.size).policy): SinkStatement {
    this.#requireSize(asOf);
    return sinkStatement(this.chain(sink), { asOf, policy: policyDigest(policy) }, (epoch) =>
      this.epochStatement(sink, epoch, asOf, policy),
    );
  }

  /**
   * The statement on a session under the policy in force when it began. `entries` are those of senders that name it, in
   * the log's order; without them the statement is right but for its calls.
   */
  sessionStatement(session: string, asOf: AsOf, entries: Iterable<SentEntry> = []): SessionStatement {
    this.#requireSize(asOf);
    const coverage = this.session(session);
    const began = this.beganAt(session);
    const { policy } = this.policyAt(began);
    const sightings = [];
    for (const entry of entries) {
      const sighting = sightingOf(entry);
      if (sighting !== undefined) sightings.push(sighting);
    }
    return coverage.statement({
      asOf,
      policy,
      declared: this.#declaredFor(began, asOf.size),
      sightings,
      epochOf: (sink, epoch) => this.epochStatement(sink, epoch, asOf, policy),
      chainOf: (sink) => this.chain(sink),
    });
  }

  /**
   * Epochs beside a session's own, whose statements a statement on it is made from too. `lost`: those before which a lost
   * one may have been beside it.
   */
  besideOf(session: string): Record<'epochs' | 'lost', readonly EpochName[]> {
    const found = { epochs: [] as EpochName[], lost: [] as EpochName[] };
    for (const [sink, ends] of this.session(session).ends()) {
      const { epochs, lost } = this.chain(sink).beside(ends);
      for (const epoch of epochs) found.epochs.push({ sink, epoch });
      for (const epoch of lost) found.lost.push({ sink, epoch });
    }
    return found;
  }

  /**
   * Index of the entry by which a session began, as far as its rules are concerned: the first by a sink that was
   * declared by then, not by an agent's token and signed if there was a key. Of a session without such a line, the first
   * of a sink that was declared; else the first. So neither who is no declared sink nor the agent itself can move a
   * session to before a policy.
   */
  beganAt(session: string): number {
    const beginnings = this.session(session).beginnings();
    const declared = beginnings.filter(({ sink, index }) => this.declarationAt(sink, index) !== undefined);
    const own = declared.filter(
      ({ sink, index, by }) =>
        by === 'signed' || (by === 'other' && this.declarationAt(sink, index)?.keyed === false),
    );
    const counting = [own, declared, beginnings].find(({ length }) => length > 0) ?? [];
    return Math.min(...counting.map(({ index }) => index), this.#size);
  }

  /**
   * The sinks of a session: each as it was declared last before the session began; one declared only later counts when
   * it speaks, and is not required.
   */
  #declaredFor(began: number, size: number): DeclaredSink[] {
    const declared = new Map<string, DeclaredSink>();
    for (const { sink, required, keyed, index } of this.#declared) {
      if (index >= size) break;
      const before = declared.get(sink);
      if (index < began) declared.set(sink, { sink, required, keyed });
      else if (before === undefined) declared.set(sink, { sink, required: false, keyed });
    }
    return [...declared.values()];
  }

  #applyStatement({ line, statement }: Extract<Entry, { readonly by: 'collector' }>): void {
    switch (statement.kind) {
      case 'log.genesis':
      case 'policy.set': {
        const policy = policyOf(statement.policy);
        if (policy === undefined) return;
        this.#policies.push({ index: line.index, policy });
        this.#timing = timingOf(policy);
        break;
      }
      case 'sink.declared': {
        const { sink, required = false, key, heartbeat } = statement;
        const declared = { sink, required, keyed: key !== undefined, index: line.index };
        this.#declared.push(heartbeat === undefined ? declared : { ...declared, heartbeat });
        break;
      }
      default:
        return;
    }
    this.#touchedLog = true;
  }

  #requireSize({ size }: AsOf): void {
    if (size === this.#size) return;
    throw new CoverageError('state', `a statement as of ${size} entries, and ${this.#size} were taken in`);
  }
}

/** A policy that is only named by its digest, or that can't be read, leaves the one before in force. */
function policyOf(value: unknown): ProjectPolicy | undefined {
  if (typeof value === 'string') return undefined;
  try {
    return readPolicy(value);
  } catch (error) {
    if (error instanceof CoverageError) return undefined;
    throw error;
  }
}
