import { CoverageError } from './error.js';

/** Reads a value of a closed form; throws CoverageError `malformed` that names `where`, never the value. */
export type Reader<T> = (value: unknown, where: string) => T;

type Values<R extends Record<string, Reader<unknown>>> = {
  readonly [K in keyof R]: R[K] extends Reader<infer T> ? T : never;
};

/** The value, if the reader takes it. */
export function read<T>(reader: Reader<T>, value: unknown, where: string): T {
  return reader(value, where);
}

function refuse(where: string, right: string): never {
  throw new CoverageError('malformed', `${where} is not ${right}`);
}

/** An integer from `least` to `most`. */
export function integer(least = 0, most = Number.MAX_SAFE_INTEGER): Reader<number> {
  return (value, where) =>
    Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most
      ? (value as number)
      : refuse(where, `an integer from ${least} to ${most}`);
}

export const boolean: Reader<boolean> = (value, where) =>
  typeof value === 'boolean' ? value : refuse(where, 'true or false');

/** A string that the whole of `pattern` matches. */
export function matches(pattern: RegExp): Reader<string> {
  return (value, where) =>
    typeof value === 'string' && pattern.test(value) ? value : refuse(where, 'of its form');
}

/** One of some constants. */
export function word<const T extends string | number | boolean>(...allowed: readonly T[]): Reader<T> {
  return (value, where) =>
    allowed.find((each) => each === value) ?? refuse(where, `one of ${allowed.join(', ')}`);
}

export function array<T>(item: Reader<T>, least = 0, most = Number.MAX_SAFE_INTEGER): Reader<readonly T[]> {
  return (value, where) => {
    if (!Array.isArray(value) || value.length < least || value.length > most) {
      return refuse(where, `an array of ${least} to ${most}`);
    }
    return value.map((each, i) => item(each, `${where}[${i}]`));
  };
}

type Readers = Record<string, Reader<unknown>>;

/** An object that has these members and no others. */
export function object<R extends Readers>(required: R): Reader<Values<R>> {
  return partly(required, {});
}

/** An object that has the required members, and may have the optional ones, and no others. */
export function partly<R extends Readers, O extends Readers>(
  required: R,
  optional: O,
): Reader<Values<R> & Partial<Values<O>>> {
  const all = new Map<string, Reader<unknown>>(Object.entries({ ...required, ...optional }));
  return (value, where) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      return refuse(where, 'an object');
    const members = value as Record<string, unknown>;
    const result: Record<string, unknown> = {};
    for (const key of Object.keys(members)) {
      const reader = all.get(key);
      if (reader === undefined) throw new CoverageError('malformed', `${where} has an unknown member`);
      result[key] = reader(members[key], `${where}.${key}`);
    }
    for (const key of Object.keys(required)) {
      if (!Object.hasOwn(members, key)) throw new CoverageError('malformed', `${where} has no ${key}`);
    }
    return result as Values<R> & Partial<Values<O>>;
  };
}

/** An object of string keys that match, all with values of one form. */
export function record<T>(key: RegExp, item: Reader<T>): Reader<Readonly<Record<string, T>>> {
  return (value, where) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      return refuse(where, 'an object');
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => {
        if (!key.test(name)) throw new CoverageError('malformed', `${where} has an unknown member`);
        return [name, item(member, `${where}.${name}`)];
      }),
    );
  };
}

/** One of several forms, told apart by the member `tag`. */
export function tagged<T>(tag: string, forms: Readonly<Record<string, Reader<T>>>): Reader<T> {
  return (value, where) => {
    const name = (value as Record<string, unknown> | null | undefined)?.[tag];
    const form = typeof name === 'string' && Object.hasOwn(forms, name) ? forms[name] : undefined;
    return form === undefined ? refuse(`${where}.${tag}`, 'a known one') : form(value, where);
  };
}
