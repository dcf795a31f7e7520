import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { canonical, parseEntry } from '@belay/envelope';
import { privateKeyObject, rawPublicKey } from '@belay/keys';
import { createRoot, toPem } from '@belay/keys/x509';
import { leafHash } from '@belay/merkle';
import { ackHeadText, ackName, ed25519Signer, formatCheckpoint, signNote } from '@belay/note';
import {
  authorityOf,
  buildReceipt,
  dispositionOf,
  openReceipt,
  parseReceipt,
  preAuthEncoding,
  RECEIPT_CHECKS,
  type ReceiptCheck,
  ReceiptError,
  type ReceiptEvidence,
  type Report,
  verifyReceipt,
} from '@belay/receipt';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  ADMIN,
  AGENT_TOKEN,
  chainFor,
  checkpointOf,
  ENTRIES,
  evidence,
  KEY,
  ORIGIN,
  ROOT_PEM,
  rootOf,
  signer,
  SINK_TOKEN,
  TIME,
  validity,
  X5C,
} from './sample.js';

const RECEIPT = buildReceipt(evidence(3, 4), signer);

/** Names of the checks that are not ok, each with `!` when failed and `?` when undecided. */
function bad(report: Report): string[] {
  return report.checks
    .filter(({ status }) => status !== 'ok')
    .map(({ name, status }) => name + (status === 'failed' ? '!' : '?'));
}

interface Loose {
  [member: string]: Loose;
}

/**
 * What a dishonest holder of the log key could make: the statement changed and signed again, so that everything but
 * what was changed still holds.
 */
function resigned(change: (statement: Loose) => void, of: Buffer = RECEIPT, by = signer): Buffer {
  const envelope = JSON.parse(of.toString()) as { payload: string; payloadType: string };
  const statement = JSON.parse(Buffer.from(envelope.payload, 'base64').toString()) as Loose;
  change(statement);
  return sealed(Buffer.from(canonical(statement)), by);
}

function sealed(payload: Buffer, by = signer, payloadType = 'application/vnd.in-toto+json'): Buffer {
  return Buffer.from(
    canonical({
      payload: payload.toString('base64'),
      payloadType,
      signatures: [
        { keyid: by.keyId, sig: by.sign(preAuthEncoding(payloadType, payload)).toString('base64') },
      ],
    }),
  );
}

const set = (path: string, value: unknown): ((statement: Loose) => void) => {
  return (statement) => {
    const keys = path.split('.');
    let at = statement;
    for (const key of keys.slice(0, -1)) at = at[key] as Loose;
    (at as Record<string, unknown>)[keys.at(-1) as string] = value;
  };
};

describe('a receipt', () => {
  test('of every range of the log, at every size, verifies by either pin', () => {
    let made = 0;
    for (let size = 1; size <= ENTRIES.length; size++) {
      for (let first = 0; first < size; first++) {
        for (let count = 1; first + count <= size; count++) {
          const bytes = buildReceipt(evidence(first, count, size), signer);
          expect(verifyReceipt(bytes, { key: KEY }).verdict).toBe('VALID');
          expect(verifyReceipt(bytes, { rootPem: ROOT_PEM }).verdict).toBe('VALID');
          made++;
        }
      }
    }
    expect(made).toBe(165);
  });

  test('reports every named check, in order, whatever happens', () => {
    for (const [bytes, pins] of [
      [RECEIPT, { key: KEY, rootPem: ROOT_PEM, now: new Date('2026-02-01T00:00:00Z') }],
      [RECEIPT, {}],
      [Buffer.from('{}'), { key: KEY }],
      [sealed(Buffer.from('{}')), { key: KEY }],
    ] as const) {
      const report = verifyReceipt(bytes, pins);
      expect(report.checks.map(({ name }) => name)).toEqual([...RECEIPT_CHECKS]);
      for (const { detail } of report.checks) expect(detail).not.toBe('');
    }
    expect(bad(verifyReceipt(RECEIPT, { key: KEY, rootPem: ROOT_PEM, now: new Date(TIME) }))).toEqual([]);
  });

  test('is the same bytes each time it is made', () => {
    expect(buildReceipt(evidence(3, 4), signer)).toEqual(RECEIPT);
  });

  test('says what the entries rest on and what they show', () => {
    const { authority, disposition, issuers } = openReceipt(RECEIPT, { key: KEY });
    expect(authority).toEqual({
      level: 'asserted',
      by: [
        {
          role: 'sink',
          sink: 'proxy',
          token: SINK_TOKEN,
          domain: 'acme-desktop',
          signed: '795ed5ffe9039bf5',
          level: 'observed',
          events: 2,
        },
        { role: 'agent', sink: 'curl', token: AGENT_TOKEN, level: 'asserted', events: 1 },
        {
          role: 'sink',
          sink: 'proxy',
          token: SINK_TOKEN,
          domain: 'acme-desktop',
          level: 'asserted',
          events: 1,
        },
      ],
    });
    expect(disposition).toEqual({ status: 'unverified', reasons: [{ reason: 'no_session_judged' }] });
    expect(issuers).toEqual([
      { token: SINK_TOKEN, issuedBy: ADMIN, index: 1 },
      { token: AGENT_TOKEN, issuedBy: ADMIN, index: 2 },
    ]);
    const observed = openReceipt(buildReceipt(evidence(3, 2), signer), { key: KEY });
    expect(observed.authority.level).toBe('observed');
    const contested = openReceipt(buildReceipt(evidence(6, 3), signer), { key: KEY });
    expect(contested.disposition).toEqual({
      status: 'contested',
      reasons: [{ reason: 'conflict', index: 7, first: 4 }],
    });
  });

  test('opens only when valid', () => {
    const code = (run: () => unknown): string => {
      try {
        run();
      } catch (error) {
        return (error as ReceiptError).code;
      }
      return 'opened';
    };
    expect(code(() => openReceipt(RECEIPT, { key: KEY }))).toBe('opened');
    expect(code(() => openReceipt(RECEIPT, {}))).toBe('indeterminate');
    expect(code(() => openReceipt(Buffer.concat([RECEIPT, Buffer.from('\n')]), { key: KEY }))).toBe(
      'invalid',
    );
    expect(code(() => openReceipt(RECEIPT, { key: 'nonsense' }))).toBe('pin');
    expect(code(() => openReceipt(RECEIPT, { rootPem: 'nonsense' }))).toBe('pin');
    expect(parseReceipt(RECEIPT).entries).toEqual(ENTRIES.slice(3, 7));
    expect(code(() => parseReceipt(Buffer.from('[]')))).toBe('malformed');
  });
});

describe('pins', () => {
  const other = ed25519Signer(ORIGIN, Buffer.alloc(32, 0x77));

  test('none: nothing is wrong, and nothing is decided', () => {
    const report = verifyReceipt(RECEIPT);
    expect([report.verdict, bad(report)]).toEqual(['INDETERMINATE', ['trust?']]);
  });

  test('another key, or the same key under another name', () => {
    for (const key of [other.vkey, ed25519Signer('belay.example/other', Buffer.alloc(32, 0x0b)).vkey]) {
      const report = verifyReceipt(RECEIPT, { key });
      expect([report.verdict, bad(report)]).toEqual(['INVALID', ['trust!']]);
    }
  });

  test('another root', async () => {
    const stranger = await createRoot({
      name: 'Belay example root',
      seed: Buffer.alloc(32, 0x78),
      ...validity,
    });
    const rootPem = toPem(stranger.certificate);
    expect(bad(verifyReceipt(RECEIPT, { rootPem }))).toEqual(['trust!']);
    expect(bad(verifyReceipt(RECEIPT, { rootPem, key: KEY }))).toEqual(['trust!']);
  });

  test('another log than the one expected, although the root vouches for it', () => {
    const pins = { rootPem: ROOT_PEM, origin: 'belay.example/acme/other' };
    expect(bad(verifyReceipt(RECEIPT, pins))).toEqual(['trust!']);
    expect(bad(verifyReceipt(RECEIPT, { ...pins, origin: ORIGIN }))).toEqual([]);
    expect(bad(verifyReceipt(RECEIPT, { origin: ORIGIN }))).toEqual(['trust?']);
  });

  test("a forger's own log of the same name is what the pins are for", () => {
    const forged: ReceiptEvidence = {
      ...evidence(3, 4),
      log: { origin: ORIGIN, vkey: other.vkey, x5c: X5C },
      asOf: {
        size: ENTRIES.length,
        checkpoint: signNote(
          formatCheckpoint({ origin: ORIGIN, size: BigInt(ENTRIES.length), root: rootOf(ENTRIES.length) }),
          [other],
        ),
        time: TIME,
      },
    };
    expect(() => buildReceipt(forged, other)).toThrow(/chain: the certificate is for another key/u);
    const bytes = resigned(
      (statement) => {
        set('predicate.log.vkey', other.vkey)(statement);
        set('predicate.asOf.checkpoint', forged.asOf.checkpoint)(statement);
      },
      RECEIPT,
      other,
    );
    expect(bad(verifyReceipt(bytes))).toEqual(['trust?', 'chain!']);
    expect(bad(verifyReceipt(bytes, { key: KEY }))).toEqual(['trust!', 'chain!']);
    expect(bad(verifyReceipt(bytes, { rootPem: ROOT_PEM }))).toEqual(['trust!', 'chain!']);
  });

  test("a time ahead of the reader's clock is not decided", () => {
    const report = verifyReceipt(RECEIPT, { key: KEY, now: new Date('2025-12-31T23:00:00Z') });
    expect([report.verdict, bad(report)]).toEqual(['INDETERMINATE', ['time?']]);
    expect(verifyReceipt(RECEIPT, { key: KEY, now: new Date('2025-12-31T23:59:00Z') }).verdict).toBe('VALID');
  });
});

describe('changed bytes', () => {
  const small = buildReceipt(evidence(4, 1, 5), signer);

  test('every single byte of a receipt, changed: never VALID', { timeout: 120_000 }, () => {
    const verdicts = new Map<string, number>();
    for (let at = 0; at < small.length; at++) {
      for (const change of [1, 0x20, 0x80]) {
        const changed = Buffer.from(small);
        changed[at] = (changed[at] as number) ^ change;
        const { verdict } = verifyReceipt(changed, { key: KEY, rootPem: ROOT_PEM });
        if (verdict === 'VALID') throw new Error(`byte ${at} ^ ${change}`);
        verdicts.set(verdict, (verdicts.get(verdict) ?? 0) + 1);
      }
    }
    expect([...verdicts]).toEqual([['INVALID', 3 * small.length]]);
  });

  test('cut, doubled, extended: never VALID', () => {
    for (let at = 0; at < small.length; at += 7) {
      for (const bytes of [
        small.subarray(0, at),
        Buffer.concat([small.subarray(0, at), small.subarray(at + 1)]),
        Buffer.concat([small.subarray(0, at), Buffer.from(' '), small.subarray(at)]),
      ]) {
        expect(verifyReceipt(bytes, { key: KEY }).verdict).toBe('INVALID');
      }
    }
    for (const tail of ['\n', ' ', '\0', '{}']) {
      expect(verifyReceipt(Buffer.concat([small, Buffer.from(tail)]), { key: KEY }).verdict).toBe('INVALID');
    }
  });

  test('random damage of a larger one', () => {
    fc.assert(
      fc.property(fc.nat(), fc.integer({ min: 1, max: 255 }), (where, change) => {
        const changed = Buffer.from(RECEIPT);
        const at = where % changed.length;
        changed[at] = (changed[at] as number) ^ change;
        expect(verifyReceipt(changed, { key: KEY }).verdict).toBe('INVALID');
      }),
      { numRuns: 300 },
    );
  });

  test('the same values written another way', () => {
    const envelope = JSON.parse(RECEIPT.toString()) as {
      payload: string;
      payloadType: string;
      signatures: Loose[];
    };
    const text = RECEIPT.toString();
    const ways: Record<string, string> = {
      'other order of members': JSON.stringify({
        signatures: envelope.signatures,
        payloadType: envelope.payloadType,
        payload: envelope.payload,
      }),
      spaces: JSON.stringify(envelope, null, 1),
      'an unknown member': canonical({ ...envelope, note: 'x' }),
      'a member twice': text.replace('{', `{"payload":"",`),
      'two signatures': canonical({
        ...envelope,
        signatures: [...envelope.signatures, ...envelope.signatures],
      }),
      'no signature': canonical({ ...envelope, signatures: [] }),
      // (The one of a signature has no padding: it is never the same.)
      'URL-safe base64': text.replace(/"(payload|sig)":"([^"]*)"/gu, (_, name: string, value: string) =>
        JSON.stringify({ [name]: Buffer.from(value, 'base64').toString('base64url') }).slice(1, -1),
      ),
      'an escape': text.replace('payloadType', 'payload\\u0054ype'),
      'a byte order mark': `\ufeff${text}`,
    };
    for (const [way, bytes] of Object.entries(ways)) {
      const report = verifyReceipt(Buffer.from(bytes), { key: KEY });
      expect([way, report.checks[0]?.status]).toEqual([way, 'failed']);
    }
  });
});

describe('signed lies are found by the check that is for them', () => {
  // Each changes the statement and signs it again with the log's own key: the signature holds, the statement does not.
  const someHash = leafHash(Buffer.from('x')).toString('base64');
  const statement = JSON.parse(
    Buffer.from((JSON.parse(RECEIPT.toString()) as { payload: string }).payload, 'base64').toString(),
  ) as Loose;
  const entry = (i: number): string =>
    (statement['predicate'] as unknown as { entries: string[] }).entries[i] as string;

  const lies: Record<string, [change: (statement: Loose) => void, found: ReceiptCheck[]]> = {
    'an entry edited, its digest made to fit': [
      (s) => {
        const entries = ENTRIES.slice(3, 7).with(1, Buffer.from(entry(1).replace('"claim"', '"x.lie"')));
        set(
          'predicate.entries',
          entries.map((e) => e.toString()),
        )(s);
        set('subject.0.digest.sha256', digest(entries))(s);
      },
      ['proof'],
    ],
    'a digest that is not that of the entries': [set('subject.0.digest.sha256', '0'.repeat(64)), ['subject']],
    'a subject of another name': [set('subject.0.name', `${ORIGIN}#3-7`), ['subject']],
    'a hash of the proof': [set('predicate.proof.left.0', someHash), ['proof']],
    'a hash of the proof left out': [set('predicate.proof.right', []), ['proof']],
    'another size': [set('predicate.asOf.size', 8), ['checkpoint']],
    'a checkpoint of another size': [set('predicate.asOf.checkpoint', checkpointOf(8)), ['checkpoint']],
    'an unsigned checkpoint': [
      set('predicate.asOf.checkpoint', checkpointOf(9).replace(/— [^\n]+ /u, '— nobody ')),
      ['checkpoint'],
    ],
    'the head of an ack in place of a checkpoint': [
      set(
        'predicate.asOf.checkpoint',
        signNote(ackHeadText(ORIGIN, 9n, rootOf(9)), [
          ed25519Signer(ackName(ORIGIN), Buffer.alloc(32, 0x0b)),
        ]),
      ),
      ['checkpoint'],
    ],
    'another scope': [
      set('predicate.scope', { type: 'range', first: 4, count: 4 }),
      ['entries', 'subject', 'proof'],
    ],
    'a scope of more than there is': [
      set('predicate.scope', { type: 'range', first: 3, count: 5 }),
      ['scope', 'subject'],
    ],
    'a higher authority': [set('predicate.authority.level', 'observed'), ['authority']],
    'a higher authority of one source': [set('predicate.authority.by.1.level', 'observed'), ['authority']],
    'a signature that nobody verified': [
      set('predicate.authority.by.2.signed', '795ed5ffe9039bf5'),
      ['authority'],
    ],
    'other counts': [set('predicate.authority.by.0.events', 3), ['authority']],
    'sources left out': [set('predicate.authority.by', []), ['authority']],
    'a disposition without its evidence': [
      set('predicate.disposition', {
        status: 'contested',
        reasons: [{ reason: 'conflict', index: 4, first: 1 }],
      }),
      ['disposition'],
    ],
    'an issuer left out': [set('predicate.issuers', []), ['issuers']],
    'issuers in another order': [
      set('predicate.issuers', [
        { token: AGENT_TOKEN, issuedBy: ADMIN, index: 2 },
        { token: SINK_TOKEN, issuedBy: ADMIN, index: 1 },
      ]),
      ['issuers'],
    ],
    'a token issued in the future': [set('predicate.issuers.0.index', 9), ['issuers']],
    'a token issued by an entry that is here and does not': [
      set('predicate.issuers.0.index', 4),
      ['issuers'],
    ],
    'a domain added to no one': [set('predicate.authority.by.1.domain', 'x y'), ['statement']],
    'coverage claimed': [set('predicate.coverage', 'complete'), ['statement']],
    affirmed: [set('predicate.disposition.status', 'affirmed'), ['statement']],
    'a limit left out': [
      (s) => void (s['predicate'] as unknown as { notProven: string[] }).notProven.pop(),
      ['statement'],
    ],
    'an unknown member': [set('predicate.verified', true), ['statement']],
    'another version': [set('predicate.v', 2), ['statement']],
    'another predicate': [set('predicateType', 'urn:belay:receipt:v2'), ['statement']],
    'a time without its fraction': [set('predicate.asOf.time', '2026-01-01T00:00:09Z'), ['statement']],
    'a time that does not exist': [set('predicate.asOf.time', '2026-02-30T00:00:00.000Z'), ['statement']],
    'no chain': [set('predicate.log.x5c', []), ['chain']],
    'a chain in another order': [
      set(
        'predicate.log.x5c',
        X5C.toReversed().map((c) => c.toString('base64')),
      ),
      ['chain'],
    ],
    'a certificate left out': [
      set(
        'predicate.log.x5c',
        [X5C[0], X5C[2]].map((c) => (c as Buffer).toString('base64')),
      ),
      ['chain'],
    ],
    'bytes after a certificate': [
      set('predicate.log.x5c.0', Buffer.concat([X5C[0] as Buffer, Buffer.alloc(2)]).toString('base64')),
      ['chain'],
    ],
    'a time before the certificates': [set('predicate.asOf.time', '2025-01-01T00:00:00.000Z'), ['chain']],
    'another origin': [
      set('predicate.log.origin', 'belay.example/acme/other'),
      ['signature', 'checkpoint', 'entries', 'subject', 'chain'],
    ],
  };

  test.each(Object.entries(lies))('%s', (_, [change, found]) => {
    const report = verifyReceipt(resigned(change), { key: KEY });
    expect(report.verdict).toBe('INVALID');
    const failed = report.checks.filter(({ status }) => status === 'failed').map(({ name }) => name);
    expect(failed.filter((name) => name !== 'trust')).toEqual(
      RECEIPT_CHECKS.filter((name) => found.includes(name)),
    );
  });

  test('nothing but the changes: signed again unchanged it is the receipt', () => {
    expect(resigned(() => undefined)).toEqual(RECEIPT);
  });

  test('another payload type, another key id, a note passed off as a payload', () => {
    const payload = Buffer.from((JSON.parse(RECEIPT.toString()) as { payload: string }).payload, 'base64');
    expect(bad(verifyReceipt(sealed(payload, signer, 'text/plain'), { key: KEY }))).toEqual([
      'payload-type!',
    ]);
    const renamed = ed25519Signer(ackName(ORIGIN), Buffer.alloc(32, 0x0b));
    expect(bad(verifyReceipt(sealed(payload, renamed), { key: KEY }))).toEqual(['signature!']);
    expect(bad(verifyReceipt(sealed(Buffer.from(checkpointOf(9))), { key: KEY }))).toContain('statement!');
  });

  test('a chain for another log, another key, or past its time', async () => {
    const chains = {
      'another log': await chainFor({ origin: 'belay.example/acme/agents2' }),
      'another key': await chainFor({ pub: rawPublicKey(privateKeyObject(Buffer.alloc(32, 0x77))) }),
      'not valid at': await chainFor({ notAfter: new Date('2026-01-01T00:00:05Z') }),
    };
    for (const [detail, chain] of Object.entries(chains)) {
      const bytes = resigned(
        set(
          'predicate.log.x5c',
          chain.map((c) => c.toString('base64')),
        ),
      );
      for (const pins of [{ key: KEY }, { rootPem: ROOT_PEM }]) {
        const report = verifyReceipt(bytes, pins);
        expect(report.verdict).toBe('INVALID');
        expect(report.checks.find(({ name }) => name === 'chain')?.detail).toContain(detail);
      }
    }
  });

  test('entries of a wrong sequence, of another log, or with a false genesis are not entries', () => {
    const pairs: [string, (text: string) => string][] = [
      ['says it is', (text) => text.replace('"index":4', '"index":14')],
      ['of another log', (text) => text.replaceAll(ORIGIN, 'belay.example/acme/agentz')],
      ['received before', (text) => text.replace('00:04.000Z","role', '00:01.000Z","role')],
    ];
    for (const [detail, edit] of pairs) {
      const entries = ENTRIES.slice(3, 7).with(1, Buffer.from(edit(entry(1))));
      const bytes = resigned((s) => {
        set(
          'predicate.entries',
          entries.map((e) => e.toString()),
        )(s);
        set('subject.0.digest.sha256', digest(entries))(s);
      });
      const report = verifyReceipt(bytes, { key: KEY });
      expect(bad(report)).toContain('entries!');
      expect(report.checks.find(({ name }) => name === 'entries')?.detail).toContain(detail);
    }
    const first = buildReceipt(evidence(0, 2), signer);
    const other = ed25519Signer(ORIGIN, Buffer.alloc(32, 0x77)).vkey;
    const entries = ENTRIES.slice(0, 2).with(
      0,
      Buffer.from((ENTRIES[0] as Buffer).toString().replace(KEY, other)),
    );
    const bytes = resigned((s) => {
      set(
        'predicate.entries',
        entries.map((e) => e.toString()),
      )(s);
      set('subject.0.digest.sha256', digest(entries))(s);
    }, first);
    expect(bad(verifyReceipt(bytes, { key: KEY }))).toContain('entries!');
  });

  function digest(entries: readonly Buffer[]): string {
    const hash = createHash('sha256');
    for (const e of entries) hash.update(Buffer.from([e.length >> 8, e.length & 0xff])).update(e);
    return hash.digest('hex');
  }
});

describe('making one', () => {
  const refused = (change: Partial<ReceiptEvidence>, by = signer): string => {
    try {
      buildReceipt({ ...evidence(3, 4), ...change }, by);
    } catch (error) {
      return `${(error as ReceiptError).code} ${(error as Error).message}`;
    }
    return 'made';
  };

  test('evidence that does not hold is not signed', () => {
    expect(refused({})).toBe('made');
    expect(refused({ proof: { left: [], right: [] } })).toMatch(/^evidence proof/u);
    expect(refused({ entries: ENTRIES.slice(2, 6) })).toMatch(/^evidence entries/u);
    expect(refused({ entries: [Buffer.from('nonsense')] })).toMatch(/^evidence an entry is malformed/u);
    expect(refused({ scope: { type: 'range', first: 3, count: 3 } })).toMatch(/^evidence scope/u);
    expect(refused({ scope: { type: 'range', first: 3, count: 0 }, entries: [] })).toMatch(/^evidence/u);
    expect(refused({ tokens: [] })).toMatch(/^evidence nothing says who issued/u);
    expect(refused({ asOf: { size: 9, checkpoint: checkpointOf(8), time: TIME } })).toMatch(
      /^evidence checkpoint/u,
    );
    expect(refused({ asOf: { size: 9, checkpoint: checkpointOf(9), time: 'today' } })).toMatch(
      /^evidence statement/u,
    );
    expect(refused({}, ed25519Signer(ORIGIN, Buffer.alloc(32, 1)))).toMatch(/^evidence signature/u);
    expect(refused({ domainOf: () => 'not a domain' })).toMatch(/^evidence statement/u);
    // Every domain that can be declared can stand in a receipt.
    expect(refused({ domainOf: () => '-team@acme/ops:eu+1' })).toBe('made');
  });
});

describe('authority and disposition', () => {
  const role = fc.constantFrom('agent', 'sink', 'verifier');

  test('only a role that may observe, and a verified signature, make an entry observed', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(role, fc.boolean(), fc.option(fc.nat(20), { nil: undefined })), {
          minLength: 1,
          maxLength: 12,
        }),
        (given) => {
          const entries = given.map(([role, signed, conflict], i) => {
            const index = i + 30;
            const line = {
              ...(conflict === undefined ? {} : { conflict }),
              index,
              log: ORIGIN,
              received: TIME,
              role,
              ...(signed ? { signed: '795ed5ffe9039bf5' } : {}),
              sink: 'proxy',
              token: SINK_TOKEN,
              v: 1,
            };
            // What a sender writes of itself changes nothing.
            const body = `{"v":1,"log":"${ORIGIN}","sink":"proxy","epoch":"01K6B3YB80041061050R3GG28A","seq":${index},"kind":"verdict","time":"${TIME}","attrs":{"status":"PASS"}}`;
            return parseEntry(Buffer.from(`${canonical(line)}\n${body}`));
          });
          const observed = given.every(([role, signed]) => role !== 'agent' && signed);
          const authority = authorityOf(entries);
          expect(authority.level).toBe(observed ? 'observed' : 'asserted');
          expect(authority.by.reduce((sum, { events }) => sum + events, 0)).toBe(given.length);
          const conflicts = given.filter(([, , conflict]) => conflict !== undefined).length;
          const disposition = dispositionOf(entries);
          expect(disposition.status).toBe(conflicts > 0 ? 'contested' : 'unverified');
          expect(disposition.reasons).toHaveLength(Math.max(conflicts, 1));
        },
      ),
    );
  });
});

describe('others read it too', () => {
  test('openssl verifies the signature over the encoding, and the certificates', () => {
    const folder = mkdtempSync(join(tmpdir(), 'belay-receipt-'));
    try {
      const { payload, payloadType, signatures } = JSON.parse(RECEIPT.toString()) as {
        payload: string;
        payloadType: string;
        signatures: { sig: string }[];
      };
      const body = Buffer.from(payload, 'base64');
      const encoding = Buffer.concat([
        Buffer.from(`DSSEv1 ${payloadType.length} ${payloadType} ${body.length} `),
        body,
      ]);
      writeFileSync(join(folder, 'pae'), encoding);
      writeFileSync(join(folder, 'sig'), Buffer.from(signatures[0]?.sig ?? '', 'base64'));
      for (const [i, name] of ['log.pem', 'issuer.pem', 'root.pem'].entries()) {
        writeFileSync(join(folder, name), toPem(X5C[i] as Buffer));
      }
      const openssl = (...args: string[]): string => {
        const { stdout, stderr } = spawnSync('openssl', args, {
          cwd: folder,
          encoding: 'utf8',
          timeout: 20_000,
        });
        return stdout + stderr;
      };
      const at = String(Date.parse(TIME) / 1_000);
      expect(
        openssl(
          'verify',
          '-attime',
          at.split('.')[0] as string,
          '-CAfile',
          'root.pem',
          '-untrusted',
          'issuer.pem',
          'log.pem',
        ),
      ).toBe('log.pem: OK\n');
      writeFileSync(join(folder, 'pub.pem'), openssl('x509', '-in', 'log.pem', '-pubkey', '-noout'));
      expect(
        openssl(
          'pkeyutl',
          '-verify',
          '-pubin',
          '-inkey',
          'pub.pem',
          '-rawin',
          '-in',
          'pae',
          '-sigfile',
          'sig',
        ),
      ).toContain('Signature Verified Successfully');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('the encoding of the DSSE specification', () => {
    expect(preAuthEncoding('http://example.com/HelloWorld', Buffer.from('hello world')).toString()).toBe(
      'DSSEv1 29 http://example.com/HelloWorld 11 hello world',
    );
    expect(preAuthEncoding('ä', Buffer.alloc(0)).toString()).toBe('DSSEv1 2 ä 0 ');
  });
});
