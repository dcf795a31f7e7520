/** Style of the report's page. Nothing of an export is in it. Signs, words and hatchings say what colours do. */

import { INKS, TONES } from './report-picture.js';

/** Widths of columns in percent: a style attribute would need a wider policy. */
const SHARES = Array.from({ length: 76 }, (_, i) => i + 5);

const light = Object.entries(TONES)
  .map(([tone, { strong, pale }]) => `--${tone}: ${strong}; --${tone}-pale: ${pale};`)
  .join(' ');

export const STYLE = `
:root { color-scheme: light dark; --ink: ${INKS.ink}; --soft: ${INKS.soft}; --line: ${INKS.line}; --page: ${INKS.page}; --pane: #f5f7f9; --link: #1d57b8;
  ${light}
  --mono: ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e7e9eb; --soft: #a3abb3; --line: #353b42; --page: #14171a; --pane: #1c2024; --link: #8ab6ff;
  --good: #5fcf95; --bad: #ff8288; --warn: #e8b65a; --gap: #ff9d5c; --quiet: #a3abb3; --open: #8ab6ff; --unsure: #cba4f3; --level: #8fc0e3;
  --good-pale: #16301f; --bad-pale: #3a1a1d; --warn-pale: #33280f; --gap-pale: #3a2211; --quiet-pale: #262b30; --open-pale: #17263d; --unsure-pale: #2b1f3a; --level-pale: #1b2a36; } }
${Object.keys(TONES)
  .map((tone) => `.${tone} { --tone: var(--${tone}); --pale: var(--${tone}-pale); }`)
  .join(' ')}
* { box-sizing: border-box; }
html { overflow-wrap: anywhere; }
body { margin: 0 auto; padding: 28px 28px 40px; max-width: 1060px; background: var(--page); color: var(--ink); font: 14px/1.5 system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; }
.definitions { position: absolute; }
header { border-bottom: 3px solid var(--ink); padding-bottom: 12px; }
.kind { margin: 0; font-size: 12px; font-weight: 650; letter-spacing: .06em; text-transform: uppercase; color: var(--soft); } .below { margin: 2px 0 0; color: var(--soft); font-size: 12.5px; }
h1 { margin: 2px 0 0; font-size: 28px; line-height: 1.2; font-weight: 650; } h2 { margin: 34px 0 8px; padding-top: 14px; border-top: 1px solid var(--line); font-size: 19px; font-weight: 650; } h3 { margin: 22px 0 6px; font-size: 14.5px; font-weight: 650; }
p { margin: 8px 0; max-width: 82ch; } .lead { font-size: 15.5px; margin: 14px 0 16px; }
a { color: var(--link); } :focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
nav ol { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 10px 0 0; padding: 0; list-style: none; font-size: 13px; }
ul { margin: 8px 0; padding-left: 20px; max-width: 88ch; } li { margin: 3px 0; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 3px 18px; margin: 10px 0; } .facts dt { color: var(--soft); } .facts dd { margin: 0; }
.mono { font-family: var(--mono); font-size: .9em; } .note { font-size: 11.5px; line-height: 1.4; color: var(--soft); }
.marks { margin: 10px 0; font-size: 12.5px; } .marks div { display: grid; grid-template-columns: 122px minmax(0, 1fr); gap: 0 12px; margin: 3px 0; } .marks dd { margin: 0; }
.badge { display: inline-flex; align-items: center; gap: 5px; padding: 0 8px 0 6px; border: 1px solid var(--tone); border-radius: 4px; background: var(--page); color: var(--tone); font-size: 12px; font-weight: 650; line-height: 1.55; white-space: nowrap; }
.badge.solid { background: var(--pale); } .badge:not(.solid) { border-style: dashed; } .badge.bad { border-style: double; border-width: 3px; }
.badge.back { background: repeating-linear-gradient(45deg, var(--page) 0 5px, var(--pale) 5px 7px); }
.sign { flex: none; fill: none; stroke: currentColor; stroke-width: 1.7; stroke-linecap: round; stroke-linejoin: round; } svg .sign { stroke: var(--tone); }
.notice { margin: 14px 0 0; padding: 6px 14px; border: 1px solid var(--tone); border-left-width: 6px; background: var(--pale); } .notice p { font-weight: 650; margin: 4px 0; } .notice p .sign { stroke: var(--tone); vertical-align: -1px; } .notice ul { margin: 4px 0; } .notice:not(.good) { border-style: dashed; border-left-style: solid; }
figure { margin: 12px 0; } .picture { display: block; width: 100%; max-width: 960px; height: auto; }
svg text { font-family: system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; } text.ink { fill: var(--ink); } text.soft { fill: var(--soft); } text.bold { font-weight: 650; }
.box { stroke: var(--tone); stroke-width: .8; } .box.solid { fill: var(--tone); } .box.hollow { fill: var(--page); stroke-width: 1.4; } .pale { fill: var(--pale); } .hatching { fill: none; stroke: var(--tone); stroke-width: 1.3; } rect.page { fill: var(--page); } .edge { fill: none; stroke: var(--ink); stroke-width: 1.1; }
.stroke { fill: none; stroke-width: .8; } .stroke.line { stroke: var(--line); } .stroke.dashed { stroke-dasharray: 2 3; }
.scroll { overflow-x: auto; }
table { width: 100%; min-width: 640px; margin: 14px 0; border-collapse: collapse; table-layout: fixed; font-size: 12.5px; } caption { padding: 0 0 6px; text-align: left; font-weight: 650; font-size: 13.5px; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; font-weight: 400; } thead th { overflow-wrap: normal; border-bottom: 2px solid var(--ink); font-size: 12px; font-weight: 650; vertical-align: bottom; } th:last-child, td:last-child { padding-right: 0; } .right { text-align: right; } thead th.right, td.right { padding-right: 22px; } th.right:last-child, td.right:last-child { padding-right: 0; } td.right { font-variant-numeric: tabular-nums; } td div + div { margin-top: 2px; }
${SHARES.map((share) => `.w${share} { width: ${share}%; }`).join(' ')}
footer { margin-top: 36px; padding-top: 10px; border-top: 1px solid var(--line); color: var(--soft); font-size: 12px; }
@media screen and (max-width: 700px) { figure { overflow-x: auto; } .picture { min-width: 620px; } body { padding: 16px 14px 30px; } .facts { grid-template-columns: minmax(0, 1fr); gap: 0; } .facts dd { margin-bottom: 6px; } .marks div { grid-template-columns: minmax(0, 1fr); } }
@page { size: A4; margin: 15mm 14mm 16mm; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; line-height: 1.4; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } nav { display: none; } .scroll { overflow: visible; } table { min-width: 0; font-size: 8pt; } th, td { padding-right: 7px; } thead th.right, td.right { padding-right: 14px; } thead { display: table-header-group; } tbody tr:first-child { break-before: avoid; } tr, figure, .notice, .marks div, li { break-inside: avoid; } h2, h3, caption { break-after: avoid; } section.page { break-before: page; } section.page > h2 { margin-top: 0; border-top: 0; padding-top: 0; } .badge { font-size: 7.5pt; gap: 3px; padding: 0 5px 0 4px; } .note { font-size: 7pt; } thead th { font-size: 8pt; } a { color: inherit; text-decoration: none; } h1 { font-size: 20pt; } h2 { font-size: 14pt; } .lead { font-size: 11pt; } p, ul { max-width: none; } footer { font-size: 8pt; } }
`;
