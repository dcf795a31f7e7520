import type { Entry, SenderRole } from '@belay/envelope';

/**
 * What an entry rests on, weakest first. Derived from what the collector verified, never from what a sender wrote.
 * (Stronger levels need more than one entry and come with the receipts of whole sessions.)
 */
export const AUTHORITY_LEVELS = ['asserted', 'observed'] as const;

export type AuthorityLevel = (typeof AUTHORITY_LEVELS)[number];

/** Entries of one origin: one sink through one token, or the collector itself. */
export type Witness =
  | {
      readonly role: SenderRole;
      readonly sink: string;
      readonly token: string;
      /** Trust domain that an admin had declared. The collector's word: no entry of the receipt has to show it. */
      readonly domain?: string;
      /** Fingerprint of the declared key under which the collector verified the batches. */
      readonly signed?: string;
      readonly level: AuthorityLevel;
      /** How many entries. */
      readonly events: number;
    }
  | { readonly role: 'collector'; readonly level: 'observed'; readonly events: number };

export interface Authority {
  /** The lowest level of `by`. */
  readonly level: AuthorityLevel;
  /** In the order of their first entries. */
  readonly by: readonly Witness[];
}

/** Which entries of a role the collector or a sink's key vouches for. */
const OBSERVES: Readonly<Record<SenderRole | 'collector', 'always' | 'when signed' | 'never'>> = {
  collector: 'always',
  sink: 'when signed',
  verifier: 'when signed',
  agent: 'never',
};

/** The level of one entry. */
export function authorityLevel(entry: Entry): AuthorityLevel {
  const { role, signed } = entry.line;
  const observes = OBSERVES[role];
  return observes === 'always' || (observes === 'when signed' && signed !== undefined)
    ? 'observed'
    : 'asserted';
}

/** The authority of a run of entries, of which there is at least one. `domainOf` says what an admin declared. */
export function authorityOf(
  entries: readonly Entry[],
  domainOf: (sink: string, token: string) => string | undefined = () => undefined,
): Authority {
  const by = new Map<string, Witness & { events: number }>();
  for (const entry of entries) {
    const { role, sink, token, signed } = entry.line;
    const key = [role, sink, token, signed].join('\n');
    const seen = by.get(key);
    if (seen !== undefined) {
      seen.events++;
    } else if (role === 'collector') {
      by.set(key, { role, level: 'observed', events: 1 });
    } else {
      // The format has both for every role but the collector's, and parseEntry holds it to that.
      const domain = domainOf(sink as string, token as string);
      by.set(key, {
        role,
        sink: sink as string,
        token: token as string,
        ...(domain === undefined ? {} : { domain }),
        ...(signed === undefined ? {} : { signed }),
        level: authorityLevel(entry),
        events: 1,
      });
    }
  }
  const all = [...by.values()];
  return { level: all.every(({ level }) => level === 'observed') ? 'observed' : 'asserted', by: all };
}
