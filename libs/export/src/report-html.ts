/**
 * The report as one HTML file: no request leaves it and nothing in it runs. What sinks, agents or admins named stands
 * in it as text. The same model gives the same bytes.
 */

import { createHash } from 'node:crypto';
import { type Block, type Cell, reportBlocks } from './report-document.js';
import { STYLE } from './report-html-style.js';
import type { ReportModel } from './report-model.js';
import type { Mark } from './report-picture.js';
import { escaped, svgDefinitions, svgOf, svgSign } from './report-svg.js';
import { figure, timeText } from './report-words.js';

const POLICY = `default-src 'none'; style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'; base-uri 'none'; form-action 'none'`;

/** report.html of an export. */
export function renderReport(model: ReportModel): string {
  const contents: string[] = [];
  const body: string[] = [];
  let belowTitle = 0;
  for (const block of reportBlocks(model)) {
    if (block.block === 'heading' && block.level === 2) {
      body.push(
        `${contents.length > 0 ? '</section>\n' : ''}<section${block.page === true ? ' class="page"' : ''}>`,
      );
      contents.push(`<li><a href="#${block.id}">${escaped(block.text)}</a></li>`);
    }
    body.push(rendered(block));
    if (block.block === 'title') belowTitle = body.length;
  }
  const nav = `<nav aria-label="Contents"><ol>${contents.join('')}</ol></nav>\n`;
  const section = contents.length > 0 ? '</section>\n' : '';
  return [
    head(model),
    ...body.slice(0, belowTitle),
    nav,
    ...body.slice(belowTitle),
    section,
    foot(model),
  ].join('');
}

const head = (model: ReportModel): string => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${POLICY}"><meta name="referrer" content="no-referrer">
<title>Evidence report: ${escaped(model.project.name)}</title><style>${STYLE}</style></head><body>
${svgDefinitions()}
<main>
`;

const foot = ({ log, asOf }: ReportModel): string => `</main>
<footer>${escaped(log.origin)}, as of ${figure(asOf.size)} entries, ${escaped(timeText(asOf.time))}. Made from the entries and receipts of the export it came with: check it with a verifier (README.md) before you rely on it.</footer>
</body></html>
`;

function rendered(block: Block): string {
  switch (block.block) {
    case 'title':
      return `<header><p class="kind">${escaped(block.kind)}</p><h1>${escaped(block.text)}</h1><p class="below">${escaped(block.below)}</p></header>\n`;
    case 'heading':
      return `<h${block.level} id="${block.id}">${escaped(block.text)}</h${block.level}>\n`;
    case 'text':
      return `<p${block.lead === true ? ' class="lead"' : ''}>${escaped(block.text)}</p>\n`;
    case 'notice':
      return `<div class="notice ${block.mark.tone}"><p>${svgSign(block.mark.sign)} ${escaped(block.text)}</p>${block.items.length === 0 ? '' : list(block.items)}</div>\n`;
    case 'list':
      return list(block.items);
    case 'marks':
      return `<dl class="marks">${block.items
        .map(({ mark, word, says }) => `<div><dt>${badge(mark, word)}</dt><dd>${escaped(says)}</dd></div>`)
        .join('')}</dl>\n`;
    case 'facts':
      return `<dl class="facts">${block.rows
        .map(
          ({ term, value, mono }) =>
            `<dt>${escaped(term)}</dt><dd${mono === true ? ' class="mono"' : ''}>${escaped(value)}</dd>`,
        )
        .join('')}</dl>\n`;
    case 'picture':
      return `<figure>${svgOf(block.picture)}</figure>\n`;
    case 'table':
      return table(block);
  }
}

const list = (items: readonly string[]): string =>
  `<ul>${items.map((item) => `<li>${escaped(item)}</li>`).join('')}</ul>\n`;

const badge = (mark: Mark, word: string): string =>
  `<span class="badge ${mark.tone} ${mark.hatch}">${svgSign(mark.sign)}${escaped(word)}</span>`;

function table({ caption, columns, rows }: Extract<Block, { readonly block: 'table' }>): string {
  const heads = columns.map(
    ({ head: text, share, right }) =>
      `<th scope="col" class="w${Math.round(share * 100)}${right === true ? ' right' : ''}">${escaped(text)}</th>`,
  );
  const body: string[] = [];
  for (const row of rows) {
    body.push(
      `<tr>${row
        .map((cell, i) => {
          const right = columns[i]?.right === true ? ' class="right"' : '';
          const inner = cellHtml(cell);
          return i === 0 ? `<th scope="row"${right}>${inner}</th>` : `<td${right}>${inner}</td>`;
        })
        .join('')}</tr>\n`,
    );
  }
  return `<div class="scroll"><table><caption>${escaped(caption)}</caption><thead><tr>${heads.join('')}</tr></thead><tbody>
${body.join('')}</tbody></table></div>\n`;
}

function cellHtml({ badge: marked, lines, notes, mono }: Cell): string {
  return [
    marked === undefined ? '' : badge(marked.mark, marked.word),
    ...(lines ?? []).map((line) => `<div${mono === true ? ' class="mono"' : ''}>${escaped(line)}</div>`),
    ...(notes ?? []).map((note) => `<div class="note">${escaped(note)}</div>`),
  ].join('');
}
