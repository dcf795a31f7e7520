import {
  type Credential,
  formatCredential,
  type Identifier,
  newIdentifier,
  SECRET_BYTES,
  secretHash,
} from '@belay/contracts';

/** Where identifiers and secrets come from. */
export interface Source {
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Bytes of a CSPRNG. */
  readonly random: (length: number) => Buffer;
}

/** Where an append token or an auditor key belongs. */
export interface Place {
  readonly project: string;
  readonly publicKey: Buffer;
  readonly origin: string;
}

/** A credential about to be: its identifier and hash go to the collector, its text to its holder once that is done. */
export interface Draft {
  readonly id: string;
  readonly secretHash: Buffer;
}

/** Makes identifiers and credentials. The secret part never leaves this object but in the text. */
export class Issuer {
  readonly #source: Source;

  constructor(source: Source) {
    this.#source = source;
  }

  id<Prefix extends Identifier>(prefix: Prefix): `${Prefix}_${string}` {
    return newIdentifier(prefix, this.#source.now(), this.#source.random(10));
  }

  operator(): Draft & { readonly text: string } {
    return this.#named('operator', 'opr');
  }

  admin(): Draft & { readonly text: string } {
    return this.#named('admin', 'adm');
  }

  append(): Draft & { textAt(place: Place): string } {
    const { id, secret, hash } = this.#draft('tok');
    return {
      id,
      secretHash: hash,
      textAt: (place) => formatCredential({ kind: 'append', id, secret, ...placed(place) }),
    };
  }

  auditor(): Draft & { textAt(place: Place): string } {
    const { id, secret, hash } = this.#draft('aud');
    return {
      id,
      secretHash: hash,
      textAt: (place) => formatCredential({ kind: 'auditor', id, secret, ...placed(place) }),
    };
  }

  #named(kind: 'operator' | 'admin', prefix: 'opr' | 'adm'): Draft & { readonly text: string } {
    const { id, secret, hash } = this.#draft(prefix);
    return { id, secretHash: hash, text: formatCredential({ kind, id, secret } as Credential) };
  }

  #draft<Prefix extends Identifier>(prefix: Prefix) {
    const secret = this.#source.random(SECRET_BYTES);
    return { id: this.id(prefix), secret, hash: secretHash(secret) };
  }
}

function placed({ project, publicKey, origin }: Place) {
  return { project: project as `prj_${string}`, publicKey, origin };
}
