import { createHash } from 'node:crypto';
import type { CollectorApi, CollectorFault, StaleFault, StatementRecord } from '@belay/contracts';
import { MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES } from '@belay/contracts/rpc';
import {
  type AsOf,
  type EpochStatement,
  formatStatement,
  parseStatement,
  type SessionStatement,
} from '@belay/coverage';
import { databaseTrouble } from '@belay/db';
import type {
  AccountSession,
  AccountTurn,
  CheckpointRow,
  KeptEpoch,
  LogRow,
  NewDelivery,
  Reader,
  ReceiptRow,
  SessionHeld,
  SessionOutcome,
} from '@belay/db';
import { canonical, type CoverageStated } from '@belay/envelope';
import { formatVkey } from '@belay/note';
import {
  parseDsse,
  ReceiptError,
  SessionDerivation,
  type SessionFacts,
  sessionReceiptPayload,
} from '@belay/receipt';
import type { Logger } from 'pino';
import { EntrySpool } from './entry-spool.js';
import { givingWay } from './giving-way.js';
import { type Lane, overdueAt } from './lane.js';
import type { Publisher } from './publisher.js';

/** Sessions, and epochs, looked at in one go. */
const AT_ONCE = 100;
/** Bytes of statements after which a go ends early. */
const ENOUGH_BYTES = 4 * 1024 * 1024;
/** Receipts that are asked for at the same time. */
const ISSUED_AT_ONCE = 16;
/**
 * Most entries of a session that is judged: of each call half a kilobyte is in memory until the statement is written,
 * and the statement has to fit a request.
 */
const MAX_SESSION_ENTRIES = 250_000;
/** Entries that verdicts cite, read at a time. */
const CITED_AT_ONCE = 1_000;
const A_MOMENT_MS = 1_000;
const A_WHILE_MS = 10 * 60_000;
/**
 * The more entries a session has, the longer it waits to be judged again: as if so many took a second. They take less;
 * what is statement after statement is kept for good.
 */
const ENTRIES_A_SECOND = 5_000;
/** How many times as long as that a session is left alone after it was judged, and from how long on. */
const RESTS = 10;
const SHORTEST_REST_MS = 1_000;
/** Receipts of a session after which each further one is followed by twice the rest, from a second on, to so much. */
const FREE_RECEIPTS = 4;
const LONGEST_REST_MS = 10 * 60_000;
/** Sessions of which that is remembered; past it the ones that were judged longest ago are asked of their receipts. */
const MOST_RESTING = 20_000;

export interface EvaluatorParts {
  readonly collector: Pick<CollectorApi, 'record' | 'issue'>;
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly reader: Reader;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
  /** Most lines of a session that is judged; absent: 250,000. */
  readonly mostLines?: number | undefined;
}

/** A webhook, as far as it says what it wants to hear of. */
interface Subscription {
  readonly id: string;
  readonly events: readonly string[];
}

/** A session that was judged, on its way to a receipt. */
interface Judged {
  readonly row: AccountSession;
  readonly facts: SessionFacts;
  readonly last: ReceiptRow | undefined;
  readonly due: Date | null;
  /** Where its statement stands in the log; absent: nowhere yet. */
  statedAt?: number;
}

/**
 * Looks at the sessions and epochs of a log of which something may have changed: states their coverage in the log, and
 * has receipts issued where a session comes to something else than its last receipt says.
 *
 * Each step can be the last before a crash. Statements are found again by their entries, a receipt by the scope; what
 * was not written down is come to again.
 */
export class Evaluator {
  readonly #parts: EvaluatorParts;
  /**
   * Until when sessions are left alone, by log and session, and how many receipts each got of late. Without it whoever
   * adds a line a second to a long one has the worker to himself, and a sink that falls silent and speaks by turns has
   * receipts of all its open sessions made for ever.
   */
  readonly #resting = new Map<string, { readonly until: number; readonly receipts: number }>();

  constructor(parts: EvaluatorParts) {
    this.#parts = parts;
  }

  /**
   * Looks at what is due, a bounded part of it: after `sliceMs` no further session is begun with. Returns whether
   * anything was due.
   */
  async look(turn: AccountTurn, lane: Lane, sliceMs = Number.POSITIVE_INFINITY): Promise<boolean> {
    const now = new Date(this.#parts.now());
    const epochs = await turn.epochsDue(now, AT_ONCE);
    if (epochs.length > 0) await this.#stateEpochs(turn, lane, epochs, now);
    const rows = await turn.sessionsToLookAt(now, AT_ONCE);
    if (rows.length > 0) await this.#evaluate(turn, lane, rows, false, sliceMs);
    return epochs.length > 0 || rows.length > 0;
  }

  /**
   * Judges these sessions and sees to it that each has a receipt that says what it came to, open ones too. Returns those
   * of which that could not be done now.
   */
  async judge(turn: AccountTurn, lane: Lane, names: readonly string[]): Promise<string[]> {
    const left: string[] = [];
    for (let at = 0; at < names.length; at += AT_ONCE) {
      const now = this.#parts.now();
      const rows = (await turn.sessions(names.slice(at, at + AT_ONCE))).filter(
        // The others have a receipt, and nothing came and no time passed that could make it another one.
        ({ receipt, dirty, due }) =>
          receipt === null || dirty !== null || (due !== null && due.getTime() <= now),
      );
      if (rows.length > 0)
        left.push(...(await this.#evaluate(turn, lane, rows, true, Number.POSITIVE_INFINITY)));
    }
    return left;
  }

  async #stateEpochs(turn: AccountTurn, lane: Lane, epochs: readonly KeptEpoch[], now: Date): Promise<void> {
    await lane.loadEpochs(turn, epochs);
    const asOf = asOfNow(lane, now);
    const statements: StatementRecord[] = [];
    const due: { sink: string; epoch: string; due: string | null }[] = [];
    for (const { sink, epoch, stated } of epochs) {
      const statement = lane.coverage.epochStatement(sink, epoch, asOf);
      const bytes = formatStatement(statement);
      const isNews = statement.status !== 'open' && statement.status !== stated;
      if (isNews && bytes.length <= MAX_RECORD_BYTES) statements.push(recordOf(statement, bytes));
      else if (isNews)
        this.#parts.log.error({ sink, epoch, bytes: bytes.length }, 'a statement is too large');
      due.push({ sink, epoch, due: overdueAt(statement, now)?.toISOString() ?? null });
    }
    for (const part of parts(statements)) {
      const outcome = await this.#parts.collector.record({ project: turn.log.project, statements: part });
      if (outcome.ok) continue;
      const later = new Date(now.getTime() + this.#later(turn, outcome.fault)).toISOString();
      for (const one of due) one.due = later;
      break;
    }
    await turn.setEpochsDue(lane.fence, due);
  }

  async #evaluate(
    turn: AccountTurn,
    lane: Lane,
    rows: readonly AccountSession[],
    force: boolean,
    sliceMs: number,
  ): Promise<string[]> {
    const left: string[] = [];
    await lane.load(
      turn,
      rows.map(({ session }) => session),
    );
    let judged: Judged[] = [];
    let bytes = 0;
    const plain: SessionOutcome[] = [];
    const webhooks = await turn.webhooks();
    const began = performance.now();
    for (const row of rows) {
      if (performance.now() - began > sliceMs) break;
      const now = new Date(this.#parts.now());
      const asOf = asOfNow(lane, now);
      const statement = lane.coverage.sessionStatement(row.session, asOf);
      const due = dueOf(lane, statement, asOf, now);
      if (!force && !mayHaveChanged(row, statement)) {
        plain.push(coverageOnly(lane, row, statement, due));
        continue;
      }
      const key = `${turn.log.log} ${row.session}`;
      const until = this.#resting.get(key)?.until ?? (await this.#restOf(turn, row, key, now.getTime()));
      if (!force && until > now.getTime()) {
        await turn.postpone(lane.fence, [row.session], new Date(until));
        continue;
      }
      let facts: SessionFacts | SessionHeld;
      let last: ReceiptRow | undefined;
      let isNews = false;
      try {
        facts = await this.#derive(turn, lane, row, asOf);
        if (!('why' in facts)) {
          last = await turn.lastReceipt(`session:${row.session}`);
          isNews =
            last === undefined
              ? force || facts.judgement.disposition.status !== 'open'
              : !isSame(facts, last, turn);
        }
      } catch (error) {
        // A database that is away is no fault of the session's.
        if (databaseTrouble(error) !== undefined) throw error;
        // One session that can't be judged must not keep the others from it.
        const { session } = row;
        this.#parts.log.error({ err: error, origin: turn.log.origin, session }, 'a session was not judged');
        await turn.hold(lane.fence, session, { why: 'failed' }, new Date(now.getTime() + A_WHILE_MS));
        left.push(session);
        continue;
      }
      if ('why' in facts) {
        // It may have a receipt of when it was smaller: that does not settle it.
        await this.#hold(turn, lane, row.session, facts);
        continue;
      }
      this.#rest(key, facts.evidence.entries, isNews);
      if (!isNews) {
        // Of one that is judged again and again while it goes on, the next time is later the longer it takes.
        const isOpen = facts.judgement.disposition.status === 'open';
        const pause = isOpen ? (facts.evidence.entries / ENTRIES_A_SECOND) * 1_000 : 0;
        plain.push({
          ...this.#outcome(turn, lane, webhooks, row, facts, last, later(due, now, pause)),
          // Another one may have been recorded since, and nothing issued of it.
          ...(last === undefined ? {} : { stated: statedBy(last) }),
        });
        continue;
      }
      judged.push({ row, facts, last, due });
      bytes += facts.statementBytes.length;
      if (bytes < ENOUGH_BYTES) continue;
      left.push(...(await this.#issueAll(turn, lane, judged, webhooks)));
      judged = [];
      bytes = 0;
    }
    if (plain.length > 0) await turn.settle(lane.fence, plain, new Date(this.#parts.now()));
    if (judged.length > 0) left.push(...(await this.#issueAll(turn, lane, judged, webhooks)));
    return left;
  }

  async #hold(turn: AccountTurn, lane: Lane, session: string, held: SessionHeld): Promise<void> {
    this.#parts.log.error({ origin: turn.log.origin, session, ...held }, 'a session can not be judged');
    await turn.hold(lane.fence, session, held, new Date(this.#parts.now() + A_WHILE_MS));
  }

  #rest(key: string, entries: number, isNews: boolean): void {
    const now = this.#parts.now();
    const before = this.#resting.get(key);
    const isLongAgo = before === undefined || before.until + LONGEST_REST_MS < now;
    const receipts = (isLongAgo ? 0 : before.receipts) + (isNews ? 1 : 0);
    const long = (entries / ENTRIES_A_SECOND) * 1_000 * RESTS;
    this.#keep(key, now + Math.max(long < SHORTEST_REST_MS ? 0 : long, restAfter(receipts)), receipts);
  }

  /** Of one that is not remembered, since another worker judged it, or too many others were: what its receipts tell. */
  async #restOf(turn: AccountTurn, row: AccountSession, key: string, now: number): Promise<number> {
    if (row.receipt === null) return 0;
    const since = new Date(now - LONGEST_REST_MS);
    const { count, last } = await turn.receiptsSince(`session:${row.session}`, since);
    const until = last === null ? 0 : last.getTime() + restAfter(count);
    this.#keep(key, until, count);
    return until;
  }

  #keep(key: string, until: number, receipts: number): void {
    this.#resting.delete(key);
    this.#resting.set(key, { until, receipts });
    if (this.#resting.size <= MOST_RESTING) return;
    for (const oldest of this.#resting.keys()) {
      this.#resting.delete(oldest);
      break;
    }
  }

  /** What it comes to, or why that can't be found. */
  async #derive(
    turn: AccountTurn,
    lane: Lane,
    { session }: AccountSession,
    asOf: AsOf,
  ): Promise<SessionFacts | SessionHeld> {
    const lines = await turn.countEntries(session);
    const limit = this.#parts.mostLines ?? MAX_SESSION_ENTRIES;
    if (lines > limit) return { why: 'too_many_lines', lines, limit };
    const derivation = new SessionDerivation(lane.coverage, lane.standing, session, asOf);
    const cited = new EntrySpool();
    try {
      for await (const page of turn.sessionEntries(session, lane.size)) {
        for (const { index, bytes, entry } of page) derivation.take(index, bytes, entry);
      }
      const citations = derivation.cited();
      for (let at = 0; at < citations.length; at += CITED_AT_ONCE) {
        cited.add(await turn.entriesAt(citations.slice(at, at + CITED_AT_ONCE)));
      }
      const facts = await givingWay(derivation.steps((index) => cited.at(index)));
      const { length: bytes } = facts.statementBytes;
      if (bytes <= MAX_RECORD_BYTES) return facts;
      return { why: 'statement_too_large', bytes, limit: MAX_RECORD_BYTES };
    } finally {
      cited.close();
    }
  }

  /** Has statements recorded, the log's head published, and receipts issued. Returns the sessions without one. */
  async #issueAll(
    turn: AccountTurn,
    lane: Lane,
    judged: readonly Judged[],
    webhooks: readonly Subscription[],
  ): Promise<string[]> {
    const { collector, publisher, reader } = this.#parts;
    const postpone = async (ms: number): Promise<string[]> => {
      const sessions = judged.map(({ row }) => row.session);
      await turn.postpone(lane.fence, sessions, new Date(this.#parts.now() + ms));
      return sessions;
    };
    const todo: Judged[] = [];
    for (const one of judged) todo.push(await this.#found(turn, lane, one));
    const missing = todo.filter(({ statedAt }) => statedAt === undefined);
    if (missing.length > 0) {
      const statements = missing.map(({ facts }) => recordOf(facts.statement, facts.statementBytes));
      const recorded = await collector.record({ project: turn.log.project, statements });
      if (!recorded.ok) return postpone(this.#later(turn, recorded.fault));
      recorded.value.indexes.forEach((index, at) => ((missing[at] as Judged).statedAt = index));
    }
    const log = await reader.logById(turn.log.id);
    const last = Math.max(...todo.map(({ statedAt }) => statedAt as number));
    const checkpoint = log && (await this.#published(publisher, log, last));
    if (log === undefined || checkpoint === undefined) return postpone(A_MOMENT_MS);
    const identity = { origin: log.origin, vkey: formatVkey(log.origin, log.publicKey), x5c: log.x5c };
    const head = {
      size: checkpoint.size,
      checkpoint: checkpoint.note,
      time: checkpoint.published.toISOString(),
    };
    const outcomes: SessionOutcome[] = [];
    const postponed: { session: string; ms: number }[] = [];
    const held: { session: string; held: SessionHeld }[] = [];
    const queue = [...todo];
    const issuing = Array.from({ length: Math.min(ISSUED_AT_ONCE, queue.length) }, async () => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        const { row, facts, last, due } = next;
        const { session } = row;
        const supersedes = last && `sha256:${last.digest.toString('hex')}`;
        const entry = { index: next.statedAt as number, statement: facts.statementDigest };
        const payload = this.#payload(() => sessionReceiptPayload(facts, identity, head, entry, supersedes));
        if ('why' in payload) {
          held.push({ session, held: payload });
          continue;
        }
        const issued = await collector.issue({ project: turn.log.project, payload });
        if (issued.ok) {
          const receipt = { id: issued.value.id, digest: Buffer.from(issued.value.digest, 'hex') };
          outcomes.push({
            ...this.#outcome(turn, lane, webhooks, row, facts, receipt, due, supersedes),
            stated: { index: entry.index, digest: entry.statement.slice('sha256:'.length) },
          });
        } else postponed.push({ session, ms: this.#later(turn, issued.fault) });
      }
    });
    // What was issued is written down, whatever became of the others.
    const failed = (await Promise.allSettled(issuing)).find(({ status }) => status === 'rejected');
    const now = this.#parts.now();
    if (outcomes.length > 0) await turn.settle(lane.fence, outcomes, new Date(now));
    for (const { session, ms } of postponed) await turn.postpone(lane.fence, [session], new Date(now + ms));
    for (const one of held) await this.#hold(turn, lane, one.session, one.held);
    if (failed?.status === 'rejected') throw failed.reason;
    return [...postponed, ...held].map(({ session }) => session);
  }

  /** The payload, or why there can't be one. */
  #payload(make: () => Buffer): Buffer | SessionHeld {
    try {
      const payload = make();
      if (payload.length <= MAX_PAYLOAD_BYTES) return payload;
      return { why: 'receipt_too_large', bytes: payload.length, limit: MAX_PAYLOAD_BYTES };
    } catch (error) {
      if (!(error instanceof ReceiptError)) throw error;
      this.#parts.log.error({ err: error }, 'a receipt could not be made');
      return { why: 'failed' };
    }
  }

  /** A statement that was recorded before a crash and says the same is taken instead of another one. */
  async #found(turn: AccountTurn, lane: Lane, judged: Judged): Promise<Judged> {
    const { row, facts, last } = judged;
    const { statedIndex, statedDigest } = row;
    if (statedIndex === null || statedDigest === null) return judged;
    if (last !== undefined && statedIndex < last.index) return judged;
    const stored = await turn.statement(statedDigest);
    if (stored === undefined) return judged;
    const statement = parseStatement(stored.bytes);
    if (statement.type !== 'session') return judged;
    const { size } = statement.asOf;
    const isOld =
      row.lastIndex >= size ||
      lane.standing.labels(row.session, size).length !== lane.standing.labels(row.session, lane.size).length;
    const again = { ...facts.statement, asOf: statement.asOf };
    if (isOld || !formatStatement(again).equals(stored.bytes)) return judged;
    return {
      ...judged,
      statedAt: stored.index,
      facts: {
        ...facts,
        statement: again,
        statementBytes: stored.bytes,
        statementDigest: `sha256:${statedDigest.toString('hex')}`,
      },
    };
  }

  /** A published head that has the entry at `index`. */
  async #published(
    publisher: Pick<Publisher, 'publish'>,
    log: LogRow,
    index: number,
  ): Promise<CheckpointRow | undefined> {
    const before = await this.#parts.reader.latestCheckpoint(log);
    if (before !== undefined && before.size > index) return before;
    await publisher.publish(log);
    const after = await this.#parts.reader.latestCheckpoint(log);
    return after !== undefined && after.size > index ? after : undefined;
  }

  #outcome(
    turn: AccountTurn,
    lane: Lane,
    webhooks: readonly Subscription[],
    row: AccountSession,
    facts: SessionFacts,
    receipt: { readonly id: string; readonly digest: Buffer } | undefined,
    due: Date | null,
    supersedes?: string,
  ): SessionOutcome {
    const { statement, judgement, verdicts, calls, levels } = facts;
    const { PASS, WARN, FAIL, UNVERIFIED } = verdicts;
    const disposition = judgement.disposition.status;
    const isNew = receipt !== undefined && receipt.id !== row.receipt;
    return {
      session: row.session,
      coverage: statement.status,
      disposition,
      closed: statement.closed,
      summary: { calls, verdicts: { PASS, WARN, FAIL, UNVERIFIED }, kinds: statement.kinds, levels },
      receipt: receipt?.id,
      due,
      beside: lane.beside(row.session),
      deliveries: isNew ? this.#deliveries(turn, webhooks, row, disposition, receipt, supersedes) : [],
    };
  }

  #deliveries(
    turn: AccountTurn,
    webhooks: readonly Subscription[],
    row: AccountSession,
    disposition: string,
    { id, digest }: { readonly id: string; readonly digest: Buffer },
    supersedes: string | undefined,
  ): NewDelivery[] {
    if (disposition === 'open') return [];
    const turned = disposition === row.disposition && row.receipt !== null ? [] : [`session.${disposition}`];
    const timestamp = new Date(this.#parts.now()).toISOString();
    return webhooks.flatMap(({ id: webhook, events }) =>
      ['session.settled', ...turned]
        .filter((event) => events.includes(event))
        .map((event) => ({
          // Told again after a crash, it is the same message.
          id: `msg_${createHash('sha256').update(`${webhook} ${event} ${id}`).digest('hex').slice(0, 32)}`,
          webhook,
          event,
          body: canonical({
            type: event,
            timestamp,
            data: {
              project: turn.log.project,
              session: row.session,
              disposition,
              receipt: { id, digest: `sha256:${digest.toString('hex')}` },
              ...(supersedes === undefined ? {} : { supersedes }),
            },
          }),
        })),
    );
  }

  /** How long to wait after a fault, in milliseconds. */
  #later(turn: AccountTurn, fault: CollectorFault | StaleFault): number {
    const { kind, code, message } = fault;
    const passes = kind === 'retry' || kind === 'not_yet' || code === 'stale';
    this.#parts.log[passes ? 'info' : 'error'](
      { origin: turn.log.origin, code, reason: message },
      'the collector did not take a statement or a receipt',
    );
    if (!passes) return A_WHILE_MS;
    return 'retryAfter' in fault ? Math.max(A_MOMENT_MS, (fault.retryAfter ?? 1) * 1_000) : 0;
  }
}

const asOfNow = (lane: Lane, now: Date): AsOf => ({ size: lane.size, time: now.toISOString() });

/** Milliseconds that a session is left alone for when it has had so many receipts of late. */
function restAfter(receipts: number): number {
  return receipts > FREE_RECEIPTS
    ? Math.min(1_000 * 2 ** (receipts - FREE_RECEIPTS - 1), LONGEST_REST_MS)
    : 0;
}

/** Whether a full look can come to something that no receipt says yet. */
function mayHaveChanged(row: AccountSession, statement: SessionStatement): boolean {
  if (row.heard || row.receipt !== null || statement.closed) return true;
  // Of a session no sink of which was declared nothing can be said.
  return statement.status !== 'open' && statement.members.length > 0;
}

function coverageOnly(
  lane: Lane,
  row: AccountSession,
  statement: SessionStatement,
  due: Date | null,
): SessionOutcome {
  const { status: coverage, closed } = statement;
  return { session: row.session, coverage, closed, due, beside: lane.beside(row.session), deliveries: [] };
}

const later = (due: Date | null, now: Date, pause: number): Date | null =>
  due === null ? null : new Date(Math.max(due.getTime(), now.getTime() + pause));

/** When time alone may make a session come to something else. */
function dueOf(lane: Lane, statement: SessionStatement, asOf: AsOf, now: Date): Date | null {
  const { coverage } = lane;
  const { policy } = coverage.policyAt(coverage.beganAt(statement.session));
  const times: number[] = [];
  for (const { sink, required, closed, epochs } of statement.members) {
    for (const { epoch, status } of epochs) {
      // Of one that is whole time says nothing; another may go on though the session was closed after it.
      if (closed && status === 'complete') continue;
      const at = overdueAt(coverage.epochStatement(sink, epoch, asOf, policy), now);
      if (at !== undefined) times.push(at.getTime());
    }
    if (epochs.length === 0 && required && statement.began !== undefined) {
      times.push(Date.parse(statement.began.received) + policy.lateness * 1_000 + 1);
    }
  }
  // A run beside it that goes on keeps it from nothing until it should have ended.
  for (const { sink, epoch } of coverage.besideOf(statement.session).epochs) {
    const { ending, last, limits } = coverage.epochStatement(sink, epoch, asOf, policy);
    if (ending !== undefined || last === undefined) continue;
    times.push(Date.parse(last.received) + limits.closeTimeout * 1_000 + 1);
  }
  const next = times.filter((time) => time > now.getTime());
  return next.length === 0 ? null : new Date(Math.min(...next));
}

/** Whether the last receipt says all that these facts come to, whenever it was that it was made. */
function isSame(facts: SessionFacts, last: ReceiptRow, { log }: AccountTurn): boolean {
  const identity = { origin: log.origin, vkey: formatVkey(log.origin, log.publicKey), x5c: log.x5c };
  const head = { size: 0, checkpoint: '', time: facts.statement.asOf.time };
  const entry = { index: 0, statement: facts.statementDigest };
  const now = sessionReceiptPayload(facts, identity, head, entry);
  return timeless(now) === timeless(parseDsse(Buffer.from(last.bytes)).payload);
}

/** The statement that a receipt was made from. */
function statedBy(last: ReceiptRow): SessionOutcome['stated'] {
  const { predicate } = JSON.parse(parseDsse(Buffer.from(last.bytes)).payload.toString('utf8')) as {
    predicate: { coverage: { index: number; statement: string } };
  };
  const { index, statement } = predicate.coverage;
  return { index, digest: statement.slice('sha256:'.length) };
}

function timeless(payload: Buffer): string {
  const { subject, predicate } = JSON.parse(payload.toString('utf8')) as {
    subject: unknown;
    predicate: Record<string, unknown> & {
      coverage: Record<string, unknown> & { members: { epochs: Record<string, unknown>[] }[] };
    };
  };
  const { asOf: _asOf, supersedes: _supersedes, coverage, ...rest } = predicate;
  const { index: _index, statement: _statement, size: _size, time: _time, members, ...covered } = coverage;
  // Of a session that goes on, every line of its epoch moves the end: nothing comes to something else by that.
  const ends = members.map(({ epochs, ...member }) => ({
    ...member,
    epochs: epochs.map(({ to: _to, ...epoch }) => epoch),
  }));
  return canonical({ subject, coverage: covered, members: ends, ...rest });
}

function recordOf(statement: SessionStatement | EpochStatement, bytes: Buffer): StatementRecord {
  const { asOf, status, policy } = statement;
  const about =
    statement.type === 'session'
      ? { type: statement.type, session: statement.session }
      : { type: statement.type, sink: statement.sink, epoch: statement.epoch };
  const body: CoverageStated = {
    kind: 'coverage.stated',
    v: 1,
    statement: `sha256:${createHash('sha256').update(bytes).digest('hex')}`,
    size: asOf.size,
    time: asOf.time,
    status,
    policy,
    ...about,
  };
  return { body, bytes };
}

/** Statements in as many requests as they need. */
function* parts(statements: readonly StatementRecord[]): Generator<StatementRecord[]> {
  let part: StatementRecord[] = [];
  let bytes = 0;
  for (const one of statements) {
    if (part.length > 0 && bytes + one.bytes.length > ENOUGH_BYTES) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(one);
    bytes += one.bytes.length;
  }
  if (part.length > 0) yield part;
}
