import { createHash } from 'node:crypto';
import {
  type AsOf,
  formatStatement,
  type LogCoverage,
  type ProjectPolicy,
  type SentEntry,
  type SessionStatement,
} from '@belay/coverage';
import { type Entry, type Envelope, parseEntry, type SenderRole } from '@belay/envelope';
import { leafHash } from '@belay/merkle';
import {
  CALL_AUTHORITY_LEVELS,
  type CallAuthorityLevel,
  type Replay,
  type SessionEvidence,
  verifierFault,
} from './call-authority.js';
import { type Judgement, judgeSessionSteps } from './session-disposition.js';
import type { Standing } from './standing.js';

/** Verdict lines by status, and causes by name. */
export interface VerdictCounts {
  readonly PASS: number;
  readonly WARN: number;
  readonly FAIL: number;
  readonly UNVERIFIED: number;
  readonly causes: Readonly<Record<string, number>>;
}

/** Who was given the token that lines of a session were sent with. */
export interface SessionIssuer {
  readonly token: string;
  readonly role: SenderRole;
  readonly domain?: string | undefined;
  /** Identifier of the admin key, and the entry that says so. */
  readonly issuedBy: string;
  readonly index: number;
}

/** How the verifiers that ran calls again stand to who recorded them: counts of verdicts that hold. */
export type RecorderCounts = Readonly<Record<Replay['recorder'], number>>;

/** The entries that a session is judged by. */
export interface SessionEntries {
  /** Of the senders' entries that name the session and are below the size asked about: ascending. */
  readonly indexes: Iterable<number>;
  /** Bytes of an entry: any of these, and what they cite. Undefined for one that is not at hand. */
  readonly at: (index: number) => Buffer | undefined;
  /** The same entry read already, for whoever has just read it. */
  readonly parsed?: ((index: number) => Entry | undefined) | undefined;
}

/** All that a receipt of a session states, but for the log and the checkpoint it stands on. */
export interface SessionFacts {
  readonly session: string;
  readonly statement: SessionStatement;
  /** JCS of the statement, and its SHA-256 as `sha256:<hex>`. */
  readonly statementBytes: Buffer;
  readonly statementDigest: string;
  readonly judgement: Judgement;
  readonly policy: { readonly digest: string; readonly index: number; readonly document: ProjectPolicy };
  /** Calls, each of those that can't be told apart counted. */
  readonly calls: number;
  readonly levels: Readonly<Record<CallAuthorityLevel, number>>;
  readonly recorders: RecorderCounts;
  readonly verdicts: VerdictCounts;
  /** In the order of the tokens' first entries. */
  readonly issuers: readonly SessionIssuer[];
  /**
   * Number of the entries that name the session, and SHA-256 (hex) over each one's index, 64 bits big-endian, and leaf
   * hash, ascending.
   */
  readonly evidence: { readonly entries: number; readonly digest: string };
}

/**
 * What a log shows of a session, as of the entries that `coverage` has taken in: total and pure. Whoever has the entries
 * comes to the same facts, byte for byte; `asOf.time` is the only thing that is not in the log.
 */
export function deriveSession(
  coverage: LogCoverage,
  standing: Standing,
  session: string,
  asOf: AsOf,
  entries: SessionEntries,
): SessionFacts {
  const derivation = new SessionDerivation(coverage, standing, session, asOf);
  for (const index of entries.indexes) {
    const bytes = entries.at(index);
    if (bytes !== undefined) derivation.take(index, bytes, entries.parsed?.(index));
  }
  const steps = derivation.steps(entries.at, entries.parsed);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Entries between two places where `SessionDerivation.steps` may be left for a while. */
const STEP = 500;

/**
 * The same in parts, for whoever has other things to do meanwhile: the entries one by one, then the rest in steps. Until
 * it is done `coverage` and `standing` must not take in anything.
 *
 * Of the entries it keeps what judging looks at, half a kilobyte a call, and not their bytes.
 */
export class SessionDerivation {
  readonly #coverage: LogCoverage;
  readonly #standing: Standing;
  readonly #session: string;
  readonly #asOf: AsOf;
  /** Lines about calls, by index, ascending. */
  readonly #calls = new Map<number, SentEntry>();
  readonly #verdicts: SentEntry[] = [];
  readonly #issuers = new Map<string, SessionIssuer | undefined>();
  readonly #digest = createHash('sha256');
  readonly #position = Buffer.alloc(8);
  #count = 0;

  constructor(coverage: LogCoverage, standing: Standing, session: string, asOf: AsOf) {
    this.#coverage = coverage;
    this.#standing = standing;
    this.#session = session;
    this.#asOf = asOf;
  }

  /** How many entries were taken. */
  get count(): number {
    return this.#count;
  }

  /** Takes the next of the senders' entries that name the session; `entry` is the same one, read already. */
  take(index: number, bytes: Buffer, entry: Entry = parseEntry(bytes)): void {
    this.#position.writeBigUInt64BE(BigInt(index));
    this.#digest.update(this.#position).update(leafHash(bytes));
    this.#count++;
    if (entry.by !== 'sender') return;
    const { kind } = entry.envelope;
    if (kind === 'call' || kind === 'result') this.#calls.set(index, slim(entry));
    else if (kind === 'verdict') this.#verdicts.push({ ...entry, body: NOTHING });
    const token = entry.line.token as string;
    if (this.#issuers.has(token)) return;
    const issued = this.#standing.token(token);
    if (issued === undefined) {
      this.#issuers.set(token, undefined);
      return;
    }
    const { role, domain, issuedBy, index: at } = issued;
    this.#issuers.set(token, {
      token,
      role,
      ...(domain === undefined ? {} : { domain }),
      issuedBy,
      index: at,
    });
  }

  /** Indexes of what the verdicts cite, ascending: `steps` asks for the bytes of these, and of no others. */
  cited(): number[] {
    const cited = new Set(this.#verdicts.flatMap(({ envelope }) => citationsOf(envelope)));
    return [...cited].filter((index) => index < this.#asOf.size).sort((a, b) => a - b);
  }

  /** The rest of the way; to be begun once, after the last entry. */
  *steps(at: SessionEntries['at'], parsed?: SessionEntries['parsed']): Generator<void, SessionFacts, void> {
    const [coverage, standing, session, asOf] = [this.#coverage, this.#standing, this.#session, this.#asOf];
    const verdicts = this.#verdicts;
    const statement = coverage.sessionStatement(session, asOf, this.#calls.values());
    yield;
    const statementBytes = formatStatement(statement);
    yield;
    const evidence: Omit<SessionEvidence, 'members'> = {
      session,
      entryAt: this.#entriesOf(at, parsed),
      bytesAt: (index) => (index < asOf.size ? at(index) : undefined),
      standing,
      verdicts,
      labels: standing.labels(session, asOf.size),
    };
    const judgement = yield* judgeSessionSteps(statement, evidence, STEP);
    const members = new Set(statement.members.map(({ sink }) => sink));
    const policy = coverage.policyAt(coverage.beganAt(session));
    return {
      session,
      statement,
      statementBytes,
      statementDigest: `sha256:${createHash('sha256').update(statementBytes).digest('hex')}`,
      judgement,
      policy: { digest: statement.policy, index: policy.index, document: policy.policy },
      calls: judgement.calls.reduce((sum, { call }) => sum + call.identical, 0),
      levels: levelsOf(judgement),
      recorders: recordersOf(judgement),
      verdicts: countVerdicts(
        verdicts.filter(
          (verdict) => members.has(verdict.envelope.sink) && verifierFault(verdict, standing) === undefined,
        ),
      ),
      issuers: [...this.#issuers.values()].filter((issuer) => issuer !== undefined),
      evidence: { entries: this.#count, digest: this.#digest.digest('hex') },
    };
  }

  /** Lines about its calls are at hand; of the others, judging asks for the same few several times in a row. */
  #entriesOf(
    at: SessionEntries['at'],
    parsed: SessionEntries['parsed'],
  ): (index: number) => Entry | undefined {
    const { size } = this.#asOf;
    const cache = new Map<number, Entry>();
    return (index) => {
      if (index >= size) return undefined;
      const known = this.#calls.get(index) ?? cache.get(index) ?? parsed?.(index);
      if (known !== undefined) return known;
      const bytes = at(index);
      if (bytes === undefined) return undefined;
      const entry = parseEntry(bytes);
      if (cache.size >= 256) cache.clear();
      cache.set(index, entry);
      return entry;
    };
  }
}

/** Indexes of the entries that a line cites: none but for a verdict. */
export function citationsOf({ kind, attrs }: Envelope): number[] {
  if (kind !== 'verdict' || attrs === undefined) return [];
  return Object.entries(attrs).flatMap(([name, value]) =>
    name.endsWith('_index') && typeof value === 'number' ? value : [],
  );
}

const NOTHING = Buffer.alloc(0);

/** What pairing and judging look at; the rest of a line would be in memory for each of a session's calls. */
function slim({ by, line, envelope }: SentEntry): SentEntry {
  const { sink, kind, call, match, session, attrs, v, log, epoch, seq, time } = envelope;
  const tool = attrs?.['tool'];
  return {
    by,
    line,
    body: NOTHING,
    envelope: {
      v,
      log,
      sink,
      epoch,
      seq,
      kind,
      time,
      ...(session === undefined ? {} : { session }),
      ...(call === undefined ? {} : { call }),
      ...(match === undefined ? {} : { match }),
      ...(tool === undefined ? {} : { attrs: { tool } }),
    },
  };
}

function levelsOf({ calls }: Judgement): Record<CallAuthorityLevel, number> {
  const levels = Object.fromEntries(CALL_AUTHORITY_LEVELS.map((level) => [level, 0])) as Record<
    CallAuthorityLevel,
    number
  >;
  for (const { call, authority } of calls) levels[authority.level] += call.identical;
  return levels;
}

function recordersOf({ calls }: Judgement): RecorderCounts {
  const recorders = { 'same domain': 0, 'other domain': 0, unknown: 0 };
  for (const { authority } of calls) {
    for (const sayer of authority.by) if (sayer.level === 'replayed') recorders[sayer.recorder]++;
  }
  return recorders;
}

function countVerdicts(verdicts: readonly SentEntry[]): VerdictCounts {
  const counts = { PASS: 0, WARN: 0, FAIL: 0, UNVERIFIED: 0 };
  // A cause is a sender's word, `__proto__` among them.
  const causes = new Map<string, number>();
  for (const { envelope } of verdicts) {
    const { status, cause } = envelope.attrs ?? {};
    if (typeof status !== 'string' || !Object.hasOwn(counts, status)) continue;
    counts[status as keyof typeof counts]++;
    if (typeof cause === 'string') causes.set(cause, (causes.get(cause) ?? 0) + 1);
  }
  return { ...counts, causes: Object.fromEntries(causes) };
}
