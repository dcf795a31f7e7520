import { createHash } from 'node:crypto';
import { CoverageError, policyDigest, readPolicy } from '@belay/coverage';
import { canonical, type Entry, type LogGenesis, type PolicyReference } from '@belay/envelope';
import type { ExportManifest } from './manifest.js';

interface Token {
  readonly token: string;
  readonly role: string;
  readonly issuedBy: string;
  readonly index: number;
  readonly sinks?: readonly string[] | undefined;
  readonly domain?: string | undefined;
  readonly expires?: string | undefined;
  revoked?: number;
}

interface Auditor {
  readonly auditor: string;
  readonly issuedBy: string;
  readonly index: number;
  revoked?: number;
}

/** What the collector's entries say of keys, tokens and policies: `keys.json`, FORMAT.md section 7. */
export class KeysFile {
  #genesis: LogGenesis | undefined;
  readonly #sinks: object[] = [];
  readonly #tokens: Token[] = [];
  readonly #auditors: Auditor[] = [];
  readonly #policies: { readonly index: number; readonly digest: string }[] = [];

  /** Takes in the next of the collector's entries. */
  apply({ line: { index }, statement }: Extract<Entry, { readonly by: 'collector' }>): void {
    switch (statement.kind) {
      case 'log.genesis':
        this.#genesis = statement;
        this.#policy(index, statement.policy);
        break;
      case 'policy.set':
        this.#policy(index, statement.policy);
        break;
      case 'sink.declared': {
        const { sink, required = false, sinkKind: kind, domain, key, fingerprint, heartbeat } = statement;
        this.#sinks.push({ index, sink, required, kind, domain, key, fingerprint, heartbeat });
        break;
      }
      case 'token.issued': {
        const { token, role, by: issuedBy, sinks, domain, expires } = statement;
        this.#tokens.push({ token, role, issuedBy, index, sinks, domain, expires });
        break;
      }
      case 'token.revoked': {
        for (const each of this.#tokens) if (each.token === statement.token) each.revoked ??= index;
        break;
      }
      case 'auditor.issued': {
        const { auditor, by: issuedBy } = statement;
        this.#auditors.push({ auditor, issuedBy, index });
        break;
      }
      case 'auditor.revoked': {
        for (const each of this.#auditors) if (each.auditor === statement.auditor) each.revoked ??= index;
        break;
      }
      default:
    }
  }

  /** Tokens in the order in which they were issued. */
  get tokens(): readonly Omit<Token, 'revoked'>[] {
    return this.#tokens;
  }

  bytes({ origin, vkey, x5c }: ExportManifest['log']): Buffer {
    return Buffer.from(
      canonical({
        v: 1,
        log: { origin, vkey, ackKey: this.#genesis?.ackKey },
        certificates: x5c.map(certificateDigest),
        sinks: this.#sinks,
        tokens: this.#tokens,
        auditors: this.#auditors,
        policies: this.#policies,
      }),
    );
  }

  #policy(index: number, policy: PolicyReference): void {
    if (typeof policy === 'string') {
      this.#policies.push({ index, digest: policy });
      return;
    }
    try {
      this.#policies.push({ index, digest: policyDigest(readPolicy(policy)) });
    } catch (error) {
      if (!(error instanceof CoverageError)) throw error;
    }
  }
}

/** `sha256:` digest of a certificate in DER. */
export function certificateDigest(der: Buffer): string {
  return `sha256:${createHash('sha256').update(der).digest('hex')}`;
}

/** `chain.pem`. */
export function chainFile(x5c: readonly Buffer[]): Buffer {
  const pem = x5c.map((der) => {
    const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
    return `-----BEGIN CERTIFICATE-----\n${lines.map((line) => `${line}\n`).join('')}-----END CERTIFICATE-----\n`;
  });
  return Buffer.from(pem.join(''));
}
