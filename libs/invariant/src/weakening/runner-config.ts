/**
 * Files that say which tests run and whether their failing matters: configuration of runners, scripts, build files, CI.
 * Each is read as facts (a setting's values, a command that is run), and the facts of both sides are compared.
 */

import { parseDocument, LineCounter, isMap, isScalar, isSeq } from 'yaml';
import { type Syntax, field, named, parserFor } from './syntax.js';

export type ConfigCause =
  /** What ran tests no longer does. */
  | 'tests-not-run'
  /** Some tests are left out. */
  | 'tests-excluded'
  /** They run, and their failing is nothing. */
  | 'failures-ignored'
  | 'threshold-lowered'
  /** Changed where nobody can say what it does to the tests. */
  | 'runner-config-changed'
  | 'config-unreadable'
  /** A setting of the runner was touched that leaves out no test. */
  | 'runner-config-touched'
  | 'fixture-touched';

export interface ConfigFinding {
  readonly cause: ConfigCause;
  readonly weight: 'broken' | 'undecided' | 'touched';
  readonly path: string;
  readonly before?: number;
  readonly after?: number;
}

interface Fact {
  /** Where it stands: a script, a section, a job. */
  readonly unit: string;
  readonly key: string;
  readonly values: readonly string[];
  readonly line: number;
}

const WEIGHT: Readonly<Record<ConfigCause, ConfigFinding['weight']>> = {
  'tests-not-run': 'broken',
  'tests-excluded': 'broken',
  'failures-ignored': 'broken',
  'threshold-lowered': 'broken',
  'runner-config-changed': 'undecided',
  'config-unreadable': 'undecided',
  'runner-config-touched': 'touched',
  'fixture-touched': 'touched',
};

/** A command that runs tests. */
const RUNS_TESTS =
  /\b(pytest|py\.test|tox|nox|unittest|nose2|manage\.py test|hatch (?:run )?test|jest|vitest|mocha|ava|node (?:\S+ )*--test|playwright test|cypress run|karma start|(?:npm|pnpm|yarn|bun)(?: run)? t(?:est\S*)?|deno test|go test|gotestsum|cargo (?:\S+ )?(?:nextest|test)|ctest|bazel test|make (?:\S+ )?\S*(?:test|check)\S*|rspec|phpunit|dotnet test)\b|\b(?:mvnw?)\b[^&|;]*\b(?:test|verify|install|package|deploy)\b|gradlew?\b[^&|;]*\b(?:test|check|build)\b/;
/** A command that hands on to another one. */
const HANDS_ON =
  /\b(npm|pnpm|yarn|bun|make|just|task|turbo|nx|lerna|tox|nox|hatch|poe|pdm|poetry|uv|rake|bash|sh)\b|\.\/\S+/;

const IGNORES_FAILURE =
  /\|\|\s*(?:true|:|exit 0|echo\b)|;\s*(?:true|exit 0)\s*$|^set \+e$|^-\s*(?=\S)|\bcontinue-on-error\b|--pass-?with-?no-?tests|passWithNoTests|testFailureIgnore|maven\.test\.failure\.ignore|ignoreFailures|--suppress-no-test-exit-code|--exit-zero|dangerouslyIgnoreUnhandledErrors|exitstatus\s*=\s*0/i;
const LEAVES_OUT =
  /--ignore(?:-glob)?\b|--deselect\b|(?:^|\s)-[km]\s+["']?not\b|--exclude\b|--skip\b|-DskipTests|-DskipITs|maven\.test\.skip|skipTests|(?:^|\s)-x\s+\w*[tT]est|--no-run\b|--collect-only\b|--co\b|(?:^|\s)-short\b|-run\s+['"]?\^\$|--testPathIgnorePatterns|--testNamePattern|--grep|--invert|(?:^|\s)-t\s/;
/** Flags that change what is said, not what runs. */
const HARMLESS =
  /^(-v+|-q+|-s|-ra?|-rA|-x|-n|auto|\d+|--verbose|--quiet|--silent|--color\S*|--colors|--coverage\S*|--cov\S*|--reporters?\S*|--tb\S*|--durations\S*|-race|-count\S*|-cover\S*|-timeout\S*|-parallel\S*|--maxWorkers\S*|--workers\S*|--run|run|--ci|--runInBand|-i|--forceExit|--detectOpenHandles|--release|--all-features|--all-targets|--workspace|--locked|--no-fail-fast|-B|--batch-mode|--no-daemon|--no-transfer-progress|-ntp|--info|--stacktrace|--strict\S*|-W\S*|--junit\S*|--html\S*|junit|verbose|default|dot|spec|json|error|all)$/;

/** Keys whose values are what is left out. */
const EXCLUDING =
  /^(norecursedirs|collect_ignore|collect_ignore_glob|exclude|excludes|testPathIgnorePatterns|modulePathIgnorePatterns|coveragePathIgnorePatterns|ignore|skip|testIgnore|excludeSpecPattern|omit|excludedGroups|excludeTags|excludeTestsMatching)$/;
/** Keys whose values are what is taken. */
const INCLUDING =
  /^(testpaths|python_files|python_classes|python_functions|testMatch|testRegex|include|includes|spec|specs|roots|testDir|files|specPattern|projects|envlist|env_list|members|default-members|includeTags|groups|suites|testNamePattern|includeSource)$/;
const THRESHOLD =
  /^(fail_under|branches|functions|lines|statements|check-coverage|threshold|thresholds|target|minimum|cov-fail-under)$/;
/** Keys that leave out no test whatever they say. */
const QUIET =
  /^(markers|asyncio_mode|asyncio_default_fixture_loop_scope|log_\w+|minversion|pythonpath|timeout|testTimeout|hookTimeout|reporters?|provider|reportsDirectory|coverageDirectory|coverageReporters|cache\w*|verbose|color|colors|globals|filterwarnings|junit_\w+|console_output_style|name|edition|version|description|authors|displayName|maxWorkers|pool|alias|env|requires|min_version|isolated_build)$/;
const OFF: readonly (readonly [RegExp, RegExp, ConfigCause])[] = [
  [/^(test|autotests|doctest|harness|enabled|isEnabled)$/, /^false$/, 'tests-not-run'],
  [/^(skip|skipTests|skipITs|maven\.test\.skip|skipExec)$/, /^true$/, 'tests-not-run'],
  [
    /^(continue-on-error|continueOnError|allow_failure|allow_failures|passWithNoTests|pass-with-no-tests|testFailureIgnore|maven\.test\.failure\.ignore|ignoreFailures|ignore_outcome|ignore_errors|dangerouslyIgnoreUnhandledErrors|soft_fail)$/,
    /^(true|.*\btrue\b.*)$/,
    'failures-ignored',
  ],
  [/^if$/, /^(false|\$\{\{\s*false\s*\}\})$/, 'tests-not-run'],
  [/^when$/, /^(never|manual)$/, 'tests-not-run'],
];

export type ConfigKind =
  'ini' | 'toml' | 'package' | 'script' | 'make' | 'ci' | 'xml' | 'gradle' | 'conftest' | 'shell';

const KINDS: readonly (readonly [RegExp, ConfigKind])[] = [
  [/(^|\/)(\.?pytest\.ini|tox\.ini|setup\.cfg|\.coveragerc|nose\.cfg)$/, 'ini'],
  [
    /(^|\/)(pyproject\.toml|Cargo\.toml|nextest\.toml|tox\.toml|pytest\.toml|\.pytest\.toml|bunfig\.toml|\.cargo\/config\.toml)$/,
    'toml',
  ],
  [
    /(^|\/)(package\.json|deno\.jsonc?|\.mocharc(\.jsonc?)?|\.nycrc(\.json)?|\.c8rc\.json|jest\.config\.json|nx\.json|project\.json|turbo\.json|lerna\.json)$/,
    'package',
  ],
  [
    /(^|\/)(jest|vitest|vite|karma|playwright|cypress|ava|wdio|protractor|mocha|nyc|web-test-runner)\.(config|conf|workspace|projects)\.[cm]?[jt]s$|(^|\/)\.mocharc\.[cm]?js$/,
    'script',
  ],
  [/(^|\/)(GNUm|M|m)akefile$|\.mk$|(^|\/)[jJ]ustfile$/, 'make'],
  [
    /(^|\/)\.github\/(workflows|actions)\/.+\.ya?ml$|(^|\/)(\.gitlab-ci|\.travis|azure-pipelines|bitbucket-pipelines|appveyor|\.appveyor|\.drone|cloudbuild|\.cirrus|\.woodpecker|\.pre-commit-config|codecov|\.codecov|[tT]askfile|\.mocharc|\.taprc)\.ya?ml$|(^|\/)\.circleci\/.+\.ya?ml$|(^|\/)\.buildkite\/.+\.ya?ml$|(^|\/)\.gitlab\/.+\.ya?ml$|(^|\/)\.taprc$/,
    'ci',
  ],
  [/(^|\/)pom\.xml$|(^|\/)testng[^/]*\.xml$/, 'xml'],
  [/\.gradle(\.kts)?$|(^|\/)gradle\.properties$|(^|\/)junit-platform\.properties$/, 'gradle'],
  [/(^|\/)(conftest|noxfile)\.py$/, 'conftest'],
  [
    /(^|\/)Jenkinsfile$|(^|\/)([^/]*[_-])?(tests?|ci|check)([_-][^/]*)?\.(sh|bash|ps1|cmd|bat)$|(^|\/)\.husky\//,
    'shell',
  ],
];

export const configKind = (path: string): ConfigKind | undefined =>
  KINDS.find(([pattern]) => pattern.test(path))?.[1];

/** Judges one file of configuration; a side is absent where the file was not there. */
export async function judgeConfig(
  path: string,
  before: string | undefined,
  after: string | undefined,
): Promise<ConfigFinding[]> {
  const kind = configKind(path);
  if (!kind || before === after) return [];
  const was = before === undefined ? [] : await facts(kind, path, before);
  const is = after === undefined ? [] : await facts(kind, path, after);
  if (was === undefined || is === undefined) return [finding('config-unreadable', path)];
  return compared(path, kind, was, is, after === undefined);
}

const finding = (cause: ConfigCause, path: string, before?: Fact, after?: Fact): ConfigFinding => ({
  cause,
  weight: WEIGHT[cause],
  path,
  ...(before ? { before: before.line } : {}),
  ...(after ? { after: after.line } : {}),
});

const COMMAND = '$';

function compared(
  path: string,
  kind: ConfigKind,
  was: readonly Fact[],
  is: readonly Fact[],
  gone: boolean,
): ConfigFinding[] {
  const found: ConfigFinding[] = [];
  const say = (cause: ConfigCause, before?: Fact, after?: Fact): void => {
    found.push(finding(cause, path, before, after));
  };
  const idOf = (fact: Fact): string => `${fact.unit}\n${fact.key}\n${fact.values.join('\n')}`;
  const left = new Map<string, Fact[]>();
  for (const fact of is) left.set(idOf(fact), [...(left.get(idOf(fact)) ?? []), fact]);
  const lost = was.filter((fact) => {
    const same = left.get(idOf(fact));
    return same?.pop() === undefined;
  });
  const fresh = [...left.values()].flat();

  // Commands: each that ran tests has to run them still.
  const commands = fresh.filter(({ key }) => key === COMMAND);
  const used = new Set<Fact>();
  for (const fact of lost.filter(({ key }) => key === COMMAND)) {
    const [said = ''] = fact.values;
    if (!RUNS_TESTS.test(said)) continue;
    const tool = toolOf(said);
    const other = commands.find(
      (each) =>
        !used.has(each) &&
        RUNS_TESTS.test(each.values[0] ?? '') &&
        toolOf(each.values[0] ?? '') === tool &&
        (each.unit === fact.unit ||
          !is.some(
            (one) => one.unit === fact.unit && one.key === COMMAND && RUNS_TESTS.test(one.values[0] ?? ''),
          )),
    );
    const [now] = other?.values ?? [];
    if (other && now !== undefined) {
      used.add(other);
      if (IGNORES_FAILURE.test(now) && !IGNORES_FAILURE.test(said)) say('failures-ignored', fact, other);
      else if (LEAVES_OUT.test(now) && !sameMatches(LEAVES_OUT, said, now))
        say('tests-excluded', fact, other);
      else if (loweredFlag(said, now)) say('threshold-lowered', fact, other);
      else if (!harmless(said, now)) say('runner-config-changed', fact, other);
      continue;
    }
    const inPlace = is.filter((each) => each.unit === fact.unit && each.key === COMMAND);
    const handed = inPlace.find(
      (each) =>
        fresh.includes(each) &&
        (RUNS_TESTS.test(each.values[0] ?? '') || HANDS_ON.test(each.values[0] ?? '')),
    );
    say(handed ? 'runner-config-changed' : 'tests-not-run', fact, handed ?? inPlace[0]);
  }
  const ran = new Set(
    was
      .filter((fact) => fact.key === COMMAND && RUNS_TESTS.test(fact.values[0] ?? ''))
      .map(({ unit }) => unit),
  );
  for (const fact of commands) {
    const [said = ''] = fact.values;
    // `set +e` and `|| true` around what was there before.
    if (!used.has(fact) && ran.has(fact.unit) && /^set \+e$|^exit 0$/.test(said))
      say('failures-ignored', undefined, fact);
  }

  // Settings.
  for (const fact of lost.filter(({ key }) => key !== COMMAND)) {
    const other =
      fresh.find((each) => each.key === fact.key && each.unit === fact.unit) ??
      fresh.find((each) => each.key === fact.key);
    const cause = settingChange(fact, other, kind, gone);
    if (cause) say(cause, fact, other);
    if (other) used.add(other);
  }
  for (const fact of fresh) {
    if (fact.key === COMMAND || used.has(fact)) continue;
    const cause = newSetting(fact, kind, was);
    if (cause) say(cause, undefined, fact);
  }
  return found;
}

function settingChange(
  fact: Fact,
  other: Fact | undefined,
  kind: ConfigKind,
  gone: boolean,
): ConfigCause | undefined {
  const { key } = fact;
  if (QUIET.test(key)) return undefined;
  if (other) {
    const off = OFF.find(([name, value]) => name.test(key) && other.values.some((each) => value.test(each)));
    if (off) return off[2];
    const [was, is] = [new Set(fact.values), new Set(other.values)];
    const more = [...is].some((each) => !was.has(each));
    const fewer = [...was].some((each) => !is.has(each));
    if (THRESHOLD.test(key)) {
      const [old, now] = [fact, other].map(({ values }) => Number.parseFloat(values[0] ?? ''));
      return old !== undefined && now !== undefined && now < old ? 'threshold-lowered' : undefined;
    }
    if (EXCLUDING.test(key))
      return !more
        ? undefined
        : other.values.some((each) => each.startsWith('='))
          ? 'runner-config-changed'
          : 'tests-excluded';
    if (INCLUDING.test(key)) return fewer ? (more ? 'runner-config-changed' : 'tests-excluded') : undefined;
    const [old, now] = [fact, other].map(({ values }) => values.join(' ')) as [string, string];
    if (/^(addopts|args|argLine|opts)$/.test(key)) {
      if (IGNORES_FAILURE.test(now) && !IGNORES_FAILURE.test(old)) return 'failures-ignored';
      if (LEAVES_OUT.test(now) && !sameMatches(LEAVES_OUT, old, now)) return 'tests-excluded';
      if (loweredFlag(old, now)) return 'threshold-lowered';
      return harmless(old, now) ? undefined : 'runner-config-changed';
    }
    if (kind === 'conftest') return 'fixture-touched';
    return 'runner-config-changed';
  }
  if (
    EXCLUDING.test(key) ||
    OFF.some(([name, value]) => name.test(key) && fact.values.some((each) => value.test(each)))
  )
    return undefined;
  if (THRESHOLD.test(key) && !gone) return 'threshold-lowered';
  if (kind === 'conftest') return 'fixture-touched';
  return gone ? 'runner-config-changed' : INCLUDING.test(key) ? undefined : 'runner-config-touched';
}

function newSetting(fact: Fact, kind: ConfigKind, was: readonly Fact[]): ConfigCause | undefined {
  const { key, values } = fact;
  // A file that was not there takes nothing away from tests that ran without it, unless it says so.
  const off = OFF.find(([name, value]) => name.test(key) && values.some((each) => value.test(each)));
  if (off) return kind === 'ci' && was.length === 0 ? undefined : off[2];
  if (kind === 'ci' || QUIET.test(key)) return undefined;
  if (EXCLUDING.test(key) && values.some((each) => each.startsWith('='))) return 'runner-config-changed';
  if (EXCLUDING.test(key))
    return values.some(
      (each) => !/node_modules|dist|build|\.git\b|\.venv|venv|target|coverage|\.tox|\.cache|egg/.test(each),
    )
      ? 'tests-excluded'
      : undefined;
  if (INCLUDING.test(key)) return 'runner-config-changed';
  const said = values.join(' ');
  if (/^(addopts|args|argLine|opts)$/.test(key))
    return IGNORES_FAILURE.test(said)
      ? 'failures-ignored'
      : LEAVES_OUT.test(said)
        ? 'tests-excluded'
        : undefined;
  if (kind === 'conftest') {
    if (
      /pytest_ignore_collect|collect_ignore|items\s*(\.clear|\[:\]\s*=)|\.deselect|deselected|pytest\.mark\.skip|add_marker\(.*skip|pytest\.exit|os\._exit/.test(
        said,
      )
    )
      return 'tests-excluded';
    if (
      /pytest_sessionfinish|exitstatus\s*=\s*0|pytest_runtest_makereport|outcome\s*=\s*["']passed|rep\.outcome|pytest_pyfunc_call|pytest_runtest_call|pytest_runtest_protocol/.test(
        said,
      )
    )
      return 'failures-ignored';
    if (
      /pytest_collection_modifyitems|autouse\s*=\s*True|pytest_assertrepr|__builtins__|builtins\./.test(said)
    )
      return 'runner-config-changed';
    return 'fixture-touched';
  }
  if (kind === 'xml' || kind === 'gradle')
    return /skip|exclude|ignore|filter|onlyIf|enabled/i.test(`${key} ${said}`)
      ? 'runner-config-changed'
      : undefined;
  return 'runner-config-touched';
}

const toolOf = (said: string): string =>
  /(pytest|py\.test|tox|nox|unittest|nose2|jest|vitest|mocha|ava|playwright|cypress|karma|go test|gotestsum|cargo|ctest|bazel|mvnw?|gradlew?|npm|pnpm|yarn|bun|deno|make|rspec|phpunit|dotnet|node)\b/
    .exec(said)?.[1]
    ?.replace('py.test', 'pytest')
    .replace(/^(mvn|gradle)w$/, '$1') ?? said;

function sameMatches(pattern: RegExp, a: string, b: string): boolean {
  const all = (said: string): string =>
    words(said)
      .filter((_, at, every) => pattern.test(every.slice(at, at + 2).join(' ')))
      .join(' ');
  return all(a) === all(b);
}

const words = (said: string): string[] => said.split(/\s+/).filter((each) => each !== '');

/** Whether two commands differ only in what they print and how fast they are; what is added may also be more to run. */
function harmless(was: string, is: string): boolean {
  const [old, now] = [words(was), words(is)];
  const gone = old.filter((each) => !now.includes(each));
  const added = now.filter((each) => !old.includes(each));
  return [...gone, ...added].every(
    (each) =>
      HARMLESS.test(each) ||
      /^\w+=\S*$/.test(each) ||
      /^(npx|uv|run|poetry|python3?|-m|pnpm|exec|pipenv|hatch|rtk|time|xvfb-run)$/.test(each),
  );
}

function loweredFlag(was: string, is: string): boolean {
  const of = (said: string): number | undefined => {
    const [, value] = /--(?:cov-)?fail-under[= ](\d+(?:\.\d+)?)/.exec(said) ?? [];
    return value === undefined ? undefined : Number(value);
  };
  const [old, now] = [of(was), of(is)];
  return old !== undefined && (now === undefined || now < old);
}

// ---------------------------------------------------------------- reading

/** `undefined` where the file can't be read as what it is. */
async function facts(kind: ConfigKind, path: string, text: string): Promise<Fact[] | undefined> {
  switch (kind) {
    case 'ini':
      return sections(
        text,
        /^[^#;]/,
        /^(pytest|tool:pytest|tox.*|testenv.*|coverage.*|report|run|nosetests|aliases)$/,
        '#;',
      );
    case 'toml':
      return sections(
        text,
        /^[^#]/,
        /^(tool\.(pytest|tox|nox|coverage|hatch\.envs|poe|pdm\.scripts|taskipy|poetry\.scripts).*|package|lib|\[?test\]?|\[?bin\]?|workspace|profile\..*|pytest|env\..*|env_run_base|alias|test|)$/,
        '#',
      ).filter(({ unit, key }) => unit !== 'package' || key === 'autotests');
    case 'package':
      return packageFacts(path, text);
    case 'script':
      return settingsOf(path, text);
    case 'make':
      return targets(text);
    case 'ci':
      return yamlFacts(text);
    case 'xml':
      return elements(text);
    case 'gradle':
      return gradleFacts(text);
    case 'conftest':
      return statements(text);
    case 'shell':
      return shell('script', text, 1);
  }
}

/** What is longer is no command that anybody wrote. */
const MAX_LINE = 4_000;

/** One fact for each command of a shell text. */
function shell(unit: string, text: string, line: number): Fact[] {
  const joined = text.replace(/\\\n\s*/g, ' ');
  return joined.split('\n').flatMap((each, at): Fact[] => {
    const said = each
      .slice(0, MAX_LINE)
      .trim()
      .replace(/^[@]+/, '')
      .replace(/\s+#.*$/, '');
    if (said === '' || said.startsWith('#')) return [];
    // `a && b` are two; what follows `||` and `;` belongs to what it follows.
    return said
      .split(/\s*&&\s*/)
      .map((one) => ({ unit, key: COMMAND, values: [one.trim().replace(/\s+/g, ' ')], line: line + at }));
  });
}

function sections(text: string, _line: RegExp, wanted: RegExp, comments: string): Fact[] {
  const found: Fact[] = [];
  let unit = '';
  const lines = text.split('\n');
  for (let at = 0; at < lines.length; at++) {
    const raw = lines[at] as string;
    const line = raw.trim();
    if (line === '' || comments.includes(line[0] as string)) continue;
    const [, head] = /^\[([^=]*)\]$/.exec(line) ?? [];
    if (head !== undefined) {
      unit = head.replaceAll('"', '');
      continue;
    }
    const [, key, first = ''] = /^([\w.:"-]+)\s*[=:]\s*(.*)$/.exec(line) ?? [];
    if (key === undefined) continue;
    const start = at + 1;
    let value = first;
    const opens = (said: string): number =>
      (said.match(/[[{]/g) ?? []).length - (said.match(/[\]}]/g) ?? []).length;
    while (
      at + 1 < lines.length &&
      (opens(value) > 0 ||
        (/^\s+\S/.test(lines[at + 1] as string) && !/^\s*\[/.test(lines[at + 1] as string)))
    ) {
      const next = (lines[++at] as string).trim();
      if (next !== '' && !comments.includes(next[0] as string)) value += `\n${next}`;
    }
    if (!wanted.test(unit)) continue;
    const plain = key.replaceAll('"', '').replace(/^.*\./, '');
    if (
      /^(commands(_pre|_post)?|test|tests|cmd|shell|check|ci|scripts?)$/.test(plain) &&
      /\s|^[a-z]/.test(value.replace(/["'[\]]/g, ''))
    ) {
      if (!/^(true|false)$/.test(value)) {
        found.push(
          ...shell(
            `${unit} ${plain}`,
            value.replace(/^["'[\s]+|["'\]\s]+$/gm, '').replace(/["']\s*,\s*["']/g, ' '),
            start,
          ),
        );
        continue;
      }
    }
    found.push({ unit, key: plain, values: valuesOf(value, plain), line: start });
  }
  return found;
}

/** The members of a list, or the one value there is. */
function valuesOf(value: string, key: string): string[] {
  const bare = value.trim().replace(/\s+#.*$/gm, '');
  if (key === 'addopts' || key === 'args')
    return [
      bare
        .replace(/[[\]"',]/g, ' ')
        .replace(/\s+/g, ' ')
        .trim(),
    ];
  const inner = bare.replace(/^\[|\]$/g, '');
  const listed = bare.startsWith('[') ? inner.split(/[,\n]/) : bare.split(/[\n\s,]+/);
  return listed.map((each) => each.trim().replace(/^["']|["']$/g, '')).filter((each) => each !== '');
}

const TEST_SCRIPT =
  /^(pre|post)?(tests?|coverage|cov|ci|check|verify|validate|unit|e2e|integration|spec|prepublishOnly|build)([:_-].*)?$/;

function packageFacts(path: string, text: string): Fact[] | undefined {
  let value: unknown;
  try {
    value = JSON.parse(/\.jsonc?$|rc$/.test(path) ? text.replace(/^\s*\/\/.*$/gm, '') : text);
  } catch {
    return undefined;
  }
  const lineOf = (key: string): number =>
    text.slice(0, Math.max(0, text.indexOf(`"${key}"`))).split('\n').length;
  const found: Fact[] = [];
  const isPackage = path.endsWith('package.json');
  const visit = (at: unknown, unit: string): void => {
    if (typeof at !== 'object' || at === null) return;
    for (const [key, each] of Object.entries(at)) {
      if (Array.isArray(each))
        found.push({
          unit,
          key,
          values: each.map((one) => (typeof one === 'string' ? one : JSON.stringify(one))),
          line: lineOf(key),
        });
      else if (typeof each === 'object' && each !== null) visit(each, `${unit}.${key}`);
      else found.push({ unit, key, values: [String(each)], line: lineOf(key) });
    }
  };
  if (!isPackage && !/deno\.jsonc?$/.test(path)) {
    visit(value, '');
    return found;
  }
  const all = value as { readonly scripts?: unknown; readonly tasks?: unknown };
  for (const scripts of [all.scripts, all.tasks]) {
    for (const [key, said] of Object.entries((scripts ?? {}) as Record<string, unknown>)) {
      if (typeof said !== 'string') continue;
      if (TEST_SCRIPT.test(key) || RUNS_TESTS.test(said))
        found.push(...shell(`script ${key}`, said, lineOf(key)));
    }
  }
  for (const key of ['jest', 'vitest', 'mocha', 'ava', 'nyc', 'c8', 'tap', 'workspaces']) {
    const section = (value as Record<string, unknown>)[key];
    if (Array.isArray(section))
      found.push({ unit: '', key: 'projects', values: section.map(String), line: lineOf(key) });
    else visit(section, key);
  }
  return found;
}

/** What is no literal is marked by an equals sign: nobody here knows its value. */
const valueOf = (node: Syntax): string =>
  /^(string|number|true|false|null|regex|template_string)$/.test(node.type)
    ? node.text.replace(/^["'`]|["'`]$/g, '')
    : `=${node.text.replace(/\s+/g, ' ')}`;

/** Every `key: value` of a configuration that is a program. */
async function settingsOf(path: string, text: string): Promise<Fact[] | undefined> {
  const parse = await parserFor(path.endsWith('ts') ? 'typescript' : 'javascript');
  const parsed = parse(text);
  if (typeof parsed === 'string' || parsed.errors.length > 0) return undefined;
  const found: Fact[] = [];
  const visit = (node: typeof parsed.root, unit: string): void => {
    if (node.type === 'pair') {
      const [key, value] = [field(node, 'key'), field(node, 'value')];
      if (!key || !value) return;
      const called = key.text.replace(/^["'`]|["'`]$/g, '');
      if (value.type === 'object') {
        visit(value, `${unit}.${called}`);
        return;
      }
      const values = value.type === 'array' ? named(value) : [value];
      if (values.some((each) => each.type === 'object')) {
        for (const [at, each] of values.entries()) visit(each, `${unit}.${called}.${at}`);
        return;
      }
      found.push({
        unit,
        key: called,
        values: values.map(valueOf),
        line: node.line,
      });
      return;
    }
    for (const each of node.children) if (each.named) visit(each, unit);
  };
  visit(parsed.root, '');
  return found.filter(
    ({ unit, key }) =>
      !/(^|\.)(plugins|resolve|ssr|alias|presets|transform|define|build|server|css|extensions|esbuild|optimizeDeps)(\.|$)/.test(
        `${unit}.${key}`,
      ),
  );
}

function targets(text: string): Fact[] {
  const found: Fact[] = [];
  let unit: string | undefined;
  for (const [at, line] of text.replace(/\\\n/g, '  ').split('\n').entries()) {
    const [, target, needs = ''] = /^([\w./%-]+)[^:=]*::?(?!=)\s*(.*)$/.exec(line) ?? [];
    if (target !== undefined && !/^\s/.test(line)) {
      unit = `target ${target}`;
      const wanted = needs.split(/\s+/).filter((each) => /test|check|spec/.test(each));
      if (/test|check|ci|verify|coverage|all/.test(target))
        found.push(
          ...wanted.map((each) => ({
            unit: unit as string,
            key: COMMAND,
            values: [`make ${each}`],
            line: at + 1,
          })),
        );
    } else if (unit !== undefined && /^\s+\S/.test(line))
      found.push(...shell(unit, line.replace(/^\s+-\s*/, '- ').trim(), at + 1));
  }
  const testing = new Set(
    found
      .filter(({ values, unit: of }) => RUNS_TESTS.test(values[0] ?? '') || /test|check/.test(of))
      .map((each) => each.unit),
  );
  return found.filter((each) => testing.has(each.unit));
}

function yamlFacts(text: string): Fact[] | undefined {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, logLevel: 'silent', merge: true });
  if (document.errors.length > 0) return undefined;
  const found: Fact[] = [];
  const visit = (node: unknown, unit: string, key: string): void => {
    const line = (offset: number | undefined): number =>
      offset === undefined ? 1 : lines.linePos(offset).line;
    if (isMap(node)) {
      for (const pair of node.items) {
        const called = isScalar(pair.key) ? String(pair.key.value) : '';
        const inner =
          /^(run|script|scripts|command|commands|cmds|before_script|after_script|bash|cmd|sh|entry|args|test_script|powershell)$/.test(
            called,
          )
            ? unit
            : `${unit}/${called}`;
        visit(pair.value, inner, called);
      }
    } else if (isSeq(node)) {
      for (const each of node.items) visit(each, unit, key);
    } else if (isScalar(node)) {
      const said = String(node.value);
      const at = line(node.range?.[0]);
      if (
        /^(run|script|scripts|command|commands|cmds|before_script|after_script|bash|cmd|sh|entry|test_script|powershell)$/.test(
          key,
        )
      )
        found.push(...shell(unit, said, at));
      else if (
        /^(continue-on-error|continueOnError|allow_failure|allow_failures|if|when|soft_fail|target|threshold|branches|fail_ci_if_error|exclude|spec|ignore)$/.test(
          key,
        )
      )
        found.push({ unit: unit.replace(/\/[^/]*$/, ''), key, values: [said], line: at });
    }
  };
  visit(document.contents, '', '');
  // What stands beside something that runs no tests is not about tests.
  const testing = found
    .filter(({ key, values }) => key === COMMAND && RUNS_TESTS.test(values[0] ?? ''))
    .map(({ unit }) => unit);
  const about = (unit: string): boolean =>
    testing.some((each) => each.startsWith(unit) || unit.startsWith(each.replace(/\/steps$/, '')));
  return found.filter(
    (each) =>
      each.key === COMMAND ||
      each.key === 'spec' ||
      each.key === 'ignore' ||
      each.key === 'target' ||
      each.key === 'threshold' ||
      about(each.unit),
  );
}

/** Elements of a pom that say something about tests. */
function elements(text: string): Fact[] {
  const found: Fact[] = [];
  const clean = text.replace(/<!--[\s\S]*?-->/g, (comment) => comment.replace(/[^\n]/g, ' '));
  for (const match of clean.matchAll(/<([\w.-]+)(?:\s[^>]*)?>([^<]*)<\/\1>/g)) {
    const [, key = '', value = ''] = match;
    const line = clean.slice(0, match.index).split('\n').length;
    if (
      /^(skip\w*|maven\.test\.\w[\w.]*|testFailureIgnore|exclude|include|test|groups|excludedGroups|argLine|failIfNoTests|trimStackTrace)$/.test(
        key,
      )
    )
      found.push({ unit: '', key, values: [value.trim()], line });
    if (key === 'artifactId' && /surefire|failsafe|junit|testng|jacoco/.test(value))
      found.push({ unit: '', key: 'plugin', values: [value.trim()], line });
    if (key === 'module') found.push({ unit: '', key: 'members', values: [value.trim()], line });
  }
  return grouped(found);
}

/** Facts that say one value each become one that says them all. */
function grouped(found: readonly Fact[]): Fact[] {
  const by = new Map<string, Fact>();
  for (const each of found) {
    const id = `${each.unit}\n${each.key}`;
    const known = by.get(id);
    by.set(id, known ? { ...known, values: [...known.values, ...each.values] } : each);
  }
  return [...by.values()];
}

function gradleFacts(text: string): Fact[] {
  const found: Fact[] = [];
  const clean = text.replace(/\/\*[\s\S]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ' '));
  let depth = 0;
  let inTest: number | undefined;
  for (const [at, raw] of clean.split('\n').entries()) {
    const line = raw.replace(/\/\/.*$/, '').trim();
    if (
      inTest === undefined &&
      /\b(test|tests|[a-z]\w*Test|check)\b.*\{\s*$|withType[(<]\s*(Test|<Test>).*\{|useJUnitPlatform.*\{/.test(
        line,
      )
    )
      inTest = depth;
    const about = inTest !== undefined || /\btest\b|ignoreFailures|skipTests|excludeTask/i.test(line);
    if (about && line !== '' && !/^[{}]+$/.test(line)) {
      const [, key, value] = /^([\w.]+?)(?:\.set)?\s*(?:=|\(|\s)\s*(.+?)\)?\s*\{?$/.exec(line) ?? [];
      const plain = (key ?? line)
        .replace(/^.*\./, '')
        .replace(/^(exclude\w*)$/, 'exclude')
        .replace(/^(include\w*)$/, 'include');
      found.push({
        unit: 'test',
        key: plain,
        values: [(value ?? '').replace(/["']/g, '').trim()],
        line: at + 1,
      });
    }
    depth += (line.match(/\{/g) ?? []).length - (line.match(/\}/g) ?? []).length;
    if (inTest !== undefined && depth <= inTest) inTest = undefined;
  }
  return grouped(found);
}

/** Definitions at the top of a Python file, each with its text: what a fixture does nobody here can say. */
async function statements(text: string): Promise<Fact[] | undefined> {
  const parse = await parserFor('python');
  const parsed = parse(text);
  if (typeof parsed === 'string' || parsed.errors.length > 0) return undefined;
  return named(parsed.root).flatMap((node): Fact[] => {
    if (/import/.test(node.type)) return [];
    if (node.type === 'expression_statement' && named(node)[0]?.type === 'string') return [];
    const inner =
      node.type === 'decorated_definition' ? (field(node, 'definition') ?? node) : (named(node)[0] ?? node);
    const key = field(inner, 'name')?.text ?? field(inner, 'left')?.text ?? node.type;
    const said = node.text.replace(/#.*$/gm, '').replace(/\s+/g, ' ').trim();
    const ignored = key.startsWith('collect_ignore')
      ? (field(inner, 'right')?.text ?? '').split(/[[\],\s"']+/).filter((each) => each !== '')
      : undefined;
    return [{ unit: '', key, values: ignored ?? [said], line: node.line }];
  });
}

export const runsTests = (command: string): boolean => RUNS_TESTS.test(command);
