/** `belay claim`: what an agent says it has done, on record beside what it did. */

import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { readConfig } from './config.js';
import { badInput, usage } from './exit.js';
import { recordEvent } from './hook.js';
import { sinkName } from './option-values.js';

interface ClaimOptions {
  readonly session?: string;
  readonly sink: string;
  readonly state?: string;
}

async function runClaim(text: string, { session, sink, state }: ClaimOptions): Promise<void> {
  const config = readConfig();
  const id = session ?? config.session;
  if (id === undefined) {
    throw usage('a claim is of a session', 'Set BELAY_SESSION for the proxy and here, or give --session.');
  }
  const statement = text === '-' ? readFileSync(0, 'utf8') : text;
  if (statement.trim() === '') throw badInput('empty', 'a claim says something');
  const event = { hook_event_name: 'Stop', session_id: id, last_assistant_message: statement };
  await recordEvent(
    { ...config, session: id },
    { sink, agent: 'driver', weakIds: false, ...(state === undefined ? {} : { state }) },
    Buffer.from(JSON.stringify(event)),
  );
}

export function register(program: Command): void {
  program
    .command('claim')
    .description('put on record what an agent says it has done')
    .argument('<text>', 'the claim; - reads it from standard input')
    .option('--session <id>', "the agent's own id of its run (BELAY_SESSION)")
    .option('--sink <name>', 'name of the sink', sinkName, 'claim')
    .option('--state <dir>', 'state directory (BELAY_STATE)')
    .action(runClaim);
}
