import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CAUSES, type Judgement, reduce, tally, type Verdict } from '@belay/verdict';
import { checkLine } from '../src/check.js';
import { styleFor } from '../src/output.js';
import { pooled } from '../src/pool.js';
import { coverageOf, showCoverage } from '../src/replay.js';
import { annotations } from '../src/report-github.js';
import { verificationHtml } from '../src/report-html.js';
import { junitXml } from '../src/report-junit.js';
import { sarifLog } from '../src/report-sarif.js';
import { showVerification } from '../src/report-table.js';
import { columnsOf, wrapped } from '../src/text-width.js';
import type { Part, TurnPart, Verification } from '../src/verification.js';

/** Texts that a client, a server or a file may have written. */
const foreign = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.constantFrom(
    '\ud800',
    ']]>',
    '<!--<script>alert(1)</script>',
    '"><img src=x onerror=alert(1)>',
    '\u001b[2J\u001b[31mPASS',
    '\n::error::x',
    'a\r\nPASS',
    '%0A,:title=x',
    '\u202egnp.exe',
    '&lt;',
    '../../etc/passwd',
    'javascript:alert(1)',
    '漢字'.repeat(40),
    'x'.repeat(400),
  ),
);

const message = foreign;
const evidence = fc.oneof(
  fc.constant(undefined),
  fc.array(
    fc.record(
      { path: foreign, line: fc.nat(), recorded: foreign, replayed: foreign, class: foreign },
      { requiredKeys: ['path', 'recorded', 'replayed'] },
    ),
    { maxLength: 4 },
  ),
  fc.array(
    fc.record(
      {
        rule: foreign,
        path: foreign,
        cause: foreign,
        test: foreign,
        before: fc.record({ path: foreign, line: fc.integer(), text: foreign }, { requiredKeys: ['path'] }),
        after: fc.record({ path: foreign, line: fc.double(), text: foreign }, { requiredKeys: ['path'] }),
      },
      { requiredKeys: ['path'] },
    ),
    { maxLength: 4 },
  ),
  fc.jsonValue(),
);

const judgement: fc.Arbitrary<Judgement> = fc.oneof(
  fc.record({
    axis: fc.constant('A2' as const),
    kind: fc.constantFrom('result' as const, 'effect' as const),
    status: fc.constantFrom('PASS' as const, 'NOT_COVERED' as const),
    message,
  }),
  fc.record({
    axis: fc.constant('A2' as const),
    kind: fc.constantFrom('result' as const, 'contract' as const),
    status: fc.constant('FAIL' as const),
    cause: fc.constant('RESULT_DIFFERS' as const),
    message,
    evidence,
  }),
  fc.record({
    axis: fc.constant('A1' as const),
    kind: fc.constant('invariant' as const),
    status: fc.constant('UNVERIFIED' as const),
    cause: fc.constant('INVARIANT_UNDECIDED' as const),
    message,
    evidence,
  }),
);

const verdict: fc.Arbitrary<Verdict> = fc
  .tuple(
    fc.array(judgement, { maxLength: 4 }),
    fc.constantFrom([], ['OVERSIZE'] as const, ['PRE_STATE_MISSING'] as const),
  )
  .map(([judgements, caps]) => reduce(judgements, caps));

const changes = fc.array(
  fc.record(
    {
      path: foreign,
      what: fc.constantFrom(
        'created' as const,
        'deleted' as const,
        'modified' as const,
        'metadata' as const,
        'type' as const,
      ),
      diff: foreign,
      without: fc.constantFrom('binary' as const, 'large' as const, 'unknown' as const),
    },
    { requiredKeys: ['path', 'what'] },
  ),
  { maxLength: 3 },
);

const turn = fc.record(
  {
    type: fc.constant('turn' as const),
    turn: fc.integer({ min: 1, max: 99_999 }),
    tool: foreign,
    record: fc.nat(),
    time: fc.constant('2026-11-30T19:02:33.314Z'),
    group: fc.array(fc.nat(), { maxLength: 3 }),
    verdict,
    replays: fc.nat({ max: 3 }),
    driftApplied: fc.boolean(),
    missing: fc.record({ pre: foreign }),
    changes,
    seqs: fc.constant({}),
    ms: fc.double({ min: 0, max: 1e9, noNaN: true }),
  },
  {
    requiredKeys: [
      'type',
      'turn',
      'tool',
      'record',
      'time',
      'group',
      'verdict',
      'replays',
      'driftApplied',
      'changes',
      'seqs',
      'ms',
    ],
  },
) as fc.Arbitrary<TurnPart>;

const part: fc.Arbitrary<Part> = fc.oneof(
  { weight: 4, arbitrary: turn },
  fc.record({
    type: fc.constant('drift' as const),
    by: fc.constantFrom('server' as const, 'outside' as const, 'unknown' as const),
    verdict,
    changes,
  }),
  fc.record({ type: fc.constant('session' as const), verdict, changes }),
);

const verification: fc.Arbitrary<Verification> = fc
  .record({
    trace: foreign,
    session: foreign,
    epoch: foreign,
    sink: foreign,
    server: fc.array(foreign, { maxLength: 3 }),
    integrity: fc.record({
      kind: fc.constantFrom('broken' as const, 'local-only' as const, 'attested' as const),
      problems: fc.array(foreign, { maxLength: 2 }),
    }),
    policy: fc.record({ digest: foreign, file: foreign }),
    mode: fc.constantFrom('session' as const, 'isolated' as const),
    caps: fc.constantFrom([], ['RECORD_BROKEN'] as const),
    parts: fc.array(part, { maxLength: 40 }),
    timing: fc.record({ start: fc.nat(), restore: fc.nat(), total: fc.nat() }),
  })
  .map((each) => ({ ...each, tally: tally(each.parts.map((one) => one.verdict)) }));

const style = styleFor({ colour: false });
const options = { numRuns: 60 };

/** Characters that move a cursor, turn a line or end one. */
// oxlint-disable-next-line eslint/no-control-regex -- these are what is looked for
const UNSEEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/;

/** Names of the elements, in order, of a document in which every `<` and `&` has to be ours. */
function elements(text: string, empty: ReadonlySet<string>): string[] {
  expect(text.replace(/&(?:amp|lt|gt|quot|#39);/g, '')).not.toContain('&');
  const open: string[] = [];
  const names: string[] = [];
  let rest = text;
  for (;;) {
    const start = rest.indexOf('<');
    if (start === -1) break;
    const tag = /^<(\/?)([A-Za-z][\w-]*)((?:\s+[\w-]+(?:="[^"<>]*")?)*)\s*(\/?)>/.exec(rest.slice(start));
    if (tag === null) throw new Error(`no tag of ours: ${rest.slice(start, start + 80)}`);
    const [all, end, name = '', , self] = tag;
    if (end === '/') expect(open.pop()).toBe(name);
    else {
      names.push(name);
      if (self !== '/' && !empty.has(name)) open.push(name);
    }
    rest = rest.slice(start + all.length);
  }
  expect(open).toEqual([]);
  return names;
}

describe('whatever is in a record', () => {
  test('a page for a terminal has no control characters, and fits', () => {
    fc.assert(
      fc.property(verification, fc.constantFrom(72, 80, 132, 250), fc.boolean(), (found, width, all) => {
        const text = showVerification(found, { style, width, all });
        expect(text).not.toMatch(UNSEEN);
        for (const line of text.split('\n')) expect(columnsOf(line), line).toBeLessThanOrEqual(width);
        expect(text.trimEnd().split('\n').at(-1)).toContain(found.tally.status);
      }),
      options,
    );
  });

  test('UNVERIFIED looks like nothing that is good', () => {
    fc.assert(
      fc.property(turn, (each) => {
        const parts = [each];
        const found = { ...EMPTY, parts, tally: tally([each.verdict]) };
        const text = showVerification(found, { style: styleFor({ colour: true }), width: 120, all: true });
        if (each.verdict.status !== 'UNVERIFIED') return;
        expect(text).not.toContain('✓');
        expect(text).toContain('\u001b[35m');
      }),
      options,
    );
  });

  test('JUnit is well-formed, of our elements, and its counts are those of the parts', () => {
    fc.assert(
      fc.property(fc.array(verification, { maxLength: 3 }), fc.boolean(), (found, allowUnverified) => {
        const xml = junitXml(found, { allowUnverified });
        expect(xml).not.toMatch(UNSEEN);
        // oxlint-disable-next-line eslint/no-control-regex -- what XML does not allow
        expect(xml).not.toMatch(/[\ufffe\uffff]|\p{Cs}/u);
        const names = elements(xml.replace(/^<\?xml[^?]*\?>/, ''), new Set());
        const parts = found.flatMap((each) => each.parts);
        const of = (name: string) => names.filter((each) => each === name).length;
        expect(of('testcase')).toBe(parts.length);
        expect(of('failure')).toBe(parts.filter((each) => each.verdict.status === 'FAIL').length);
        const undecided = parts.filter((each) => each.verdict.status === 'UNVERIFIED').length;
        expect(of(allowUnverified ? 'skipped' : 'error')).toBe(undecided);
      }),
      options,
    );
  });

  test('SARIF is JSON with a known rule for every result, and its places are files', () => {
    fc.assert(
      fc.property(verification, (found) => {
        const log = JSON.parse(JSON.stringify(sarifLog([found]))) as {
          runs: [{ results: { ruleIndex: number; ruleId: string; message: { text: string } }[] }];
        };
        for (const { ruleId, ruleIndex, message: said } of log.runs[0].results) {
          expect(CAUSES[ruleIndex]).toBe(ruleId);
          expect(said.text).not.toMatch(UNSEEN);
        }
        for (const [, uri = ''] of JSON.stringify(log).matchAll(/"uri":"([^"]*)"/g)) {
          expect(new URL(uri, 'file:///base/').protocol).toBe('file:');
        }
      }),
      options,
    );
  });

  test('HTML has no element and no attribute that is not ours', () => {
    fc.assert(
      fc.property(fc.array(verification, { maxLength: 2 }), (found) => {
        const page = [...verificationHtml(found)].join('');
        const bare = page
          .replace(/^<!doctype html>/, '')
          .replace(/<(script|style)>[\s\S]*?<\/\1>/g, '<$1></$1>');
        expect(bare).not.toMatch(UNSEEN);
        const names = elements(bare, new Set(['meta', 'input']));
        expect(names.filter((name) => name === 'script')).toHaveLength(1);
        for (const name of ['img', 'iframe', 'object', 'link', 'base', 'form'])
          expect(names).not.toContain(name);
        expect(bare).not.toMatch(/<[^>]*\s(?:on\w+|style|src)=/);
        for (const [, target = ''] of bare.matchAll(/\shref="([^"]*)"/g))
          expect(target).toMatch(/^#t\d+p\d+$/);
      }),
      options,
    );
  });

  test('annotations and the line of check are as many lines as they say', () => {
    fc.assert(
      fc.property(fc.array(verification, { maxLength: 3 }), (found) => {
        const lines = annotations(found).split('\n').slice(0, -1);
        for (const line of lines) expect(line).toMatch(/^::(?:error|warning|notice) [^:]*::/);
        expect(lines.length).toBeLessThanOrEqual(30);
        const line = checkLine(found);
        expect(line.match(/\n/g)).toHaveLength(1);
        expect(line).not.toMatch(UNSEEN);
      }),
      options,
    );
  });

  test('what was replayed is told without a verdict', () => {
    fc.assert(
      fc.property(verification, (found) => {
        const coverage = coverageOf(found);
        expect(coverage.replayed).toBeLessThanOrEqual(coverage.of);
        expect(JSON.stringify(Object.keys(coverage))).not.toMatch(/verdict|status|tally/);
        expect(showCoverage(coverage, style, 80)).not.toMatch(UNSEEN);
      }),
      options,
    );
  });
});

const EMPTY: Verification = {
  trace: 't.jsonl',
  session: 's',
  epoch: 'e',
  sink: 'proxy',
  server: ['x'],
  integrity: { kind: 'local-only', problems: [] },
  policy: { digest: 'sha256:0' },
  mode: 'session',
  caps: [],
  parts: [],
  tally: tally([]),
  timing: { start: 0, restore: 0, total: 0 },
};

function passed(number: number, judgements: readonly Judgement[] = [RESULT]): TurnPart {
  return {
    type: 'turn',
    turn: number,
    tool: 'read',
    record: number * 100,
    time: '2026-11-30T19:02:33.314Z',
    group: [number],
    verdict: reduce(judgements),
    replays: 1,
    driftApplied: false,
    changes: [],
    seqs: {},
    ms: 1,
  };
}

const RESULT: Judgement = { axis: 'A2', kind: 'result', status: 'PASS', message: 'answer reproduced' };

describe('a long session', () => {
  const fault: Judgement = {
    ...RESULT,
    status: 'FAIL',
    cause: 'RESULT_DIFFERS',
    message: 'answer differs',
  };
  const parts = Array.from({ length: 1000 }, (_, i) => passed(i + 1, i === 499 ? [fault] : [RESULT]));
  const found = { ...EMPTY, parts, tally: tally(parts.map((each) => each.verdict)) };

  test('folds what is quiet, never what is not', () => {
    const text = showVerification(found, { style, width: 120, all: false });
    expect(text).toMatch(/✓ PASS {8}turns 1-499 /);
    expect(text).toMatch(/✗ FAIL {8}turn 500 /);
    expect(text).toMatch(/✓ PASS {8}turns 501-1000 /);
    expect(text.split('\n').length).toBeLessThan(30);
  });

  test('is shown whole on request', () => {
    const text = showVerification(found, { style, width: 120, all: true });
    expect(text.match(/✓ PASS/g)).toHaveLength(999);
  });
});

test('a record that is broken, or attested, says so at the top and in the last line', () => {
  const shown = (integrity: Verification['integrity']) =>
    showVerification({ ...EMPTY, integrity }, { style, width: 100, all: false });
  expect(shown({ kind: 'broken', problems: ['line 3: edited'] })).toMatch(
    /integrity: BROKEN\n +line 3: edited/,
  );
  expect(shown({ kind: 'attested', attested: { count: 7, of: 7 }, problems: [] })).toContain(
    'integrity: attested 7/7\n',
  );
  expect(shown({ kind: 'local-only', attested: { count: 3, of: 7 }, problems: [] })).toContain(
    'local-only, attested 3/7',
  );
});

test('a missing state says why it is missing', () => {
  const part: TurnPart = {
    ...passed(1),
    verdict: reduce([RESULT], ['PRE_STATE_MISSING']),
    missing: { pre: 'HOLD_LIMIT' },
  };
  const text = showVerification(
    { ...EMPTY, parts: [part], tally: tally([part.verdict]) },
    { style, width: 160, all: false },
  );
  expect(text).toContain('there is no state from before the call (HOLD_LIMIT)');
});

test('text is broken at spaces and never wider than there is room', () => {
  expect(wrapped('one two three four', 20, '  ')).toBe('  one two three four\n');
  expect(wrapped('aaaaaaaaaaaaaaaaaaaaaaaaa b', 18, '  ')).toBe('  aaaaaaaaaaaaaaaa\n  aaaaaaaaa b\n');
});

describe('work side by side', () => {
  test('keeps the order of the items, and to its limit', async () => {
    let [now, most] = [0, 0];
    const wake: (() => void)[] = [];
    const results = pooled([3, 1, 2], 2, new AbortController().signal, async (item) => {
      most = Math.max(most, ++now);
      if (item === 3) await new Promise<void>((resolve) => wake.push(resolve));
      else if (item === 2) wake.forEach((each) => each());
      now--;
      return item;
    });
    expect(await results).toEqual([3, 1, 2]);
    expect(most).toBe(2);
  });

  test('ends the others when one fails, and waits for them', async () => {
    let ended = false;
    const work = pooled([0, 1], 2, new AbortController().signal, async (item, _, signal) => {
      if (item === 0) throw new Error('no');
      await new Promise<void>((resolve) => {
        if (signal.aborted) resolve();
        else signal.addEventListener('abort', () => resolve());
      });
      ended = true;
    });
    await expect(work).rejects.toThrow('no');
    expect(ended).toBe(true);
  });

  test('begins nothing more when it is told to stop', async () => {
    const stop = new AbortController();
    const done = await pooled([1, 2, 3], 1, stop.signal, (item) => {
      stop.abort();
      return Promise.resolve(item);
    });
    expect(done).toEqual([1]);
  });
});
