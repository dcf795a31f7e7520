import { X509Certificate } from 'node:crypto';
import { originUri, rawPublicKey } from '@belay/note';

/** What was looked at once of a chain over a log's key: what is wrong with it, or when each certificate is valid. */
export type ReadChain =
  { readonly fault: string } | { readonly valid: readonly { readonly from: Date; readonly to: Date }[] };

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
  return chainFaultAt(readChain(x5c, log), time);
}

/** What is wrong with a chain at a time. */
export function chainFaultAt(chain: ReadChain, time: Date): string | undefined {
  if ('fault' in chain) return chain.fault;
  const at = chain.valid.findIndex(({ from, to }) => time < from || time > to);
  return at < 0 ? undefined : `certificate ${at} was not valid at ${time.toISOString()}`;
}

/** All of `chainFault` that does not depend on the time. */
export function readChain(
  x5c: readonly Buffer[],
  log: { readonly origin: string; readonly key: Buffer },
): ReadChain {
  let chain: X509Certificate[];
  try {
    chain = x5c.map((der) => new X509Certificate(der));
  } catch {
    return { fault: 'a certificate of the chain is not one' };
  }
  const [leaf] = chain;
  if (leaf === undefined || chain.length < 2) return { fault: 'the chain has no log certificate and root' };
  // A trailing byte after a certificate would be read over.
  if (chain.some((certificate, i) => !certificate.raw.equals(x5c[i] as Buffer))) {
    return { fault: 'a certificate of the chain is followed by other bytes' };
  }
  for (const [i, certificate] of chain.entries()) {
    const issuer = chain[i + 1] ?? certificate;
    if (i > 0 && !certificate.ca) return { fault: `certificate ${i} is not an authority` };
    if (!certificate.checkIssued(issuer) || !certificate.verify(issuer.publicKey)) {
      const by = i + 1 < chain.length ? 'the next one' : 'itself: it is not a root';
      return { fault: `certificate ${i} was not issued by ${by}` };
    }
  }
  if (leaf.ca) return { fault: "the log's certificate is an authority" };
  if (leaf.subjectAltName !== `URI:${originUri(log.origin)}`) {
    return { fault: 'the certificate names another log' };
  }
  let key: Buffer;
  try {
    key = rawPublicKey(leaf.publicKey);
  } catch {
    return { fault: 'the certificate is for another kind of key' };
  }
  if (!key.equals(log.key)) return { fault: 'the certificate is for another key' };
  return {
    valid: chain.map(({ validFrom, validTo }) => ({ from: new Date(validFrom), to: new Date(validTo) })),
  };
}
