import { createHash, hash } from 'node:crypto';
import { canonical } from './canonical.js';
import { mac, macHex } from './mac.js';

/** Content up to this size is put behind its salt and hashed at once. */
const ROOM = Buffer.alloc(16 * 1024);

/** Salt of one line's commitment (32 bytes): keyed by the epoch's secret, so opening one says nothing of the others. */
export function commitmentSalt(epochSecret: Buffer, seq: number): Buffer {
  if (epochSecret.length !== 32) throw new RangeError('an epoch secret is 32 bytes');
  if (!Number.isSafeInteger(seq) || seq < 1) throw new RangeError('seq is an integer from 1 to 2^53 - 1');
  return mac(epochSecret, `belay/salt/v1\n${seq}`);
}

/** `sha256:` commitment to content under a salt, FORMAT.md section 3. */
export function commitment(salt: Buffer, content: Uint8Array): string {
  const length = salt.length + content.length;
  if (length > ROOM.length)
    return `sha256:${createHash('sha256').update(salt).update(content).digest('hex')}`;
  ROOM.set(salt);
  ROOM.set(content, salt.length);
  return `sha256:${hash('sha256', ROOM.subarray(0, length), 'hex')}`;
}

/** The envelope's `session` for a run that the agent itself has an id for, so that all its sinks name it alike. */
export function sessionId(machineSecret: Buffer, agentSession: string): string {
  return keyed(machineSecret, `belay/session-id/v1\n${agentSession}`);
}

/** Key of a session's `call` and `match` identifiers (32 bytes), FORMAT.md section 4. */
export function sessionKey(machineSecret: Buffer, session: string): Buffer {
  if (machineSecret.length !== 32) throw new RangeError('a machine secret is 32 bytes');
  return mac(machineSecret, `belay/session/v1\n${session}`);
}

/** `call` where the sinks share the agent's own tool-use id. */
export function callId(key: Buffer, toolUseId: string): string {
  return keyed(key, `belay/call/v1\n${toolUseId}`);
}

/**
 * A tool's name as every sink writes it: hooks say `mcp__server__tool` for what a proxy knows as `tool`, and clients
 * put `_` where their model's API takes no other character.
 */
export function normalisedTool(name: string): string {
  const bare = /^mcp__.+?__(.+)$/s.exec(name)?.[1] ?? name;
  return bare.replaceAll(/[^A-Za-z0-9_-]/g, '_');
}

/** `call` by tool, arguments and how many equal ones came before it (`occurrence` counts from 1). */
export function weakCallId(key: Buffer, tool: string, occurrence: number, args: unknown): string {
  return `weak:${keyed(key, `belay/weak-call/v1\n${tool}\n${occurrence}\n${canonical(args)}`)}`;
}

/** `match`: equal in every sink of the session that saw the same JSON value. */
export function matchId(key: Buffer, content: unknown): string {
  return keyed(key, `belay/match/v1\n${canonical(content)}`);
}

/** `attrs.state`: the digest of a workspace's state (`sha256:` and hex), for those who have the key of the session. */
export function stateId(key: Buffer, digest: string): string {
  return keyed(key, `belay/state/v1\n${digest}`);
}

function keyed(key: Buffer, message: string): string {
  return `hmac-sha256:${macHex(key, message)}`;
}
