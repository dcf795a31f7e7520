/** What the commands of a tenant's administrator have in common. */

import type { Command } from 'commander';
import type { CliConfig } from './config.js';
import { findLogin } from './credentials.js';
import { usage } from './exit.js';
import { connect, type ConnectionOptions, connectionOptions, type Service } from './service.js';

export interface AdminOptions extends ConnectionOptions {
  readonly adminKey?: string;
}

export const adminCommand = (command: Command): Command =>
  connectionOptions(command).option(
    '--admin-key <key>',
    "the tenant's admin key, or @FILE (BELAY_ADMIN_KEY)",
  );

export const projectOption = (command: Command): Command =>
  adminCommand(command).option('--project <id>', 'which project (default: that of the stored credentials)');

export const asAdmin = (config: CliConfig, options: AdminOptions): Promise<Service> =>
  connect(config, options, options.adminKey ?? config.adminKey, {
    option: '--admin-key',
    variable: 'BELAY_ADMIN_KEY',
    from: '`belay tenant create` printed it.',
  });

/** The project a command is about: as given, else the one this machine appends to. */
export async function projectOf(config: CliConfig, given: string | undefined): Promise<string> {
  const project = given ?? (await findLogin(config))?.credential.project;
  if (project === undefined) throw usage('which project? Give --project ID.');
  return encodeURIComponent(project);
}
