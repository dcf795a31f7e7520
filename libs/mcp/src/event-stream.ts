import type { Frame } from './frame.js';
import { Gatherer, OBSERVATION_LIMIT } from './gather.js';

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;
const BYTE_ORDER_MARK = Buffer.of(0xef, 0xbb, 0xbf);
const LINE_FEED = Buffer.of(LF);
/** No field that means something has a longer name. */
const MAX_NAME = 8;
/** What is kept of the type of an event; bytes. */
const MAX_TYPE = 256;

/** One event of a `text/event-stream`. */
export interface StreamEvent {
  /** `message` where the stream says none. */
  readonly type: string;
  /** Its `data` lines, joined by LF. */
  readonly data: Frame;
}

/**
 * Reads an event stream (WHATWG HTML, 9.2.6) while it goes by: LF, CR and CRLF, a byte order mark, comments, several
 * `data` lines, events of any size. The same bytes give the same events however they are chunked. Holds no more than
 * `limit` bytes of an event; ids and retry times belong to the peers and are not looked at.
 */
export class EventStream {
  readonly #data: Gatherer;
  /** How much of a byte order mark has been seen; undefined when it is settled whether there was one. */
  #mark: number | undefined = 0;
  #afterCr = false;
  #part: 'name' | 'space' | 'value' = 'name';
  #name = '';
  #type: number[] = [];
  #dataLines = 0;
  #lineEmpty = true;

  constructor(limit: number = OBSERVATION_LIMIT) {
    this.#data = new Gatherer(limit);
  }

  /** Whether something of an event is there that has not ended; at the end of the stream, a client drops it. */
  get pending(): boolean {
    return this.#dataLines > 0 || !this.#lineEmpty;
  }

  /** Takes the next bytes and calls back for every event that they complete, in order. */
  push(chunk: Buffer, onEvent: (event: StreamEvent) => void): void {
    let at = this.#skipMark(chunk, onEvent);
    let cr = chunk.indexOf(CR, at);
    let lf = chunk.indexOf(LF, at);
    while (at < chunk.length) {
      if (this.#afterCr) {
        this.#afterCr = false;
        if (chunk[at] === LF) {
          at++;
          continue;
        }
      }
      // Looked for anew only behind the last one found, so that many short lines cost no more than their bytes.
      if (cr >= 0 && cr < at) cr = chunk.indexOf(CR, at);
      if (lf >= 0 && lf < at) lf = chunk.indexOf(LF, at);
      const end = cr >= 0 && (lf < 0 || cr < lf) ? cr : lf;
      this.#piece(end < 0 ? chunk.subarray(at) : chunk.subarray(at, end));
      if (end < 0) return;
      this.#afterCr = chunk[end] === CR;
      this.#endLine(onEvent);
      at = end + 1;
    }
  }

  /** Where the stream goes on after a byte order mark. What only looked like the beginning of one is content. */
  #skipMark(chunk: Buffer, onEvent: (event: StreamEvent) => void): number {
    let at = 0;
    while (this.#mark !== undefined && at < chunk.length) {
      const seen = this.#mark;
      if (chunk[at] === BYTE_ORDER_MARK[seen]) {
        at++;
        this.#mark = seen + 1 === BYTE_ORDER_MARK.length ? undefined : seen + 1;
      } else {
        this.#mark = undefined;
        if (seen > 0) this.push(BYTE_ORDER_MARK.subarray(0, seen), onEvent);
      }
    }
    return at;
  }

  /** Bytes of one line, without its end. */
  #piece(piece: Buffer): void {
    if (piece.length === 0) return;
    this.#lineEmpty = false;
    let at = 0;
    if (this.#part === 'name') {
      const colon = piece.indexOf(COLON);
      const name = colon < 0 ? piece : piece.subarray(0, colon);
      if (this.#name.length <= MAX_NAME) this.#name += name.toString('latin1', 0, MAX_NAME + 1);
      if (colon < 0) return;
      at = colon + 1;
      this.#part = 'space';
      this.#beginValue();
    }
    if (this.#part === 'space' && at < piece.length) {
      if (piece[at] === SPACE) at++;
      this.#part = 'value';
    }
    if (at === piece.length) return;
    const value = piece.subarray(at);
    if (this.#name === 'data') this.#data.add(value);
    else if (this.#name === 'event' && this.#type.length < MAX_TYPE)
      this.#type.push(...value.subarray(0, MAX_TYPE - this.#type.length));
  }

  #beginValue(): void {
    if (this.#name === 'event') this.#type = [];
    if (this.#name === 'data' && this.#dataLines++ > 0) this.#data.add(LINE_FEED);
  }

  #endLine(onEvent: (event: StreamEvent) => void): void {
    // A line without a colon is a field with an empty value.
    if (this.#part === 'name') this.#beginValue();
    const empty = this.#lineEmpty;
    this.#part = 'name';
    this.#name = '';
    this.#lineEmpty = true;
    if (empty) this.#dispatch(onEvent);
  }

  #dispatch(onEvent: (event: StreamEvent) => void): void {
    const type = Buffer.from(this.#type).toString('utf8');
    this.#type = [];
    if (this.#dataLines === 0) return;
    this.#dataLines = 0;
    onEvent({
      type: type === '' ? 'message' : type,
      data: Object.assign(this.#data.take(), { terminator: 'none' as const }),
    });
  }
}
