import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  ackHeadText,
  ackName,
  ackVerifier,
  cosignatureSigner,
  cosignatureTime,
  cosignatureVerifier,
  ed25519Signer,
  ed25519Verifier,
  formatCheckpoint,
  formatSkey,
  formatVkey,
  KEY_TYPE,
  keyId,
  NoteError,
  type NoteErrorCode,
  openCheckpoint,
  openNote,
  parseBase64,
  parseCheckpoint,
  parseNote,
  parseSkey,
  parseVkey,
  signNote,
} from '@belay/note';

function code(run: () => unknown): NoteErrorCode | 'accepted' {
  try {
    run();
  } catch (error) {
    if (error instanceof NoteError) return error.code;
    throw error;
  }
  return 'accepted';
}

const alice = ed25519Signer('example.com/alice', Buffer.alloc(32, 7));
const bob = ed25519Signer('example.com/bob', Buffer.alloc(32, 8));
const aliceKey = ed25519Verifier(alice.vkey);
const bobKey = ed25519Verifier(bob.vkey);
const TEXT = 'one line\n\nand, after an empty one, another: äöü — €\n';

describe('keys', () => {
  test('a vkey reads back, and its id is derived again', () => {
    const parsed = parseVkey(alice.vkey);
    expect(parsed).toEqual({ name: alice.name, keyId: alice.keyId, type: 1, key: aliceKey.key });
    expect(formatVkey(parsed.name, parsed.key)).toBe(alice.vkey);
    const digest = createHash('sha256').update('example.com/alice\n\x01').update(parsed.key).digest('hex');
    expect(keyId(parsed.name, parsed.key)).toBe(digest.slice(0, 8));
  });

  test('base64 with a "+" in it: only the first two divide', () => {
    let seen = 0;
    for (let i = 0; i < 40; i++) {
      const { vkey } = ed25519Signer('n', Buffer.alloc(32, i));
      if (vkey.split('+').length > 3) seen++;
      expect(parseVkey(vkey).name).toBe('n');
    }
    expect(seen).toBeGreaterThan(0);
  });

  test('whatever byte of a vkey is changed, it is refused', () => {
    for (let at = 0; at < alice.vkey.length; at++) {
      for (const other of 'A0z+/= \n\u00e9') {
        if (alice.vkey[at] === other) continue;
        const changed = alice.vkey.slice(0, at) + other + alice.vkey.slice(at + 1);
        expect([changed, code(() => parseVkey(changed))]).not.toEqual([changed, 'accepted']);
      }
    }
    for (const cut of [1, 2, 10, 44, alice.vkey.length]) {
      expect(code(() => parseVkey(alice.vkey.slice(0, -cut)))).toBe('key');
    }
    expect(code(() => parseVkey(alice.vkey + '\n'))).toBe('key');
    expect(code(() => parseVkey('n'.repeat(2_000) + alice.vkey))).toBe('key');
  });

  test('names', () => {
    const key = aliceKey.key;
    for (const name of ['', 'a b', 'a+b', 'a\nb', 'a\u00a0b', 'a\u2028b', 'a\u0085b', 'a\0b', 'a\ud800b']) {
      expect([name, code(() => formatVkey(name, key))]).toEqual([name, 'name']);
    }
    expect(parseVkey(formatVkey('пример/журнал', key)).name).toBe('пример/журнал');
  });

  test('types: 0x01 and 0x04 are different keys with different ids, all others are refused', () => {
    const cosigner = formatVkey('w', aliceKey.key, KEY_TYPE.cosignature);
    expect(parseVkey(cosigner).type).toBe(4);
    expect(code(() => ed25519Verifier(cosigner))).toBe('key');
    expect(code(() => cosignatureVerifier(formatVkey('w', aliceKey.key)))).toBe('key');
    for (const type of [0, 2, 3, 5, 6, 255]) {
      const bytes = Buffer.concat([Buffer.from([type]), aliceKey.key]);
      const id = createHash('sha256')
        .update(Buffer.concat([Buffer.from('w\n'), bytes]))
        .digest('hex')
        .slice(0, 8);
      expect(code(() => parseVkey(`w+${id}+${bytes.toString('base64')}`))).toBe('key');
    }
  });

  test('signer keys read back', () => {
    const seed = Buffer.alloc(32, 7);
    expect(parseSkey(formatSkey('example.com/alice', seed))).toEqual({ name: 'example.com/alice', seed });
    expect(code(() => parseSkey(alice.vkey))).toBe('key');
    expect(code(() => parseSkey(formatSkey('example.com/alice', seed).replace('alice', 'alicf')))).toBe(
      'key',
    );
  });
});

describe('notes', () => {
  test('signed by two, opened with either, both or a stranger', () => {
    const note = signNote(TEXT, [alice, bob]);
    const names = (verifiers: (typeof aliceKey)[]) => {
      const opened = openNote(Buffer.from(note), verifiers);
      expect(opened.text).toBe(TEXT);
      return [opened.signatures.map((s) => s.name), opened.unknown.map((s) => s.name)];
    };
    expect(names([aliceKey])).toEqual([[alice.name], [bob.name]]);
    expect(names([bobKey, aliceKey])).toEqual([[alice.name, bob.name], []]);
    const stranger = ed25519Verifier(ed25519Signer('example.com/alice', Buffer.alloc(32, 9)).vkey);
    expect(code(() => openNote(note, [stranger]))).toBe('unsigned');
    expect(code(() => openNote(note, []))).toBe('unsigned');
    expect(code(() => openNote(note, [aliceKey, ed25519Verifier(alice.vkey)]))).toBe('key');
    expect(parseNote(note).signatures.map((s) => s.keyId)).toEqual([alice.keyId, bob.keyId]);
    expect(code(() => signNote(TEXT, []))).toBe('unsigned');
    expect(code(() => signNote('no end', [alice]))).toBe('malformed');
    expect(code(() => signNote('a\ttab\n', [alice]))).toBe('malformed');
  });

  test('a bad line by a known key spoils the note, even beside good ones', () => {
    const good = signNote(TEXT, [alice, bob]);
    const other = signNote('another text\n', [bob]).split('\n').at(-2) as string;
    const bad = good.replace(/— example\.com\/bob .*/u, other);
    expect(code(() => openNote(bad, [aliceKey, bobKey]))).toBe('bad-signature');
    expect(code(() => openNote(bad, [bobKey]))).toBe('bad-signature');
    // To whoever doesn't know bob, his line is only a line.
    expect(openNote(bad, [aliceKey]).unknown).toHaveLength(1);
  });

  test('one signer is counted once, however often its line is there', () => {
    const line = signNote(TEXT, [alice]).split('\n').at(-2) as string;
    const note = signNote(TEXT, [alice, bob]) + `${line}\n`.repeat(3);
    expect(openNote(note, [aliceKey, bobKey]).signatures).toHaveLength(2);
    const forged = line.replace(/.{12}$/u, 'AAAAAAAAAAA=');
    expect(code(() => openNote(`${note}${forged}\n`, [aliceKey]))).toBe('bad-signature');
  });

  test('every single byte changed, cut or doubled: never another text, never an unnoticed change', () => {
    const note = Buffer.from(signNote(TEXT, [alice]));
    const verdicts = new Map<string, number>();
    const judge = (bytes: Buffer): void => {
      let verdict: string;
      try {
        verdict = openNote(bytes, [aliceKey]).text === TEXT ? 'opened' : 'OTHER TEXT';
      } catch (error) {
        verdict = (error as NoteError).code;
      }
      verdicts.set(verdict, (verdicts.get(verdict) ?? 0) + 1);
    };
    for (let at = 0; at < note.length; at++) {
      for (let bit = 0; bit < 8; bit++) {
        const changed = Buffer.from(note);
        changed[at] = (changed[at] as number) ^ (1 << bit);
        judge(changed);
      }
      judge(note.subarray(0, at));
      judge(Buffer.concat([note.subarray(0, at), note.subarray(at + 1)]));
      judge(Buffer.concat([note.subarray(0, at), note.subarray(at, at + 1), note.subarray(at)]));
    }
    expect([...verdicts.keys()].sort()).toEqual(['bad-signature', 'malformed', 'name', 'unsigned']);
  });

  test('forms that are not the one form', () => {
    const note = signNote('text\n', [alice]);
    const line = note.split('\n').at(-2) as string;
    const wrong: Record<string, string> = {
      'no empty line': `text\n${line}\n`,
      'no final LF': note.slice(0, -1),
      'an empty line at the end': `${note}\n`,
      'a hyphen for the dash': note.replace('—', '-'),
      'two spaces': note.replace('— ', '—  '),
      'a trailing space': `${note.slice(0, -1)} \n`,
      'no name': note.replace(` ${alice.name}`, ''),
      CRLF: note.replaceAll('\n', '\r\n'),
      'a NUL': note.replace('text', 'te\0xt'),
      'URL-safe base64': note.replace(/[^ ]+\n$/u, (b) => b.replaceAll('+', '-').replaceAll('/', '_')),
      'no padding': note.replace(/=+\n$/u, '\n'),
      'an id without a signature': note.replace(/[^ ]+\n$/u, 'AAAAAA==\n'),
      'a byte order mark': `\ufeff${note}`,
      nothing: '',
      'only the separator': '\n\n',
    };
    for (const [what, bytes] of Object.entries(wrong)) {
      expect([what, code(() => openNote(bytes, [aliceKey]))]).not.toEqual([what, 'accepted']);
    }
    expect(code(() => openNote(Buffer.from([0xff, 0x0a, 0x0a]), [aliceKey]))).toBe('malformed');
  });

  test('caps', () => {
    const line = signNote('text\n', [alice]).split('\n').at(-2) as string;
    expect(openNote(`text\n\n${`${line}\n`.repeat(100)}`, [aliceKey]).signatures).toHaveLength(1);
    expect(code(() => openNote(`text\n\n${`${line}\n`.repeat(101)}`, [aliceKey]))).toBe('too-large');
    expect(code(() => openNote(Buffer.alloc(1_000_001, 0x20), [aliceKey]))).toBe('too-large');
  });

  test('random texts round-trip', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 80 }), (body) => {
        // oxlint-disable-next-line no-control-regex
        const text = `${body.replace(/[\u0000-\u001f]/gu, '\n')}\n`;
        expect(openNote(Buffer.from(signNote(text, [alice])), [aliceKey]).text).toBe(text);
      }),
    );
  });
});

describe('base64', () => {
  test('one encoding for one value', () => {
    expect(parseBase64('AQ==')).toEqual(Buffer.from([1]));
    for (const wrong of ['AQ', 'AQ=', 'AR==', 'AQ==\n', ' AQ==', 'A-==', 'AQ==AQ==', '=', '!!!!']) {
      expect([wrong, code(() => parseBase64(wrong))]).toEqual([wrong, 'malformed']);
    }
  });
});

describe('checkpoints', () => {
  const root = createHash('sha256').update('root').digest();
  const origin = 'example.com/alice';
  const text = formatCheckpoint({ origin, size: 12n, root });

  test('read back', () => {
    expect(parseCheckpoint(text)).toEqual({ origin, size: 12n, root, extensions: [] });
    expect(parseCheckpoint(`${text}one\ntwo\n`).extensions).toEqual(['one', 'two']);
    expect(parseCheckpoint(formatCheckpoint({ origin, size: (1n << 64n) - 1n, root })).size).toBe(
      (1n << 64n) - 1n,
    );
  });

  test('other spellings are refused', () => {
    const b64 = root.toString('base64');
    for (const wrong of [
      '',
      '\n',
      `${origin}\n12\n${b64}`,
      `\n12\n${b64}\n`,
      `${origin}\n012\n${b64}\n`,
      `${origin}\n+12\n${b64}\n`,
      `${origin}\n-1\n${b64}\n`,
      `${origin}\n1e1\n${b64}\n`,
      `${origin}\n\n${b64}\n`,
      `${origin}\n18446744073709551616\n${b64}\n`,
      `${origin}\n12\n${b64.slice(0, -1)}\n`,
      `${origin}\n12\n${root.subarray(1).toString('base64')}\n`,
      `${origin}\n12\n${b64}\n\n`,
      `${origin}\n12\n${b64}\n\nextension\n`,
    ]) {
      expect([wrong, code(() => parseCheckpoint(wrong))]).toEqual([wrong, 'checkpoint']);
    }
    expect(code(() => formatCheckpoint({ origin: '', size: 0n, root }))).toBe('checkpoint');
    expect(code(() => formatCheckpoint({ origin: 'a\nb', size: 0n, root }))).toBe('checkpoint');
    expect(code(() => formatCheckpoint({ origin, size: -1n, root }))).toBe('checkpoint');
    expect(code(() => formatCheckpoint({ origin, size: 0n, root: root.subarray(1) }))).toBe('checkpoint');
  });

  test('opened only with the signature of its own log', () => {
    const opened = openCheckpoint(signNote(text, [alice, bob]), aliceKey, [bobKey]);
    expect(opened.size).toBe(12n);
    expect(opened.signatures).toHaveLength(2);
    expect(code(() => openCheckpoint(signNote(text, [bob]), aliceKey, [bobKey]))).toBe('unsigned');
    expect(code(() => openCheckpoint(signNote(text, [bob]), bobKey))).toBe('checkpoint');
    expect(code(() => openCheckpoint(signNote('hello\n', [alice]), aliceKey))).toBe('checkpoint');
  });
});

describe('ack heads', () => {
  const root = createHash('sha256').update('root').digest();

  test('same key, other name, other text: neither passes for the other', () => {
    const origin = 'example.com/alice';
    const seed = Buffer.alloc(32, 7);
    const ackSigner = ed25519Signer(ackName(origin), seed);
    const ack = signNote(ackHeadText(origin, 5n, root), [ackSigner]);
    expect(openCheckpoint(ack, ackVerifier(alice.vkey)).size).toBe(5n);
    expect(code(() => openCheckpoint(ack, aliceKey))).toBe('unsigned');
    const checkpoint = signNote(formatCheckpoint({ origin, size: 5n, root }), [alice]);
    expect(code(() => openCheckpoint(checkpoint, ackVerifier(alice.vkey)))).toBe('unsigned');
    // The signature itself, moved under the other name with its id rewritten, does not hold.
    const payload = (note: string) =>
      Buffer.from((note.split('\n').at(-2) as string).split(' ')[2] as string, 'base64').subarray(4);
    const moved = `${formatCheckpoint({ origin, size: 5n, root })}\n— ${origin} ${Buffer.concat([
      Buffer.from(alice.keyId, 'hex'),
      payload(ack),
    ]).toString('base64')}\n`;
    expect(code(() => openCheckpoint(moved, aliceKey))).toBe('bad-signature');
  });
});

describe('cosignatures', () => {
  const witness = cosignatureSigner('witness.example/w', Buffer.alloc(32, 2), () => 1_767_225_600n);
  const verifier = cosignatureVerifier(witness.vkey);

  test('state a time that the signature covers', () => {
    const note = signNote('text\n', [alice, witness]);
    const opened = openNote(note, [verifier]);
    expect(cosignatureTime(opened.signatures[0]?.signature as Buffer)).toBe(1_767_225_600n);
    const line = note.split('\n').at(-2) as string;
    const payload = Buffer.from(line.split(' ')[2] as string, 'base64');
    for (let at = 4; at < payload.length; at++) {
      const changed = Buffer.from(payload);
      changed[at] = (changed[at] as number) ^ 1;
      const bad = note.replace(payload.toString('base64'), changed.toString('base64'));
      expect(code(() => openNote(bad, [verifier]))).toBe('bad-signature');
    }
    const extended = note.replace('text\n', 'text\nextension\n');
    expect(code(() => openNote(extended, [verifier]))).toBe('bad-signature');
  });

  test('times out of range', () => {
    for (const time of [0n, -1n, 1n << 63n]) {
      const signer = cosignatureSigner('w', Buffer.alloc(32, 2), () => time);
      expect(code(() => signNote('text\n', [signer]))).toBe('malformed');
    }
    expect(verifier.verify(Buffer.from('text\n'), Buffer.alloc(72))).toBe(false);
    expect(verifier.verify(Buffer.from('text\n'), Buffer.alloc(64))).toBe(false);
    expect(code(() => cosignatureTime(Buffer.alloc(64)))).toBe('malformed');
  });
});
