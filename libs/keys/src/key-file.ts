import { createCipheriv, createDecipheriv, randomBytes, scrypt } from 'node:crypto';
import { link, open, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { SEED_BYTES } from './derive.js';
import { KeysError } from './error.js';

/**
 * A key file is one JSON object:
 *
 *     {"format": "belay/key/v1", "purpose": "log-master", "keys": [{"created": "...", "seed": "<base64>"}]}
 *
 * or, sealed with a passphrase, `{"created": "...", "sealed": {"kdf": "scrypt", "n", "r", "p", "salt",
 * "cipher": "aes-256-gcm", "nonce", "box"}}` in place of the seed, where box is ciphertext ‖ tag and the purpose
 * and time are authenticated with it. `keys` is a list so that a rotation can keep the old key beside the new;
 * this version writes one and refuses more.
 */
const FORMAT = 'belay/key/v1';
const MAX_FILE = 16_384;

/** scrypt at 32 MiB and about 100 ms: interactive use, once per start. */
const SCRYPT = Object.freeze({ n: 32_768, r: 8, p: 1 });
/** Bounds on what a file may ask of us: 256 MiB. */
const MAX_SCRYPT = Object.freeze({ n: 131_072, r: 16, p: 4 });

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const derive = promisify<string, Buffer, number, { N: number; r: number; p: number; maxmem: number }, Buffer>(
  scrypt,
);

/** What a key file is about. A file of one purpose is never read as another. */
export interface KeyFileOptions {
  /** Such as `log-master`. */
  readonly purpose: string;
  /** Seals the file, and is needed to open a sealed one. */
  readonly passphrase?: string | undefined;
}

/**
 * Writes a seed to a new file of mode 0600. Refuses to touch a file that is there: a lost log key can't be made
 * again. The file appears complete and durable or not at all.
 */
export async function createKeyFile(
  path: string,
  seed: Uint8Array,
  options: KeyFileOptions & { readonly now: Date },
): Promise<void> {
  if (seed.length !== SEED_BYTES) throw new KeysError('malformed', `a seed has ${SEED_BYTES} bytes`);
  const created = options.now.toISOString();
  const key =
    options.passphrase === undefined
      ? { created, seed: Buffer.from(seed).toString('base64') }
      : { created, sealed: await seal(seed, options.passphrase, bound(options.purpose, created)) };
  const text = `${JSON.stringify({ format: FORMAT, purpose: options.purpose, keys: [key] })}\n`;
  await createFile(path, text, 0o600);
}

/** Reads the seed of a key file. Refuses one that others than its owner can read. */
export async function readKeyFile(path: string, options: KeyFileOptions): Promise<Buffer> {
  const text = await readPrivate(path);
  const file = parse(path, text, options.purpose);
  if (file.sealed === undefined) {
    if (options.passphrase !== undefined) {
      throw new KeysError('passphrase', `${path} is not sealed, although a passphrase is given for it`);
    }
    return file.seed as Buffer;
  }
  if (options.passphrase === undefined)
    throw new KeysError('passphrase', `${path} is sealed: a passphrase is needed`);
  return await unseal(path, file.sealed, options.passphrase, bound(options.purpose, file.created));
}

/**
 * Reads the seed of a key file, or makes a random one when there is no file. Two processes that start at once
 * end with the same seed: the second finds the first's file.
 */
export async function loadOrCreateKeyFile(
  path: string,
  options: KeyFileOptions & { readonly now: Date },
): Promise<{ readonly seed: Buffer; readonly created: boolean }> {
  try {
    return { seed: await readKeyFile(path, options), created: false };
  } catch (error) {
    if (!(error instanceof KeysError) || error.code !== 'missing') throw error;
  }
  try {
    await createKeyFile(path, randomBytes(SEED_BYTES), options);
    return { seed: await readKeyFile(path, options), created: true };
  } catch (error) {
    if (!(error instanceof KeysError) || error.code !== 'exists') throw error;
    return { seed: await readKeyFile(path, options), created: false };
  }
}

/** Makes a file that is complete and durable once it has its name; `exists` when the name is taken. */
export async function createFile(path: string, content: string, mode: number): Promise<void> {
  const temporary = `${path}.${randomBytes(6).toString('hex')}.new`;
  const handle = await open(temporary, 'wx', mode);
  try {
    try {
      // Not `mode` alone: the umask may have taken bits away, and must not add any.
      await handle.chmod(mode);
      await handle.writeFile(content);
      await handle.sync();
    } finally {
      await handle.close();
    }
    // Unlike a rename, a link fails when the name is taken.
    await link(temporary, path).catch((error: NodeJS.ErrnoException) => {
      throw error.code === 'EEXIST' ? new KeysError('exists', `${path} exists`) : error;
    });
  } finally {
    await unlink(temporary);
  }
  const directory = await open(dirname(path), 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

async function readPrivate(path: string): Promise<string> {
  const handle = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'ENOENT' ? new KeysError('missing', `${path} is not there`) : error;
  });
  try {
    const stat = await handle.stat();
    if (!stat.isFile() || stat.size > MAX_FILE) throw new KeysError('malformed', `${path} is not a key file`);
    if ((stat.mode & 0o077) !== 0) {
      throw new KeysError('permissions', `${path} can be read by others than its owner: chmod 600 it`);
    }
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

interface Sealed {
  readonly n: number;
  readonly r: number;
  readonly p: number;
  readonly salt: Buffer;
  readonly nonce: Buffer;
  readonly box: Buffer;
}

function parse(
  path: string,
  text: string,
  purpose: string,
): { created: string; seed?: Buffer; sealed?: Sealed } {
  const malformed = (why: string): KeysError => new KeysError('malformed', `${path}: ${why}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw malformed('not JSON');
  }
  const file = record(value);
  if (file['format'] !== FORMAT) throw malformed(`not of the format ${FORMAT}`);
  if (file['purpose'] !== purpose) throw malformed(`not a key for ${purpose}`);
  const keys = file['keys'];
  if (!Array.isArray(keys) || keys.length !== 1) throw malformed('not exactly one key');
  const key = record(keys[0]);
  const created = key['created'];
  if (typeof created !== 'string') throw malformed('a key without a time');
  if (key['sealed'] === undefined) return { created, seed: bytes(key['seed'], SEED_BYTES) };
  const sealed = record(key['sealed']);
  if (sealed['kdf'] !== 'scrypt' || sealed['cipher'] !== 'aes-256-gcm') throw malformed('an unknown seal');
  const within = (member: 'n' | 'r' | 'p'): number => {
    const cost = sealed[member];
    if (typeof cost !== 'number' || !Number.isInteger(cost) || cost < 1 || cost > MAX_SCRYPT[member]) {
      throw malformed(`${member} of scrypt is out of range`);
    }
    return cost;
  };
  return {
    created,
    sealed: {
      n: within('n'),
      r: within('r'),
      p: within('p'),
      salt: bytes(sealed['salt'], 32),
      nonce: bytes(sealed['nonce'], NONCE_BYTES),
      box: bytes(sealed['box'], SEED_BYTES + TAG_BYTES),
    },
  };

  function bytes(text: unknown, length: number): Buffer {
    const decoded = Buffer.from(typeof text === 'string' ? text : '', 'base64');
    if (decoded.length !== length || decoded.toString('base64') !== text) throw malformed('a damaged key');
    return decoded;
  }

  function record(thing: unknown): Record<string, unknown> {
    if (typeof thing !== 'object' || thing === null || Array.isArray(thing))
      throw malformed('not a key file');
    return thing as Record<string, unknown>;
  }
}

async function seal(seed: Uint8Array, passphrase: string, aad: Buffer): Promise<Record<string, unknown>> {
  if (passphrase === '') throw new KeysError('passphrase', 'an empty passphrase seals nothing');
  const salt = randomBytes(32);
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv('aes-256-gcm', await stretch(passphrase, { ...SCRYPT, salt }), nonce);
  cipher.setAAD(aad);
  const box = Buffer.concat([cipher.update(seed), cipher.final(), cipher.getAuthTag()]);
  return {
    kdf: 'scrypt',
    ...SCRYPT,
    salt: salt.toString('base64'),
    cipher: 'aes-256-gcm',
    nonce: nonce.toString('base64'),
    box: box.toString('base64'),
  };
}

async function unseal(path: string, sealed: Sealed, passphrase: string, aad: Buffer): Promise<Buffer> {
  const decipher = createDecipheriv('aes-256-gcm', await stretch(passphrase, sealed), sealed.nonce, {
    authTagLength: TAG_BYTES,
  });
  decipher.setAAD(aad);
  decipher.setAuthTag(sealed.box.subarray(SEED_BYTES));
  try {
    return Buffer.concat([decipher.update(sealed.box.subarray(0, SEED_BYTES)), decipher.final()]);
  } catch {
    throw new KeysError(
      'passphrase',
      `${path} does not open: the passphrase is wrong or the file was changed`,
    );
  }
}

async function stretch(passphrase: string, cost: Omit<Sealed, 'nonce' | 'box'>): Promise<Buffer> {
  const { n, r, p, salt } = cost;
  // NFC, so that one passphrase typed on two systems is one passphrase.
  return await derive(passphrase.normalize('NFC'), salt, 32, { N: n, r, p, maxmem: 2 * 128 * n * r });
}

/** Purpose and time are readable in the file; binding them makes a swapped or back-dated file fail to open. */
function bound(purpose: string, created: string): Buffer {
  return Buffer.from(`${FORMAT}\n${purpose}\n${created}\n`);
}
