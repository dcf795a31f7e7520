/** Differences of states for a person, with the lines of text files that changed, and as a document. */

import { constants, closeSync, openSync, readFileSync } from 'node:fs';
import type { Difference, Entry, StateDifference, Store } from '@belay/snapshot';
import { printable, type Style } from './output.js';
import { unifiedDiff } from './text-diff.js';

/** Larger files, or such with more than a little that is no text, are told by size only. */
const TEXT_BYTES = 256 * 1024;
/** Lines shown of one file, and of all. */
const FILE_LINES = 200;
const ALL_LINES = 5_000;

export interface ShownDiff {
  readonly from: string;
  /** Undefined: the workspace as it is. */
  readonly to: string | undefined;
  readonly roots: readonly StateDifference[];
  /** Also what differs in nothing but its time. */
  readonly times: boolean;
}

export const onlyTimes = ({ fields }: Difference): boolean => fields.length === 1 && fields[0] === 'mtime';

/** Bytes as text where they are text; else also as they are. */
const named = (name: string, bytes: Buffer): Record<string, string> => {
  const text = bytes.toString();
  return Buffer.from(text).equals(bytes)
    ? { [name]: text }
    : { [name]: text, [`${name}Base64`]: bytes.toString('base64') };
};

const entryDocument = (entry: Entry): unknown => ({
  type: entry.type,
  mode: `0${entry.mode.toString(8)}`,
  uid: entry.uid,
  gid: entry.gid,
  mtime: entry.mtime.toString(),
  ...(entry.size === undefined ? {} : { size: entry.size }),
  ...(entry.content ? { sha256: entry.content.toString('hex') } : {}),
  ...(entry.target ? named('target', entry.target) : {}),
  ...(entry.linkGroup ? named('linkGroup', entry.linkGroup) : {}),
  ...(entry.xattrs
    ? {
        xattrs: entry.xattrs.map(([key, value]) => ({
          ...named('name', key),
          value: value.toString('base64'),
        })),
      }
    : {}),
});

export function diffDocument({ from, to, roots, times }: ShownDiff): unknown {
  return {
    from,
    to: to ?? 'workspace',
    roots: roots.map(({ root, in: where, differences }) => {
      const shown = differences.filter((each) => times || !onlyTimes(each));
      return {
        ...named('root', root),
        in: where,
        timesOnly: differences.filter(onlyTimes).length,
        differences: shown.map(({ path, what, fields, before, after }) => ({
          ...named('path', path),
          what,
          fields,
          ...(before ? { before: entryDocument(before) } : {}),
          ...(after ? { after: entryDocument(after) } : {}),
        })),
      };
    }),
  };
}

const MARK: Readonly<Record<Difference['what'], string>> = {
  created: 'A',
  deleted: 'D',
  modified: 'M',
  metadata: 'm',
  type: 'T',
};

export function diffText(
  { from, to, roots, times }: ShownDiff,
  store: Store,
  style: Style,
  namesOnly: boolean,
): string {
  const parts: string[] = [];
  let [left, count, hidden] = [ALL_LINES, 0, 0];
  for (const { root, in: where, differences } of roots) {
    if (roots.length > 1 || where !== 'both') {
      const told = where === 'both' ? '' : `  (only ${where === 'after' ? 'in the second' : 'in the first'})`;
      parts.push(`${style.bold(printable(root.toString()))}${told}\n`);
    }
    for (const each of differences) {
      if (!times && onlyTimes(each)) {
        hidden++;
        continue;
      }
      count++;
      parts.push(lineOf(each, style));
      if (namesOnly || left <= 0) continue;
      const lines = textOf(each, root, to, store);
      left -= lines.length;
      parts.push(...lines.map((line) => `${colouredLine(line, style)}\n`));
    }
  }
  if (left <= 0 && !namesOnly) parts.push('(more lines are not shown)\n');
  const other = to === undefined ? 'the workspace as it is' : to.slice(7, 19);
  parts.push(
    count === 0
      ? `no difference between ${from.slice(7, 19)} and ${other}${hidden === 0 ? '' : ` but ${hidden} times`}\n`
      : `${count} ${count === 1 ? 'path differs' : 'paths differ'} between ${from.slice(7, 19)} and ${other}${hidden === 0 ? '' : `; of ${hidden} more only the time (--times)`}\n`,
  );
  return parts.join('');
}

function lineOf({ path, what, fields, before, after }: Difference, style: Style): string {
  const colour = what === 'created' ? style.good : what === 'deleted' ? style.bad : style.warn;
  const name = path.length === 0 ? '.' : printable(path.toString());
  return `${colour(MARK[what])} ${name}${detailOf(fields, before, after)}\n`;
}

function detailOf(fields: Difference['fields'], before: Entry | undefined, after: Entry | undefined): string {
  if (!before || !after) {
    const only = before ?? after;
    const kind =
      only?.type === 'dir'
        ? 'folder'
        : only?.type === 'link'
          ? `link to ${printable(String(only.target))}`
          : `${only?.size} bytes`;
    return `  (${kind})`;
  }
  const told = fields.flatMap((field) => {
    if (field === 'type') return `${before.type} -> ${after.type}`;
    if (field === 'content')
      return before.size === after.size ? `${after.size} bytes` : `${before.size} -> ${after.size} bytes`;
    if (field === 'target')
      return `link to ${printable(String(before.target))} -> ${printable(String(after.target))}`;
    if (field === 'mode') return `mode ${before.mode.toString(8)} -> ${after.mode.toString(8)}`;
    if (field === 'uid' || field === 'gid') return `${field} ${before[field]} -> ${after[field]}`;
    if (field === 'linkGroup') return 'hard links';
    if (field === 'xattrs') return 'attributes';
    return field === 'mtime' && fields.length === 1 ? 'time' : [];
  });
  return told.length === 0 ? '' : `  (${told.join(', ')})`;
}

/** The lines of a text file that came, went or changed; none where it is no text, or too long. */
function textOf(each: Difference, root: Buffer, to: string | undefined, store: Store): string[] {
  if (each.what === 'metadata' || each.what === 'type') return [];
  const before = contentOf(each.before, store);
  const after = to === undefined ? onDisk(each.after, root) : contentOf(each.after, store);
  if (before === undefined || after === undefined) return [];
  const lines = unifiedDiff(printable(each.path.toString()), before, after).split('\n');
  // The path is in the line above.
  const shown = lines.slice(2, 2 + FILE_LINES).filter((line, i, all) => i < all.length - 1 || line !== '');
  return lines.length > 2 + FILE_LINES
    ? [...shown, `... ${lines.length - 2 - FILE_LINES} more lines`]
    : shown;
}

/** Empty for what is not there; undefined for what is no short text. */
function contentOf(entry: Entry | undefined, store: Store): string | undefined {
  if (!entry) return '';
  if (entry.type !== 'file' || entry.content === undefined || (entry.size ?? 0) > TEXT_BYTES)
    return undefined;
  return asText(store.content(entry.content));
}

function onDisk(entry: Entry | undefined, root: Buffer): string | undefined {
  if (!entry) return '';
  if (entry.type !== 'file' || (entry.size ?? 0) > TEXT_BYTES) return undefined;
  const path = Buffer.concat([root, Buffer.from('/'), entry.path]);
  try {
    const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      return asText(readFileSync(fd));
    } finally {
      closeSync(fd);
    }
  } catch {
    // It went away since it was looked at.
    return undefined;
  }
}

function asText(bytes: Buffer): string | undefined {
  if (bytes.includes(0)) return undefined;
  const text = bytes.toString();
  return text.includes('\ufffd') ? undefined : text;
}

function colouredLine(line: string, style: Style): string {
  // Tabs are no harm in a line of a program.
  const text = `  ${line.split('\t').map(printable).join('\t')}`;
  if (line.startsWith('+')) return style.good(text);
  return line.startsWith('-') ? style.bad(text) : line.startsWith('@') ? style.dim(text) : text;
}
