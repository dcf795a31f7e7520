import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { PolicyError, defaultPolicy, emptyPolicy, readPolicy } from '../src/index.js';
import { LOWERABLE, RULE_NAMES } from '../src/policy.js';

const whole = `version: 1
invariants:
  defaults: false
  rules:
    - rule: read-only
      id: locked
      paths: [docs/**, "*.md"]
      except: [docs/draft/**]
    - { rule: allow-only, paths: ["src/**"] }
    - { rule: no-create, paths: ["bin/**"] }
    - { rule: no-delete, paths: ["migrations/**"] }
    - { rule: no-test-weakening, warn: [expectation-changed] }
    - { rule: no-secret-write, except: ["test/**"] }
    - { rule: no-egress, allow: ["localhost:5432", "[::1]:80", registry.example] }
    - { rule: suite-before-claim, commands: [npm test] }
    - { rule: max-effect, files: 20, bytes: 1000000 }
sandbox:
  network: deny
snapshot: {}
`;

describe('a policy file', () => {
  it('is read as YAML and as JSON, and comes to the same', () => {
    const policy = readPolicy(whole);
    expect(policy.rules.map(({ rule }) => rule)).toEqual(RULE_NAMES);
    expect(policy.rules[0]).toEqual({
      rule: 'read-only',
      id: 'locked',
      paths: ['docs/**', '*.md'],
      except: ['docs/draft/**'],
    });
    expect(readPolicy(JSON.stringify(parse(whole)))).toEqual(policy);
  });

  it('has the built-in rules unless it says otherwise', () => {
    expect(readPolicy('version: 1')).toEqual(defaultPolicy());
    expect(readPolicy('version: 1', { defaults: false })).toEqual(emptyPolicy());
    expect(readPolicy('version: 1\ninvariants: { defaults: false }')).toEqual(emptyPolicy());
    expect(
      readPolicy('version: 1\ninvariants: { rules: [{ rule: no-egress }] }').rules.map(({ id }) => id),
    ).toEqual(['tests', 'no-egress-1']);
  });

  const wrong: readonly [
    name: string,
    source: string,
    code: string,
    at: string,
    line: number,
    column: number,
    wanted: RegExp,
  ][] = [
    ['nothing', '', 'WRONG_TYPE', '', 1, 1, /members are wanted: version/],
    ['no version', 'invariants: {}', 'MISSING_MEMBER', '', 1, 1, /version: 1/],
    ['another version', 'version: 2', 'WRONG_VERSION', 'version', 1, 10, /version: 1/],
    ['no YAML', 'version: 1\ninvariants: [', 'NOT_YAML', '', 2, 14, /one YAML or JSON document/],
    ['a key twice', 'version: 1\nversion: 1', 'NOT_YAML', '', 2, 1, /./],
    ['an unknown section', 'version: 1\ninvariant: {}', 'UNKNOWN_MEMBER', 'invariant', 2, 1, /^invariants$/],
    [
      'an unknown member',
      'version: 1\ninvariants:\n  rule: []',
      'UNKNOWN_MEMBER',
      'invariants.rule',
      3,
      3,
      /^rules$/,
    ],
    [
      'a rule misspelt',
      'version: 1\ninvariants:\n  rules:\n    - rule: readonly\n      paths: [a]',
      'UNKNOWN_RULE',
      'invariants.rules.0.rule',
      4,
      13,
      /^read-only$/,
    ],
    [
      'a rule of no name',
      'version: 1\ninvariants:\n  rules:\n    - paths: [a]',
      'MISSING_MEMBER',
      'invariants.rules.0',
      4,
      7,
      /one of read-only/,
    ],
    [
      'no paths',
      'version: 1\ninvariants:\n  rules:\n    - rule: read-only',
      'MISSING_MEMBER',
      'invariants.rules.0',
      4,
      7,
      /paths/,
    ],
    [
      'a member of another rule',
      'version: 1\ninvariants:\n  rules:\n    - rule: no-egress\n      paths: [a]',
      'UNKNOWN_MEMBER',
      'invariants.rules.0.paths',
      5,
      7,
      /one of rule, id, allow/,
    ],
    [
      'an absolute glob',
      'version: 1\ninvariants:\n  rules:\n    - rule: read-only\n      paths: [a, /etc/**]',
      'WRONG_VALUE',
      'invariants.rules.0.paths.1',
      5,
      18,
      /relative to the root/,
    ],
    [
      'a glob that leaves',
      'version: 1\ninvariants:\n  rules:\n    - rule: read-only\n      paths: [a/../b]',
      'WRONG_VALUE',
      'invariants.rules.0.paths.0',
      5,
      15,
      /\.\./,
    ],
    [
      'a negated glob',
      'version: 1\ninvariants:\n  rules:\n    - rule: read-only\n      paths: ["!a"]',
      'WRONG_VALUE',
      'invariants.rules.0.paths.0',
      5,
      15,
      /except/,
    ],
    [
      'no globs',
      'version: 1\ninvariants:\n  rules:\n    - rule: read-only\n      paths: []',
      'WRONG_VALUE',
      'invariants.rules.0.paths',
      5,
      7,
      /1 to 1024/,
    ],
    [
      'one glob as a text',
      'version: 1\ninvariants:\n  rules:\n    - rule: read-only\n      paths: a',
      'WRONG_TYPE',
      'invariants.rules.0.paths',
      5,
      14,
      /a list/,
    ],
    [
      'a count that is none',
      'version: 1\ninvariants:\n  rules:\n    - { rule: max-effect, files: -1 }',
      'WRONG_TYPE',
      'invariants.rules.0.files',
      4,
      34,
      /whole number/,
    ],
    [
      'a weakening nobody knows',
      'version: 1\ninvariants:\n  rules:\n    - { rule: no-test-weakening, warn: [all] }',
      'WRONG_VALUE',
      'invariants.rules.0.warn.0',
      4,
      41,
      /expectation-changed/,
    ],
    [
      'an address',
      'version: 1\ninvariants:\n  rules:\n    - { rule: no-egress, allow: ["http://x/"] }',
      'WRONG_VALUE',
      'invariants.rules.0.allow.0',
      4,
      34,
      /host or host:port/,
    ],
    [
      'an id twice',
      'version: 1\ninvariants:\n  rules:\n    - { rule: no-egress, id: tests }',
      'TWICE',
      'invariants.rules.0.id',
      4,
      30,
      /defaults: false/,
    ],
    ['a section that is none', 'version: 1\nsandbox: strict', 'WRONG_TYPE', 'sandbox', 2, 10, /members/],
  ];
  it.each(wrong)('is refused with its place: %s', (_, source, code, at, line, column, wanted) => {
    const caught = ((): PolicyError => {
      try {
        readPolicy(source);
      } catch (error) {
        return error as PolicyError;
      }
      throw new Error('it was taken');
    })();
    expect(caught).toBeInstanceOf(PolicyError);
    expect({ code: caught.code, at: caught.at, line: caught.line, column: caught.column }).toEqual({
      code,
      at,
      line,
      column,
    });
    expect(caught.wanted).toMatch(wanted);
  });

  it('is no larger than it need be', () => {
    expect(() => readPolicy(`version: 1\n#${'x'.repeat(1024 * 1024)}`)).toThrow(/too large/);
  });
});

describe('its digest', () => {
  it('is the same however the rules are written down, and another for other rules', () => {
    const a = readPolicy(
      'version: 1\ninvariants:\n  rules:\n    - { rule: read-only, id: x, paths: [a, b] }\n    - { rule: no-egress, id: y }',
    );
    const b = readPolicy(
      '{"invariants":{"rules":[{"id":"y","rule":"no-egress","allow":[]},{"paths":["b","a","b"],"id":"x","rule":"read-only"}]},"version":1}',
    );
    const c = readPolicy(
      'version: 1\ninvariants:\n  rules:\n    - { rule: read-only, id: x, paths: [a] }\n    - { rule: no-egress, id: y }',
    );
    expect(a.digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(b.digest).toBe(a.digest);
    expect(c.digest).not.toBe(a.digest);
    expect(emptyPolicy().digest).not.toBe(defaultPolicy().digest);
  });
});

describe('policy.schema.json', () => {
  const schema = JSON.parse(readFileSync(new URL('../policy.schema.json', import.meta.url), 'utf8')) as {
    $defs: { weakening: { enum: string[] }; rule: { oneOf: { properties: { rule: { enum: string[] } } }[] } };
  };
  const valid = new Ajv2020({ strict: true }).compile(schema);
  const taken = (source: string): boolean => {
    try {
      readPolicy(source);
      return true;
    } catch (error) {
      if (error instanceof PolicyError) return false;
      throw error;
    }
  };

  it('knows the same rules and the same weakenings', () => {
    expect(schema.$defs.rule.oneOf.flatMap(({ properties }) => properties.rule.enum)).toEqual(RULE_NAMES);
    expect(schema.$defs.weakening.enum).toEqual(LOWERABLE);
    expect(valid(parse(whole))).toBe(true);
  });

  it('takes what the reader takes, and nothing else', () => {
    const word = fc.constantFrom(
      'a',
      'src/**',
      '/etc',
      '../x',
      './x',
      '',
      '!a',
      'C:/x',
      'a/..',
      'tests',
      'x'.repeat(600),
    );
    const globs = fc.oneof(fc.array(word, { maxLength: 3 }), word, fc.constant(1));
    const rule = fc.record(
      {
        rule: fc.constantFrom(...RULE_NAMES, 'nothing', 1),
        id: fc.constantFrom('x', 'X', '', 'tests-2'),
        paths: globs,
        except: globs,
        warn: fc.array(fc.constantFrom('expectation-changed', 'test-removed', 'other'), { maxLength: 2 }),
        allow: fc.array(fc.constantFrom('host', 'host:1', 'a b', 'http://x'), { maxLength: 2 }),
        commands: fc.array(fc.constantFrom('npm test', ''), { maxLength: 2 }),
        files: fc.constantFrom(0, 1, -1, 1.5, 'x'),
        bytes: fc.constantFrom(0, null),
        more: fc.constant(1),
      },
      { requiredKeys: [] },
    );
    // Few members at a time, or nothing would ever be right.
    const few = rule.chain((whole) =>
      fc
        .subarray(Object.keys(whole), { maxLength: Math.min(4, Object.keys(whole).length) })
        .map((keys) => Object.fromEntries(keys.map((key) => [key, whole[key as keyof typeof whole]]))),
    );
    const file = fc.record(
      {
        version: fc.constantFrom(1, 1, 1, 2, '1'),
        invariants: fc.record(
          { defaults: fc.constantFrom(true, false, 'yes'), rules: fc.array(few, { maxLength: 1 }) },
          { requiredKeys: [] },
        ),
        sandbox: fc.constantFrom({}, { network: 'deny' }, 1),
        other: fc.constant(1),
      },
      { requiredKeys: ['version'] },
    );
    let good = 0;
    fc.assert(
      fc.property(file, (value) => {
        const expected = valid(value);
        if (expected) good++;
        expect(taken(JSON.stringify(value))).toBe(expected);
      }),
      { numRuns: 2_000 },
    );
    expect(good).toBeGreaterThan(50);
  });
});
