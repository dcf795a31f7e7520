import 'reflect-metadata';
import { createHash, webcrypto, X509Certificate } from 'node:crypto';
import { privateKeyObject, publicKeyObject, rawPublicKey } from '@belay/note';
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

cryptoProvider.set(webcrypto as never);

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

/**
 * The URI that names a log in its certificate. A subject alternative name has to be an absolute URI (RFC 5280,
 * section 4.2.1.6) and an origin has no scheme, hence this one.
 */
export function originUri(origin: string): string {
  return `tlog://${origin}`;
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
