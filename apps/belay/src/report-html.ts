/**
 * Verifications as one HTML file: no request leaves it, nothing in it runs but its own script, and what client, server
 * or record wrote stands in it as text.
 */

import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { type Judgement, type Status, tally, worse } from '@belay/verdict';
import { SCRIPT, STYLE } from './report-html-page.js';
import {
  axisOf,
  counted,
  differencesOf,
  findingsOf,
  integrityText,
  KINDS,
  markup,
  messageOf,
  nameOf,
  notCovered,
  sentence,
  SIGNS,
  span,
  statusCounts,
  troubles,
  whoOf,
  WORST_FIRST,
} from './report-text.js';
import type { Part, ShownChange, Verification } from './verification.js';

const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
const POLICY = `default-src 'none'; style-src ${hashOf(STYLE)}; script-src ${hashOf(SCRIPT)}; base-uri 'none'; form-action 'none'`;

/** Lines of a diff that are shown. */
const MAX_LINES = 2_000;

const badge = (status: Status, more = ''): string => `<span class="badge ${status}${more}">${status}</span>`;

/** The page, piece by piece, so that a long one never has to be in memory. */
export function* verificationHtml(found: readonly Verification[]): Generator<string> {
  yield head(found);
  for (const [i, each] of found.entries()) {
    yield lead(each, i);
    for (const [j, part] of each.parts.entries()) yield partHtml(part, idOf(i, j));
    yield '</section>\n';
  }
  yield `</main>
<footer>PASS: what was judged is as recorded. WARN: what differs is named and no fault as far as execution tells. UNVERIFIED: it could not be decided, which is no PASS. FAIL: what is on record is not what happens, or a rule is broken.</footer>
<script>${SCRIPT}</script></body></html>
`;
}

const idOf = (trace: number, part: number): string => `t${trace + 1}p${part + 1}`;

function head(found: readonly Verification[]): string {
  const status = found
    .map((each) => each.tally.status)
    .reduce<Status>(worse, found.length === 0 ? 'UNVERIFIED' : 'PASS');
  const [only] = found;
  const name =
    found.length === 1 && only !== undefined ? basename(only.trace) : counted(found.length, 'trace');
  const all = tally(found.flatMap(({ parts }) => parts.map(({ verdict }) => verdict)));
  const boxes = WORST_FIRST.map(
    (each) =>
      `<label class="${each}"><input type="checkbox" value="${each}" checked> ${each} ${all.counts[each]}</label>`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${POLICY}"><meta name="referrer" content="no-referrer">
<title>${status}: ${markup(name)}</title><style>${STYLE}</style></head><body>
<header><h1>${badge(status, ' big')}${markup(name)}</h1>
<div>${statusCounts(all)}</div></header>
<nav aria-label="What is shown"><input type="search" id="find" placeholder="Find" aria-label="Find in calls, messages and diffs">
${boxes.join('')}<button type="button" id="all">Open or close all</button><span id="shown" role="status"></span>
<span class="keys"><kbd>j</kbd> <kbd>k</kbd> next, previous; <kbd>n</kbd> <kbd>p</kbd> of those not PASS; <kbd>/</kbd> find</span></nav>
<main>
`;
}

function list(facts: readonly (readonly [term: string, value: string | undefined, kind?: string])[]): string {
  const items = facts.map(([term, value, kind]) =>
    value === undefined || value === ''
      ? ''
      : `<dt>${term}</dt><dd${kind === undefined ? '' : ` class="${kind}"`}>${markup(value)}</dd>`,
  );
  return `<dl>${items.join('')}</dl>`;
}

function lead(found: Verification, i: number): string {
  const { trace, session, sink, epoch, server, integrity, policy, mode, caps, timing } = found;
  const left = Object.entries(notCovered(found)).map(([kind, count]) => `${count} ${kind}`);
  const facts = list([
    ['Session', `${session}, recorded as ${sink}, epoch ${epoch}`],
    ['Server', server.join(' '), 'code'],
    ['Trace', trace, 'code'],
    [
      'Integrity',
      [integrityText(integrity), ...integrity.problems].join('; '),
      integrity.kind === 'broken' ? 'FAIL' : undefined,
    ],
    ['Policy', `${policy.file ?? 'built-in rules'}, ${policy.digest}`],
    [
      'Mode',
      mode === 'session'
        ? 'session: one server was told every call, in order'
        : 'isolated: a server of its own',
    ],
    ...caps.map((cap) => ['At best', `UNVERIFIED, ${cap}: ${sentence(cap)}`, 'UNVERIFIED'] as const),
    ['Left out', left.length === 0 ? undefined : `${left.join(', ')}: nothing to hold them against`],
    [
      'Time',
      `${span(timing.total)}; starting the server ${span(timing.start)}, first restore ${span(timing.restore)}`,
    ],
  ] as [string, string | undefined, string?][]);
  const causes = Object.entries(found.tally.causes)
    .sort(([, a], [, b]) => b - a)
    .map(([cause, count]) => `<li><b>${count} ${cause}</b>: ${markup(sentence(cause))}</li>`);
  return `<section id="t${i + 1}"><div class="lead"><h2>${badge(found.tally.status)} ${markup(basename(trace))}</h2>
${facts}${bars(found, i)}<ul class="legend">${causes.join('')}</ul></div>
`;
}

const BARS = 1000;

/** How many there are of each status, and below each part in its order; UNVERIFIED is hatched, not only of a colour. */
function bars({ parts, tally: { counts } }: Verification, trace: number): string {
  if (parts.length === 0) return '';
  const hatch = `hatch${trace}`;
  let x = 0;
  const shares = WORST_FIRST.filter((status) => counts[status] > 0).map((status) => {
    const width = (counts[status] / parts.length) * BARS;
    const at = x;
    x += width;
    const label =
      width > 70 ? `<text x="${(at + 4).toFixed(1)}" y="36">${counts[status]} ${status}</text>` : '';
    return `${box(status, at, 8, width, 14, hatch)}${label}`;
  });
  const step = BARS / parts.length;
  const places = parts.map((part, i) => {
    const { status } = part.verdict;
    const high = part.type === 'turn' ? 20 : 12;
    return `<a href="#${idOf(trace, i)}" tabindex="-1"><title>${markup(`${nameOf(part)}, ${whoOf(part)}: ${status}`)}</title>${box(status, i * step, 64 - high, step, high, hatch)}</a>`;
  });
  const name = markup(
    `${WORST_FIRST.map((status) => `${counts[status]} ${status}`).join(', ')}; below, each part in its order`,
  );
  return `<svg class="bars" viewBox="0 0 ${BARS} 68" role="img" aria-label="${name}"><defs><pattern id="${hatch}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="f-UNVERIFIED" width="6" height="6" opacity="0.45"/><rect class="f-UNVERIFIED" width="3" height="6"/></pattern></defs>${shares.join('')}${places.join('')}</svg>`;
}

function box(status: Status, x: number, y: number, width: number, height: number, hatch: string): string {
  const fill = status === 'UNVERIFIED' ? `fill="url(#${hatch})"` : `class="f-${status}"`;
  const inner = width > 4 ? width - 1 : width;
  return `<rect x="${x.toFixed(2)}" y="${y}" width="${inner.toFixed(2)}" height="${height}" ${fill}/>`;
}

const SHORT = {
  result: 'res',
  effect: 'eff',
  contract: 'con',
  egress: 'net',
  invariant: 'inv',
  claim: 'clm',
};

function axes({ verdict }: Part): string {
  const cells = KINDS.map((kind) => {
    const axis = axisOf(verdict, kind);
    if (axis === undefined && kind === 'claim') return '';
    const word =
      axis === undefined ? 'not asked' : axis === 'NOT_COVERED' ? 'nothing to hold it against' : axis;
    return `<span class="axis ${axis ?? ''}" title="${kind}: ${word}">${SHORT[kind]}</span>`;
  });
  return `<span class="axes">${cells.join('')}</span>`;
}

function partHtml(part: Part, id: string): string {
  const { status, cause } = part.verdict;
  const tags = [
    ...(part.type === 'turn' && part.driftApplied ? ['drift applied'] : []),
    ...(part.type === 'turn' && part.group.length > 1 ? [`overlaps ${part.group.join(', ')}`] : []),
    ...(part.changes.length > 0 ? [counted(part.changes.length, 'change')] : []),
  ].map((tag) => ` <span class="tag">${markup(tag)}</span>`);
  const why = cause === undefined ? '' : `<b class="${status}">${cause}</b> ${markup(messageOf(part))}`;
  return `<details class="part ${part.type}" id="${id}" data-status="${status}"><summary>${badge(status)}<span>${nameOf(part)}</span><span class="tool">${markup(whoOf(part))}</span>${axes(part)}<span class="why">${why}${tags.join('')}</span></summary>
<div class="body">${body(part)}</div></details>
`;
}

function body(part: Part): string {
  const { verdict, changes } = part;
  const { status, cause, judgements, caps } = verdict;
  const meanings = [
    ...new Set([
      ...(cause === undefined ? [] : [cause]),
      ...caps,
      ...troubles(verdict).flatMap((each) => each.cause ?? []),
    ]),
  ];
  return [
    ...meanings.map(
      (each) => `<p class="meaning ${status}"><b>${each}</b> <span>${markup(sentence(each))}.</span></p>`,
    ),
    judgements.length === 0
      ? ''
      : `<h3>What each axis found</h3><table><tr><th class="narrow">Axis</th><th class="narrow">Found</th><th>Why</th></tr>${judgements.map(judgementRow).join('')}</table>`,
    ...judgements.map(evidence),
    changes.length === 0 ? '' : `<h3>What changed in the workspace</h3>${changes.map(change).join('')}`,
    part.type === 'turn' ? `<h3>On record</h3>${turnFacts(part)}` : '',
  ].join('');
}

const judgementRow = ({ axis, kind, status, message, cause }: Judgement): string =>
  `<tr><td>${axis} ${kind}</td><td class="${status}">${status === 'NOT_COVERED' ? 'not covered' : status}</td><td>${cause === undefined ? '' : `<b>${cause}</b> `}${markup(message)}</td></tr>`;

function evidence(judgement: Judgement): string {
  if (judgement.status === 'PASS' || judgement.status === 'NOT_COVERED') return '';
  const differences = differencesOf(judgement);
  const findings = findingsOf(judgement);
  const proof = judgement.status === 'FAIL' ? '' : ' class="soft"';
  return [
    differences.length === 0
      ? ''
      : `<h3>${judgement.kind}: recorded and replayed</h3><table${proof}><tr><th class="mid">Where</th><th>Recorded</th><th>Replayed</th></tr>${differences
          .map(
            ({ place, recorded, replayed, class: type }) =>
              `<tr><td class="mono">${markup(place)}${type === undefined ? '' : ` <span class="tag">${markup(type)}</span>`}</td><td class="rec">${markup(recorded)}</td><td class="rep">${markup(replayed)}</td></tr>`,
          )
          .join('')}</table>`,
    findings.length === 0
      ? ''
      : `<h3>${judgement.kind}: what was found</h3><table${proof}><tr><th class="mid">Where</th><th>What</th><th>Before</th><th>After</th></tr>${findings
          .map(
            ({ path, line, what, before, after }) =>
              `<tr><td class="mono">${markup(path)}${line === undefined ? '' : `:${line}`}</td><td>${markup(what)}</td><td class="mono">${markup(before ?? '')}</td><td class="mono">${markup(after ?? '')}</td></tr>`,
          )
          .join('')}</table>`,
  ].join('');
}

const WITHOUT = {
  binary: 'no text',
  large: 'too large to show',
  unknown: 'its content is not on this machine',
};

function change({ path, what, diff, without }: ShownChange): string {
  const title = `<span class="mono">${SIGNS[what]} ${markup(path || '.')}</span> ${what}${without === undefined ? '' : ` <span class="tag">${WITHOUT[without]}</span>`}`;
  if (diff === undefined || diff === '') return `<div class="change">${title}</div>`;
  const lines = diff.replace(/\n$/, '').split('\n');
  const rest = lines.length - MAX_LINES;
  const shown = lines.slice(0, MAX_LINES).map((line, i) => {
    const kind = i < 2 ? 'name' : { '+': 'add', '-': 'del', '@': 'at' }[line.slice(0, 1)];
    return `<span${kind === undefined ? '' : ` class="${kind}"`}>${markup(line)}</span>`;
  });
  if (rest > 0) shown.push(`<span class="name">… ${counted(rest, 'more line')}</span>`);
  return `<details class="change" open><summary>${title}</summary><pre class="diff" tabindex="0">${shown.join('')}</pre></details>`;
}

function turnFacts(part: Part & { type: 'turn' }): string {
  const { time, record, pre, post, missing, replays, ms, seqs, group } = part;
  const entries = Object.entries(seqs).map(([name, seq]) => `${name} ${seq}`);
  return list([
    ['Time', time],
    ['Record', `at byte ${record} of the trace`],
    ['State before', pre ?? missing?.pre, 'code'],
    ['State after', post ?? missing?.post, 'code'],
    ['Replays', `${replays}, ${span(ms)}`],
    ['Overlaps', group.length > 1 ? `turns ${group.join(', ')}` : undefined],
    ['Envelopes', entries.join(', ')],
  ]).replace('<dl>', '<dl class="facts">');
}
