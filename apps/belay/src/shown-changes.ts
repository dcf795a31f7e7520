/** Changes of a workspace as reports show them: what can be read as text with a diff, of the rest why it can't. */

import type { Change, Contents } from '@belay/replay';
import { unifiedDiff } from './text-diff.js';
import type { ShownChange } from './verification.js';

/** Larger texts have no diff; bytes. And so many diffs are made of one interval. */
const MAX_TEXT = 256 * 1024;
const MAX_DIFFS = 50;

export function shownChanges(changes: readonly Change[], contents: Contents): ShownChange[] {
  return changes.map((change, i) => {
    const { path, what } = change;
    if (what === 'metadata' || (change.before ?? change.after)?.type === 'dir') return { path, what };
    if (i >= MAX_DIFFS) return { path, what, without: 'large' };
    const [before, after] = [textOf(change.before, contents), textOf(change.after, contents)];
    if (typeof before === 'object') return { path, what, ...before };
    if (typeof after === 'object') return { path, what, ...after };
    return { path, what, diff: unifiedDiff(path, before, after) };
  });
}

function textOf(side: Change['before'], contents: Contents): string | Pick<ShownChange, 'without'> {
  if (side === undefined) return '';
  if (side.target !== undefined) return `-> ${side.target}\n`;
  if (side.content === undefined) return '';
  const bytes = contents.get(side.content);
  if (bytes === undefined) return { without: 'unknown' };
  if (bytes.length > MAX_TEXT) return { without: 'large' };
  const text = bytes.toString('utf8');
  return text.includes('\0') || !Buffer.from(text, 'utf8').equals(bytes) ? { without: 'binary' } : text;
}
