import { createHash, type Hash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { type Entry, parseEntry, type PeriodScope } from '@belay/envelope';
import { formatStatement } from '@belay/coverage';
import {
  deriveSession,
  parseAnyReceipt,
  parseDsse,
  type PeriodEvidence,
  periodEvidence,
  ReceiptError,
  type SessionFacts,
  sessionReceiptPayload,
} from '@belay/receipt';
import { type ArchivedFile, blocksOf } from './archive.js';
import { eventRow, EVENTS_HEADER } from './csv.js';
import { EntriesReader } from './entries-file.js';
import { EvidenceFile, type StatedAt } from './evidence-file.js';
import { Faults } from './faults.js';
import type { ExportManifest } from './manifest.js';
import type { FiledReceipt } from './receipts-file.js';
import type { Walk } from './walk.js';

interface Due extends StatedAt {
  readonly receipts: readonly FiledReceipt[];
}

type PeriodReceiptFiled = FiledReceipt & { readonly scope: PeriodScope };

/** What was seen of a period when its receipt's entries had been taken in; its sessions' receipts come later. */
export interface PeriodSeen {
  readonly receipt: FiledReceipt;
  readonly evidence: PeriodEvidence;
  /** Names of the sessions that had begun in it by then. */
  readonly sessions: readonly string[];
}
interface ReplayOptions {
  readonly signal?: AbortSignal | undefined;
  readonly progress?: ((progress: { phase: 'entries'; done: number; total: number }) => void) | undefined;
}

/**
 * Entries that are kept as they were read, without the bytes of their bodies: sessions are mostly judged soon after their
 * last line.
 */
const RECENT = 4_096;
const NOTHING = Buffer.alloc(0);

/** What a statement came to when it was made again. */
interface Made {
  readonly digest: string;
  readonly status: string;
  readonly policy: string;
}

/** Walks the entries once, and makes each statement again when as many entries were taken in as it looked at. */
export class Replay {
  readonly #manifest: ExportManifest;
  readonly #walk: Walk;
  readonly #handle: FileHandle;
  readonly #file: ArchivedFile;
  readonly #evidence: EvidenceFile;
  /** The entries that were read last, each at its index modulo the length. */
  readonly #recent: (Entry | undefined)[] = Array.from({ length: RECENT }, () => undefined);
  readonly #sizes: readonly number[];
  /** Ascending by the size they look at. */
  readonly #dues: readonly Due[];
  #nextDue = 0;
  /** Receipts of periods, ascending by the size they look at. */
  readonly #periodDues: readonly PeriodReceiptFiled[];
  readonly periods: PeriodSeen[] = [];
  /** Bounds of periods: the first entry that was received no earlier. */
  readonly #bounds: { readonly time: string; index?: number }[];
  #nextBound = 0;
  readonly #made = new Map<number, Made>();
  readonly #statementFaults = new Faults();
  readonly #sessionFaults = new Faults();
  #statementsMade = 0;
  #elsewhere = 0;
  readonly #sessionReceipts: Set<FiledReceipt>;
  #sessionsMade = 0;
  /** Statements on epochs that differ: of one that is not here whole that means nothing. */
  readonly #epochFaults: { readonly key: string; readonly what: string }[] = [];
  readonly #epochsMade: string[] = [];

  constructor(
    manifest: ExportManifest,
    walk: Walk,
    handle: FileHandle,
    file: ArchivedFile,
    receipts: readonly FiledReceipt[],
    stated: readonly StatedAt[],
  ) {
    this.#manifest = manifest;
    this.#walk = walk;
    this.#handle = handle;
    this.#file = file;
    this.#evidence = new EvidenceFile(handle.fd, file);
    const { size } = manifest.asOf;
    this.#sizes = [...new Set([...receipts.map(({ asOf }) => asOf), size])].sort((a, b) => a - b);
    const byEntry = new Map<number, FiledReceipt[]>();
    for (const receipt of receipts) {
      const { index } = receipt.coverage;
      if (index === undefined) continue;
      const before = byEntry.get(index);
      if (before === undefined) byEntry.set(index, [receipt]);
      else before.push(receipt);
    }
    this.#dues = stated
      .filter((each) => each.stated.size <= each.index)
      .map((each) => ({ ...each, receipts: byEntry.get(each.index) ?? [] }))
      .sort((a, b) => a.stated.size - b.stated.size);
    this.#periodDues = receipts.filter(isOfPeriod).sort((a, b) => a.coverage.size - b.coverage.size);
    this.#bounds = [...new Set(this.#periodDues.flatMap(({ scope }) => [scope.from, scope.to]))]
      .sort()
      .map((time) => ({ time }));
    this.#sessionReceipts = new Set(receipts.filter(({ scope }) => scope.type === 'session'));
  }

  async run(
    { signal, progress }: ReplayOptions,
    read: (receipt: FiledReceipt) => Buffer,
  ): Promise<{ readonly reader: EntriesReader; readonly root: Buffer; readonly events: string }> {
    const walk = this.#walk;
    const reader = new EntriesReader(this.#manifest.asOf.size, this.#sizes);
    const events: Hash = createHash('sha256').update(EVENTS_HEADER);
    const total = this.#manifest.asOf.size;
    let done = 0;
    for await (const block of blocksOf(this.#handle, this.#file)) {
      signal?.throwIfAborted();
      let rows = '';
      for (const item of reader.push(block)) {
        if ('omitted' in item) {
          done = item.omitted.to;
          this.#makeDue(done, read);
          walk.pass(done);
          continue;
        }
        const { index, bytes, leaf, at } = item;
        this.#evidence.place(index, at, bytes.length);
        this.#makeDue(index, read);
        const entry = parseEntry(bytes);
        this.#recent[index % RECENT] = { ...entry, body: NOTHING };
        walk.apply(entry);
        for (
          let bound = this.#bounds[this.#nextBound];
          bound !== undefined;
          bound = this.#bounds[++this.#nextBound]
        ) {
          if (entry.line.received < bound.time) break;
          bound.index = index;
        }
        rows += eventRow(entry, leaf);
        if (entry.by === 'collector' && entry.statement.kind === 'coverage.stated') {
          this.#compare({ index, stated: entry.statement });
        }
        done = index + 1;
      }
      events.update(rows);
      progress?.({ phase: 'entries', done, total });
    }
    const root = reader.end();
    this.#makeDue(total, read);
    return { reader, root, events: events.digest('hex') };
  }

  /** How many statements were made again, and how many are about what is not here whole. Throws for the first fault. */
  statements(): { readonly made: number; readonly elsewhere: number } {
    const whole = (key: string): boolean => {
      const tally = this.#walk.epochs.get(key);
      return tally !== undefined && this.#walk.isWhole(tally);
    };
    for (const { key, what } of this.#epochFaults) if (whole(key)) this.#statementFaults.add(what);
    this.#statementFaults.require();
    const epochs = this.#epochsMade.filter(whole).length;
    return {
      made: this.#statementsMade + epochs,
      elsewhere: this.#elsewhere + this.#epochsMade.length - epochs,
    };
  }

  /** How many receipts of sessions were made again. Throws for the first fault. */
  sessions(): number {
    for (const { digest } of this.#sessionReceipts) {
      this.#sessionFaults.add(`receipt ${digest} rests on a statement that no entry names`);
    }
    this.#sessionFaults.require();
    return this.#sessionsMade;
  }

  /** Makes what is due before the entry at `index` is taken in. */
  #makeDue(index: number, read: (receipt: FiledReceipt) => Buffer): void {
    for (let due = this.#dues[this.#nextDue]; due !== undefined; due = this.#dues[++this.#nextDue]) {
      if (due.stated.size > index) break;
      this.#make(due, read);
    }
    while ((this.#periodDues[this.periods.length]?.coverage.size ?? Infinity) <= index) {
      this.periods.push(this.#periodSeen(this.#periodDues[this.periods.length] as PeriodReceiptFiled));
    }
  }

  #periodSeen(receipt: PeriodReceiptFiled): PeriodSeen {
    const { coverage } = this.#walk;
    const { from, to } = receipt.scope;
    const { size, time } = receipt.coverage;
    this.#walk.standAt(size);
    const boundOf = (bound: string): number =>
      Math.min(this.#bounds.find((each) => each.time === bound)?.index ?? size, size);
    const first = boundOf(from);
    const entries = { first, count: boundOf(to) - first };
    const sessions = [...this.#walk.sessionNames].flatMap((session) => {
      const index = coverage.beganAt(session);
      const first = this.#walk.sessions.get(session)?.began;
      const began =
        coverage
          .session(session)
          .beginnings()
          .find((each) => each.index === index) ?? first;
      this.#walk.relieve();
      return began !== undefined && began.received >= from && began.received < to ? session : [];
    });
    const { sinkNames } = this.#walk;
    const evidence = periodEvidence(coverage, { size, time }, { from, to, sessions: [], entries }, sinkNames);
    return { receipt, evidence, sessions };
  }

  readonly #parsed = (index: number): Entry | undefined => {
    const entry = this.#recent[index % RECENT];
    return entry?.line.index === index ? entry : undefined;
  };

  #make({ index, stated, receipts }: Due, read: (receipt: FiledReceipt) => Buffer): void {
    const walk = this.#walk;
    const asOf = { size: stated.size, time: stated.time };
    if (stated.type === 'epoch') {
      walk.standAt(asOf.size);
      const statement = walk.coverage.epochStatement(stated.sink, stated.epoch, asOf);
      const digest = digestOf(formatStatement(statement));
      this.#made.set(index, { digest, status: statement.status, policy: statement.policy });
      return;
    }
    // Of everything, one that no entry has named yet may still be one of the export's.
    if (!walk.isEverything && !walk.isChosen(stated.session)) return;
    walk.standAt(asOf.size);
    const facts = deriveSession(walk.coverage, walk.standing, stated.session, asOf, {
      indexes: walk.sessions.get(stated.session)?.indexes ?? [],
      at: this.#evidence.at,
      parsed: this.#parsed,
    });
    const { status, policy } = facts.statement;
    this.#made.set(index, { digest: facts.statementDigest, status, policy });
    for (const receipt of receipts) {
      this.#sessionReceipts.delete(receipt);
      const fault = this.#receiptFault(facts, { index, stated }, read(receipt));
      if (fault === undefined) this.#sessionsMade++;
      else this.#sessionFaults.add(`receipt ${receipt.digest} of ${stated.session}: ${fault}`);
    }
  }

  /** What a receipt says that its entries do not give, if anything. */
  #receiptFault(facts: SessionFacts, { index, stated }: StatedAt, bytes: Buffer): string | undefined {
    const { payload } = parseDsse(bytes);
    const opened = parseAnyReceipt(bytes);
    if (opened.type !== 'session') return 'it is of no session';
    const { receipt } = opened;
    try {
      const { statement } = stated;
      const made = sessionReceiptPayload(
        facts,
        receipt.log,
        receipt.asOf,
        { index, statement },
        receipt.supersedes,
      );
      if (made.equals(payload)) return undefined;
    } catch (error) {
      if (error instanceof ReceiptError) return error.message;
      throw error;
    }
    const { status } = facts.judgement.disposition;
    return status === receipt.disposition.status
      ? 'it is not what its entries give'
      : `it says ${receipt.disposition.status}, and its entries give ${status}`;
  }

  /** Holds an entry to the statement that was made again. */
  #compare({ index, stated }: StatedAt): void {
    const made = this.#made.get(index);
    this.#made.delete(index);
    const same =
      made?.digest === stated.statement && made.status === stated.status && made.policy === stated.policy;
    const what = `entry ${index} names a statement that its entries do not give`;
    if (stated.type === 'epoch') {
      const key = `${stated.sink} ${stated.epoch}`;
      this.#epochsMade.push(key);
      if (!same) this.#epochFaults.push({ key, what });
    } else if (!this.#walk.isChosen(stated.session)) this.#elsewhere++;
    else {
      this.#statementsMade++;
      if (!same) this.#statementFaults.add(what);
    }
  }
}

function isOfPeriod(receipt: FiledReceipt): receipt is PeriodReceiptFiled {
  return receipt.scope.type === 'period';
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}
