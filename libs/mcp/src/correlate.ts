import type { IdKey, Message, Notification, Request, Response } from './message.js';

/** Client to server, server to client. */
export type Direction = 'c2s' | 's2c';

/** Answered calls that are remembered to tell a duplicate answer from one that nobody asked for. */
const REMEMBERED = 4096;
/** Requests in flight that are remembered; the oldest are forgotten first, and counted. */
const MAX_PENDING = 65_536;

/** One request on its way, without its content. `call` counts requests of this connection from 1, in the order they were observed. */
export interface Call {
  readonly call: number;
  readonly direction: Direction;
  readonly id: IdKey;
  readonly method: string;
  /** Tool of a `tools/call`, where the request names one. */
  readonly tool: string | undefined;
  /** Another request with this id was unanswered when this one came. */
  readonly idInUse: boolean;
  /** `notifications/cancelled` named it. */
  cancelled: boolean;
}

/** What one message means beside the ones before it. */
export type Correlated =
  | { readonly type: 'call'; readonly call: Call; readonly request: Request }
  | { readonly type: 'answer'; readonly call: Call; readonly response: Response; readonly late: boolean }
  | { readonly type: 'stray'; readonly response: Response; readonly duplicateOf: number | undefined }
  | { readonly type: 'cancel'; readonly call: Call | undefined; readonly message: Notification }
  | { readonly type: 'other'; readonly message: Message };

/**
 * Pairs answers with requests by (direction, type of id, id) and order of occurrence. Both directions have id spaces
 * of their own, an id may be used again, even while it is in use, and a cancelled call is retired: its late answer
 * still finds it, but only when no living call has the id.
 *
 * One connection may carry several conversations (sessions over HTTP): each has id spaces of its own.
 *
 * Messages are to be observed in the order of the record: a request before its answer.
 */
export class Correlator {
  readonly #pending = new Map<string, Call[]>();
  /** Numbers of answered calls, the least recently answered first. */
  readonly #answered = new Map<string, number>();
  #calls = 0;
  #inFlight = 0;
  #forgotten = 0;

  /** Requests without an answer so far, cancelled ones not counted. */
  get unanswered(): number {
    let count = 0;
    for (const calls of this.#pending.values()) for (const call of calls) if (!call.cancelled) count++;
    return count;
  }

  /** Requests given up because more than could be remembered were in flight. */
  get forgotten(): number {
    return this.#forgotten;
  }

  observe(direction: Direction, message: Message, conversation = ''): Correlated {
    switch (message.type) {
      case 'request':
        return { type: 'call', call: this.#open(direction, message, conversation), request: message };
      case 'response':
        return this.#answer(direction === 'c2s' ? 's2c' : 'c2s', message, conversation);
      default:
        return message.type === 'notification' && message.method === 'notifications/cancelled'
          ? this.#cancel(direction, message, conversation)
          : { type: 'other', message };
    }
  }

  #open(direction: Direction, request: Request, conversation: string): Call {
    const key = spaceKey(conversation, direction, request.id);
    const same = this.#pending.get(key);
    const call: Call = {
      call: ++this.#calls,
      direction,
      id: request.id,
      method: request.method,
      tool: toolOf(request),
      idInUse: same?.some((other) => !other.cancelled) ?? false,
      cancelled: false,
    };
    if (same === undefined) this.#pending.set(key, [call]);
    else same.push(call);
    if (++this.#inFlight > MAX_PENDING) this.#forgetOldest();
    return call;
  }

  #answer(asked: Direction, response: Response, conversation: string): Correlated {
    const key = spaceKey(conversation, asked, response.id);
    const calls = this.#pending.get(key);
    if (calls === undefined) return { type: 'stray', response, duplicateOf: this.#answered.get(key) };
    const living = calls.findIndex((call) => !call.cancelled);
    const [call] = calls.splice(Math.max(0, living), 1) as [Call];
    if (calls.length === 0) this.#pending.delete(key);
    this.#inFlight--;
    this.#remember(key, call);
    return { type: 'answer', call, response, late: call.cancelled };
  }

  #cancel(direction: Direction, message: Notification, conversation: string): Correlated {
    const params = message.params as { readonly requestId?: unknown } | null | undefined;
    const id = params?.requestId;
    const key = typeof id === 'string' ? `s:${id}` : typeof id === 'number' ? `n:${id}` : undefined;
    const calls =
      key === undefined ? undefined : this.#pending.get(spaceKey(conversation, direction, key as IdKey));
    const call = calls?.find((each) => !each.cancelled);
    if (call !== undefined) call.cancelled = true;
    return { type: 'cancel', call, message };
  }

  #remember(key: string, call: Call): void {
    this.#answered.delete(key);
    this.#answered.set(key, call.call);
    if (this.#answered.size > REMEMBERED) this.#answered.delete(this.#answered.keys().next().value as string);
  }

  #forgetOldest(): void {
    const [key, calls] = this.#pending.entries().next().value as [string, Call[]];
    calls.shift();
    if (calls.length === 0) this.#pending.delete(key);
    this.#inFlight--;
    this.#forgotten++;
  }
}

function spaceKey(conversation: string, direction: Direction, id: IdKey): string {
  return `${conversation} ${direction} ${id}`;
}

function toolOf(request: Request): string | undefined {
  if (request.method !== 'tools/call') return undefined;
  const name = (request.params as { readonly name?: unknown } | null | undefined)?.name;
  return typeof name === 'string' ? name : undefined;
}
