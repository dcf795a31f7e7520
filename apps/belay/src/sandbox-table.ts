/** What `belay sandbox check` found, for a person. */

import type { Denial } from '@belay/sandbox';
import type { BoundaryReport, Mark, ProbeGroup, RowResult } from '@belay/sandbox/probe';
import { printable, type Style } from './output.js';
import type { ServerTrial } from './sandbox-server.js';
import type { SnapshotRow } from './sandbox-snapshot.js';

/** What `--json` prints. */
export interface SandboxCheck extends BoundaryReport {
  /** The writable folder; undefined where a folder of our own stood in for one. */
  readonly scope: string | undefined;
  /** Whether what was tried to be written outside could be seen inside; else it was refused by not being there. */
  readonly seen: boolean;
  readonly user: { readonly name: string; readonly uid: number };
  /** Capture and restore; undefined where only some groups were asked for. */
  readonly snapshot: readonly SnapshotRow[] | undefined;
  readonly server: ServerTrial | undefined;
}

const TITLES: Readonly<Record<ProbeGroup, string>> = {
  files: 'Files outside the workspace',
  metadata: 'Modes, owners, times, attributes outside the workspace',
  mounts: 'Mounts',
  network: 'Network',
  sockets: "The host's sockets and shared memory",
  processes: 'Processes outside',
  secrets: 'Secrets',
  devices: 'Devices',
  kernel: 'The kernel',
  'life-devices': 'Ordinary life: devices',
  'life-files': 'Ordinary life: files',
  'life-processes': 'Ordinary life: programs',
  'life-sockets': 'Ordinary life: pipes and sockets',
  'life-system': 'Ordinary life: the system',
  'life-limits': 'Limits',
};

const WORDS: Readonly<Record<Mark, string>> = {
  refused: 'refused',
  contained: 'contained',
  escaped: 'ESCAPED',
  hole: 'hole',
  allowed: 'allowed',
  works: 'works',
  fails: 'FAILS',
  lacks: 'lacks',
  'refused-by-policy': 'refused',
  untested: 'not tested',
};
const MARK_WIDTH = 10;
const WHAT_WIDTH = 56;

export function checkPage(check: SandboxCheck, style: Style): string {
  const { record, rows, scope, user, snapshot, server } = check;
  const network = record.network === 'ports' ? `ports ${record.ports?.join(', ')}` : record.network;
  const head = [
    `${style.bold('boundary')}  ${record.backend}, profile ${record.profile}, network ${network}, as ${printable(user.name)} (${user.uid})`,
    `${style.bold('writable')}  ${printable(scope ?? 'a folder made for the check')}`,
    `${style.bold('refusals')}  ${
      record.naming === 'named' ? "told by name, from the kernel's own answers" : record.naming
    }`,
  ];
  if (!check.seen)
    head.push(
      `${style.bold('outside')}   not seen inside: a --scope in a folder of yours shows more than "not there"`,
    );
  const tested = rows.filter(({ mark }) => mark !== 'untested');
  const untested = rows.filter(({ mark }) => mark === 'untested');
  const groups = Object.entries(TITLES).flatMap(([group, title]) => {
    const members = tested.filter((row) => row.group === group);
    return members.length === 0 ? [] : ['', style.bold(title), ...members.map((row) => line(row, style))];
  });
  const skipped =
    untested.length === 0 ? [] : ['', style.bold('Not tested'), ...untested.map((row) => line(row, style))];
  const captured =
    snapshot === undefined
      ? []
      : [
          '',
          style.bold('Snapshot and restore'),
          ...snapshot.map(
            ({ what, works, because }) =>
              `  ${(works ? style.good : style.bad)((works ? 'works' : 'FAILS').padEnd(MARK_WIDTH))}  ` +
              (works ? what : `${what.padEnd(WHAT_WIDTH)}  ${style.dim(printable(because))}`),
          ),
        ];
  const tried = server === undefined ? [] : ['', ...serverLines(server, style)];
  return `${[...head, ...groups, ...captured, ...skipped, ...tried, '', ...summary(check, style)].join('\n')}\n`;
}

function line(row: RowResult, style: Style): string {
  const { mark, what, errno, because, control, kind } = row;
  const colour =
    mark === 'escaped' || mark === 'fails'
      ? style.bad
      : mark === 'hole' || mark === 'allowed' || mark === 'lacks'
        ? style.warn
        : mark === 'untested'
          ? style.dim
          : style.good;
  const error = mark === 'refused' || mark === 'refused-by-policy' ? `${errno}: ` : '';
  const notes = [
    `${error}${because}`,
    TOLD[row.told ?? 'untold'],
    ...(kind === 'escape' && mark !== 'untested' && control === 'uncontrolled' ? ['no control'] : []),
  ].filter((note) => note !== '');
  const shown = mark === 'works' ? '' : `  ${style.dim(printable(notes.join(', ')))}`;
  return `  ${colour(WORDS[mark].padEnd(MARK_WIDTH))}  ${what.padEnd(shown === '' ? 0 : WHAT_WIDTH)}${shown}`;
}

const TOLD = { named: 'named', class: 'told by class', standing: 'class on record', untold: '' } as const;

const MAX_DENIALS = 20;

function serverLines(server: NonNullable<SandboxCheck['server']>, style: Style): string[] {
  const name = server.server === undefined ? '' : ` as ${server.server.name} ${server.server.version}`;
  const tools = server.tools === undefined ? 'tools/list was not answered' : `${server.tools} tools`;
  const denied = server.denials
    .slice(0, MAX_DENIALS)
    .map((denial) => `  ${style.warn('denied')}    ${nameOf(denial)}`);
  const more = server.denials.length - denied.length;
  return [
    style.bold('Server'),
    `  command   ${printable(server.command.join(' '))}`,
    server.answered
      ? `  ${style.good('answers')}   ${printable(`${name.trim()} (${server.protocol ?? 'no protocol version'}), ${tools}`)}`
      : `  ${style.bad('SILENT')}    ${printable(server.ended ?? 'it runs, and does not answer initialize')}`,
    ...(server.answered && server.ended !== undefined
      ? [`  ${style.bad('ended')}     ${server.ended}, by itself`]
      : []),
    ...(denied.length === 0 ? ['  denials   none'] : denied),
    ...(more > 0 ? [`            and ${more} more`] : []),
    ...(server.answered || server.words === ''
      ? []
      : server.words.split('\n').map((text) => `  ${style.dim(printable(text))}`)),
  ];
}

/** `write EROFS /etc/hosts`. */
function nameOf({ operation, errno, path, address, syscall, class: kind, naming, count }: Denial): string {
  const target = path ?? address ?? (naming === 'class' ? `${syscall} (${kind})` : syscall);
  return printable(`${operation} ${errno} ${target}${count > 1 ? ` (${count} times)` : ''}`);
}

function summary({ verdict, counts, rows, record, reasons }: SandboxCheck, style: Style): string[] {
  const escapes = rows.filter(({ kind }) => kind === 'escape');
  const untried = escapes.filter(({ mark }) => mark === 'untested').length;
  const attempts = [
    `${counts.refused} refused`,
    ...(counts.contained > 0 ? [`${counts.contained} met a copy`] : []),
    ...(counts.escaped > 0 ? [`${counts.escaped} ESCAPED`] : []),
    ...(counts.hole > 0
      ? [`${counts.hole} through a known hole (this back end's: ${record.holes.join(', ')})`]
      : []),
    ...(counts.allowed > 0 ? [`${counts.allowed} allowed by the policy`] : []),
    ...(untried > 0 ? [`${untried} not tested`] : []),
  ];
  const life = [
    `${counts.works} work`,
    ...(counts.fails > 0 ? [`${counts.fails} FAIL`] : []),
    ...(counts.lacks > 0 ? [`${counts.lacks} this back end can not give`] : []),
    ...(counts['refused-by-policy'] > 0 ? [`${counts['refused-by-policy']} closed by the policy`] : []),
    ...(counts.untested > untried ? [`${counts.untested - untried} not tested`] : []),
  ];
  const said = {
    holds: style.good('The boundary holds.'),
    broken: style.bad('The boundary does NOT hold.'),
    untestable: style.warn('Not decided: what the answer rests on could not be tried here.'),
  }[verdict];
  return [
    said,
    `${escapes.length} attempts: ${attempts.join(', ')}.`,
    `${rows.length - escapes.length} ordinary things: ${life.join(', ')}.`,
    ...(reasons.length === 0 ? [] : [`Because of: ${reasons.join(', ')}.`]),
  ];
}
