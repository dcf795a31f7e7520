/** Pictures as inline SVG: colours are classes of the page's style, hatchings and signs are defined once per page. */

import type { Hatch, Mark, Picture, Shape, Tone } from './report-picture.js';
import { type Sign, SIGNS } from './report-sign.js';
import { visible } from './report-words.js';

const TONES: readonly Tone[] = ['good', 'bad', 'warn', 'gap', 'quiet', 'open', 'unsure', 'level'];

/** What a text in the page becomes: nothing in it is markup, and nothing turns the direction of what follows. */
export const escaped = (text: string): string =>
  visible(text)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');

const HATCHES: Readonly<
  Record<Exclude<Hatch, 'solid' | 'hollow'>, { readonly size: number; readonly path: string }>
> = {
  cross: { size: 6, path: 'M0 0L6 6M6 0L0 6' },
  diagonal: { size: 6, path: 'M-1 1L1 -1M0 6L6 0M5 7L7 5' },
  back: { size: 6, path: 'M-1 5L1 7M0 0L6 6M5 -1L7 1' },
  vertical: { size: 4, path: 'M1 0V4' },
  horizontal: { size: 4, path: 'M0 1H4' },
  dots: { size: 4, path: 'M1 1h1.2M3 3h1.2' },
};

/** Patterns of every tone and hatching, and the signs; before the first picture of a page. */
export function svgDefinitions(): string {
  const patterns = TONES.flatMap((tone) =>
    Object.entries(HATCHES).map(
      ([hatch, { size, path }]) =>
        `<pattern id="h-${tone}-${hatch}" width="${size}" height="${size}" patternUnits="userSpaceOnUse"><rect class="pale ${tone}" width="${size}" height="${size}"/><path class="hatching ${tone}" d="${path}"/></pattern>`,
    ),
  );
  const signs = Object.entries(SIGNS).map(
    ([name, { lines, dots }]) =>
      `<symbol id="s-${name}" viewBox="0 0 10 10"><path d="${[
        ...lines.map((line) => line.map(([x, y], i) => `${i === 0 ? 'M' : 'L'}${x} ${y}`).join('')),
        ...(dots ?? []).map(([x, y]) => `M${x} ${y}h0.01`),
      ].join('')}"/></symbol>`,
  );
  return `<svg class="definitions" width="0" height="0" aria-hidden="true" focusable="false"><defs>${patterns.join('')}${signs.join('')}</defs></svg>`;
}

/** A sign beside a word that says the same. */
export const svgSign = (sign: Sign): string =>
  `<svg class="sign" width="11" height="11" aria-hidden="true" focusable="false"><use href="#s-${sign}"/></svg>`;

/** One picture, with its title and all it says as text. */
export function svgOf(picture: Picture): string {
  const { id, width, height, title, description, shapes } = picture;
  return `<svg class="picture" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="${id}-t ${id}-d"><title id="${id}-t">${escaped(title)}</title><desc id="${id}-d">${escaped(description)}</desc>${shapes.map(drawn).join('')}</svg>`;
}

function drawn(shape: Shape): string {
  switch (shape.shape) {
    case 'box': {
      const { x, y, width, height, mark, title } = shape;
      return `<rect x="${x}" y="${y}" width="${width}" height="${height}" class="box ${mark.tone} ${mark.hatch}"${fill(mark)}>${titled(title)}</rect>`;
    }
    case 'notch': {
      const { x, y, width, height, title } = shape;
      const right = Math.round((x + width) * 100) / 100;
      return `<g>${titled(title)}<rect class="page" x="${x}" y="${y}" width="${width}" height="${height}"/><path class="edge" d="M${x} ${y}V${y + height}M${right} ${y}V${y + height}"/></g>`;
    }
    case 'line': {
      const { x1, y1, x2, y2, ink, dashed } = shape;
      return `<path class="stroke ${ink}${dashed === true ? ' dashed' : ''}" d="M${x1} ${y1}L${x2} ${y2}"/>`;
    }
    case 'sign': {
      const { x, y, size, mark } = shape;
      return `<use class="sign ${mark.tone}" href="#s-${mark.sign}" x="${x}" y="${y}" width="${size}" height="${size}"/>`;
    }
    case 'text': {
      const { x, y, text, size, ink, anchor, bold } = shape;
      return `<text class="${ink}${bold === true ? ' bold' : ''}" x="${x}" y="${y}" font-size="${size}"${anchor === undefined ? '' : ` text-anchor="${anchor}"`}>${escaped(text)}</text>`;
    }
  }
}

const titled = (title: string | undefined): string =>
  title === undefined ? '' : `<title>${escaped(title)}</title>`;

/** Solid and hollow are of the style; a class can't name a pattern of a tone. */
const fill = ({ tone, hatch }: Mark): string =>
  hatch === 'solid' || hatch === 'hollow' ? '' : ` fill="url(#h-${tone}-${hatch})"`;
