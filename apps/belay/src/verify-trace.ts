/**
 * Judges a trace by running it again: states and answers of the record against those of replays, the rules of the
 * policy against what changed. No model is asked anything, and nothing of this machine but scratch is written.
 */

import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Change,
  Contents,
  type ContainedServer,
  type PlayedCall,
  type PlayedGroup,
  playSession,
  type PlayedRequest,
  RecordedStates,
  type StateRecord,
  startContained,
  type Survey,
  survey,
  Workspace,
} from '@belay/replay';
import type { Store } from '@belay/snapshot';
import { type Command, checkTrace, readTrace, type TraceReport } from '@belay/trace';
import {
  type Annotations,
  type Cause,
  compare,
  compareDeltas,
  type Judgement,
  judgeTurn,
  reduce,
  type Run,
  type Span,
  tally,
  type Verdict,
  withClaim,
  type WorldDoubt,
} from '@belay/verdict';
import { scratchFolder } from './scratch-folder.js';
import type { Claim } from './verify-claims.js';
import type { AckReport } from './trace-acks.js';
import type { Integrity, Part, ShownChange, TurnPart, Verification } from './verification.js';
import type { WorldDifferences } from './verify-world.js';

/** What changed in one interval of the record, for the rules of a policy to be held against. */
export interface Interval {
  readonly kind: 'turn' | 'drift' | 'session';
  readonly changes: readonly Change[];
  /** Addresses; `reached` is absent where nobody watched. */
  readonly egress: { readonly reached?: readonly string[]; readonly denied: readonly string[] };
  /** Of a session: what was run, written and claimed, in order. */
  readonly history: readonly SessionEvent[];
}

export type SessionEvent =
  | { readonly kind: 'command'; readonly text: string; readonly ok: boolean }
  | { readonly kind: 'write'; readonly path: string }
  | { readonly kind: 'claim'; readonly text: string };

export interface VerifyParts {
  readonly trace: string;
  /** States of the record; undefined where there are none on this machine. */
  readonly store: Store | undefined;
  /** Command line, working directory and environment that the server is run with. */
  readonly server:
    | {
        readonly argv: readonly [string, ...string[]];
        readonly cwd: string;
        readonly env: Readonly<Record<string, string>>;
      }
    | undefined;
  /** Whether this is the world of the recording, once it is known how that ended. */
  readonly world: (close: TraceReport['close']) => Promise<WorldDifferences>;
  readonly policy: Verification['policy'];
  /** Caps that hold for the whole trace and that only the caller can know. */
  readonly caps: readonly Cause[];
  /** What the log attested of the trace; absent where nobody asked. */
  readonly attested: AckReport | undefined;
  /** What was claimed in the session, the last one last. */
  readonly claims: readonly Claim[];
  /** Judges the last claim by the session's last state and net change; undefined where that axis is not wanted. */
  readonly claim:
    ((last: Claim, state: string | undefined, changes: readonly Change[]) => Promise<Judgement>) | undefined;
  readonly invariants: (interval: Interval, contents: Contents) => Promise<readonly Judgement[]>;
  readonly show: (changes: readonly Change[], contents: Contents) => readonly ShownChange[];
  /** Only this turn, counted from 1; the ones before it are played all the same, unless it is `isolated`. */
  readonly turn: number | undefined;
  /** A server of its own, that is told of no other call. */
  readonly isolated: boolean;
  /** Sessions that are played at most; at least two are needed for a FAIL. */
  readonly replays: number;
  /** Milliseconds a call may take beyond twice what it took in the record. */
  readonly timeout: number;
  /** Kept from the server besides what is always kept from it. */
  readonly hide: readonly string[];
  readonly onProgress: (done: number, total: number) => void;
  readonly signal: AbortSignal;
  readonly now: () => number;
}

/** Replays happen at different seconds of the clock, so that what depends on it differs. */
const APART = 1_100;

/** One call as one replay saw it. */
interface Seen {
  readonly silence: Cause | undefined;
  readonly answer: unknown;
  readonly delta: readonly Change[] | undefined;
  readonly run: Run;
  readonly diverged: boolean;
  readonly driftApplied: boolean;
  readonly misplaced: boolean;
  readonly denied: Denied;
  readonly ms: number;
}

/** What a boundary refused during a group, by what was attempted. */
interface Denied {
  readonly network: readonly string[];
  readonly other: readonly string[];
}

/** One call of the record, and what every replay made of it. */
interface Turn {
  readonly turn: number;
  readonly call: PlayedCall['call'];
  readonly group: readonly number[];
  readonly recorded: PlayedCall['recorded'];
  readonly cancelled: boolean;
  readonly pre: StateRecord | undefined;
  readonly post: StateRecord | undefined;
  readonly delta: readonly Change[] | undefined;
  /** Absent where the record has no list with the tool. */
  readonly annotations: Annotations | undefined;
  readonly record: Run;
  readonly denied: Denied;
  readonly seen: Seen[];
  /** As the same calls were answered one after the other, the last one first; of calls that overlapped. */
  reversed: Seen | undefined;
}

/** More calls that overlapped are not tried in another order. */
const MAX_GROUP = 32;

const digestOf = (record: StateRecord | undefined): string | undefined =>
  record !== undefined && /^sha256:[0-9a-f]{64}$/.test(record.state) ? record.state : undefined;

export async function verifyTrace(parts: VerifyParts): Promise<Verification> {
  const began = parts.now();
  const report = await checkTrace(parts.trace);
  const [surveyed, world] = await Promise.all([survey(readTrace(parts.trace)), parts.world(report.close)]);
  const verifier = new Verifier(parts, report, surveyed, world);
  await verifier.replay();
  return verifier.result(began);
}

/** What every session of one trace is played with. */
interface Stage {
  readonly server: NonNullable<VerifyParts['server']>;
  readonly workspace: Workspace | undefined;
  /** The first state of the record that is on this machine. */
  readonly first: string | undefined;
}

class Verifier {
  readonly #parts: VerifyParts;
  readonly #report: TraceReport;
  readonly #survey: Survey;
  readonly #world: WorldDifferences;
  readonly #states: RecordedStates | undefined;
  readonly #contents: Contents | undefined;
  readonly #turns: Turn[] = [];
  readonly #doubts = new Set<WorldDoubt>();
  /** What the server's tools promise when a session is over. */
  readonly #listed = new Map<string, Annotations>();
  readonly #sandbox: NonNullable<TraceReport['open']>['sandbox'];
  /** Wall clock when the recording began, and when this did. */
  readonly #opened: number;
  readonly #began: number;
  #start = 0;
  #restore = 0;
  #failure: Cause | undefined;
  /** The states from before the first call and from after the last one. */
  #opening: StateRecord | undefined;
  #closing: StateRecord | undefined;
  /** The first turn after which the server may remember something else. */
  #astray: number | undefined;
  /** The server of the session that is played. */
  #contained: ContainedServer | undefined;

  constructor(parts: VerifyParts, report: TraceReport, surveyed: Survey, world: WorldDifferences) {
    this.#world = world;
    this.#parts = parts;
    this.#report = report;
    this.#began = parts.now();
    this.#opened = report.open === undefined ? this.#began : Date.parse(report.open.time);
    this.#survey = surveyed;
    this.#sandbox = report.open?.sandbox;
    this.#states = parts.store && new RecordedStates(parts.store);
    this.#contents = parts.store && new Contents(parts.store);
    if (world.server.length > 0) this.#doubts.add('SERVER_CHANGED');
    if (world.environment.length > 0) this.#doubts.add('ENV_DIFFERS');
  }

  /** Plays the session once; again as long as something is undecided and replays are left. */
  async replay(): Promise<void> {
    const { server, store, signal } = this.#parts;
    const first = await this.#firstState();
    if (server === undefined) {
      this.#failure = 'REPLAY_NOT_STARTED';
      return;
    }
    const folder = scratchFolder();
    const stop = (): void => void this.#contained?.kill();
    signal.addEventListener('abort', stop);
    // One scratch for all sessions: going back to the first state costs what the last session changed.
    const workspace =
      store && this.#contents && first !== undefined
        ? new Workspace(store, join(folder, 'workspace'), this.#contents, () => this.#contained?.live() ?? [])
        : undefined;
    try {
      await this.#sessions({ server, workspace, first });
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      signal.removeEventListener('abort', stop);
      await this.#contained?.kill();
      workspace?.close();
      rmSync(folder, { recursive: true, force: true });
    }
  }

  async #sessions(stage: Stage): Promise<void> {
    const { replays, now, signal, isolated } = this.#parts;
    for (let run = 0; run < Math.max(1, replays); run++) {
      const began = now();
      if (run > 0 && !this.#turns.some((turn) => isUndecided(turn, this.#contents))) break;
      await this.#session(run, 'recorded', stage);
      if (signal.aborted) return;
      if (run + 1 < replays) await this.#apart(began);
    }
    const overlapping = this.#turns.some(({ group }) => group.length > 1 && group.length <= MAX_GROUP);
    if (overlapping && !isolated) await this.#session(replays, 'reversed', stage);
  }

  async #apart(began: number): Promise<void> {
    const { now, signal } = this.#parts;
    if (!this.#turns.some((turn) => isUndecided(turn, this.#contents))) return;
    await sleep(Math.max(0, APART - (now() - began)), undefined, { signal }).catch(() => undefined);
  }

  async #session(
    run: number,
    order: 'recorded' | 'reversed',
    { server, workspace, first }: Stage,
  ): Promise<void> {
    const { trace, hide, signal, now, timeout, isolated, turn: only } = this.#parts;
    const before = now();
    if (first !== undefined) await workspace?.enter(first);
    if (run === 0) this.#restore = now() - before;
    const start = async (): Promise<ContainedServer> => {
      const starting = now();
      this.#contained = await startContained({
        command: server,
        binds: (workspace?.roots ?? []).map(({ from, at }) => ({ from: at.toString(), to: from.toString() })),
        profile: this.#sandbox?.profile === 'strict' ? 'strict' : 'default',
        hide,
        loopback: this.#sandbox?.network !== 'deny',
      });
      if (run === 0) this.#start = now() - starting;
      const { backend, naming } = this.#contained.record;
      if (this.#sandbox !== undefined && this.#sandbox.backend !== backend)
        this.#doubts.add('SANDBOX_DIFFERS');
      // Nobody sees what a replay was refused, and the recording may have had it.
      if (naming !== 'named' && this.#hadNetwork) this.#doubts.add('NETWORK_REQUIRED');
      return this.#contained;
    };
    const tools = new Map<string, Annotations>();
    let turn = 0;
    const played = playSession<Change>(trace, this.#survey, {
      start,
      world: workspace,
      stateOf: (record) => this.#known(record),
      timeout,
      now,
      order,
      ...(only === undefined ? {} : isolated ? { only, until: only } : { until: only }),
    });
    for await (const each of played) {
      if (signal.aborted) return;
      if (each.type === 'request') {
        this.#request(each, tools, run);
        continue;
      }
      if (each.type === 'tools') {
        for (const tool of each.tools) noteTool(tool, this.#listed);
        continue;
      }
      if (order === 'recorded') this.#group(each, tools, run, turn, this.#contained);
      else this.#reversed(each, turn, this.#contained);
      turn += each.calls.length;
      this.#parts.onProgress(turn, this.#survey.toolCalls);
    }
  }

  /** The digest of a state that is on this machine. */
  #known(record: StateRecord): string | undefined {
    const digest = digestOf(record);
    return digest !== undefined && this.#states?.has(digest) === true ? digest : undefined;
  }

  /** The first state on this machine; notes the two that the record as a whole lies between. */
  async #firstState(): Promise<string | undefined> {
    let first: string | undefined;
    for await (const line of readTrace(this.#parts.trace)) {
      if (!('record' in line) || line.record.type !== 'state') continue;
      first ??= this.#known(line.record);
      if (line.record.phase === 'open') this.#opening ??= line.record;
      else if (line.record.phase === 'close') this.#closing = line.record;
    }
    return first;
  }

  #request({ call, recorded, replayed }: PlayedRequest, tools: Map<string, Annotations>, run: number): void {
    const result = recorded?.result as Readonly<Record<string, unknown>> | undefined;
    const again = 'response' in replayed ? (replayed.response.result as typeof result) : undefined;
    if (call.method === 'tools/list') {
      if (call.first) tools.clear();
      // What the server says of itself now binds it, too: the record of it may have been made milder.
      for (const listed of [result?.['tools'], again?.['tools']]) {
        if (Array.isArray(listed)) for (const tool of listed as readonly unknown[]) noteTool(tool, tools);
      }
    }
    if (run > 0 || (call.method !== 'initialize' && call.method !== 'server/discover')) return;
    if (JSON.stringify(result?.['serverInfo']) !== JSON.stringify(again?.['serverInfo'])) {
      this.#doubts.add('SERVER_CHANGED');
    }
  }

  #group(
    group: PlayedGroup<Change>,
    tools: ReadonlyMap<string, Annotations>,
    run: number,
    before: number,
    server: ContainedServer | undefined,
  ): void {
    const { calls, pre, post } = group;
    const numbers = calls.map((_, i) => before + i + 1);
    const seen = this.#seen(group, server);
    const recordedDelta = run === 0 ? this.#between(pre, post) : undefined;
    for (const [i, call] of calls.entries()) {
      const number = before + i + 1;
      if (run === 0) {
        this.#turns.push({
          turn: number,
          call: call.call,
          group: numbers,
          recorded: call.recorded,
          cancelled: call.cancelled,
          pre,
          post,
          delta: recordedDelta,
          annotations: tools.get(call.call.tool ?? ''),
          record: runOf(
            { now: call.call.time, since: this.#opened, until: call.recorded?.time ?? call.call.time },
            recordedDelta,
          ),
          denied: deniedOf(group.denials),
          seen: [],
          reversed: undefined,
        });
      }
      this.#turns[number - 1]?.seen.push(seen[i] as Seen);
    }
  }

  #reversed(group: PlayedGroup<Change>, before: number, server: ContainedServer | undefined): void {
    for (const [i, seen] of this.#seen(group, server).entries()) {
      const turn = this.#turns[before + i];
      if (turn !== undefined && turn.group.length > 1) turn.reversed = seen;
    }
  }

  #seen(
    { calls, delta, diverged, driftApplied, misplaced }: PlayedGroup<Change>,
    server: ContainedServer | undefined,
  ): Seen[] {
    const denied = deniedOf(
      (server?.denials() ?? []).map(({ operation: op, path, address, syscall }) => ({
        op,
        path,
        address,
        syscall,
      })),
    );
    return calls.map(({ replayed, sent, took }) => ({
      silence: replayed === undefined ? 'NOT_REPLAYED' : 'silence' in replayed ? replayed.silence : undefined,
      answer: replayed !== undefined && 'response' in replayed ? answerOf(replayed.response) : undefined,
      // Of calls that overlapped, none has the change to itself; alone it has another one.
      delta: this.#parts.isolated && calls.length > 1 ? undefined : delta,
      run: runOf({ now: sent, since: this.#began, until: sent + took }, delta),
      diverged: diverged > 0,
      driftApplied,
      misplaced,
      denied,
      ms: took,
    }));
  }

  #between(pre: StateRecord | undefined, post: StateRecord | undefined): readonly Change[] | undefined {
    const [before, after] = [pre, post].map((record) => record && this.#known(record));
    return before === undefined || after === undefined ? undefined : this.#states?.between(before, after);
  }

  async result(began: number): Promise<Verification> {
    const { trace, policy, turn: only, now, show } = this.#parts;
    const { open } = this.#report;
    const parts: Part[] = [];
    const contents = this.#contents;
    const caps = this.#caps();
    const isWhole = only === undefined;
    const [opening, closing] = [this.#opening, this.#closing].map((end) =>
      isWhole && end !== undefined && this.#known(end) !== undefined ? end : undefined,
    );
    let last: StateRecord | undefined = opening;
    let first: StateRecord | undefined = last;
    const history: SessionEvent[] = [];
    const claims = [...this.#parts.claims];
    for (const turn of this.#turns) {
      const isFirst = turn.group[0] === turn.turn;
      if (isFirst && last !== undefined) {
        history.push(...writesOf(this.#between(last, turn.pre) ?? []));
        const drift = await this.#drift(last, turn.pre, turn.turn, caps);
        if (drift !== undefined && isWhole) parts.push(drift);
      }
      if (turn.group.at(-1) === turn.turn) last = turn.post;
      first ??= turn.pre;
      while (claims[0] !== undefined && claims[0].time < turn.call.time) {
        history.push({ kind: 'claim', text: (claims.shift() as Claim).text });
      }
      history.push(...eventsOf(turn));
      if (only !== undefined && turn.turn !== only) continue;
      parts.push(await this.#turn(turn, caps));
    }
    if (isWhole && this.#turns.length > 0) {
      if (last !== undefined && closing !== undefined) {
        history.push(...writesOf(this.#between(last, closing) ?? []));
        const drift = await this.#drift(last, closing, undefined, caps);
        if (drift !== undefined) parts.push(drift);
      }
      last = closing ?? last;
      const changes = this.#between(first, last);
      if (changes !== undefined && contents !== undefined) {
        history.push(...claims.map(({ text }) => ({ kind: 'claim' as const, text })));
        const egress = { denied: [], ...(this.#hadNetwork ? {} : { reached: [] }) };
        const interval: Interval = { kind: 'session', changes, egress, history };
        const judgements = await this.#parts.invariants(interval, contents);
        const sessionCaps = [...caps, ...this.#sessionCaps()];
        const verdict = reduce(judgements.length > 0 ? judgements : [NO_RULE], sessionCaps);
        parts.push({
          type: 'session',
          verdict: await this.#withClaim(verdict, last, changes),
          changes: show(changes, contents),
        });
      }
    }
    const command: Command | undefined = open?.command;
    return {
      trace,
      session: open?.session ?? '',
      epoch: open?.epoch ?? '',
      sink: open?.sink ?? '',
      server: this.#parts.server?.argv ?? command?.started ?? command?.argv ?? [],
      integrity: this.#integrity(),
      policy,
      mode: this.#parts.isolated ? 'isolated' : 'session',
      caps,
      parts,
      tally: tally(parts.map(({ verdict }) => verdict)),
      timing: { start: this.#start, restore: this.#restore, total: now() - began },
    };
  }

  async #withClaim(
    verdict: Verdict,
    last: StateRecord | undefined,
    changes: readonly Change[],
  ): Promise<Verdict> {
    const { claims, claim } = this.#parts;
    const said = claims.at(-1);
    if (said === undefined || claim === undefined) return verdict;
    return withClaim(verdict, await claim(said, last && this.#known(last), changes));
  }

  #integrity(): Integrity {
    const { attested } = this.#parts;
    const findings = attested?.findings.map(
      ({ code, message, seqs }) => `${code}: ${message}${seqs === undefined ? '' : ` (${seqs})`}`,
    );
    return {
      kind: this.#isBroken()
        ? 'broken'
        : attested !== undefined && attested.attested > 0
          ? 'attested'
          : 'local-only',
      ...(attested === undefined ? {} : { attested: { count: attested.attested, of: attested.lines } }),
      problems: [
        ...this.#report.problems.map(({ code, message }) => `${code}: ${message}`),
        ...(findings ?? []),
      ],
    };
  }

  #isBroken(): boolean {
    if (this.#parts.attested?.findings.some(({ bad }) => bad)) return true;
    return this.#report.problems.some(({ code }) => code !== 'missing_close' && code !== 'torn_tail');
  }

  /** Of every part. */
  #caps(): Cause[] {
    const caps: Cause[] = [...this.#parts.caps];
    if (this.#isBroken()) caps.push('RECORD_BROKEN');
    // Whoever writes a trace anew can leave out which log it was sent to.
    if (this.#parts.attested?.attested === 0) caps.push('NOT_ATTESTED');
    if (this.#report.gaps.some(({ reason }) => reason === 'write' || reason === 'observer'))
      caps.push('OBSERVATION_GAP');
    if (this.#world.unknown.length > 0) caps.push('SERVER_UNKNOWN');
    if (this.#sandbox === undefined || this.#sandbox.backend === 'none') caps.push('UNSANDBOXED');
    return [...new Set(caps)];
  }

  /** Of the whole: what may be missing at its end does not touch what is there. */
  #sessionCaps(): Cause[] {
    const cut = this.#report.problems.some(({ code }) => code === 'missing_close' || code === 'torn_tail');
    const isLost = (end: StateRecord | undefined): boolean =>
      end !== undefined && this.#known(end) === undefined;
    return [
      ...(cut ? (['OBSERVATION_GAP'] as const) : []),
      ...(this.#survey.silentCalls > 0 ? (['CALL_WITHOUT_ID'] as const) : []),
      ...(isLost(this.#opening) ? (['PRE_STATE_MISSING'] as const) : []),
      ...(isLost(this.#closing) ? (['POST_STATE_MISSING'] as const) : []),
    ];
  }

  async #turn(turn: Turn, caps: readonly Cause[]): Promise<TurnPart> {
    const { post, pre, seen } = turn;
    const contents = this.#contents;
    const own: Cause[] = [];
    const replays = seen.filter(({ silence }) => silence === undefined);
    const judgements: Judgement[] = [];
    if (turn.recorded === undefined) own.push(turn.cancelled ? 'CANCELLED' : 'NO_ANSWER');
    else if (turn.cancelled) own.push('CANCELLED');
    if (digestOf(pre) === undefined) own.push(pre === undefined ? 'WORKSPACE_UNSET' : 'PRE_STATE_MISSING');
    else if (this.#known(pre as StateRecord) === undefined) own.push('PRE_STATE_MISSING');
    if (seen.some(({ misplaced }) => misplaced)) own.push('PRE_STATE_WRONG');
    if (pre !== undefined && (post === undefined || this.#known(post) === undefined))
      own.push('POST_STATE_MISSING');
    const silence = this.#failure ?? seen.find((each) => each.silence !== undefined)?.silence;
    if (silence !== undefined) own.push(silence);
    else if (seen.length === 0) own.push('NOT_REPLAYED');
    if (turn.group.length > MAX_GROUP) own.push('GROUP_TOO_LARGE');
    if (turn.recorded !== undefined && replays.length > 0 && silence === undefined) {
      judgements.push(...this.#judge(turn, replays));
    }
    if (contents !== undefined && turn.delta !== undefined && turn.group.at(-1) === turn.turn) {
      const egress = { denied: turn.denied.network, ...(this.#hadNetwork ? {} : { reached: [] }) };
      const interval: Interval = { kind: 'turn', changes: turn.delta, egress, history: [] };
      judgements.push(...(await this.#parts.invariants(interval, contents)));
    }
    const verdict = reduce(judgements, [...caps, ...own]);
    return {
      type: 'turn',
      turn: turn.turn,
      tool: turn.call.tool,
      record: turn.call.offset,
      time: new Date(turn.call.time).toISOString(),
      group: turn.group,
      verdict,
      replays: replays.length,
      driftApplied: seen.some(({ driftApplied }) => driftApplied),
      ...(digestOf(pre) === undefined ? {} : { pre: digestOf(pre) as string }),
      ...(digestOf(post) === undefined ? {} : { post: digestOf(post) as string }),
      ...(pre?.cause === undefined && post?.cause === undefined ? {} : { missing: missingOf(pre, post) }),
      changes: contents === undefined ? [] : this.#parts.show(turn.delta ?? [], contents),
      seqs: seqsOf(turn),
      ms: seen.reduce((sum, { ms }) => sum + ms, 0),
    };
  }

  #judge(turn: Turn, replays: readonly Seen[]): readonly Judgement[] {
    const doubts = new Set(this.#doubts);
    if (replays.some(({ diverged }) => diverged)) doubts.add('REQUEST_DIVERGED');
    const refused = replays.flatMap(({ denied }) => denied.other);
    if (refused.some((each) => !turn.denied.other.includes(each))) doubts.add('SANDBOX_DENIAL');
    const unreached = replays.flatMap(({ denied }) => denied.network);
    if (unreached.some((each) => !turn.denied.network.includes(each)) && this.#hadNetwork)
      doubts.add('NETWORK_REQUIRED');
    if (this.#parts.isolated && turn.turn > 1) doubts.add('SESSION_STATE');
    if (!this.#isPlaced(turn)) doubts.add('STATE_UNKNOWN');
    if (turn.turn > this.#firstAstray()) doubts.add('SESSION_STATE');
    const contents = this.#contents;
    const judgements = judgeTurn({
      runs: { recorded: turn.record, replays: replays.map(({ run }) => run) },
      recorded: {
        answer: answerOf(turn.recorded?.response),
        ...(turn.delta === undefined ? {} : { delta: turn.delta }),
      },
      replayed: replays.map(({ answer, delta }) => ({ answer, ...(delta === undefined ? {} : { delta }) })),
      annotations: shared(turn.group.map((nth) => this.#promisedBy(this.#turns[nth - 1]))),
      egress: {
        denied: [...new Set([...turn.denied.network, ...unreached])],
        forbidden: () => false,
        // With the network closed, what was not refused was not tried.
        ...(this.#hadNetwork ? {} : { reached: [] }),
      },
      doubts: [...doubts],
      contentOf: (sha256) => contents?.get(sha256),
      ...this.#whatIsThereAfter(turn),
    });
    const dependent = this.#isOrderDependent(turn, replays);
    return dependent === undefined ? judgements : [...judgements, dependent];
  }

  /** Its replay began in the state that the record has for it. */
  #isPlaced({ pre, seen }: Turn): boolean {
    return pre !== undefined && this.#known(pre) !== undefined && !seen.some(({ misplaced }) => misplaced);
  }

  #firstAstray(): number {
    this.#astray ??= this.#turns.find((turn) => this.#isAstray(turn))?.turn ?? Number.POSITIVE_INFINITY;
    return this.#astray;
  }

  /**
   * It was replayed from nobody knows where, or not at all, and came to something else: what the server remembers since
   * is not what it remembered in the record.
   */
  #isAstray(turn: Turn): boolean {
    const isWhole = turn.seen.length > 0 && turn.seen.every(({ silence }) => silence === undefined);
    if (isWhole && this.#isPlaced(turn)) return false;
    return !isWhole || turn.recorded === undefined || isUndecided(turn, this.#contents);
  }

  #whatIsThereAfter({ group, post }: Turn): { readonly exists?: (path: string) => boolean | undefined } {
    const [states, after] = [this.#states, post && this.#known(post)];
    if (group.length > 1 || states === undefined || after === undefined) return {};
    return { exists: (path) => states.contains(after, path) };
  }

  /** As the record lists the tool; where it does not, as the server did when it was asked by us. */
  #promisedBy(turn: Turn | undefined): Annotations {
    return turn?.annotations ?? this.#listed.get(turn?.call.tool ?? '') ?? {};
  }

  /** The recording reached, or could have reached, what a replay can not. */
  get #hadNetwork(): boolean {
    return (
      this.#sandbox === undefined || this.#sandbox.network === 'allow' || this.#sandbox.network === 'ports'
    );
  }

  /** Calls that overlapped have to come to the same in another order, or nothing is known of what they would have done. */
  #isOrderDependent(turn: Turn, replays: readonly Seen[]): Judgement | undefined {
    const { reversed, group } = turn;
    const [first] = replays;
    if (group.length === 1 || reversed === undefined || first === undefined) return undefined;
    const runs = { recorded: first.run, replays: [reversed.run] };
    const excused = (outcome: string): boolean => outcome === 'reproduced' || outcome === 'volatile';
    const answers = compare(first.answer, [reversed.answer], runs).outcome;
    const deltas =
      first.delta === undefined || reversed.delta === undefined
        ? 'reproduced'
        : compareDeltas(first.delta, [reversed.delta], runs, (sha256) => this.#contents?.get(sha256)).outcome;
    if (reversed.silence === undefined && excused(answers) && excused(deltas)) return undefined;
    return {
      axis: 'A2',
      kind: excused(answers) ? 'effect' : 'result',
      status: 'UNVERIFIED',
      cause: 'ORDER_DEPENDENT',
      message: `turns ${group.join(', ')} overlapped, and come to something else one after the other`,
    };
  }

  async #drift(
    last: StateRecord,
    pre: StateRecord | undefined,
    turn: number | undefined,
    caps: readonly Cause[],
  ): Promise<Part | undefined> {
    const changes = this.#between(last, pre);
    const place = { ...(turn === undefined ? {} : { before: turn }), by: pre?.drift ?? ('unknown' as const) };
    if (this.#contents === undefined) return undefined;
    if (changes === undefined) {
      // Where neither is known, the turns around it say so.
      const isHalfKnown = (this.#known(last) === undefined) !== ((pre && this.#known(pre)) === undefined);
      if (!isHalfKnown) return undefined;
      return { type: 'drift', ...place, verdict: reduce([], ['DRIFT_UNJUDGED', ...caps]), changes: [] };
    }
    if (changes.length === 0) return undefined;
    const interval: Interval = { kind: 'drift', changes, egress: { denied: [] }, history: [] };
    const judgements = await this.#parts.invariants(interval, this.#contents);
    return {
      type: 'drift',
      ...place,
      verdict: reduce(judgements.length > 0 ? judgements : [NO_RULE], caps),
      changes: this.#parts.show(changes, this.#contents),
    };
  }
}

/** Where the policy says nothing, nothing can be broken. */
const NO_RULE: Judgement = {
  axis: 'A1',
  kind: 'invariant',
  status: 'PASS',
  message: 'no rule is about this',
};

const answerOf = (
  response: { readonly ok: boolean; readonly result: unknown; readonly error: unknown } | undefined,
): unknown =>
  response === undefined ? undefined : response.ok ? { result: response.result } : { error: response.error };

function seqsOf({ pre, call, recorded }: Turn): TurnPart['seqs'] {
  const [before, result] = [pre?.seqs?.[0], recorded?.seq];
  return {
    ...(before === undefined ? {} : { pre: before }),
    ...(call.seq === undefined ? {} : { call: call.seq }),
    ...(result === undefined ? {} : { result }),
  };
}

const missingOf = (
  pre: StateRecord | undefined,
  post: StateRecord | undefined,
): NonNullable<TurnPart['missing']> => ({
  ...(pre?.cause === undefined ? {} : { pre: pre.cause }),
  ...(post?.cause === undefined ? {} : { post: post.cause }),
});

const writesOf = (changes: readonly Change[]): SessionEvent[] =>
  changes.map(({ path }) => ({ kind: 'write', path }));

function eventsOf({ call, recorded, delta }: Turn): SessionEvent[] {
  const result = recorded?.response.result as { readonly isError?: unknown } | undefined;
  const ok = recorded?.response.ok === true && result?.isError !== true;
  return [
    ...(call.command === undefined ? [] : [{ kind: 'command' as const, text: call.command, ok }]),
    ...writesOf(delta ?? []),
  ];
}

/** Whether another replay could change what is said of the turn. */
function isUndecided(turn: Turn, contents: Contents | undefined): boolean {
  if (turn.recorded === undefined || turn.cancelled) return false;
  const replays = turn.seen.filter(({ silence }) => silence === undefined);
  const [first] = replays;
  if (first === undefined) return false;
  const runs = { recorded: turn.record, replays: [first.run] };
  if (compare(answerOf(turn.recorded.response), [first.answer], runs).outcome !== 'reproduced') return true;
  if (turn.delta === undefined || first.delta === undefined) return false;
  return (
    compareDeltas(turn.delta, [first.delta], runs, (sha256) => contents?.get(sha256)).outcome !== 'reproduced'
  );
}

interface Attempt {
  readonly op?: string | undefined;
  readonly path?: string | undefined;
  readonly address?: string | undefined;
  readonly syscall?: string | undefined;
}

/** Of the record's denials as of a replay's: what was attempted, without what differs from run to run. */
function deniedOf(attempts: readonly Attempt[]): Denied {
  const isNetwork = ({ op }: Attempt): boolean => op === 'connect' || op === 'send';
  return {
    network: attempts.filter(isNetwork).map(({ address }) => address ?? '?'),
    other: attempts
      .filter((attempt) => !isNetwork(attempt))
      .map(({ op, path, syscall }) => `${op ?? '?'} ${path ?? syscall ?? '?'}`),
  };
}

const OBJECT = /(?:^|\/)\.git(?:\/.*)?\/objects\/([0-9a-f]{2})\/([0-9a-f]{38,62})$/;

function runOf(span: Required<Span>, delta: readonly Change[] | undefined): Run {
  const objects = (delta ?? []).flatMap(({ path, what }) => {
    const match = what === 'created' ? OBJECT.exec(path) : null;
    return match === null ? [] : [`${match[1]}${match[2]}`];
  });
  return {
    ...span,
    made: (hash) => objects.some((object) => object.startsWith(hash)),
    temporary: [...new Set(['/tmp', '/var/tmp', tmpdir()])],
  };
}

function noteTool(tool: unknown, tools: Map<string, Annotations>): void {
  const { name, annotations } = (tool ?? {}) as { readonly name?: unknown; readonly annotations?: unknown };
  if (typeof name !== 'string') return;
  const declared = (annotations ?? {}) as Readonly<Record<string, unknown>>;
  const hint = (key: string): boolean | undefined =>
    typeof declared[key] === 'boolean' ? declared[key] : undefined;
  const before = tools.get(name);
  // A tool that is listed twice is held to all that was promised of it.
  const readOnlyHint = before?.readOnlyHint === true ? true : hint('readOnlyHint');
  const destructiveHint = before?.destructiveHint === false ? false : hint('destructiveHint');
  tools.set(name, {
    ...(readOnlyHint === undefined ? {} : { readOnlyHint }),
    ...(destructiveHint === undefined ? {} : { destructiveHint }),
  });
}

/** What calls that overlapped have promised together: of their change it is not known which of them made it. */
function shared(group: readonly Annotations[]): Annotations {
  if (group.every(({ readOnlyHint }) => readOnlyHint === true)) return { readOnlyHint: true };
  const keeps = ({ readOnlyHint, destructiveHint }: Annotations): boolean =>
    readOnlyHint === true || destructiveHint === false;
  return group.every(keeps) ? { destructiveHint: false } : {};
}
