import type { Entry, SinkKind, TokenRole } from '@belay/envelope';

/** What an admin declared for a sink, from an entry of the log. */
export interface SinkStanding {
  readonly kind?: SinkKind | undefined;
  /** Trust domain. */
  readonly domain?: string | undefined;
  /** Fingerprint of the sink's key. */
  readonly key?: string | undefined;
  /** Index of the entry that says so. */
  readonly index: number;
}

/** Who was given a token, from an entry of the log. */
export interface TokenStanding {
  readonly role: TokenRole;
  readonly domain?: string | undefined;
  /** Identifier of the admin key. */
  readonly issuedBy: string;
  readonly index: number;
}

/**
 * Who may say what in a log, by its collector's own entries and by nothing that a sender wrote. What was declared
 * later does not change what an earlier line rests on.
 */
export class Standing {
  readonly #sinks = new Map<string, SinkStanding[]>();
  readonly #tokens = new Map<string, TokenStanding>();

  /** From entries of the log, in its order; those of senders say nothing here. */
  constructor(entries: Iterable<Entry>) {
    for (const entry of entries) {
      if (entry.by !== 'collector') continue;
      const { statement } = entry;
      const { index } = entry.line;
      if (statement.kind === 'sink.declared') {
        const { sinkKind: kind, domain, fingerprint: key } = statement;
        const before = this.#sinks.get(statement.sink) ?? [];
        this.#sinks.set(statement.sink, [...before, { kind, domain, key, index }]);
      } else if (statement.kind === 'token.issued') {
        const { role, domain, by } = statement;
        this.#tokens.set(statement.token, { role, domain, issuedBy: by, index });
      }
    }
  }

  /** What was declared for a sink when the entry at `index` was written. */
  sinkAt(sink: string, index: number): SinkStanding | undefined {
    return this.#sinks.get(sink)?.findLast((standing) => standing.index < index);
  }

  token(token: string): TokenStanding | undefined {
    return this.#tokens.get(token);
  }
}
