/** `belay project policy`: which sinks a session has to have, and how long what is missing may be under way. */

import { readFile } from 'node:fs/promises';
import type { PolicySet } from '@belay/contracts/http';
import type { Command } from 'commander';
import { type AdminOptions, adminCommand, asAdmin, projectOf } from './admin-options.js';
import { asAuditor } from './auditor.js';
import { readConfig } from './config.js';
import { badInput } from './exit.js';
import { whole } from './option-values.js';
import { columns, print, printable, styleFor } from './output.js';

interface PolicyOptions extends AdminOptions {
  readonly project?: string;
  readonly auditorKey?: string;
  readonly at?: number;
}

const MAX_POLICY_BYTES = 1024 * 1024;

async function readPolicyFile(file: string): Promise<unknown> {
  const bytes = await (file === '-' ? standardInput() : readFile(file));
  try {
    return JSON.parse(bytes.toString('utf8')) as unknown;
  } catch (error) {
    throw badInput('not_json', `${file} is not JSON: ${(error as Error).message}`, undefined, error);
  }
}

async function standardInput(): Promise<Buffer> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of process.stdin) {
    length += (part as Buffer).length;
    if (length > MAX_POLICY_BYTES) throw badInput('too_large', 'the input is larger than any policy');
    parts.push(part as Buffer);
  }
  return Buffer.concat(parts);
}

async function set(file: string, options: PolicyOptions): Promise<void> {
  const config = readConfig();
  const policy = await readPolicyFile(file);
  const service = await asAdmin(config, options);
  const project = await projectOf(config, options.project);
  const answer = await service.json<PolicySet>('PUT', `/v1/projects/${project}/policy`, policy);
  await print(
    options.json,
    answer,
    () =>
      `${page(answer)}\nEntry ${answer.index} of the log says so. It holds for sessions that begin from now on; what began before keeps\nthe one it began under.\n`,
  );
}

async function get(options: PolicyOptions): Promise<void> {
  const config = readConfig();
  const query = options.at === undefined ? '' : `?at=${options.at}`;
  const admin = options.adminKey ?? (options.auditorKey === undefined ? config.adminKey : undefined);
  let answer: PolicySet;
  if (admin !== undefined) {
    const service = await asAdmin(config, options);
    const project = await projectOf(config, options.project);
    answer = await service.json('GET', `/v1/projects/${project}/policy${query}`);
  } else {
    const { service, path } = await asAuditor(config, options);
    answer = await service.json('GET', `${path}/policy${query}`);
  }
  await print(options.json, answer, () => `${page(answer)}\nSet by entry ${answer.index} of the log.\n`);
}

function page({ policy, digest }: PolicySet): string {
  const style = styleFor(readConfig());
  const { sessions, heartbeat, lateness, closeTimeout, retention, attrs } = policy;
  const names = (list: readonly string[]): string =>
    list.length === 0 ? 'none' : list.map(printable).join(', ');
  const facts: (readonly [string, string])[] = [
    ['digest', digest],
    ['public', policy.public ? 'yes: checkpoints, tiles and proofs are readable by anyone' : 'no'],
    ['heartbeat', heartbeat === 0 ? 'none is expected' : `an open sink is silent after ${heartbeat} s`],
    ['lateness', `lines may be under way for ${lateness} s`],
    ['close', `an epoch without a close counts as gone ${closeTimeout} s after its last line`],
    ['retention', retention === undefined ? 'for ever' : `${retention} days`],
    ['attrs', attrs],
    ...sessions.map(
      ({ kind, opens, required, members }) =>
        [
          printable(kind),
          `opened by ${names(opens)}; required: ${style.bold(names(required))}; ${members === undefined ? 'every declared sink counts' : `counts too: ${names(members)}`}`,
        ] as const,
    ),
    ...(sessions.length === 0
      ? ([['sessions', style.warn('no rule: no sink is required, so no session can be affirmed')]] as const)
      : []),
  ];
  return columns(facts, '  ');
}

export function registerPolicy(project: Command): void {
  const policy = project
    .command('policy')
    .description('which sinks a session has to have, and how long what is missing may be under way');
  adminCommand(policy.command('set'))
    .description('set the whole policy; a member that is absent gets its default')
    .argument('<file>', 'JSON; - for standard input')
    .option('--project <id>', 'which project (default: that of the stored credentials)')
    .addHelpText(
      'after',
      `
    {"sessions": [{"kind": "agent", "opens": ["proxy"], "required": ["proxy", "hook"]}], "lateness": 60}

says that a session which \`proxy\` opened is complete only with every line of \`proxy\` and of \`hook\`. The rules on
files and tests of a workspace are others: belay policy.`,
    )
    .action(set);
  adminCommand(policy.command('get'))
    .description('the policy in force')
    .option('--project <id>', 'which project (default: that of the key or the stored credentials)')
    .option('--auditor-key <key>', 'in place of an admin key: an auditor key, or @FILE (BELAY_AUDITOR_KEY)')
    .option('--at <index>', 'the one in force at this entry of the log', whole)
    .action(get);
}
