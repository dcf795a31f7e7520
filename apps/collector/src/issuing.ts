import { createHash, randomBytes } from 'node:crypto';
import {
  type CollectorApi,
  type CollectorFault,
  type ExportReply,
  type IssueReply,
  newIdentifier,
  type Outcome,
  type RecordReply,
  type StaleFault,
} from '@belay/contracts';
import {
  MAX_PAYLOAD_BYTES,
  MAX_RECORD_BYTES,
  MAX_RECORD_STATEMENTS,
  type PayloadRequest,
  type RecordRequest,
} from '@belay/contracts/rpc';
import { policyDigest, readPolicy } from '@belay/coverage';
import { type CollectorBody, type CoverageStated, parseCollectorBody } from '@belay/envelope';
import {
  type LogRecord,
  type LogStore,
  scopeText,
  type Sequencer,
  type StoredCheckpoint,
  type StoredReceipt,
} from '@belay/log';
import { formatVkey, type NoteSigner } from '@belay/note';
import { type LogIdentity, type PublishedHead, signPayload } from '@belay/receipt';
import { type ClaimFacts, type StatementFacts, Unfit } from './examine.js';
import type { Examiner } from './examiner.js';

export interface IssuingParts {
  readonly store: LogStore;
  readonly sequencer: Sequencer;
  readonly examiner: Examiner;
  /** Signs as the log's origin. */
  readonly signer: (origin: string, publicKey: Buffer) => NoteSigner;
  readonly now: () => number;
}

type Issued = Awaited<ReturnType<CollectorApi['issue']>>;

/** How far the clocks of who makes statements and of the collector may be apart, milliseconds. */
const CLOCK_TOLERANCE = 5 * 60 * 1_000;

/** Why something is not recorded or signed. */
class Refused extends Error {
  readonly fault: CollectorFault | StaleFault;
  constructor(fault: CollectorFault | StaleFault) {
    super(fault.message);
    this.fault = fault;
  }
}

/**
 * What the worker made and the collector records or signs: coverage statements, receipts of sessions and periods,
 * manifests of exports. Nothing of them is derived here, where every moment is one that appends wait. What is checked is
 * their form, what follows from their own members, and whatever the log or the database says without reading a session
 * again; SECURITY.md has what is left to a worker that lies.
 */
export class Issuing {
  readonly #parts: IssuingParts;
  /** Receipts being signed: two requests for one scope and size come to one receipt. */
  readonly #running = new Map<string, Promise<Issued>>();

  constructor(parts: IssuingParts) {
    this.#parts = parts;
  }

  record({ project, statements }: RecordRequest): Promise<Outcome<RecordReply>> {
    return answering(async () => {
      const log = await this.#find(project);
      const size = statements.reduce((sum, { bytes }) => sum + bytes.length, 0);
      if (statements.length > MAX_RECORD_STATEMENTS || size > MAX_RECORD_BYTES) {
        const most = `at most ${MAX_RECORD_STATEMENTS} statements of ${MAX_RECORD_BYTES} bytes together`;
        throw invalid(`a request records ${most}`, 'statements');
      }
      const asked = statements.map(({ body, bytes }) => ({ body, bytes, digest: digestOf(body.statement) }));
      // What is stored was looked at when it was recorded. Whoever gave up waiting for a large one and asks again must not
      // wait as long again.
      const known = await this.#parts.store.statements(
        log,
        asked.map(({ digest }) => digest),
      );
      const fresh = asked.filter(({ digest }) => !known.has(digest.toString('hex')));
      const facts = await this.#parts.examiner.examine({
        kind: 'statements',
        bytes: fresh.map(({ bytes }) => bytes),
      });
      const now = this.#parts.now();
      fresh.forEach(({ body }, at) => {
        // What is overdue follows from the time: who makes a statement does not choose it.
        if (Math.abs(Date.parse(body.time) - now) > CLOCK_TOLERANCE) {
          throw invalid(`${body.statement}: ${body.time} is not within five minutes of now`, 'time');
        }
        const field = difference(log, body, facts[at] as StatementFacts);
        if (field !== undefined) {
          throw invalid(`${body.statement}: its ${field} is not what is to be recorded`, field);
        }
      });
      return this.#parts.sequencer.record(project, asked);
    }) as Promise<Outcome<RecordReply>>;
  }

  issue({ project, payload }: PayloadRequest): Promise<Issued> {
    return answering<IssueReply>(async () => {
      const log = await this.#find(project);
      bounded(payload);
      const size = await this.#parts.examiner.examine({ kind: 'size', payload });
      const head = await this.#published(log, size);
      const claim = await this.#parts.examiner.examine({
        kind: 'claim',
        payload,
        log: identity(log),
        head: publishedHead(head),
      });
      const key = `${project} ${scopeText(claim.scope)} ${size}`;
      const running = this.#running.get(key);
      if (running) return running;
      const issuing = this.#issue(log, claim, size, payload).finally(() => this.#running.delete(key));
      this.#running.set(key, issuing);
      return issuing;
    });
  }

  signExport({ project, payload }: PayloadRequest): Promise<Outcome<ExportReply>> {
    return answering<ExportReply>(async () => {
      const log = await this.#find(project);
      bounded(payload);
      const stated = await this.#parts.examiner.examine({ kind: 'manifest', payload });
      const { origin, vkey, x5c } = identity(log);
      const chain = stated.log.x5c;
      if (
        stated.log.origin !== origin ||
        stated.log.vkey !== vkey ||
        chain.length !== x5c.length ||
        !x5c.every((der, at) => der.equals(chain[at] as Uint8Array))
      ) {
        throw invalid('the manifest is of another log', 'log');
      }
      if (stated.project.id !== project) throw invalid('the manifest is of another project', 'project');
      const head = publishedHead(await this.#published(log, stated.asOf.size));
      if (stated.asOf.checkpoint !== head.checkpoint || stated.asOf.time !== head.time) {
        throw invalid(`not the checkpoint of size ${head.size} that was published`, 'asOf');
      }
      const bytes = signPayload(payload, this.#parts.signer(log.origin, log.publicKey));
      return { ok: true, value: { bytes: bytes.toString('utf8') } };
    }) as Promise<Outcome<ExportReply>>;
  }

  async #issue(log: LogRecord, claim: ClaimFacts, asOf: number, payload: Buffer): Promise<Issued> {
    const { store, sequencer } = this.#parts;
    const scope = scopeText(claim.scope);
    const known = await store.receipt(log, scope, asOf);
    if (known) return { ok: true, value: toReply(known) };
    await this.#compare(log, claim, asOf);
    const bytes = signPayload(payload, this.#parts.signer(log.origin, log.publicKey));
    const digest = createHash('sha256').update(bytes).digest();
    const receipt: Omit<StoredReceipt, 'index'> = {
      id: newIdentifier('rcp', this.#parts.now(), randomBytes(10)),
      scope,
      asOf,
      digest,
      bytes: bytes.toString('utf8'),
      created: this.#parts.now(),
      disposition: claim.type === 'session' ? claim.disposition : null,
    };
    const recorded = await sequencer.recordReceipt(log.project, receipt, {
      kind: 'receipt.issued',
      v: 1,
      receipt: `sha256:${digest.toString('hex')}`,
      scope: claim.scope,
      asOf,
      ...(claim.supersedes === undefined ? {} : { supersedes: claim.supersedes }),
    });
    if (recorded.ok) {
      return { ok: true, value: toReply({ ...receipt, index: recorded.value.index as number }) };
    }
    // Another collector may have stored one in the meantime, or this one did and was told that it failed.
    const stored = await store.receipt(log, scope, asOf);
    return stored ? { ok: true, value: toReply(stored) } : recorded;
  }

  /** Everything that a receipt says and the log shows without reading a session. */
  async #compare(log: LogRecord, claim: ClaimFacts, asOf: number): Promise<void> {
    const { coverage } = claim;
    if (coverage.size > asOf) throw invalid('looked at more entries than the checkpoint has', 'coverage');
    if (claim.type === 'period') return;
    const { index, statement, size, time, status } = claim.coverage;
    const { policy, issuers } = claim;
    if (index >= asOf) throw invalid(`entry ${index} is not in the checkpoint of size ${asOf}`, 'coverage');
    const stated = await this.#statement(log, index);
    if (
      stated?.kind !== 'coverage.stated' ||
      stated.type !== 'session' ||
      stated.session !== claim.scope.session ||
      stated.statement !== statement ||
      stated.size !== size ||
      stated.time !== time ||
      stated.status !== status ||
      stated.policy !== policy.digest
    ) {
      throw invalid(`entry ${index} does not state this coverage of the session`, 'coverage');
    }
    const set = await this.#statement(log, policy.index);
    if (set?.kind !== 'policy.set' && set?.kind !== 'log.genesis') {
      throw invalid(`entry ${policy.index} sets no policy`, 'policy');
    }
    const digest = typeof set.policy === 'string' ? set.policy : policyDigest(readPolicy(set.policy));
    if (digest !== policy.digest) throw invalid(`entry ${policy.index} sets another policy`, 'policy');
    const { tokens } = await this.#parts.store.config(log);
    for (const issuer of issuers) {
      const token = tokens.get(issuer.token);
      if (
        token === undefined ||
        token.role !== issuer.role ||
        token.issuedBy !== issuer.issuedBy ||
        token.issuedIndex !== issuer.index
      ) {
        throw invalid(`${issuer.token} was not issued as it says`, 'issuers');
      }
    }
  }

  /** What the collector itself wrote at an index; undefined for another's line, and where there is none. */
  async #statement(log: LogRecord, index: number): Promise<CollectorBody | undefined> {
    const { store } = this.#parts;
    const [run] = await store.runs(log, index, index + 1);
    const [entry] = await store.lines(log, index, index + 1);
    return run?.role === 'collector' && entry ? parseCollectorBody(entry.line) : undefined;
  }

  async #find(project: string): Promise<LogRecord> {
    const log = await this.#parts.store.find({ project });
    if (log) return log;
    throw new Refused({ kind: 'refused', code: 'not_found', message: 'no such project' });
  }

  async #published(log: LogRecord, size: number): Promise<StoredCheckpoint> {
    const checkpoint = await this.#parts.store.checkpoint(log, size);
    if (checkpoint?.size === size) return checkpoint;
    throw new Refused({
      kind: 'refused',
      code: 'not_found',
      message: `no checkpoint of size ${size} was published`,
      field: 'asOf',
    });
  }
}

/** The member in which a statement differs from what is to be recorded of it. */
function difference(log: LogRecord, body: CoverageStated, facts: StatementFacts): string | undefined {
  if (facts.log !== log.origin) return 'log';
  if (facts.digest !== body.statement) return 'statement';
  if (facts.asOf.size !== body.size) return 'size';
  if (facts.asOf.time !== body.time) return 'time';
  if (facts.status !== body.status) return 'status';
  if (facts.policy !== body.policy) return 'policy';
  if (facts.type !== body.type) return 'type';
  if (body.type === 'session') {
    return facts.type === 'session' && facts.session === body.session ? undefined : 'session';
  }
  if (facts.type !== 'epoch' || facts.sink !== body.sink) return 'sink';
  return facts.epoch === body.epoch ? undefined : 'epoch';
}

async function answering<T>(
  work: () => Promise<Outcome<T, CollectorFault | StaleFault>>,
): Promise<Outcome<T, CollectorFault | StaleFault>> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Refused) return { ok: false, fault: error.fault };
    if (error instanceof Unfit) {
      return { ok: false, fault: { kind: 'refused', code: 'invalid', message: error.message } };
    }
    const message = error instanceof Error ? error.message : String(error);
    return { ok: false, fault: { kind: 'retry', code: 'unavailable', message, retryAfter: 1 } };
  }
}

function bounded(payload: Buffer): void {
  if (payload.length > MAX_PAYLOAD_BYTES) {
    throw invalid(`what is signed has at most ${MAX_PAYLOAD_BYTES} bytes`, 'payload');
  }
}

function identity({ origin, publicKey, x5c }: LogRecord): LogIdentity {
  return { origin, vkey: formatVkey(origin, publicKey), x5c };
}

function publishedHead({ size, note, published }: StoredCheckpoint): PublishedHead {
  return { size, checkpoint: note, time: new Date(published).toISOString() };
}

function invalid(message: string, field: string): Refused {
  return new Refused({ kind: 'refused', code: 'invalid', message, field });
}

function digestOf(text: string): Buffer {
  return Buffer.from(text.slice('sha256:'.length), 'hex');
}

function toReply({ id, asOf, digest, bytes, index }: StoredReceipt): IssueReply {
  return { id, asOf, digest: digest.toString('hex'), bytes, index };
}
