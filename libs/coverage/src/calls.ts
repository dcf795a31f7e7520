import type { SentEntry } from './epoch-coverage.js';

/** A line about a call, as far as pairing needs it. */
export interface Sighting {
  readonly sink: string;
  readonly kind: 'call' | 'result';
  /** As in the envelope; absent where the sink could not name the call. */
  readonly call?: string | undefined;
  readonly match?: string | undefined;
  readonly tool?: string | undefined;
  readonly index: number;
}

/**
 * How what several sinks saw compares. `same`: two or more stated a `match`, and these agree. `different`: they do not.
 * `one`: only one sink stated any. `untold`: none did.
 */
export type Sameness = 'same' | 'different' | 'one' | 'untold';

/** The entries of one sink about a call, or about several that can't be told apart. */
export interface SeenBy {
  readonly sink: string;
  readonly calls: readonly number[];
  readonly results: readonly number[];
}

/**
 * A call as the sinks of a session saw it. Calls that only a `weak` identifier names and that were identical stand
 * together: which line of one sink is about which of another can't be told, so the group is "`identical` calls" and
 * each line about one of them.
 */
export interface SeenCall {
  /** The identifiers; one, but for a group. */
  readonly calls: readonly string[];
  readonly weak: boolean;
  /** How many calls there were at least: the most that one sink saw. */
  readonly identical: number;
  /** By name of the sink. */
  readonly seen: readonly SeenBy[];
  readonly arguments: Sameness;
  readonly outcome: Sameness;
}

/** What an entry says of a call; undefined for other kinds. A second story about a number is not taken for one. */
export function sightingOf({ line, envelope }: SentEntry): Sighting | undefined {
  const { kind, sink, call, match, attrs } = envelope;
  if ((kind !== 'call' && kind !== 'result') || line.conflict !== undefined) return undefined;
  const tool = attrs?.['tool'] as string | undefined;
  return { sink, kind, call, match, tool, index: line.index };
}

/** Pairs the sightings of one session by `call`. In the order of the first line about each. */
export function pairCalls(sightings: readonly Sighting[]): SeenCall[] {
  const argumentsOf = new Map<string, string>();
  for (const { kind, call, match, tool } of sightings) {
    if (kind === 'call' && call !== undefined && match !== undefined && !argumentsOf.has(call)) {
      argumentsOf.set(call, `${match} ${tool ?? ''}`);
    }
  }
  const groups = new Map<string, Sighting[]>();
  for (const sighting of sightings) {
    const { call } = sighting;
    if (call === undefined) continue;
    const key = isWeak(call) ? `weak ${argumentsOf.get(call) ?? call}` : call;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [sighting]);
    else group.push(sighting);
  }
  return [...groups.values()].map(seenCall);
}

const isWeak = (call: string): boolean => call.startsWith('weak:');

function seenCall(group: readonly Sighting[]): SeenCall {
  const weak = isWeak(group[0]?.call as string);
  const bySink = new Map<string, Sighting[]>();
  for (const sighting of group) {
    const lines = bySink.get(sighting.sink);
    if (lines === undefined) bySink.set(sighting.sink, [sighting]);
    else lines.push(sighting);
  }
  const seen = [...bySink]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([sink, lines]) => ({
      sink,
      calls: lines.filter(({ kind }) => kind === 'call').map(({ index }) => index),
      results: lines.filter(({ kind }) => kind === 'result').map(({ index }) => index),
    }));
  const compare = (kind: Sighting['kind']): Sameness =>
    sameness(
      [...bySink.values()].map((lines) =>
        lines.flatMap((line) => (line.kind === kind && line.match !== undefined ? [line.match] : [])),
      ),
      weak,
    );
  return {
    calls: [...new Set(group.map(({ call }) => call as string))],
    weak,
    identical: weak
      ? Math.max(...seen.map(({ calls, results }) => Math.max(calls.length, results.length)))
      : 1,
    seen,
    arguments: compare('call'),
    outcome: compare('result'),
  };
}

/** Compares what each sink stated. Of a group, all of one sink's have to be among those of who stated the most. */
function sameness(stated: readonly (readonly string[])[], weak: boolean): Sameness {
  const told = stated.filter(({ length }) => length > 0).sort((a, b) => b.length - a.length);
  const most = told[0];
  if (most === undefined) return 'untold';
  if (!weak) {
    if (new Set(told.flat()).size > 1) return 'different';
    return told.length > 1 ? 'same' : 'one';
  }
  for (const fewer of told.slice(1)) {
    const left = new Map<string, number>();
    for (const match of most) left.set(match, (left.get(match) ?? 0) + 1);
    for (const match of fewer) {
      const times = left.get(match) ?? 0;
      if (times === 0) return 'different';
      left.set(match, times - 1);
    }
  }
  return told.length > 1 ? 'same' : 'one';
}
