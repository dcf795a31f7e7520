import { spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deriveLogSeed, KeysError, privateKeyObject, rawPublicKey } from '@belay/keys';
import {
  type AuthorityFiles,
  createIssuer,
  createRoot,
  issueLogCertificate,
  loadOrCreateAuthority,
  originUri,
  toPem,
} from '@belay/keys/x509';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const now = new Date('2026-03-01T12:00:00.123Z');
const later = new Date('2036-01-01T00:00:00Z');
const origin = 'belay.example:8420/acme/agents_1';
const pub = rawPublicKey(privateKeyObject(deriveLogSeed(Buffer.alloc(32, 1), origin)));
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'belay-x509-'));
});

afterEach(async () => {
  await rm(directory, { recursive: true });
});

async function code(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof KeysError) return error.code;
    throw error;
  }
  return 'accepted';
}

const load = async (given: { passphrase?: string; now?: Date } = {}): Promise<AuthorityFiles> =>
  await loadOrCreateAuthority(directory, { name: 'Belay test', now, ...given });

/** What OpenSSL, which shares no code with the library that writes the certificates, says of a chain. */
async function openssl(root: Buffer, issuer: Buffer, leaf: Buffer, at: Date): Promise<string> {
  const files = { root, issuer, leaf };
  for (const [name, der] of Object.entries(files))
    await writeFile(join(directory, `${name}.crt`), toPem(der));
  const { stdout, stderr, error } = spawnSync(
    'openssl',
    [
      'verify',
      '-x509_strict',
      '-check_ss_sig',
      '-attime',
      String(Math.floor(at.getTime() / 1_000)),
      '-CAfile',
      'root.crt',
      '-untrusted',
      'issuer.crt',
      'leaf.crt',
    ],
    { cwd: directory, encoding: 'utf8', timeout: 20_000 },
  );
  if (error) throw error;
  return stdout + stderr;
}

describe('the chain', () => {
  test('is accepted by openssl verify, strictly, and names the log', async () => {
    const { issuer, root } = await load();
    const leaf = await issueLogCertificate({ issuer, pub, origin, notBefore: now, notAfter: later });
    expect(await openssl(root, issuer.certificate, leaf, now)).toBe('leaf.crt: OK\n');
    const parsed = new X509Certificate(leaf);
    expect(parsed.subjectAltName).toBe(`URI:tlog://${origin}`);
    expect(originUri(origin)).toBe(`tlog://${origin}`);
    expect(rawPublicKey(parsed.publicKey)).toEqual(pub);
    expect(parsed.ca).toBe(false);
    expect(parsed.verify(new X509Certificate(issuer.certificate).publicKey)).toBe(true);
    expect(new Date(parsed.validFrom)).toEqual(new Date('2026-03-01T12:00:00Z'));
    expect(new Date(parsed.validTo)).toEqual(later);
  });

  test('is refused by openssl outside its time, under another root, or with a byte changed', async () => {
    const { issuer, root } = await load();
    const leaf = await issueLogCertificate({ issuer, pub, origin, notBefore: now, notAfter: later });
    const other = await createRoot({
      name: 'Belay test root',
      seed: Buffer.alloc(32, 9),
      notBefore: now,
      notAfter: later,
    });
    const after = new Date('2037-01-01T00:00:00Z');
    expect(await openssl(root, issuer.certificate, leaf, after)).toContain('expired');
    expect(await openssl(root, issuer.certificate, leaf, new Date(0))).toContain('not yet valid');
    expect(await openssl(other.certificate, issuer.certificate, leaf, now)).not.toContain('OK');
    const changed = Buffer.from(leaf);
    const at = changed.indexOf('acme');
    changed[at] = (changed[at] as number) ^ 1;
    expect(await openssl(root, issuer.certificate, changed, now)).not.toContain('OK');
  });

  test('a log certificate does not certify: openssl refuses what it signs', async () => {
    const { issuer, root } = await load();
    const seed = deriveLogSeed(Buffer.alloc(32, 1), origin);
    const leaf = await issueLogCertificate({ issuer, pub, origin, notBefore: now, notAfter: later });
    const forged = await issueLogCertificate({
      issuer: { certificate: leaf, seed },
      pub: Buffer.alloc(32, 3),
      origin: 'victim.example',
      notBefore: now,
      notAfter: later,
    });
    await writeFile(join(directory, 'both.pem'), toPem(issuer.certificate) + toPem(leaf));
    await writeFile(join(directory, 'root.crt'), toPem(root));
    await writeFile(join(directory, 'forged.crt'), toPem(forged));
    const { stdout, stderr } = spawnSync(
      'openssl',
      ['verify', '-attime', '1780000000', '-CAfile', 'root.crt', '-untrusted', 'both.pem', 'forged.crt'],
      { cwd: directory, encoding: 'utf8', timeout: 20_000 },
    );
    expect(stdout + stderr).toMatch(/invalid CA certificate/u);
  });

  test('the same request is the same certificate, any other is another', async () => {
    const { issuer } = await load();
    const request = { issuer, pub, origin, notBefore: now, notAfter: later };
    const first = await issueLogCertificate(request);
    expect(await issueLogCertificate({ ...request, notBefore: new Date('2026-03-01T12:00:00.9Z') })).toEqual(
      first,
    );
    const serials = new Set([new X509Certificate(first).serialNumber]);
    for (const change of [
      { origin: 'belay.example/other' },
      { pub: rawPublicKey(privateKeyObject(Buffer.alloc(32, 4))) },
      { notBefore: new Date('2026-03-01T12:00:01Z') },
      { notAfter: new Date('2036-01-01T00:00:01Z') },
    ]) {
      serials.add(new X509Certificate(await issueLogCertificate({ ...request, ...change })).serialNumber);
    }
    expect(serials.size).toBe(5);
  });

  test('nothing outlives its issuer, and an authority is its certificate and its own key', async () => {
    const { issuer, root, notAfter } = await load();
    const request = { issuer, pub, origin, notBefore: now, notAfter };
    await issueLogCertificate(request);
    const beyond = new Date(notAfter.getTime() + 1_000);
    expect(await code(issueLogCertificate({ ...request, notAfter: beyond }))).toBe('certificate');
    expect(await code(issueLogCertificate({ ...request, notBefore: new Date(0) }))).toBe('certificate');
    expect(await code(issueLogCertificate({ ...request, notAfter: now }))).toBe('certificate');
    const mixed = { certificate: issuer.certificate, seed: Buffer.alloc(32, 8) };
    expect(await code(issueLogCertificate({ ...request, issuer: mixed }))).toBe('certificate');
    expect(
      await code(
        createIssuer({
          root: { certificate: root, seed: Buffer.alloc(32) },
          name: 'x',
          seed: mixed.seed,
          ...request,
        }),
      ),
    ).toBe('certificate');
  });
});

describe('the files', () => {
  const NAMES = ['issuer.key', 'issuer.pem', 'root.key', 'root.pem'];

  test('are made once and loaded after', async () => {
    const made = await load();
    expect((await readdir(directory)).sort()).toEqual(NAMES);
    expect(await load({ now: new Date('2030-01-01T00:00:00Z') })).toEqual(made);
    for (const name of ['root.key', 'issuer.key']) {
      expect((await stat(join(directory, name))).mode & 0o777).toBe(0o600);
    }
    expect(await readFile(join(directory, 'root.pem'), 'utf8')).toBe(made.rootPem);
  });

  test('a crash between any two of them is completed by the next call', async () => {
    const full = await load();
    const order = ['root.key', 'root.pem', 'issuer.key', 'issuer.pem'];
    for (let kept = 0; kept < order.length; kept++) {
      for (const name of order.slice(kept)) await rm(join(directory, name), { force: true });
      const again = await load();
      expect((await readdir(directory)).filter((name) => !name.endsWith('.crt')).sort()).toEqual(NAMES);
      expect(again.issuer.seed.equals(full.issuer.seed)).toBe(kept >= 3);
      const leaf = await issueLogCertificate({
        issuer: again.issuer,
        pub,
        origin,
        notBefore: now,
        notAfter: later,
      });
      expect(await openssl(again.root, again.issuer.certificate, leaf, now)).toBe('leaf.crt: OK\n');
      full.issuer.seed.set(again.issuer.seed);
    }
  });

  test('the root key can be taken offline; without it no new issuer', async () => {
    const made = await load();
    await rename(join(directory, 'root.key'), join(directory, 'elsewhere'));
    expect(await load()).toEqual(made);
    await rm(join(directory, 'issuer.pem'));
    expect(await code(load())).toBe('missing');
  });

  test('files that do not belong together are refused', async () => {
    await load();
    await rm(join(directory, 'issuer.key'));
    expect(await code(load())).toBe('missing');
    await rename(join(directory, 'root.pem'), join(directory, 'kept'));
    expect(await code(load())).toBe('missing');
    await rm(directory, { recursive: true });
    directory = await mkdtemp(join(tmpdir(), 'belay-x509-'));
    await load();
    const issuer = await readFile(join(directory, 'issuer.pem'));
    const root = await readFile(join(directory, 'root.pem'));
    await writeFile(join(directory, 'issuer.pem'), root);
    expect(await code(load())).toBe('certificate');
    await writeFile(join(directory, 'issuer.pem'), issuer);
    await writeFile(
      join(directory, 'root.pem'),
      toPem(
        (
          await createRoot({
            name: 'Belay test root',
            seed: Buffer.alloc(32, 9),
            notBefore: now,
            notAfter: later,
          })
        ).certificate,
      ),
    );
    expect(await code(load())).toBe('certificate');
    await writeFile(join(directory, 'issuer.pem'), 'garbage');
    expect(await code(load())).toBe('malformed');
  });

  test('sealed with a passphrase', async () => {
    const made = await load({ passphrase: 'secret' });
    expect(await code(load())).toBe('passphrase');
    expect(await load({ passphrase: 'secret' })).toEqual(made);
  });

  test('an issuer that has run out is said to have', async () => {
    await load();
    expect(await code(load({ now: new Date('2047-01-01T00:00:00Z') }))).toBe('certificate');
  });
});
