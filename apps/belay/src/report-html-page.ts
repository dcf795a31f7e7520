/** Style and script of the HTML page of verifications. Nothing of a record is in them. */

export const STYLE = `
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5c636b; --line: #e1e5e9; --page: #fff; --pane: #f5f7f9; --focus: #2f6fdd;
  --pass: #1a7f4b; --warn: #8f5b00; --unverified: #7a3fb0; --fail: #c0272d; --pass-bg: #e6f5ec; --warn-bg: #fdf1da; --unverified-bg: #f2e9fb; --fail-bg: #fdebea;
  --mono: ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #9aa2aa; --line: #2f353b; --page: #15181b; --pane: #1d2125; --focus: #7fb0ff;
  --pass: #58cc8d; --warn: #e6b154; --unverified: #c79bf2; --fail: #ff7f78; --pass-bg: #15301f; --warn-bg: #35290f; --unverified-bg: #2b1f3a; --fail-bg: #3b1b1b; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 96px; }
body { margin: 0 auto; max-width: 1280px; background: var(--page); color: var(--ink); font: 14px/1.45 system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; }
header, footer { padding: 22px 24px 14px; } footer { color: var(--soft); }
h1 { margin: 0 0 4px; font-size: 21px; font-weight: 650; overflow-wrap: anywhere; }
h2 { margin: 0; font-size: 16px; font-weight: 650; overflow-wrap: anywhere; }
h3 { margin: 14px 0 4px; font-size: 12px; font-weight: 650; color: var(--soft); }
:focus-visible { outline: 2px solid var(--focus); outline-offset: 1px; }
.badge { display: inline-block; min-width: 6.4em; padding: 1px 8px; border: 1px solid currentColor; border-radius: 4px; font-size: 12px; font-weight: 650; text-align: center; white-space: nowrap; }
.big { font-size: 15px; padding: 3px 12px; margin-right: 8px; }
.PASS { color: var(--pass); } .WARN { color: var(--warn); } .UNVERIFIED { color: var(--unverified); } .FAIL { color: var(--fail); } .NOT_COVERED { color: var(--soft); }
.badge.PASS { background: var(--pass-bg); } .badge.WARN { background: var(--warn-bg); } .badge.UNVERIFIED { background: var(--unverified-bg); border-style: dashed; } .badge.FAIL { background: var(--fail-bg); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 12px 0 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; } code, pre, dd.code, .mono { font-family: var(--mono); font-size: 12.5px; }
nav { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: center; padding: 8px 24px; background: var(--page); border-block: 1px solid var(--line); }
nav input[type=search] { flex: 0 1 260px; min-width: 140px; } nav input[type=search], button { padding: 4px 9px; font: inherit; color: inherit; background: var(--pane); border: 1px solid var(--line); border-radius: 5px; }
nav label { white-space: nowrap; } #shown, .keys { color: var(--soft); } kbd { padding: 0 4px; border: 1px solid var(--line); border-radius: 3px; font: 11px var(--mono); background: var(--pane); }
section { margin: 18px 24px 30px; border: 1px solid var(--line); border-radius: 8px; overflow: clip; }
.lead { padding: 14px 18px 16px; background: var(--pane); }
svg.bars { display: block; width: 100%; height: auto; margin-top: 14px; } svg text { font: 11px system-ui, 'DejaVu Sans', sans-serif; fill: var(--soft); }
svg .f-PASS { fill: var(--pass); } svg .f-WARN { fill: var(--warn); } svg .f-UNVERIFIED { fill: var(--unverified); } svg .f-FAIL { fill: var(--fail); } svg .gap { stroke: var(--page); } svg a:hover rect { opacity: .7; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0 0; padding: 0; list-style: none; } .legend b { font-weight: 650; }
.part { border-top: 1px solid var(--line); } .part > summary { display: grid; grid-template-columns: 112px 150px 130px 208px 1fr; gap: 0 12px; align-items: baseline; padding: 5px 18px; cursor: pointer; list-style: none; }
.part > summary::-webkit-details-marker { display: none; } .part > summary:hover { background: var(--pane); } .part[open] > summary { background: var(--pane); }
.part.drift > summary, .part.session > summary { font-style: italic; }
.tool { font-family: var(--mono); font-size: 12.5px; font-style: normal; overflow-wrap: anywhere; } .why { overflow-wrap: anywhere; } .why b { font-weight: 600; }
.axes { display: flex; gap: 4px; } .axis { flex: 1; max-width: 36px; padding: 0 2px; border-bottom: 3px solid; font-size: 11px; font-style: normal; text-align: center; color: var(--soft); border-color: var(--line); }
.axis.PASS { border-color: var(--pass); } .axis.WARN { border-color: var(--warn); color: var(--warn); } .axis.UNVERIFIED { border-color: var(--unverified); border-bottom-style: dashed; color: var(--unverified); } .axis.FAIL { border-color: var(--fail); color: var(--fail); font-weight: 650; } .axis.NOT_COVERED { border-bottom-style: dotted; border-color: var(--soft); }
.tag { padding: 0 6px; border: 1px solid currentColor; border-radius: 9px; font-size: 11px; font-style: normal; color: var(--soft); white-space: nowrap; }
.body { padding: 4px 18px 18px; } .meaning { margin: 8px 0 0; padding: 8px 12px; border-left: 3px solid currentColor; background: var(--pane); } .meaning span { color: var(--ink); }
table { width: 100%; border-collapse: collapse; table-layout: fixed; } th, td { padding: 3px 10px 3px 0; text-align: left; vertical-align: top; overflow-wrap: anywhere; border-bottom: 1px solid var(--line); } th { font-weight: 600; font-size: 12px; color: var(--soft); } .narrow { width: 100px; } .mid { width: 210px; }
td.rec, td.rep, td pre { font-family: var(--mono); font-size: 12.5px; white-space: pre-wrap; } td.rec { background: var(--fail-bg); } td.rep { background: var(--pass-bg); } .soft td.rec, .soft td.rep { background: none; }
pre { margin: 0; padding: 8px 10px; max-height: 460px; overflow: auto; background: var(--pane); border: 1px solid var(--line); border-radius: 5px; white-space: pre-wrap; overflow-wrap: anywhere; }
.diff span { display: block; min-height: 1.45em; padding: 0 4px; } .diff .add { background: var(--pass-bg); color: var(--pass); } .diff .del { background: var(--fail-bg); color: var(--fail); } .diff .at { color: var(--unverified); } .diff .name { color: var(--soft); }
.change { margin-top: 6px; } .change > summary { cursor: pointer; } .change pre { margin-top: 4px; }
.facts { font-size: 12.5px; }
@media screen and (max-width: 900px) { svg text { display: none; } .part > summary { grid-template-columns: 104px max-content 1fr; gap: 2px 12px; } .part > summary > :nth-child(n+4) { grid-column: 1 / -1; } .axes { max-width: 230px; } section { margin-inline: 10px; } header, nav, footer { padding-inline: 14px; } .keys { display: none; } .mid { width: 90px; } }
@media print { nav { display: none; } body { max-width: none; font-size: 11px; } section { margin: 12px 0; overflow: visible; } .part > summary { grid-template-columns: 88px 112px 84px 140px 1fr; gap: 0 8px; padding: 4px 8px; } .body { padding-inline: 8px; } .mid { width: 150px; } pre { max-height: none; overflow: visible; } .part > summary, .change, h3 { break-inside: avoid; break-after: avoid; } .part::details-content { content-visibility: visible; height: auto; } .part[data-status=PASS]::details-content { content-visibility: hidden; height: 0; } * { print-color-adjust: exact; } }
`;

export const SCRIPT = `
const parts = [...document.querySelectorAll('.part')];
const find = document.querySelector('#find');
const boxes = [...document.querySelectorAll('nav input[type=checkbox]')];
const shown = document.querySelector('#shown');
function sift() {
  const words = find.value.toLowerCase().split(/\\s+/).filter(Boolean);
  const wanted = new Set(boxes.filter((each) => each.checked).map((each) => each.value));
  let count = 0;
  for (const part of parts) {
    const text = words.length === 0 ? '' : part.textContent.toLowerCase();
    const fits = wanted.has(part.dataset.status) && words.every((word) => text.includes(word));
    part.hidden = !fits;
    if (fits) count++;
  }
  shown.textContent = count + ' of ' + parts.length + ' shown';
}
find.addEventListener('input', sift);
for (const box of boxes) box.addEventListener('change', sift);
document.querySelector('#all').addEventListener('click', () => {
  const seen = parts.filter((each) => !each.hidden);
  const open = seen.some((each) => !each.open);
  for (const each of seen) each.open = open;
});
function go(step, bad) {
  const seen = parts.filter((each) => !each.hidden && (!bad || each.dataset.status !== 'PASS'));
  if (seen.length === 0) return;
  const here = document.activeElement.closest('.part');
  const place = here ? parts.indexOf(here) : step > 0 ? -1 : parts.length;
  const next = step > 0 ? seen.find((each) => parts.indexOf(each) > place) : seen.findLast((each) => parts.indexOf(each) < place);
  const to = next ?? (step > 0 ? seen[0] : seen.at(-1));
  to.querySelector('summary').focus();
  to.scrollIntoView({ block: 'nearest' });
}
function show() {
  const part = document.getElementById(location.hash.slice(1));
  if (!part || !part.classList.contains('part')) return;
  part.hidden = false;
  part.open = true;
  part.querySelector('summary').focus({ preventScroll: true });
  part.scrollIntoView({ block: 'start' });
}
addEventListener('hashchange', show);
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches('input[type=search]')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  const act = { j: () => go(1, false), k: () => go(-1, false), n: () => go(1, true), p: () => go(-1, true), '/': () => find.focus() }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
addEventListener('beforeprint', () => { for (const each of parts) if (each.dataset.status !== 'PASS') each.open = true; });
sift();
show();
`;
