/** What passes a proxy, as trace records and envelopes. */

import { createHash, createHmac } from 'node:crypto';
import type { Draft, Epoch } from '@belay/client';
import { type AttributeValue, sessionKey, stateId } from '@belay/envelope';
import {
  type Call,
  type Content,
  type Correlated,
  Correlator,
  type Direction,
  type Frame,
  Framer,
  type Message,
  OBSERVATION_LIMIT,
  type Place,
  readFrame,
  type Request,
  type Response,
  ToolList,
} from '@belay/mcp';
import type { Denial } from '@belay/sandbox';
import type { RecordBody, TraceEnd, TraceWriter, WorkspaceState } from '@belay/trace';
import { CallIdentity, comparedContent, Occurrences, toolUseIdOf } from './call-identity.js';
import type { KnownTools } from './known-tools.js';
import type { Privacy } from './settings.js';
import { skimmedOf } from './skimmed.js';
import { toolDefinitionDigest } from './tool-definition.js';

/** Canonical form of larger content would hold up the frame it is made for: such a call has no `call` and no `match`. */
const MAX_CANONICAL = 1024 * 1024;
const MAX_OPEN = 65_536;
/**
 * Envelopes are made after `LOOK` milliseconds if nothing has come for `QUIET`, else after `LATEST`, or when so many wait.
 * It is less than lines linger before they are sent.
 */
const LOOK = 2;
const QUIET = 1;
const LATEST = 20;
const UNSETTLED = 1_024;
/** Sessions over HTTP whose tools are remembered. */
const MAX_TOOL_LISTS = 256;

export interface RecorderParts {
  /** Absent when the trace could not be made. */
  readonly trace: TraceWriter | undefined;
  /** Absent without credentials: then nothing leaves the machine. */
  readonly epoch: Epoch | undefined;
  readonly machineSecret: Buffer;
  readonly session: string;
  readonly privacy: Privacy;
  /** What the server's tools were in earlier runs. */
  readonly knownTools?: KnownTools | undefined;
  /** Absent where nothing confines the server. */
  readonly boundary?: Boundary | undefined;
  /** Called after envelopes were appended. */
  readonly onAppended: () => void;
  /** Monotonic, milliseconds. */
  readonly now: () => number;
}

/** What a server is confined by, as far as it is told of. */
export interface Boundary {
  /** What enforces, `none` if it was seen not to hold; and the network that it leaves. */
  readonly sandbox: string;
  readonly network: string;
  /** Digest of the policy in force, `sha256:` and hex. */
  readonly policy: string;
  /** Members of the trace's `policy` record besides the digest. */
  readonly said: Readonly<Record<string, unknown>>;
  onDenial(listener: (denial: Denial) => void): void;
  /** Tells of what was refused before anything of the server that has been seen by now. */
  drain(): void;
}

/** What is remembered of a `tools/call` until its answer comes. */
interface OpenCall {
  readonly call: string | undefined;
  readonly tool: string | undefined;
  readonly since: number;
}

/** Makes an envelope whose number is taken. */
type MakeDraft = () => Draft;

/** How a frame came that was not cut from one of two streams: by which exchange, as part of which conversation. */
export interface Carried {
  readonly exchange: number;
  readonly conversation: string;
}

/**
 * Observes both directions and stderr. Never throws and never waits: if observing fails, that is counted, written to
 * the trace as a gap, and the traffic goes on.
 */
export class Recorder {
  readonly #parts: RecorderParts;
  /** A server's frame has been passed on: its digest is taken where its record is written. */
  readonly #framers: Readonly<Record<Direction, Framer>>;
  readonly #correlator = new Correlator();
  /** By session, where HTTP has sessions: a server may have other tools in each. */
  readonly #tools = new Map<string, ToolList>();
  readonly #identity: CallIdentity;
  readonly #open = new Map<number, OpenCall>();
  readonly #occurrences = new Occurrences();
  #calls = 0;
  #failures = 0;
  /** A tool that is being listed is not what it was in an earlier run. */
  #changedSince = false;
  /** Records whose envelopes are not made yet, when the last of them came, and the timer that waits for a quiet moment. */
  #unsettled = 0;
  #latest = 0;
  /** A client's bytes were observed and are just being passed on. */
  #passing = false;
  #due: NodeJS.Timeout | undefined;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
    this.#framers = {
      c2s: new Framer(),
      s2c: new Framer(OBSERVATION_LIMIT, 'when-asked', () => parts.trace?.room()),
    };
    this.#identity = new CallIdentity(parts.machineSecret, parts.session, parts.privacy);
    parts.epoch?.append({
      kind: 'session.open',
      session: parts.session,
      attrs: {
        sandbox: parts.boundary?.sandbox ?? 'none',
        network: parts.boundary?.network ?? 'allow',
        policy: parts.boundary && policyId(parts.machineSecret, parts.boundary.policy),
      },
    });
    parts.boundary?.onDenial((denial) => this.#denied(denial));
    if (parts.boundary !== undefined) {
      const { policy, said } = parts.boundary;
      parts.trace?.append({ type: 'policy', digest: policy, ...said });
    }
  }

  /** Requests of either side without an answer. */
  get unanswered(): number {
    return this.#correlator.unanswered;
  }

  /** Records of the trace that could not be written. */
  get lost(): number {
    return this.#parts.trace?.lost ?? 0;
  }

  /** Frames, or pieces of stderr, that could not be observed. */
  get failures(): number {
    return this.#failures;
  }

  /**
   * Takes bytes of one direction; the frames they complete are on record when this returns. Those of a client are to be
   * passed on next, and `passed` to be called then. True when nothing of the chunk is held on to.
   */
  observe(direction: Direction, chunk: Buffer): boolean {
    this.#passing = direction === 'c2s';
    let released = false;
    this.guard(() => {
      released = this.#framers[direction].push(chunk, (frame) => this.#record(direction, frame));
    });
    return released;
  }

  /** Where a server's next bytes are best read to, if `observe` sees them first. */
  place(): Place | undefined {
    return this.#framers.s2c.place();
  }

  /** What a client sent is on its way. */
  passed(): void {
    this.#passing = false;
    if (this.#unsettled > 0 && this.#parts.epoch !== undefined) this.#waitToSettle(this.#parts.epoch);
  }

  /** The direction has ended; what is left without a terminator is its last frame. */
  end(direction: Direction): void {
    this.guard(() => this.#framers[direction].end((frame) => this.#record(direction, frame)));
  }

  /** Takes a frame that was framed elsewhere. */
  frame(direction: Direction, frame: Frame, carried: Carried): void {
    this.guard(() => this.#record(direction, frame, carried));
  }

  /** Takes a frame that was cut out of one of the two streams elsewhere, and read. */
  framed(direction: Direction, frame: Frame, content: Content, odd?: string): void {
    this.guard(() => this.#record(direction, frame, undefined, content, odd));
  }

  /**
   * Appends a state of the workspace; of its digest, only a keyed one leaves the machine. Returns the number of its
   * envelope, if it has one.
   */
  state(body: WorkspaceState, attrs: NonNullable<Draft['attrs']>): number | undefined {
    let seq: number | undefined;
    this.guard(() => {
      const { epoch, session, trace, machineSecret } = this.#parts;
      const known = body.state.startsWith('sha256:');
      const seqs = epoch && [
        epoch.reserve(() => ({
          kind: 'state',
          session,
          content: known ? Buffer.from(body.state) : undefined,
          attrs: {
            state: known ? stateId(sessionKey(machineSecret, session), body.state) : undefined,
            unrestorable: known ? undefined : true,
            ...attrs,
          },
        })),
      ];
      trace?.append({ type: 'state', ...body, seqs });
      if (epoch !== undefined) this.#settleSoon(epoch);
      seq = seqs?.[0];
    });
    return seq;
  }

  /** Makes the envelopes of all that is on record now. */
  settle(): void {
    const { epoch } = this.#parts;
    if (epoch !== undefined) this.guard(() => this.#settle(epoch));
  }

  /** Appends a record of how HTTP carried what it carried. */
  http(body: Omit<Extract<RecordBody, { readonly type: 'http' }>, 'type'>): void {
    this.guard(() => this.#parts.trace?.append({ type: 'http', ...body }));
  }

  stderr(chunk: Buffer): void {
    this.guard(() => {
      const sha256 = createHash('sha256').update(chunk).digest('hex');
      this.#parts.trace?.append({ type: 'stderr', size: chunk.length, sha256 }, chunk);
    });
  }

  /** Refusals of the boundary. Of their paths and addresses, only commitments leave the machine. */
  #denied(denial: Denial): void {
    this.guard(() => {
      const { epoch, session, trace } = this.#parts;
      const { operation, syscall, path, passed, address, errno, pid, time, naming, count } = denial;
      const refused = {
        op: operation,
        syscall,
        path,
        passed,
        address,
        errno,
        class: denial.class,
        naming,
        pid,
        when: new Date(time).toISOString(),
        count: count === 1 ? undefined : count,
      };
      const seqs = epoch && [
        epoch.reserve(() => ({
          kind: 'denial',
          session,
          content: Buffer.from(JSON.stringify(refused)),
          attrs: { op: operation, errno, class: denial.class, count },
        })),
      ];
      trace?.append({ type: 'denial', ...refused, seqs });
      if (epoch !== undefined) this.#settleSoon(epoch);
    });
  }

  /** Appends `session.close` and closes the trace. The epoch is its owner's to close. */
  close(end: TraceEnd): void {
    const { epoch, session, trace, boundary } = this.#parts;
    boundary?.drain();
    epoch?.appendStated({
      kind: 'session.close',
      session,
      attrs: { calls: this.#calls, exit: end.exit, signal: end.signal },
    });
    trace?.close(end);
  }

  /** Runs what observes. If it fails, that is counted and a gap in the trace. */
  guard(observation: () => void): void {
    try {
      observation();
    } catch {
      this.#failures++;
      this.#parts.trace?.append({ type: 'gap', reason: 'observer', count: 1 });
    }
  }

  /**
   * What a client waits for is the record and the numbers of its envelopes; these are made and written when what has
   * come is on its way.
   */
  #record(
    direction: Direction,
    frame: Frame,
    carried?: Carried,
    content = readFrame(frame, MAX_CANONICAL),
    odd?: string,
  ): void {
    const { epoch, trace, boundary } = this.#parts;
    // The kernel refused before the server could answer: so it stands in the record.
    if (direction === 's2c') boundary?.drain();
    const findings = new Set<string>(content.findings);
    if (odd !== undefined) findings.add(odd);
    const drafts = this.#envelopes(direction, frame, content, findings, carried);
    const seqs = epoch && drafts.map((make) => epoch.reserve(this.#guarded(direction, frame, make)));
    const { size } = frame;
    const rest = {
      oversize: isOversize(frame) ? true : undefined,
      skimmed: skimmedOf(frame),
      seqs,
      findings: findings.size === 0 ? undefined : [...findings],
    } as const;
    // A frame of the stdio server has been forwarded already, in pieces.
    if (direction === 's2c' && carried === undefined && frame.parts !== undefined) {
      trace?.appendLater({ type: 'frame', dir: direction, size, ...rest }, frame.parts);
    } else {
      const { sha256 } = frame;
      trace?.append(
        { type: 'frame', dir: direction, size, sha256, ...rest, ...carried },
        frame.parts ?? frame.bytes,
      );
    }
    if (content.messages.some(({ type }) => type === 'response')) trace?.sync();
    if (epoch === undefined) return;
    // What has passed already, and is in memory that the next large frame is put into.
    if (direction === 's2c' && frame.parts !== undefined) this.#settle(epoch);
    else this.#settleSoon(epoch);
  }

  /**
   * When nothing has come for a moment: who was just sent something often runs on the core that we leave, and a client
   * waits for it. Kill -9 costs the envelopes of that time, whose numbers the trace has.
   */
  #settleSoon(epoch: Epoch): void {
    this.#latest = this.#parts.now();
    if (++this.#unsettled >= UNSETTLED) this.#settle(epoch);
    else if (!this.#passing) this.#waitToSettle(epoch);
  }

  /** Looks twice and no more: that takes time as well, and there is most of it when there is most to do. */
  #waitToSettle(epoch: Epoch): void {
    this.#due ??= setTimeout(() => {
      if (this.#parts.now() - this.#latest >= QUIET) this.#settle(epoch);
      else this.#due = setTimeout(() => this.#settle(epoch), LATEST - LOOK);
    }, LOOK);
  }

  #settle(epoch: Epoch): void {
    clearTimeout(this.#due);
    this.#due = undefined;
    this.#unsettled = 0;
    epoch.settle();
    this.#parts.onAppended();
  }

  /** The number is taken: whatever happens, there is an envelope for it. */
  #guarded(direction: Direction, frame: Frame, make: MakeDraft): MakeDraft {
    return () => {
      let made: Draft | undefined;
      this.guard(() => {
        made = make();
      });
      const attrs = { dir: direction, type: 'unobserved', bytes: frame.size };
      return made ?? { kind: 'x.frame', session: this.#parts.session, attrs };
    };
  }

  /** A `call` or `result` for each tool call in the frame, else one `x.frame`; nothing where nothing is sent. */
  #envelopes(
    direction: Direction,
    frame: Frame,
    content: Content,
    findings: Set<string>,
    carried: Carried | undefined,
  ): MakeDraft[] {
    const batch = content.kind === 'batch';
    const drafts = content.messages.flatMap((message) => {
      const correlated = this.#correlator.observe(direction, message, carried?.conversation);
      const tools = this.#toolsOf(carried?.conversation);
      for (const odd of tools.observe(direction, inFull(correlated, frame))) findings.add(odd);
      if (this.#changedSince) findings.add('TOOL_CHANGED_SINCE');
      this.#changedSince = false;
      return this.#toolDraft(correlated, frame, tools, batch) ?? [];
    });
    if (this.#parts.epoch === undefined) return [];
    return drafts.length > 0
      ? drafts
      : [() => this.#draft(frame, { kind: 'x.frame', attrs: frameAttributes(direction, frame, content) })];
  }

  /** What belongs to the moment is taken down now. */
  #toolDraft(correlated: Correlated, frame: Frame, tools: ToolList, batch: boolean): MakeDraft | undefined {
    if (this.#parts.epoch === undefined) return undefined;
    const now = this.#parts.now();
    if (correlated.type === 'call' && correlated.call.method === 'tools/call') {
      this.#calls++;
      const { call, request } = correlated;
      const tooldef = call.tool === undefined ? undefined : tools.definition(call.tool);
      return () => this.#callDraft(call, request, frame, { tooldef, batch, now });
    }
    if (correlated.type === 'answer' && correlated.call.method === 'tools/call') {
      const { call, response, late } = correlated;
      return () => this.#resultDraft(call, response, frame, { late, now });
    }
    return undefined;
  }

  #callDraft(
    call: Call,
    request: Request,
    frame: Frame,
    {
      tooldef,
      batch,
      now,
    }: { readonly tooldef: string | undefined; readonly batch: boolean; readonly now: number },
  ): Draft {
    const { tool } = call;
    const args = (request.params as { readonly arguments?: unknown } | undefined)?.arguments ?? {};
    const canonical = frame.size <= MAX_CANONICAL && frame.bytes !== undefined;
    const match = canonical ? this.#identity.match(args) : undefined;
    const shared = toolUseIdOf(request.params);
    const id =
      shared !== undefined
        ? this.#identity.call(shared)
        : match === undefined || tool === undefined
          ? undefined
          : this.#identity.weakCall(tool, args, match, this.#occurrences.next);
    const name = this.#identity.tool(tool);
    if (this.#open.size >= MAX_OPEN) this.#open.delete(this.#open.keys().next().value as number);
    this.#open.set(call.call, { call: id, tool: name, since: now });
    return this.#draft(frame, {
      kind: 'call',
      call: id,
      match,
      attrs: {
        tool: name,
        bytes: frame.size,
        batch: batch ? true : undefined,
        tooldef,
      },
    });
  }

  #resultDraft(
    call: Call,
    response: Response,
    frame: Frame,
    { late, now }: { readonly late: boolean; readonly now: number },
  ): Draft {
    const known = this.#open.get(call.call);
    this.#open.delete(call.call);
    const result = response.result as { readonly isError?: unknown } | undefined;
    const code = (response.error as { readonly code?: unknown } | null | undefined)?.code;
    const error = Number.isSafeInteger(code) ? (code as number) : undefined;
    const seen = response.ok ? comparedContent(response.result) : response.error;
    const canonical = frame.size <= MAX_CANONICAL && frame.bytes !== undefined;
    return this.#draft(frame, {
      kind: 'result',
      call: known?.call,
      match: canonical ? this.#identity.match(seen) : undefined,
      attrs: {
        tool: known?.tool,
        bytes: frame.size,
        ok: response.ok && result?.isError !== true,
        error: error === undefined ? undefined : Math.abs(error),
        error_negative: error === undefined ? undefined : error < 0,
        ms: known === undefined ? undefined : Math.round(now - known.since),
        late: late ? true : undefined,
      },
    });
  }

  #toolsOf(conversation = ''): ToolList {
    const key = conversation.startsWith('session-') ? conversation : '';
    let tools = this.#tools.get(key);
    if (tools === undefined) {
      tools = new ToolList((definition) => this.#definition(definition));
      if (this.#tools.size >= MAX_TOOL_LISTS) this.#tools.delete(this.#tools.keys().next().value as string);
      this.#tools.set(key, tools);
    }
    return tools;
  }

  #definition(definition: unknown): string | undefined {
    const digest = toolDefinitionDigest(this.#parts.machineSecret, definition);
    const { name } = definition as { readonly name: string };
    if (digest !== undefined && this.#parts.knownTools?.changed(name, digest) === true)
      this.#changedSince = true;
    return digest;
  }

  #draft(frame: Frame, draft: Draft): Draft {
    const oversize = isOversize(frame);
    return {
      ...draft,
      session: this.#parts.session,
      content: frame.bytes ?? Buffer.from(frame.sha256, 'hex'),
      attrs: oversize ? { ...draft.attrs, oversize: true } : draft.attrs,
    };
  }
}

/** Tells runs under one policy of this machine from others, and nobody what the policy may be. */
function policyId(machineSecret: Buffer, digest: string): string {
  return `hmac-sha256:${createHmac('sha256', machineSecret).update(`belay/policy/v1\n${digest}`).digest('hex')}`;
}

/** Of a list of tools all is needed, however large it is. */
function inFull(seen: Correlated, frame: Frame): Correlated {
  if (seen.type !== 'answer' || seen.call.method !== 'tools/list' || frame.size <= MAX_CANONICAL) return seen;
  const [response] = readFrame(frame).messages;
  return response?.type === 'response' ? { ...seen, response } : seen;
}

/** Without having its bytes put together, if they are there. */
function isOversize(frame: Frame): boolean {
  return frame.parts === undefined && frame.bytes === undefined;
}

function frameAttributes(
  direction: Direction,
  frame: Frame,
  content: Content,
): Record<string, AttributeValue> {
  const [message] = content.messages as readonly [Message | undefined];
  const type = content.kind === 'message' && message !== undefined ? message.type : content.kind;
  return { dir: direction, type, bytes: frame.size };
}
