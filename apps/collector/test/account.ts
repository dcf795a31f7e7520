import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Outcome, StaleFault, CollectorFault } from '@belay/contracts';
import { LogCoverage } from '@belay/coverage';
import { type CoverageStated, parseEntry, SinkTree } from '@belay/envelope';
import { entryMakerOf, type LogRecord } from '@belay/log';
import { formatVkey } from '@belay/note';
import {
  deriveSession,
  type LogIdentity,
  type PublishedHead,
  type SessionFacts,
  sessionReceiptPayload,
  Standing,
} from '@belay/receipt';
import {
  ADMIN,
  AUDITOR,
  epoch,
  MemoryAnchor,
  MemoryLogStore,
  PROJECT,
  request,
  TENANT,
  TOKEN,
} from '@belay/testkit';
import { Keyring } from '../src/keyring.js';
import { CollectorService } from '../src/service.js';

export const SESSION = 'run-1';
const CALL = `hmac-sha256:${'c'.repeat(64)}`;
const KINDS = ['epoch.open', 'session.open', 'call', 'result', 'session.close', 'epoch.close'] as const;

export function value<T>(outcome: Outcome<T, CollectorFault | StaleFault>): T {
  if (!outcome.ok) throw new Error(`${outcome.fault.code}: ${outcome.fault.message}`);
  return outcome.value;
}

/** A collector with its keys, and what a worker makes of its log: everything but NATS and PostgreSQL is real. */
export class Account {
  readonly store: MemoryLogStore;
  readonly service: CollectorService;
  readonly log: LogRecord;
  readonly #dir: string;
  readonly #clock: { now: number };
  readonly #tree = new SinkTree();
  #seq = 0;

  private constructor(
    dir: string,
    parts: { clock: { now: number }; store: MemoryLogStore; service: CollectorService; log: LogRecord },
  ) {
    this.#dir = dir;
    this.#clock = parts.clock;
    this.store = parts.store;
    this.service = parts.service;
    this.log = parts.log;
  }

  static async open(): Promise<Account> {
    const dir = mkdtempSync(join(tmpdir(), 'belay-issuing-'));
    const clock = { now: Date.UTC(2026, 0, 1) };
    const keys = await Keyring.open(dir, { now: new Date(clock.now) });
    const store = new MemoryLogStore();
    const service = new CollectorService({
      store,
      anchor: new MemoryAnchor(),
      keys,
      now: () => clock.now,
      originPrefix: 'test.local',
    });
    await store.createTenant({ id: TENANT });
    const secretHash = Buffer.alloc(32);
    value(
      await service.change({
        kind: 'project.create',
        tenant: TENANT,
        by: ADMIN,
        project: PROJECT,
        name: 'project',
        public: false,
        token: { id: TOKEN, secretHash },
        auditor: { id: AUDITOR, secretHash },
      }),
    );
    const log = (await store.find({ project: PROJECT })) as LogRecord;
    return new Account(dir, { clock, store, service, log });
  }

  async close(): Promise<void> {
    await this.service.close();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  get identity(): LogIdentity {
    const { origin, publicKey, x5c } = this.log;
    return { origin, vkey: formatVkey(origin, publicKey), x5c };
  }

  get time(): string {
    return new Date(this.#clock.now).toISOString();
  }

  /** Appends the next lines of a session that one sink saw. */
  async happen(count: number): Promise<void> {
    const lines: Buffer[] = [];
    for (; count > 0; count--) {
      const kind = KINDS[this.#seq] as (typeof KINDS)[number];
      const seq = ++this.#seq;
      const states = { ...this.#tree.stated(), dropped: 0, filtered: 0 };
      const line = Buffer.from(
        JSON.stringify({
          v: 1,
          log: this.log.origin,
          sink: 'proxy',
          epoch: epoch(1),
          seq,
          kind,
          time: '2026-01-01T00:00:00Z',
          ...(kind.startsWith('epoch') ? {} : { session: SESSION }),
          ...(kind === 'call' || kind === 'result' ? { call: CALL } : {}),
          ...(kind.endsWith('close') ? { attrs: states } : {}),
        }),
      );
      this.#tree.append(line);
      lines.push(line);
    }
    this.#clock.now += 1_000;
    value(await this.service.append(request(this.log.origin, 'proxy', epoch(1), lines)));
  }

  /** What the log shows of the session now. */
  async facts(): Promise<SessionFacts> {
    const entries = await this.entries();
    const coverage = new LogCoverage({ log: this.log.origin });
    const standing = new Standing();
    const named: number[] = [];
    entries.forEach((bytes, index) => {
      const entry = parseEntry(bytes);
      coverage.apply(entry);
      standing.apply(entry);
      if (entry.by === 'sender' && entry.envelope.session === SESSION) named.push(index);
    });
    const asOf = { size: entries.length, time: this.time };
    return deriveSession(coverage, standing, SESSION, asOf, { indexes: named, at: (at) => entries[at] });
  }

  async entries(): Promise<Buffer[]> {
    const { size } = await this.store.head(this.log);
    const lines = await this.store.lines(this.log, 0, size);
    const { sinks } = await this.store.config(this.log);
    const names = new Map([...sinks.values()].map((sink) => [sink.sink, sink.name]));
    const runs = await this.store.runs(this.log, 0, size);
    return runs.flatMap((run) => {
      const maker = entryMakerOf(this.log.origin, run, names.get(run.sink));
      return lines
        .slice(run.first, run.first + run.count)
        .map(({ index, line }) => maker.entry(index, line, run.conflict ?? undefined));
    });
  }

  /** Signs and publishes the head, as collector and worker do. */
  async publish(): Promise<PublishedHead> {
    const { size, root, note } = value(await this.service.checkpoint(this.log.id));
    this.#clock.now += 1_000;
    this.store.publish(this.log, {
      size,
      root: Buffer.from(root, 'base64'),
      note,
      published: this.#clock.now,
    });
    return { size, checkpoint: note, time: this.time };
  }

  /** Records what the log shows, publishes what else came in between, and makes what is to be signed. */
  async draft(
    supersedes?: string,
    between: () => Promise<void> = () => Promise.resolve(),
  ): Promise<{
    readonly facts: SessionFacts;
    readonly head: PublishedHead;
    readonly index: number;
    readonly payload: Buffer;
  }> {
    const facts = await this.facts();
    const recorded = value(
      await this.service.record({
        project: PROJECT,
        statements: [{ body: statedOf(facts), bytes: facts.statementBytes }],
      }),
    );
    await between();
    const head = await this.publish();
    const index = recorded.indexes[0] as number;
    const payload = sessionReceiptPayload(
      facts,
      this.identity,
      head,
      { index, statement: facts.statementDigest },
      supersedes,
    );
    return { facts, head, index, payload };
  }
}

/** The entry of a session's statement. */
export function statedOf({ statement, statementDigest }: SessionFacts): CoverageStated {
  const { session, asOf, status, policy } = statement;
  return {
    kind: 'coverage.stated',
    v: 1,
    type: 'session',
    session,
    statement: statementDigest,
    size: asOf.size,
    time: asOf.time,
    status,
    policy,
  };
}
