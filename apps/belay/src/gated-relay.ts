/** One direction of a conversation, frame by frame, past a turn gate: what may not go yet is overtaken by what may. */

import type { Writable } from 'node:stream';
import { type Content, type Frame, Framer, OBSERVATION_LIMIT, readFrame } from '@belay/mcp';
import type { RelayHooks } from './relay.js';
import type { Source } from './server-output.js';
import type { Go } from './turn-gate.js';

const LF = 0x0a;
/** What may wait at the gate until the source is held up, bytes: then nothing overtakes any more. */
const MAX_WAITING = 16 * 1024 * 1024;
/** Larger frames are skimmed where only ids and methods are asked for. */
const MAX_READ = 1024 * 1024;

export interface GatedLane {
  /** Frames are looked at before they go. Where that is not so for the moment, bytes go as they come. */
  readonly gated: () => boolean;
  /** Takes every frame, in order. `go` is called once, now or later; `passed`: all but its end has gone already. */
  readonly decide: (content: Content, go: Go, passed: boolean) => void;
  /** Puts a frame on record: of a client before it goes, of a server afterwards. */
  readonly record: (frame: Frame, content: Content, odd: Parameters<Go>[0]) => void;
  readonly recorded: 'before' | 'after';
}

export type GatedHooks = Pick<RelayHooks, 'onEnd' | 'onBroken'> & { readonly onSeen?: () => void };

export function gatedRelay(source: Source, sink: Writable, lane: GatedLane, hooks: GatedHooks): void {
  new GatedRelay(source, sink, lane, hooks).start();
}

/** Bytes are those that came, every frame whole and by itself; only their order may be another. */
class GatedRelay {
  readonly #source: Source;
  readonly #sink: Writable;
  readonly #lane: GatedLane;
  readonly #hooks: GatedHooks;
  readonly #framer = new Framer(OBSERVATION_LIMIT, 'when-asked');
  /** The beginning of the frame that has not ended, as long as it has not gone. */
  #parts: Buffer[] = [];
  /** The beginning of that frame has gone: nothing else may go before its end. */
  #inside = false;
  /** Became free to go while a frame was half way. */
  #after: (() => void)[] = [];
  /** Frames at the gate, and their bytes. */
  #waiting = 0;
  #waitingBytes = 0;
  #full = false;
  #blocked = false;
  #broken = false;
  #ended = false;

  constructor(source: Source, sink: Writable, lane: GatedLane, hooks: GatedHooks) {
    this.#source = source;
    this.#sink = sink;
    this.#lane = lane;
    this.#hooks = hooks;
  }

  start(): void {
    const { onBroken, onSeen } = this.#hooks;
    this.#sink.on('error', () => {
      if (this.#broken) return;
      this.#broken = true;
      this.#full = false;
      this.#flow();
      onBroken();
    });
    this.#source.on('data', (chunk: Buffer) => {
      this.#take(chunk);
      onSeen?.();
    });
    const end = (): void => this.#end();
    this.#source.on('end', end);
    this.#source.on('close', end);
    this.#source.on('error', end);
    this.#source.resume();
  }

  #take(chunk: Buffer): void {
    if (!this.#lane.gated()) {
      this.#write([...this.#parts.splice(0), chunk]);
      this.#inside = true;
      this.#framer.push(chunk, (frame) => this.#decide(frame, [], true));
      this.#inside = this.#framer.pending > 0;
      return;
    }
    for (let start = 0; start < chunk.length;) {
      const lf = chunk.indexOf(LF, start);
      const end = lf < 0 ? chunk.length : lf + 1;
      this.#piece(chunk.subarray(start, end));
      start = end;
    }
  }

  #piece(piece: Buffer): void {
    if (!this.#inside && this.#framer.pending + piece.length > OBSERVATION_LIMIT) {
      this.#write(this.#parts.splice(0));
      this.#inside = true;
    }
    let whole: Frame | undefined;
    this.#framer.push(piece, (frame) => {
      whole = frame;
    });
    if (whole !== undefined) {
      const passed = this.#inside;
      this.#decide(whole, [...this.#parts.splice(0), piece], passed);
    } else if (this.#inside) this.#write([piece]);
    else this.#parts.push(piece);
  }

  #decide(frame: Frame, bytes: readonly Buffer[], passed: boolean): void {
    const content = readFrame(frame, MAX_READ);
    let gone = false;
    let waits = false;
    let odd: Parameters<Go>[0];
    const act = (): void => {
      if (this.#lane.recorded === 'before') this.#lane.record(frame, content, odd);
      this.#write(bytes);
      if (this.#lane.recorded === 'after') this.#lane.record(frame, content, odd);
      if (waits) this.#left(frame.size);
    };
    const go: Go = (named) => {
      if (gone) return;
      gone = true;
      odd = named;
      if (this.#inside && !passed) this.#after.push(act);
      else act();
    };
    try {
      this.#lane.decide(content, go, passed);
    } catch {
      // What decides about states must not decide about traffic.
      go();
    }
    if (passed) {
      // Its end goes whatever the gate says: others wait behind it.
      go();
      this.#inside = false;
      for (const each of this.#after.splice(0)) each();
    } else if (!gone) {
      waits = true;
      this.#waiting++;
      this.#waitingBytes += frame.size;
      this.#flow();
    }
  }

  #left(size: number): void {
    this.#waiting--;
    this.#waitingBytes -= size;
    this.#flow();
    this.#finish();
  }

  #write(bytes: readonly Buffer[]): void {
    if (this.#broken) return;
    let more = true;
    for (const each of bytes) more = this.#sink.write(each);
    if (more || this.#full) return;
    this.#full = true;
    this.#flow();
    this.#sink.once('drain', () => {
      this.#full = false;
      this.#flow();
    });
  }

  /** Reads on as long as what was read can go somewhere. */
  #flow(): void {
    const blocked = this.#full || this.#waitingBytes > MAX_WAITING;
    if (blocked === this.#blocked) return;
    this.#blocked = blocked;
    if (blocked) this.#source.pause();
    else this.#source.resume();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#finish();
  }

  /** The source has ended, and nothing of it waits any more. What has no terminator has to be the last. */
  #finish(): void {
    if (!this.#ended || this.#waiting > 0) return;
    if (this.#framer.pending > 0) {
      this.#framer.end((frame) => this.#decide(frame, this.#parts.splice(0), this.#inside));
      if (this.#waiting > 0) return;
    }
    this.#sink.end();
    this.#hooks.onEnd();
  }
}
