/** The axis `invariant` of a verdict: a policy held against what changed. Decides from content alone, by no model. */

import type { Change, Content, Effect } from './effect.js';
import { matcher, scope } from './glob.js';
import type {
  EffectRule,
  EgressRule,
  PathRule,
  Policy,
  Rule,
  RuleName,
  SecretRule,
  SuiteRule,
  TestRule,
} from './policy.js';
import { secretsIn } from './secrets.js';
import type { Cause as TestCause } from './weakening/compare.js';
import { judgeTests } from './weakening/judge-tests.js';
import { languageOf } from './weakening/languages.js';
import { type ConfigCause, configKind, judgeConfig, runsTests } from './weakening/runner-config.js';
import { isSnapshot, judgeSnapshots, type SnapshotCause } from './weakening/snapshot-file.js';

/** Of a verdict: PASS, WARN, FAIL, UNVERIFIED. */
export type Status = 'kept' | 'touched' | 'broken' | 'undecided';

export const VERDICT: Readonly<Record<Status, 'PASS' | 'WARN' | 'FAIL' | 'UNVERIFIED'>> = {
  kept: 'PASS',
  touched: 'WARN',
  broken: 'FAIL',
  undecided: 'UNVERIFIED',
};

export type Cause =
  | TestCause
  | ConfigCause
  | SnapshotCause
  // paths
  | 'written'
  | 'outside-what-is-allowed'
  | 'created'
  | 'deleted'
  | 'metadata-changed'
  // other rules
  | 'secret-written'
  | 'secret-likely'
  | 'network-reached'
  | 'network-tried'
  | 'effect-too-large'
  | 'claimed-without-suite'
  | 'claimed-after-failed-suite'
  | 'written-after-suite'
  // why it can't be decided
  | 'effect-unknown'
  | 'egress-unobserved'
  | 'history-unobserved'
  | 'suite-result-unobserved'
  | 'unreadable'
  | 'too-large'
  | 'too-slow'
  | 'too-deep'
  | 'too-many-files'
  | 'not-text'
  | 'syntax-error'
  | 'language-unknown';

export interface Evidence {
  readonly path: string;
  /** Counted from 1; absent where the whole file is meant. */
  readonly line?: number;
  /** That line, shortened; of a secret, without it. */
  readonly text?: string;
}

export interface Finding {
  /** The id of its rule. */
  readonly rule: string;
  readonly status: Exclude<Status, 'kept'>;
  readonly cause: Cause;
  readonly path: string;
  /** Where it stands inside its file: suites and name. */
  readonly test?: string;
  readonly before?: Evidence;
  readonly after?: Evidence;
}

export interface RuleJudgement {
  readonly id: string;
  readonly rule: RuleName;
  readonly status: Status;
  /** What was looked at. A rule that kept nothing from changing has examined nothing. */
  readonly examined: { readonly paths: number; readonly tests: number; readonly assertions: number };
  readonly findings: readonly Finding[];
}

export interface Judgement {
  readonly scope: Effect['scope'];
  /** The worst of its rules: broken, undecided, touched, kept. */
  readonly status: Status;
  readonly policy: string;
  readonly rules: readonly RuleJudgement[];
}

export interface Limits {
  /** Bytes of a file that a rule looks into. */
  readonly fileSize: number;
  /** Files that one rule looks into. */
  readonly files: number;
}
export const LIMITS: Limits = { fileSize: 1_000_000, files: 2_000 };

const ORDER: readonly Status[] = ['kept', 'touched', 'undecided', 'broken'];
const worst = (statuses: readonly Status[]): Status =>
  statuses.reduce((a, b) => (ORDER.indexOf(b) > ORDER.indexOf(a) ? b : a), 'kept' as Status);

/** Judges one turn, one interval of drift, or the net change of a session. */
export async function judge(policy: Policy, effect: Effect, limits: Limits = LIMITS): Promise<Judgement> {
  const files = new Texts(limits);
  const rules: RuleJudgement[] = [];
  for (const rule of policy.rules) {
    // Only a session has an end for a claim to be about.
    if (rule.rule === 'suite-before-claim' && effect.scope !== 'session') continue;
    rules.push(await new Judge(rule, effect, files, limits).judged());
  }
  return {
    scope: effect.scope,
    status: worst(rules.map(({ status }) => status)),
    policy: policy.digest,
    rules,
  };
}

type Text = { readonly text: string } | { readonly cause: 'unreadable' | 'too-large' | 'not-text' };

/** Contents as text, each read once. */
class Texts {
  readonly #limits: Limits;
  readonly #known = new Map<Content, Promise<Text>>();

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  of(content: Content): Promise<Text> {
    let known = this.#known.get(content);
    if (!known) this.#known.set(content, (known = this.#read(content)));
    return known;
  }

  async #read(content: Content): Promise<Text> {
    if (content.size > this.#limits.fileSize) return { cause: 'too-large' };
    try {
      const bytes = await content.read();
      if (bytes.length > this.#limits.fileSize) return { cause: 'too-large' };
      if (bytes.includes(0)) return { cause: 'not-text' };
      return { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
    } catch (error) {
      return { cause: error instanceof TypeError ? 'not-text' : 'unreadable' };
    }
  }
}

class Judge {
  readonly #rule: Rule;
  readonly #effect: Effect;
  readonly #texts: Texts;
  readonly #limits: Limits;
  readonly #findings: Finding[] = [];
  readonly #examined = { paths: 0, tests: 0, assertions: 0 };

  constructor(rule: Rule, effect: Effect, texts: Texts, limits: Limits) {
    this.#rule = rule;
    this.#effect = effect;
    this.#texts = texts;
    this.#limits = limits;
  }

  async judged(): Promise<RuleJudgement> {
    await this.#look();
    const { id, rule } = this.#rule;
    return {
      id,
      rule,
      status: worst(this.#findings.map(({ status }) => status)),
      examined: { ...this.#examined },
      findings: this.#findings,
    };
  }

  async #look(): Promise<void> {
    const rule = this.#rule;
    if (rule.rule === 'no-egress') return this.#egress(rule);
    if (rule.rule === 'suite-before-claim') return this.#suite(rule);
    const { changes } = this.#effect;
    if (!changes) return this.#say('undecided', 'effect-unknown', '');
    switch (rule.rule) {
      case 'max-effect':
        return this.#size(rule, changes);
      case 'no-secret-write':
        return this.#secrets(rule, changes);
      case 'no-test-weakening':
        return this.#tests(rule, changes);
      default:
        return this.#paths(rule, changes);
    }
  }

  #say(
    status: Finding['status'],
    cause: Cause,
    path: string,
    more: Pick<Finding, 'test' | 'before' | 'after'> = {},
  ): void {
    this.#findings.push({ rule: this.#rule.id, status, cause, path, ...more });
  }

  #paths(rule: PathRule, changes: readonly Change[]): void {
    const inside = scope(rule.paths, rule.except);
    for (const { path, from = path, what } of changes) {
      const [old, now] = [inside(from), inside(path)];
      const moved = from !== path;
      const meets = rule.rule === 'allow-only' ? !old || !now : old || now;
      if (!meets) continue;
      this.#examined.paths++;
      const where = {
        ...(what === 'created' ? {} : { before: { path: from } }),
        ...(what === 'deleted' ? {} : { after: { path } }),
      };
      switch (rule.rule) {
        case 'read-only':
          this.#say(
            what === 'metadata' ? 'touched' : 'broken',
            what === 'metadata' ? 'metadata-changed' : 'written',
            old ? from : path,
            where,
          );
          break;
        case 'allow-only':
          this.#say(
            what === 'metadata' ? 'touched' : 'broken',
            what === 'metadata' ? 'metadata-changed' : 'outside-what-is-allowed',
            old ? path : from,
            where,
          );
          break;
        case 'no-create':
          if (what === 'created' || (moved && now)) this.#say('broken', 'created', path, where);
          break;
        case 'no-delete':
          // A file that became a link is a file that is gone.
          if (what === 'deleted' || what === 'type' || (moved && old))
            this.#say('broken', 'deleted', from, where);
          break;
      }
    }
  }

  #size(rule: EffectRule, changes: readonly Change[]): void {
    const real = changes.filter(({ what }) => what !== 'metadata');
    this.#examined.paths = real.length;
    const sums = {
      files: real.length,
      created: real.filter(({ what }) => what === 'created').length,
      deleted: real.filter(({ what }) => what === 'deleted').length,
      bytes: real.reduce((sum, { after }) => sum + (after?.size ?? 0), 0),
    };
    for (const key of ['files', 'created', 'deleted', 'bytes'] as const) {
      const most = rule[key];
      if (most !== undefined && sums[key] > most)
        this.#say('broken', 'effect-too-large', '', {
          after: { path: '', text: `${key}: ${sums[key]}, at most ${most}` },
        });
    }
  }

  async #secrets(rule: SecretRule, changes: readonly Change[]): Promise<void> {
    const inside = scope(rule.paths, rule.except);
    for (const { path, before, after, what } of changes) {
      if (!after || what === 'metadata' || !inside(path)) continue;
      this.#examined.paths++;
      if (this.#examined.paths > this.#limits.files) return this.#say('undecided', 'too-many-files', '');
      const now = await this.#texts.of(after);
      if ('cause' in now) {
        // What is no text has no secrets of these forms; what can't be read may have any.
        if (now.cause !== 'not-text') this.#say('undecided', now.cause, path);
        continue;
      }
      const old = before ? await this.#texts.of(before) : undefined;
      const known = new Set(old && 'text' in old ? secretsIn(old.text).map(({ value }) => value) : []);
      for (const { kind, line, text, likely, value } of secretsIn(now.text)) {
        if (known.has(value)) continue;
        this.#say(likely ? 'touched' : 'broken', likely ? 'secret-likely' : 'secret-written', path, {
          after: { path, line, text: `${kind}: ${text}` },
        });
      }
    }
  }

  #egress(rule: EgressRule): void {
    const { egress } = this.#effect;
    if (!egress) return this.#say('undecided', 'egress-unobserved', '');
    const allowed = (address: string): boolean =>
      rule.allow.some((each) => address === each || address.startsWith(`${each}:`));
    for (const each of egress.reached)
      if (!allowed(each)) this.#say('broken', 'network-reached', '', { after: { path: '', text: each } });
    for (const each of egress.denied)
      if (!allowed(each)) this.#say('touched', 'network-tried', '', { after: { path: '', text: each } });
  }

  #suite(rule: SuiteRule): void {
    const { history } = this.#effect;
    if (!history) return this.#say('undecided', 'history-unobserved', '');
    const isSuite = (text: string): boolean =>
      rule.commands.length > 0 ? rule.commands.some((each) => text.includes(each)) : runsTests(text);
    for (const [at, event] of history.entries()) {
      if (event.kind !== 'claim' || !CLAIMS.test(event.text)) continue;
      this.#examined.tests++;
      const claim = { after: { path: '', text: event.text.slice(0, 200) } };
      const before = history.slice(0, at);
      const last = before.findLastIndex((each) => each.kind === 'command' && isSuite(each.text));
      const run = before[last];
      if (run?.kind !== 'command') this.#say('broken', 'claimed-without-suite', '', claim);
      else if (run.ok === undefined) this.#say('undecided', 'suite-result-unobserved', '', claim);
      else if (!run.ok) this.#say('broken', 'claimed-after-failed-suite', '', claim);
      else {
        const later = before
          .slice(last + 1)
          .find((each) => each.kind === 'write' && !/\.(md|rst|txt|adoc)$/i.test(each.path));
        if (later?.kind === 'write') this.#say('touched', 'written-after-suite', later.path, claim);
      }
    }
  }

  // ---------------------------------------------------------------- tests

  async #tests(rule: TestRule, changes: readonly Change[]): Promise<void> {
    const inside = scope(rule.paths, rule.except);
    const lowered = new Set(rule.warn);
    const content = new Map<string, string>();
    const code: { path: string; from?: string; before?: string; after?: string; watched: boolean }[] = [];
    const recorded: { path: string; before?: string; after?: string }[] = [];
    const lineOf = (side: 'before' | 'after', path: string, line: number | undefined): Evidence => {
      const text =
        line === undefined
          ? undefined
          : content.get(`${side} ${path}`)?.split('\n')[line - 1]?.trim().slice(0, 200);
      return { path, ...(line === undefined ? {} : { line }), ...(text === undefined ? {} : { text }) };
    };
    const tell = (
      weight: Finding['status'],
      cause: Cause,
      path: string,
      more: Pick<Finding, 'test' | 'before' | 'after'>,
    ): void => {
      this.#say(weight === 'broken' && lowered.has(cause) ? 'touched' : weight, cause, path, more);
    };

    let read = 0;
    for (const change of changes) {
      const { path, what } = change;
      const from = change.from ?? path;
      const old = what === 'created' ? undefined : from;
      const now = what === 'deleted' ? undefined : path;
      const watched =
        (old !== undefined && inside(old)) ||
        (now !== undefined && inside(now)) ||
        (old !== undefined && old.endsWith('.rs') && !matcher(rule.except)(old));
      const language = languageOf(from) ?? languageOf(path);
      if (!watched && !language) continue;
      if (what === 'metadata') {
        if (inside(from))
          this.#say('touched', 'metadata-changed', from, { before: { path: from }, after: { path } });
        continue;
      }
      if (++read > this.#limits.files) return this.#say('undecided', 'too-many-files', '');
      if (watched) this.#examined.paths++;
      const sides: { before?: string; after?: string } = {};
      let unread: Cause | undefined;
      for (const [side, given] of [
        ['before', change.before],
        ['after', change.after],
      ] as const) {
        if (!given) continue;
        const text = await this.#texts.of(given);
        if ('text' in text) {
          sides[side] = text.text;
          content.set(`${side} ${side === 'before' ? from : path}`, text.text);
        } else unread = text.cause;
      }
      if (unread !== undefined) {
        if (watched && old !== undefined) this.#unread(unread, from);
        continue;
      }
      const moved = from === path ? {} : { from };
      if (language) code.push({ path, ...moved, ...sides, watched });
      if (isSnapshot(from) || isSnapshot(path)) recorded.push({ path, ...sides });
      else if (configKind(from) || configKind(path)) {
        const kind = configKind(from) ? from : path;
        for (const each of await judgeConfig(
          kind,
          sides.before,
          configKind(path) ? sides.after : undefined,
        )) {
          tell(each.weight, each.cause, from, {
            ...(each.before === undefined ? {} : { before: lineOf('before', from, each.before) }),
            ...(each.after === undefined ? {} : { after: lineOf('after', path, each.after) }),
          });
        }
      } else if (!language && watched && old !== undefined) {
        const where = { before: { path: from }, ...(now === undefined ? {} : { after: { path } }) };
        this.#say(
          OTHER_CODE.test(from) ? 'undecided' : 'touched',
          OTHER_CODE.test(from) ? 'language-unknown' : 'fixture-touched',
          from,
          where,
        );
      }
    }

    // Where no file of tests was there before, there is nothing to lose, and nothing to parse.
    const some = code.some(({ watched, before }) => watched && before !== undefined);
    const { findings, unread, tests, assertions } = await judgeTests(some ? code : []);
    this.#examined.tests += tests;
    this.#examined.assertions += assertions;
    for (const each of findings) {
      tell(each.weight, each.cause, each.path, {
        ...(each.test === '' ? {} : { test: each.test }),
        ...(each.before === undefined ? {} : { before: lineOf('before', each.path, each.before) }),
        ...(each.after === undefined ? {} : { after: lineOf('after', each.after.path, each.after.line) }),
      });
    }
    for (const { path, cause, line } of unread)
      this.#say('undecided', cause, path, line === undefined ? {} : { after: lineOf('after', path, line) });
    for (const each of judgeSnapshots(recorded)) {
      tell(each.weight, each.cause, each.path, {
        ...(each.test === '' ? {} : { test: each.test }),
        before: lineOf('before', each.path, each.before),
        ...(each.after === undefined ? {} : { after: lineOf('after', each.path, each.after) }),
      });
    }
  }

  /** A file with tests or settings that can't be read is undecided; a picture beside them is only touched. */
  #unread(cause: Cause, path: string): void {
    const says =
      languageOf(path) !== undefined ||
      configKind(path) !== undefined ||
      OTHER_CODE.test(path) ||
      cause !== 'not-text';
    this.#say(says ? 'undecided' : 'touched', says ? cause : 'fixture-touched', path, { before: { path } });
  }
}

/** Code of languages whose tests are not read here. */
const OTHER_CODE =
  /\.(kt|kts|groovy|scala|rb|php|cs|fs|vb|swift|m|mm|c|h|cc|cpp|cxx|hpp|ex|exs|erl|hs|ml|clj|cljs|lua|pl|t|r|jl|dart|zig|nim|sh|bats|feature|vue|svelte)$/;

/** That something is done, works or was tested, in the words such claims are made in. */
const CLAIMS =
  /\b(tests?|suite|build|checks?)\b[^.!?\n]{0,60}\b(pass(es|ed|ing)?|green|succeed(s|ed)?|ok)\b|\ball (tests|checks|green)\b|\b(verified|tested|validated)\b|\b(fixed|works|working|done|complete[ds]?|finished|resolved|implemented)\b/i;
