/** By what the sinks of one agent run recognise each other's calls, and what of a tool's name is said. */

import { callId, matchId, normalisedTool, sessionKey, weakCallId } from '@belay/envelope/sink';
import type { Privacy } from './settings.js';

/** Distinct (tool, arguments) pairs whose occurrences are counted; past it, counting starts over. */
const MAX_COUNTED = 65_536;
const NAME = /^[A-Za-z0-9._@/:+-]{1,128}$/;
/** Where clients put their own id of the call into `_meta` of `tools/call`. */
const TOOL_USE_ID = ['claudecode/toolUseId', 'toolUseId'];
const MAX_TOOL_USE_ID = 256;

export class CallIdentity {
  readonly #key: Buffer;
  readonly #privacy: Privacy;

  constructor(machineSecret: Buffer, session: string, privacy: Privacy) {
    this.#key = sessionKey(machineSecret, session);
    this.#privacy = privacy;
  }

  /**
   * A tool's name as an attribute: normalised, or keyed where it would not be a name (the server chooses it) and where
   * the policy is strict.
   */
  tool(name: string | undefined): string | undefined {
    if (name === undefined) return undefined;
    const bare = normalisedTool(name);
    if (this.#privacy === 'minimal' && NAME.test(name)) return bare;
    return this.match(bare);
  }

  /** Undefined for content without a canonical form (a lone surrogate, too deep). */
  match(content: unknown): string | undefined {
    return orUndefined(() => matchId(this.#key, content));
  }

  /** Of the agent's own id where it is known. */
  call(toolUseId: string): string {
    return callId(this.#key, toolUseId);
  }

  /** Of tool, arguments and how many equal ones were before. `match` is that of the arguments. */
  weakCall(
    tool: string,
    args: unknown,
    match: string,
    occurrenceOf: (pair: string) => number,
  ): string | undefined {
    const bare = normalisedTool(tool);
    return orUndefined(() => weakCallId(this.#key, bare, occurrenceOf(`${bare}\n${match}`), args));
  }
}

/** How often each pair was seen, in one process. */
export class Occurrences {
  readonly #counts = new Map<string, number>();

  readonly next = (pair: string): number => {
    if (this.#counts.size >= MAX_COUNTED) this.#counts.clear();
    const occurrence = (this.#counts.get(pair) ?? 0) + 1;
    this.#counts.set(pair, occurrence);
    return occurrence;
  };
}

/** The client's own id of a call, from the `params` of its request. */
export function toolUseIdOf(params: unknown): string | undefined {
  const meta = (params as Readonly<Record<string, unknown>> | null | undefined)?.['_meta'];
  if (typeof meta !== 'object' || meta === null) return undefined;
  for (const name of TOOL_USE_ID) {
    const id = (meta as Readonly<Record<string, unknown>>)[name];
    if (isToolUseId(id)) return id;
  }
  return undefined;
}

export const isToolUseId = (id: unknown): id is string =>
  typeof id === 'string' && id.length > 0 && id.length <= MAX_TOOL_USE_ID;

/** What of a result is compared across sinks: its `content` where it has one. */
export function comparedContent(result: unknown): unknown {
  const content = (result as { readonly content?: unknown } | null | undefined)?.content;
  return typeof result === 'object' && content !== undefined ? content : result;
}

function orUndefined(make: () => string): string | undefined {
  try {
    return make();
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}
