import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { privateKeyObject, rawPublicKey } from '@belay/note';
import { type Authority, createIssuer, createRoot, toPem } from './certificate.js';
import { KeysError } from './error.js';
import { createFile, loadOrCreateKeyFile, readKeyFile } from './key-file.js';

const YEAR = 365.25 * 24 * 3_600 * 1_000;
/** A root outlives every receipt that is kept for a decade; an issuer is renewed long before. */
const ROOT_YEARS = 25;
const ISSUER_YEARS = 20;
/** A certificate made now is used at once, also by a machine whose clock is a little behind. */
const CLOCK_SKEW = 3_600 * 1_000;

/** The authority that certifies logs, and the root that readers pin. */
export interface AuthorityFiles {
  readonly issuer: Authority;
  /** DER of the root's certificate. Its key is not needed once the issuer has its certificate. */
  readonly root: Buffer;
  /** PEM of the root's certificate: what a reader pins. */
  readonly rootPem: string;
  /** When the issuer's certificate ends: the latest end of what it may issue. */
  readonly notAfter: Date;
}

/**
 * Loads the certificate authority kept in `directory`, making what is not there yet: `root.key`, `root.pem`,
 * `issuer.key`, `issuer.pem`, in this order, so that a crash in between is completed by the next call. Keys are
 * of mode 0600, and sealed when a passphrase is given.
 *
 * `root.key` may be moved away (to somewhere offline) once `issuer.pem` is there.
 */
export async function loadOrCreateAuthority(
  directory: string,
  given: { readonly name: string; readonly now: Date; readonly passphrase?: string | undefined },
): Promise<AuthorityFiles> {
  const { name, now, passphrase } = given;
  const file = (base: string): string => join(directory, base);
  const rootKey = { purpose: 'x509-root', passphrase, now };
  const issuerKey = { purpose: 'x509-issuer', passphrase, now };
  const notBefore = new Date(now.getTime() - CLOCK_SKEW);
  const after = (years: number): Date => new Date(now.getTime() + years * YEAR);

  let root = await readCertificate(file('root.pem'));
  let issuer = await readCertificate(file('issuer.pem'));
  if (issuer !== undefined && root === undefined) {
    throw new KeysError('missing', `${file('root.pem')} is not there, but the issuer that it certified is`);
  }
  if (root === undefined) {
    const { seed } = await loadOrCreateKeyFile(file('root.key'), rootKey);
    const made = await createRoot({ name: `${name} root`, seed, notBefore, notAfter: after(ROOT_YEARS) });
    root = await keepCertificate(file('root.pem'), made.certificate);
  }
  if (issuer === undefined) {
    const rootSeed = await readKeyFile(file('root.key'), rootKey);
    const { seed } = await loadOrCreateKeyFile(file('issuer.key'), issuerKey);
    const made = await createIssuer({
      root: { certificate: root, seed: rootSeed },
      name: `${name} issuer`,
      seed,
      notBefore: new Date(Math.max(notBefore.getTime(), Date.parse(new X509Certificate(root).validFrom))),
      notAfter: after(ISSUER_YEARS),
    });
    issuer = await keepCertificate(file('issuer.pem'), made.certificate);
  }

  const seed = await readKeyFile(file('issuer.key'), issuerKey);
  const parsed = new X509Certificate(issuer);
  const above = new X509Certificate(root);
  if (!rawPublicKey(parsed.publicKey).equals(rawPublicKey(privateKeyObject(seed)))) {
    throw new KeysError(
      'certificate',
      `${file('issuer.pem')} is not the certificate of ${file('issuer.key')}`,
    );
  }
  if (!parsed.checkIssued(above) || !parsed.verify(above.publicKey)) {
    throw new KeysError('certificate', `${file('issuer.pem')} was not issued by ${file('root.pem')}`);
  }
  if (now > new Date(parsed.validTo)) throw new KeysError('certificate', `${file('issuer.pem')} has run out`);
  return {
    issuer: { certificate: issuer, seed },
    root,
    rootPem: toPem(root),
    notAfter: new Date(parsed.validTo),
  };
}

async function readCertificate(path: string): Promise<Buffer | undefined> {
  let pem: Buffer;
  try {
    pem = await readFile(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    return new X509Certificate(pem).raw;
  } catch {
    throw new KeysError('malformed', `${path} is not a certificate`);
  }
}

/** Keeps what was made, or what another process made first. */
async function keepCertificate(path: string, der: Buffer): Promise<Buffer> {
  try {
    await createFile(path, toPem(der), 0o644);
    return der;
  } catch (error) {
    if (!(error instanceof KeysError) || error.code !== 'exists') throw error;
    return (await readCertificate(path)) as Buffer;
  }
}
