/**
 * The certificate chain over log keys: a root that readers pin, an issuer, and one certificate per log whose
 * subject alternative name is the log's origin. Ed25519 throughout.
 */
import 'reflect-metadata';
import { createHash, webcrypto, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { originUri, privateKeyObject, publicKeyObject, rawPublicKey } from '@belay/note';
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  cryptoProvider,
  type Extension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509CertificateGenerator,
} from '@peculiar/x509';
import { KeysError } from './error.js';
import { createFile, loadOrCreateKeyFile, readKeyFile } from './key-file.js';

export { originUri };

cryptoProvider.set(webcrypto as never);

const YEAR = 365.25 * 24 * 3_600 * 1_000;
/** A root outlives every receipt that is kept for a decade; an issuer is renewed long before. */
const ROOT_YEARS = 25;
const ISSUER_YEARS = 20;
/** Authorities are valid from a day before they are made: what they issue begins a little in the past as well. */
const CLOCK_SKEW = 24 * 3_600 * 1_000;

/** When a certificate is valid. Whole seconds: fractions are cut off. */
export interface Validity {
  readonly notBefore: Date;
  readonly notAfter: Date;
}

/** A key that certifies, and its certificate. */
export interface Authority {
  /** DER. */
  readonly certificate: Buffer;
  /** Ed25519 seed of the certified key. */
  readonly seed: Buffer;
}

/** A self-signed root. `name` is its common name. */
export async function createRoot(given: Validity & { name: string; seed: Uint8Array }): Promise<Authority> {
  const { name, seed, notBefore, notAfter } = given;
  const key = publicOf(seed);
  const certificate = await sign({
    subject: name,
    key,
    issuer: name,
    issuerKey: key,
    issuerSeed: seed,
    notBefore,
    notAfter,
    extensions: [new BasicConstraintsExtension(true, 1, true), usage(KeyUsageFlags.keyCertSign)],
  });
  return { certificate, seed: Buffer.from(seed) };
}

/** The authority below a root that certifies logs; it can't certify further authorities. */
export async function createIssuer(
  given: Validity & { root: Authority; name: string; seed: Uint8Array },
): Promise<Authority> {
  const { root, name, seed, notBefore, notAfter } = given;
  const certificate = await sign({
    subject: name,
    key: publicOf(seed),
    ...certifier(root, notBefore, notAfter),
    notBefore,
    notAfter,
    extensions: [new BasicConstraintsExtension(true, 0, true), usage(KeyUsageFlags.keyCertSign)],
  });
  return { certificate, seed: Buffer.from(seed) };
}

/**
 * The certificate of a log's key, as DER: says that `issuer` knows `pub` as the key of the log `origin`, which
 * stands in it as `originUri(origin)`.
 *
 * The same arguments give the same bytes (the serial number is derived from them, Ed25519 is deterministic), so
 * a log's chain, and with it a receipt, can be made again.
 */
export async function issueLogCertificate(
  given: Validity & { issuer: Authority; pub: Uint8Array; origin: string },
): Promise<Buffer> {
  const { issuer, pub, origin, notBefore, notAfter } = given;
  const fingerprint = createHash('sha256').update(pub).digest('hex').slice(0, 16);
  return await sign({
    subject: `log ${fingerprint}`,
    key: pub,
    ...certifier(issuer, notBefore, notAfter),
    notBefore,
    notAfter,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      usage(KeyUsageFlags.digitalSignature),
      new SubjectAlternativeNameExtension([{ type: 'url', value: originUri(origin) }]),
    ],
  });
}

/** PEM of a DER certificate. */
export function toPem(der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/gu) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

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

interface Request extends Validity {
  readonly subject: string;
  readonly key: Uint8Array;
  readonly issuer: string;
  readonly issuerKey: Uint8Array;
  readonly issuerSeed: Uint8Array;
  readonly extensions: readonly Extension[];
}

async function sign(request: Request): Promise<Buffer> {
  const notBefore = wholeSeconds(request.notBefore);
  const notAfter = wholeSeconds(request.notAfter);
  if (!(notBefore < notAfter)) throw new KeysError('certificate', 'a certificate that ends before it begins');
  const publicKey = await importPublic(request.key);
  const issuerKey = await importPublic(request.issuerKey);
  const pkcs8 = privateKeyObject(request.issuerSeed).export({ format: 'der', type: 'pkcs8' });
  const signingKey = await webcrypto.subtle.importKey('pkcs8', pkcs8, 'Ed25519', false, ['sign']);
  const certificate = await X509CertificateGenerator.create({
    serialNumber: serial(request, notBefore, notAfter),
    subject: [{ CN: [request.subject] }],
    issuer: [{ CN: [request.issuer] }],
    notBefore,
    notAfter,
    publicKey,
    signingKey,
    signingAlgorithm: { name: 'Ed25519' },
    extensions: [
      ...request.extensions,
      await SubjectKeyIdentifierExtension.create(publicKey),
      await AuthorityKeyIdentifierExtension.create(issuerKey),
    ],
  });
  return Buffer.from(certificate.rawData);
}

function certifier(
  authority: Authority,
  notBefore: Date,
  notAfter: Date,
): Pick<Request, 'issuer' | 'issuerKey' | 'issuerSeed'> {
  const parsed = new X509Certificate(authority.certificate);
  const key = publicOf(authority.seed);
  if (!rawPublicKey(parsed.publicKey).equals(key)) {
    throw new KeysError('certificate', 'the certificate of an authority is not that of its key');
  }
  // A certificate that outlives its issuer verifies today and not later: refused while there is still time.
  if (wholeSeconds(notBefore) < new Date(parsed.validFrom) || notAfter > new Date(parsed.validTo)) {
    throw new KeysError('certificate', 'a certificate that is valid when its issuer is not');
  }
  const name = /^CN=(.+)$/u.exec(parsed.subject)?.[1];
  if (name === undefined) throw new KeysError('certificate', 'an authority without a common name');
  return { issuer: name, issuerKey: key, issuerSeed: authority.seed };
}

/** 127 bits over all that the certificate says: the same request has the same number, any other another. */
function serial(request: Request, notBefore: Date, notAfter: Date): string {
  const san = request.extensions.map((extension) => Buffer.from(extension.rawData).toString('hex'));
  const text = [
    'belay/certificate/v1',
    request.issuer,
    Buffer.from(request.issuerKey).toString('hex'),
    request.subject,
    Buffer.from(request.key).toString('hex'),
    notBefore.toISOString(),
    notAfter.toISOString(),
    ...san,
  ].join('\n');
  const digest = createHash('sha256').update(text).digest().subarray(0, 16);
  // Positive and of one length: the top bits are 01.
  digest[0] = ((digest[0] as number) & 0x3f) | 0x40;
  return digest.toString('hex');
}

async function importPublic(key: Uint8Array): Promise<webcrypto.CryptoKey> {
  const spki = publicKeyObject(key).export({ format: 'der', type: 'spki' });
  return await webcrypto.subtle.importKey('spki', spki, 'Ed25519', true, ['verify']);
}

function usage(flags: KeyUsageFlags): KeyUsagesExtension {
  return new KeyUsagesExtension(flags, true);
}

function publicOf(seed: Uint8Array): Buffer {
  return rawPublicKey(privateKeyObject(seed));
}

function wholeSeconds(time: Date): Date {
  return new Date(Math.floor(time.getTime() / 1_000) * 1_000);
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
