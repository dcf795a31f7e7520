import { readTrace } from '@belay/trace';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Recorder } from '../src/recorder.js';
import { readTurns, type TraceItem, type Turn } from '../src/turns.js';
import { call, MadeTrace, notice, result } from './made-trace.js';

async function itemsOf(path: string): Promise<TraceItem[]> {
  const items: TraceItem[] = [];
  for await (const item of readTurns(readTrace(path))) {
    if (item.type !== 'open' && item.type !== 'close') items.push(item);
  }
  return items;
}
const turnsOf = async (path: string): Promise<Turn[]> =>
  (await itemsOf(path)).filter((item): item is Turn => item.type === 'turn');

describe('turns', () => {
  it('are requests with their answers, in the order of the requests', async () => {
    const path = new MadeTrace()
      .c2s({
        jsonrpc: '2.0',
        id: 0,
        method: 'initialize',
        params: { protocolVersion: '2025-11-25', clientInfo: { name: 'c' } },
      })
      .s2c({
        jsonrpc: '2.0',
        id: 0,
        result: { protocolVersion: '2025-06-18', serverInfo: { name: 's', version: '2' } },
      })
      .c2s(call(1, 'slow'))
      .c2s(call(2, 'fast'))
      .s2c(result(2))
      .after(40)
      .s2c(result(1, { isError: true }))
      .c2s({ jsonrpc: '2.0', id: 'x', method: 'resources/read', params: { uri: 'file:///a' } })
      .s2c({ jsonrpc: '2.0', id: 'x', error: { code: -32602, message: 'no such thing' } })
      .c2s(call(3, 'never'))
      .close();
    const turns = await turnsOf(path);
    expect(turns.map(({ call: n, method, subject, outcome }) => [n, method, subject, outcome])).toEqual([
      [1, 'initialize', undefined, 'ok'],
      [2, 'tools/call', 'slow', 'tool_error'],
      [3, 'tools/call', 'fast', 'ok'],
      [4, 'resources/read', 'file:///a', 'error'],
      [5, 'tools/call', 'never', 'unanswered'],
    ]);
    expect(turns[0]).toMatchObject({ protocol: '2025-06-18', peer: { name: 's', version: '2' } });
    expect((turns[1]?.answer?.at ?? 0) - (turns[1]?.request.at ?? 0)).toBe(43_000);
    expect(turns[3]).toMatchObject({ id: '"x"', error: { code: -32602, message: 'no such thing' } });
  });

  it('keep the ids of both sides and of both types apart', async () => {
    const path = new MadeTrace()
      .c2s(call(1, 'a'))
      .s2c({ jsonrpc: '2.0', id: 1, method: 'sampling/createMessage', params: {} })
      .c2s(call('1', 'b'))
      .c2s({ jsonrpc: '2.0', id: 1, result: { role: 'assistant' } })
      .s2c(result('1', { isError: true }))
      .s2c(result(1))
      .close();
    expect((await turnsOf(path)).map(({ dir, subject, outcome }) => [dir, subject, outcome])).toEqual([
      ['c2s', 'a', 'ok'],
      ['s2c', undefined, 'ok'],
      ['c2s', 'b', 'tool_error'],
    ]);
  });

  it('name what was odd', async () => {
    const path = new MadeTrace()
      .c2s(
        call(
          1,
          'a',
          {},
          {
            _meta: {
              progressToken: 0,
              traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
            },
          },
        ),
      )
      .s2c(notice('notifications/progress', { progressToken: 0, progress: 1 }))
      .c2s(call(1, 'again'))
      .c2s(notice('notifications/cancelled', { requestId: 1 }))
      .s2c(result(1))
      .s2c(result(1))
      .s2c(result(1))
      .s2c(result(77))
      .s2c(notice('notifications/progress', { progressToken: 0, progress: 2 }))
      .s2c('Starting...')
      .frame('s2c', Buffer.from([0xff, 0x0a]))
      .frame('s2c', Buffer.from('\r\n'))
      .close();
    const items = await itemsOf(path);
    const turns = items.filter((item): item is Turn => item.type === 'turn');
    // The living one of two with the same id gets the first answer, the cancelled one the second.
    expect(turns).toMatchObject([
      { subject: 'a', outcome: 'cancelled', findings: ['ANSWER_AFTER_CANCEL'], progress: 1 },
      { subject: 'again', outcome: 'ok', findings: ['ID_IN_USE'] },
    ]);
    expect(turns[0]?.traceparent).toMatch(/^00-0af7/);
    expect(items.filter(({ type }) => type === 'stray')).toMatchObject([
      { duplicateOf: 1, findings: ['DUPLICATE_ANSWER'] },
      { duplicateOf: undefined, findings: ['ANSWER_WITHOUT_REQUEST'] },
    ]);
    expect(items.at(-1)).toMatchObject({
      type: 'asides',
      noise: { c2s: 0, s2c: 2 },
      blank: 1,
      findings: ['PROGRESS_AFTER_ANSWER', 'NON_JSON', 'INVALID_UTF8'],
    });
  });

  it('chain what was asked for more input', async () => {
    const path = new MadeTrace()
      .c2s(call(1, 'book'))
      .s2c(result(1, { resultType: 'input_required', requestState: 'opaque-1', inputRequests: {} }))
      .c2s(call(2, 'book', {}, { requestState: 'opaque-1', inputResponses: {} }))
      .s2c(result(2, { resultType: 'complete' }))
      .close();
    expect(await turnsOf(path)).toMatchObject([
      { outcome: 'input_required', continues: undefined },
      { outcome: 'ok', continues: 1 },
    ]);
  });

  it('members of a batch are turns', async () => {
    const path = new MadeTrace()
      .c2s([call(1, 'a'), notice('notifications/x'), call(2, 'b')])
      .s2c([result(2), result(1)])
      .c2s([])
      .close();
    expect(await turnsOf(path)).toMatchObject([
      { subject: 'a', request: { n: 1, member: 0 }, answer: { n: 2, member: 1 }, outcome: 'ok' },
      { subject: 'b', request: { n: 1, member: 2 }, answer: { n: 2, member: 0 }, outcome: 'ok' },
    ]);
  });

  it('too large to keep stay turns', async () => {
    const path = new MadeTrace()
      .oversize('c2s', call(7, 'big', { pad: 'x'.repeat(5_000) }))
      .oversize('s2c', result(7, { isError: true, pad: 'x'.repeat(5_000) }))
      .close();
    expect(await turnsOf(path)).toMatchObject([
      { subject: 'big', id: '7', outcome: 'tool_error', findings: ['OVERSIZE'], request: { oversize: true } },
    ]);
  });

  it('of two conversations over HTTP are not mixed up', async () => {
    const made = new MadeTrace();
    const http = (phase: 'request' | 'response', exchange: number, more: object = {}): void => {
      made.after(1).writer.append({ type: 'http', exchange, phase, ...more });
    };
    http('request', 1, { method: 'POST', target: '/mcp' });
    made.frame('c2s', call(1, 'a'), undefined, { conversation: 's1', exchange: 1 });
    made.frame('c2s', call(1, 'b'), undefined, { conversation: 's2', exchange: 2 });
    made.frame('s2c', result(1, { isError: true }), undefined, { conversation: 's2', exchange: 2 });
    http('response', 1, { status: 200 });
    made.frame('s2c', result(1), undefined, { conversation: 's1', exchange: 1 });
    http('response', 3, { status: 404 });
    const items = await itemsOf(made.close());
    expect(items).toMatchObject([
      { type: 'asides', http: 1 },
      { subject: 'a', outcome: 'ok', findings: [], conversation: 's1' },
      { subject: 'b', outcome: 'tool_error', findings: [], conversation: 's2' },
      { type: 'asides', http: 1 },
      { type: 'http', record: { status: 404 } },
    ]);
  });

  it('a call of 17 MiB that was recorded as it went by is still a call', async () => {
    const made = new MadeTrace();
    const recorder = new Recorder({
      trace: made.writer,
      epoch: undefined,
      machineSecret: Buffer.alloc(32),
      session: 's',
      privacy: 'minimal',
      onAppended: () => undefined,
      now: () => 0,
    });
    const line = (message: object): Buffer => Buffer.from(`${JSON.stringify(message)}\n`);
    const big = line(call(1, 'big', { pad: 'x'.repeat(17 * 1024 * 1024) }));
    for (let at = 0; at < big.length; at += 65_536) recorder.observe('c2s', big.subarray(at, at + 65_536));
    recorder.observe('s2c', line(result(1)));
    recorder.close({ exit: 0 });
    expect(await turnsOf(made.path)).toMatchObject([
      {
        method: 'tools/call',
        subject: 'big',
        id: '1',
        outcome: 'ok',
        findings: ['OVERSIZE'],
        request: { size: big.length },
      },
    ]);
  });

  it('notifications, stderr and noise between turns are one line', async () => {
    const made = new MadeTrace().stderr('hello\n');
    for (let i = 0; i < 500; i++) made.s2c(notice('notifications/message', { i }));
    for (let i = 0; i < 100; i++) made.s2c(notice(`x/${i}`));
    const items = await itemsOf(made.stderr('more\n').c2s(call(1, 'a')).close());
    expect(items).toHaveLength(2);
    expect(items[0]).toMatchObject({ type: 'asides', stderr: { pieces: 2, bytes: 11 } });
    const [asides] = items as [TraceItem & { type: 'asides' }];
    expect(asides.notices.reduce((sum, { count }) => sum + count, 0)).toBe(600);
    expect(asides.notices.length).toBeLessThan(40);
    expect(asides.places).toHaveLength(100);
  });

  it('one that is never answered does not hold back the rest without end', async () => {
    const made = new MadeTrace().c2s({
      jsonrpc: '2.0',
      id: 'listen',
      method: 'subscriptions/listen',
      params: {},
    });
    for (let i = 0; i < 5_000; i++) made.c2s(call(i, 'a')).s2c(result(i));
    const items = await itemsOf(made.s2c({ jsonrpc: '2.0', id: 'listen', result: {} }).close());
    expect(items[0]).toMatchObject({ method: 'subscriptions/listen', outcome: 'unanswered' });
    expect(items.at(-1)).toMatchObject({ type: 'late_answer', turn: { call: 1, outcome: 'ok' } });
    expect(items).toHaveLength(5_002);
  });

  it('no order of answers loses one or pairs it wrongly', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(5), { minLength: 1, maxLength: 40 }), async (choices) => {
        const made = new MadeTrace();
        const open: number[] = [];
        let next = 1;
        for (const choice of choices) {
          if (choice < 3 || open.length === 0) {
            made.c2s(call(next, `tool-${next}`));
            open.push(next++);
          } else {
            const [id] = open.splice(choice % open.length, 1) as [number];
            made.s2c(result(id, { structuredContent: id, isError: id % 2 === 0 }));
          }
        }
        const turns = await turnsOf(made.close());
        expect(turns.map(({ subject }) => subject)).toEqual(turns.map((_, i) => `tool-${i + 1}`));
        for (const turn of turns) {
          const even = turn.call % 2 === 0;
          expect(turn.outcome).toBe(open.includes(turn.call) ? 'unanswered' : even ? 'tool_error' : 'ok');
        }
      }),
      { numRuns: 60 },
    );
  });
});
