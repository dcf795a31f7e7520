import { createHash } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { deriveLogSeed, loadOrCreateKeyFile, privateKeyObject, rawPublicKey } from '@belay/keys';
import { type AuthorityFiles, issueLogCertificate, loadOrCreateAuthority } from '@belay/keys/x509';
import type { LogKeys } from '@belay/log';
import { ackName, ed25519Signer, type NoteSigner } from '@belay/note';

const YEAR = 365.25 * 24 * 3_600 * 1_000;
const LOG_YEARS = 15;
const CLOCK_SKEW = 3_600 * 1_000;

/** This collector's master seed doesn't lead to the key that the log was created with. */
export class WrongLogKey extends Error {
  constructor(origin: string, directory: string) {
    super(
      `${origin}: its key is not derived from the master seed in ${directory}. ` +
        'Bring back the key directory this database was used with; a new seed can not sign for old logs',
    );
    this.name = 'WrongLogKey';
  }
}

/**
 * All keys of a deployment in one directory (0700): `log.key`, the master seed every log's key is derived from, and
 * the certificate authority. Only the collector opens it.
 */
export class Keyring implements LogKeys {
  readonly #directory: string;
  readonly #seed: Buffer;
  readonly #authority: AuthorityFiles;
  /** PEM of the root certificate: what readers pin. */
  readonly rootPem: string;

  private constructor(directory: string, seed: Buffer, authority: AuthorityFiles) {
    this.#directory = directory;
    this.#seed = seed;
    this.#authority = authority;
    this.rootPem = authority.rootPem;
  }

  /** Opens or makes the keys; sealed with the passphrase when one is given. */
  static async open(
    directory: string,
    given: { readonly now: Date; readonly passphrase?: string | undefined },
  ): Promise<Keyring> {
    const { now, passphrase } = given;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { seed } = await loadOrCreateKeyFile(join(directory, 'log.key'), {
      purpose: 'log-master',
      passphrase,
      now,
    });
    const authority = await loadOrCreateAuthority(directory, { name: 'Belay', passphrase, now });
    return new Keyring(directory, seed, authority);
  }

  /** What tells this master seed from another one and says nothing of it: no log's origin is without a slash. */
  get identity(): Buffer {
    const key = rawPublicKey(privateKeyObject(deriveLogSeed(this.#seed, 'deployment')));
    return createHash('sha256').update(key).digest();
  }

  async create(origin: string, now: Date): Promise<{ publicKey: Buffer; x5c: Buffer[] }> {
    const publicKey = rawPublicKey(privateKeyObject(deriveLogSeed(this.#seed, origin)));
    const { issuer, root } = this.#authority;
    const end = Math.min(now.getTime() + LOG_YEARS * YEAR, this.#authority.notAfter.getTime());
    const certificate = await issueLogCertificate({
      issuer,
      pub: publicKey,
      origin,
      notBefore: new Date(now.getTime() - CLOCK_SKEW),
      notAfter: new Date(end),
    });
    return { publicKey, x5c: [certificate, issuer.certificate, root] };
  }

  signers(origin: string, publicKey: Buffer): { checkpoint: NoteSigner; ack: NoteSigner } {
    const seed = this.#seedOf(origin, publicKey);
    return { checkpoint: ed25519Signer(origin, seed), ack: ed25519Signer(ackName(origin), seed) };
  }

  /**
   * Signs receipts and manifests of exports as the log's origin. For statements that this process built itself from the
   * database, or has checked as `Issuing` does.
   */
  receiptSigner(origin: string, publicKey: Buffer): NoteSigner {
    return ed25519Signer(origin, this.#seedOf(origin, publicKey));
  }

  #seedOf(origin: string, publicKey: Buffer): Buffer {
    const seed = deriveLogSeed(this.#seed, origin);
    if (!rawPublicKey(privateKeyObject(seed)).equals(publicKey))
      throw new WrongLogKey(origin, this.#directory);
    return seed;
  }
}
