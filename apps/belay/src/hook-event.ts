/** What an agent tells its hooks (Claude Code's JSON, and what is like it), as what we say of it. */

import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { comparedContent, isToolUseId } from './call-identity.js';

/** Names that may leave the machine: others may be anything. */
const EVENTS = new Set([
  'ConfigChange',
  'CwdChanged',
  'Elicitation',
  'ElicitationResult',
  'FileChanged',
  'InstructionsLoaded',
  'Notification',
  'PermissionDenied',
  'PermissionRequest',
  'PostCompact',
  'PostToolUse',
  'PostToolUseFailure',
  'PreCompact',
  'PreToolUse',
  'SessionEnd',
  'SessionStart',
  'Setup',
  'Stop',
  'StopFailure',
  'SubagentStart',
  'SubagentStop',
  'TaskCompleted',
  'TaskCreated',
  'TeammateIdle',
  'UserPromptSubmit',
  'WorktreeCreate',
  'WorktreeRemove',
]);
/** How much of a transcript's end is looked at for the agent's last words. Bytes. */
const TRANSCRIPT_END = 256 * 1024;

/** A tool call as a hook sees it. */
export interface HookTool {
  readonly name: string;
  readonly args: unknown;
  readonly toolUseId: string | undefined;
}

export type HookMeaning =
  | { readonly type: 'session.open' }
  | { readonly type: 'session.close' }
  | { readonly type: 'call'; readonly tool: HookTool }
  | {
      readonly type: 'result';
      readonly tool: HookTool;
      readonly ok: boolean;
      /** What other sinks saw of the result as well; undefined where a hook is told something else. */
      readonly content: unknown;
    }
  | { readonly type: 'claim'; readonly statement: string }
  | { readonly type: 'other' };

export interface HookEvent {
  /** Undefined for a name that is not known. */
  readonly name: string | undefined;
  /** The agent's own id of its run. */
  readonly session: string | undefined;
  readonly meaning: HookMeaning;
}

type Members = Readonly<Record<string, unknown>>;
const membersOf = (value: unknown): Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Members) : {};
const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined;

/** Reads an event. Whatever it is, it is one: what can't be understood means `other`. */
export function readHookEvent(payload: Buffer): HookEvent {
  let value: unknown;
  try {
    value = JSON.parse(payload.toString('utf8'));
  } catch {
    value = undefined;
  }
  const event = membersOf(value);
  const name = textOf(event['hook_event_name']);
  return {
    name: name !== undefined && EVENTS.has(name) ? name : undefined,
    session: textOf(event['session_id']),
    meaning: meaningOf(name, event),
  };
}

function meaningOf(name: string | undefined, event: Members): HookMeaning {
  switch (name) {
    case 'SessionStart':
      return { type: 'session.open' };
    case 'SessionEnd':
      return { type: 'session.close' };
    case 'PreToolUse':
    case 'PostToolUse':
    case 'PostToolUseFailure': {
      const tool = toolOf(event);
      if (tool === undefined) return { type: 'other' };
      if (name === 'PreToolUse') return { type: 'call', tool };
      if (name === 'PostToolUseFailure') return { type: 'result', tool, ok: false, content: undefined };
      const response = event['tool_response'];
      const { is_error: is, isError, success } = membersOf(response);
      const ok = is !== true && isError !== true && success !== false;
      return { type: 'result', tool, ok, content: comparedContent(response) };
    }
    case 'Stop':
    case 'SubagentStop': {
      const statement =
        textOf(event['last_assistant_message']) ??
        lastWords(event[name === 'Stop' ? 'transcript_path' : 'agent_transcript_path']);
      return statement === undefined ? { type: 'other' } : { type: 'claim', statement };
    }
    default:
      return { type: 'other' };
  }
}

function toolOf(event: Members): HookTool | undefined {
  const name = textOf(event['tool_name']);
  if (name === undefined) return undefined;
  const id = event['tool_use_id'];
  return { name, args: event['tool_input'] ?? {}, toolUseId: isToolUseId(id) ? id : undefined };
}

/** The agent's last statement in its transcript (JSON Lines), for agents that don't hand it to the hook. */
function lastWords(path: unknown): string | undefined {
  if (typeof path !== 'string' || !isAbsolute(path)) return undefined;
  try {
    const lines = endOf(path).split('\n');
    for (const line of lines.toReversed()) {
      if (!line.includes('"assistant"')) continue;
      const said = statementIn(line);
      if (said !== undefined) return said;
    }
  } catch {
    // No transcript, no claim.
  }
  return undefined;
}

function statementIn(line: string): string | undefined {
  let entry: Members;
  try {
    entry = membersOf(JSON.parse(line));
  } catch {
    return undefined;
  }
  const { content } = membersOf(entry['message']);
  if (entry['type'] !== 'assistant' || !Array.isArray(content)) return undefined;
  const texts = content.flatMap((block) => {
    const { type, text } = membersOf(block);
    return type === 'text' && typeof text === 'string' ? text : [];
  });
  return texts.length === 0 ? undefined : texts.join('\n');
}

function endOf(path: string): string {
  const fd = openSync(path, 'r');
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) return '';
    const bytes = Buffer.alloc(Math.min(TRANSCRIPT_END, stat.size));
    const read = readSync(fd, bytes, 0, bytes.length, stat.size - bytes.length);
    return bytes.toString('utf8', 0, read);
  } finally {
    closeSync(fd);
  }
}
