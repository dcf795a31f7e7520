/**
 * The certificate chain over log keys: a root that readers pin, an issuer, and one certificate per log whose
 * subject alternative name is the log's origin. Ed25519 throughout.
 */
export { type AuthorityFiles, loadOrCreateAuthority } from './authority-files.js';
export {
  type Authority,
  createIssuer,
  createRoot,
  issueLogCertificate,
  originUri,
  toPem,
  type Validity,
} from './certificate.js';
