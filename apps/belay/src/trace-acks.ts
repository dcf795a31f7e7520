/**
 * What a log attested of a trace: the trace's content against the commitments in acknowledged lines, the lines against
 * the proofs that came with the acks, and these against the log's key. Asks nobody; works without the network.
 */

import { readdir } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import {
  type Evidence,
  type EpochRecord,
  knownLogs,
  type KnownLine,
  PublishedStore,
  readEpochRecord,
  readEvidence,
  rememberedKey,
  sinkDir,
} from '@belay/client';
import { commitment, commitmentSalt } from '@belay/envelope';
import { readTrace, recordData, type TraceRecord } from '@belay/trace';
import type { CheckedTrace } from './trace-report.js';

/** What speaks for a change of the trace after the log was told of it. */
type BadCode =
  /** Content, direction or session are not what the line commits to. */
  | 'changed'
  /** The log was told of content that the trace does not have, though it goes on after it. */
  | 'missing'
  /** A record claims a line that another one has, stands before lines that came first, or that was never said. */
  | 'claimed_twice'
  | 'moved'
  | 'never_said'
  /** A frame of a run that was sent, without a line. */
  | 'without_line'
  /** The run was sent to a log that its trace does not name. */
  | 'log_removed'
  /** Under one number the log was told two stories. */
  | 'conflict'
  /** What is kept on this machine to show it does not hold. */
  | 'evidence_invalid';

/** What can't be decided here. */
type OpenCode =
  /** No close, and lines after the last record: the recorder was killed there, or the end was cut off. */
  | 'cut_off'
  /** Missing, and the trace itself says that as many records were lost. */
  | 'lost'
  | 'not_acknowledged'
  | 'not_sent'
  | 'filtered'
  | 'refused'
  /** The sink had failed to observe it: its line commits to nothing. */
  | 'unobserved'
  /** Acknowledged by the spool's word; lines or proofs are not kept (any more). */
  | 'not_kept'
  | 'no_key';

export interface AckFinding {
  readonly code: BadCode | OpenCode;
  readonly bad: boolean;
  /** Numbers of lines, as ranges: `3-5, 9`. */
  readonly seqs?: string;
  /** Numbers of records. */
  readonly records?: string;
  readonly message: string;
}

/** How a trace compares with what the log attested. */
export interface AckReport {
  /** `attested n/n`, or `local-only`: nothing of it was sent. */
  readonly integrity: string;
  readonly attested: number;
  /** Lines with content that the trace has, or should have. */
  readonly lines: number;
  readonly log: string | undefined;
  /** Where the log's key is from: the option, the token, or what this machine noted when it first used one. */
  readonly key: 'given' | 'token' | 'remembered' | undefined;
  /** First and last entry of the log. */
  readonly entries: readonly [number, number] | undefined;
  /** Size of the largest signed head that a kept ack leads to. */
  readonly head: number | undefined;
  /** Whether a published checkpoint that this machine has seen covers all of these entries. */
  readonly published: boolean;
  /** Records that no line speaks of, by type: of them there is the chain alone. */
  readonly local: Readonly<Record<string, number>>;
  readonly findings: readonly AckFinding[];
}

/** Where to look, and whom to believe. */
export interface AckSources {
  readonly state: string;
  /** C2SP verifier key of the log as the option or the token has it, by origin. */
  readonly keys: ReadonlyMap<string, { readonly vkey: string; readonly from: 'given' | 'token' }>;
}

type Opening = TraceRecord & { readonly type: 'open' };

const MESSAGES: Readonly<Record<BadCode | OpenCode, string>> = {
  changed: 'content, direction or session is not what the acknowledged line commits to',
  missing: 'the log was told of content that the trace does not have',
  claimed_twice: 'two records claim the same line',
  moved: 'records stand in another order than the lines that they became',
  never_said: 'the sink never said such a line',
  without_line: 'frames that no line speaks of, in a run that was sent',
  log_removed: 'its lines were sent to a log that the trace does not name',
  conflict: 'the log was told two stories under one number',
  evidence_invalid: 'what is kept to show it does not hold',
  cut_off:
    'lines after the last record of a trace without a close: its recorder was killed there, or its end cut off',
  lost: 'not in the trace, which says itself that records were lost',
  not_acknowledged: 'not acknowledged (yet)',
  not_sent: 'never sent: a gap that is disclosed',
  filtered: 'not sent, as the policy of this machine has it',
  refused: 'refused by the collector',
  unobserved: 'the recorder failed on it, and its line commits to nothing',
  not_kept: 'acknowledged, but lines or proofs are not kept here (any more)',
  no_key: "the log's key is not known here: give it with --key",
};

const BAD: ReadonlySet<BadCode | OpenCode> = new Set([
  'changed',
  'missing',
  'claimed_twice',
  'moved',
  'never_said',
  'without_line',
  'log_removed',
  'conflict',
  'evidence_invalid',
]);

/** Compares one trace with what is kept of its epoch's acks. */
export async function compareWithAcks(trace: CheckedTrace, sources: AckSources): Promise<AckReport> {
  const { open } = trace;
  if (open?.log === undefined) return localOnly(trace, await sentElsewhere(open, sources.state));
  const { log, sink, epoch } = open;
  const dir = join(sinkDir(sources.state, log, sink), epoch);
  const record = existsSync(dir) ? readEpochRecord(dir) : undefined;
  const known = sources.keys.get(log);
  const remembered = known === undefined ? rememberedKey(sources.state, log) : undefined;
  const vkey = known?.vkey ?? remembered;
  const comparison = new Comparison(open, record);
  if (record === undefined || vkey === undefined) {
    await comparison.count(trace.path);
    comparison.note(record === undefined ? 'not_kept' : 'no_key', ...comparison.seqs);
    return comparison.report(undefined, undefined, undefined);
  }
  const evidence = await readEvidence(dir, record, vkey);
  await comparison.read(trace, evidence);
  const from = known?.from ?? 'remembered';
  return comparison.report(evidence, from, new PublishedStore(sources.state, log).read()?.size);
}

/** One trace against the evidence of its epoch, a record in memory at a time. */
class Comparison {
  readonly #open: Opening;
  readonly #record: EpochRecord | undefined;
  readonly #found = new Map<BadCode | OpenCode, { readonly seqs: number[]; readonly records: number[] }>();
  readonly #details: AckFinding[] = [];
  readonly #local: Record<string, number> = {};
  /** Lines that records claim. */
  readonly seqs = new Set<number>();
  #attested = 0;
  #missing = 0;
  #entries: [number, number] | undefined;

  constructor(open: Opening, record: EpochRecord | undefined) {
    this.#open = open;
    this.#record = record;
  }

  note(code: BadCode | OpenCode, ...seqs: number[]): void {
    this.#of(code).seqs.push(...seqs);
  }

  /** Only what the trace says, where there is nothing to compare with. */
  async count(path: string): Promise<void> {
    for await (const item of readTrace(path)) {
      if (!('record' in item)) continue;
      const seqs = seqsOf(item.record);
      if (seqs.length === 0) this.#isLocal(item.record);
      for (const seq of seqs) this.seqs.add(seq);
    }
  }

  async read(trace: CheckedTrace, evidence: Evidence): Promise<void> {
    const secret = Buffer.from(this.#record?.secret ?? '', 'base64');
    let last = 0;
    /** A `hook` without a line, which is right only in front of the `claim` that has it. */
    let silent: TraceRecord | undefined;
    for await (const item of readTrace(trace.path)) {
      if (!('record' in item)) continue;
      const { record } = item;
      const seqs = seqsOf(record);
      if (silent !== undefined && (record.type !== 'claim' || seqs.length === 0))
        this.#at('not_sent', silent);
      silent = record.type === 'hook' && seqs.length === 0 ? record : undefined;
      if (seqs.length === 0) {
        if (record.type === 'frame') this.#at('without_line', record);
        else this.#isLocal(record);
      }
      for (const seq of seqs) {
        if (this.seqs.has(seq)) this.#at('claimed_twice', record, seq);
        else if (seq <= last) this.#at('moved', record, seq);
        last = Math.max(last, seq);
        this.seqs.add(seq);
        this.#compare(record, seq, secret, evidence);
      }
    }
    if (silent !== undefined) this.#at('not_sent', silent);
    await this.#findMissing(trace, evidence, last);
    // Whoever takes a record away may take away what is kept of its line: then it is not known what there was.
    const unknown = evidence.unaccounted.filter((seq) => !this.seqs.has(seq));
    if (unknown.length > 0) this.note('not_kept', ...unknown);
    for (const { code, detail, first, count } of evidence.flaws) {
      // Told by their numbers.
      if (code === 'lines_missing') continue;
      const seqs = first === undefined ? {} : { seqs: ranges([first, first + (count ?? 1) - 1], true) };
      this.#details.push({
        code: 'evidence_invalid',
        bad: true,
        ...seqs,
        message: `${MESSAGES.evidence_invalid}: ${code}, ${detail}`,
      });
    }
  }

  #compare(record: TraceRecord, seq: number, secret: Buffer, evidence: Evidence): void {
    const line = evidence.lines.get(seq);
    if (line === undefined) {
      this.#at(this.#whyNoLine(seq, evidence), record, seq);
      return;
    }
    const content = contentOf(record);
    if (
      line.digest === undefined &&
      content === undefined &&
      this.#fits(record, line) &&
      record.type === 'state'
    ) {
      // A state that could not be taken: neither has content.
    } else if (line.digest === undefined) {
      this.#at(line.kind === 'x.frame' ? 'unobserved' : 'never_said', record, seq);
    } else if (
      content === undefined ||
      line.digest !== commitment(commitmentSalt(secret, seq), content) ||
      !this.#fits(record, line)
    ) {
      this.#at('changed', record, seq);
    }
    const place = evidence.attested.get(seq);
    if (place === undefined) {
      const refused = evidence.refused.has(seq);
      this.#at(refused ? 'refused' : evidence.noted.has(seq) ? 'not_kept' : 'not_acknowledged', record, seq);
      return;
    }
    if (place.conflict) this.#at('conflict', record, seq);
    this.#attested++;
    const [first, end] = this.#entries ?? [place.index, place.index];
    this.#entries = [Math.min(first, place.index), Math.max(end, place.index)];
  }

  /** What a line says of its content in clear. */
  #fits(record: TraceRecord, line: KnownLine): boolean {
    if (this.#record?.shared === true && (line.session ?? NO_SESSION) !== this.#open.session) return false;
    if (record.type === 'state')
      return line.kind === 'state' && (line.phase === undefined || line.phase === record.phase);
    if (record.type === 'denial') return line.kind === 'denial';
    if (record.type !== 'frame') return true;
    const dir = line.dir ?? (line.kind === 'call' ? 'c2s' : line.kind === 'result' ? 's2c' : record.dir);
    return record.dir === dir;
  }

  #whyNoLine(seq: number, { lines, noted }: Evidence): BadCode | OpenCode {
    const known = [...lines.values()];
    const told = known.find(({ gap }) => gap !== undefined && gap.first <= seq && seq <= gap.last)?.gap;
    if (told !== undefined) return told.reason === 'filtered' ? 'filtered' : 'not_sent';
    if (this.#record?.forgotten !== undefined || noted.has(seq)) return 'not_kept';
    const closed = known.some(({ kind }) => kind === 'epoch.close');
    return closed || seq < (known.at(-1)?.seq ?? 0) ? 'never_said' : 'not_acknowledged';
  }

  async #findMissing(trace: CheckedTrace, evidence: Evidence, last: number): Promise<void> {
    const shared = this.#record?.shared === true;
    const mine = ({ seq, digest, session }: KnownLine): boolean =>
      digest !== undefined &&
      !this.seqs.has(seq) &&
      (!shared || (session ?? NO_SESSION) === this.#open.session);
    let missing = [...evidence.lines.values()].filter(mine).map(({ seq }) => seq);
    // A run that was gone on with has another trace of the same epoch beside this one.
    if (shared && missing.length > 0) {
      const elsewhere = await this.#seqsOfOthers(trace.path);
      missing = missing.filter((seq) => !elsewhere.has(seq));
    }
    this.#missing = missing.length;
    const lost = trace.gaps.reduce((sum, { reason, count }) => sum + (reason === 'torn' ? 0 : count), 0);
    const disclosed = Math.max(lost, trace.close?.lost ?? 0);
    const after = missing.filter((seq) => seq > last);
    const cut = trace.close === undefined ? after : [];
    const rest = missing.filter((seq) => !cut.includes(seq));
    if (cut.length > 0) this.note('cut_off', ...cut);
    if (rest.length > 0) this.note(rest.length <= disclosed ? 'lost' : 'missing', ...rest);
  }

  async #seqsOfOthers(path: string): Promise<Set<number>> {
    const seqs = new Set<number>();
    const folder = dirname(path);
    const names = (await readdir(folder)).filter(
      (name) => name.startsWith(`${this.#open.sink}-`) && name.endsWith('.jsonl') && name !== basename(path),
    );
    for (const name of names) {
      let ours: boolean | undefined;
      for await (const item of readTrace(join(folder, name))) {
        if (!('record' in item)) continue;
        const { record } = item;
        if (record.type === 'open') ours = record.epoch === this.#open.epoch && record.log === this.#open.log;
        if (ours !== true) break;
        for (const seq of seqsOf(record)) seqs.add(seq);
      }
    }
    return seqs;
  }

  report(evidence: Evidence | undefined, key: AckReport['key'], published: number | undefined): AckReport {
    const lines = this.seqs.size + this.#missing;
    const findings = [...this.#found].map(([code, { seqs, records }]) => ({
      code,
      bad: BAD.has(code),
      ...(seqs.length === 0 ? {} : { seqs: ranges(seqs) }),
      ...(records.length === 0 ? {} : { records: ranges(records) }),
      message: MESSAGES[code],
    }));
    return {
      integrity: `attested ${this.#attested}/${lines}`,
      attested: this.#attested,
      lines,
      log: this.#open.log,
      key,
      entries: this.#entries,
      head: evidence?.head?.size,
      published: this.#entries !== undefined && published !== undefined && this.#entries[1] < published,
      local: this.#local,
      findings: [...findings, ...this.#details],
    };
  }

  #at(code: BadCode | OpenCode, { n }: TraceRecord, seq?: number): void {
    const { seqs, records } = this.#of(code);
    if (seq !== undefined) seqs.push(seq);
    if (records.at(-1) !== n) records.push(n);
  }

  #of(code: BadCode | OpenCode): { readonly seqs: number[]; readonly records: number[] } {
    let found = this.#found.get(code);
    if (found === undefined) this.#found.set(code, (found = { seqs: [], records: [] }));
    return found;
  }

  #isLocal({ type }: TraceRecord): void {
    this.#local[type] = (this.#local[type] ?? 0) + 1;
  }
}

/** `session` of a trace of hooks whose agent named no run. */
const NO_SESSION = 'no session';

function seqsOf(record: TraceRecord): readonly number[] {
  const seqs = 'seqs' in record ? record.seqs : undefined;
  return Array.isArray(seqs) ? (seqs as readonly number[]) : [];
}

/** What a record's lines commit to: its content, or of content that was too large to keep, the SHA-256. */
function contentOf(record: TraceRecord): Buffer | undefined {
  if ((record.type === 'frame' || record.type === 'hook') && record.oversize === true)
    return Buffer.from(record.sha256, 'hex');
  if (record.type === 'state')
    return record.state.startsWith('sha256:') ? Buffer.from(record.state) : undefined;
  if (record.type === 'denial') {
    const {
      n: _n,
      type: _type,
      time: _time,
      at: _at,
      prev: _prev,
      seqs: _seqs,
      ...refused
    } = record as Record<string, unknown>;
    return Buffer.from(JSON.stringify(refused));
  }
  return recordData(record);
}

function localOnly(trace: CheckedTrace, sentTo: string | undefined): AckReport {
  return {
    integrity: 'local-only',
    attested: 0,
    lines: 0,
    log: sentTo,
    key: undefined,
    entries: undefined,
    head: undefined,
    published: false,
    local: { record: trace.records },
    findings:
      sentTo === undefined
        ? []
        : [{ code: 'log_removed', bad: true, message: `${MESSAGES.log_removed}: ${sentTo}` }],
  };
}

/** The log that lines of this run's epoch were sent to, if there is one. */
async function sentElsewhere(open: Opening | undefined, state: string): Promise<string | undefined> {
  if (open === undefined) return undefined;
  for (const log of knownLogs(state)) {
    const folder = join(sinkDir(state, log, open.sink), open.epoch);
    if (existsSync(folder) && readEpochRecord(folder) !== undefined) return log;
  }
  return undefined;
}

/** `1-3, 7`; at most twenty of them. `whole`: the two numbers are the ends of one range. */
function ranges(numbers: readonly number[], whole = false): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const found: [number, number][] = [];
  for (const each of sorted) {
    const last = found.at(-1);
    if (last !== undefined && (whole || each === last[1] + 1)) last[1] = each;
    else found.push([each, each]);
  }
  const shown = found.slice(0, 20).map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`));
  return `${shown.join(', ')}${found.length > 20 ? ` and ${found.length - 20} more ranges` : ''}`;
}
