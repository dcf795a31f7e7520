/**
 * A trace as one HTML file: no request leaves it, nothing in it runs but the few lines below, and what client or server
 * wrote stands in it as text. Written as the trace is read; browsers lay out only what is on the screen.
 */

import { createHash } from 'node:crypto';
import { readTrace } from '@belay/trace';
import { printable } from './output.js';
import type { TextSink } from './text-sink.js';
import type { Shown, TraceContent } from './trace-content.js';
import {
  asidesText,
  bytes,
  closeText,
  duration,
  eventText,
  isTrouble,
  lateText,
  outcomeText,
  remarks,
  seconds,
  strayText,
  Tally,
  title,
  took,
} from './trace-format.js';
import { type CheckedTrace, LOCAL_ONLY } from './trace-report.js';
import { type Place, readTurns, type TraceItem, type Turn } from './turns.js';

const SCRIPT = `
const list = document.querySelector('main');
const find = document.querySelector('#find');
const trouble = document.querySelector('#trouble');
const shown = document.querySelector('#shown');
function sift() {
  const words = find.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let count = 0;
  for (const item of list.children) {
    const fits = (!trouble.checked || item.classList.contains('trouble')) &&
      words.every((word) => item.textContent.toLowerCase().includes(word));
    item.hidden = !fits;
    if (fits && item.classList.contains('turn')) count++;
  }
  shown.textContent = count + ' shown';
}
find.addEventListener('input', sift);
trouble.addEventListener('change', sift);
document.querySelector('#all').addEventListener('click', () => {
  const items = [...list.querySelectorAll('details')].filter((each) => !each.hidden);
  const open = items.some((each) => !each.open);
  for (const each of items) each.open = open;
});
`;

const STYLE = `
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60666d; --line: #e3e6e9; --page: #fff; --pane: #f6f7f8;
  --good: #1a7f4b; --bad: #c62f2f; --warn: #9a6200; --bar: #5b7fbd; --mono: ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #9aa1a8; --line: #30353a; --page: #16191c; --pane: #1e2226;
  --good: #56c98a; --bad: #ff7a72; --warn: #e3ab4e; --bar: #6f93d2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 14px/1.45 system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; }
header, footer { padding: 20px 24px; }
h1 { margin: 0 0 2px; font-size: 20px; font-weight: 600; overflow-wrap: anywhere; }
.verdict { font-weight: 600; } .INTACT { color: var(--good); } .INCOMPLETE { color: var(--warn); } .DAMAGED { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 1px 16px; margin: 12px 0 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; } code, pre, dd.code { font-family: var(--mono); font-size: 12.5px; }
nav { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: 6px 14px; white-space: nowrap; align-items: center; padding: 8px 24px; background: var(--page); border-block: 1px solid var(--line); }
nav input[type=search] { flex: 0 1 320px; padding: 4px 8px; font: inherit; color: inherit; background: var(--pane); border: 1px solid var(--line); border-radius: 5px; }
nav button { font: inherit; color: inherit; background: var(--pane); border: 1px solid var(--line); border-radius: 5px; padding: 3px 10px; cursor: pointer; }
#shown { color: var(--soft); }
summary, .heads { display: grid; grid-template-columns: 44px 78px minmax(180px, 5fr) minmax(80px, 3fr) 76px 66px 66px minmax(130px, 3fr); gap: 0 10px; align-items: baseline; padding: 3px 24px; }
.heads { color: var(--soft); font-size: 12px; padding-top: 10px; }
main > * { content-visibility: auto; contain-intrinsic-size: auto 27px; border-bottom: 1px solid var(--line); }
summary { cursor: pointer; list-style: none; } summary::-webkit-details-marker { display: none; }
summary:hover, details[open] > summary { background: var(--pane); } summary:focus-visible { outline: 2px solid var(--bar); outline-offset: -2px; }
.num { text-align: right; font-variant-numeric: tabular-nums; color: var(--soft); white-space: nowrap; }
.what { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } .what b { font-weight: 600; }
.lane { position: relative; height: 10px; align-self: center; background: linear-gradient(var(--line), var(--line)) center / 100% 1px no-repeat; }
.lane i { position: absolute; top: 1px; height: 8px; min-width: 3px; border-radius: 2px; background: var(--bar);
  left: calc(var(--s) / var(--total) * 100%); width: calc(var(--d) / var(--total) * 100%); }
.ok .end { color: var(--good); } .error .end, .unanswered .end { color: var(--bad); } .tool_error .end, .cancelled .end { color: var(--warn); }
.error i, .unanswered i { background: var(--bad); } .tool_error i, .cancelled i { background: var(--warn); }
.s2c > summary .what { padding-left: 14px; }
.end { display: flex; flex-wrap: wrap; gap: 2px 6px; overflow: hidden; } .tag { padding: 0 6px; border: 1px solid currentColor; border-radius: 9px; font-size: 11px; color: var(--soft); white-space: nowrap; } .tag.odd { color: var(--warn); }
.aside, .event { color: var(--soft); } .aside > summary, .event { display: grid; grid-template-columns: 44px 78px 1fr; gap: 0 10px; padding: 2px 24px; font-size: 13px; overflow-wrap: anywhere; }
.event.trouble { color: var(--warn); } .event.damage { color: var(--bad); } .event.claim { color: var(--ink); }
.panes { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 12px; padding: 6px 24px 14px 156px; }
.panes h2 { margin: 4px 0; font-size: 12px; font-weight: 600; color: var(--soft); }
pre { margin: 0; padding: 8px 10px; max-height: 480px; overflow: auto; background: var(--pane); border: 1px solid var(--line); border-radius: 5px; white-space: pre-wrap; overflow-wrap: anywhere; color: var(--ink); }
@media (max-width: 900px) { summary, .heads { grid-template-columns: 32px 66px 1fr 70px; } summary > :nth-child(4), .heads > :nth-child(4), summary > :nth-child(n+6):not(.end), .heads > :nth-child(n+6) { display: none; }
  summary > .end { grid-column: 3 / -1; } .panes { padding-left: 24px; } }
@media print { nav { display: none; } pre { max-height: none; } }
`;

const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Foreign text in a page: no markup, no control characters, nothing that turns the direction of the line. */
function html(text: string): string {
  return printable(text)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

/** JSON text, indented, each of its tokens as it was. */
export function indentJson(text: string): string {
  let depth = 0;
  let result = '';
  const line = (): string => `\n${'  '.repeat(Math.min(depth, 40))}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  tokens.forEach((token, i) => {
    if (token === '{' || token === '[') {
      depth++;
      const next = tokens[i + 1];
      result += token + (next === '}' || next === ']' ? '' : line());
    } else if (token === '}' || token === ']') {
      depth--;
      const before = tokens[i - 1];
      result += (before === '{' || before === '[' ? '' : line()) + token;
    } else if (token === ',') result += `,${line()}`;
    else if (token === ':') result += ': ';
    else result += token;
  });
  return result;
}

function shownHtml(shown: Shown): string {
  const text = shown.json ? indentJson(shown.text) : shown.text;
  const lines = text.split('\n').map((each) => html(each));
  const how = shown.encoding === 'base64' ? '(not UTF-8; in base64)\n' : '';
  const rest = shown.cut === 0 ? '' : `\n… ${bytes(shown.cut)} more`;
  return `<pre>${how}${lines.join('\n')}${rest}</pre>`;
}

function paneHead(name: string, place: Place): string {
  const member = place.member === undefined ? '' : `, member ${place.member} of a batch`;
  return `<h2 title="sha256 ${place.sha256}">${name} · record ${place.n}${member} · ${bytes(place.size)} · ${html(place.time)}</h2>`;
}

function absent(place: Place, wanted: boolean): string {
  return place.oversize
    ? '<pre>too large to keep</pre>'
    : wanted
      ? '<pre>the content is not what it was</pre>'
      : '';
}

function pane(name: string, place: Place, content: TraceContent): string {
  const shown = content.at(place);
  return `<div>${paneHead(name, place)}${shown === undefined ? absent(place, content.wanted) : shownHtml(shown)}</div>`;
}

function turnHead(turn: Turn): string {
  const { call, request, answer, method, subject, dir } = turn;
  const time = took(turn);
  const tags = [
    ...remarks(turn).map((each) => `<span class="tag">${html(each)}</span>`),
    ...turn.findings.map((each) => `<span class="tag odd">${html(each)}</span>`),
  ];
  const what = subject === undefined ? '' : ` <b>${html(subject)}</b>`;
  return [
    `<summary><span class="num">${call}</span><span class="num">${seconds(request.at)}</span>`,
    `<span class="what" title="${html(title(turn))}">${dir === 's2c' ? '← ' : ''}${html(method)}${what}</span>`,
    `<span class="lane"><i style="--s:${request.at};--d:${time ?? 0}"></i></span>`,
    `<span class="num">${time === undefined ? '–' : duration(time)}</span><span class="num">${bytes(request.size)}</span>`,
    `<span class="num">${answer === undefined ? '–' : bytes(answer.size)}</span>`,
    `<span class="end">${html(outcomeText(turn))}${tags.join('')}</span></summary>`,
  ].join('');
}

async function writeItem(item: TraceItem, content: TraceContent, sink: TextSink): Promise<void> {
  const trouble = isTrouble(item) ? ' trouble' : '';
  const event = (at: number | undefined, kind: string, text: string): string =>
    `<div class="event ${kind}${trouble}"><span></span><span class="num">${at === undefined ? '' : seconds(at)}</span><span>${html(text)}</span></div>\n`;
  switch (item.type) {
    case 'turn': {
      const sides = item.dir === 'c2s' ? (['client', 'server'] as const) : (['server', 'client'] as const);
      await sink.write(
        `<details class="turn ${item.dir} ${item.outcome}${trouble}">${turnHead(item)}<div class="panes">`,
      );
      await sink.write(pane(`Request of the ${sides[0]}`, item.request, content));
      if (item.answer !== undefined)
        await sink.write(pane(`Answer of the ${sides[1]}`, item.answer, content));
      return await sink.write('</div></details>\n');
    }
    case 'asides': {
      await sink.write(
        `<details class="aside${trouble}"><summary><span></span><span class="num">${seconds(item.first.at)}</span><span>${html(asidesText(item))}</span></summary><div class="panes">`,
      );
      for (const { kind, ...place } of item.places) await sink.write(pane(html(kind), place, content));
      return await sink.write('</div></details>\n');
    }
    case 'stray':
      return await sink.write(event(item.place.at, 'stray', strayText(item)));
    case 'late_answer':
      return await sink.write(event(item.turn.answer?.at, 'late', lateText(item)));
    case 'damage':
      return await sink.write(event(undefined, 'damage', `line ${item.line}: ${item.code}: ${item.message}`));
    case 'open':
    case 'close':
      return;
    case 'claim': {
      const said = content.at(item.place)?.text;
      const text = said === undefined || said === '' ? eventText(item) : `claim: ${said}`;
      return await sink.write(event(item.place.at, 'claim', text));
    }
    default:
      return await sink.write(event(item.place.at, item.type, eventText(item)));
  }
}

function head(trace: CheckedTrace): string {
  const { open, verdict, records, problems, gaps } = trace;
  const command = open?.command?.argv.join(' ');
  const name = command ?? open?.upstream ?? open?.imported?.file ?? open?.sink ?? 'a trace';
  const facts: (readonly [string, string | undefined, string?])[] = [
    ['Recorded', open && `${open.time} by ${open.recorder}, as ${open.sink}`],
    ['Session', open?.session],
    ['Folder', open?.command?.cwd, 'code'],
    ['Workspace', open?.workspace?.join(' '), 'code'],
    ['Executable', open?.command?.executable?.path, 'code'],
    ['Log', open?.log, 'code'],
    [
      'Imported',
      open?.imported &&
        `from ${open.imported.file} (${open.imported.format}), sha256 ${open.imported.sha256}`,
    ],
    ['Records', `${records}; head ${trace.head}`, 'code'],
    ['Missing', gaps.length === 0 ? undefined : `${gaps.length} gaps`],
    [
      'Problems',
      problems.length === 0
        ? undefined
        : problems
            .slice(0, 20)
            .map(({ message }) => message)
            .join('; '),
    ],
  ];
  const list = facts
    .filter(([, value]) => value !== undefined)
    .map(
      ([term, value = '', kind]) =>
        `<dt>${term}</dt><dd${kind === undefined ? '' : ` class="${kind}"`}>${html(value)}</dd>`,
    );
  const policy = `default-src 'none'; style-src 'unsafe-inline'; script-src ${hashOf(SCRIPT)}; base-uri 'none'; form-action 'none'`;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="referrer" content="no-referrer">
<title>${html(name)}</title><style>${STYLE}</style></head><body>
<header><h1>${html(name)}</h1><span class="verdict ${verdict}">${verdict}</span> <span>${LOCAL_ONLY}</span>
<dl>${list.join('')}</dl></header>
<nav><input type="search" id="find" placeholder="Find in calls and their content" aria-label="Find">
<label><input type="checkbox" id="trouble"> only trouble</label><button type="button" id="all">Open or close all</button><span id="shown"></span></nav>
<div class="heads"><span class="num">#</span><span class="num">at, s</span><span>Call</span><span>When</span><span class="num">Took</span><span class="num">Sent</span><span class="num">Received</span><span>Outcome</span></div>
<main>
`;
}

export async function writeTurnsHtml(
  trace: CheckedTrace,
  content: TraceContent,
  sink: TextSink,
): Promise<void> {
  const tally = new Tally();
  await sink.write(head(trace));
  for await (const item of readTurns(readTrace(trace.path))) {
    if (sink.gone) return;
    tally.add(item);
    await writeItem(item, content, sink);
  }
  const end =
    trace.close === undefined ? 'The trace has no close.' : `The server ${closeText({ ...trace.close })}.`;
  await sink.write(
    // How long it all took is known only now; the bars above are drawn in parts of it.
    `</main><style>:root{--total:${Math.max(1, tally.until)}}</style>
<footer>${tally.text()}; ${tally.notifications} notifications; ${duration(tally.until)}; ${html(end)}.</footer>
<script>${SCRIPT}</script></body></html>
`,
  );
}
