import { formatCredential, SECRET_BYTES, secretHash } from './credential.js';
import { newIdentifier } from './identifier.js';

/** An operator about to be: what is stored of it, and the key that is shown once and stored nowhere. */
export interface OperatorDraft {
  readonly id: string;
  readonly secretHash: Buffer;
  readonly key: string;
}

/** `random` gives bytes of a CSPRNG; `time` is in milliseconds since 1970. */
export function draftOperator(time: number, random: (length: number) => Buffer): OperatorDraft {
  const id = newIdentifier('opr', time, random(10));
  const secret = random(SECRET_BYTES);
  return { id, secretHash: secretHash(secret), key: formatCredential({ kind: 'operator', id, secret }) };
}
