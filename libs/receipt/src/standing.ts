import type { Entry, SinkKind, TokenRole } from '@belay/envelope';

/** An auditor's word on a session, or on one call of it. */
export interface Label {
  /** Index of the log entry that records it. */
  readonly index: number;
  /** Identifier of the auditor's key. */
  readonly auditor: string;
  /** Identifier of the call; absent: of the session as a whole. */
  readonly call?: string | undefined;
  readonly says: 'violated' | 'not_violated';
}

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
 * Who may say what in a log, and what auditors said, by its collector's own entries and by nothing that a sender wrote.
 * What was declared later does not change what an earlier line rests on.
 */
export class Standing {
  readonly #sinks = new Map<string, SinkStanding[]>();
  readonly #tokens = new Map<string, TokenStanding>();
  readonly #labels = new Map<string, Label[]>();

  /** From entries of the log, in its order; those of senders say nothing here. */
  constructor(entries: Iterable<Entry> = []) {
    for (const entry of entries) this.apply(entry);
  }

  /** Takes in the next entry of the log. */
  apply(entry: Entry): void {
    if (entry.by !== 'collector') return;
    const { statement } = entry;
    const { index } = entry.line;
    if (statement.kind === 'sink.declared') {
      const { sinkKind: kind, domain, fingerprint: key } = statement;
      const before = this.#sinks.get(statement.sink) ?? [];
      before.push({ kind, domain, key, index });
      this.#sinks.set(statement.sink, before);
    } else if (statement.kind === 'token.issued') {
      const { role, domain, by } = statement;
      this.#tokens.set(statement.token, { role, domain, issuedBy: by, index });
    } else if (statement.kind === 'label.set') {
      const { session, call, says, by } = statement;
      const before = this.#labels.get(session) ?? [];
      before.push({ index, auditor: by, ...(call === undefined ? {} : { call }), says });
      this.#labels.set(session, before);
    }
  }

  /** What was declared for a sink when the entry at `index` was written. */
  sinkAt(sink: string, index: number): SinkStanding | undefined {
    return this.#sinks.get(sink)?.findLast((standing) => standing.index < index);
  }

  token(token: string): TokenStanding | undefined {
    return this.#tokens.get(token);
  }

  /**
   * What auditors said of a session and of its calls, in the first `size` entries: of each auditor the last about the same,
   * who may have looked again.
   */
  labels(session: string, size: number): readonly Label[] {
    const last = new Map<string, Label>();
    for (const label of this.#labels.get(session) ?? []) {
      if (label.index >= size) break;
      const key = `${label.auditor} ${label.call ?? ''}`;
      // Anew, so that the order is that of the entries.
      last.delete(key);
      last.set(key, label);
    }
    return [...last.values()];
  }
}
