import type { SeenCall, SentEntry } from '@belay/coverage';
import type { Entry, SenderRole, SinkKind } from '@belay/envelope';
import { leafHash } from '@belay/merkle';
import type { Label, Standing } from './standing.js';

/** What a statement about a call rests on, weakest first. */
export const CALL_AUTHORITY_LEVELS = [
  'asserted',
  'observed',
  'corroborated',
  'replayed',
  'adjudicated',
] as const;

export type CallAuthorityLevel = (typeof CALL_AUTHORITY_LEVELS)[number];

/** Everything that authority and disposition of a session are derived from; all of it is in the log or signed by it. */
export interface SessionEvidence {
  readonly session: string;
  /** An entry that is proven to be in the log at this index. */
  readonly entryAt: (index: number) => Entry | undefined;
  /** Bytes of the same entry. */
  readonly bytesAt: (index: number) => Uint8Array | undefined;
  readonly standing: Standing;
  /** Sinks whose word counts, as the session's coverage names them. */
  readonly members: ReadonlySet<string>;
  /** Entries of kind `verdict` that name the session. */
  readonly verdicts: readonly SentEntry[];
  readonly labels: readonly Label[];
}

/** Who says so. */
export type Sayer =
  | {
      readonly level: 'asserted' | 'observed';
      readonly role: SenderRole;
      readonly sink: string;
      readonly token: string;
      readonly domain?: string | undefined;
      readonly signed?: string | undefined;
      /** Indexes of its entries about the call. */
      readonly entries: readonly number[];
    }
  | {
      readonly level: 'replayed';
      readonly sink: string;
      readonly token: string;
      readonly domain?: string | undefined;
      /** How the verifier stands to who recorded what it ran again; `unknown` where a domain is not declared. */
      readonly recorder: 'same domain' | 'other domain' | 'unknown';
      /** Index of the verdict. */
      readonly verdict: number;
      readonly status: 'PASS' | 'WARN' | 'FAIL';
    }
  | { readonly level: 'adjudicated'; readonly auditor: string; readonly label: number };

/** What is wrong with a verdict as the statement of a replay. Closed; the first that applies. */
export type VerdictFault =
  /** Not by a token of role `verifier`. */
  | 'role'
  /** Not signed under the key declared for the sink when it was written. */
  | 'unkeyed'
  /** The sink is declared as something other than a verifier. */
  | 'kind'
  /** A second story about its number. */
  | 'conflict'
  /** It says that nothing was run again. */
  | 'not_run'
  /** Not all of pre-state, call and result are cited with index and leaf hash. */
  | 'not_cited'
  /** What it cites is not among the evidence, or comes after it. */
  | 'absent'
  /** A leaf hash is not that of the entry it cites. */
  | 'leaf'
  /** What it cites is not a call, its result, and a state before it, of this session. */
  | 'other'
  /** The pre-state was not received before the result, but in the same commit or later. */
  | 'head';

/** Why the authority is not higher, or what it has to be read with. Closed. */
export type CallAuthorityReason =
  | { readonly reason: 'evidence_absent'; readonly index: number }
  | { readonly reason: 'agent_token' | 'unkeyed'; readonly sink: string }
  /** A sink of this kind tells what it was told; only one that is declared to see a boundary observes. */
  | { readonly reason: 'self_asserted'; readonly sink: string; readonly kind?: SinkKind | undefined }
  | { readonly reason: 'one_domain' }
  | { readonly reason: 'no_match' | 'contradicted'; readonly part: 'arguments' | 'outcome' }
  /** Not about a particular call, but about one of so many that were identical. */
  | { readonly reason: 'one_of_identical'; readonly identical: number }
  | { readonly reason: 'not_replayed' }
  | { readonly reason: 'verdict'; readonly index: number; readonly fault: VerdictFault };

export interface CallAuthority {
  readonly level: CallAuthorityLevel;
  readonly by: readonly Sayer[];
  readonly reasons: readonly CallAuthorityReason[];
}

/** Kinds of sink that see a call cross a boundary. What an admin did not declare, none does. */
const SEES_A_BOUNDARY: Readonly<Record<SinkKind, boolean>> = {
  proxy: true,
  hook: true,
  other: true,
  // Spans and forwarded lines are what the agent's own process says of itself.
  otlp: false,
  forward: false,
  verifier: false,
};

interface Seen {
  readonly entry: SentEntry;
  readonly observes: boolean;
  readonly domain: string | undefined;
}

/** A verdict that holds as the statement of a replay, and the call line it cites. */
export interface Replay {
  readonly verdict: SentEntry;
  readonly callIndex: number;
  readonly status: 'PASS' | 'WARN' | 'FAIL';
  readonly recorder: 'same domain' | 'other domain' | 'unknown';
  readonly domain: string | undefined;
}

/**
 * The authority of a call, or of calls that can't be told apart. Derived from who the collector verified each line to
 * be of and from what admins declared; nothing that a sender writes raises it. Never throws.
 */
export function callAuthority(call: SeenCall, evidence: SessionEvidence): CallAuthority {
  const reasons: CallAuthorityReason[] = [];
  const sightings = sightingsOf(call, evidence, reasons);
  const by: Sayer[] = sayersOf(sightings);
  let level: CallAuthorityLevel = 'asserted';
  const parts = [partOf(sightings, 'call'), partOf(sightings, 'result')];
  const stated = parts.filter((part) => part.length > 0);
  if (stated.length > 0 && stated.every((part) => part.some(({ observes }) => observes))) {
    level = 'observed';
    if (isCorroborated(call, parts, reasons)) level = 'corroborated';
  }
  if (call.identical > 1 || (call.weak && call.calls.length > 1)) {
    reasons.push({ reason: 'one_of_identical', identical: call.identical });
  }
  const replays = replaysOf(call, evidence, reasons);
  for (const { verdict, status, recorder, domain } of replays) {
    by.push({
      level: 'replayed',
      sink: verdict.envelope.sink,
      token: verdict.line.token as string,
      ...(domain === undefined ? {} : { domain }),
      recorder,
      verdict: verdict.line.index,
      status,
    });
  }
  if (isReplayed(call, replays)) level = 'replayed';
  else reasons.push({ reason: 'not_replayed' });
  const labels = evidence.labels.filter(
    (label) => label.call !== undefined && call.calls.includes(label.call),
  );
  // Of one among several that can't be told apart, an auditor can't have meant a particular one.
  if (labels.length > 0 && call.identical === 1) {
    level = 'adjudicated';
    for (const { auditor, index } of labels) by.push({ level, auditor, label: index });
  }
  return { level, by, reasons };
}

/** Whether one sink's lines about the call, or about each of those that can't be told apart, were all run again. */
export function isReplayed(call: SeenCall, replays: readonly Replay[]): boolean {
  const cited = new Set(replays.map(({ callIndex }) => callIndex));
  return call.seen.some(
    ({ calls }) => calls.length >= call.identical && calls.every((index) => cited.has(index)),
  );
}

/** The verdicts that hold as replays of this call. Those of members that do not hold are named in `reasons`. */
export function replaysOf(
  call: SeenCall,
  evidence: SessionEvidence,
  reasons: CallAuthorityReason[] = [],
): Replay[] {
  const calls = new Set(call.seen.flatMap((seen) => seen.calls));
  const names = new Set(call.calls);
  const replays: Replay[] = [];
  for (const verdict of evidence.verdicts) {
    const callIndex = verdict.envelope.attrs?.['call_index'];
    if (
      typeof callIndex !== 'number' ||
      !calls.has(callIndex) ||
      !evidence.members.has(verdict.envelope.sink)
    ) {
      continue;
    }
    const fault = replayFault(verdict, names, evidence);
    if (fault !== undefined) {
      reasons.push({ reason: 'verdict', index: verdict.line.index, fault });
      continue;
    }
    const { standing } = evidence;
    const domain = domainOf(verdict, standing);
    const recorders = [callIndex, ...cited(verdict).map(({ index }) => index)].map((index) => {
      const entry = evidence.entryAt(index);
      return entry?.by === 'sender' ? domainOf(entry, standing) : undefined;
    });
    const recorder =
      domain !== undefined && recorders.includes(domain)
        ? 'same domain'
        : domain === undefined || recorders.includes(undefined)
          ? 'unknown'
          : 'other domain';
    const status = verdict.envelope.attrs?.['status'] as Replay['status'];
    replays.push({ verdict, callIndex, status, recorder, domain });
  }
  return replays;
}

/** What keeps a line from being a verifier's word, if anything does. */
export function verifierFault({ line, envelope }: SentEntry, standing: Standing): VerdictFault | undefined {
  const declared = standing.sinkAt(envelope.sink, line.index);
  if (line.role !== 'verifier') return 'role';
  if (line.signed === undefined || line.signed !== declared?.key) return 'unkeyed';
  if (declared.kind !== 'verifier') return 'kind';
  return line.conflict === undefined ? undefined : 'conflict';
}

/** What keeps a verdict from being the statement of a replay of the call with these identifiers. */
function replayFault(
  verdict: SentEntry,
  names: ReadonlySet<string>,
  evidence: SessionEvidence,
): VerdictFault | undefined {
  const fault = verifierFault(verdict, evidence.standing);
  if (fault !== undefined) return fault;
  const attrs = verdict.envelope.attrs ?? {};
  const { status, mode, replays } = attrs;
  const ran = mode === 'session' || mode === 'isolated' || mode === 'group';
  if (!ran || replays === 0 || (status !== 'PASS' && status !== 'WARN' && status !== 'FAIL'))
    return 'not_run';
  const citations = cited(verdict);
  if (citations.length !== 3) return 'not_cited';
  const broken = citationFault(verdict, evidence);
  if (broken !== undefined) return broken;
  const entries = citations.map(({ index }) => evidence.entryAt(index));
  const [pre, begun, ended] = entries as [SentEntry, SentEntry, SentEntry];
  const own = ({ envelope, line }: SentEntry, kind: string): boolean =>
    envelope.kind === kind &&
    envelope.session === evidence.session &&
    line.conflict === undefined &&
    evidence.members.has(envelope.sink);
  const named = begun.envelope.call;
  if (!own(pre, 'state') || !own(begun, 'call') || !own(ended, 'result')) return 'other';
  if (named === undefined || named !== ended.envelope.call || !names.has(named)) return 'other';
  const phase = pre.envelope.attrs?.['phase'];
  if (phase === 'post' || phase === 'close') return 'other';
  if (attrs['pre'] !== undefined && attrs['pre'] !== pre.envelope.attrs?.['state']) return 'other';
  const [before, after] = [pre.line.index, ended.line.index];
  if (begun.line.index >= after || before >= after) return 'other';
  // Entries of one commit share their time and those of two never do. The times are of fixed width and zone, so text
  // order is time order.
  return pre.line.received < ended.line.received ? undefined : 'head';
}

/** What is wrong with what a verdict cites, however much that is: it has to be there before it, and be what it says. */
export function citationFault(verdict: SentEntry, evidence: SessionEvidence): 'absent' | 'leaf' | undefined {
  for (const { index, leaf } of cited(verdict)) {
    const bytes = evidence.bytesAt(index);
    if (bytes === undefined || evidence.entryAt(index)?.by !== 'sender' || index >= verdict.line.index) {
      return 'absent';
    }
    if (leafHash(bytes).toString('base64') !== leaf) return 'leaf';
  }
  return undefined;
}

/** Pre-state, call and result as a verdict cites them; fewer when it does not cite all three in full. */
function cited(verdict: SentEntry): { readonly index: number; readonly leaf: string }[] {
  const attrs = verdict.envelope.attrs ?? {};
  return ['pre', 'call', 'result'].flatMap((part) => {
    const index = attrs[`${part}_index`];
    const leaf = attrs[`${part}_leaf`];
    return typeof index === 'number' && typeof leaf === 'string' ? { index, leaf } : [];
  });
}

function sightingsOf(
  call: SeenCall,
  { entryAt, standing, members, session }: SessionEvidence,
  reasons: CallAuthorityReason[],
): Seen[] {
  const sightings: Seen[] = [];
  // A group of calls that can't be told apart may have as many as the session has lines.
  const names = new Set(call.calls);
  const said = new Set<string>();
  const because = (reason: CallAuthorityReason): void => {
    const key = JSON.stringify(reason);
    if (!said.has(key)) reasons.push(reason);
    said.add(key);
  };
  for (const { sink, calls, results } of call.seen) {
    if (!members.has(sink)) continue;
    for (const [kind, indexes] of [['call', calls] as const, ['result', results] as const]) {
      for (const index of indexes) {
        const entry = entryAt(index);
        const isIt =
          entry?.by === 'sender' &&
          entry.line.conflict === undefined &&
          entry.envelope.kind === kind &&
          entry.envelope.sink === sink &&
          entry.envelope.session === session &&
          names.has(entry.envelope.call ?? '');
        if (!isIt) {
          because({ reason: 'evidence_absent', index });
          continue;
        }
        const declared = standing.sinkAt(sink, index);
        let observes = false;
        if (entry.line.role === 'agent') because({ reason: 'agent_token', sink });
        else if (entry.line.signed === undefined || entry.line.signed !== declared?.key) {
          because({ reason: 'unkeyed', sink });
        } else if (declared.kind === undefined || !SEES_A_BOUNDARY[declared.kind]) {
          because({ reason: 'self_asserted', sink, ...(declared.kind && { kind: declared.kind }) });
        } else observes = true;
        sightings.push({ entry, observes, domain: domainOf(entry, standing) });
      }
    }
  }
  return sightings;
}

/** Trust domain of the sink, or else of the token, as an admin declared it. */
function domainOf({ line, envelope }: SentEntry, standing: Standing): string | undefined {
  return standing.sinkAt(envelope.sink, line.index)?.domain ?? standing.token(line.token as string)?.domain;
}

const partOf = (sightings: readonly Seen[], kind: 'call' | 'result'): Seen[] =>
  sightings.filter(({ entry }) => entry.envelope.kind === kind);

/**
 * Whether sinks of two or more domains, each with a key of its own, observed the same arguments and the same outcome.
 * Of calls that can't be told apart, each of these sinks has to have seen all.
 */
function isCorroborated(
  call: SeenCall,
  parts: readonly (readonly Seen[])[],
  reasons: CallAuthorityReason[],
): boolean {
  let agreed = true;
  const names = ['arguments', 'outcome'] as const;
  parts.forEach((part, i) => {
    const name = names[i] as (typeof names)[number];
    if (call[name] === 'different') {
      reasons.push({ reason: 'contradicted', part: name });
      agreed = false;
      return;
    }
    const byKey = new Map<string, { readonly domain: string | undefined; count: number }>();
    for (const { entry, observes, domain } of part) {
      if (!observes || entry.envelope.match === undefined) continue;
      const key = entry.line.signed as string;
      const known = byKey.get(key) ?? { domain, count: 0 };
      known.count++;
      byKey.set(key, known);
    }
    const whole = [...byKey.values()].filter(({ count }) => count >= call.identical);
    const domains = new Set(whole.flatMap(({ domain }) => domain ?? []));
    if (whole.length === 0) reasons.push({ reason: 'no_match', part: name });
    if (domains.size < 2) agreed = false;
  });
  if (!agreed && !reasons.some(({ reason }) => reason === 'one_domain' || reason === 'contradicted')) {
    reasons.push({ reason: 'one_domain' });
  }
  return agreed;
}

function sayersOf(sightings: readonly Seen[]): Sayer[] {
  const by = new Map<
    string,
    Extract<Sayer, { readonly entries: unknown }> & { readonly entries: number[] }
  >();
  for (const { entry, observes, domain } of sightings) {
    const { role, token, sink, signed, index } = entry.line;
    const level = observes ? 'observed' : 'asserted';
    const key = [level, role, sink, token, signed, domain].join('\n');
    const known = by.get(key);
    if (known === undefined) {
      by.set(key, {
        level,
        role: role as SenderRole,
        sink: sink as string,
        token: token as string,
        ...(domain === undefined ? {} : { domain }),
        ...(signed === undefined ? {} : { signed }),
        entries: [index],
      });
    } else known.entries.push(index);
  }
  return [...by.values()];
}
