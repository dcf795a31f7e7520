import { X509Certificate } from 'node:crypto';
import { ed25519Verifier, type NoteVerifier } from '@belay/note';
import { ReceiptError } from './error.js';

/** What the reader brings along: without at least one of the two keys nothing can be VALID. */
export interface Pins {
  /** Verifier key of the log. */
  readonly key?: string | undefined;
  /**
   * PEM of the root certificate. It vouches for every log that its authority certified: the reader still has to look
   * which log a receipt is of, or to pin `origin` too.
   */
  readonly rootPem?: string | undefined;
  /** Origin of the log that the reader expects. No key, so it decides nothing by itself. */
  readonly origin?: string | undefined;
  /** The reader's clock; without it, no claim is compared with the present. */
  readonly now?: Date | undefined;
}

/** What pins come to: keys that parse. Throws ReceiptError `pin` for those that do not. */
export function parsePins(pins: Pins): {
  readonly key: NoteVerifier | undefined;
  readonly root: X509Certificate | undefined;
} {
  return {
    key: pins.key === undefined ? undefined : parse('verifier key', pins.key, ed25519Verifier),
    root:
      pins.rootPem === undefined
        ? undefined
        : parse('root certificate', pins.rootPem, (pem) => new X509Certificate(pem)),
  };
}

function parse<T>(what: keyof typeof LOOKS, text: string, read: (text: string) => T): T {
  try {
    return read(text);
  } catch {
    throw new ReceiptError('pin', `the ${what} pinned is not one: ${LOOKS[what]}`);
  }
}

/** How what is pinned looks, for who typed it wrong. The digits of a key are a checksum of its name and base64. */
const LOOKS = {
  'verifier key':
    'it looks like NAME+8 hex digits+base64 in one line, and its digits have to fit the rest, so that one wrong letter is noticed',
  'root certificate': 'it is one certificate in PEM',
} as const;

/** What another key than the one pinned may be, by its name. */
export function aboutOtherKey(pinned: string, origin: string): string {
  const name = pinned.slice(0, pinned.indexOf('+'));
  return name === origin
    ? 'both have the same name: the log was made anew with another key, or somebody made one that calls itself so'
    : `the key pinned is of another log, ${name}`;
}
