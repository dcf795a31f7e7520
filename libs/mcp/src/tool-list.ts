import type { Call, Correlated, Direction } from './correlate.js';

/**
 * What was odd about the tools of a server: a definition that is not what it was (`TOOL_CHANGED`), a list that differs
 * although no `list_changed` said so, a name that stands in it twice, a call after a `list_changed` and before the next
 * list, a call of a tool that a whole and fresh list does not have.
 */
export type ToolFinding =
  'TOOL_CHANGED' | 'TOOLS_CHANGED_UNANNOUNCED' | 'TOOL_NAME_TWICE' | 'TOOL_LIST_STALE' | 'TOOL_NOT_LISTED';

/** Listings that were begun and not finished, and tools of one server, that are remembered. */
const MAX_LISTINGS = 64;
const MAX_TOOLS = 16_384;

/** One walk through the pages of `tools/list`. */
interface Listing {
  readonly seen: Set<string>;
  /** A `list_changed` came while it was under way. */
  overtaken: boolean;
}

type Members = Readonly<Record<string, unknown>>;

/**
 * The tools of one server as its `tools/list` answers say, pages merged, each by the digest of its definition. Holds
 * digests alone; `digest` is of a definition, undefined where it has none.
 */
export class ToolList {
  readonly #digest: (definition: unknown) => string | undefined;
  readonly #tools = new Map<string, string | undefined>();
  /** By the request that asked for a page, and by the cursor of a page that nobody has asked for yet. */
  readonly #asked = new Map<number, Listing>();
  readonly #next = new Map<string, Listing>();
  #complete = false;
  #stale = false;

  constructor(digest: (definition: unknown) => string | undefined) {
    this.#digest = digest;
  }

  /** Digest of the definition a tool was last listed with. */
  definition(tool: string): string | undefined {
    return this.#tools.get(tool);
  }

  /** Takes what the correlator made of a message; both directions, in the order of the record. */
  observe(direction: Direction, seen: Correlated): readonly ToolFinding[] {
    if (seen.type === 'call' && direction === 'c2s') {
      if (seen.call.method === 'tools/list') this.#ask(seen.call, seen.request.params);
      return seen.call.tool === undefined ? [] : this.#judge(seen.call.tool);
    }
    if (seen.type === 'answer' && seen.call.method === 'tools/list' && direction === 's2c') {
      return this.#page(seen.call, seen.response.result);
    }
    const method = seen.type === 'other' && seen.message.type === 'notification' ? seen.message.method : '';
    if (direction === 's2c' && method === 'notifications/tools/list_changed') {
      this.#stale = true;
      for (const listing of [...this.#asked.values(), ...this.#next.values()]) listing.overtaken = true;
    }
    return [];
  }

  #judge(tool: string): readonly ToolFinding[] {
    if (this.#stale) return ['TOOL_LIST_STALE'];
    return this.#complete && !this.#tools.has(tool) ? ['TOOL_NOT_LISTED'] : [];
  }

  #ask(call: Call, params: unknown): void {
    const cursor = (params as Members | null | undefined)?.['cursor'];
    const begun = typeof cursor === 'string' ? this.#next.get(cursor) : undefined;
    // A page of a walk whose beginning was not seen is not a list; what is on it counts all the same.
    bounded(this.#asked, call.call, begun ?? { seen: new Set(), overtaken: cursor !== undefined });
  }

  #page(call: Call, result: unknown): readonly ToolFinding[] {
    const listing = this.#asked.get(call.call);
    this.#asked.delete(call.call);
    const { tools, nextCursor } = (result ?? {}) as Members;
    if (listing === undefined || !Array.isArray(tools)) return [];
    const findings = new Set<ToolFinding>();
    for (const definition of tools) this.#tool(definition, listing, findings);
    if (typeof nextCursor === 'string') {
      bounded(this.#next, nextCursor, listing);
    } else if (!listing.overtaken) {
      for (const name of [...this.#tools.keys()].filter((known) => !listing.seen.has(known))) {
        this.#tools.delete(name);
        this.#unannounced(findings);
      }
      this.#complete = true;
      this.#stale = false;
    }
    return [...findings];
  }

  #tool(definition: unknown, listing: Listing, findings: Set<ToolFinding>): void {
    const name = (definition as Members | null | undefined)?.['name'];
    if (typeof name !== 'string') return;
    if (listing.seen.has(name)) findings.add('TOOL_NAME_TWICE');
    listing.seen.add(name);
    const digest = this.#digest(definition);
    if (!this.#tools.has(name)) {
      this.#unannounced(findings);
    } else if (this.#tools.get(name) !== digest) {
      findings.add('TOOL_CHANGED');
      this.#unannounced(findings);
    }
    bounded(this.#tools, name, digest, MAX_TOOLS);
  }

  #unannounced(findings: Set<ToolFinding>): void {
    if (this.#complete && !this.#stale) findings.add('TOOLS_CHANGED_UNANNOUNCED');
  }
}

function bounded<K, V>(map: Map<K, V>, key: K, value: V, most = MAX_LISTINGS): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value as K);
}
