import {
  bool,
  digest,
  hash,
  hashes,
  int,
  name,
  nameOrDigest,
  positive,
  ulid,
  words,
  type Rule,
} from './rules.js';

/** What a kind's `attrs` may hold: the closed table of FORMAT.md section 2. */
export interface AttributeTable {
  readonly rules: ReadonlyMap<string, Rule>;
  readonly required: readonly string[];
}

/** Members written with a trailing `!` are required. */
function table(members: Readonly<Record<string, Rule>>): AttributeTable {
  const rules = new Map<string, Rule>();
  const required: string[] = [];
  for (const [key, rule] of Object.entries(members)) {
    const attribute = key.endsWith('!') ? key.slice(0, -1) : key;
    if (attribute !== key) required.push(attribute);
    rules.set(attribute, rule);
  }
  return { rules, required };
}

const STATED = { 'size!': int, 'root!': hash, 'dropped!': int, 'filtered!': int };

const KINDS = {
  'epoch.open': table({
    counter: int,
    prev_epoch: ulid,
    prev_size: int,
    prev_root: hash,
    key: hash,
    sink_kind: words('proxy', 'hook', 'otlp', 'forward', 'verifier', 'other'),
  }),
  'session.open': table({
    agent: name,
    server: name,
    policy: digest,
    sandbox: words('bwrap', 'landlock', 'seatbelt', 'none'),
    network: words('deny', 'loopback', 'ports', 'allow'),
  }),
  call: table({ tool: nameOrDigest, bytes: int, oversize: bool, batch: bool, tooldef: digest }),
  result: table({
    tool: nameOrDigest,
    bytes: int,
    ok: bool,
    error: int,
    error_negative: bool,
    ms: int,
    oversize: bool,
    late: bool,
  }),
  denial: table({ op: name, errno: name, class: name, count: int }),
  state: table({
    state: digest,
    phase: words('open', 'pre', 'post', 'close'),
    files: int,
    changed: int,
    unrestorable: bool,
    drift: bool,
  }),
  verdict: table({
    status: words('PASS', 'WARN', 'FAIL', 'UNVERIFIED'),
    cause: name,
    mode: words('session', 'isolated', 'group', 'none'),
    policy: digest,
    pre: digest,
    pre_index: int,
    pre_leaf: hash,
    call_index: int,
    call_leaf: hash,
    result_index: int,
    result_leaf: hash,
    replays: int,
  }),
  claim: table({ bytes: int }),
  gap: table({
    'first!': positive,
    'last!': positive,
    'reason!': words('overflow', 'filtered', 'lost', 'crash'),
    hashes,
  }),
  heartbeat: table(STATED),
  'session.close': table({ ...STATED, calls: int, exit: int, signal: name }),
  'epoch.close': table(STATED),
} as const;

export type NamedKind = keyof typeof KINDS;

const TABLES: ReadonlyMap<string, AttributeTable> = new Map(Object.entries(KINDS));
const EXTENSION_KIND = /^x\.[a-z][a-z0-9_.-]{0,40}$/;
const EXTENSION_ATTRIBUTE = /^[a-z][a-z0-9_]{0,31}$/;

/** The table of a kind, `extension` for `x.*`, undefined for a kind that does not exist. */
export function attributesOf(kind: string): AttributeTable | 'extension' | undefined {
  return TABLES.get(kind) ?? (EXTENSION_KIND.test(kind) ? 'extension' : undefined);
}

/** The rule for one attribute of an `x.*` kind, or undefined when its name is not allowed. */
export function extensionRule(attribute: string): Rule | undefined {
  return EXTENSION_ATTRIBUTE.test(attribute) ? extensionValue : undefined;
}

const extensionValue: Rule = (value) =>
  int(value) === undefined || bool(value) === undefined || name(value) === undefined
    ? undefined
    : 'an integer, true, false, a name or a digest';
