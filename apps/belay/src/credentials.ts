/**
 * What this user's machine holds to send: one file of mode 0600 with the service's address and an append token, and
 * the sinks' signing keys under the state directory. An auditor or admin key is never stored: whoever steals what
 * lies here can append to one project and read nothing.
 */

import { mkdir, open, readFile, rename, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { sinkDir } from '@belay/client';
import { type AppendCredential, CredentialError, parseCredential } from '@belay/contracts';
import { loadOrCreateKeyFile } from '@belay/keys';
import { formatVkey } from '@belay/note';
import type { CliConfig } from './config.js';
import { badInput } from './exit.js';

const MAX_FILE = 16_384;

/** The credentials file, `{"v": 1, "url": ..., "token": ...}`; everything else follows from the token's text. */
export interface StoredCredentials {
  readonly url: string;
  readonly token: string;
}

/** What an append needs, wherever it came from. */
export interface Login extends StoredCredentials {
  readonly credential: AppendCredential;
  /** Verifier key of the log, from the token. */
  readonly vkey: string;
}

function parseStored(path: string, text: string): StoredCredentials {
  const next = `Write it anew with \`belay login\`, or delete ${path}.`;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw badInput('credentials', `${path} is not JSON`, next, error);
  }
  const { v, url, token } = (value ?? {}) as Record<string, unknown>;
  if (v !== 1 || typeof url !== 'string' || typeof token !== 'string') {
    throw badInput('credentials', `${path} is not a credentials file of version 1`, next);
  }
  return { url, token };
}

/** The stored file, or undefined when there is none. Refuses one that others can read. */
export async function readCredentials(path: string): Promise<StoredCredentials | undefined> {
  let handle;
  try {
    handle = await open(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const { mode, size } = await handle.stat();
    if ((mode & 0o077) !== 0) {
      throw badInput('permissions', `${path} can be read by others`, `chmod 600 ${path}`);
    }
    if (size > MAX_FILE) throw badInput('credentials', `${path} is too big for a credentials file`);
    return parseStored(path, await handle.readFile('utf8'));
  } finally {
    await handle.close();
  }
}

/** Replaces the file whole: a crash leaves the old one or the new one. */
export async function writeCredentials(path: string, { url, token }: StoredCredentials): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const fresh = `${path}.${process.pid}.new`;
  const handle = await open(fresh, 'wx', 0o600);
  try {
    await handle.writeFile(`${JSON.stringify({ v: 1, url, token }, null, 2)}\n`);
    await handle.sync();
    await handle.close();
    await rename(fresh, path);
  } catch (error) {
    await handle.close().catch(() => undefined);
    await unlink(fresh).catch(() => undefined);
    throw error;
  }
}

/** Reads an append token's text, or says what is wrong with it in words of the CLI. */
export function appendCredential(token: string, from: string): AppendCredential {
  try {
    return parseCredential(token, 'append');
  } catch (error) {
    if (!(error instanceof CredentialError)) throw error;
    throw badInput('credential', `${from}: ${error.message}`, 'Paste the token again, whole.', error);
  }
}

/**
 * Options and environment first, then the file. Undefined when nothing names a service and a token: then one just
 * records. A token may be `@FILE` here as everywhere.
 */
export async function findLogin(config: CliConfig): Promise<Login | undefined> {
  const stored =
    config.url === undefined || config.token === undefined
      ? await readCredentials(config.credentials)
      : undefined;
  const url = config.url ?? stored?.url;
  const token = config.token === undefined ? stored?.token : await readSecretOption(config.token);
  if (url === undefined || token === undefined) return undefined;
  const credential = appendCredential(
    token,
    config.token === undefined ? config.credentials : 'the token given',
  );
  return { url, token, credential, vkey: vkeyOf(credential) };
}

/** C2SP verifier key of the log that a credential belongs to. */
export function vkeyOf(credential: { readonly origin: string; readonly publicKey: Buffer }): string {
  return formatVkey(credential.origin, credential.publicKey);
}

/** Key file of a sink, beside its spool: one per (log, sink), since that is what an administrator declares a key for. */
export function sinkKeyPath(state: string, origin: string, sink: string): string {
  return join(sinkDir(state, origin, sink), 'key.json');
}

/** The sink's 32-byte Ed25519 seed, made on first use. Folders on the way are created 0700. */
export async function loadOrCreateSinkKey(
  state: string,
  origin: string,
  sink: string,
): Promise<{ readonly seed: Buffer; readonly created: boolean }> {
  const path = sinkKeyPath(state, origin, sink);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  return await loadOrCreateKeyFile(path, { purpose: 'sink', now: new Date() });
}

/** A credential given as an option: its text, or `@FILE` to keep it off the command line and out of its history. */
export async function readSecretOption(value: string): Promise<string> {
  if (!value.startsWith('@')) return value.trim();
  return (await readFile(value.slice(1), 'utf8')).trim();
}
