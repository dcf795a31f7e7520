/** `belay policy`: the operator's policy file checked, and its rules said in words. */

import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { resolve } from 'node:path';
import {
  defaultPolicy,
  emptyPolicy,
  type Policy,
  PolicyError,
  readPolicy,
  type Rule,
} from '@belay/invariant';
import { readPolicyFile, SandboxError } from '@belay/sandbox';
import type { Command } from 'commander';
import { readConfig } from './config.js';
import { badInput } from './exit.js';
import { print, printable, styleFor } from './output.js';

interface Options {
  readonly defaultPolicy?: boolean;
  readonly json?: boolean;
}

/** Sections that this command leaves to those who read them. */
const OTHERS = ['invariants', 'snapshot'];

/** Throws CliError with the place of the first thing that is wrong, in whichever section. */
function read(file: string, defaults: boolean): { readonly policy: Policy; readonly sandbox: object } {
  const source = readFileSync(file, 'utf8');
  try {
    return {
      policy: readPolicy(source, { defaults }),
      sandbox: readPolicyFile(source, { file: resolve(file), home: homedir(), others: OTHERS }),
    };
  } catch (error) {
    if (error instanceof PolicyError) {
      const { line, column, message, wanted, at } = error;
      const place = `${file}:${line}:${column}`;
      const said = message.replace(/^line \d+, column \d+: /, '').slice(0, -`; ${wanted}`.length);
      throw badInput(
        error.code.toLowerCase(),
        `${place}: ${at === '' ? '' : `${at}: `}${said}`,
        `Right would be: ${wanted}`,
        error,
      );
    }
    if (error instanceof SandboxError) {
      const place = error.line === undefined ? file : `${file}:${error.line}`;
      throw badInput(error.code.toLowerCase(), `${place}: ${error.message}`, error.next, error);
    }
    throw error;
  }
}

async function check(file: string, options: Options): Promise<void> {
  const { policy, sandbox } = read(file, true);
  const own = policy.rules.filter((rule) => !isDefault(rule)).length;
  await print(options.json, { file, digest: policy.digest, rules: policy.rules.length, sandbox }, () => {
    const sections =
      Object.keys(sandbox).length === 0 ? '' : `, a sandbox section (${Object.keys(sandbox).join(', ')})`;
    return `${printable(file)}: ${own} of its own rules and ${policy.rules.length - own} built in${sections}\n${policy.digest}\n`;
  });
}

async function explain(file: string | undefined, options: Options): Promise<void> {
  const defaults = options.defaultPolicy !== false;
  const policy =
    file === undefined ? (defaults ? defaultPolicy() : emptyPolicy()) : read(file, defaults).policy;
  const rules = policy.rules.map((rule) => ({
    ...rule,
    default: isDefault(rule),
    protects: meaningOf(rule),
  }));
  await print(options.json, { digest: policy.digest, rules }, () => {
    const style = styleFor(readConfig());
    if (rules.length === 0) return 'no rules are in force\n';
    const told = rules.map((rule) => {
      const head = `${style.bold(rule.id)} (${rule.rule}${rule.default ? ', built in' : ''})`;
      return [head, ...wrapped(rule.protects), ...scopeOf(rule)].join('\n  ');
    });
    return `${told.join('\n\n')}\n\n${style.dim(policy.digest)}\n`;
  });
}

const isDefault = (rule: Rule): boolean => defaultPolicy().rules.some(({ id }) => id === rule.id);

/** What a rule keeps from happening, and as what it is judged. */
function meaningOf(rule: Rule): string {
  switch (rule.rule) {
    case 'read-only':
      return 'FAIL when anything in these paths is created, changed, deleted or moved; WARN when only its mode or times are.';
    case 'allow-only':
      return 'FAIL when anything outside these paths is created, changed, deleted or moved.';
    case 'no-create':
      return 'FAIL when a file is created in these paths, or moved there.';
    case 'no-delete':
      return 'FAIL when a file of these paths is deleted, moved away, or replaced by something that is no file.';
    case 'no-test-weakening': {
      const lowered = rule.warn.length === 0 ? '' : ` Only a WARN: ${rule.warn.join(', ')}.`;
      return (
        'FAIL when tests say less than before: assertions removed, loosened, turned round, made always true or never reached; other results expected; tests removed, skipped, expected to fail or no longer found; what they test replaced; recorded snapshots changed; runners or CI told to run fewer of them or to let them fail. ' +
        `UNVERIFIED where that can't be told, WARN where fixtures or settings are touched.${lowered}`
      );
    }
    case 'no-secret-write':
      return 'FAIL when a key or token of a known form is written that was not in the file before; WARN when a value only looks like one.';
    case 'no-egress': {
      const allowed =
        rule.allow.length === 0 ? 'the network' : `the network but for ${rule.allow.join(', ')}`;
      return `FAIL when ${allowed} was reached, WARN when it was tried and refused, UNVERIFIED where nobody looked.`;
    }
    case 'suite-before-claim': {
      const suite =
        rule.commands.length === 0
          ? 'a command that runs tests'
          : rule.commands.map((each) => `"${each}"`).join(' or ');
      return `Of a session: FAIL when it is claimed that something is done or tested and ${suite} did not pass before that; WARN when code was written in between.`;
    }
    case 'max-effect': {
      const { files, created, deleted, bytes } = rule;
      const limits = Object.entries({ files, created, deleted, bytes }).flatMap(([name, most]) =>
        most === undefined ? [] : [`${most} ${name}`],
      );
      return `FAIL when more than ${limits.length === 0 ? 'nothing in particular' : limits.join(', ')} are changed at once.`;
    }
  }
}

function scopeOf(rule: Rule): string[] {
  if (!('paths' in rule)) return [];
  return [
    ...wrapped(`paths: ${rule.paths.join('  ')}`),
    ...(rule.except.length === 0 ? [] : wrapped(`except: ${rule.except.join('  ')}`)),
  ];
}

/** Lines of at most 100 characters. */
function wrapped(text: string): string[] {
  const lines: string[] = [];
  for (const word of printable(text).split(' ')) {
    const last = lines.at(-1);
    if (last === undefined || last.length + word.length > 100) lines.push(word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines;
}

export function register(program: Command): void {
  const policy = program.command('policy').description("the operator's policy file");
  policy
    .command('check')
    .description('whether a file can be read as a policy, all of its sections')
    .argument('<file>', 'YAML or JSON')
    .option('--json', 'print one JSON document')
    .addHelpText('after', '\nExit 65: it can not, with the line, the column and what would be right.')
    .action(check);
  policy
    .command('explain')
    .description('the rules in force, and what each of them protects')
    .argument('[file]', 'YAML or JSON; without one, the built-in rules')
    .option('--no-default-policy', 'without the built-in rules')
    .option('--json', 'print one JSON document')
    .action(explain);
}
