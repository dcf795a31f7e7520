/**
 * A trace as a conversation: each request with its answer, and what went on between them. One pass, in memory that
 * does not grow with the file: content stays in it and is read again by its place when it is wanted.
 */

import { Correlator, type Call, type Content, type Direction, type Message, readFrame } from '@belay/mcp';
import { recordData, type TraceLine, type TraceRecord } from '@belay/trace';

/** Items that are held back until an earlier request has its answer; past it they go without. */
const WINDOW = 4_096;
/** Requests in flight, progress tokens and request states that are remembered; the oldest are forgotten. */
const MAX_REMEMBERED = 16_384;
/** What is kept of a name, an id or a message that somebody else chose. */
const MAX_TEXT = 200;
/** Places of single asides that are kept; the rest is counted. */
const MAX_PLACES = 100;
/** Methods that asides are counted by; the rest is counted together. */
const MAX_METHODS = 32;

/** Where a message stands in the file, and what the record says of its frame. */
export interface Place {
  readonly n: number;
  /** Offset of the record's line in the file. */
  readonly offset: number;
  /** Wall clock, RFC 3339. */
  readonly time: string;
  /** Microseconds since the trace was opened. */
  readonly at: number;
  /** Of the frame, in bytes, terminator included. */
  readonly size: number;
  readonly sha256: string;
  readonly oversize: boolean;
  /** Which member of a batch it is. */
  readonly member?: number;
}

/** How a request ended. `unanswered` is what is known when the trace ends. */
export type Outcome = 'ok' | 'tool_error' | 'error' | 'input_required' | 'cancelled' | 'unanswered';

/** A request of either side and its answer. */
export interface Turn {
  readonly type: 'turn';
  /** Requests of the trace are counted from 1, both sides together. */
  readonly call: number;
  /** `c2s`: the client asked. */
  readonly dir: Direction;
  readonly method: string;
  /** The id as JSON text, clipped. */
  readonly id: string;
  /** Over HTTP: whose ids these are. */
  readonly conversation: string | undefined;
  /** Tool, prompt or resource it is about. */
  readonly subject: string | undefined;
  readonly request: Place;
  readonly answer: Place | undefined;
  readonly outcome: Outcome;
  readonly error: { readonly code: number | undefined; readonly message: string } | undefined;
  /** Names of what was odd, of the frames and of how they belong together. */
  readonly findings: readonly string[];
  /** Progress notifications for it. */
  readonly progress: number;
  /** The call that this one goes on with, after it was told `input_required`. */
  readonly continues: number | undefined;
  /** W3C trace context of the request. */
  readonly traceparent: string | undefined;
  /** Of `initialize` and `server/discover`, or of a request that says so itself. */
  readonly protocol: string | undefined;
  readonly peer: { readonly name: string; readonly version: string | undefined } | undefined;
}

/** What went by between turns, folded: notifications, what the server said on stderr, lines that are no JSON-RPC. */
export interface Asides {
  readonly type: 'asides';
  readonly first: Place;
  readonly last: Place;
  readonly notices: readonly { readonly dir: Direction; readonly method: string; readonly count: number }[];
  readonly stderr: { readonly pieces: number; readonly bytes: number };
  readonly blank: number;
  /** HTTP requests and answers in which nothing went wrong. */
  readonly http: number;
  /** Lines that are not JSON-RPC, by direction. */
  readonly noise: { readonly c2s: number; readonly s2c: number };
  readonly findings: readonly string[];
  /** The first of them; of a notification, who sent it. */
  readonly places: readonly (Place & { readonly kind: string; readonly notified?: Direction })[];
}

/** An answer without a request. */
export interface Stray {
  readonly type: 'stray';
  readonly dir: Direction;
  readonly id: string;
  readonly place: Place;
  /** The call that had its answer already. */
  readonly duplicateOf: number | undefined;
  readonly ok: boolean;
  readonly findings: readonly string[];
}

/** An answer to a turn that was handed on without it, because too much came between. */
export interface LateAnswer {
  readonly type: 'late_answer';
  readonly turn: Turn;
}

/** Records that stand for themselves; `record` is without content. */
export interface Event {
  readonly type: 'open' | 'http' | 'state' | 'denial' | 'policy' | 'hook' | 'claim' | 'gap' | 'close';
  readonly record: TraceRecord;
  readonly place: Place;
}

/** A line that is no record, or whose content is not what it was. */
export interface Damage {
  readonly type: 'damage';
  readonly line: number;
  readonly code: string;
  readonly message: string;
}

export type TraceItem = Turn | Asides | Stray | LateAnswer | Event | Damage;

type Writable<T> = { -readonly [K in keyof T]: T[K] };
type OpenTurn = Writable<Turn> & { findings: string[] };
type OpenAsides = Writable<Omit<Asides, 'notices'>> & {
  counts: Map<string, { dir: Direction; method: string; count: number }>;
  findings: string[];
  places: (Place & { kind: string; notified?: Direction })[];
};
type Item = Exclude<TraceItem, Turn | Asides> | OpenTurn | OpenAsides;

/** An item on its way out: `done` when nothing can be added to it, `sent` when it was handed on. */
interface Held<T = Item> {
  readonly item: T;
  done: boolean;
  sent: boolean;
}

export const clip = (text: string, max = MAX_TEXT): string =>
  text.length <= max ? text : `${text.slice(0, max - 1)}…`;

/** What the frame of a record says; of an oversize frame what was skimmed of it. */
function contentOf(record: TraceRecord & { type: 'frame' }): Content {
  const bytes = recordData(record) ?? skimmedBytes(record.skimmed);
  if (bytes === undefined) return { kind: 'text', messages: [], findings: [] };
  const { size, sha256 } = record;
  return readFrame({ bytes, skimmed: undefined, size, sha256, terminator: 'none' });
}

/** A message of nothing but what was skimmed: for JSON-RPC that is enough to know whose it is. */
function skimmedBytes(skimmed: Readonly<Record<string, string>> | undefined): Buffer | undefined {
  if (skimmed === undefined) return undefined;
  const members: Record<string, Record<string, string> | string> = {};
  for (const [path, text] of Object.entries(skimmed)) {
    const [key = '', below] = path.split('.', 2);
    const had = members[key];
    if (below === undefined) members[key] = had ?? (text === '' ? {} : text);
    else members[key] = { ...(typeof had === 'object' ? had : {}), [below]: text };
  }
  const text = Object.entries(members).map(([key, value]) => {
    const inner =
      typeof value === 'string'
        ? value
        : `{${Object.entries(value)
            .map(([below, each]) => `${JSON.stringify(below)}:${each === '' ? '{}' : each}`)
            .join(',')}}`;
    return `${JSON.stringify(key)}:${inner}`;
  });
  return Buffer.from(`{${text.join(',')}}`, 'utf8');
}

type Members = Readonly<Record<string, unknown>>;
const object = (value: unknown): Members | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Members) : undefined;
const text = (value: unknown): string | undefined => (typeof value === 'string' ? clip(value) : undefined);

/** An id the way it was written: `"a"`, `7`. */
const idText = (id: string): string =>
  clip(id.startsWith('s:') ? JSON.stringify(id.slice(2)) : id.replace(/^n:/, ''));

/** What a request is about: a tool, a prompt, a resource. */
function subjectOf(method: string, params: Members | undefined): string | undefined {
  if (method === 'tools/call' || method === 'prompts/get') return text(params?.['name']);
  if (method.startsWith('resources/')) return text(params?.['uri']);
  return undefined;
}

function versionOf(holder: Members | undefined, meta: Members | undefined): string | undefined {
  return text(holder?.['protocolVersion']) ?? text(meta?.['io.modelcontextprotocol/protocolVersion']);
}

function nameOf(info: unknown): Turn['peer'] {
  const name = text(object(info)?.['name']);
  return name === undefined ? undefined : { name, version: text(object(info)?.['version']) };
}

class Memory<K, V> {
  readonly #map = new Map<K, V>();

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  set(key: K, value: V): void {
    this.#map.set(key, value);
    if (this.#map.size > MAX_REMEMBERED) this.#map.delete(this.#map.keys().next().value as K);
  }

  delete(key: K): void {
    this.#map.delete(key);
  }
}

class Fold {
  readonly #correlator = new Correlator();
  readonly #turns = new Memory<number, Held<OpenTurn>>();
  /** Turn of each progress token, by who asked. */
  readonly #progress = new Memory<string, OpenTurn>();
  /** Call of each `requestState` that was handed out. */
  readonly #states = new Memory<string, number>();
  /** In the order in which they began; those before `#head` are gone. */
  #queue: Held[] = [];
  #head = 0;
  #asides: Held<OpenAsides> | undefined;

  take(line: TraceLine): void {
    if ('error' in line) {
      this.#push({ type: 'damage', line: line.line, code: line.error.code, message: line.error.message });
      return;
    }
    const { record, offset, intact, missing } = line;
    if (!intact) {
      const what = missing
        ? 'content is not in the file beside the trace'
        : 'content is not what its hash says';
      const code = missing ? 'content_missing' : 'content_changed';
      this.#push({ type: 'damage', line: line.line, code, message: `record ${record.n}: the ${what}` });
    }
    const { n, time } = record;
    const at = Math.round(record.at);
    const { size = 0, sha256 = '' } = record as { size?: number; sha256?: string };
    const oversize = record.type === 'frame' && record.oversize === true;
    const place: Place = { n, offset, time, at, size, sha256, oversize };
    if (record.type === 'frame') this.#frame(record, place);
    else if (record.type === 'stderr') {
      const { item } = this.#aside(place, 'stderr');
      item.stderr = { pieces: item.stderr.pieces + 1, bytes: item.stderr.bytes + size };
    } else if (record.type === 'http' && !isHttpTrouble(record)) {
      this.#aside(place, `http ${record.phase}`).item.http++;
    } else {
      const { data: _content, ...rest } = record;
      this.#push({ type: record.type, record: rest as TraceRecord, place });
    }
  }

  /** Items whose turn it is. After `end`, all. */
  *ready(end: boolean): Generator<TraceItem> {
    for (; this.#head < this.#queue.length; this.#head++) {
      const held = this.#queue[this.#head] as Held;
      const wait = held === this.#asides || (!held.done && this.#queue.length - this.#head <= WINDOW);
      if (wait && !end) break;
      held.sent = true;
      yield finished(held.item);
    }
    if (this.#head > WINDOW || this.#head === this.#queue.length) {
      this.#queue = this.#queue.slice(this.#head);
      this.#head = 0;
    }
  }

  #frame(record: TraceRecord & { type: 'frame' }, frame: Place): void {
    const content = contentOf(record);
    const findings = [...new Set([...(record.findings ?? []), ...content.findings])];
    if (frame.oversize) findings.push('OVERSIZE');
    if (record.prefix === true) findings.push('PREFIX_ONLY');
    if (content.messages.length === 0) {
      const { item } = this.#aside(frame, content.kind === 'blank' ? 'blank line' : 'not JSON-RPC');
      if (content.kind === 'blank') item.blank++;
      else item.noise = { ...item.noise, [record.dir]: item.noise[record.dir] + 1 };
      addAll(item.findings, findings);
    }
    content.messages.forEach((message, i) => {
      const place = content.kind === 'batch' ? { ...frame, member: i } : frame;
      const odd = content.kind === 'batch' ? ['BATCH', ...findings] : findings;
      this.#message(record.dir, message, place, odd, record.conversation ?? '');
    });
  }

  #message(
    dir: Direction,
    message: Message,
    place: Place,
    findings: readonly string[],
    conversation: string,
  ): void {
    const seen = this.#correlator.observe(dir, message, conversation);
    switch (seen.type) {
      case 'call':
        this.#open(seen.call, object(seen.request.params), place, findings, conversation);
        break;
      case 'answer':
        this.#answer(seen.call, seen.response, seen.late, place, findings);
        break;
      case 'stray': {
        const odd = [
          ...findings,
          seen.duplicateOf === undefined ? 'ANSWER_WITHOUT_REQUEST' : 'DUPLICATE_ANSWER',
        ];
        const { id, ok } = seen.response;
        this.#push({
          type: 'stray',
          dir,
          id: idText(id),
          place,
          duplicateOf: seen.duplicateOf,
          ok,
          findings: odd,
        });
        break;
      }
      default:
        this.#notice(dir, seen.message, place, findings, conversation);
        if (seen.type === 'cancel' && seen.call !== undefined) {
          const turn = this.#turns.get(seen.call.call)?.item;
          if (turn !== undefined) turn.outcome = 'cancelled';
        }
    }
  }

  #open(
    call: Call,
    params: Members | undefined,
    request: Place,
    findings: readonly string[],
    conversation: string,
  ): void {
    const meta = object(params?.['_meta']);
    const state = params?.['requestState'];
    const turn: OpenTurn = {
      type: 'turn',
      call: call.call,
      dir: call.direction,
      method: clip(call.method),
      id: idText(call.id),
      conversation: conversation === '' ? undefined : clip(conversation),
      subject: subjectOf(call.method, params),
      request,
      answer: undefined,
      outcome: 'unanswered',
      error: undefined,
      findings: [...findings, ...(call.idInUse ? ['ID_IN_USE'] : [])],
      progress: 0,
      continues: typeof state === 'string' ? this.#states.get(state.slice(0, 4_096)) : undefined,
      traceparent: text(meta?.['traceparent']),
      protocol: versionOf(params, meta),
      peer: nameOf(params?.['clientInfo'] ?? meta?.['io.modelcontextprotocol/clientInfo']),
    };
    const token = progressKey(conversation, call.direction, meta?.['progressToken']);
    if (token !== undefined) this.#progress.set(token, turn);
    const held: Held<OpenTurn> = { item: turn, done: false, sent: false };
    this.#hold(held);
    this.#turns.set(call.call, held);
  }

  #answer(
    call: Call,
    response: Message & { type: 'response' },
    late: boolean,
    place: Place,
    findings: readonly string[],
  ): void {
    const held = this.#turns.get(call.call);
    if (held === undefined) return;
    this.#turns.delete(call.call);
    const turn = held.item;
    const result = object(response.result);
    const error = object(response.error);
    turn.answer = place;
    addAll(turn.findings, late ? [...findings, 'ANSWER_AFTER_CANCEL'] : findings);
    const state = result?.['requestState'];
    if (result?.['resultType'] === 'input_required' && typeof state === 'string') {
      this.#states.set(state.slice(0, 4_096), call.call);
    }
    if (!response.ok) {
      const code = error?.['code'];
      const said = error?.['message'];
      turn.error = {
        code: typeof code === 'number' ? code : undefined,
        message: typeof said === 'string' ? clip(said) : '',
      };
    }
    if (!late) {
      turn.outcome = !response.ok
        ? 'error'
        : result?.['isError'] === true
          ? 'tool_error'
          : result?.['resultType'] === 'input_required'
            ? 'input_required'
            : 'ok';
    }
    const meta = object(result?.['_meta']);
    turn.protocol = versionOf(result, undefined) ?? turn.protocol;
    turn.peer = nameOf(result?.['serverInfo'] ?? meta?.['io.modelcontextprotocol/serverInfo']) ?? turn.peer;
    held.done = true;
    if (held.sent) this.#push({ type: 'late_answer', turn: finished(turn) as Turn });
  }

  #notice(
    dir: Direction,
    message: Message,
    place: Place,
    findings: readonly string[],
    conversation: string,
  ): void {
    const notification = message.type === 'notification' ? message : undefined;
    const method = notification === undefined ? 'not JSON-RPC' : clip(notification.method);
    if (notification?.method === 'notifications/progress') {
      const asked = dir === 's2c' ? 'c2s' : 's2c';
      const token = progressKey(conversation, asked, object(notification.params)?.['progressToken']);
      const turn = token === undefined ? undefined : this.#progress.get(token);
      if (turn !== undefined) {
        if (turn.answer === undefined) turn.progress++;
        else findings = [...findings, 'PROGRESS_AFTER_ANSWER'];
      }
    }
    const { item } = this.#aside(place, method, notification === undefined ? undefined : dir);
    addAll(item.findings, findings);
    if (notification === undefined) {
      item.noise = { ...item.noise, [dir]: item.noise[dir] + 1 };
      return;
    }
    const key = `${dir} ${method}`;
    const known = item.counts.get(key);
    if (known !== undefined) known.count++;
    else if (item.counts.size < MAX_METHODS) item.counts.set(key, { dir, method, count: 1 });
    else {
      const others = item.counts.get('others') ?? { dir, method: '(others)', count: 0 };
      item.counts.set('others', { ...others, count: others.count + 1 });
    }
  }

  /** The open fold of asides, or a new one. */
  #aside(place: Place, kind: string, notified?: Direction): Held<OpenAsides> {
    if (this.#asides === undefined) {
      const item: OpenAsides = {
        type: 'asides',
        first: place,
        last: place,
        counts: new Map(),
        stderr: { pieces: 0, bytes: 0 },
        blank: 0,
        http: 0,
        noise: { c2s: 0, s2c: 0 },
        findings: [],
        places: [],
      };
      const held: Held<OpenAsides> = { item, done: true, sent: false };
      this.#hold(held);
      this.#asides = held;
    }
    const { item } = this.#asides;
    item.last = place;
    if (item.places.length < MAX_PLACES)
      item.places.push({ ...place, kind, ...(notified === undefined ? {} : { notified }) });
    return this.#asides;
  }

  #push(item: Item): void {
    this.#hold({ item, done: true, sent: false });
  }

  #hold(held: Held): void {
    this.#asides = undefined;
    this.#queue.push(held);
  }
}

function progressKey(conversation: string, asked: Direction, token: unknown): string | undefined {
  return typeof token === 'string' || typeof token === 'number'
    ? `${conversation} ${asked} ${typeof token} ${clip(String(token))}`
    : undefined;
}

/** Whether an HTTP record stands for itself: it was refused, ended early, failed, or was odd. */
function isHttpTrouble({ phase, status, ended, findings }: TraceRecord & { type: 'http' }): boolean {
  return (
    phase === 'refused' ||
    (ended !== undefined && ended !== 'complete') ||
    (status !== undefined && status >= 400) ||
    (findings !== undefined && findings.length > 0)
  );
}

function addAll(to: string[], names: readonly string[]): void {
  for (const name of names) if (!to.includes(name)) to.push(name);
}

/** An item as it is now: a turn that is answered later is another one. */
function finished(item: Item): TraceItem {
  if (item.type === 'turn') return { ...item, findings: [...item.findings] };
  if (item.type !== 'asides') return item;
  const { counts, ...rest } = item;
  return { ...rest, type: 'asides', notices: [...counts.values()] };
}

/** The items of a trace in the order in which they began. */
export async function* readTurns(lines: AsyncIterable<TraceLine>): AsyncGenerator<TraceItem> {
  const fold = new Fold();
  for await (const line of lines) {
    fold.take(line);
    yield* fold.ready(false);
  }
  yield* fold.ready(true);
}
