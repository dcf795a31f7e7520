import { describe, expect, it } from 'vitest';
import { type ConfigCause, judgeConfig } from '../src/weakening/runner-config.js';

type Row = readonly [
  name: string,
  path: string,
  before: string | undefined,
  after: string | undefined,
  cause?: ConfigCause,
];

const WORKFLOW = `name: ci
on: [push]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: npm ci
      - name: test
        run: |
          npm test
          npx vitest run --coverage
  lint:
    runs-on: ubuntu-latest
    steps:
      - run: npm run lint
`;
const PACKAGE = `{
  "name": "shop",
  "scripts": { "build": "tsc -b", "test": "vitest run", "test:e2e": "playwright test" },
  "dependencies": { "left-pad": "1.0.0" },
  "jest": { "testMatch": ["**/*.test.js", "**/*.spec.js"], "coverageThreshold": { "global": { "lines": 90 } } }
}
`;
const PYPROJECT = `[project]
name = "shop"

[tool.pytest.ini_options]
testpaths = ["tests", "integration"]
addopts = "-ra --strict-markers --cov-fail-under=90"
markers = ["slow"]

[tool.coverage.report]
fail_under = 90
`;
const MAKEFILE = `.PHONY: test build

build:
	go build ./...

test: unit-test
	go test ./... -race
	pytest tests
`;
const POM = `<project>
  <build><plugins><plugin>
    <artifactId>maven-surefire-plugin</artifactId>
    <configuration>
      <includes><include>**/*Test.java</include></includes>
    </configuration>
  </plugin></plugins></build>
</project>
`;
const GRADLE = `plugins { id 'java' }

test {
    useJUnitPlatform()
    maxParallelForks = 2
}
`;
const CARGO = `[package]
name = "shop"
version = "1.0.0"

[lib]
name = "shop"

[dependencies]
serde = "1"
`;
const VITEST = `import { defineConfig } from 'vitest/config';
export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    coverage: { provider: 'v8', thresholds: { lines: 90 } },
  },
});
`;
const CONFTEST = `import pytest


@pytest.fixture
def cart():
    return Cart()
`;

const swap = (text: string, from: string, to: string): string => {
  if (!text.includes(from)) throw new Error(`nothing to replace: ${from}`);
  return text.replace(from, () => to);
};

const weakened: Row[] = [
  [
    'the step is taken out',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, '          npm test\n', ''),
    'tests-not-run',
  ],
  [
    'the step may fail',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, '      - name: test\n', '      - name: test\n        continue-on-error: true\n'),
    'failures-ignored',
  ],
  [
    'its failing is swallowed',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, '          npm test\n', '          npm test || true\n'),
    'failures-ignored',
  ],
  [
    'the job never runs',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, '  test:\n', '  test:\n    if: false\n'),
    'tests-not-run',
  ],
  [
    'the shell goes on',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, '          npm test\n', '          set +e\n          npm test\n'),
    'failures-ignored',
  ],
  ['the workflow is taken out', '.github/workflows/ci.yml', WORKFLOW, undefined, 'tests-not-run'],
  [
    'no YAML any more',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, 'jobs:', 'jobs: ]['),
    'config-unreadable',
  ],
  [
    'the script says that it passed',
    'package.json',
    PACKAGE,
    swap(PACKAGE, '"vitest run"', '"echo passed"'),
    'tests-not-run',
  ],
  [
    'the script is taken out',
    'package.json',
    PACKAGE,
    swap(PACKAGE, '"test": "vitest run", ', ''),
    'tests-not-run',
  ],
  [
    'one test only',
    'package.json',
    PACKAGE,
    swap(PACKAGE, '"vitest run"', '"vitest run src/one.test.ts"'),
    'runner-config-changed',
  ],
  [
    'tests are left out',
    'package.json',
    PACKAGE,
    swap(PACKAGE, '"vitest run"', '"vitest run --exclude src/cart"'),
    'tests-excluded',
  ],
  [
    'no tests is fine',
    'package.json',
    PACKAGE,
    swap(PACKAGE, '"vitest run"', '"vitest run --passWithNoTests"'),
    'failures-ignored',
  ],
  ['a pattern fewer', 'package.json', PACKAGE, swap(PACKAGE, ', "**/*.spec.js"', ''), 'tests-excluded'],
  [
    'a lower threshold',
    'package.json',
    PACKAGE,
    swap(PACKAGE, '"lines": 90', '"lines": 10'),
    'threshold-lowered',
  ],
  ['a folder fewer', 'pyproject.toml', PYPROJECT, swap(PYPROJECT, ', "integration"', ''), 'tests-excluded'],
  [
    'a test is deselected',
    'pyproject.toml',
    PYPROJECT,
    swap(PYPROJECT, '-ra ', '-ra --deselect tests/test_cart.py '),
    'tests-excluded',
  ],
  ['a lower flag', 'pyproject.toml', PYPROJECT, swap(PYPROJECT, 'under=90', 'under=9'), 'threshold-lowered'],
  [
    'a lower report',
    'pyproject.toml',
    PYPROJECT,
    swap(PYPROJECT, 'fail_under = 90', 'fail_under = 0'),
    'threshold-lowered',
  ],
  [
    'other files',
    'pytest.ini',
    '[pytest]\ntestpaths = tests\n',
    '[pytest]\ntestpaths = tests\npython_files = check_*.py\n',
    'runner-config-changed',
  ],
  [
    'tests are ignored',
    'pytest.ini',
    '[pytest]\naddopts = -ra\n',
    '[pytest]\naddopts = -ra --ignore=tests/test_cart.py\n',
    'tests-excluded',
  ],
  [
    'a folder is not entered',
    'setup.cfg',
    '[tool:pytest]\naddopts = -q\n',
    '[tool:pytest]\naddopts = -q\nnorecursedirs = tests/unit\n',
    'tests-excluded',
  ],
  [
    'tox runs nothing',
    'tox.ini',
    '[testenv]\ncommands =\n    pytest tests\n',
    '[testenv]\ncommands =\n    python -c pass\n',
    'tests-not-run',
  ],
  [
    'the target does nothing',
    'Makefile',
    MAKEFILE,
    swap(MAKEFILE, '	go test ./... -race\n', '	@true\n'),
    'tests-not-run',
  ],
  [
    'the recipe may fail',
    'Makefile',
    MAKEFILE,
    swap(MAKEFILE, '	pytest tests', '	-pytest tests'),
    'failures-ignored',
  ],
  [
    'a target is not needed any more',
    'Makefile',
    MAKEFILE,
    swap(MAKEFILE, 'test: unit-test', 'test:'),
    'tests-not-run',
  ],
  [
    'skipped by the build',
    'pom.xml',
    POM,
    swap(POM, '<configuration>', '<configuration><skipTests>true</skipTests>'),
    'tests-not-run',
  ],
  [
    'failures are ignored by the build',
    'pom.xml',
    POM,
    swap(POM, '<configuration>', '<configuration><testFailureIgnore>true</testFailureIgnore>'),
    'failures-ignored',
  ],
  [
    'tests are excluded by the build',
    'pom.xml',
    POM,
    swap(POM, '</includes>', '</includes><excludes><exclude>**/CartTest.java</exclude></excludes>'),
    'tests-excluded',
  ],
  [
    'gradle does not run them',
    'build.gradle',
    GRADLE,
    swap(GRADLE, 'maxParallelForks = 2', 'enabled = false'),
    'tests-not-run',
  ],
  [
    'gradle ignores failures',
    'build.gradle.kts',
    GRADLE,
    swap(GRADLE, 'maxParallelForks = 2', 'ignoreFailures = true'),
    'failures-ignored',
  ],
  [
    'gradle leaves some out',
    'build.gradle',
    GRADLE,
    swap(GRADLE, 'maxParallelForks = 2', "maxParallelForks = 2\n    exclude '**/CartTest*'"),
    'tests-excluded',
  ],
  [
    'cargo does not test the library',
    'Cargo.toml',
    CARGO,
    swap(CARGO, 'name = "shop"\n\n[dep', 'name = "shop"\ntest = false\n\n[dep'),
    'tests-not-run',
  ],
  [
    'cargo does not find tests',
    'Cargo.toml',
    CARGO,
    swap(CARGO, 'version = "1.0.0"', 'version = "1.0.0"\nautotests = false'),
    'tests-not-run',
  ],
  [
    'vitest leaves some out',
    'vitest.config.ts',
    VITEST,
    swap(VITEST, '    include', "    exclude: ['src/cart.test.ts'],\n    include"),
    'tests-excluded',
  ],
  [
    'vitest looks in fewer places',
    'vitest.config.ts',
    VITEST,
    swap(VITEST, ", 'test/**/*.test.ts'", ''),
    'tests-excluded',
  ],
  [
    'vitest has a lower threshold',
    'vitest.config.ts',
    VITEST,
    swap(VITEST, 'lines: 90', 'lines: 1'),
    'threshold-lowered',
  ],
  [
    'conftest ignores files',
    'tests/conftest.py',
    CONFTEST,
    `${CONFTEST}\ncollect_ignore = ["test_cart.py"]\n`,
    'tests-excluded',
  ],
  [
    'conftest turns failures into passes',
    'conftest.py',
    CONFTEST,
    `${CONFTEST}\n\ndef pytest_runtest_makereport(item, call):\n    report = TestReport.from_item_and_call(item, call)\n    report.outcome = "passed"\n    return report\n`,
    'failures-ignored',
  ],
  [
    'conftest drops tests',
    'conftest.py',
    CONFTEST,
    `${CONFTEST}\n\ndef pytest_collection_modifyitems(items):\n    items[:] = []\n`,
    'tests-excluded',
  ],
  [
    'a script stops testing',
    'scripts/test.sh',
    '#!/bin/sh\nset -e\npytest\n',
    '#!/bin/sh\nset -e\nexit 0\n',
    'tests-not-run',
  ],
  [
    'a stage of GitLab may fail',
    '.gitlab-ci.yml',
    'test:\n  script:\n    - pytest\n',
    'test:\n  script:\n    - pytest\n  allow_failure: true\n',
    'failures-ignored',
  ],
];

const honest: Row[] = [
  [
    'a version of an action',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, 'checkout@v4', 'checkout@v5'),
  ],
  [
    'another step',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, '      - run: npm ci\n', '      - run: npm ci\n      - run: npm run build\n'),
  ],
  [
    'another job',
    '.github/workflows/ci.yml',
    WORKFLOW,
    `${WORKFLOW}  docs:\n    runs-on: ubuntu-latest\n    steps:\n      - run: npm run docs\n`,
  ],
  [
    'a name and a comment',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, 'name: ci', '# what runs on every push\nname: CI'),
  ],
  [
    'lint is taken out',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, '      - run: npm run lint\n', '      - run: npm run format\n'),
  ],
  [
    'a reporter',
    '.github/workflows/ci.yml',
    WORKFLOW,
    swap(WORKFLOW, '--coverage', '--coverage --reporter=verbose'),
  ],
  ['a new workflow', '.github/workflows/release.yml', undefined, WORKFLOW],
  ['a dependency', 'package.json', PACKAGE, swap(PACKAGE, '"1.0.0"', '"1.1.0"')],
  [
    'another script',
    'package.json',
    PACKAGE,
    swap(PACKAGE, '"build"', '"test:unit": "vitest run src", "build"'),
  ],
  ['coverage', 'package.json', PACKAGE, swap(PACKAGE, '"vitest run"', '"vitest run --coverage"')],
  ['a higher threshold', 'package.json', PACKAGE, swap(PACKAGE, '"lines": 90', '"lines": 95')],
  ['the build', 'package.json', PACKAGE, swap(PACKAGE, 'tsc -b', 'tsc -b --force')],
  ['another folder', 'pyproject.toml', PYPROJECT, swap(PYPROJECT, '"tests", ', '"tests", "more", ')],
  ['another marker', 'pyproject.toml', PYPROJECT, swap(PYPROJECT, '["slow"]', '["slow", "net"]')],
  ['the name of the project', 'pyproject.toml', PYPROJECT, swap(PYPROJECT, 'name = "shop"', 'name = "cart"')],
  ['louder', 'pyproject.toml', PYPROJECT, swap(PYPROJECT, '-ra ', '-ra -vv ')],
  ['build in a Makefile', 'Makefile', MAKEFILE, swap(MAKEFILE, 'go build ./...', 'go build -v ./...')],
  ['verbose in a Makefile', 'Makefile', MAKEFILE, swap(MAKEFILE, '-race', '-race -v')],
  [
    'another pattern in a pom',
    'pom.xml',
    POM,
    swap(POM, '</include>', '</include><include>**/*IT.java</include>'),
  ],
  ['forks in gradle', 'build.gradle', GRADLE, swap(GRADLE, "id 'java'", "id 'java'; id 'application'")],
  ['a dependency of cargo', 'Cargo.toml', CARGO, swap(CARGO, 'serde = "1"', 'serde = "1"\nregex = "1"')],
  [
    'another place for vitest',
    'vitest.config.ts',
    VITEST,
    swap(VITEST, "['src", "['lib/**/*.test.ts', 'src"),
  ],
  ['quotes in a configuration', 'vitest.config.ts', VITEST, swap(VITEST, "provider: 'v8'", 'provider: "v8"')],
  [
    'comments in conftest',
    'conftest.py',
    CONFTEST,
    swap(CONFTEST, 'def cart():', 'def cart():  # of every test'),
  ],
  ['a script echoes', 'scripts/test.sh', '#!/bin/sh\npytest\n', '#!/bin/sh\necho testing\npytest\n'],
];

describe('configuration of runners and CI', () => {
  it.each(weakened)('weakened: %s', async (_, path, before, after, cause) => {
    const found = await judgeConfig(String(path), before, after);
    expect(found.map((each) => each.cause)).toContain(cause);
  });

  it.each(honest)('honest: %s', async (_, path, before, after) => {
    expect(await judgeConfig(String(path), before, after)).toEqual([]);
  });

  it('says of a fixture only that it was touched', async () => {
    const found = await judgeConfig(
      'conftest.py',
      CONFTEST,
      swap(CONFTEST, 'return Cart()', 'return Cart(open=True)'),
    );
    expect(found).toEqual([
      { cause: 'fixture-touched', weight: 'touched', path: 'conftest.py', before: 4, after: 4 },
    ]);
  });
});
