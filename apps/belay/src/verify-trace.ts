/**
 * Judges a trace by running it again: states and answers of the record against those of replays, the rules of the
 * policy against what changed. No model is asked anything, and nothing of this machine but scratch is written.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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
  tally,
  type Verdict,
  type WorldDoubt,
} from '@belay/verdict';
import { type ShownChange, type TurnPart, type Part, type Verification } from './verification.js';
import type { WorldDifferences } from './verify-world.js';

/** What changed in one interval of the record, for the rules of a policy to be held against. */
export interface Interval {
  readonly kind: 'turn' | 'drift' | 'session';
  readonly changes: readonly Change[];
  /** Calls made in it, and what they were answered. */
  readonly calls: readonly { readonly tool: string | undefined; readonly ok: boolean }[];
  /** Whether the workspace was captured on both sides; if not, nothing is known of changes. */
  readonly observed: boolean;
}

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
  readonly invariants: (interval: Interval, contents: Contents) => Promise<readonly Judgement[]>;
  readonly show: (changes: readonly Change[], contents: Contents) => readonly ShownChange[];
  /** Only this turn, counted from 1; the ones before it are played all the same. */
  readonly turn: number | undefined;
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
  readonly denied: { readonly network: readonly string[]; readonly other: readonly string[] };
  readonly ms: number;
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
  readonly annotations: Annotations;
  readonly record: Run;
  readonly seen: Seen[];
}

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

class Verifier {
  readonly #parts: VerifyParts;
  readonly #report: TraceReport;
  readonly #survey: Survey;
  readonly #world: WorldDifferences;
  readonly #states: RecordedStates | undefined;
  readonly #contents: Contents | undefined;
  readonly #turns: Turn[] = [];
  /** `state` records in order, with the turn that each came before. */
  readonly #record: { readonly state: StateRecord; readonly turn: number }[] = [];
  readonly #doubts = new Set<WorldDoubt>();
  #start = 0;
  #restore = 0;
  #failure: Cause | undefined;

  constructor(parts: VerifyParts, report: TraceReport, surveyed: Survey, world: WorldDifferences) {
    this.#world = world;
    this.#parts = parts;
    this.#report = report;
    this.#survey = surveyed;
    this.#states = parts.store && new RecordedStates(parts.store);
    this.#contents = parts.store && new Contents(parts.store);
    if (world.server.length > 0) this.#doubts.add('SERVER_CHANGED');
    if (world.environment.length > 0) this.#doubts.add('ENV_DIFFERS');
  }

  /** Plays the session once; again as long as something is undecided and replays are left. */
  async replay(): Promise<void> {
    const { replays, now } = this.#parts;
    for (let run = 0; run < Math.max(1, replays); run++) {
      const began = now();
      if (run > 0 && !this.#turns.some((turn) => isUndecided(turn, this.#contents))) return;
      await this.#session(run);
      if (this.#failure !== undefined || run + 1 >= replays) return;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, APART - (now() - began))));
    }
  }

  async #session(run: number): Promise<void> {
    const { trace, store, server, hide, signal, now, timeout } = this.#parts;
    if (server === undefined) {
      this.#failure = 'REPLAY_NOT_STARTED';
      return;
    }
    const folder = mkdtempSync(join(tmpdir(), 'belay-replay-'));
    let contained: ContainedServer | undefined;
    const workspace =
      store &&
      this.#contents &&
      new Workspace(store, join(folder, 'workspace'), this.#contents, () => contained?.live() ?? []);
    try {
      const world = workspace && this.#isCaptured() ? workspace : undefined;
      if (world) {
        const first = await this.#firstState();
        const before = now();
        if (first !== undefined) await world.open(first);
        if (run === 0) this.#restore = now() - before;
      }
      const start = async (): Promise<ContainedServer> => {
        const before = now();
        contained = await startContained({
          command: server,
          binds: (workspace?.roots ?? []).map(({ from, at }) => ({
            from: at.toString(),
            to: from.toString(),
          })),
          profile: 'default',
          hide,
          loopback: true,
        });
        if (run === 0) this.#start = now() - before;
        return contained;
      };
      const tools = new Map<string, Annotations>();
      let turn = 0;
      const played = playSession<Change>(trace, this.#survey, {
        start,
        world,
        stateOf: (record) => this.#known(record),
        timeout,
        now,
      });
      for await (const each of played) {
        if (signal.aborted) return;
        if (each.type === 'request') this.#request(each, tools, run);
        else {
          this.#group(each, tools, run, turn, contained);
          turn += each.calls.length;
          this.#parts.onProgress(turn, this.#survey.toolCalls);
        }
      }
    } finally {
      workspace?.close();
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** The digest of a state that is on this machine. */
  #known(record: StateRecord): string | undefined {
    const digest = digestOf(record);
    return digest !== undefined && this.#states?.has(digest) === true ? digest : undefined;
  }

  #isCaptured(): boolean {
    return this.#states !== undefined;
  }

  async #firstState(): Promise<string | undefined> {
    for await (const line of readTrace(this.#parts.trace)) {
      if (!('record' in line) || line.record.type !== 'state') continue;
      const state = this.#known(line.record);
      if (state !== undefined) return state;
    }
    return undefined;
  }

  #request({ call, recorded, replayed }: PlayedRequest, tools: Map<string, Annotations>, run: number): void {
    const result = recorded?.result as Readonly<Record<string, unknown>> | undefined;
    if (call.method === 'tools/list' && Array.isArray(result?.['tools'])) {
      if (call.first) tools.clear();
      for (const tool of result['tools'] as readonly unknown[]) noteTool(tool, tools);
    }
    if (run > 0 || (call.method !== 'initialize' && call.method !== 'server/discover')) return;
    const again = 'response' in replayed ? (replayed.response.result as typeof result) : undefined;
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
    const { calls, pre, post, driftApplied, diverged } = group;
    const numbers = calls.map((_, i) => before + i + 1);
    const denials = server?.denials() ?? [];
    const denied = {
      network: denials
        .filter(({ operation }) => operation === 'connect' || operation === 'send')
        .map(({ address }) => address ?? '?'),
      other: denials
        .filter(({ operation }) => operation !== 'connect' && operation !== 'send')
        .map((each) => `${each.operation} ${each.path ?? each.syscall}`),
    };
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
          annotations: tools.get(call.call.tool ?? '') ?? {},
          record: runOf(call.call.time, recordedDelta),
          seen: [],
        });
      }
      this.#turns[number - 1]?.seen.push({
        silence:
          call.replayed === undefined
            ? 'NOT_REPLAYED'
            : 'silence' in call.replayed
              ? call.replayed.silence
              : undefined,
        answer:
          call.replayed !== undefined && 'response' in call.replayed
            ? answerOf(call.replayed.response)
            : undefined,
        delta: group.delta,
        run: runOf(call.sent, group.delta),
        diverged: diverged > 0,
        driftApplied,
        denied,
        ms: call.took,
      });
    }
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
    let last: StateRecord | undefined;
    let first: StateRecord | undefined;
    const calls: Interval['calls'][number][] = [];
    for (const turn of this.#turns) {
      const isFirst = turn.group[0] === turn.turn;
      if (isFirst && last !== undefined) {
        const drift = await this.#drift(last, turn.pre, turn.turn, caps);
        if (drift !== undefined && only === undefined) parts.push(drift);
      }
      if (turn.group.at(-1) === turn.turn) last = turn.post;
      first ??= turn.pre;
      calls.push(callOf(turn));
      if (only !== undefined && turn.turn !== only) continue;
      parts.push(await this.#turn(turn, caps));
    }
    if (only === undefined) {
      const changes = this.#between(first, last);
      if (changes !== undefined && contents !== undefined) {
        const interval: Interval = { kind: 'session', changes, calls, observed: true };
        const judgements = await this.#parts.invariants(interval, contents);
        const sessionCaps = [...caps, ...this.#sessionCaps()];
        const verdict = reduce(judgements.length > 0 ? judgements : [NO_RULE], sessionCaps);
        parts.push({ type: 'session', verdict, changes: show(changes, contents) });
      }
    }
    const command: Command | undefined = open?.command;
    return {
      trace,
      session: open?.session ?? '',
      epoch: open?.epoch ?? '',
      sink: open?.sink ?? '',
      server: this.#parts.server?.argv ?? command?.started ?? command?.argv ?? [],
      integrity: {
        kind: this.#isBroken() ? 'broken' : 'local-only',
        problems: this.#report.problems.map(({ code, message }) => `${code}: ${message}`),
      },
      policy,
      mode: 'session',
      caps,
      parts,
      tally: tally(parts.map(({ verdict }) => verdict)),
      timing: { start: this.#start, restore: this.#restore, total: now() - began },
    };
  }

  #isBroken(): boolean {
    return this.#report.problems.some(({ code }) => code !== 'missing_close' && code !== 'torn_tail');
  }

  /** Of every part. */
  #caps(): Cause[] {
    const caps: Cause[] = [...this.#parts.caps];
    if (this.#isBroken()) caps.push('RECORD_BROKEN');
    if (this.#report.gaps.some(({ reason }) => reason === 'write' || reason === 'observer'))
      caps.push('OBSERVATION_GAP');
    if (this.#world.unknown.length > 0) caps.push('SERVER_UNKNOWN');
    return [...new Set(caps)];
  }

  /** Of the whole: what may be missing at its end does not touch what is there. */
  #sessionCaps(): Cause[] {
    const cut = this.#report.problems.some(({ code }) => code === 'missing_close' || code === 'torn_tail');
    return cut ? ['OBSERVATION_GAP'] : [];
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
    if (pre !== undefined && (post === undefined || this.#known(post) === undefined))
      own.push('POST_STATE_MISSING');
    const silence = this.#failure ?? seen.find((each) => each.silence !== undefined)?.silence;
    if (silence !== undefined) own.push(silence);
    else if (seen.length === 0) own.push('NOT_REPLAYED');
    if (turn.recorded !== undefined && replays.length > 0 && silence === undefined) {
      judgements.push(...this.#judge(turn, replays));
    }
    if (contents !== undefined && turn.delta !== undefined && turn.group.at(-1) === turn.turn) {
      const interval: Interval = { kind: 'turn', changes: turn.delta, calls: [callOf(turn)], observed: true };
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
      changes: contents === undefined ? [] : this.#parts.show(turn.delta ?? [], contents),
      ms: seen.reduce((sum, { ms }) => sum + ms, 0),
    };
  }

  #judge(turn: Turn, replays: readonly Seen[]): readonly Judgement[] {
    const doubts = new Set(this.#doubts);
    if (replays.some(({ diverged }) => diverged)) doubts.add('REQUEST_DIVERGED');
    if (replays.some(({ denied }) => denied.other.length > 0)) doubts.add('SANDBOX_DENIAL');
    if (replays.some(({ denied }) => denied.network.length > 0)) doubts.add('NETWORK_REQUIRED');
    const contents = this.#contents;
    return judgeTurn({
      runs: { recorded: turn.record, replays: replays.map(({ run }) => run) },
      recorded: {
        answer: answerOf(turn.recorded?.response),
        ...(turn.delta === undefined ? {} : { delta: turn.delta }),
      },
      replayed: replays.map(({ answer, delta }) => ({ answer, ...(delta === undefined ? {} : { delta }) })),
      annotations: turn.group.length > 1 ? {} : turn.annotations,
      egress: { denied: [], forbidden: () => false },
      doubts: [...doubts],
      contentOf: (sha256) => contents?.get(sha256),
    });
  }

  async #drift(
    last: StateRecord,
    pre: StateRecord | undefined,
    turn: number,
    caps: readonly Cause[],
  ): Promise<Part | undefined> {
    const changes = this.#between(last, pre);
    if (changes === undefined || changes.length === 0 || this.#contents === undefined) return undefined;
    const interval: Interval = { kind: 'drift', changes, calls: [], observed: true };
    const judgements = await this.#parts.invariants(interval, this.#contents);
    return {
      type: 'drift',
      before: turn,
      by: 'unknown',
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

const callOf = ({ call, recorded }: Turn): Interval['calls'][number] => ({
  tool: call.tool,
  ok:
    recorded?.response.ok === true &&
    (recorded.response.result as { isError?: unknown } | undefined)?.isError !== true,
});

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

const OBJECT = /(?:^|\/)\.git(?:\/.*)?\/objects\/([0-9a-f]{2})\/([0-9a-f]{38,62})$/;

function runOf(now: number, delta: readonly Change[] | undefined): Run {
  const objects = (delta ?? []).flatMap(({ path, what }) => {
    const match = what === 'created' ? OBJECT.exec(path) : null;
    return match === null ? [] : [`${match[1]}${match[2]}`];
  });
  return {
    now,
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
  const readOnlyHint = hint('readOnlyHint');
  const destructiveHint = hint('destructiveHint');
  tools.set(name, {
    ...(readOnlyHint === undefined ? {} : { readOnlyHint }),
    ...(destructiveHint === undefined ? {} : { destructiveHint }),
  });
}

export type { Verdict };
