import type { Asides, Event, LateAnswer, Stray, Turn, TraceItem } from './turns.js';
import { gapText } from './trace-report.js';

/** `340 B`, `1.2 kB`, `34 MB`. */
export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let value = size;
  let unit = '';
  for (const each of units) {
    value /= 1000;
    unit = each;
    if (value < 999.5) break;
  }
  return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** A duration in microseconds: `0.31 ms`, `45 ms`, `1.2 s`, `3 m 20 s`. */
export function duration(us: number): string {
  const ms = us / 1000;
  if (ms < 10) return `${ms.toFixed(2)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 99.95) return `${s.toFixed(1)} s`;
  return `${Math.floor(Math.round(s) / 60)} m ${Math.round(s) % 60} s`;
}

/** Microseconds since the trace was opened, as seconds. */
export const seconds = (at: number): string => (at / 1_000_000).toFixed(3);

export function title({ dir, method, subject }: Turn): string {
  return `${dir === 's2c' ? '← ' : ''}${method}${subject === undefined ? '' : ` ${subject}`}`;
}

export function took({ request, answer }: Turn): number | undefined {
  return answer === undefined ? undefined : Math.max(0, answer.at - request.at);
}

export function outcomeText(turn: Turn): string {
  const { outcome, error } = turn;
  switch (outcome) {
    case 'ok':
      return 'ok';
    case 'tool_error':
      return 'tool error';
    case 'input_required':
      return 'input required';
    case 'cancelled':
      return turn.answer === undefined ? 'cancelled' : 'cancelled, answered';
    case 'unanswered':
      return 'no answer';
    default: {
      const code = error?.code === undefined ? '' : ` ${error.code}`;
      return `error${code}${error === undefined || error.message === '' ? '' : `: ${error.message}`}`;
    }
  }
}

/** What is worth knowing of a turn beside its outcome; `findings` are apart. */
export function remarks({ method, progress, continues, peer, protocol }: Turn): string[] {
  const greeting = method === 'initialize' || method === 'server/discover';
  return [
    ...(greeting && peer !== undefined ? [`${peer.name} ${peer.version ?? ''}`.trim()] : []),
    ...(greeting && protocol !== undefined ? [`MCP ${protocol}`] : []),
    ...(continues === undefined ? [] : [`continues ${continues}`]),
    ...(progress === 0 ? [] : [`progress ×${progress}`]),
  ];
}

/** Folded asides in one line. */
export function asidesText({ notices, stderr, blank, http, noise, findings }: Asides): string {
  const parts = notices.map(
    ({ dir, method, count }) => `${dir === 's2c' ? '← ' : ''}${method}${count === 1 ? '' : ` ×${count}`}`,
  );
  if (stderr.pieces > 0) parts.push(`stderr ${bytes(stderr.bytes)}`);
  if (http > 0) parts.push(`http ×${http}`);
  if (noise.c2s > 0) parts.push(`${lines(noise.c2s)} of the client, no JSON-RPC`);
  if (noise.s2c > 0) parts.push(`${lines(noise.s2c)} of the server, no JSON-RPC`);
  if (blank > 0) parts.push(`${lines(blank)} without content`);
  return `${parts.join(', ')}${findings.length === 0 ? '' : `  ${findings.join(' ')}`}`;
}

const lines = (count: number): string => (count === 1 ? '1 line' : `${count} lines`);

export function strayText({ dir, id, duplicateOf, findings }: Stray): string {
  const whose = dir === 's2c' ? 'server' : 'client';
  const what = duplicateOf === undefined ? 'that nobody asked for' : `to call ${duplicateOf}, which had one`;
  const more = findings.filter((each) => each !== 'DUPLICATE_ANSWER' && each !== 'ANSWER_WITHOUT_REQUEST');
  return `answer of the ${whose} with id ${id} ${what}${more.length === 0 ? '' : `  ${more.join(' ')}`}`;
}

export function lateText({ turn }: LateAnswer): string {
  return `answer to call ${turn.call} (${title(turn)}): ${outcomeText(turn)} after ${duration(took(turn) ?? 0)}`;
}

/** An event in one line; of a claim only that there is one. */
export function eventText({ type, record }: Event): string {
  const members = record as unknown as Record<string, unknown>;
  const say = (name: string): string => {
    const value = members[name];
    return typeof value === 'string' || typeof value === 'number' ? ` ${value}` : '';
  };
  switch (type) {
    case 'gap':
      return `gap: ${gapText(members)}`;
    case 'denial':
      return `denied:${say('op')}${say(members['path'] === undefined ? 'address' : 'path')}${say('class')}${say('errno')}${say('detail')}`;
    case 'state': {
      const imported = members['imported'] as Record<string, unknown> | undefined;
      const why = typeof imported?.['cause'] === 'string' ? ` (${imported['cause']})` : '';
      return `state ${String(members['phase'])}:${say('state')}${why}`;
    }
    case 'policy':
      return `policy:${say('digest')}${say('network')}`;
    case 'hook':
      return `hook${say('event')}, ${bytes(Number(members['size']))}`;
    case 'claim':
      return members['absent'] === true ? 'claim: none was made' : `claim, ${bytes(Number(members['size']))}`;
    case 'http': {
      const findings = Array.isArray(members['findings']) ? ` ${members['findings'].join(' ')}` : '';
      const ended = typeof members['ended'] === 'string' ? `, ended: ${members['ended']}` : '';
      return `http${say('phase')}${say('method')}${say('target')}${say('status')}${ended}${say('code')}${findings}`;
    }
    case 'close':
      return closeText(members);
    default:
      return type;
  }
}

export function closeText(close: Readonly<Record<string, unknown>>): string {
  const { signal, exit, lost } = close;
  const end =
    typeof signal === 'string'
      ? `ended by ${signal}`
      : typeof exit === 'number'
        ? `ended with exit code ${exit}`
        : 'closed';
  return Number(lost) > 0 ? `${end}; ${String(lost)} records were lost` : end;
}

/** Whether a reader who looks for trouble wants to see it. */
export function isTrouble(item: TraceItem): boolean {
  switch (item.type) {
    case 'turn':
      return item.outcome !== 'ok' && item.outcome !== 'input_required' ? true : item.findings.length > 0;
    case 'asides':
      return item.findings.length > 0;
    case 'stray':
    case 'damage':
    case 'gap':
    case 'denial':
    case 'http':
      return true;
    default:
      return false;
  }
}

/** Counts over a whole trace. */
export class Tally {
  turns = 0;
  readonly outcomes: Record<Turn['outcome'], number> = {
    ok: 0,
    tool_error: 0,
    error: 0,
    input_required: 0,
    cancelled: 0,
    unanswered: 0,
  };
  notifications = 0;
  stderrBytes = 0;
  strays = 0;
  /** Microseconds from the opening to the last thing that is known. */
  until = 0;

  add(item: TraceItem): void {
    switch (item.type) {
      case 'turn':
        this.turns++;
        this.outcomes[item.outcome]++;
        this.#see(item.request.at, item.answer?.at);
        break;
      case 'late_answer':
        this.outcomes.unanswered--;
        this.outcomes[item.turn.outcome]++;
        this.#see(item.turn.answer?.at);
        break;
      case 'asides':
        for (const { count } of item.notices) this.notifications += count;
        this.stderrBytes += item.stderr.bytes;
        this.#see(item.last.at);
        break;
      case 'stray':
        this.strays++;
        this.#see(item.place.at);
        break;
      case 'damage':
        break;
      default:
        this.#see(item.place.at);
    }
  }

  #see(...times: readonly (number | undefined)[]): void {
    for (const at of times) if (at !== undefined && at > this.until) this.until = at;
  }

  /** `12 calls: 10 ok, 1 tool error, 1 without an answer`. */
  text(): string {
    const { ok, tool_error, error, input_required, cancelled, unanswered } = this.outcomes;
    const parts = [
      [ok, 'ok'],
      [tool_error, tool_error === 1 ? 'tool error' : 'tool errors'],
      [error, error === 1 ? 'error' : 'errors'],
      [input_required, 'asked for input'],
      [cancelled, 'cancelled'],
      [unanswered, 'without an answer'],
    ] as const;
    const split = parts.filter(([count]) => count > 0).map(([count, word]) => `${count} ${word}`);
    const calls = this.turns === 1 ? '1 call' : `${this.turns} calls`;
    return `${calls}${split.length === 0 ? '' : `: ${split.join(', ')}`}`;
  }
}
