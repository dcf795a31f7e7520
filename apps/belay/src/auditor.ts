/** Commands of whoever holds an auditor key: which project it reads, and the log's key that it pins. */

import { type AuditorCredential, CredentialError, parseCredential } from '@belay/contracts';
import type { Command } from 'commander';
import type { CliConfig } from './config.js';
import { readSecretOption, vkeyOf } from './credentials.js';
import { badInput, usage } from './exit.js';
import { connect, type ConnectionOptions, connectionOptions, type Service } from './service.js';

export interface AuditorOptions extends ConnectionOptions {
  readonly project?: string;
  readonly auditorKey?: string;
}

export const auditorOptions = (command: Command): Command =>
  connectionOptions(command)
    .option('--project <id>', 'which project (default: that of the auditor key)')
    .option('--auditor-key <key>', 'auditor key, or @FILE (BELAY_AUDITOR_KEY)');

/** A project as an auditor asks for it. */
export interface Audited {
  readonly service: Service;
  /** `/v1/projects/ID`. */
  readonly path: string;
  /** C2SP verifier key of the log, as the auditor key pins it. */
  readonly vkey: string;
}

/** Throws CliError where there is no auditor key, or none that can be read. */
export async function asAuditor(config: CliConfig, options: AuditorOptions): Promise<Audited> {
  const given = options.auditorKey ?? config.auditorKey;
  if (given === undefined)
    throw usage(
      'needs a key: --auditor-key KEY, or BELAY_AUDITOR_KEY in the environment',
      'Who has the admin key makes one: belay auditor issue',
    );
  const key = await readSecretOption(given);
  let auditor: AuditorCredential;
  try {
    auditor = parseCredential(key, 'auditor');
  } catch (error) {
    if (!(error instanceof CredentialError)) throw error;
    throw badInput('credential', `the auditor key: ${error.message}`, 'Paste the key again, whole.', error);
  }
  return {
    service: await connect(config, options, key),
    path: `/v1/projects/${encodeURIComponent(options.project ?? auditor.project)}`,
    vkey: vkeyOf(auditor),
  };
}
