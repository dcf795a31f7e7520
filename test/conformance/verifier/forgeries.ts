import type { ExportManifest } from '@belay/export';
import type { Lies, Loose, Repacking } from './exports.js';

/** What is changed in an export that is then signed again: only the log can do it. */
export type Forgery = readonly [
  what: string,
  of: 'all' | 'part' | 'time',
  change: (files: Map<string, Buffer>) => void,
  /** A check that has to find it. */
  failed: string,
  claim?: (manifest: ExportManifest) => ExportManifest,
];

/** Lines of a file, without their ends. */
const linesOf = (files: Map<string, Buffer>, name: string): string[] =>
  (files.get(name) as Buffer).toString().split('\n').slice(0, -1);
const set = (files: Map<string, Buffer>, name: string, lines: readonly string[]): void => {
  files.set(name, Buffer.from(lines.map((line) => `${line}\n`).join('')));
};
const edit =
  (name: string, change: (lines: string[]) => readonly string[]) =>
  (files: Map<string, Buffer>): void =>
    set(files, name, change(linesOf(files, name)));
const text =
  (name: string, change: (text: string) => string) =>
  (files: Map<string, Buffer>): void => {
    const before = (files.get(name) as Buffer).toString();
    const after = change(before);
    if (after === before) throw new Error(`nothing to change in ${name}`);
    files.set(name, Buffer.from(after));
  };
const swapped = (lines: string[], a: number, b: number): string[] =>
  lines.map((line, n) => (n === a ? lines[b] : n === b ? lines[a] : line) as string);
const omittedAt = (lines: readonly string[]): number =>
  lines.findIndex((line) => line.startsWith('{"hashes"'));
const counted =
  (more: Partial<ExportManifest['counts']>) =>
  (manifest: ExportManifest): ExportManifest => ({ ...manifest, counts: { ...manifest.counts, ...more } });

const nothing = (): void => undefined;
export const forgeries: readonly Forgery[] = [
  ['as it was', 'all', nothing, 'none'],
  ['an entry is left out', 'all', edit('entries.ndjson', (lines) => lines.toSpliced(8, 2)), 'entries'],
  ['the last entry is left out', 'all', edit('entries.ndjson', (lines) => lines.slice(0, -2)), 'entries'],
  ['half an entry', 'all', edit('entries.ndjson', (lines) => lines.slice(0, -1)), 'entries'],
  ['no entries', 'all', edit('entries.ndjson', () => []), 'entries'],
  ['two entries in another order', 'all', edit('entries.ndjson', (lines) => swapped(lines, 9, 11)), 'tree'],
  ['a body that is another', 'all', text('entries.ndjson', (t) => t.replace('"seq":2,', '"seq":3,')), 'tree'],
  [
    'a time that is none',
    'all',
    text('entries.ndjson', (t) => t.replace(/2026-01-01T00:00:0(\d)/, '2026-13-01T00:00:0$1')),
    'entries',
  ],
  ['a blank in a line', 'all', text('entries.ndjson', (t) => t.replace('{"index"', '{ "index"')), 'entries'],
  ['a blank in a body', 'all', text('entries.ndjson', (t) => t.replace('"seq":2', '"seq": 2')), 'tree'],
  [
    'a number with a fraction',
    'all',
    text('entries.ndjson', (t) => t.replace('"seq":2,', '"seq":2.0,')),
    'entries',
  ],
  ['a CR', 'all', text('entries.ndjson', (t) => t.replace('\n', '\r\n')), 'entries'],
  ['a byte order mark', 'all', text('entries.ndjson', (t) => `\ufeff${t}`), 'entries'],
  [
    'an unknown member',
    'all',
    text('entries.ndjson', (t) => t.replace('"seq":2,', '"seq":2,"x":1,')),
    'entries',
  ],
  ['a key twice', 'all', text('entries.ndjson', (t) => t.replace('"seq":2,', '"seq":2,"seq":2,')), 'entries'],
  ['more in the last line', 'all', text('entries.ndjson', (t) => t.slice(0, -1)), 'entries'],
  [
    'another genesis',
    'all',
    text('entries.ndjson', (t) => t.replace('"name":"Agents"', '"name":"Others"')),
    'entries',
  ],
  [
    'a conflict with what comes later',
    'all',
    text('entries.ndjson', (t) => t.replace('{"index":9,', '{"conflict":10,"index":9,')),
    'entries',
  ],
  [
    'one omitted line as two',
    'part',
    edit('entries.ndjson', (lines) => [
      ...lines.slice(0, omittedAt(lines)),
      lines[omittedAt(lines)] as string,
      ...lines.slice(omittedAt(lines)),
    ]),
    'entries',
  ],
  [
    'an omitted line in another form',
    'part',
    text('entries.ndjson', (t) => t.replace('{"hashes":[', '{"hashes": [')),
    'entries',
  ],
  [
    'an omitted line with a hash less',
    'part',
    text('entries.ndjson', (t) => t.replace(/\{"hashes":\["[^"]*",?/, '{"hashes":[')),
    'entries',
  ],
  [
    'another hash of what was omitted',
    'part',
    text('entries.ndjson', (t) => t.replace(/(\{"hashes":\[")../, '$1AA')),
    'tree',
  ],
  [
    'an omitted line that goes further',
    'part',
    text('entries.ndjson', (t) => t.replace(/"to":(\d)/, '"to":9$1')),
    'entries',
  ],
  [
    'a receipt is left out',
    'all',
    edit('receipts.ndjson', (lines) => lines.slice(1)),
    'issued',
    (m) => counted({ receipts: m.counts.receipts - 1 })(m),
  ],
  ['and is counted', 'all', edit('receipts.ndjson', (lines) => lines.slice(1)), 'receipts'],
  ['no receipts', 'part', edit('receipts.ndjson', () => []), 'issued', counted({ receipts: 0 })],
  [
    'a receipt twice',
    'all',
    edit('receipts.ndjson', (lines) => [lines[0] as string, ...lines]),
    'issued',
    (m) => counted({ receipts: m.counts.receipts + 1 })(m),
  ],
  ['receipts in another order', 'all', edit('receipts.ndjson', (lines) => swapped(lines, 0, 1)), 'issued'],
  [
    'a receipt with a blank',
    'all',
    text('receipts.ndjson', (t) => t.replace('{"payload"', '{ "payload"')),
    'receipts',
  ],
  [
    'another signature',
    'all',
    text('receipts.ndjson', (t) => t.replace(/"sig":"..../, '"sig":"AAAA')),
    'receipts',
  ],
  ['no end of line', 'all', text('receipts.ndjson', (t) => t.slice(0, -1)), 'receipts'],
  [
    'another row of events',
    'all',
    text('events.csv', (t) => t.replace('sink.declared', 'sink.removed')),
    'tables',
  ],
  ['a row less', 'all', text('events.csv', (t) => t.slice(0, t.trimEnd().lastIndexOf('\n') + 1)), 'tables'],
  [
    'another disposition in the table',
    'all',
    text('sessions.csv', (t) =>
      t.replace('unverified', 'affirmed').replace('incomplete', 'affirmed').replace('contested', 'affirmed'),
    ),
    'tables',
  ],
  [
    'another key in keys.json',
    'all',
    text('keys.json', (t) => t.replace('"kind":"hook"', '"kind":"proxy"')),
    'tables',
  ],
  [
    'another chain.pem',
    'all',
    text('chain.pem', (t) => t.replace('CERTIFICATE-----\n', 'CERTIFICATE-----\n\n')),
    'tables',
  ],
  ['another filter', 'all', text('filter.json', (t) => t.replace('Nothing', 'nothing')), 'filter'],
  ['a filter with a blank', 'part', text('filter.json', (t) => t.replace('{', '{ ')), 'filter'],
  [
    'another session of the period',
    'time',
    text('filter.json', (t) => t.replace(/"sessions":\["[^"]*"/, '"sessions":["none"')),
    'filter',
  ],
  [
    'no sessions of the period',
    'time',
    text('filter.json', (t) => t.replace(/"sessions":\[[^\]]*\]/, '"sessions":[]')),
    'issued',
  ],
  ['another checkpoint beside', 'all', text('checkpoint', (t) => `${t}\n`), 'checkpoint'],
  [
    'other counts of entries',
    'part',
    nothing,
    'filter',
    (m) => counted({ entries: m.counts.entries - 1, omitted: m.counts.omitted + 1 })(m),
  ],
  ['other counts of sessions', 'all', nothing, 'tables', counted({ sessions: 9 })],
  [
    'another project',
    'all',
    nothing,
    'entries',
    (m) => ({ ...m, project: { ...m.project, name: 'Others' } }),
  ],
  [
    'another size',
    'all',
    nothing,
    'checkpoint',
    (m) => ({
      ...counted({ entries: m.counts.entries - 1 })(m),
      asOf: { ...m.asOf, size: m.asOf.size - 1, evaluated: 0 },
    }),
  ],
  [
    'sessions looked for in less',
    'all',
    nothing,
    'issued',
    (m) => ({ ...m, asOf: { ...m.asOf, evaluated: 1 } }),
  ],
  ['no certificates', 'all', nothing, 'chain', (m) => ({ ...m, log: { ...m.log, x5c: [] } })],
  [
    'certificates in another order',
    'all',
    nothing,
    'chain',
    (m) => ({ ...m, log: { ...m.log, x5c: m.log.x5c.toReversed() } }),
  ],
  [
    'a time before the certificates',
    'all',
    nothing,
    'chain',
    (m) => ({ ...m, asOf: { ...m.asOf, time: '2020-01-01T00:00:00.000Z' } }),
  ],
  ['another request', 'all', nothing, 'filter', (m) => ({ ...m, request: { sessions: ['run-1'] } })],
  ['a request for everything', 'part', nothing, 'filter', (m) => ({ ...m, request: {} })],
  [
    'another period',
    'time',
    nothing,
    'filter',
    (m) => ({
      ...m,
      request: { period: { from: '2027-01-01T00:00:00.000Z', to: '2028-01-01T00:00:00.000Z' } },
    }),
  ],
];

/** Something inside of JSON. */
const inside = (value: Loose, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((at, key) => (at as Record<string, unknown>)[key], value);
const number = (value: Loose, ...path: readonly string[]): number => inside(value, ...path) as number;
const put = (value: Loose, path: readonly string[], to: unknown): void => {
  const holder = inside(value, ...path.slice(0, -1)) as Record<string, unknown>;
  holder[path.at(-1) as string] = to;
};
const isSession = (statement: Loose): boolean =>
  inside(statement, 'predicateType') === 'urn:belay:session-receipt:v1';

type Path = readonly string[];
/** Changes what receipts of sessions (or of periods) say, where they say it. */
const claims = (session: boolean, path: Path, change: (value: never) => unknown): Lies => ({
  receipt: (statement) => {
    if (isSession(statement) !== session) return;
    const before = inside(statement, ...path);
    if (before !== undefined) put(statement, path, change(before as never));
  },
});
const more = (n: number): number => n + 1;
const flipped = (digest: string): string => digest.replace(/.$/, (c) => (c === '0' ? '1' : '0'));

/** A log that says what is not so, in what it states, issues and signs. Forms are right, and every hash. */
export const lies: readonly (readonly [what: string, how: Lies, failed: string])[] = [
  ['evidence of a session', claims(true, ['predicate', 'evidence', 'entries'], more), 'sessions'],
  ['subject of a session', claims(true, ['subject', '0', 'digest', 'sha256'], flipped), 'sessions'],
  ['when a session began', claims(true, ['predicate', 'coverage', 'began', 'index'], more), 'sessions'],
  ['kinds of a session', claims(true, ['predicate', 'coverage', 'kinds'], () => ['desk']), 'sessions'],
  [
    'time of a statement',
    claims(true, ['predicate', 'coverage', 'time'], () => '2026-02-02T00:00:00.000Z'),
    'sessions',
  ],
  ['digest of a statement', claims(true, ['predicate', 'coverage', 'statement'], flipped), 'sessions'],
  [
    'which entry states it',
    claims(true, ['predicate', 'coverage', 'index'], (n: number) => n - 1),
    'sessions',
  ],
  [
    'how many entries it looked at',
    claims(true, ['predicate', 'coverage', 'size'], (n: number) => n - 1),
    'sessions',
  ],
  ['who set the policy', claims(true, ['predicate', 'policy', 'index'], more), 'sessions'],
  ['who issued a token', claims(true, ['predicate', 'issuers', '0', 'index'], more), 'sessions'],
  ['the role of a token', claims(true, ['predicate', 'issuers', '0', 'role'], () => 'agent'), 'sessions'],
  ['verdicts', claims(true, ['predicate', 'verdicts', 'PASS'], more), 'sessions'],
  ['a receipt superseded', claims(true, ['predicate', 'supersedes'], flipped), 'issued'],
  [
    'when its head was published',
    claims(true, ['predicate', 'asOf', 'time'], () => '2026-02-02T00:00:00.000Z'),
    'none',
  ],
  ['entries of a period', claims(false, ['predicate', 'entries', 'count'], (n: number) => n - 1), 'periods'],
  ['subject of a period', claims(false, ['subject', '0', 'digest', 'sha256'], flipped), 'periods'],
  ['policy of a period', claims(false, ['predicate', 'coverage', 'policy'], flipped), 'periods'],
  [
    'time of a period',
    claims(false, ['predicate', 'coverage', 'time'], () => '2026-02-02T00:00:00.000Z'),
    'none',
  ],
  [
    'whether a sink is required',
    claims(false, ['predicate', 'sinks', '0', 'required'], (is: boolean) => !is),
    'periods',
  ],
  ['verdicts of a period', claims(false, ['predicate', 'verdicts', 'WARN'], more), 'periods'],
  [
    'a digest stated',
    { statement: (body) => put(body, ['statement'], flipped(inside(body, 'statement') as string)) },
    'statements',
  ],
  ['a status stated', { statement: (body) => put(body, ['status'], 'complete') }, 'statements'],
  [
    'a policy stated',
    { statement: (body) => put(body, ['policy'], flipped(inside(body, 'policy') as string)) },
    'statements',
  ],
  ['a time stated', { statement: (body) => put(body, ['time'], '2026-02-02T00:00:00.000Z') }, 'statements'],
  ['a size stated', { statement: (body) => put(body, ['size'], number(body, 'size') - 2) }, 'statements'],
  ['a size to come', { statement: (body) => put(body, ['size'], number(body, 'size') + 40) }, 'statements'],
  [
    'a session stated',
    { statement: (body) => body['session'] && put(body, ['session'], 'run-9') },
    'sessions',
  ],
  ['a size issued', { issued: (body) => put(body, ['asOf'], number(body, 'asOf') - 1) }, 'issued'],
  ['nothing superseded', { issued: (body) => put(body, ['supersedes'], undefined) }, 'issued'],
  [
    'another superseded',
    { issued: (body) => put(body, ['supersedes'], `sha256:${'0'.repeat(64)}`) },
    'issued',
  ],
];

/** Archives in their right form, of other files than the manifest has. */
export const repackings: readonly Repacking[] = [
  (files) => files.filter(([name]) => name !== 'sessions.csv'),
  (files) => files.slice(0, -1),
  (files) => files.slice(-1),
  (files) => [['extra.txt', Buffer.from('x')], ...files],
  (files) => [...files.slice(0, 1), ...files],
  (files) => [...files.slice(1, 2), ...files.slice(0, 1), ...files.slice(2)],
  (files) => [...files.slice(-1), ...files.slice(0, -1)],
  (files) => files.map(([name, content]) => [name, name === 'report.pdf' ? Buffer.from('%PDF') : content]),
  () => [],
];
