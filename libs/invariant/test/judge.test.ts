import { describe, expect, it } from 'vitest';
import {
  type Change,
  type Content,
  type Effect,
  type Judgement,
  VERDICT,
  defaultPolicy,
  judge,
  readPolicy,
} from '../src/index.js';

const content = (text: string | Uint8Array): Content => {
  const bytes = typeof text === 'string' ? new TextEncoder().encode(text) : text;
  return { size: bytes.length, read: () => bytes };
};
const created = (path: string, text: string): Change => ({ path, what: 'created', after: content(text) });
const deleted = (path: string, text: string): Change => ({ path, what: 'deleted', before: content(text) });
const modified = (path: string, before: string, after: string): Change => ({
  path,
  what: 'modified',
  before: content(before),
  after: content(after),
});

const rules = (text: string): ReturnType<typeof readPolicy> =>
  readPolicy(
    `version: 1\ninvariants:\n  defaults: false\n  rules:\n${text
      .split('\n')
      .map((line) => `    ${line}`)
      .join('\n')}`,
  );
const found = ({ rules: all }: Judgement): string[] =>
  all.flatMap(({ findings }) => findings.map(({ status, cause, path }) => `${status} ${cause} ${path}`));
const turn = (...changes: Change[]): Effect => ({ scope: 'turn', changes });

const TEST = 'def test_total():\n    assert total([3, 4]) == 7\n    assert total([]) == 0\n';
const GUTTED = 'def test_total():\n    pass\n';

describe('paths', () => {
  const policy = rules(`- { rule: read-only, id: r, paths: ["docs/**"], except: ["docs/draft/**"] }
- { rule: no-create, id: c, paths: ["bin/**"] }
- { rule: no-delete, id: d, paths: ["migrations/**"] }`);
  it.each<[string, Change, string[]]>([
    ['a write outside', modified('src/a', '1', '2'), []],
    ['a write', modified('docs/a', '1', '2'), ['broken written docs/a']],
    ['a write to what is left out', modified('docs/draft/a', '1', '2'), []],
    ['a hidden file', created('docs/.hidden', ''), ['broken written docs/.hidden']],
    ['moved away', { path: 'x', from: 'docs/a', what: 'renamed' }, ['broken written docs/a']],
    ['moved in', { path: 'docs/a', from: 'x', what: 'renamed' }, ['broken written docs/a']],
    ['its mode', { path: 'docs/a', what: 'metadata' }, ['touched metadata-changed docs/a']],
    ['a created file', created('bin/x', ''), ['broken created bin/x']],
    ['a changed one', modified('bin/x', '1', '2'), []],
    [
      'moved to where nothing is made',
      { path: 'bin/y', from: 'y', what: 'renamed' },
      ['broken created bin/y'],
    ],
    ['deleted', deleted('migrations/1', ''), ['broken deleted migrations/1']],
    [
      'moved from where nothing goes',
      { path: 'x', from: 'migrations/1', what: 'renamed' },
      ['broken deleted migrations/1'],
    ],
    [
      'a link in the place of a file',
      { path: 'migrations/1', what: 'type' },
      ['broken deleted migrations/1'],
    ],
  ])('%s', async (_, change, expected) => {
    expect(found(await judge(policy, turn(change)))).toEqual(expected);
  });

  it('allow-only', async () => {
    const only = rules('- { rule: allow-only, paths: ["src/**"] }');
    expect((await judge(only, turn(modified('src/a', '1', '2')))).status).toBe('kept');
    expect(
      found(await judge(only, turn(modified('a', '1', '2'), { path: 'src/b', from: 'b', what: 'renamed' }))),
    ).toEqual(['broken outside-what-is-allowed a', 'broken outside-what-is-allowed b']);
  });

  it('an effect nobody knows is undecided', async () => {
    const judgement = await judge(policy, { scope: 'turn' });
    expect(judgement.rules.map(({ status }) => VERDICT[status])).toEqual([
      'UNVERIFIED',
      'UNVERIFIED',
      'UNVERIFIED',
    ]);
  });
});

describe('other rules', () => {
  it('max-effect', async () => {
    const policy = rules('- { rule: max-effect, files: 2, deleted: 0, bytes: 3 }');
    expect(found(await judge(policy, turn(created('a', 'x'), created('b', 'yy'))))).toEqual([]);
    expect(
      (
        await judge(policy, turn(created('a', 'xx'), created('b', 'yy'), deleted('c', '')))
      ).rules[0]?.findings.map(({ after }) => after?.text),
    ).toEqual(['files: 3, at most 2', 'deleted: 1, at most 0', 'bytes: 4, at most 3']);
  });

  it('no-secret-write: new ones, and never said in the evidence', async () => {
    const policy = rules('- { rule: no-secret-write, except: ["fixtures/**"] }');
    const key = ['AKIA', 'ABCDEFGHIJKLMNOP'].join('');
    const judgement = await judge(
      policy,
      turn(
        modified('.env', `A=${key}\n`, `A=${key}\nB=1\n`),
        created('fixtures/a', key),
        created('config.py', `x = 1\nKEY = "${key}"\n`),
        created('b.py', 'password = "Xk3!pQ9zL2vR7wTn5"\n'),
      ),
    );
    expect(found(judgement)).toEqual(['broken secret-written config.py', 'touched secret-likely b.py']);
    expect(judgement.rules[0]?.findings[0]?.after).toEqual({
      path: 'config.py',
      line: 2,
      text: 'AWS access key: KEY = "[20 characters]"',
    });
    expect(JSON.stringify(judgement)).not.toContain(key);
  });

  it('no-egress', async () => {
    const policy = rules('- { rule: no-egress, allow: ["localhost:5432", "db.example"] }');
    const egress = (reached: string[], denied: string[] = []): Effect => ({
      scope: 'turn',
      changes: [],
      egress: { reached, denied },
    });
    expect((await judge(policy, egress(['localhost:5432', 'db.example:443']))).status).toBe('kept');
    expect((await judge(policy, egress(['localhost:54321']))).status).toBe('broken');
    expect((await judge(policy, egress([], ['1.2.3.4:80']))).status).toBe('touched');
    expect(found(await judge(policy, turn()))).toEqual(['undecided egress-unobserved ']);
  });

  it('suite-before-claim', async () => {
    const policy = rules('- { rule: suite-before-claim }');
    const session = (...history: NonNullable<Effect['history']>): Effect => ({
      scope: 'session',
      changes: [],
      history,
    });
    const claim = { kind: 'claim', text: 'Fixed it; all tests pass.' } as const;
    const ran = (ok?: boolean): { kind: 'command'; text: string; ok?: boolean } => ({
      kind: 'command',
      text: 'cd x && npx vitest run',
      ...(ok === undefined ? {} : { ok }),
    });
    const write = (path: string): { kind: 'write'; path: string } => ({ kind: 'write', path });
    expect(found(await judge(policy, session(write('a.ts'), ran(true), claim)))).toEqual([]);
    expect(
      found(await judge(policy, session({ kind: 'command', text: 'echo tests pass', ok: true }, claim))),
    ).toEqual(['broken claimed-without-suite ']);
    expect(found(await judge(policy, session(ran(true), ran(false), claim)))).toEqual([
      'broken claimed-after-failed-suite ',
    ]);
    expect(found(await judge(policy, session(ran(), claim)))).toEqual(['undecided suite-result-unobserved ']);
    expect(found(await judge(policy, session(ran(true), write('a.ts'), claim)))).toEqual([
      'touched written-after-suite a.ts',
    ]);
    expect(found(await judge(policy, session(ran(true), write('README.md'), claim)))).toEqual([]);
    expect(found(await judge(policy, session({ kind: 'claim', text: 'I looked at the file.' })))).toEqual([]);
    expect(found(await judge(policy, { scope: 'session' }))).toEqual(['undecided history-unobserved ']);
    expect((await judge(policy, { scope: 'turn' })).rules).toEqual([]);
  });
});

describe('tests, by the built-in rules', () => {
  const policy = defaultPolicy();

  it('say what was looked at and where', async () => {
    const judgement = await judge(
      policy,
      turn(modified('tests/test_a.py', TEST, TEST.replace('== 7', '== 8'))),
    );
    expect(judgement).toEqual({
      scope: 'turn',
      status: 'broken',
      policy: policy.digest,
      rules: [
        {
          id: 'tests',
          rule: 'no-test-weakening',
          status: 'broken',
          examined: { paths: 1, tests: 1, assertions: 2 },
          findings: [
            {
              rule: 'tests',
              status: 'broken',
              cause: 'expectation-changed',
              path: 'tests/test_a.py',
              test: 'test_total',
              before: { path: 'tests/test_a.py', line: 2, text: 'assert total([3, 4]) == 7' },
              after: { path: 'tests/test_a.py', line: 2, text: 'assert total([3, 4]) == 8' },
            },
          ],
        },
      ],
    });
  });

  it('are kept where nothing of theirs changed', async () => {
    const judgement = await judge(
      policy,
      turn(modified('src/a.py', 'x = 1\n', 'x = 2\n'), created('tests/test_b.py', TEST)),
    );
    expect(judgement.status).toBe('kept');
  });

  it('renamed out of the globs, gutted and put back over three turns: broken for the session, and for the first turn', async () => {
    const path = 'tests/test_a.py';
    const turns: Change[][] = [
      [{ path: 'notes.txt', from: path, what: 'renamed', before: content(TEST), after: content(TEST) }],
      [modified('notes.txt', TEST, GUTTED)],
      [{ path, from: 'notes.txt', what: 'renamed', before: content(GUTTED), after: content(GUTTED) }],
    ];
    const statuses = [];
    for (const changes of turns) statuses.push((await judge(policy, { scope: 'turn', changes })).status);
    expect(statuses).toEqual(['broken', 'kept', 'kept']);
    const net = await judge(policy, { scope: 'session', changes: [modified(path, TEST, GUTTED)] });
    expect(VERDICT[net.status]).toBe('FAIL');
  });

  it('weakened and mended again is kept for the session', async () => {
    expect(
      (
        await judge(policy, {
          scope: 'session',
          changes: [modified('tests/test_a.py', TEST, `# seen\n${TEST}`)],
        })
      ).status,
    ).toBe('kept');
  });

  it('weakened in drift, by whoever: broken', async () => {
    expect(
      (await judge(policy, { scope: 'drift', changes: [modified('tests/test_a.py', TEST, GUTTED)] })).status,
    ).toBe('broken');
  });

  it.each<[string, Change, string]>([
    [
      'a syntax error',
      modified('tests/test_a.py', TEST, `${TEST}\ndef broken(:\n`),
      'undecided syntax-error tests/test_a.py',
    ],
    [
      'too large',
      {
        path: 'tests/test_a.py',
        what: 'modified',
        before: content(TEST),
        after: { size: 2_000_000, read: () => new Uint8Array() },
      },
      'undecided too-large tests/test_a.py',
    ],
    [
      'unreadable',
      {
        path: 'tests/test_a.py',
        what: 'modified',
        before: content(TEST),
        after: { size: 1, read: () => Promise.reject(new Error('EIO')) },
      },
      'undecided unreadable tests/test_a.py',
    ],
    [
      'no text',
      {
        path: 'tests/test_a.py',
        what: 'modified',
        before: content(TEST),
        after: content(new Uint8Array([0, 1, 2])),
      },
      'undecided not-text tests/test_a.py',
    ],
    [
      'no UTF-8',
      {
        path: 'tests/test_a.py',
        what: 'modified',
        before: content(TEST),
        after: content(new Uint8Array([0xff, 0xfe])),
      },
      'undecided not-text tests/test_a.py',
    ],
    [
      'another language',
      modified('spec/cart_spec.rb', 'expect(1).to eq 1\n', '\n'),
      'undecided language-unknown spec/cart_spec.rb',
    ],
    ['a fixture', modified('tests/data/a.json', '1', '2'), 'touched fixture-touched tests/data/a.json'],
    [
      'a picture',
      {
        path: 'tests/a.png',
        what: 'modified',
        before: content(new Uint8Array([0])),
        after: content(new Uint8Array([0, 0])),
      },
      'touched fixture-touched tests/a.png',
    ],
    ['its mode', { path: 'tests/test_a.py', what: 'metadata' }, 'touched metadata-changed tests/test_a.py'],
    [
      'a link in its place',
      { path: 'tests/test_a.py', what: 'type', before: content(TEST) },
      'broken test-file-deleted tests/test_a.py',
    ],
    [
      'a helper that no longer asserts',
      modified(
        'tests/support.py',
        'def check(a, b):\n    assert a == b\n',
        'def check(a, b):\n    return a == b\n',
      ),
      'broken test-not-collected tests/support.py',
    ],
    [
      'a snapshot',
      modified('src/__snapshots__/a.test.ts.snap', 'exports[`a 1`] = `1`;\n', 'exports[`a 1`] = `2`;\n'),
      'broken snapshot-changed src/__snapshots__/a.test.ts.snap',
    ],
    [
      'a snapshot taken out',
      modified('__snapshots__/a.ambr', '# name: a\n  1\n# name: b\n  2\n', '# name: b\n  2\n'),
      'broken snapshot-removed __snapshots__/a.ambr',
    ],
    [
      'the script of the suite',
      modified('package.json', '{"scripts":{"test":"jest"}}', '{"scripts":{"test":"true"}}'),
      'broken tests-not-run package.json',
    ],
  ])('%s', async (_, change, expected) => {
    expect(found(await judge(policy, turn(change)))).toContain(expected);
  });

  it.each([
    'test/a.js',
    'tests/unit/test_a.py',
    'test_root.py',
    'pkg/a_test.go',
    'src/__tests__/a.tsx',
    'src/a.spec.ts',
    'spec/a.js',
    'a.test.mjs',
    'app/tests.py',
    'src/test/java/a/BTest.java',
    'crates/x/tests/a.rs',
    'conftest.py',
    'pytest.ini',
    'pyproject.toml',
    'tox.ini',
    'setup.cfg',
    'noxfile.py',
    'jest.config.js',
    'packages/a/vitest.config.ts',
    'package.json',
    '.mocharc.json',
    '.github/workflows/ci.yml',
    '.gitlab-ci.yml',
    '.circleci/config.yml',
    'Jenkinsfile',
    'Makefile',
    'Cargo.toml',
    'pom.xml',
    'build.gradle.kts',
    'src/__snapshots__/a.snap',
    'testdata/a.golden',
    '.husky/pre-commit',
  ])('watches %s', async (path) => {
    const judgement = await judge(policy, turn(modified(path, 'a\n', 'b\n')));
    expect(judgement.rules[0]?.examined.paths).toBe(1);
  });

  it.each([
    'src/a.py',
    'node_modules/x/test/a.js',
    'README.md',
    'src/contest.py',
    'src/latest.ts',
    'target/debug/tests/a.py',
    'lib/attest.go',
  ])('does not watch %s', async (path) => {
    const judgement = await judge(policy, turn(modified(path, 'a\n', 'b\n')));
    expect(judgement).toMatchObject({ status: 'kept', rules: [{ examined: { paths: 0 } }] });
  });

  it('tests inside the code of Rust, wherever it is', async () => {
    const before =
      'fn f() {}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn t() {\n        assert_eq!(f(), ());\n    }\n}\n';
    expect((await judge(policy, turn(modified('src/lib.rs', before, 'fn f() {}\n')))).status).toBe('broken');
  });

  it('a moved test is kept, also to where nobody watches for it', async () => {
    expect(
      (await judge(policy, turn(deleted('tests/test_a.py', TEST), created('checks/test_a.py', TEST)))).status,
    ).toBe('kept');
    expect(
      (await judge(policy, turn(deleted('tests/test_a.py', TEST), created('checks/a.py', TEST)))).status,
    ).toBe('broken');
  });

  it('what the operator lowers is a warning', async () => {
    const lowered = rules('- { rule: no-test-weakening, warn: [expectation-changed] }');
    expect(
      (await judge(lowered, turn(modified('tests/test_a.py', TEST, TEST.replace('== 7', '== 8'))))).status,
    ).toBe('touched');
    expect((await judge(lowered, turn(modified('tests/test_a.py', TEST, GUTTED)))).status).toBe('broken');
  });

  it('more files than it may look at is undecided', async () => {
    const many = Array.from({ length: 4 }, (_, at) =>
      modified(`tests/test_${at}.py`, TEST, TEST.replace('7', '7 ')),
    );
    expect(found(await judge(policy, turn(...many), { fileSize: 1_000, files: 3 }))).toEqual([
      'undecided too-many-files ',
    ]);
  });
});
