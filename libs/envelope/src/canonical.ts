/** Deeper values are refused: the recursion below must not be driven into the stack's end by content. */
const MAX_DEPTH = 512;

const LONE_SURROGATE = /[\uD800-\uDFFF]/u;

/**
 * RFC 8785 (JCS) text of a JSON value: object members sorted by UTF-16 code units, numbers and strings as
 * ECMAScript writes them, nothing else in between. Members that are `undefined` are left out. Throws TypeError on what
 * JSON can't carry: a non-finite number, a lone surrogate, a function, a value nested deeper than 512.
 */
export function canonical(value: unknown): string {
  return write(value, 0);
}

function write(value: unknown, depth: number): string {
  switch (typeof value) {
    case 'string':
      if (LONE_SURROGATE.test(value)) throw new TypeError('canonical JSON has no lone surrogates');
      return JSON.stringify(value);
    case 'number':
      if (!Number.isFinite(value)) throw new TypeError('canonical JSON has finite numbers only');
      return JSON.stringify(value);
    case 'boolean':
      return value ? 'true' : 'false';
    case 'object':
      break;
    default:
      throw new TypeError(`canonical JSON can't carry a ${typeof value}`);
  }
  if (value === null) return 'null';
  if (depth === MAX_DEPTH) throw new TypeError(`canonical JSON nests at most ${MAX_DEPTH} deep`);
  if (Array.isArray(value)) return `[${value.map((item) => write(item, depth + 1)).join(',')}]`;
  const members = value as Record<string, unknown>;
  const parts: string[] = [];
  for (const key of Object.keys(members).sort()) {
    const member = members[key];
    if (member !== undefined) parts.push(`${write(key, depth)}:${write(member, depth + 1)}`);
  }
  return `{${parts.join(',')}}`;
}
