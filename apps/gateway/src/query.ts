import { SESSION_DISPOSITIONS } from '@belay/receipt';
import { isIndex } from './page.js';
import { ProblemError } from './problem.js';
import { MAX_WAIT_SECONDS } from './waiting.js';

/** Parameters of a query as they came: a name that is there twice is an array. */
export type Query = Readonly<Record<string, string | string[] | undefined>>;

const SESSION = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

/** The values of parameters; throws `invalid` for one that the route does not have, and for one that is there twice. */
export function reader<const Name extends string>(
  query: Query,
  ...names: readonly Name[]
): (name: Name) => string | undefined {
  const known: readonly string[] = names;
  const stranger = Object.keys(query).find((name) => !known.includes(name));
  if (stranger !== undefined) {
    throw new ProblemError('invalid', `there is no such parameter here; there are ${names.join(', ')}`, {
      field: stranger.slice(0, 64),
    });
  }
  const values = new Map<string, string>();
  for (const [name, value] of Object.entries(query)) {
    if (typeof value === 'string') values.set(name, value);
    else if (value !== undefined) throw new ProblemError('invalid', `${name} is given once`, { field: name });
  }
  return (name) => values.get(name);
}

/** Whether the text can name a session. */
export function isSessionName(text: string): boolean {
  return SESSION.test(text);
}

/** Throws `invalid`. */
export function parseSession(text: string): string {
  if (isSessionName(text)) return text;
  throw new ProblemError('invalid', 'a session name: 1-128 of A-Z a-z 0-9 . _ : -', { field: 'session' });
}

/** Seconds to wait; 0 without the parameter. Throws `invalid`. */
export function parseWait(text: string | undefined): number {
  if (text === undefined) return 0;
  const seconds = isIndex(text) ? Number(text) : Number.NaN;
  if (seconds <= MAX_WAIT_SECONDS) return seconds;
  throw new ProblemError('invalid', `wait is 0 to ${MAX_WAIT_SECONDS} seconds`, { field: 'wait' });
}

const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/;

/** An RFC 3339 time, to the millisecond. Throws `invalid`. */
export function parseTime(text: string, field: string): Date {
  const time = TIME.test(text) ? new Date(text) : undefined;
  if (time !== undefined && !Number.isNaN(time.getTime())) return time;
  throw new ProblemError('invalid', `${field} is a time, such as 2026-01-31T00:00:00Z`, { field });
}

/** `FROM..TO`, half open. Throws `invalid`. */
export function parsePeriod(text: string): { readonly from: string; readonly to: string } {
  const [, a = '', b = ''] = /^([^.]+(?:\.\d+)?[^.]*)\.\.([^.]+(?:\.\d+)?[^.]*)$/.exec(text) ?? [];
  const from = parseTime(a, 'period');
  const to = parseTime(b, 'period');
  if (from >= to)
    throw new ProblemError('invalid', 'period=FROM..TO ends before it begins', { field: 'period' });
  return { from: from.toISOString(), to: to.toISOString() };
}

/** Throws `invalid`. */
export function parseDisposition(text: string): (typeof SESSION_DISPOSITIONS)[number] {
  const found = SESSION_DISPOSITIONS.find((each) => each === text);
  if (found) return found;
  throw new ProblemError('invalid', `disposition is one of ${SESSION_DISPOSITIONS.join(', ')}`, {
    field: 'disposition',
  });
}
