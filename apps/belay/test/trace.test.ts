import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { indentJson } from '../src/trace-html.js';
import { belay } from './command.js';
import { call, MadeTrace, notice, result } from './made-trace.js';

const scratch = mkdtempSync(join(tmpdir(), 'belay-trace-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
let number = 0;
let home = '';
beforeEach(() => {
  home = join(scratch, String(number++));
  mkdirSync(home);
  for (const name of ['BELAY_STATE', 'XDG_STATE_HOME', 'BELAY_TRACE_DIR']) vi.stubEnv(name, '');
  vi.stubEnv('HOME', home);
});
afterEach(() => vi.unstubAllEnvs());

/** Text that a terminal, a browser or a URL would take for more than text. */
const NASTY = '\u001b[2J<script>alert(1)</script>\u202e"\'&\ud800';

function sample(folder = home): string {
  return new MadeTrace(folder)
    .stderr('Starting <b>\n')
    .c2s({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-11-25' } })
    .s2c({
      jsonrpc: '2.0',
      id: 0,
      result: { protocolVersion: '2025-11-25', serverInfo: { name: NASTY, version: '1' } },
    })
    .c2s(
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"n":9007199254740993,"x":1.0,"a":1,"a":2}}}',
    )
    .s2c(notice('notifications/progress'))
    .s2c(result(1))
    .c2s(
      call(
        2,
        NASTY,
        { text: NASTY },
        { _meta: { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' } },
      ),
    )
    .s2c({ jsonrpc: '2.0', id: 2, error: { code: -32000, message: NASTY } })
    .s2c({ jsonrpc: '2.0', id: 's', method: 'roots/list' })
    .c2s({ jsonrpc: '2.0', id: 's', result: { roots: [] } })
    .c2s(call(3, 'broken'))
    .s2c(result(3, { isError: true }))
    .s2c('not JSON at all')
    .c2s(call(4, 'never'))
    .claim('all tests pass')
    .close();
}

const changed = (path: string, change: (lines: string[]) => string[]): string => {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n');
  writeFileSync(path, `${change(lines).join('\n')}\n`);
  return path;
};

describe('belay trace show', () => {
  it('is a table of calls', async () => {
    const { code, stdout } = await belay('trace', 'show', sample());
    expect(code).toBe(0);
    expect(stdout).toMatch(/command\s+server-made --x <b>&"/);
    expect(stdout).toMatch(/1\s+0\.002 initialize\s+1\.00 ms\s+\d+ B\s+\d+ B ok .*MCP 2025-11-25/);
    expect(stdout).toMatch(/2\s+0\.004 tools\/call add\s+2\.00 ms/);
    expect(stdout).toContain('← roots/list');
    expect(stdout).toMatch(/tools\/call broken .* tool error/);
    expect(stdout).toMatch(/tools\/call never\s+-\s+\d+ B\s+- no answer/);
    expect(stdout).toContain('1 line of the server, no JSON-RPC  NON_JSON');
    expect(stdout).toContain('» claim, 14 B: all tests pass');
    expect(stdout).toContain('6 calls: 3 ok, 1 tool error, 1 error, 1 without an answer');
    expect(stdout).toMatch(/INTACT\. integrity: local-only/);
  });

  it('writes nothing that moves a cursor', async () => {
    for (const args of [[], ['--frames'], ['--trouble']]) {
      const { stdout } = await belay('trace', 'show', sample(mkdtempSync(join(home, 'x'))), ...args);
      // oxlint-disable-next-line eslint/no-control-regex -- these are what must not be there
      expect(stdout).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    }
  });

  it('--trouble leaves out what is well', async () => {
    const { stdout } = await belay('trace', 'show', sample(), '--trouble');
    expect(stdout).not.toContain('tools/call add');
    expect(stdout).toContain('tools/call broken');
    expect(stdout).toContain('tools/call never');
  });

  it('--frames has every frame as it was', async () => {
    const path = sample();
    const { stdout } = await belay('trace', 'show', path, '--frames');
    expect(stdout).toContain('"arguments":{"n":9007199254740993,"x":1.0,"a":1,"a":2}');
    expect(stdout).toContain('Starting <b>');
    const { json } = await belay('trace', 'show', path, '--frames', '--json');
    const { frames } = json as { frames: { type: string; dir: string; text: string }[] };
    expect(frames).toHaveLength(14);
    expect(frames[3]?.text).toMatch(/"n":9007199254740993.*\n$/);
  });

  it('--json is one document', async () => {
    const { json } = await belay('trace', 'show', sample(), '--json');
    expect(json).toMatchObject({
      trace: { verdict: 'INTACT', integrity: 'local-only', open: { sink: 'proxy' }, close: { exit: 0 } },
      totals: { turns: 6, outcomes: { ok: 3, tool_error: 1, error: 1, unanswered: 1 } },
    });
    // Neither content nor what stands in the environment.
    expect(JSON.stringify(json)).not.toContain('9007199254740993');
    expect(JSON.stringify(json)).not.toContain('SECRET_NAME');
  });

  it('takes the newest trace when none is named', async () => {
    const folder = join(home, '.local/state/belay/traces');
    mkdirSync(folder, { recursive: true });
    new MadeTrace(folder, 'a').close();
    const newest = sample(folder);
    new MadeTrace(folder, 'b').close();
    utimesSync(newest, new Date('2031-01-01'), new Date('2031-01-01'));
    expect((await belay('trace', 'show')).stdout).toContain('tools/call add');
    vi.stubEnv('BELAY_TRACE_DIR', mkdtempSync(join(home, 'other')));
    expect(await belay('trace', 'show', '--json')).toMatchObject({
      code: 65,
      json: { error: { code: 'no_trace' } },
    });
  });

  it('reads on past damage', async () => {
    const path = changed(sample(), (lines) => lines.map((line, i) => (i === 4 ? '{"half' : line)));
    const { stdout } = await belay('trace', 'show', path);
    expect(stdout).toContain('! line 5: not_json');
    expect(stdout).toContain('tools/call broken');
    expect(stdout).toMatch(/DAMAGED: not_json/);
  });
});

describe('belay trace check', () => {
  it.each([
    ['a whole trace', (lines: string[]) => lines, 0, 'INTACT', undefined],
    ['no close', (lines: string[]) => lines.slice(0, -1), 2, 'INCOMPLETE', 'missing_close'],
    ['a record out', (lines: string[]) => lines.filter((_, i) => i !== 4), 1, 'DAMAGED', 'deleted'],
    [
      'two swapped',
      (lines: string[]) => lines.map((_, i) => lines[i === 3 ? 4 : i === 4 ? 3 : i] ?? ''),
      1,
      'DAMAGED',
      'swapped',
    ],
    [
      'one twice',
      (lines: string[]) => lines.flatMap((line, i) => (i === 4 ? [line, line] : [line])),
      1,
      'DAMAGED',
      'duplicated',
    ],
    [
      'an edit',
      (lines: string[]) => lines.map((line, i) => (i === 4 ? line.replace('"size":1', '"size":2') : line)),
      1,
      'DAMAGED',
      'edited',
    ],
    [
      'other content',
      (lines: string[]) => lines.map((line) => line.replace('"data":"ey', '"data":"fy')),
      1,
      'DAMAGED',
      'content_changed',
    ],
    ['no open', (lines: string[]) => lines.slice(1), 1, 'DAMAGED', 'missing_open'],
    ['a line of something else', (lines: string[]) => [...lines, 'hello'], 1, 'DAMAGED', 'not_json'],
    [
      'a shape that is none',
      (lines: string[]) => lines.map((line, i) => (i === 0 ? line.replace('"argv":[', '"argv":[7,') : line)),
      1,
      'DAMAGED',
      'not_a_record',
    ],
  ] as const)('%s', async (_title, change, code, verdict, problem) => {
    const path = changed(sample(), (lines) => change(lines));
    const ran = await belay('trace', 'check', path, '--json');
    expect(ran).toMatchObject({ code, json: { verdict, integrity: 'local-only' } });
    if (problem !== undefined) {
      expect(ran.stdout).toContain(`"code": "${problem}"`);
      expect((await belay('trace', 'check', path)).stdout).toContain(problem);
    }
  });

  it('a torn tail costs the tail', async () => {
    const path = changed(sample(), (lines) => lines.slice(0, -1));
    appendFileSync(path, '{"n":17,"ty');
    expect(await belay('trace', 'check', path, '--json')).toMatchObject({
      code: 2,
      json: {
        verdict: 'INCOMPLETE',
        traces: [{ problems: [{ code: 'torn_tail' }, { code: 'missing_close' }] }],
      },
    });
    expect((await belay('trace', 'show', path)).stdout).toContain('tools/call broken');
  });

  it('what the recorder itself says is missing is missing', async () => {
    const made = new MadeTrace(home);
    made.writer.append({ type: 'gap', reason: 'write', count: 3, code: 'ENOSPC' });
    const { code, stdout } = await belay('trace', 'check', made.close());
    expect(code).toBe(2);
    expect(stdout).toContain('the disk refused 3 records (ENOSPC)');
  });

  it('many files: the worst is the answer', async () => {
    const [good, bad] = [mkdtempSync(join(home, 'a')), mkdtempSync(join(home, 'b'))];
    const first = sample(good);
    const second = changed(sample(bad), (lines) => lines.slice(1));
    expect(await belay('trace', 'check', good)).toMatchObject({ code: 0 });
    const ran = await belay('trace', 'check', first, second, '--json');
    expect(ran).toMatchObject({ code: 1, json: { traces: [{ verdict: 'INTACT' }, { verdict: 'DAMAGED' }] } });
  });

  it.each([
    ['a file that is not there', () => join(home, 'nowhere'), 65, 'enoent'],
    ['an empty folder', () => home, 65, 'no_trace'],
    ['another file', () => (writeFileSync(join(home, 'x'), 'hello\n'), join(home, 'x')), 65, 'not_a_trace'],
  ])('%s', async (_title, path, code, word) => {
    expect(await belay('trace', 'check', path(), '--json')).toMatchObject({
      code,
      json: { error: { code: word } },
    });
  });
});

interface Har {
  log: {
    version: string;
    creator: object;
    pages: { id: string }[];
    entries: {
      pageref: string;
      startedDateTime: string;
      time: number;
      request: { url: string; postData?: { text: string } } & Record<string, unknown>;
      response: { status: number; statusText: string; content: { text?: string } } & Record<string, unknown>;
      timings: Record<string, number>;
    }[];
  };
}
interface Otlp {
  resourceSpans: [{ resource: object; scopeSpans: [{ spans: Span[] }] }];
}
interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: { key: string; value: Record<string, unknown> }[];
  status: { code?: number };
}

describe('belay trace export', () => {
  it('json: messages digit for digit', async () => {
    const { code, stdout, json } = await belay('trace', 'export', sample());
    expect(code).toBe(0);
    expect(stdout).toContain(
      '"message":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"n":9007199254740993,"x":1.0,"a":1,"a":2}}}',
    );
    const { items } = json as {
      items: { type: string; subject?: string; text?: string; answer?: { message: unknown } }[];
    };
    expect(items.find(({ subject }) => subject === 'broken')?.answer?.message).toEqual(
      result(3, { isError: true }),
    );
    expect(items.find(({ type }) => type === 'claim')).toMatchObject({ text: 'all tests pass' });
  });

  it('json: members of a batch and bytes that are no text', async () => {
    const path = new MadeTrace(home)
      .c2s(
        '[{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":9007199254740993}}, {"jsonrpc":"2.0","id":2,"method":"b"}]',
      )
      .frame('s2c', Buffer.from([0xff, 0xfe, 0x0a]))
      .close();
    const { stdout } = await belay('trace', 'export', path);
    expect(stdout).toContain(
      '"message":{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":9007199254740993}}',
    );
    expect(stdout).toContain('"message":{"jsonrpc":"2.0","id":2,"method":"b"}');
    expect(stdout).toContain('"data":"//4="');
  });

  it('har: what version 1.2 asks for', async () => {
    const { log } = (await belay('trace', 'export', sample(), '--format', 'har')).json as Har;
    expect(log).toMatchObject({ version: '1.2', creator: { name: 'belay', version: '0.1.0' } });
    // Six requests, and what was said between them.
    expect(log.entries).toHaveLength(7);
    for (const entry of log.entries) {
      expect(entry.pageref).toBe(log.pages[0]?.id);
      expect(Number.isNaN(Date.parse(entry.startedDateTime))).toBe(false);
      expect(new URL(entry.request.url).protocol).toBe('mcp:');
      for (const name of [
        'method',
        'url',
        'httpVersion',
        'cookies',
        'headers',
        'queryString',
        'headersSize',
        'bodySize',
      ]) {
        expect(entry.request).toHaveProperty(name);
      }
      for (const name of [
        'status',
        'statusText',
        'httpVersion',
        'cookies',
        'headers',
        'content',
        'redirectURL',
        'headersSize',
        'bodySize',
      ]) {
        expect(entry.response).toHaveProperty(name);
      }
      const { send = 0, wait = 0, receive = 0 } = entry.timings;
      expect(send + wait + receive).toBe(entry.time);
    }
    expect(log.entries.map(({ response }) => response.status)).toEqual([200, 200, 202, 500, 200, 200, 0]);
    const [progress] = log.entries.filter(({ response }) => response.status === 202);
    expect(progress?.request.url).toMatch(/^mcp:\/\/proxy\/notifications\/progress$/);
    expect(progress).toMatchObject({ _notified: 'server', response: { content: { size: 0 } } });
    expect(log.entries[1]?.request.postData?.text).toContain('9007199254740993');
  });

  it('otlp: a span for each call below one for the session, none of the content', async () => {
    const ran = await belay('trace', 'export', sample(), '--format', 'otlp');
    expect(ran.stdout).not.toContain('9007199254740993');
    const [{ scopeSpans }] = (ran.json as Otlp).resourceSpans;
    const { spans } = scopeSpans[0];
    expect(spans).toHaveLength(7);
    const session = spans.at(-1);
    const attribute = (span: Span | undefined, key: string): unknown =>
      Object.values(span?.attributes.find((each) => each.key === key)?.value ?? {})[0];
    for (const span of spans) {
      expect(span.traceId).toMatch(/^[0-9a-f]{32}$/);
      expect(span.spanId).toMatch(/^[0-9a-f]{16}$/);
      expect(BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano)).toBe(true);
      expect([2, 3]).toContain(span.kind);
    }
    expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(7);
    expect(spans[1]).toMatchObject({
      name: 'tools/call add',
      traceId: session?.traceId,
      parentSpanId: session?.spanId,
    });
    expect(attribute(spans[1], 'gen_ai.operation.name')).toBe('execute_tool');
    expect(attribute(spans[1], 'jsonrpc.request.id')).toBe('1');
    expect(attribute(spans[1], 'mcp.protocol.version')).toBe('2025-11-25');
    expect(attribute(spans[1], 'network.transport')).toBe('pipe');
    expect(BigInt(spans[1]?.endTimeUnixNano ?? 0) - BigInt(spans[1]?.startTimeUnixNano ?? 0)).toBe(
      2_000_000n,
    );
    // A call that carries its caller's context belongs to the caller's trace.
    expect(spans[2]).toMatchObject({
      traceId: '0af7651916cd43dd8448eb211c80319c',
      parentSpanId: 'b7ad6b7169203331',
      status: { code: 2 },
    });
    expect(attribute(spans[2], 'error.type')).toBe('-32000');
    expect(attribute(spans[4], 'error.type')).toBe('tool_error');
    expect(attribute(spans[5], 'error.type')).toBe('unanswered');
    const full = await belay(
      'trace',
      'export',
      sample(mkdtempSync(join(home, 'x'))),
      '--format',
      'otlp',
      '--content',
      'full',
    );
    expect(full.stdout).toContain('gen_ai.tool.call.arguments');
  });

  it('html: one file that asks for nothing and runs nothing of others', async () => {
    const out = join(home, 'page.html');
    const ran = await belay('trace', 'export', sample(), '--format', 'html', '--out', out, '--json');
    expect(ran.json).toMatchObject({ file: out, format: 'html', content: 'short', verdict: 'INTACT' });
    const page = readFileSync(out, 'utf8');
    expect(statSync(out).mode & 0o777).toBe(0o600);
    expect(page).toContain(`default-src 'none'`);
    expect(page.match(/<script/g)).toHaveLength(1);
    expect(page).not.toMatch(/\b(src|href)=|url\(|@import|https?:|\u202e/);
    expect(page).not.toContain('\u001b');
    expect(page).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
    expect(page).toContain('&quot;n&quot;: 9007199254740993');
    expect(page).toContain('integrity: local-only');
    const tags = (name: string): number => page.match(new RegExp(`<${name}[ >]`, 'g'))?.length ?? 0;
    const closed = (name: string): number => page.match(new RegExp(`</${name}>`, 'g'))?.length ?? 0;
    for (const name of ['details', 'div', 'span', 'pre', 'main'])
      expect({ name, open: tags(name) }).toEqual({ name, open: closed(name) });
  });

  it.each(['json', 'html', 'har', 'otlp'])('%s: without content when asked to', async (format) => {
    const { stdout } = await belay('trace', 'export', sample(), '--format', format, '--content', 'none');
    expect(stdout).not.toContain('9007199254740993');
    expect(stdout).toContain('broken');
  });

  it('needs a file for itself when its description is printed', async () => {
    expect(await belay('trace', 'export', sample(), '--json')).toMatchObject({ code: 64 });
    expect(
      await belay('trace', 'export', sample(mkdtempSync(join(home, 'x'))), '--format', 'pdf'),
    ).toMatchObject({ code: 64 });
  });
});

describe('JSON for reading', () => {
  it.each([
    ['{}', '{}'],
    ['[1,{"a":[]}]', '[\n  1,\n  {\n    "a": []\n  }\n]'],
    [
      '{"n":9007199254740993,"n":1.0,"s":"a\\"{,}"}',
      '{\n  "n": 9007199254740993,\n  "n": 1.0,\n  "s": "a\\"{,}"\n}',
    ],
  ])('%s', (text, expected) => {
    expect(indentJson(text)).toBe(expected);
  });
});
