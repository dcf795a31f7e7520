import { pairCalls, type SeenCall, type Sighting } from './calls.js';
import type { Conflict, Missing, SentEntry } from './epoch-coverage.js';
import { type AsOf, type CoverageStatus, type EpochStatement, statesMoreLost } from './epoch-statement.js';
import { CoverageError } from './error.js';
import type { ProjectPolicy } from './policy.js';
import { policyDigest } from './policy.js';
import type { Ends, LostEpochs, SinkChain } from './sink-chain.js';
import { worst } from './sink-statement.js';
import { meet, type Span } from './spans.js';

/** What an admin declared for a sink, as the log's `sink.declared` has it. */
export interface DeclaredSink {
  readonly sink: string;
  readonly required: boolean;
  /** Whether a key is declared: then only signed lines are the sink's. */
  readonly keyed: boolean;
}

/** Lines of a session in one epoch of one sink. */
interface Extent {
  readonly sink: string;
  readonly epoch: string;
  /** Least and greatest number of a line that names the session. */
  readonly first: number;
  readonly last: number;
  /** Number of the `session.open`, if one was received. */
  readonly opened?: number | undefined;
  /** Number of the last `session.close`. */
  readonly closed?: number | undefined;
}

/** A second story about a number, which names the session whatever the first says. */
interface Story {
  readonly sink: string;
  readonly epoch: string;
  readonly seq: number;
  readonly index: number;
}

interface Began {
  readonly index: number;
  readonly received: string;
}

/** The first line of one sort by which a sink named a session. */
export interface Beginning extends Began {
  readonly sink: string;
  /** By an agent's token; else signed under a declared key; else neither. */
  readonly by: 'agent' | 'signed' | 'other';
}

/** Everything a `SessionCoverage` knows, as JSON. */
export interface SessionState {
  readonly v: 1;
  readonly log: string;
  readonly session: string;
  readonly through: number;
  readonly extents: readonly Extent[];
  /** Sinks that opened it; `signed` when under a declared key. */
  readonly openers: readonly { readonly sink: string; readonly signed: boolean }[];
  /** Only the first of each sink: one suffices. */
  readonly stories: readonly Story[];
  /** When each sink first spoke of it, by each sort of line. */
  readonly began: readonly Beginning[];
}

/** Why a member's coverage of a session is what it is. Closed. */
export type MemberReason =
  /** A required sink has not said anything of the session. */
  | { readonly reason: 'never_spoke' }
  /** An epoch of the sink is lost where the session may have been in it. */
  | { readonly reason: 'lost_epoch'; readonly lost: LostEpochs }
  /** The sink tells two stories of its own run. */
  | { readonly reason: 'chain'; readonly index: number }
  | (EpochReason & {
      readonly epoch: string;
      /** No line there names the session, which may have held some that did. */
      readonly beside?: true | undefined;
    });

/** What is wrong in one epoch. */
type EpochReason =
  | ({ readonly reason: 'conflict' } & Conflict)
  /** More conflicts than are listed. */
  | { readonly reason: 'conflicts_omitted'; readonly count: number }
  | ({ readonly reason: 'missing' } & Missing)
  | ({ readonly reason: 'unbound' } & Span)
  /** Its lines are there, but no root that the sink stated could be compared with them. */
  | { readonly reason: 'root_not_compared' }
  /** The sink says that it dropped or filtered lines. */
  | { readonly reason: 'stated_loss'; readonly dropped: number; readonly filtered: number }
  | { readonly reason: 'overdue'; readonly what: 'heartbeat' | 'close' }
  /** Not every line of it was signed under a declared key. */
  | { readonly reason: 'unsigned' };

/** One sink of a session. */
export interface MemberStatement {
  readonly sink: string;
  readonly required: boolean;
  readonly status: CoverageStatus;
  /** It said that the session is over, or is itself over. */
  readonly closed: boolean;
  /** Whether every line of the sink's epochs in the session was signed under a declared key. */
  readonly signed: boolean;
  /** Where it spoke of the session, and which numbers may be the session's: [from, to). */
  readonly epochs: readonly (Span & { readonly epoch: string; readonly status: CoverageStatus })[];
  readonly reasons: readonly MemberReason[];
}

/** What the sinks of one session cover. Sinks that are no members are not in it, whatever they sent. */
export interface SessionStatement {
  readonly v: 1;
  readonly type: 'session';
  readonly log: string;
  readonly session: string;
  readonly asOf: AsOf;
  readonly policy: string;
  /** Kinds of the policy that it is of; empty: of none, and the declared `required` apply. */
  readonly kinds: readonly string[];
  /** When a member first spoke of it. */
  readonly began?: Began | undefined;
  /** Every required sink, or where none is required every member that spoke, said that it is over. */
  readonly closed: boolean;
  /** The worst of its required sinks. */
  readonly status: CoverageStatus;
  /** By name. */
  readonly members: readonly MemberStatement[];
  readonly calls: readonly SeenCall[];
  /** Lines about calls that name none, by sink. */
  readonly unnamed: Readonly<Record<string, number>>;
}

export interface SessionQuestion {
  readonly asOf: AsOf;
  readonly policy: ProjectPolicy;
  readonly declared: readonly DeclaredSink[];
  /** Of every entry that names the session, in the log's order: `sightingOf`. */
  readonly sightings: readonly Sighting[];
  /** Statements of the same time and policy. */
  readonly epochOf: (sink: string, epoch: string) => EpochStatement;
  /** How its epochs are linked. */
  readonly chainOf: (sink: string) => Pick<SinkChain, 'breaks' | 'beside'>;
}

/**
 * What the log holds of one session, of all who named it, taken in entry by entry in the log's order. The state grows
 * with the epochs that name it, not with its lines: what its lines say of calls is looked at once, for the statement.
 */
export class SessionCoverage {
  readonly log: string;
  readonly session: string;
  #through: number;
  readonly #extents: Map<string, Extent>;
  readonly #openers: Map<string, { readonly sink: string; readonly signed: boolean }>;
  readonly #stories: Map<string, Story>;
  readonly #began: Map<string, Beginning>;

  constructor(of: { readonly log: string; readonly session: string } | SessionState) {
    const state = 'v' in of ? of : undefined;
    if (state !== undefined && state.v !== 1) {
      throw new CoverageError('state', 'not version 1 of a stored session');
    }
    this.log = of.log;
    this.session = of.session;
    this.#through = state?.through ?? -1;
    this.#extents = new Map(state?.extents.map((extent) => [keyOf(extent), extent]));
    this.#openers = new Map(state?.openers.map((opener) => [`${opener.sink} ${opener.signed}`, opener]));
    this.#stories = new Map(state?.stories.map((story) => [story.sink, story]));
    this.#began = new Map(state?.began.map((began) => [`${began.sink} ${began.by}`, began]));
  }

  /** Takes in the next entry that names this session. One at or before the last does nothing. */
  apply(entry: SentEntry): void {
    const { line, envelope } = entry;
    if (envelope.log !== this.log || envelope.session !== this.session) {
      throw new CoverageError('misrouted', `entry ${line.index} is of another session`);
    }
    if (line.index <= this.#through) return;
    this.#through = line.index;
    const { sink, epoch, seq, kind } = envelope;
    if (line.conflict !== undefined) {
      if (!this.#stories.has(sink)) this.#stories.set(sink, { sink, epoch, seq, index: line.index });
      return;
    }
    const by = line.role === 'agent' ? 'agent' : line.signed === undefined ? 'other' : 'signed';
    const sort = `${sink} ${by}`;
    if (!this.#began.has(sort)) {
      this.#began.set(sort, { sink, by, index: line.index, received: line.received });
    }
    const before = this.#extents.get(keyOf(envelope)) ?? { sink, epoch, first: seq, last: seq };
    const opened = kind === 'session.open' ? Math.min(seq, before.opened ?? seq) : before.opened;
    const closed = kind === 'session.close' ? Math.max(seq, before.closed ?? seq) : before.closed;
    this.#extents.set(keyOf(envelope), {
      sink,
      epoch,
      first: Math.min(before.first, seq),
      last: Math.max(before.last, seq),
      ...(opened === undefined ? {} : { opened }),
      ...(closed === undefined ? {} : { closed }),
    });
    if (kind === 'session.open' && line.role !== 'agent') {
      const signed = line.signed !== undefined;
      this.#openers.set(`${sink} ${signed}`, { sink, signed });
    }
  }

  /** The first entries of each sink that named it: one of each sort. */
  beginnings(): readonly Beginning[] {
    return [...this.#began.values()];
  }

  /** Epochs in which it is named. */
  epochs(): readonly { readonly sink: string; readonly epoch: string }[] {
    return [...this.#extents.values()].map(({ sink, epoch }) => ({ sink, epoch }));
  }

  /** How it stands in those of each sink. */
  ends(): ReadonlyMap<string, ReadonlyMap<string, Ends>> {
    const ends = new Map<string, Map<string, Ends>>();
    for (const extent of this.#extents.values()) {
      const of = ends.get(extent.sink) ?? new Map<string, Ends>();
      ends.set(extent.sink, of.set(extent.epoch, { opens: opens(extent), closes: closes(extent) }));
    }
    return ends;
  }

  /** The statement, from those on the epochs and sinks it touches. */
  statement(question: SessionQuestion): SessionStatement {
    const { asOf, policy, declared } = question;
    const { kinds, required, members } = this.#membership(policy, declared);
    const began = [...this.#began.values()]
      .filter(({ sink }) => members.has(sink))
      .reduce<Began | undefined>(
        (least, { index, received }) =>
          least === undefined || index < least.index ? { index, received } : least,
        undefined,
      );
    const quiet = began === undefined ? 0 : (Date.parse(asOf.time) - Date.parse(began.received)) / 1_000;
    const statements = [...members]
      .sort()
      .flatMap((sink) => this.#member(sink, required.has(sink), quiet > policy.lateness, question) ?? []);
    const deciding = statements.some((member) => member.required)
      ? statements.filter((member) => member.required)
      : statements;
    const sightings = question.sightings.filter(({ sink }) => members.has(sink));
    const unnamed: Record<string, number> = {};
    for (const { sink, call } of sightings) if (call === undefined) unnamed[sink] = (unnamed[sink] ?? 0) + 1;
    return {
      v: 1,
      type: 'session',
      log: this.log,
      session: this.session,
      asOf: { size: asOf.size, time: asOf.time },
      policy: policyDigest(policy),
      kinds,
      ...(began === undefined ? {} : { began }),
      closed: deciding.length > 0 && deciding.every(({ closed }) => closed),
      status: sessionStatus(statements),
      members: statements,
      calls: pairCalls(sightings),
      unnamed,
    };
  }

  state(): SessionState {
    return {
      v: 1,
      log: this.log,
      session: this.session,
      through: this.#through,
      extents: [...this.#extents.values()],
      openers: [...this.#openers.values()],
      stories: [...this.#stories.values()],
      began: [...this.#began.values()],
    };
  }

  /**
   * Whose silence or word counts. A session is of every kind whose opener opened it, so that one more opener can only
   * ask for more; who is no declared sink, or has not the key of one, opens nothing.
   */
  #membership(
    policy: ProjectPolicy,
    declared: readonly DeclaredSink[],
  ): {
    readonly kinds: readonly string[];
    readonly required: ReadonlySet<string>;
    readonly members: ReadonlySet<string>;
  } {
    const keyed = new Map(declared.map((sink) => [sink.sink, sink.keyed]));
    const openers = new Set<string>();
    for (const { sink, signed } of this.#openers.values()) {
      if (keyed.has(sink) && (signed || keyed.get(sink) === false)) openers.add(sink);
    }
    const rules = policy.sessions.filter(({ opens }) => opens.some((sink) => openers.has(sink)));
    const all = declared.map(({ sink }) => sink);
    const required = new Set(
      rules.length === 0
        ? declared.filter((sink) => sink.required).map(({ sink }) => sink)
        : rules.flatMap((rule) => rule.required),
    );
    const others = rules.length === 0 ? all : rules.flatMap((rule) => rule.members ?? all);
    return { kinds: rules.map(({ kind }) => kind), required, members: new Set([...required, ...others]) };
  }

  #member(
    sink: string,
    required: boolean,
    due: boolean,
    { epochOf, chainOf }: SessionQuestion,
  ): MemberStatement | undefined {
    const extents = [...this.#extents.values()]
      .filter((extent) => extent.sink === sink)
      .map((extent) => ({ extent, statement: epochOf(sink, extent.epoch) }))
      .sort((a, b) => (a.statement.first?.index ?? 0) - (b.statement.first?.index ?? 0));
    const last = extents.at(-1);
    const reasons: MemberReason[] = [];
    const story = this.#stories.get(sink);
    if (story !== undefined) {
      const { epoch, seq, index } = story;
      reasons.push({ reason: 'conflict', kind: 'number', epoch, from: seq, to: seq + 1, index });
    }
    if (last === undefined) {
      if (story === undefined && !required) return undefined;
      if (required && due) reasons.push({ reason: 'never_spoke' });
      const status = story !== undefined ? 'conflict' : due ? 'silent' : 'open';
      return { sink, required, status, closed: false, signed: false, epochs: [], reasons };
    }
    const epochs = extents.map(({ extent, statement }) => {
      const part = inEpoch(extent, statement);
      reasons.push(...part.reasons);
      return { epoch: extent.epoch, ...part.span, status: part.status };
    });
    const statuses = epochs.map(({ status }) => status);
    if (story !== undefined) statuses.push('conflict');
    const ours = this.ends().get(sink) as ReadonlyMap<string, Ends>;
    const chain = chainOf(sink);
    const beside = chain.beside(ours);
    const others = beside.epochs.map((epoch) => epochOf(sink, epoch));
    for (const other of others) {
      const part = besideEpoch(other);
      statuses.push(...part.statuses);
      reasons.push(...part.reasons);
    }
    const breaks = chain.breaks();
    const closed = isClosed(last.extent, last.statement);
    for (const lost of breaks.lost) {
      if (!beside.lost.has(lost.before)) continue;
      statuses.push('silent');
      reasons.push({ reason: 'lost_epoch', lost });
    }
    const twisted = [
      ...breaks.branches.filter((branch) => branch.epochs.some((epoch) => ours.has(epoch))),
      ...breaks.miscounted.filter(({ epoch }) => ours.has(epoch)),
    ];
    for (const { index } of twisted) {
      statuses.push('conflict');
      reasons.push({ reason: 'chain', index });
    }
    const signed = [...extents.map(({ statement }) => statement), ...others].every(
      ({ unknown }) => !unknown.includes('sender'),
    );
    return { sink, required, status: worst(statuses), closed, signed, epochs, reasons };
  }
}

/** The worst of the required sinks of a session; of all where none is required. */
export function sessionStatus(members: readonly MemberStatement[]): CoverageStatus {
  const required = members.filter((member) => member.required);
  if (members.length === 0) return 'silent';
  return worst((required.length > 0 ? required : members).map(({ status }) => status));
}

const keyOf = ({ sink, epoch }: { readonly sink: string; readonly epoch: string }): string =>
  `${sink} ${epoch}`;

/** Whether the session began in this epoch: then no line before can be its. */
const opens = ({ opened, first }: Extent): boolean => opened !== undefined && opened === first;

/** Whether it ended in this epoch by the sink's own word. */
const closes = ({ closed, last }: Extent): boolean => closed !== undefined && closed === last;

const isClosed = (extent: Extent, { ending }: EpochStatement): boolean =>
  ending !== undefined || closes(extent);

/** What an epoch covers of the numbers that may be a session's. */
function inEpoch(
  extent: Extent,
  statement: EpochStatement,
): { readonly span: Span; readonly status: CoverageStatus; readonly reasons: readonly MemberReason[] } {
  const { epoch } = extent;
  const { conflicts, conflictsOmitted, missing, unbound, ending, matched, stated, overdue, unknown } =
    statement;
  const said = closes(extent) ? extent.closed : undefined;
  const span = {
    from: opens(extent) ? extent.first : 1,
    to: said === undefined ? Math.max(statement.next, extent.last + 1) : said + 1,
  };
  // A story about numbers that nothing was received of yet concerns a session that is not over.
  const open = { from: span.from, to: said === undefined ? Number.MAX_SAFE_INTEGER : span.to };
  const reasons: MemberReason[] = [];
  const statuses: CoverageStatus[] = [];
  const because = (status: CoverageStatus, ...why: readonly MemberReason[]): void => {
    statuses.push(status);
    reasons.push(...why);
  };
  for (const conflict of conflicts) {
    if (meet(conflict, open)) because('conflict', { reason: 'conflict', epoch, ...conflict });
  }
  if (conflictsOmitted > 0) {
    because('conflict', { reason: 'conflicts_omitted', epoch, count: conflictsOmitted });
  }
  for (const hole of missing) {
    if (meet(hole, span)) because('gap', { reason: 'missing', epoch, ...hole });
  }
  for (const part of unbound) {
    if (meet(part, span)) because('gap', { reason: 'unbound', epoch, ...part });
  }
  const compared = said === undefined ? ending?.compared === true : matched >= said - 1;
  if (compared || (said !== undefined && ending?.compared === true)) statuses.push('complete');
  else if (said !== undefined || ending !== undefined) {
    because('gap', { reason: 'root_not_compared', epoch });
  } else {
    statuses.push(overdue.includes('close') ? 'unclosed' : overdue.includes('heartbeat') ? 'silent' : 'open');
    for (const what of overdue) reasons.push({ reason: 'overdue', epoch, what });
  }
  if (stated !== undefined && statesMoreLost(statement)) {
    const { dropped, filtered } = stated;
    because('gap', { reason: 'stated_loss', epoch, dropped, filtered });
  }
  if (unknown.includes('sender')) reasons.push({ reason: 'unsigned', epoch });
  return { span, status: worst(statuses), reasons };
}

/**
 * What an epoch keeps a session from of which no line there names it: every number that is not there, or not held to the
 * sink's word, may have been the session's. Two lines of one number, neither of which names it, are not. One that goes
 * on keeps it from nothing until it is overdue.
 */
function besideEpoch(statement: EpochStatement): {
  readonly statuses: readonly CoverageStatus[];
  readonly reasons: readonly MemberReason[];
} {
  const { epoch, conflicts, conflictsOmitted, missing, unbound, ending, stated, overdue, unknown } =
    statement;
  const reasons: MemberReason[] = [];
  const statuses: CoverageStatus[] = [];
  const beside = true;
  const because = (status: CoverageStatus, why: EpochReason): void => {
    statuses.push(status);
    reasons.push({ ...why, epoch, beside });
  };
  for (const conflict of conflicts) {
    if (conflict.kind !== 'number') because('conflict', { reason: 'conflict', ...conflict });
  }
  if (conflictsOmitted > 0) {
    because('conflict', { reason: 'conflicts_omitted', count: conflictsOmitted });
  }
  for (const hole of missing) because('gap', { reason: 'missing', ...hole });
  for (const part of unbound) because('gap', { reason: 'unbound', ...part });
  if (ending?.compared === false) because('gap', { reason: 'root_not_compared' });
  if (overdue.includes('close')) because('unclosed', { reason: 'overdue', what: 'close' });
  if (stated !== undefined && statesMoreLost(statement)) {
    const { dropped, filtered } = stated;
    because('gap', { reason: 'stated_loss', dropped, filtered });
  }
  if (unknown.includes('sender')) reasons.push({ reason: 'unsigned', epoch, beside });
  return { statuses, reasons };
}
