import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Framer, OBSERVATION_LIMIT } from '@belay/mcp';
import { SmallCollector } from '@belay/testkit';
import type { TraceRecord } from '@belay/trace';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freshFolder, node, proxied, recordedBytes, recordsIn, start } from './proxied.js';

const line = (message: object): string => `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`;
const framesOf = (records: readonly TraceRecord[], dir?: 'c2s' | 's2c') =>
  records
    .filter((record) => record.type === 'frame')
    .filter((frame) => dir === undefined || frame.dir === dir);

/** Passes bytes through an echoing server; what came back, and the records. */
async function echoed(...chunks: (string | Buffer)[]): Promise<{ back: Buffer; records: TraceRecord[] }> {
  const folder = freshFolder();
  const run = proxied(['echo'], { BELAY_TRACE_DIR: folder });
  for (const chunk of chunks) run.child.stdin.write(chunk);
  run.child.stdin.end();
  expect(await run.ended).toBe(0);
  return { back: run.stdout(), records: await recordsIn(folder) };
}

describe('2.1 framing and bytes', () => {
  test.each([64 << 20])(
    'case 3: a result of %d bytes on one line, and memory stays bounded',
    async (size) => {
      const folder = freshFolder();
      // The recorder of a child that is still there can be asked what its memory was at most.
      const run = proxied([`big:${size}`, 'say:{}\\n', 'echo'], { BELAY_TRACE_DIR: folder }, false);
      const hash = createHash('sha256');
      let [got, ends] = [0, 0];
      let last = '';
      run.child.stdout.on('data', (chunk: Buffer) => {
        got += chunk.length;
        hash.update(got <= size ? chunk : chunk.subarray(0, Math.max(0, chunk.length - (got - size))));
        for (const byte of chunk.subarray(-8)) if (byte === 0x0a) ends++;
        last = (last + chunk.subarray(-8).toString('latin1')).slice(-4);
      });
      await expect.poll(() => got, { timeout: 25_000 }).toBe(size + 3);
      expect(ends).toBeGreaterThan(0);
      expect(last).toBe('\n{}\n');
      const peak =
        Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${run.child.pid}/status`, 'utf8'))?.[1]) / 1024;
      run.child.stdin.end();
      expect(await run.ended).toBe(0);
      const [frame] = framesOf(await recordsIn(folder));
      expect(frame).toMatchObject({ size, oversize: true, sha256: hash.digest('hex') });
      // What a bare Node takes, what is kept of a frame at most, and room for what was read and not yet collected.
      expect(peak).toBeLessThan(90 + (3 * OBSERVATION_LIMIT) / (1 << 20) + 60);
    },
  );

  test('case 3: frames of half the limit, one after the other, do not add up in memory', async () => {
    const folder = freshFolder();
    const size = 4 << 20;
    const run = proxied(
      [...Array.from({ length: 25 }, () => `big:${size}`), 'say:end\\n', 'echo'],
      {
        BELAY_TRACE_DIR: folder,
      },
      false,
    );
    let got = 0;
    run.child.stdout.on('data', (chunk: Buffer) => (got += chunk.length));
    const status = `/proc/${run.child.pid}/status`;
    const held = (): number => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(status, 'utf8'))?.[1]) / 1024;
    await expect.poll(() => got, { timeout: 25_000 }).toBeGreaterThanOrEqual(8 * size);
    const early = held();
    await expect.poll(() => got, { timeout: 25_000 }).toBe(25 * size + 4);
    expect(held() - early).toBeLessThan(64);
    run.child.stdin.end();
    await run.ended;
    expect(framesOf(await recordsIn(folder))).toHaveLength(26);
  });

  test('case 1: banners before and between answers pass, are named, and calls still find their answers', async () => {
    const folder = freshFolder();
    const script = `const say = (text) => process.stdout.write(text);
      say('Starting…\\n');
      require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
        const { id } = JSON.parse(line);
        say('working on ' + id + '\\n' + JSON.stringify({ jsonrpc: '2.0', id, result: {} }) + '\\n');
      })`;
    const run = start(['proxy', '--', node, '-e', script], { BELAY_TRACE_DIR: folder });
    run.child.stdin.end(
      [1, 2, 3].map((id) => line({ id, method: 'tools/call', params: { name: 't' } })).join(''),
    );
    expect(await run.ended).toBe(0);
    const said = framesOf(await recordsIn(folder), 's2c');
    expect(Buffer.from(run.stdout())).toEqual(recordedBytes(said, 's2c'));
    expect(run.stdout().toString().split('\n').slice(0, 2)).toEqual(['Starting…', 'working on 1']);
    expect(said.map(({ findings }) => findings?.join())).toEqual([
      'NON_JSON',
      ...[1, 2, 3].flatMap(() => ['NON_JSON', undefined]),
    ]);
  });

  test('case 6: four bytes of an emoji one at a time, both ways; lone surrogates, U+2028, NUL, invalid UTF-8', async () => {
    const texts = ['{"t":"😀"}\n', '{"t":"\\ud800"}\n', '{"t":"\u2028"}\n', '{"t":"\\u0000"}\n'];
    const invalid = Buffer.from('7b2274223a22c328227d0a', 'hex');
    const sent = Buffer.concat([...texts.map((text) => Buffer.from(text)), invalid]);
    const { back, records } = await echoed(...[...sent].map((byte) => Buffer.of(byte)));
    expect(back).toEqual(sent);
    for (const dir of ['c2s', 's2c'] as const) {
      expect(recordedBytes(records, dir)).toEqual(sent);
      const flagged = framesOf(records, dir).map(
        ({ findings }) => findings?.includes('INVALID_UTF8') ?? false,
      );
      expect(flagged).toEqual([false, false, false, false, true]);
    }
  });

  test('case 7: CRLF is passed on and recorded as it came', async () => {
    const { back, records } = await echoed(
      '{"jsonrpc":"2.0","method":"a"}\r\n{"jsonrpc":"2.0","method":"b"}\n',
    );
    expect(back.toString()).toBe('{"jsonrpc":"2.0","method":"a"}\r\n{"jsonrpc":"2.0","method":"b"}\n');
    expect(
      framesOf(records, 's2c').map(({ data }) =>
        Buffer.from(data as string, 'base64')
          .toString()
          .slice(-2),
      ),
    ).toEqual(['\r\n', '}\n']);
  });

  test('case 9: large integers, 1.0, key order and duplicate keys arrive as they were; the digest is of the bytes', async () => {
    const text = '{"n":9007199254740993,"x":1.0,"a":1,"a":2}\n';
    const { back, records } = await echoed(text);
    expect(back.toString()).toBe(text);
    for (const { sha256 } of framesOf(records))
      expect(sha256).toBe(createHash('sha256').update(text).digest('hex'));
  });

  test('case 10: a batch, an empty one and an invalid one pass as one frame each', async () => {
    const sent = '[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"}]\n[]\n[1]\n';
    const { back, records } = await echoed(sent);
    expect(back.toString()).toBe(sent);
    expect(framesOf(records, 'c2s').map(({ findings }) => findings)).toEqual([
      undefined,
      undefined,
      ['NOT_JSON_RPC'],
    ]);
  });

  test('case 18: what we know nothing of arrives unchanged', async () => {
    const sent = [
      line({
        id: 1,
        method: 'x/unknown',
        params: { _meta: { 'a.b/c': [1, null] }, more: { deep: true } },
        extra: 1,
      }),
      line({
        id: 1,
        result: { structuredContent: 5, annotations: { unheardOf: '?' }, _meta: {}, resultType: 'new' },
      }),
      line({
        id: 2,
        result: { capabilities: { experimental: { thing: {} }, unknown: [] } },
        serverNote: 'kept',
      }),
    ].join('');
    const { back } = await echoed(sent);
    expect(back.toString()).toBe(sent);
  });
});

describe('2.2 ids, correlation, ordering', () => {
  let collector: SmallCollector;
  let env: Record<string, string>;
  beforeAll(async () => {
    collector = new SmallCollector();
    env = { BELAY_URL: await collector.listen(), BELAY_TOKEN: collector.token, BELAY_STATE: freshFolder() };
  });
  afterAll(() => collector.close());

  /**
   * Client and server as a script: `>` lines are the client's, `<` lines the server's, which says them when the client's
   * line before has arrived. What the collector was sent, and the trace.
   */
  async function played(script: readonly (readonly ['>' | '<', object])[]) {
    const folder = freshFolder();
    const before = collector.envelopes().length;
    const steps = join(freshFolder(), 'steps.json');
    writeFileSync(steps, JSON.stringify(script));
    const server = `const steps = JSON.parse(require('fs').readFileSync(${JSON.stringify(steps)})); let at = 0;
      const speak = () => { while (at < steps.length && steps[at][0] === '<')
        process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...steps[at++][1] }) + '\\n') };
      require('readline').createInterface({ input: process.stdin }).on('line', () => { at++; speak() }); speak()`;
    const run = start(['proxy', '--', node, '-e', server], { ...env, BELAY_TRACE_DIR: folder });
    let heard = 0;
    for (const [who, message] of script) {
      if (who === '<') heard++;
      else {
        await expect.poll(() => run.stdout().toString().split('\n').length - 1, { interval: 5 }).toBe(heard);
        run.child.stdin.write(line(message));
      }
    }
    run.child.stdin.end();
    expect(await run.ended).toBe(0);
    const records = await recordsIn(folder);
    const sent = collector.envelopes().slice(before) as unknown as {
      kind: string;
      call?: string;
      attrs: Record<string, unknown>;
    }[];
    return {
      frames: framesOf(records),
      of: (kind: string) => sent.filter((each) => each.kind === kind),
      run,
    };
  }
  const ask = (id: unknown, name = 't', args: object = {}) =>
    ['>', { id, method: 'tools/call', params: { name, arguments: args } }] as const;
  const answer = (id: unknown, result: unknown = { content: [] }) => ['<', { id, result }] as const;

  test('case 11: every type of id is answered for itself: 42 and "42", empty, zero, negative, very long', async () => {
    const ids = [42, '42', '', 0, -1, 1.5, 1e2, '1.0', 'x'.repeat(2_000)];
    const { of, frames } = await played([
      ...ids.map((id, at) => ask(id, `t${at}`)),
      ...ids.toReversed().map((id) => answer(id)),
    ]);
    const calls = of('call').map(({ call, attrs }) => `${attrs['tool'] as string} ${call}`);
    const results = of('result').map(({ call, attrs }) => `${attrs['tool'] as string} ${call}`);
    expect(calls).toHaveLength(ids.length);
    expect(results).toEqual(calls.toReversed());
    expect(frames.filter(({ findings }) => findings?.includes('ID_FRACTIONAL'))).toHaveLength(2);
  });

  test('case 13: progress before, between and after the answer keeps its place, tokens as they were', async () => {
    const progress = (progressToken: unknown, at: number) =>
      ['<', { method: 'notifications/progress', params: { progressToken, progress: at } }] as const;
    const { run, frames } = await played([
      ['>', { id: 1, method: 'tools/call', params: { name: 't', _meta: { progressToken: 0 } } }],
      progress(0, 1),
      progress('0', 2),
      answer(1),
      progress(0, 3),
    ]);
    const said = run.stdout().toString();
    expect(said.match(/"progressToken":(?:0|"0")|"result"/g)).toEqual([
      '"progressToken":0',
      '"progressToken":"0"',
      '"result"',
      '"progressToken":0',
    ]);
    expect(recordedBytes(frames, 's2c').toString()).toBe(said);
  });

  test('case 14: a cancelled call; its late answer is on record as late', async () => {
    const { of, run } = await played([
      ask(1),
      ['>', { method: 'notifications/cancelled', params: { requestId: 1 } }],
      answer(1),
    ]);
    expect(run.stdout().toString()).toContain('"result"');
    expect(of('result').map(({ attrs }) => attrs['late'])).toEqual([true]);
  });

  test("case 17: the server's requests have ids of their own, equal to the client's or not", async () => {
    const { of, run, frames } = await played([
      ask(1, 'client'),
      ['<', { id: 1, method: 'sampling/createMessage', params: {} }],
      ['>', { id: 1, result: { role: 'assistant', content: { type: 'text', text: 'hi' } } }],
      ['<', { id: 1, method: 'roots/list' }],
      ['>', { id: 1, result: { roots: [] } }],
      answer(1),
    ]);
    expect(run.stdout().toString().trim().split('\n')).toHaveLength(3);
    expect(frames).toHaveLength(6);
    expect(of('call')).toHaveLength(1);
    expect(of('result')).toHaveLength(1);
    expect(of('result')[0]).toMatchObject({ call: of('call')[0]?.call, attrs: { tool: 'client', ok: true } });
  });

  test('case 16: a call names the definition it was made by; a changed one and a stale list are found', async () => {
    const tool = (description: string) => ({ name: 't', description, inputSchema: { type: 'object' } });
    const list = (id: number, ...tools: object[]) =>
      [['>', { id, method: 'tools/list' }] as const, answer(id, { tools })] as const;
    const { of, frames } = await played([
      ask(1),
      answer(1),
      ...list(2, tool('reads')),
      ask(3),
      answer(3),
      ['<', { method: 'notifications/tools/list_changed' }],
      ask(4),
      answer(4),
      ...list(5, tool('writes')),
      ask(6),
      answer(6),
      ask(7, 'other'),
      answer(7),
    ]);
    const [before, first, stale, second, other] = of('call').map(({ attrs }) => attrs['tooldef']);
    expect(before).toBeUndefined();
    expect(first).toMatch(/^hmac-sha256:[0-9a-f]{64}$/);
    expect(stale).toBe(first);
    expect(second).toMatch(/^hmac-sha256:/);
    expect(second).not.toBe(first);
    expect(other).toBeUndefined();
    expect(frames.flatMap(({ findings }) => findings ?? [])).toEqual([
      'TOOL_LIST_STALE',
      'TOOL_CHANGED',
      'TOOL_NOT_LISTED',
    ]);
  });

  test('the definition of a tool in a list too large to be parsed on the way is known all the same', async () => {
    const description = 'x'.repeat(1_200_000);
    const { of } = await played([
      ['>', { id: 1, method: 'tools/list' }],
      answer(1, { tools: [{ name: 't', description }] }),
      ask(2),
      answer(2),
    ]);
    expect(of('call')[0]?.attrs['tooldef']).toMatch(/^hmac-sha256:/);
  });
});

test('framing by pieces of any size holds what it holds', () => {
  // The same frames from 1-byte, 64 KiB and whole chunks, across the sizes where something is done differently.
  const sizes = [1_023, 1_024, 16_384, 131_071, 131_072, 131_073, 300_000];
  const stream = Buffer.concat(
    sizes.map((size) => Buffer.concat([Buffer.alloc(size - 1, 'f'), Buffer.from('\n')])),
  );
  const seen = [1_000, 65_536, stream.length].map((step) => {
    const framer = new Framer();
    const found: string[] = [];
    for (let at = 0; at < stream.length; at += step) {
      framer.push(Buffer.from(stream.subarray(at, at + step)), ({ size, sha256, bytes, parts }) => {
        expect(
          createHash('sha256')
            .update(bytes as Buffer)
            .digest('hex'),
        ).toBe(sha256);
        if (parts !== undefined) expect(Buffer.concat(parts).equals(bytes as Buffer)).toBe(true);
        found.push(`${size} ${sha256}`);
      });
    }
    return found;
  });
  expect(seen[1]).toEqual(seen[0]);
  expect(seen[2]).toEqual(seen[0]);
  expect(seen[0]?.map((each) => Number(each.split(' ')[0]))).toEqual(sizes);
});
