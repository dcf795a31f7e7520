import { X509Certificate } from 'node:crypto';
import { originUri, rawPublicKey } from '@belay/note';

/**
 * Says what is wrong with a certificate chain over a log's key, or undefined when nothing is: each certificate issued
 * and signed by the next, the last one by itself, all but the first authorities, all valid at `time`, and the first
 * one for this key and no other name than this origin.
 */
export function chainFault(
  x5c: readonly Buffer[],
  log: { readonly origin: string; readonly key: Buffer },
  time: Date,
): string | undefined {
  let chain: X509Certificate[];
  try {
    chain = x5c.map((der) => new X509Certificate(der));
  } catch {
    return 'a certificate of the chain is not one';
  }
  const [leaf] = chain;
  if (leaf === undefined || chain.length < 2) return 'the chain has no log certificate and root';
  // A trailing byte after a certificate would be read over.
  if (chain.some((certificate, i) => !certificate.raw.equals(x5c[i] as Buffer))) {
    return 'a certificate of the chain is followed by other bytes';
  }
  for (const [i, certificate] of chain.entries()) {
    const issuer = chain[i + 1] ?? certificate;
    if (i > 0 && !certificate.ca) return `certificate ${i} is not an authority`;
    if (!certificate.checkIssued(issuer) || !certificate.verify(issuer.publicKey)) {
      return `certificate ${i} was not issued by ${i + 1 < chain.length ? 'the next one' : 'itself: it is not a root'}`;
    }
    if (time < new Date(certificate.validFrom) || time > new Date(certificate.validTo)) {
      return `certificate ${i} was not valid at ${time.toISOString()}`;
    }
  }
  if (leaf.ca) return "the log's certificate is an authority";
  if (leaf.subjectAltName !== `URI:${originUri(log.origin)}`) return 'the certificate names another log';
  let key: Buffer;
  try {
    key = rawPublicKey(leaf.publicKey);
  } catch {
    return 'the certificate is for another kind of key';
  }
  return key.equals(log.key) ? undefined : 'the certificate is for another key';
}
