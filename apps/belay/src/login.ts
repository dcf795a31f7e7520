/** `belay login`: an append token and the address of its service, kept for this user. */

import { text } from 'node:stream/consumers';
import type { Command } from 'commander';
import { readConfig } from './config.js';
import {
  appendCredential,
  readCredentials,
  readSecretOption,
  vkeyOf,
  writeCredentials,
} from './credentials.js';
import { badInput, usage } from './exit.js';
import { columns, print } from './output.js';
import { serviceUrl } from './service.js';

const DEFAULT_URL = 'http://127.0.0.1:8420';

interface LoginOptions {
  readonly url?: string;
  readonly token?: string;
  readonly replace?: boolean;
  readonly json?: boolean;
}

async function login(options: LoginOptions): Promise<void> {
  const config = readConfig();
  const stored = await readCredentials(config.credentials);
  const given =
    options.token ?? config.token ?? (process.stdin.isTTY ? undefined : await text(process.stdin));
  if (given === undefined) {
    throw usage('which token? Give --token TOKEN, --token @FILE, BELAY_TOKEN, or pipe it to standard input');
  }
  const token = (await readSecretOption(given)).trim();
  const credential = appendCredential(token, 'the token');
  const url = serviceUrl(options.url ?? config.url ?? stored?.url ?? DEFAULT_URL);
  if (stored !== undefined && !options.replace && (stored.token !== token || stored.url !== url)) {
    throw badInput(
      'exists',
      `${config.credentials} already holds credentials`,
      '--replace writes over them.',
    );
  }
  await writeCredentials(config.credentials, { url, token });
  const { id, origin, project } = credential;
  const vkey = vkeyOf(credential);
  await print(options.json, { credentials: config.credentials, url, token: id, project, origin, vkey }, () =>
    columns([
      ['stored in', config.credentials],
      ['service', url],
      ['token', id],
      ['project', project],
      ['log', origin],
      ['vkey', vkey],
    ]),
  );
}

export function register(program: Command): void {
  program
    .command('login')
    .description('store an append token and the address of its service')
    .option('--url <url>', `address of the service (BELAY_URL, then what is stored, then ${DEFAULT_URL})`)
    .option('--token <token>', 'the append token, or @FILE; else BELAY_TOKEN, else standard input')
    .option('--replace', 'replace the stored credentials')
    .option('--json', 'print one JSON document')
    .action(login);
}
