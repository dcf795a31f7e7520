/**
 * MCP servers in the configuration files of clients, and the edits that put `belay proxy` in front of them or take it
 * away again. Pure: text in, text out, by spans, so that comments, indentation, key order, trailing commas, line ends
 * and a byte order mark stay as they are.
 *
 *     "command": "npx",                  "command": "/usr/bin/node",
 *     "args": ["-y", "server", "/w"]     "args": ["/opt/belay/bin/belay.js", "proxy", "--sink", "proxy", "--",
 *                                                 "npx", "-y", "server", "/w"]
 *
 * The original command stands in the wrapped entry as the very token it was, so taking `belay proxy` away needs no
 * memory of it, and whatever else was changed meanwhile stays.
 */

import {
  applyEdits,
  type Edit,
  type JsoncArray,
  type JsoncMember,
  type JsoncNode,
  type JsoncObject,
  type JsoncString,
  parseJsonc,
} from './jsonc.js';

/** What an entry is to us. */
export type ServerState =
  /** Started by a command: can be wrapped. */
  | 'stdio'
  /** Started by a command behind `belay proxy`. */
  | 'wrapped'
  /** Reached by a URL: no command to stand in front of. */
  | 'remote'
  /** Neither, or written in a way that can't be edited without guessing; `why` says it. */
  | 'unreadable';

/** One server of a configuration. */
export interface ConfiguredServer {
  /** Keys from the top of the document, such as `mcpServers`, `files`. */
  readonly path: readonly string[];
  readonly name: string;
  readonly state: ServerState;
  readonly why?: string;
}

interface Stdio extends ConfiguredServer {
  readonly command: JsoncMember & { readonly value: JsoncString };
  readonly args: (Omit<JsoncMember, 'value'> & { readonly value: StringArray }) | undefined;
  /** Index in `args` of the wrapped command. */
  readonly inner?: number;
  readonly entry: JsoncObject;
}

type StringArray = JsoncArray<JsoncString>;
type Found = ConfiguredServer | Stdio;

const isStdio = (server: Found): server is Stdio => 'command' in server;

/** A member by its key; `twice` when it stands there more than once and readers may disagree on which one counts. */
function member(object: JsoncObject, key: string): JsoncMember | 'twice' | undefined {
  const all = object.members.filter((each) => each.key.value === key);
  return all.length > 1 ? 'twice' : all[0];
}

function objectAt(node: JsoncNode | undefined, ...path: readonly string[]): JsoncObject | undefined {
  let at = node;
  for (const key of path) {
    if (at?.type !== 'object') return undefined;
    const found = member(at, key);
    if (found === undefined || found === 'twice') return undefined;
    at = found.value;
  }
  return at?.type === 'object' ? at : undefined;
}

/** Tables of servers: `mcpServers` of most clients, `servers` of VS Code, and those of each project of Claude Code. */
function tablesOf(root: JsoncNode): { readonly path: readonly string[]; readonly table: JsoncObject }[] {
  const projects = objectAt(root, 'projects');
  const paths = [
    ['mcpServers'],
    ['servers'],
    ['mcp', 'servers'],
    ...(projects?.members.map(({ key }) => ['projects', key.value, 'mcpServers']) ?? []),
  ];
  return paths.flatMap((path) => {
    const table = objectAt(root, ...path);
    return table === undefined ? [] : [{ path, table }];
  });
}

function findServers(root: JsoncNode): Found[] {
  return tablesOf(root).flatMap(({ path, table }) => {
    const names = table.members.map(({ key }) => key.value);
    return table.members.map(({ key, value }) => {
      const base = { path: [...path, key.value], name: key.value };
      const twice = names.filter((name) => name === key.value).length > 1;
      return twice ? unreadable(base, 'the name stands there twice') : readServer(base, value);
    });
  });
}

type Base = Pick<ConfiguredServer, 'path' | 'name'>;

const unreadable = (base: Base, why: string): ConfiguredServer => ({ ...base, state: 'unreadable', why });

function readServer(base: Base, entry: JsoncNode): Found {
  if (entry.type !== 'object') return unreadable(base, 'the entry is not an object');
  const command = member(entry, 'command');
  const args = member(entry, 'args');
  if (command === 'twice' || args === 'twice')
    return unreadable(base, '`command` or `args` stands there twice');
  if (command === undefined) {
    const remote = ['url', 'serverUrl', 'httpUrl'].some((key) => member(entry, key) !== undefined);
    return remote
      ? { ...base, state: 'remote' }
      : unreadable(base, 'there is neither a `command` nor a `url`');
  }
  if (!isStringMember(command)) return unreadable(base, '`command` is not a string');
  if (args !== undefined && !isStringsMember(args))
    return unreadable(base, '`args` is not a list of strings');
  const inner = innerCommand(
    command.value.value,
    args === undefined ? [] : args.value.items.map(({ value }) => value),
  );
  return {
    ...base,
    state: inner === undefined ? 'stdio' : 'wrapped',
    command,
    args,
    entry,
    ...(inner === undefined ? {} : { inner }),
  };
}

const isStringMember = (each: JsoncMember): each is JsoncMember & { value: JsoncString } =>
  each.value.type === 'string';
const isStringsMember = (each: JsoncMember): each is Omit<JsoncMember, 'value'> & { value: StringArray } =>
  each.value.type === 'array' && each.value.items.every(({ type }) => type === 'string');

/** How the belay command is called in an entry, whoever wrote it. */
const BELAY = /^(?:.*[\\/])?belay(?:\.js|\.cmd|\.exe|\.ps1)?$/i;

/** Where in `args` the command behind a `belay proxy ... --` stands; undefined when there is none. */
function innerCommand(command: string, args: readonly string[]): number | undefined {
  const proxy = args.indexOf('proxy');
  const program = proxy <= 0 ? command : args[proxy - 1];
  if (proxy < 0 || program === undefined || !BELAY.test(program)) return undefined;
  const separator = args.indexOf('--', proxy);
  return separator >= 0 && separator + 1 < args.length ? separator + 1 : undefined;
}

/** Servers of a configuration in order of the text. Throws JsoncError. */
export function configuredServers(text: string): ConfiguredServer[] {
  return findServers(parseJsonc(text)).map(({ path, name, state, why }) => ({
    path,
    name,
    state,
    ...(why === undefined ? {} : { why }),
  }));
}

/** A text with edits applied, and which servers they are of. */
export interface Plan {
  readonly text: string;
  readonly edits: readonly Edit[];
  readonly changed: readonly ConfiguredServer[];
  /** Paths of servers that had no `args` before they were wrapped: the only thing that unwrapping has to be told. */
  readonly argsAdded: readonly (readonly string[])[];
}

/**
 * Puts `[command, ...args]` of `launcher`, whose last argument is `--`, in front of every stdio server that `wanted`
 * accepts. What is wrapped already stays as it is.
 */
export function planWrap(
  text: string,
  launcher: (server: ConfiguredServer) => readonly [command: string, ...args: string[]],
  wanted: (server: ConfiguredServer) => boolean,
): Plan {
  const edits: Edit[] = [];
  const changed: ConfiguredServer[] = [];
  const argsAdded: (readonly string[])[] = [];
  for (const server of findServers(parseJsonc(text))) {
    if (!isStdio(server) || server.state !== 'stdio' || !wanted(server)) continue;
    const [command, ...args] = launcher(server);
    const value = server.command.value;
    const tokens = [...args.map((each) => JSON.stringify(each)), text.slice(value.start, value.end)];
    edits.push({ start: value.start, end: value.end, text: JSON.stringify(command) });
    if (server.args === undefined) {
      edits.push(addArgs(text, server.command, tokens));
      argsAdded.push(server.path);
    } else {
      edits.push(prepend(text, server.args.value, tokens));
    }
    changed.push(server);
  }
  return { text: applyEdits(text, edits), edits, changed, argsAdded };
}

/** `args` after a `command` that had none, spaced as the command is. */
function addArgs(text: string, command: JsoncMember, tokens: readonly string[]): Edit {
  const { key, value } = command;
  const line = /(?:\r\n|\r|\n)[ \t]*$/.exec(text.slice(0, key.start))?.[0];
  const colon = /^[ \t]*:[ \t]*$/.exec(text.slice(key.end, value.start))?.[0] ?? ': ';
  const [gap, separator] = colon === ':' ? ['', ','] : [' ', ', '];
  return {
    start: value.end,
    end: value.end,
    text: `,${line ?? gap}"args"${colon}[${tokens.join(separator)}]`,
  };
}

/** More items before the first of an array, set apart as those that are there. */
function prepend(text: string, array: JsoncArray, tokens: readonly string[]): Edit {
  const [first, second] = array.items;
  if (first === undefined) {
    return { start: array.start + 1, end: array.start + 1, text: tokens.join(', ') };
  }
  const opening = text.slice(array.start + 1, first.start);
  const between = second === undefined ? '' : text.slice(first.end, second.start);
  const separator = /^\s*,\s*$/.test(between)
    ? between
    : /^[ \t]*(?:\r\n|\r|\n)\s*$/.test(opening)
      ? `,${opening}`
      : ', ';
  return { start: first.start, end: first.start, text: tokens.map((each) => each + separator).join('') };
}

/**
 * Takes `belay proxy` away again from every wrapped server that `wanted` accepts. Of a text that `planWrap` made, and
 * that nobody changed since, this gives back the text that `planWrap` was given.
 */
export function planUnwrap(
  text: string,
  wanted: (server: ConfiguredServer) => boolean,
  argsAdded: readonly (readonly string[])[],
): Plan {
  const edits: Edit[] = [];
  const changed: ConfiguredServer[] = [];
  for (const server of findServers(parseJsonc(text))) {
    if (!isStdio(server) || server.args === undefined || server.inner === undefined || !wanted(server))
      continue;
    const { command, args, inner } = server;
    const original = args.value.items[inner] as JsoncString;
    edits.push({
      start: command.value.start,
      end: command.value.end,
      text: text.slice(original.start, original.end),
    });
    const emptied = args.value.items.length === inner + 1;
    if (emptied && argsAdded.some((path) => samePath(path, server.path))) {
      edits.push(...removeMember(text, server.entry, args));
    } else {
      edits.push(...removeFirst(text, args.value, inner + 1));
    }
    changed.push(server);
  }
  return { text: applyEdits(text, edits), edits, changed, argsAdded: [] };
}

export const samePath = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((key, i) => key === b[i]);

/** Without the first `count` items and what sets them apart. A comment that was put between them stays. */
function removeFirst(text: string, array: JsoncArray, count: number): Edit[] {
  const gone = array.items.slice(0, count);
  const next = array.items[count];
  const end = array.end - 1;
  return gone.flatMap((item, i) => {
    const until = array.items[i + 1]?.start ?? end;
    const after = text.slice(item.end, until);
    if (next === undefined && i === count - 1) {
      // The last of all: what stands before the bracket was there before us, but for a comma that somebody added.
      const comma = /^\s*,/.exec(after)?.[0].length ?? 0;
      return [{ start: item.start, end: item.end + comma, text: '' }];
    }
    if (/^\s*,\s*$/.test(after)) return [{ start: item.start, end: until, text: '' }];
    return [{ start: item.start, end: item.end, text: '' }, ...commaIn(text, item.end, until)];
  });
}

/** Without one member and the comma that set it apart from the one before, or, of the first, from the one after. */
function removeMember(text: string, object: JsoncObject, gone: JsoncMember): Edit[] {
  const index = object.members.indexOf(gone);
  const before = object.members[index - 1];
  const after = object.members[index + 1];
  if (before !== undefined) {
    const { end } = before.value;
    const between = text.slice(end, gone.key.start);
    if (/^\s*,\s*$/.test(between)) return [{ start: end, end: gone.value.end, text: '' }];
    return [...commaIn(text, end, gone.key.start), { start: gone.key.start, end: gone.value.end, text: '' }];
  }
  if (after !== undefined && /^\s*,\s*$/.test(text.slice(gone.value.end, after.key.start))) {
    return [{ start: gone.key.start, end: after.key.start, text: '' }];
  }
  return [
    { start: gone.key.start, end: gone.value.end, text: '' },
    ...(after === undefined ? [] : commaIn(text, gone.value.end, after.key.start)),
  ];
}

/** The one comma that stands between two values, among comments which may hold others. */
function commaIn(text: string, start: number, end: number): Edit[] {
  const blank = /(?:\s|\/\/[^\r\n]*|\/\*[^]*?\*\/)*/y;
  blank.lastIndex = start;
  const at = start + (blank.exec(text)?.[0].length ?? 0);
  return at < end && text[at] === ',' ? [{ start: at, end: at + 1, text: '' }] : [];
}
