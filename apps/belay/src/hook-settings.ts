/**
 * The hooks in a settings file of Claude Code, and the edits that put ours in or take them out. Pure: text in, text
 * out, by spans, so that comments, layout and what others put there stay as they are.
 *
 *     {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "belay hook", "timeout": 10}]}]}}
 */

import {
  applyEdits,
  type Edit,
  type JsoncArray,
  type JsoncMember,
  type JsoncNode,
  type JsoncObject,
  parseJsonc,
  type Span,
} from './jsonc.js';

/** Events that we ask for: whether they are about tools, and so have a matcher. */
const EVENTS: Readonly<Record<string, boolean>> = {
  SessionStart: false,
  UserPromptSubmit: false,
  PreToolUse: true,
  PostToolUse: true,
  PostToolUseFailure: true,
  PermissionRequest: true,
  Notification: false,
  SubagentStop: false,
  PreCompact: false,
  Stop: false,
  SessionEnd: false,
};

/** Seconds after which the agent goes on without us. */
const TIMEOUT = 10;
/** Our command, whoever wrote it. */
const OURS = /(?:^|[\\/'"\s])belay(?:\.js)?['"]? hook(?:\s|$)/;

export interface HooksPlan {
  readonly text: string;
  readonly events: readonly string[];
  /** Paths of members that were made and were not there before. */
  readonly made: readonly (readonly string[])[];
}

/** The settings file has something where hooks would be that is not what it should be. */
export class HooksUnreadable extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'HooksUnreadable';
  }
}

/** Puts `command` behind every event that has none of ours. Throws JsoncError and HooksUnreadable. */
export function planInstall(text: string, command: string): HooksPlan {
  const root = asObject(parseJsonc(text), 'the document');
  const hooks = memberOf(root, 'hooks');
  const unit = /\n([ \t]+)"/.exec(text)?.[1] ?? '  ';
  const eol = text.includes('\r\n') ? '\r\n' : '\n';
  const item = (event: string): string => {
    const hook = { type: 'command', command, timeout: TIMEOUT };
    return JSON.stringify(EVENTS[event] === true ? { matcher: '*', hooks: [hook] } : { hooks: [hook] });
  };
  const asMember = (event: string): string => `${JSON.stringify(event)}: [${item(event)}]`;
  if (hooks === undefined) {
    const events = Object.keys(EVENTS);
    const body = events.map((event) => `${eol}${unit}${unit}${asMember(event)}`).join(',');
    const edit = appended(text, root, root.members.map(span), `"hooks": {${body}${eol}${unit}}`, unit, eol);
    return { text: applyEdits(text, [edit]), events, made: [['hooks']] };
  }
  const table = asObject(hooks.value, '`hooks`');
  const edits: Edit[] = [];
  const events: string[] = [];
  const made: string[][] = [];
  let fresh: string[] = [];
  for (const event of Object.keys(EVENTS)) {
    const member = memberOf(table, event);
    if (member === undefined) {
      fresh = [...fresh, asMember(event)];
      events.push(event);
      made.push(['hooks', event]);
      continue;
    }
    const list = asArray(member.value, `\`hooks.${event}\``);
    if (list.items.some((entry) => oursIn(entry).length > 0)) continue;
    edits.push(appended(text, list, list.items, item(event), unit, eol));
    events.push(event);
  }
  if (fresh.length > 0) {
    const between =
      table.members.length === 0 ? `,${eol}${unit}${unit}` : separatorOf(text, table.members.map(span));
    edits.push(appended(text, table, table.members.map(span), fresh.join(between), unit, eol));
  }
  return { text: applyEdits(text, edits), events, made };
}

/** Takes ours out again, and of what was `made` for them what is empty then. Throws JsoncError and HooksUnreadable. */
export function planUninstall(text: string, made: readonly (readonly string[])[]): HooksPlan {
  const root = asObject(parseJsonc(text), 'the document');
  const hooks = memberOf(root, 'hooks');
  if (hooks?.value.type !== 'object') return { text, events: [], made: [] };
  const table = hooks.value;
  const wasMade = (...path: string[]): boolean => made.some((each) => each.join('\n') === path.join('\n'));
  const edits: Edit[] = [];
  const events: string[] = [];
  const emptied: JsoncMember[] = [];
  for (const member of table.members) {
    if (member.value.type !== 'array') continue;
    const gone = member.value.items.filter((entry) => isWhollyOurs(entry));
    const partly = member.value.items.filter((entry) => !isWhollyOurs(entry) && oursIn(entry).length > 0);
    if (gone.length + partly.length === 0) continue;
    events.push(member.key.value);
    const empty = gone.length === member.value.items.length;
    if (empty && (wasMade('hooks', member.key.value) || wasMade('hooks'))) emptied.push(member);
    else edits.push(...removed(text, member.value, member.value.items, gone));
    for (const entry of partly) {
      const list = hooksOf(entry) as JsoncArray;
      edits.push(...removed(text, list, list.items, oursIn(entry)));
    }
  }
  if (emptied.length > 0 && emptied.length === table.members.length && wasMade('hooks')) {
    const all = removed(text, root, root.members.map(span), [span(hooks)]);
    return { text: applyEdits(text, all), events, made: [] };
  }
  edits.push(...removed(text, table, table.members.map(span), emptied.map(span)));
  return { text: applyEdits(text, edits), events, made: [] };
}

/** Events that our command stands behind. */
export function installedEvents(text: string): string[] {
  const root = parseJsonc(text);
  const hooks = root.type === 'object' ? memberOf(root, 'hooks')?.value : undefined;
  if (hooks?.type !== 'object') return [];
  return hooks.members.flatMap(({ key, value }) =>
    value.type === 'array' && value.items.some((entry) => oursIn(entry).length > 0) ? key.value : [],
  );
}

const span = ({ key, value }: JsoncMember): Span => ({ start: key.start, end: value.end });

function asObject(node: JsoncNode, what: string): JsoncObject {
  if (node.type !== 'object') throw new HooksUnreadable(`${what} is not an object`);
  return node;
}

function asArray(node: JsoncNode, what: string): JsoncArray {
  if (node.type !== 'array') throw new HooksUnreadable(`${what} is not a list`);
  return node;
}

function memberOf(object: JsoncObject, key: string): JsoncMember | undefined {
  const all = object.members.filter((member) => member.key.value === key);
  if (all.length > 1) throw new HooksUnreadable(`\`${key}\` stands there twice`);
  return all[0];
}

function hooksOf(entry: JsoncNode): JsoncArray | undefined {
  const list =
    entry.type === 'object' ? entry.members.find(({ key }) => key.value === 'hooks')?.value : undefined;
  return list?.type === 'array' ? list : undefined;
}

function oursIn(entry: JsoncNode): JsoncNode[] {
  return (hooksOf(entry)?.items ?? []).filter((hook) => {
    const command =
      hook.type === 'object' ? hook.members.find(({ key }) => key.value === 'command')?.value : undefined;
    return command?.type === 'string' && OURS.test(command.value);
  });
}

function isWhollyOurs(entry: JsoncNode): boolean {
  const count = hooksOf(entry)?.items.length ?? 0;
  return count > 0 && oursIn(entry).length === count;
}

/** One more item at the end of an object or a list, set apart as those that are there. */
function appended(
  text: string,
  container: Span,
  items: readonly Span[],
  item: string,
  unit: string,
  eol: string,
): Edit {
  const last = items.at(-1);
  if (last !== undefined) {
    return { start: last.end, end: last.end, text: separatorOf(text, items) + item };
  }
  const at = container.start + 1;
  const inside = text.slice(at, container.end - 1);
  if (container.start > 0 && !/^\s*$/.test(inside)) return { start: at, end: at, text: item };
  const indent = /(?:^|\n)([ \t]*)[^\n]*$/.exec(text.slice(0, container.start))?.[1] ?? '';
  const inner = text[container.start] === '[' ? item : `${eol}${indent}${unit}${item}${eol}${indent}`;
  return { start: at, end: /^\s*$/.test(inside) ? container.end - 1 : at, text: inner };
}

/** The comma and the blanks between two items; of a single one, the blanks before it. */
function separatorOf(text: string, items: readonly Span[]): string {
  const last = items.at(-1) as Span;
  return `,${/\s*$/.exec(text.slice(0, last.start))?.[0] ?? ' '}`;
}

/** Without some items, and the commas that set them apart. */
function removed(text: string, container: Span, items: readonly Span[], gone: readonly Span[]): Edit[] {
  if (gone.length === 0) return [];
  const isGone = (item: Span): boolean => gone.some(({ start }) => start === item.start);
  const inside = { start: container.start + 1, end: container.end - 1 };
  const first = items[0] as Span;
  const last = items.at(-1) as Span;
  const blank = (from: number, to: number): boolean => /^\s*,?\s*$/.test(text.slice(from, to));
  if (items.every(isGone) && blank(inside.start, first.start) && blank(last.end, inside.end)) {
    return [{ ...inside, text: '' }];
  }
  return items.flatMap((item, i): Edit[] => {
    if (!isGone(item)) return [];
    const before = items.slice(0, i).findLast((each) => !isGone(each));
    const previous = items[i - 1];
    const next = items[i + 1];
    if (before !== undefined && previous !== undefined && blank(previous.end, item.start)) {
      return [{ start: previous.end, end: item.end, text: '' }];
    }
    if (next !== undefined && blank(item.end, next.start))
      return [{ start: item.start, end: next.start, text: '' }];
    const comma = /^(?:\s|\/\/[^\r\n]*|\/\*[^]*?\*\/)*,/.exec(text.slice(item.end))?.[0].length;
    return [
      { ...item, text: '' },
      ...(comma === undefined ? [] : [{ start: item.end + comma - 1, end: item.end + comma, text: '' }]),
    ];
  });
}
