/**
 * Keys at rest and the keys derived from them. `@belay/keys/x509` has the certificates, apart because of what it
 * has to load.
 */
export { deriveLogSeed, SEED_BYTES } from './derive.js';
export { KeysError, type KeysErrorCode } from './error.js';
export { createKeyFile, type KeyFileOptions, loadOrCreateKeyFile, readKeyFile } from './key-file.js';
export { privateKeyObject, publicKeyObject, rawPublicKey } from '@belay/note';
