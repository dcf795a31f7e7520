import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Credential,
  CredentialError,
  type CredentialErrorCode,
  formatCredential,
  identifier,
  identifierBytes,
  isIdentifier,
  newIdentifier,
  parseCredential,
  redactCredentials,
  secretHash,
} from '@belay/contracts';

const ORIGIN_ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/:-'.split('');
const bytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((b) => Buffer.from(b));
const named = { id: bytes(16), secret: bytes(24) };
const placed = {
  ...named,
  project: bytes(16),
  publicKey: bytes(32),
  origin: fc.string({ unit: fc.constantFrom(...ORIGIN_ALPHABET), minLength: 1, maxLength: 255 }),
};
const credentials: fc.Arbitrary<Credential> = fc.oneof(
  fc.record(named).map((c) => ({ kind: 'operator' as const, secret: c.secret, id: identifier('opr', c.id) })),
  fc.record(named).map((c) => ({ kind: 'admin' as const, secret: c.secret, id: identifier('adm', c.id) })),
  fc.record(placed).map((c) => ({
    ...c,
    kind: 'append' as const,
    id: identifier('tok', c.id),
    project: identifier('prj', c.project),
  })),
  fc.record(placed).map((c) => ({
    ...c,
    kind: 'auditor' as const,
    id: identifier('aud', c.id),
    project: identifier('prj', c.project),
  })),
);

function code(text: string, kind?: 'append'): CredentialErrorCode {
  try {
    if (kind) parseCredential(text, kind);
    else parseCredential(text);
  } catch (error) {
    if (error instanceof CredentialError) return error.code;
    throw error;
  }
  throw new Error('parsed');
}

/** A credential's text around any payload, with a right checksum. */
function sealed(kind: string, payload: Uint8Array): string {
  const prefix = `belay_${kind}_`;
  const sum = createHash('sha256').update(prefix).update(payload).digest().subarray(0, 4);
  return prefix + Buffer.concat([payload, sum]).toString('base64url');
}

describe('credentials', () => {
  it('come back from their text as they were', () => {
    fc.assert(
      fc.property(credentials, (credential) => {
        expect(parseCredential(formatCredential(credential))).toEqual(credential);
      }),
    );
  });

  it('are refused after a change of any one character', () => {
    fc.assert(
      fc.property(credentials, fc.nat(), fc.integer({ min: 1, max: 63 }), (credential, where, by) => {
        const text = formatCredential(credential);
        const start = `belay_${credential.kind}_`.length;
        const at = start + (where % (text.length - start));
        const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
        const other = alphabet.charAt((alphabet.indexOf(text.charAt(at)) + by) % 64);
        expect(() => parseCredential(text.slice(0, at) + other + text.slice(at + 1))).toThrow(
          CredentialError,
        );
      }),
    );
  });

  it('say what is wrong', () => {
    const payload = Buffer.alloc(41, 7);
    payload[0] = 1;
    const good = sealed('admin', payload);
    expect(parseCredential(good).kind).toBe('admin');
    expect(code('')).toBe('prefix');
    expect(code('ghp_abc')).toBe('prefix');
    expect(code(good.replace('admin', 'root'))).toBe('prefix');
    expect(code(good.replace('admin', 'constructor'))).toBe('prefix');
    expect(code(good, 'append')).toBe('prefix');
    expect(code(good.replace('admin', 'operator'))).toBe('checksum');
    expect(code(good.slice(0, -1))).toBe('checksum');
    expect(code('belay_admin_')).toBe('checksum');
    expect(code('belay_admin_A')).toBe('encoding');
    expect(code(`${good}=`)).toBe('prefix');
    expect(code(`${good}${'A'.repeat(600)}`)).toBe('length');
    expect(code(sealed('admin', Buffer.concat([payload, Buffer.alloc(1)])))).toBe('length');
    expect(code(sealed('append', payload))).toBe('length');
    payload[0] = 2;
    expect(code(sealed('admin', payload))).toBe('version');
    const append = Buffer.concat([Buffer.of(1), Buffer.alloc(88), Buffer.from('log local')]);
    expect(code(sealed('append', append))).toBe('encoding');
    expect(code(sealed('append', append.subarray(0, 89)))).toBe('length');
  });

  it('never show in an error or in redacted text', () => {
    fc.assert(
      fc.property(credentials, (credential) => {
        const text = formatCredential(credential);
        const cut = text.slice(0, -2);
        try {
          parseCredential(cut);
        } catch (error) {
          expect((error as Error).message).not.toContain(cut.slice(-8));
        }
        expect(redactCredentials(`{"a":"Bearer ${text}","b":1}`)).toBe(
          `{"a":"Bearer belay_${credential.kind}_[redacted]","b":1}`,
        );
      }),
    );
  });

  it('are the bytes of the page', () => {
    const page = readFileSync(fileURLToPath(new URL('../FORMAT.md', import.meta.url)), 'utf8');
    const id = Buffer.from(Array.from({ length: 16 }, (_, i) => i + 1));
    const secret = Buffer.from(Array.from({ length: 24 }, (_, i) => 0x40 + i));
    const admin: Credential = { kind: 'admin', id: identifier('adm', id), secret };
    const append: Credential = {
      kind: 'append',
      id: identifier('tok', id),
      secret,
      project: identifier('prj', Buffer.from(id).reverse()),
      publicKey: Buffer.alloc(32, 0xee),
      origin: 'belay.local/log_00000000000000000000000000',
    };
    for (const credential of [admin, append]) {
      expect(page).toContain(`\n    ${formatCredential(credential)}\n`);
      expect(page).toContain(credential.id);
    }
    expect(page).toContain(secretHash(secret).toString('hex'));
  });
});

describe('identifiers', () => {
  it('come back from their text, sort by time and have one form', () => {
    fc.assert(
      fc.property(bytes(16), bytes(10), fc.nat(2 ** 31), (ulid, random, time) => {
        const text = identifier('prj', ulid);
        expect(isIdentifier('prj', text)).toBe(true);
        expect(isIdentifier('tok', text)).toBe(false);
        expect(isIdentifier('prj', text.toUpperCase())).toBe(false);
        expect(identifierBytes('prj', text)).toEqual(ulid);
        expect(newIdentifier('log', time, random) < newIdentifier('log', time + 1, random)).toBe(true);
      }),
    );
    expect(() => identifierBytes('prj', `prj_8${'0'.repeat(25)}`)).toThrow(RangeError);
  });
});
