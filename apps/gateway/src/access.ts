import { randomBytes, timingSafeEqual } from 'node:crypto';
import {
  type Credential,
  CredentialError,
  type CredentialKind,
  parseCredential,
  secretHash,
  type TokenRole,
} from '@belay/contracts';
import type { LogRow, Reader } from '@belay/db';
import { ProblemError } from './problem.js';

export interface Operator {
  readonly kind: 'operator';
  readonly id: string;
}
export interface Admin {
  readonly kind: 'admin';
  readonly id: string;
  readonly tenant: string;
}
/** Holder of an append token. */
export interface Sender {
  readonly kind: 'append';
  readonly id: string;
  readonly role: TokenRole;
  /** Sinks it may append as; null: any. */
  readonly sinks: readonly string[] | null;
  readonly domain: string | null;
  readonly expires: Date | null;
  readonly rate: number | null;
  readonly log: LogRow;
}
export interface Auditor {
  readonly kind: 'auditor';
  readonly id: string;
  readonly log: LogRow;
}
/** Who asks, once that is proven. */
export type Principal = Operator | Admin | Sender | Auditor;

/** Holder of a good credential of a kind that a route has nothing for: may see there what anyone may. */
export interface Other {
  readonly kind: 'other';
  /** Kinds that the route is for. */
  readonly allowed: readonly Allowed[];
}

/** Who asks, where anyone may; undefined: somebody without a credential. */
export type Caller = Auditor | Sender | Other | undefined;

/** What is stored of a credential, and who its holder is. */
interface Stored {
  readonly secretHash: Buffer;
  readonly revoked: boolean;
  readonly principal: Principal;
}

/** How long an append token is believed without a look at the database. The collector looks at every append. */
const REMEMBER_MS = 5_000;
const REMEMBER_TOKENS = 10_000;
/** Compared with when there is nothing stored, so that an unknown identifier takes the same steps. */
const NOBODY = randomBytes(32);

/** Tells who a bearer credential belongs to. */
export class Authenticator {
  readonly #reader: Reader;
  readonly #now: () => number;
  readonly #remembered = new Map<string, { readonly until: number; readonly stored: Stored }>();

  constructor(reader: Reader, now: () => number) {
    this.#reader = reader;
    this.#now = now;
  }

  /**
   * The principal of an `Authorization` header. Throws `unauthenticated` for everything that is not a credential of
   * ours with its right secret, without saying which part was wrong; only who knows the secret learns that it was
   * revoked or has expired.
   */
  async authenticate(header: string): Promise<Principal> {
    const credential = parse(header);
    const stored = await this.#find(credential);
    const matches = timingSafeEqual(secretHash(credential.secret), stored?.secretHash ?? NOBODY);
    if (!stored || !matches || !sameText(credential, stored.principal)) throw unauthenticated();
    if (stored.revoked) throw new ProblemError('token_revoked', 'This credential was revoked.');
    const { principal } = stored;
    if (principal.kind === 'append' && principal.expires && principal.expires.getTime() <= this.#now()) {
      throw new ProblemError('token_expired', 'This token has expired.');
    }
    return principal;
  }

  async #find(credential: Credential): Promise<Stored | undefined> {
    const { id } = credential;
    if (credential.kind === 'append') return this.#findToken(id);
    if (credential.kind === 'auditor') {
      const row = await this.#reader.auditor(id);
      return row && { ...row, principal: { kind: 'auditor', id, log: row.log } };
    }
    if (credential.kind === 'admin') {
      const row = await this.#reader.adminKey(id);
      return row && { ...row, principal: { kind: 'admin', id, tenant: row.tenant } };
    }
    const row = await this.#reader.operator(id);
    return row && { ...row, revoked: false, principal: { kind: 'operator', id } };
  }

  async #findToken(id: string): Promise<Stored | undefined> {
    const remembered = this.#remembered.get(id);
    if (remembered && remembered.until > this.#now()) return remembered.stored;
    this.#remembered.delete(id);
    const row = await this.#reader.appendToken(id);
    if (!row) return undefined;
    const { secretHash: hash, revoked, role, sinks, domain, expires, rate, log } = row;
    const stored: Stored = {
      secretHash: hash,
      revoked,
      principal: { kind: 'append', id, role, sinks, domain, expires, rate, log },
    };
    if (this.#remembered.size >= REMEMBER_TOKENS) this.#remembered.clear();
    this.#remembered.set(id, { until: this.#now() + REMEMBER_MS, stored });
    return stored;
  }
}

function parse(header: string): Credential {
  const [, text] = /^Bearer +([^\s]+) *$/i.exec(header) ?? [];
  if (text === undefined) throw unauthenticated();
  try {
    return parseCredential(text);
  } catch (error) {
    // The checksum and its kin are computed from the text alone: saying so helps with a cut paste and tells nothing.
    if (error instanceof CredentialError) throw unauthenticated(error.message);
    throw error;
  }
}

/** What a token's text says of where it belongs has to be what it was issued with. */
function sameText(credential: Credential, principal: Principal): boolean {
  if (credential.kind === 'operator' || credential.kind === 'admin') return true;
  if (principal.kind !== 'append' && principal.kind !== 'auditor') return false;
  const { log } = principal;
  return (
    credential.project === log.project &&
    credential.origin === log.origin &&
    credential.publicKey.equals(log.publicKey)
  );
}

export function unauthenticated(
  detail = 'A valid credential is needed: Authorization: Bearer belay_...',
): ProblemError {
  return new ProblemError('unauthenticated', detail);
}

export type Allowed = CredentialKind | 'anyone';

/** Throws unless the route takes this kind of credential: decided before any identifier in the request is looked at. */
export async function admit(
  authenticator: Authenticator,
  header: string | undefined,
  allowed: readonly Allowed[],
): Promise<Principal | Other | undefined> {
  if (header === undefined) {
    if (allowed.includes('anyone')) return undefined;
    throw unauthenticated();
  }
  // A route for everyone does not care what else was sent, unless it has more to show to some.
  if (allowed.length === 1 && allowed[0] === 'anyone') return undefined;
  const principal = await authenticator.authenticate(header);
  if (allowed.includes(principal.kind)) return principal;
  if (allowed.includes('anyone')) return { kind: 'other', allowed };
  throw forbidden(allowed);
}

export function forbidden(allowed: readonly Allowed[]): ProblemError {
  return new ProblemError(
    'forbidden',
    `This is for ${allowed.filter((kind) => kind !== 'anyone').join(' or ')} credentials.`,
  );
}
