import fc from 'fast-check';
import type { Content, IdKey, Message } from '@belay/mcp';
import type { Captured } from '@belay/snapshot';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Capturing, type StateTaken, TurnGate, type Unattested } from '../src/turn-gate.js';

const LIMIT = 100;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const state = (digest: string): Captured => ({
  kind: 'state',
  digest: `sha256:${digest}`,
  changed: { created: 0, modified: 1, deleted: 0, metadata: 0 },
  entries: 1,
  rehashed: 1,
  stopped: false,
  ms: 1,
});

const content = (...messages: readonly Message[]): Content => ({
  kind: messages.length > 1 ? 'batch' : 'message',
  messages,
  findings: [],
});
const key = (id: number): IdKey => `n:${id}`;
const call = (id: number): Message => ({
  type: 'request',
  id: key(id),
  method: 'tools/call',
  params: { name: 'write' },
});
const ping = (id: number): Message => ({ type: 'request', id: key(id), method: 'ping', params: undefined });
const cancel = (requestId: number): Message => ({
  type: 'notification',
  method: 'notifications/cancelled',
  params: { requestId },
});
const answer = (id: number): Message => ({
  type: 'response',
  id: key(id),
  ok: true,
  result: {},
  error: undefined,
});

/** A gate whose captures end when the test says so; what happened, in order. */
class Bench {
  readonly log: string[] = [];
  readonly #asked: ((captured: Captured) => void)[] = [];
  readonly gate: TurnGate;
  /** Acknowledgements that are waited for. */
  readonly #waits: ((odd: Unattested | undefined) => void)[] = [];

  constructor(capturing: Promise<Capturing> = Promise.resolve(this.capturing()), attestFirst = false) {
    this.gate = new TurnGate({
      capturing,
      holdLimit: LIMIT,
      tell: (told) => this.log.push(shown(told)),
      ...(attestFirst
        ? { attested: () => new Promise<Unattested | undefined>((done) => this.#waits.push(done)) }
        : {}),
    });
  }

  /** What calls wait for is acknowledged, or is not to be waited for any more. */
  async acknowledged(odd?: Unattested): Promise<void> {
    await settled();
    for (const done of this.#waits.splice(0)) done(odd);
    await settled();
  }

  capturing(): Capturing {
    const ask = (): Promise<Captured> => new Promise((done) => this.#asked.push(done));
    return { capture: ask, verify: ask, close: () => Promise.resolve() };
  }

  get taking(): number {
    return this.#asked.length;
  }

  client(name: string, ...messages: readonly Message[]): void {
    this.gate.client(content(...messages), (odd) =>
      this.log.push(odd === undefined ? name : `${name} ${odd}`),
    );
  }

  server(name: string, ...messages: readonly Message[]): void {
    this.gate.server(content(...messages), () => this.log.push(name));
  }

  /** Ends the captures that were asked for so far, the oldest first; the last of them with this digest. */
  async took(digest = 'a'): Promise<void> {
    await settled();
    for (const done of this.#asked.splice(0)) done(state(digest));
    await settled();
  }

  /** What happened since it was last asked. */
  happened(): string[] {
    return this.log.splice(0);
  }
}

/** Promises that are due have run. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 8; turn++) await Promise.resolve();
}

function shown({ phase, group, calls, taken, drift }: StateTaken): string {
  const what = taken.kind === 'state' ? taken.digest.slice(7) : taken.cause;
  return `${phase}${group ?? ''}${calls === undefined ? '' : `/${calls}`}:${what}${drift ? ' drift' : ''}`;
}

async function opened(): Promise<Bench> {
  const bench = new Bench();
  await bench.took('a');
  expect(bench.happened()).toEqual(['open:a']);
  return bench;
}

test('a call waits for the state before it, its answer for the one after it, and nothing else for either', async () => {
  const bench = await opened();
  bench.client('call', call(1));
  bench.client('ping', ping(2));
  bench.server('notice', { type: 'notification', method: 'notifications/message', params: {} });
  expect(bench.happened()).toEqual(['ping', 'notice']);
  await bench.took('a');
  expect(bench.happened()).toEqual(['pre1:a', 'call']);
  bench.server('pong', answer(2));
  bench.server('result', answer(1));
  bench.client('other', ping(3));
  bench.server('other pong', answer(3));
  expect(bench.happened()).toEqual(['pong', 'other', 'other pong']);
  await bench.took('b');
  expect(bench.happened()).toEqual(['result', 'post1/1:b']);
  expect(bench.gate.active).toBe(false);
});

test('calls that overlap are a group: one state before the first, one after the last', async () => {
  const bench = await opened();
  bench.client('1', call(1));
  bench.client('2', call(2));
  await bench.took('a');
  bench.client('3', call(3));
  bench.server('r2', answer(2));
  bench.server('r1', answer(1));
  expect(bench.happened()).toEqual(['pre1:a', '1', '2', '3', 'r2', 'r1']);
  bench.server('r3', answer(3));
  // The next group's calls wait for the end of this one.
  bench.client('4', call(4));
  expect(bench.happened()).toEqual([]);
  await bench.took('b');
  expect(bench.happened()).toEqual(['r3', 'post1/3:b']);
  await bench.took('b');
  expect(bench.happened()).toEqual(['pre2:b', '4']);
});

test('what changed between two groups is drift', async () => {
  const bench = await opened();
  bench.client('1', call(1));
  await bench.took('b');
  bench.server('r1', answer(1));
  await bench.took('c');
  bench.client('2', call(2));
  await bench.took('c');
  bench.server('r2', answer(2));
  await bench.took('c');
  const closing = bench.gate.close(new AbortController().signal, 1_000);
  await bench.took('d');
  await closing;
  expect(bench.happened()).toEqual([
    'pre1:b drift',
    '1',
    'r1',
    'post1/1:c',
    'pre2:c',
    '2',
    'r2',
    'post2/1:c',
    'close:d drift',
  ]);
});

test('past the limit the frame goes, and there is no state by name; what comes later is of no moment', async () => {
  const bench = await opened();
  bench.client('1', call(1));
  await settled();
  vi.advanceTimersByTime(LIMIT - 1);
  expect(bench.happened()).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(bench.happened()).toEqual(['pre1:HOLD_LIMIT', '1']);
  await bench.took('late');
  expect(bench.happened()).toEqual([]);
  bench.server('r1', answer(1));
  await settled();
  vi.advanceTimersByTime(LIMIT);
  expect(bench.happened()).toEqual(['r1', 'post1/1:HOLD_LIMIT']);
  await bench.took('later');
  // Nothing is known that this one could have drifted from.
  bench.client('2', call(2));
  await bench.took('x');
  expect(bench.happened()).toEqual(['pre2:x', '2']);
});

test('a call that comes while the first look is still under way takes that state with it when it goes', async () => {
  const bench = new Bench();
  bench.client('1', call(1));
  await settled();
  vi.advanceTimersByTime(LIMIT);
  expect(bench.happened()).toEqual(['open:HOLD_LIMIT', 'pre1:HOLD_LIMIT', '1']);
});

test('a cancellation retires its call; one of a call that waits goes after it', async () => {
  const bench = await opened();
  bench.client('1', call(1));
  await bench.took('a');
  bench.client('cancel 1', cancel(1));
  expect(bench.happened()).toEqual(['pre1:a', '1', 'cancel 1']);
  // The answer is late, and nobody waits for it any more.
  bench.server('late', answer(1));
  expect(bench.happened()).toEqual(['late']);
  await bench.took('b');
  expect(bench.happened()).toEqual(['post1/1:b']);
  bench.client('2', call(2));
  bench.client('cancel 2', cancel(2));
  bench.client('ping', ping(9));
  expect(bench.happened()).toEqual(['ping']);
  await bench.took('b');
  expect(bench.happened()).toEqual(['pre2:b', '2', 'cancel 2']);
  await bench.took('b');
  expect(bench.happened()).toEqual(['post2/1:b']);
});

test('a batch is one frame, whatever it holds', async () => {
  const bench = await opened();
  bench.client('batch', ping(1), call(2), call(3));
  expect(bench.happened()).toEqual([]);
  await bench.took('a');
  bench.server('pong', answer(1));
  bench.server('r2', answer(2));
  expect(bench.happened()).toEqual(['pre1:a', 'batch', 'pong', 'r2']);
  bench.server('r3', answer(3));
  await bench.took('b');
  expect(bench.happened()).toEqual(['r3', 'post1/2:b']);
});

test('what has passed already is not held, and its state is none', async () => {
  const bench = await opened();
  bench.gate.client(content(call(1)), () => bench.log.push('1'), true);
  expect(bench.happened()).toEqual(['pre1:NOT_HELD', '1']);
  bench.gate.server(content(answer(1)), () => bench.log.push('r1'), true);
  expect(bench.happened()).toEqual(['r1', 'post1/1:NOT_HELD']);
});

test('a capturer that can not be had keeps nothing', async () => {
  const bench = new Bench(Promise.reject(new Error('no room')));
  bench.client('1', call(1));
  await settled();
  bench.server('r1', answer(1));
  await settled();
  await bench.gate.close(new AbortController().signal, 1_000);
  expect(bench.happened()).toEqual([
    'open:SNAPSHOT_UNAVAILABLE',
    'pre1:SNAPSHOT_UNAVAILABLE',
    '1',
    'r1',
    'post1/1:SNAPSHOT_UNAVAILABLE',
    'close:SNAPSHOT_UNAVAILABLE',
  ]);
});

test('the end waits for the last look, but not longer than it is told to', async () => {
  const bench = await opened();
  bench.client('1', call(1));
  await bench.took('a');
  const stop = new AbortController();
  const closing = bench.gate.close(stop.signal, 1_000);
  await settled();
  stop.abort();
  await closing;
  expect(bench.happened()).toEqual(['pre1:a', '1', 'close:TIME_UP']);
});

describe('where the log has to have acknowledged the state before a call', () => {
  const attesting = async (): Promise<Bench> => {
    const bench = new Bench(undefined, true);
    await bench.took('a');
    bench.happened();
    return bench;
  };

  test('the call waits for that too, with those that come meanwhile; other frames and answers do not', async () => {
    const bench = await attesting();
    bench.client('1', call(1));
    await bench.took('a');
    bench.client('2', call(2));
    bench.client('cancel 2', cancel(2));
    bench.client('ping', ping(9));
    // The limit on states is not one on this.
    vi.advanceTimersByTime(LIMIT);
    expect(bench.happened()).toEqual(['pre1:a', 'ping']);
    await bench.acknowledged();
    expect(bench.happened()).toEqual(['1', '2', 'cancel 2']);
    bench.client('3', call(3));
    bench.server('r1', answer(1));
    bench.server('r3', answer(3));
    await bench.took('b');
    expect(bench.happened()).toEqual(['3', 'r1', 'r3', 'post1/3:b']);
  });

  test('without it, each call of the group goes with why', async () => {
    const bench = await attesting();
    bench.client('1', call(1));
    await bench.took('a');
    await bench.acknowledged('ATTEST_TIME_UP');
    bench.client('2', call(2));
    bench.client('ping', ping(9));
    expect(bench.happened()).toEqual(['pre1:a', '1 ATTEST_TIME_UP', '2 ATTEST_TIME_UP', 'ping']);
  });

  test('where there is no state, nothing is waited for', async () => {
    const bench = await attesting();
    bench.client('1', call(1));
    await settled();
    vi.advanceTimersByTime(LIMIT);
    expect(bench.happened()).toEqual(['pre1:HOLD_LIMIT', '1 ATTEST_NO_STATE']);
    bench.server('r1', answer(1));
    await bench.took('b');
    bench.happened();
    bench.gate.client(content(call(2)), (odd) => bench.log.push(`2 ${odd ?? ''}`), true);
    expect(bench.happened()).toEqual(['pre2:NOT_HELD', '2 ATTEST_NOT_HELD']);
  });

  test('the end of the run does not wait', async () => {
    const bench = await attesting();
    bench.client('1', call(1));
    await bench.took('a');
    const closing = bench.gate.close(new AbortController().signal, 1_000);
    await bench.took('c');
    await closing;
    expect(bench.happened()).toEqual(['pre1:a', '1 ATTEST_TIME_UP', 'close:c drift']);
  });
});

describe.each([false, true])('whatever happens, in whatever order (attest first: %s)', (attestFirst) => {
  type Step = readonly ['call' | 'ping' | 'cancel' | 'answer' | 'took' | 'limit' | 'batch' | 'ack', number];
  const step = fc.tuple(
    fc.constantFrom<Step[0]>(
      ...(['call', 'call', 'ping', 'cancel', 'answer', 'answer', 'took', 'limit', 'batch'] as const),
      ...(attestFirst ? (['ack'] as const) : []),
    ),
    fc.nat(30),
  );

  test('every frame goes once, at once where it may, calls in their order and inside their states', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const bench = new Bench(undefined, attestFirst);
        const all: string[] = [];
        const gone: string[] = [];
        const sent: number[] = [];
        let ids = 0;
        const note = (): void => void gone.push(...bench.happened());
        for (const [what, pick] of steps) {
          if (what === 'call' || what === 'batch') {
            const id = ++ids;
            all.push(`call ${id}`);
            sent.push(id);
            bench.client(`call ${id}`, ...(what === 'batch' ? [call(id), ping(1_000 + id)] : [call(id)]));
          } else if (what === 'ping') {
            const id = ++ids;
            all.push(`ping ${id}`);
            bench.client(`ping ${id}`, ping(id));
            note();
            expect(gone.at(-1)).toBe(`ping ${id}`);
          } else if (what === 'cancel' && sent.length > 0) {
            const id = sent[pick % sent.length] as number;
            const name = `cancel ${++ids} of ${id}`;
            all.push(name);
            bench.client(name, cancel(id));
          } else if (what === 'answer') {
            note();
            // A server answers what it was asked.
            const asked = sent.filter((id) => gone.includes(`call ${id}`) && !all.includes(`answer ${id}`));
            const id = asked[pick % Math.max(1, asked.length)];
            if (id === undefined) continue;
            all.push(`answer ${id}`);
            bench.server(`answer ${id}`, answer(id));
          } else if (what === 'took') await bench.took(String(pick));
          else if (what === 'limit') vi.advanceTimersByTime(LIMIT);
          else if (what === 'ack') await bench.acknowledged();
          note();
        }
        for (let more = 0; more < 6; more++) {
          await bench.took('end');
          await bench.acknowledged();
        }
        for (const [at, each] of [...gone, ...bench.happened()].entries())
          gone[at] = each.replace(/ ATTEST_NO_STATE$/, '');
        const frames = gone.filter((each) => /^(call|ping|cancel|answer) /.test(each));
        expect([...frames].sort()).toEqual([...all].sort());
        expect(frames.filter((each) => each.startsWith('call'))).toEqual(sent.map((id) => `call ${id}`));
        let group = 0;
        let inside = false;
        let calls = 0;
        for (const each of gone) {
          const [, phase, number, count] = /^(pre|post)(\d+)(?:\/(\d+))?:/.exec(each) ?? [];
          if (phase === 'pre') {
            expect([inside, Number(number)]).toEqual([false, group + 1]);
            [inside, group, calls] = [true, group + 1, 0];
          } else if (phase === 'post') {
            expect([inside, Number(number), Number(count)]).toEqual([true, group, calls]);
            inside = false;
          } else if (each.startsWith('call')) {
            expect(inside).toBe(true);
            calls++;
          } else if (each.startsWith('cancel')) {
            expect(gone.indexOf(each)).toBeGreaterThan(
              gone.indexOf(`call ${/of (\d+)$/.exec(each)?.[1] ?? ''}`),
            );
          }
        }
      }),
      { numRuns: 400 },
    );
  });
});
