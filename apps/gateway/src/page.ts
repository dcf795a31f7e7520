import { ProblemError } from './problem.js';

const DEFAULT_LIMIT = 100;
export const MAX_LIMIT = 1000;

/** What a list says of its parameters. */
export const PAGING = {
  cursor: 'Where the page begins, as `next` of the one before',
  limit: `At most ${MAX_LIMIT}; default ${DEFAULT_LIMIT}`,
};

/** `limit` of a list. Throws `invalid`. */
export function parseLimit(text: string | undefined): number {
  if (text === undefined) return DEFAULT_LIMIT;
  const limit = parseIndex(text, 'limit');
  if (limit < 1 || limit > MAX_LIMIT)
    throw new ProblemError('invalid', `limit is 1 to ${MAX_LIMIT}`, { field: 'limit' });
  return limit;
}

/** A number of ours in a query. Throws `invalid`. */
export function parseIndex(text: string, field: string): number {
  if (!isIndex(text)) throw new ProblemError('invalid', `${field} is a number from 0`, { field });
  return Number(text);
}

/** Opaque to callers, who must not build one: what is in it may change from one version to the next. */
export function formatCursor(kind: string, position: string): string {
  return Buffer.from(`${kind}:${position}`).toString('base64url');
}

/**
 * The position in a cursor of this list, undefined without a cursor. Throws `invalid` for any other text, and for a
 * position that is none in this kind of list.
 */
export function parseCursor(
  kind: string,
  cursor: string | undefined,
  isPosition: (text: string) => boolean,
): string | undefined {
  if (cursor === undefined) return undefined;
  const text = cursor.length <= 200 ? Buffer.from(cursor, 'base64url').toString('utf8') : '';
  const position = text.slice(kind.length + 1);
  if (text !== `${kind}:${position}` || !isPosition(position)) {
    throw new ProblemError('invalid', 'cursor is not one that this list gave', { field: 'cursor' });
  }
  return position;
}

/** Whether the text is a number of ours: decimal, no sign, no leading zero, below 2^53. */
export function isIndex(text: string): boolean {
  return /^(?:0|[1-9][0-9]{0,15})$/.test(text) && Number.isSafeInteger(Number(text));
}
