/** Why a key or a certificate could not be had. */
export type KeysErrorCode =
  /** The file is not there. */
  | 'missing'
  /** The file is there already and would have been overwritten. */
  | 'exists'
  /** Others than the owner can read or write the file. */
  | 'permissions'
  /** The file is not a key file, or of another purpose, or of a version that this code does not know. */
  | 'malformed'
  /** A passphrase is needed, wrong, or given for a file that is not sealed. */
  | 'passphrase'
  /** A certificate is not what the key beside it or its issuer says. */
  | 'certificate';

/** The only error that this package throws on purpose. Never carries key material. */
export class KeysError extends Error {
  readonly code: KeysErrorCode;

  constructor(code: KeysErrorCode, message: string) {
    super(message);
    this.name = 'KeysError';
    this.code = code;
  }
}
