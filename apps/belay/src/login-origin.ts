import { readFileSync, statSync } from 'node:fs';
import { parseCredential } from '@belay/contracts/credential';
import type { CliConfig } from './config.js';

/**
 * Origin of the log that the credentials are for, as `findLogin` would find them, for who only fills its spool.
 * Undefined without credentials; throws for ones that can't be used.
 */
export function loginOrigin(config: CliConfig): string | undefined {
  const stored =
    config.url === undefined || config.token === undefined ? readStored(config.credentials) : undefined;
  const url = config.url ?? stored?.url;
  const given = config.token;
  const token =
    given?.startsWith('@') === true ? readFileSync(given.slice(1), 'utf8') : (given ?? stored?.token);
  if (url === undefined || token === undefined) return undefined;
  return parseCredential(token.trim(), 'append').origin;
}

function readStored(path: string): { readonly url?: string; readonly token?: string } | undefined {
  try {
    if ((statSync(path).mode & 0o077) !== 0) return undefined;
    return JSON.parse(readFileSync(path, 'utf8')) as { url?: string; token?: string };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
