/**
 * A trace as a script to play: what the client sent, in the order of the record, and what had been answered by then.
 * Content stays in the file; a step is a place in it.
 */

import { canonical } from '@belay/envelope';
import { Correlator, type Frame, type Message, readFrame, type Request } from '@belay/mcp';
import { recordData, type TraceLine, type TraceRecord } from '@belay/trace';

/** A request of the client, and where its frame is. */
export interface ScriptCall {
  /** Counts the client's requests from 1. */
  readonly call: number;
  readonly method: string;
  /** Of a `tools/call`. */
  readonly tool: string | undefined;
  /** What a tool that runs commands was told to run. */
  readonly command: string | undefined;
  /** Asks for a list from its beginning, not for a further page. */
  readonly first: boolean;
  readonly offset: number;
  /** Which member of a batch it is. */
  readonly member: number | undefined;
  /** Number of the envelope that it became, of a call of a tool that was sent. */
  readonly seq: number | undefined;
  /** Wall clock of the record, milliseconds since 1970. */
  readonly time: number;
}

/** The record's answer to a request of the client. */
export interface ScriptAnswer {
  readonly call: number;
  readonly offset: number;
  readonly member: number | undefined;
  readonly seq: number | undefined;
  readonly time: number;
  /** It came after the client had cancelled the call. */
  readonly late: boolean;
}

export type Step =
  | {
      readonly type: 'send';
      readonly offset: number;
      /** The frame was too large to keep and can't be sent again. */
      readonly lost: boolean;
      readonly calls: readonly ScriptCall[];
      /** Calls that this frame cancels. */
      readonly cancels: readonly number[];
      /** Nothing but answers to requests of the server: these are given when they are asked for. */
      readonly answersOnly: boolean;
    }
  | { readonly type: 'receive'; readonly answers: readonly ScriptAnswer[] }
  | {
      readonly type: 'record';
      readonly record: TraceRecord & { type: 'open' | 'state' | 'denial' | 'policy' | 'gap' | 'close' };
    };

/** What the record answered to a request of the server, by what was asked. */
export interface ServerRequest {
  readonly offset: number;
  readonly member: number | undefined;
}

/** What has to be known of a whole trace before it is played. */
export interface Survey {
  /** Calls of the client that have no answer in the record, or were cancelled before it came. */
  readonly unanswered: ReadonlySet<number>;
  /** Answers of the client, in order, by `requestKey`. */
  readonly answers: ReadonlyMap<string, readonly ServerRequest[]>;
  /** How long a call took in the record, milliseconds, of those that took more than a second. */
  readonly slow: ReadonlyMap<number, number>;
  readonly calls: number;
  readonly toolCalls: number;
  /** Calls of tools that were sent without an id: they have no answer and are no turn. */
  readonly silentCalls: number;
}

/** Milliseconds: a call that took longer is remembered as slow. */
const SLOW = 1_000;

/** Equal for requests that ask the same; undefined for parameters that have no canonical form. */
export function requestKey({ method, params }: Pick<Request, 'method' | 'params'>): string | undefined {
  try {
    // A progress token is the asker's own number for this very request.
    return `${method}\n${canonical({ ...(params as object | undefined), _meta: null })}`;
  } catch {
    return undefined;
  }
}

/** What the frame of a record says; nothing of one that was not kept. */
export function messagesOf(record: TraceRecord & { type: 'frame' }): readonly Message[] {
  const bytes = recordData(record);
  if (bytes === undefined) return [];
  return readFrame(frameOf(bytes)).messages;
}

/** Bytes that came as one frame. */
export const frameOf = (bytes: Buffer): Frame => ({
  bytes,
  skimmed: undefined,
  size: bytes.length,
  sha256: '',
  terminator: 'none',
});

/** Numbers the client's requests, both where the record is surveyed and where it is played. */
class Numbering {
  readonly #correlator = new Correlator();
  /** Number among the client's requests, by the correlator's own. */
  readonly #numbers = new Map<number, number>();
  count = 0;

  observe(dir: 'c2s' | 's2c', message: Message, conversation: string) {
    const seen = this.#correlator.observe(dir, message, conversation);
    switch (seen.type) {
      case 'call':
        if (dir === 'c2s') this.#numbers.set(seen.call.call, ++this.count);
        return { type: 'call', seen, number: this.count } as const;
      case 'answer': {
        const number = this.#numbers.get(seen.call.call);
        if (dir === 's2c') this.#numbers.delete(seen.call.call);
        return { type: 'answer', seen, number } as const;
      }
      case 'cancel':
        return {
          type: 'cancel',
          number: seen.call === undefined ? undefined : this.#numbers.get(seen.call.call),
        } as const;
      default:
        return { type: 'other' } as const;
    }
  }
}

/** One pass over the trace. */
export async function survey(lines: AsyncIterable<TraceLine>): Promise<Survey> {
  const numbering = new Numbering();
  const open = new Map<number, number>();
  const slow = new Map<number, number>();
  const unanswered = new Set<number>();
  const asked = new Map<number, string | undefined>();
  const answers = new Map<string, ServerRequest[]>();
  let [toolCalls, silentCalls] = [0, 0];
  for await (const line of lines) {
    if (!('record' in line) || line.record.type !== 'frame') continue;
    const { record, offset } = line;
    const messages = messagesOf(record);
    for (const [i, message] of messages.entries()) {
      const member = messages.length > 1 ? i : undefined;
      const found = numbering.observe(record.dir, message, record.conversation ?? '');
      if (record.dir === 'c2s' && message.type === 'notification' && message.method === 'tools/call')
        silentCalls++;
      if (found.type === 'call' && record.dir === 'c2s') {
        open.set(found.number, record.at);
        if (found.seen.call.method === 'tools/call') toolCalls++;
      } else if (found.type === 'call') {
        asked.set(found.seen.call.call, requestKey(found.seen.request));
      } else if (found.type === 'answer' && record.dir === 's2c' && found.number !== undefined) {
        const took = (record.at - (open.get(found.number) ?? record.at)) / 1000;
        if (took > SLOW) slow.set(found.number, took);
        open.delete(found.number);
        if (found.seen.late) unanswered.add(found.number);
      } else if (found.type === 'answer') {
        const key = asked.get(found.seen.call.call);
        asked.delete(found.seen.call.call);
        if (key !== undefined) answers.set(key, [...(answers.get(key) ?? []), { offset, member }]);
      }
    }
  }
  return {
    unanswered: new Set([...unanswered, ...open.keys()]),
    answers,
    slow,
    calls: numbering.count,
    toolCalls,
    silentCalls,
  };
}

/** The steps of a trace in the order of the record, made as they are asked for. */
export async function* script(lines: AsyncIterable<TraceLine>): AsyncGenerator<Step> {
  const numbering = new Numbering();
  for await (const line of lines) {
    if (!('record' in line)) continue;
    const { record, offset } = line;
    const time = Date.parse(record.time);
    switch (record.type) {
      case 'frame': {
        const messages = messagesOf(record);
        const calls: ScriptCall[] = [];
        const cancels: number[] = [];
        const answers: ScriptAnswer[] = [];
        let responses = 0;
        // A frame became one envelope for each call of a tool, or answer to one, that is in it.
        let told = 0;
        const seqOf = (tool: boolean): number | undefined => (tool ? record.seqs?.[told++] : undefined);
        for (const [i, message] of messages.entries()) {
          const member = messages.length > 1 ? i : undefined;
          const found = numbering.observe(record.dir, message, record.conversation ?? '');
          if (found.type === 'call' && record.dir === 'c2s') {
            const { method, tool } = found.seen.call;
            const first = isFirstPage(found.seen.request.params);
            const command = commandOf(found.seen.request.params);
            const seq = seqOf(method === 'tools/call');
            calls.push({ call: found.number, method, tool, command, first, offset, member, seq, time });
          } else if (found.type === 'cancel' && record.dir === 'c2s' && found.number !== undefined) {
            cancels.push(found.number);
          } else if (found.type === 'answer' && record.dir === 's2c' && found.number !== undefined) {
            const { late } = found.seen;
            const seq = seqOf(found.seen.call.method === 'tools/call');
            answers.push({ call: found.number, offset, member, seq, time, late });
          }
          if (message.type === 'response') responses++;
        }
        if (record.dir === 'c2s') {
          const answersOnly = messages.length > 0 && responses === messages.length;
          yield { type: 'send', offset, lost: record.oversize === true, calls, cancels, answersOnly };
        } else {
          if (answers.length > 0) yield { type: 'receive', answers };
        }
        break;
      }
      case 'open':
      case 'state':
      case 'denial':
      case 'policy':
      case 'gap':
      case 'close':
        yield { type: 'record', record };
        break;
      default:
    }
  }
}

const isFirstPage = (params: unknown): boolean =>
  typeof (params as { readonly cursor?: unknown } | null | undefined)?.cursor !== 'string';

/** Names under which tools are given what they are to run. */
const COMMANDS = ['command', 'cmd', 'script', 'commandLine', 'shell_command'];
const ARGUMENTS = ['args', 'arguments', 'argv'];

function commandOf(params: unknown): string | undefined {
  const given = (params as { readonly arguments?: unknown } | null | undefined)?.arguments;
  if (typeof given !== 'object' || given === null) return undefined;
  const values = given as Readonly<Record<string, unknown>>;
  const command = COMMANDS.map((name) => values[name]).find((value) => value !== undefined);
  const words = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value]);
  const all = [...words(command), ...words(ARGUMENTS.map((name) => values[name]).find(Array.isArray) ?? [])];
  return command === undefined || !all.every((word) => typeof word === 'string') ? undefined : all.join(' ');
}
