/**
 * Session mode: one server for the whole trace, told what the client told it, in the order of the record. A frame is
 * sent when everything that had been answered before it in the record has been answered again, so calls that
 * overlapped overlap again.
 */

import { closeSync, openSync } from 'node:fs';
import type { Message, Response } from '@belay/mcp';
import { ContentReader, readRecordAt, readTrace, recordData, type TraceRecord } from '@belay/trace';
import { type Answer, type Bounds, BOUNDS, Conversation, type Server } from './conversation.js';
import {
  messagesOf,
  requestKey,
  script,
  type ScriptAnswer,
  type ScriptCall,
  type Step,
  type Survey,
} from './script.js';

/** The workspace that is replayed in. `Change` is whatever it says of a path. */
export interface World<Change> {
  /**
   * Makes the workspace what it was in the state; says whether anything but times had to be changed for that, or that
   * what can be had is not the state.
   */
  enter(state: string): Promise<'as-left' | 'changed' | 'wrong'>;
  /** What the workspace has become since the state that was entered last. */
  delta(): Promise<readonly Change[]>;
}

/** A call that was made again. */
export interface PlayedCall {
  readonly call: ScriptCall;
  /** Absent where the record has none. */
  readonly recorded:
    | {
        readonly response: Response;
        readonly time: number;
        readonly late: boolean;
        /** Number of the envelope that it became. */
        readonly seq: number | undefined;
      }
    | undefined;
  /** Undefined where it was not sent: its frame was not kept. */
  readonly replayed: Answer | undefined;
  /** The client cancelled it. */
  readonly cancelled: boolean;
  /** Wall clock when it was sent again, milliseconds since 1970. */
  readonly sent: number;
  /** Milliseconds until it was answered again, or given up. */
  readonly took: number;
}

/** Calls that overlapped, with one state before and one after; most often a single call. */
export interface PlayedGroup<Change> {
  readonly type: 'group';
  readonly calls: readonly PlayedCall[];
  /** The `state` records; absent where nothing was captured. */
  readonly pre: StateRecord | undefined;
  readonly post: StateRecord | undefined;
  /** Something had to be changed in the workspace before it was what the record says. */
  readonly driftApplied: boolean;
  /** The state before could not be restored as it was: the calls were made in another. */
  readonly misplaced: boolean;
  /** What the replay did to the workspace; undefined where there was nothing to compare with. */
  readonly delta: readonly Change[] | undefined;
  /** Requests of the server that the record has no answer to. */
  readonly diverged: number;
  readonly denials: readonly (TraceRecord & { type: 'denial' })[];
}

/** A request that is no call of a tool. */
export interface PlayedRequest {
  readonly type: 'request';
  readonly call: ScriptCall;
  readonly recorded: Response | undefined;
  readonly replayed: Answer;
}

/** The tools that the server has when the session is over, asked for by the replay itself. */
export interface PlayedTools {
  readonly type: 'tools';
  readonly tools: readonly unknown[];
}

export type Played<Change> = PlayedGroup<Change> | PlayedRequest | PlayedTools;

export type StateRecord = TraceRecord & { type: 'state' };

export interface SessionOptions<Change> {
  readonly start: () => Promise<Server>;
  readonly world: World<Change> | undefined;
  /** Whether a state of the record can be restored, and its digest. */
  readonly stateOf: (record: StateRecord) => string | undefined;
  /**
   * `recorded`: calls that overlapped overlap again. `reversed`: of those that were made before the first of them was
   * answered, one after the other, the last one first.
   */
  readonly order: 'recorded' | 'reversed';
  /** Only this call is made, counted among the calls of tools from 1; one that overlapped is made alone. */
  readonly only?: number | undefined;
  /** Nothing is played past the group with this one. */
  readonly until?: number | undefined;
  /** Milliseconds a call may take beyond twice what it took in the record. */
  readonly timeout: number;
  readonly now: () => number;
  readonly bounds?: Bounds;
}

/** From the end of its input to the end of the server, milliseconds. */
const CLOSING = 2_000;
/** A page of the list of tools may take so long, and there may be so many pages and tools. */
const LISTING = 2_000;
const MAX_PAGES = 100;
const MAX_TOOLS = 16_384;

type Open = { -readonly [K in keyof PlayedCall]: PlayedCall[K] } & {
  readonly isMade: boolean;
  waiting: Promise<Answer> | undefined;
};

/** Plays a trace. What comes back is in the order of the record. */
export async function* playSession<Change>(
  path: string,
  surveyed: Survey,
  options: SessionOptions<Change>,
): AsyncGenerator<Played<Change>> {
  const player = new Player(path, surveyed, options);
  try {
    for await (const step of script(readTrace(path))) {
      yield* player.step(step);
      if (player.isDone) break;
    }
    yield* player.end();
  } finally {
    await player.dispose();
  }
}

class Player<Change> {
  readonly #fd: number;
  readonly #beside: ContentReader;
  readonly #survey: Survey;
  readonly #options: SessionOptions<Change>;
  /** How many answers to a kind of request were given already. */
  readonly #given = new Map<string, number>();
  #conversation: Conversation | undefined;
  #plain = new Map<number, ScriptCall>();
  #calls = new Map<number, Open>();
  #pre: StateRecord | undefined;
  #post: StateRecord | undefined;
  #driftApplied = false;
  #misplaced = false;
  #delta: readonly Change[] | undefined;
  #denials: (TraceRecord & { type: 'denial' })[] = [];
  #divergedBefore = 0;
  /** Frames with calls of a group that are sent one by one, when it is known which of them overlapped. */
  #held: (Step & { type: 'send' })[] = [];
  /** Calls of tools in the groups before. */
  #before = 0;

  constructor(path: string, surveyed: Survey, options: SessionOptions<Change>) {
    this.#fd = openSync(path, 'r');
    this.#beside = new ContentReader(path);
    this.#survey = surveyed;
    this.#options = options;
  }

  /** What was asked for has been played. */
  get isDone(): boolean {
    const { until } = this.#options;
    return until !== undefined && this.#before >= until;
  }

  async *step(step: Step): AsyncGenerator<Played<Change>> {
    switch (step.type) {
      case 'record':
        if (step.record.type === 'state') yield* this.#state(step.record);
        else if (step.record.type === 'denial') this.#denials.push(step.record);
        return;
      case 'send':
        await this.#take(step);
        return;
      case 'receive':
        await this.#release();
        for (const answer of step.answers) yield* this.#receive(answer);
        return;
    }
  }

  async *end(): AsyncGenerator<Played<Change>> {
    yield* this.#flush();
    yield { type: 'tools', tools: await this.#listTools() };
    await this.#conversation?.close(CLOSING);
  }

  async #listTools(): Promise<unknown[]> {
    const tools: unknown[] = [];
    let cursor: unknown;
    for (let page = 0; page < MAX_PAGES; page++) {
      const params = cursor === undefined ? {} : { cursor };
      const answer = await this.#conversation?.ask('tools/list', params, LISTING);
      if (answer === undefined || 'silence' in answer) break;
      const result = answer.response.result as { tools?: unknown; nextCursor?: unknown } | null | undefined;
      if (!Array.isArray(result?.tools)) break;
      tools.push(...(result.tools as unknown[]));
      cursor = result.nextCursor;
      if (typeof cursor !== 'string' || tools.length > MAX_TOOLS) break;
    }
    return tools;
  }

  async dispose(): Promise<void> {
    await this.#conversation?.close(0);
    closeSync(this.#fd);
    this.#beside.close();
  }

  async *#state(record: StateRecord): AsyncGenerator<PlayedGroup<Change>> {
    const state = this.#options.stateOf(record);
    switch (record.phase) {
      case 'open':
        if (state !== undefined) await this.#options.world?.enter(state);
        return;
      case 'pre':
        yield* this.#flush();
        this.#pre = record;
        if (state === undefined || this.#options.world === undefined) return;
        await this.#enter(state, this.#options.world);
        return;
      case 'post':
        await this.#release();
        await Promise.all([...this.#calls.values()].map((call) => this.#await(call)));
        this.#post = record;
        // Without a known state before, there is nothing that a change could be told from.
        if (
          this.#pre !== undefined &&
          this.#options.stateOf(this.#pre) !== undefined &&
          !this.#misplaced &&
          [...this.#calls.values()].some(({ isMade }) => isMade)
        ) {
          this.#delta = await this.#options.world?.delta();
        }
        if (this.#isComplete()) yield* this.#flush();
        return;
      case 'close':
        yield* this.#flush();
    }
  }

  async #enter(state: string, world: World<Change>): Promise<void> {
    const entered = await world.enter(state);
    this.#driftApplied = entered === 'changed';
    this.#misplaced = entered === 'wrong';
  }

  async #take(step: Step & { type: 'send' }): Promise<void> {
    for (const call of step.cancels) {
      const open = this.#calls.get(call);
      if (open !== undefined) open.cancelled = true;
    }
    if (step.answersOnly) return;
    const isCall = step.calls.some(({ method }) => method === 'tools/call');
    const isMade = !isCall || this.#isWanted(this.#calls.size + 1);
    for (const call of step.calls) {
      if (call.method !== 'tools/call') this.#plain.set(call.call, call);
      else {
        this.#calls.set(call.call, {
          call,
          recorded: undefined,
          replayed: undefined,
          cancelled: false,
          isMade: isMade && !step.lost,
          sent: 0,
          took: 0,
          waiting: undefined,
        });
      }
    }
    if (step.lost || !isMade) return;
    if (this.#options.order === 'reversed' && isCall && this.#pre !== undefined) this.#held.push(step);
    else await this.#send(step);
  }

  /** Sends what was held: the last frame first, each when the one before it was answered. */
  async #release(): Promise<void> {
    const held = this.#held.reverse();
    this.#held = [];
    for (const step of held) {
      await this.#send(step);
      if (held.length === 1) return;
      for (const { call } of step.calls) {
        const open = this.#calls.get(call);
        if (open !== undefined) await this.#await(open);
      }
    }
  }

  async #send(step: Step & { type: 'send' }): Promise<void> {
    const bytes = this.#bytesAt(step.offset);
    if (bytes === undefined) return;
    this.#conversation ??= await this.#start();
    const sent = this.#options.now();
    this.#conversation.send(
      bytes,
      step.calls.map(({ call }) => call),
    );
    for (const { call } of step.calls) {
      const open = this.#calls.get(call);
      if (open === undefined) continue;
      open.sent = sent;
      open.waiting = this.#conversation.answer(call, this.#patience(call));
    }
  }

  /** Whether the call that is the `nth` of the group now open, from 1, is one that is to be made. */
  #isWanted(nth: number): boolean {
    const { only } = this.#options;
    return only === undefined || this.#before + nth === only;
  }

  async *#receive(answer: ScriptAnswer): AsyncGenerator<Played<Change>> {
    const response = this.#responseAt(answer);
    const plain = this.#plain.get(answer.call);
    if (plain !== undefined) {
      this.#plain.delete(answer.call);
      const replayed = (await this.#conversation?.answer(answer.call, this.#patience(answer.call))) ?? {
        silence: 'REPLAY_DIED' as const,
      };
      yield { type: 'request', call: plain, recorded: response, replayed };
      return;
    }
    const open = this.#calls.get(answer.call);
    if (open === undefined) return;
    if (response !== undefined) {
      const { time, late, seq } = answer;
      open.recorded = { response, time, late, seq };
    }
    await this.#await(open);
    if (this.#isComplete()) yield* this.#flush();
  }

  /** Waits for the answer to a call, unless the record has none or the client had given it up. */
  async #await(open: Open): Promise<void> {
    const { waiting } = open;
    if (waiting === undefined || this.#survey.unanswered.has(open.call.call)) return;
    open.replayed = await waiting;
    open.waiting = undefined;
    open.took = this.#options.now() - open.sent;
  }

  /** Every call of the group has what the record has for it, and the state after it where there was one before. */
  #isComplete(): boolean {
    if (this.#pre !== undefined && this.#post === undefined) return false;
    for (const { call, recorded } of this.#calls.values()) {
      if (recorded === undefined && !this.#survey.unanswered.has(call.call)) return false;
    }
    return this.#calls.size > 0;
  }

  async *#flush(): AsyncGenerator<PlayedGroup<Change>> {
    await this.#release();
    const calls = [...this.#calls.values()];
    for (const call of calls) await this.#await(call);
    const diverged = this.#conversation?.diverged ?? 0;
    const group = {
      type: 'group' as const,
      calls: calls.map(played),
      pre: this.#pre,
      post: this.#post,
      driftApplied: this.#driftApplied,
      misplaced: this.#misplaced,
      delta: this.#delta,
      diverged: diverged - this.#divergedBefore,
      denials: this.#denials,
    };
    this.#divergedBefore = diverged;
    this.#before += calls.length;
    this.#calls = new Map();
    this.#pre = undefined;
    this.#post = undefined;
    this.#driftApplied = false;
    this.#misplaced = false;
    this.#delta = undefined;
    this.#denials = [];
    this.#conversation?.settle();
    if (calls.length > 0) yield group;
  }

  async #start(): Promise<Conversation> {
    const server = await this.#options.start();
    return new Conversation(
      server,
      (request) => {
        const key = requestKey(request) ?? '';
        const nth = this.#given.get(key) ?? 0;
        this.#given.set(key, nth + 1);
        const place = this.#survey.answers.get(key)?.[nth];
        return place === undefined ? undefined : this.#responseAt(place);
      },
      this.#options.bounds ?? BOUNDS,
    );
  }

  #patience = (call: number): number => this.#options.timeout + 2 * (this.#survey.slow.get(call) ?? 0);

  #bytesAt(offset: number): Buffer | undefined {
    const record = readRecordAt(this.#fd, offset, this.#beside);
    return record === undefined ? undefined : recordData(record);
  }

  #responseAt({ offset, member }: { offset: number; member: number | undefined }): Response | undefined {
    const record = readRecordAt(this.#fd, offset, this.#beside);
    if (record?.type !== 'frame') return undefined;
    const message: Message | undefined = messagesOf(record)[member ?? 0];
    return message?.type === 'response' ? message : undefined;
  }
}

const played = ({ call, recorded, replayed, cancelled, sent, took }: Open): PlayedCall => ({
  call,
  recorded,
  replayed,
  cancelled,
  sent,
  took,
});
