import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { configuredServers, planUnwrap, planWrap } from '../src/client-config.js';
import { parseJsonc } from '../src/jsonc.js';

const launcher = (): [string, ...string[]] => [
  '/usr/bin/node',
  '/o/belay.js',
  'proxy',
  '--sink',
  'proxy',
  '--',
];
const all = (): boolean => true;
const wrap = (text: string): ReturnType<typeof planWrap> => planWrap(text, launcher, all);

/** What a strict reader sees in a text with comments and trailing commas. */
function valueOf(text: string): unknown {
  const read = (node: ReturnType<typeof parseJsonc>): unknown => {
    switch (node.type) {
      case 'object':
        return Object.fromEntries(node.members.map(({ key, value }) => [key.value, read(value)]));
      case 'array':
        return node.items.map((item) => read(item));
      case 'string':
        return node.value;
      default:
        return JSON.parse(text.slice(node.start, node.end));
    }
  };
  return read(parseJsonc(text));
}

/**
 * JSON printed the way people and programs do: any blanks, comments and line ends between tokens, trailing commas,
 * escapes where none are needed. Choices come from a list of numbers, so that a failure shrinks.
 */
function printLoosely(value: unknown, choices: readonly number[], eol: string): string {
  let next = 0;
  const choose = (): number => choices[next++ % choices.length] ?? 0;
  const BLANKS = [
    '',
    '',
    ' ',
    '  ',
    eol,
    `${eol}\t`,
    `${eol}    `,
    '/* a, "b": [ */',
    `// "c", ]${eol}`,
    `${eol}  // {${eol}  `,
  ];
  const blank = (): string => BLANKS[choose() % BLANKS.length] ?? '';
  const string = (text: string): string => {
    const plain = JSON.stringify(text);
    return choose() % 7 === 0
      ? plain.replace(/[a-z]/, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`)
      : plain;
  };
  const list = (open: string, close: string, items: readonly (() => string)[]): string => {
    const body = items
      .map((item, i) => `${blank()}${item()}${blank()}${i < items.length - 1 ? ',' : ''}`)
      .join('');
    const trailing = items.length > 0 && choose() % 3 === 0 ? ',' : '';
    return `${open}${body}${trailing}${blank()}${close}`;
  };
  const any = (each: unknown): string => {
    if (Array.isArray(each))
      return list(
        '[',
        ']',
        each.map((item) => () => any(item)),
      );
    if (typeof each === 'object' && each !== null) {
      const members = Object.entries(each);
      return list(
        '{',
        '}',
        members.map(
          ([key, item]) =>
            () =>
              `${string(key)}${blank()}:${blank()}${any(item)}`,
        ),
      );
    }
    return typeof each === 'string' ? string(each) : JSON.stringify(each);
  };
  return `${choose() % 5 === 0 ? '\ufeff' : ''}${blank()}${any(value)}${blank()}`;
}

const name = fc.oneof(fc.constantFrom('files', 'git', 'a b', 'ä"\\'), fc.string({ maxLength: 6 }));
const stdio = fc
  .record(
    {
      type: fc.constant('stdio'),
      command: fc.oneof(fc.constantFrom('npx', 'C:\\Program Files\\node.exe', '${input:x}'), fc.string()),
      args: fc.array(fc.oneof(fc.string(), fc.constantFrom('-y', '--', 'proxy')), { maxLength: 4 }),
      env: fc.dictionary(fc.string(), fc.string(), { maxKeys: 2 }),
    },
    { requiredKeys: ['command'] },
  )
  .chain((entry) => fc.shuffledSubarray(Object.entries(entry), { minLength: Object.keys(entry).length }))
  .map((members) => Object.fromEntries(members) as Record<string, unknown>);
const entry = fc.oneof(
  { weight: 4, arbitrary: stdio },
  fc.record({ type: fc.constant('http'), url: fc.webUrl() }),
  fc.jsonValue({ maxDepth: 1 }),
);
const table = fc.dictionary(name, entry, { maxKeys: 4 });
const config = fc
  .record(
    {
      mcpServers: table,
      servers: table,
      projects: fc.dictionary(fc.constantFrom('/w/a', '/w/b'), fc.record({ mcpServers: table }), {
        maxKeys: 2,
      }),
      numStartups: fc.integer(),
      other: fc.jsonValue({ maxDepth: 2 }),
    },
    { requiredKeys: [] },
  )
  .map((value) => ({ ...value }));
const written = fc
  .tuple(config, fc.array(fc.nat(1000), { minLength: 1, maxLength: 60 }), fc.constantFrom('\n', '\r\n'))
  .map(([value, choices, eol]) => printLoosely(value, choices, eol));

describe('any configuration in any layout', () => {
  it('wrapped and unwrapped is the text it was', () => {
    let wrapped = 0;
    fc.assert(
      fc.property(written, (text) => {
        const plan = wrap(text);
        wrapped += plan.changed.length;
        expect(planUnwrap(plan.text, all, plan.argsAdded).text).toBe(text);
      }),
      { numRuns: 1_000 },
    );
    expect(wrapped).toBeGreaterThan(500);
  });

  it('wrapped runs the same command behind the proxy, and means the same otherwise', () => {
    fc.assert(
      fc.property(written, (text) => {
        const plan = wrap(text);
        const after = valueOf(plan.text);
        for (const { path } of plan.changed) {
          const at = (root: unknown): Record<string, unknown> =>
            path.reduce<unknown>((value, key) => (value as Record<string, unknown>)[key], root) as never;
          const { command, args, ...rest } = at(after);
          const { command: was, args: had, ...others } = at(valueOf(text));
          expect([command, ...(args as string[])]).toEqual([
            ...launcher(),
            was,
            ...((had as string[]) ?? []),
          ]);
          expect(rest).toEqual(others);
        }
        const states = configuredServers(text).map(({ path, state }) => ({ path, state }));
        expect(configuredServers(plan.text).map(({ path, state }) => ({ path, state }))).toEqual(
          states.map((each) => (each.state === 'stdio' ? { ...each, state: 'wrapped' } : each)),
        );
      }),
      { numRuns: 300 },
    );
  });

  it('wrapped twice is wrapped once', () => {
    fc.assert(
      fc.property(written, (text) => {
        const { text: once } = wrap(text);
        expect(wrap(once)).toMatchObject({ text: once, edits: [], changed: [] });
      }),
      { numRuns: 300 },
    );
  });

  it('printed anew by its client meanwhile, gets back what it meant', () => {
    fc.assert(
      fc.property(written, (text) => {
        const plan = wrap(text);
        const rewritten = JSON.stringify(valueOf(plan.text), null, 2);
        const { text: after } = planUnwrap(rewritten, all, plan.argsAdded);
        expect(valueOf(after)).toEqual(valueOf(text));
      }),
      { numRuns: 300 },
    );
  });
});

const before = `{
  // servers of the team
  "mcpServers": {
    "files": {
      "command": "npx", // from the registry
      "args": [
        "-y",
        "server-filesystem", /* , */
        "/w",
      ],
    },
    "bare": {
      "command": "mcp-git"
    },
    "docs": { "type": "http", "url": "https://mcp.example/" },
    "odd": { "args": ["x"] },
  },
}
`;

const after = `{
  // servers of the team
  "mcpServers": {
    "files": {
      "command": "/usr/bin/node", // from the registry
      "args": [
        "/o/belay.js",
        "proxy",
        "--sink",
        "proxy",
        "--",
        "npx",
        "-y",
        "server-filesystem", /* , */
        "/w",
      ],
    },
    "bare": {
      "command": "/usr/bin/node",
      "args": ["/o/belay.js", "proxy", "--sink", "proxy", "--", "mcp-git"]
    },
    "docs": { "type": "http", "url": "https://mcp.example/" },
    "odd": { "args": ["x"] },
  },
}
`;

describe('one configuration', () => {
  it('keeps its layout and its comments', () => {
    expect(wrap(before).text).toBe(after);
  });

  it.each([
    [
      'minified',
      '{"servers":{"a":{"command":"x","args":["1","2"]},"b":{"command":"y"}}}',
      '{"servers":{"a":{"command":"/usr/bin/node","args":["/o/belay.js","proxy","--sink","proxy","--","x","1","2"]},"b":{"command":"/usr/bin/node","args":["/o/belay.js","proxy","--sink","proxy","--","y"]}}}',
    ],
    [
      'on one line',
      '{ "mcpServers": { "a": { "command": "x", "args": ["1"] } } }',
      '{ "mcpServers": { "a": { "command": "/usr/bin/node", "args": ["/o/belay.js", "proxy", "--sink", "proxy", "--", "x", "1"] } } }',
    ],
  ])('%s stays so', (_title, text, expected) => {
    expect(wrap(text).text).toBe(expected);
  });

  it('says what each server is', () => {
    const states = configuredServers(before).map(({ name: each, state, why }) => [each, state, why]);
    expect(states).toEqual([
      ['files', 'stdio', undefined],
      ['bare', 'stdio', undefined],
      ['docs', 'remote', undefined],
      ['odd', 'unreadable', 'there is neither a `command` nor a `url`'],
    ]);
  });

  it.each([
    [
      'npx belay proxy',
      '{"mcpServers":{"a":{"command":"npx","args":["belay","proxy","--","x"]}}}',
      'wrapped',
    ],
    ['belay proxy', '{"mcpServers":{"a":{"command":"belay","args":["proxy","--","x"]}}}', 'wrapped'],
    [
      'belay.cmd',
      '{"mcpServers":{"a":{"command":"C:\\\\x\\\\belay.cmd","args":["proxy","--","x"]}}}',
      'wrapped',
    ],
    ['another proxy', '{"mcpServers":{"a":{"command":"mcp","args":["proxy","--","x"]}}}', 'stdio'],
    ['nothing behind it', '{"mcpServers":{"a":{"command":"belay","args":["proxy","--"]}}}', 'stdio'],
    ['a command twice', '{"mcpServers":{"a":{"command":"x","command":"y"}}}', 'unreadable'],
    ['a server twice', '{"mcpServers":{"a":{"command":"x"},"a":{"command":"y"}}}', 'unreadable'],
    ['numbers in args', '{"mcpServers":{"a":{"command":"x","args":[1]}}}', 'unreadable'],
    ['args that are no list', '{"mcpServers":{"a":{"command":"x","args":"-y"}}}', 'unreadable'],
    ['no command', '{"mcpServers":{"a":null}}', 'unreadable'],
  ])('%s', (_title, text, state) => {
    expect(configuredServers(text)[0]).toMatchObject({ name: 'a', state });
  });

  it('changed by hand since: only our own edits are undone', () => {
    const { text, argsAdded } = wrap(before);
    const edited = text
      .replace('"/w",\n', '"/w",\n        "/more",\n')
      .replace('"--",\n        "npx"', '"--", // hands off\n        "npx"')
      .replace('"docs"', '"new": { "command": "z" },\n    "docs"')
      .replace('"bare": {\n', '"bare": {\n      "env": { "A": "b" },\n');
    expect(planUnwrap(edited, ({ name: each }) => each !== 'new', argsAdded).text).toBe(
      before
        .replace('"/w",\n', '"/w",\n        "/more",\n')
        .replace('[\n        "-y"', '[\n         // hands off\n        "-y"')
        .replace('"docs"', '"new": { "command": "z" },\n    "docs"')
        .replace('"bare": {\n', '"bare": {\n      "env": { "A": "b" },\n'),
    );
  });

  it('arguments that were added to a server that had none stay', () => {
    const plan = wrap('{"servers":{"a":{"command":"x"}}}');
    const edited = plan.text.replace('"x"]', '"x","-v"]');
    expect(planUnwrap(edited, all, plan.argsAdded).text).toBe(
      '{"servers":{"a":{"command":"x","args":["-v"]}}}',
    );
  });
});

describe('what is no JSON', () => {
  it.each([
    ['{"a": }', 'line 1, column 7'],
    ['{\r\n"a" 1}', 'line 2, column 5'],
    ['{"a": 1', 'line 1, column 8'],
    ['{"a": "x\ny"}', 'line 1, column 7'],
    ['{,}', 'line 1, column 2'],
    ['{} x', 'line 1, column 4'],
    ['{"a": 01}', 'line 1, column 7'],
    ['{"a": "\\x"}', 'line 1, column 7'],
    ['/* {}', 'line 1, column 1'],
    ['', 'line 1, column 1'],
  ])('%j', (text, message) => {
    expect(() => configuredServers(text)).toThrow(message);
  });

  it('nested too deep', () => {
    expect(() => configuredServers('['.repeat(100_000))).toThrow('nested');
  });

  it('reads every JSON document as JSON.parse does', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(valueOf(text)).toEqual(JSON.parse(text));
      }),
    );
  });
});
