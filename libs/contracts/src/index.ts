/**
 * What crosses a process of Belay. This door is types, limits and credentials: the sidecar imports it, so nothing
 * behind it loads zod. The HTTP schemas are `@belay/contracts/http`, the frames on NATS `@belay/contracts/rpc`,
 * and `@belay/contracts/credential` is the credentials alone.
 */
export {
  type AdminCredential,
  type AppendCredential,
  type AuditorCredential,
  type Credential,
  CredentialError,
  type CredentialErrorCode,
  type CredentialKind,
  formatCredential,
  type OperatorCredential,
  parseCredential,
  redactCredentials,
  SECRET_BYTES,
  secretHash,
} from './credential.js';
export { draftOperator } from './operator.js';
export { type Identifier, identifier, identifierBytes, isIdentifier, newIdentifier } from './identifier.js';
export type {
  Ack,
  AckRun,
  AppendRequest,
  Change,
  ChangeReply,
  CheckpointReply,
  CollectorApi,
  CollectorFault,
  ExportReply,
  IssueReply,
  LineRefusal,
  Outcome,
  RangeHashes,
  ReceiptReply,
  ReceiptScope,
  RecordReply,
  StaleFault,
  StatementRecord,
  TokenRole,
} from './rpc.js';
