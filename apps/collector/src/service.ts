import { createHash, randomBytes } from 'node:crypto';
import {
  type Ack,
  type AppendRequest,
  type Change,
  type ChangeReply,
  type CheckpointReply,
  type CollectorApi,
  type CollectorFault,
  newIdentifier,
  type Outcome,
  type ReceiptReply,
  type ReceiptScope,
} from '@belay/contracts';
import { DEFAULT_POLICY } from '@belay/coverage';
import {
  type Anchor,
  entryMakerOf,
  type LogRecord,
  type LogStore,
  scopeText,
  Sequencer,
  type SequencerEvent,
  type SequencerLimits,
  type StoredCheckpoint,
  StoreRefusal,
  type StoredReceipt,
} from '@belay/log';
import { formatVkey } from '@belay/note';
import { buildReceipt, MAX_RECEIPT_ENTRIES, scopeRange } from '@belay/receipt';
import { Examiner } from './examiner.js';
import { Issuing } from './issuing.js';
import type { Keyring } from './keyring.js';

export interface CollectorParts {
  readonly store: LogStore;
  readonly anchor: Anchor;
  readonly keys: Keyring;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** What every origin of this deployment begins with; origins are fixed when a project is created. */
  readonly originPrefix: string;
  readonly limits?: Partial<SequencerLimits>;
  readonly report?: (event: SequencerEvent) => void;
}

interface ReceiptRequest {
  readonly project: string;
  readonly scope: ReceiptScope;
  readonly asOf?: number;
}

/** All that gateway and worker can ask of the process that writes and signs. */
export class CollectorService implements CollectorApi {
  readonly #parts: CollectorParts;
  readonly #sequencer: Sequencer;
  readonly #examiner = new Examiner();
  readonly #issuing: Issuing;
  /** Receipts being made: two that ask for the same one get the same one. */
  readonly #receipts = new Map<string, Promise<Outcome<ReceiptReply>>>();

  constructor(parts: CollectorParts) {
    this.#parts = parts;
    this.#sequencer = new Sequencer({
      ...parts,
      newLogId: () => newIdentifier('log', parts.now(), randomBytes(10)),
    });
    this.#issuing = new Issuing({
      store: parts.store,
      sequencer: this.#sequencer,
      examiner: this.#examiner,
      signer: (origin, publicKey) => parts.keys.receiptSigner(origin, publicKey),
      now: parts.now,
    });
  }

  /** PEM of the root certificate that this deployment's chains lead to. */
  get rootPem(): string {
    return this.#parts.keys.rootPem;
  }

  /** Throws LogBehindAnchor when the database lacks what was signed, WrongLogKey when the keys are others. */
  start(): Promise<void> {
    return this.#sequencer.start();
  }

  /** Why appends can't be answered at present; null when they can. */
  trouble(): string | null {
    return this.#sequencer.trouble();
  }

  /** Logs that must not be written until a person has looked at them. */
  halted(): Promise<{ readonly origin: string; readonly reason: string }[]> {
    return this.#sequencer.halted();
  }

  async close(): Promise<void> {
    await this.#sequencer.close();
    await this.#examiner.close();
  }

  append(request: AppendRequest): Promise<Outcome<Ack>> {
    return this.#sequencer.append(request);
  }

  async change(change: Change): Promise<Outcome<ChangeReply>> {
    if (change.kind === 'project.create') {
      return this.#sequencer.createProject(change, { ...DEFAULT_POLICY, public: change.public });
    }
    if (change.kind !== 'tenant.create') return this.#sequencer.change(change);
    try {
      const { tenant, name, admin, secretHash } = change;
      await this.#parts.store.createTenant({ id: tenant, name, admin, secretHash });
      return { ok: true, value: { index: null, size: null } };
    } catch (error) {
      if (error instanceof StoreRefusal)
        return refuse({ kind: 'refused', code: error.code, message: error.message });
      return unavailable(error);
    }
  }

  checkpoint(log: string): Promise<Outcome<CheckpointReply>> {
    return this.#sequencer.checkpoint(log);
  }

  record: CollectorApi['record'] = (request) => this.#issuing.record(request);

  issue: CollectorApi['issue'] = (request) => this.#issuing.issue(request);

  signExport: CollectorApi['signExport'] = (request) => this.#issuing.signExport(request);

  /** Event and range receipts are built here, from the database: what is signed is never handed in. */
  async receipt(request: ReceiptRequest): Promise<Outcome<ReceiptReply>> {
    return this.#once(`${request.project} ${scopeText(request.scope)} ${request.asOf ?? 'latest'}`, () =>
      this.#makeReceipt(request),
    );
  }

  #once(key: string, make: () => Promise<Outcome<ReceiptReply>>): Promise<Outcome<ReceiptReply>> {
    const running = this.#receipts.get(key);
    if (running) return running;
    const making = make().catch((error: unknown) => unavailable<ReceiptReply>(error));
    this.#receipts.set(key, making);
    void making.then(() => this.#receipts.delete(key));
    return making;
  }

  async #makeReceipt({ project, scope, asOf }: ReceiptRequest): Promise<Outcome<ReceiptReply>> {
    const { store } = this.#parts;
    const log = await store.find({ project });
    if (!log) return refuse({ kind: 'refused', code: 'not_found', message: 'no such project' });
    const { first, count } = scopeRange(scope);
    const wrong = wrongScope(first, count);
    if (wrong) return refuse(wrong);
    const text = scopeText(scope);
    const known = await store.receipt(log, text, asOf);
    if (known) return { ok: true, value: toReply(known) };
    const head = await store.head(log);
    if (first + count > head.size) {
      const message = `the log has ${head.size} entries, 0 to ${head.size - 1}`;
      return refuse({ kind: 'refused', code: 'not_found', message, field: scope.type });
    }
    const checkpoint = await store.checkpoint(log, asOf);
    if (asOf !== undefined && checkpoint?.size !== asOf) {
      const message = `no checkpoint of size ${asOf} was published`;
      return refuse({ kind: 'refused', code: 'not_found', message, field: 'as_of' });
    }
    if (!checkpoint || checkpoint.size < first + count) {
      const message = `published up to ${checkpoint?.size ?? 0}; entry ${first + count - 1} comes with the next checkpoint`;
      if (asOf !== undefined) return refuse({ kind: 'refused', code: 'invalid', message, field: 'as_of' });
      return refuse({ kind: 'not_yet', code: 'not_published', message, retryAfter: 1 });
    }
    // As of the last size and as of that size by name are one receipt.
    return this.#once(`${project} ${text} at ${checkpoint.size}`, () => this.#build(log, scope, checkpoint));
  }

  async #build(
    log: LogRecord,
    scope: ReceiptScope,
    checkpoint: StoredCheckpoint,
  ): Promise<Outcome<ReceiptReply>> {
    const { store } = this.#parts;
    const { first, count } = scopeRange(scope);
    const text = scopeText(scope);
    // Another request may have made it between this one's look and its turn.
    const known = await store.receipt(log, text, checkpoint.size);
    if (known) return { ok: true, value: toReply(known) };
    const tree = await this.#sequencer.treeOf(log, checkpoint.size);
    if (!tree.root.equals(checkpoint.root)) {
      return refuse({
        kind: 'halted',
        code: 'log_halted',
        message: `the entries do not lead to the checkpoint of size ${checkpoint.size}; run belay log fsck`,
      });
    }
    const config = await store.config(log);
    const bytes = buildReceipt(
      {
        scope,
        log: { origin: log.origin, vkey: formatVkey(log.origin, log.publicKey), x5c: log.x5c },
        asOf: {
          size: checkpoint.size,
          checkpoint: checkpoint.note,
          time: new Date(checkpoint.published).toISOString(),
        },
        proof: await tree.around(first, first + count, (level, n) => store.tile(log, level, n)),
        entries: await this.#entries(log, first, count),
        tokens: [...config.tokens.values()].map((token) => ({
          token: token.id,
          issuedBy: token.issuedBy,
          index: token.issuedIndex,
        })),
        domainOf: (sink, token) =>
          config.sinks.get(sink)?.domain ?? config.tokens.get(token)?.domain ?? undefined,
      },
      this.#parts.keys.receiptSigner(log.origin, log.publicKey),
    );
    const digest = createHash('sha256').update(bytes).digest();
    const receipt: Omit<StoredReceipt, 'index'> = {
      id: newIdentifier('rcp', this.#parts.now(), randomBytes(10)),
      scope: text,
      asOf: checkpoint.size,
      digest,
      bytes: bytes.toString('utf8'),
      created: this.#parts.now(),
      disposition: null,
    };
    const recorded = await this.#sequencer.recordReceipt(log.project, receipt, {
      kind: 'receipt.issued',
      v: 1,
      receipt: `sha256:${digest.toString('hex')}`,
      scope,
      asOf: checkpoint.size,
    });
    if (recorded.ok) return { ok: true, value: toReply(receipt) };
    // Another collector may have stored the same receipt in the meantime.
    const other = await store.receipt(log, text, checkpoint.size);
    return other ? { ok: true, value: toReply(other) } : (recorded as Outcome<never>);
  }

  async #entries(log: LogRecord, first: number, count: number): Promise<Buffer[]> {
    const { store } = this.#parts;
    const names = new Map(
      [...(await store.config(log)).sinks.values()].map((sink) => [sink.sink, sink.name]),
    );
    const entries: Buffer[] = [];
    const lines = await store.lines(log, first, first + count);
    for (const run of await store.runs(log, first, first + count)) {
      const maker = entryMakerOf(log.origin, run, names.get(run.sink));
      for (; entries.length < lines.length;) {
        const { index, line } = lines[entries.length] as { index: number; line: Buffer };
        if (index >= run.first + run.count) break;
        entries.push(maker.entry(index, line, run.conflict ?? undefined));
      }
    }
    return entries;
  }
}

function wrongScope(first: number, count: number): CollectorFault | null {
  if (!Number.isSafeInteger(first) || first < 0) {
    return { kind: 'refused', code: 'invalid', message: 'an index is an integer from 0', field: 'first' };
  }
  if (!Number.isSafeInteger(count) || count < 1 || count > MAX_RECEIPT_ENTRIES) {
    const message = `a receipt is for 1 to ${MAX_RECEIPT_ENTRIES} entries`;
    return { kind: 'refused', code: 'invalid', message, field: 'range' };
  }
  return null;
}

function toReply(receipt: Omit<StoredReceipt, 'index'>): ReceiptReply {
  return { id: receipt.id, asOf: receipt.asOf, digest: receipt.digest.toString('hex'), bytes: receipt.bytes };
}

function refuse<T>(fault: CollectorFault): Outcome<T> {
  return { ok: false, fault };
}

function unavailable<T>(error: unknown): Outcome<T> {
  const detail = error instanceof Error ? error.message : String(error);
  return refuse({ kind: 'retry', code: 'unavailable', message: detail, retryAfter: 1 });
}
