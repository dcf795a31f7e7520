/** Spans and log records on record: contents in the trace, envelopes in the epoch. */

import { createHash } from 'node:crypto';
import type { Epoch } from '@belay/client';
import { type MapperParts, type OtlpRequest, type Refusals, SpanMapper } from '@belay/otlp';
import type { TraceWriter } from '@belay/trace';

/** What came since the start; items are spans and log records. */
export interface OtlpCounts {
  readonly requests: number;
  readonly received: number;
  readonly taken: number;
  /** Not of an agent's run. */
  readonly filtered: number;
  readonly repeated: number;
  readonly refused: number;
  /** Requests with metrics, and requests that could not be decoded. */
  readonly metrics: number;
  readonly undecodable: number;
}

/** Where the recorder writes: one trace and one epoch at a time. */
export interface OtlpRecord {
  readonly trace: TraceWriter;
  /** Absent without credentials: then spans are only recorded. */
  readonly epoch: Epoch | undefined;
}

export interface OtlpRecorderParts extends MapperParts, OtlpRecord {
  /** Called after envelopes were appended. */
  readonly onAppended: () => void;
}

export class OtlpRecorder {
  readonly #parts: OtlpRecorderParts;
  readonly #mapper: SpanMapper;
  #record: OtlpRecord;
  #counts: OtlpCounts = {
    requests: 0,
    received: 0,
    taken: 0,
    filtered: 0,
    repeated: 0,
    refused: 0,
    metrics: 0,
    undecodable: 0,
  };
  /** Counts that an `x.otlp` has told. */
  #told = this.#counts;

  constructor(parts: OtlpRecorderParts) {
    this.#parts = parts;
    this.#mapper = new SpanMapper(parts);
    this.#record = parts;
  }

  get counts(): OtlpCounts {
    return this.#counts;
  }

  /** Everything of the request is on record when this returns. */
  readonly take = (request: OtlpRequest): Refusals | undefined => {
    const { epoch, trace } = this.#record;
    const { statements, counts, reasons } = this.#mapper.map(request);
    const before = this.#counts;
    this.#counts = {
      ...before,
      requests: before.requests + 1,
      received: before.received + counts.received,
      taken: before.taken + counts.taken,
      filtered: before.filtered + counts.filtered,
      repeated: before.repeated + counts.repeated,
      refused: before.refused + counts.refused,
    };
    for (const { content, sources, envelopes } of statements) {
      for (const source of sources) this.#keep(source, undefined);
      const seqs =
        epoch === undefined ? undefined : envelopes.map((each) => epoch.append({ ...each, content }));
      this.#keep(content, seqs);
    }
    if (statements.length > 0) {
      trace.sync();
      this.#parts.onAppended();
    }
    if (counts.refused === 0) return undefined;
    const why = new Map<string, number>();
    for (const reason of reasons) why.set(reason, (why.get(reason) ?? 0) + 1);
    return {
      rejected: counts.refused,
      message: [...why].map(([reason, count]) => `${reason}: ${count}`).join(', '),
    };
  };

  readonly dropped = (what: 'metrics' | 'undecodable'): void => {
    const { requests } = this.#counts;
    this.#counts = { ...this.#counts, requests: requests + 1, [what]: this.#counts[what] + 1 };
  };

  /** Goes on in another trace and epoch. What is known of spans, and the counts, stay. */
  moveTo(record: OtlpRecord): void {
    this.tell();
    this.#mapper.forgetSources();
    this.#record = record;
  }

  /** Says what came, unless that was said. */
  tell(): void {
    const { epoch } = this.#record;
    if (epoch === undefined || this.#told === this.#counts) return;
    this.#told = this.#counts;
    epoch.append({ kind: 'x.otlp', attrs: { ...this.#counts } });
    this.#parts.onAppended();
  }

  /** A `claim`; one that became envelopes says which, by a member that readers who do not know it ignore. */
  #keep(content: Buffer, seqs: readonly number[] | undefined): void {
    const sha256 = createHash('sha256').update(content).digest('hex');
    const body = { type: 'claim' as const, size: content.length, sha256, seqs };
    this.#record.trace.append(body, content);
  }
}
