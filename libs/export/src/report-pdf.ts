/**
 * The report as a PDF of A4 pages: the blocks of the page, drawn. Text is text, headings are bookmarks, structure is
 * tagged for readers. The same model gives the same bytes under the same zlib: the only date in it is the model's, and
 * identifiers are made from that.
 *
 * @module
 */

import type { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import PDFDocument from 'pdfkit';
import { type Badge, type Block, type Cell, reportBlocks } from './report-document.js';
import type { ReportModel } from './report-model.js';
import { type Hatch, INKS, type Mark, type Picture, type Shape, TONES } from './report-picture.js';
import { type Sign, SIGNS } from './report-sign.js';
import { counted, timeText } from './report-words.js';

const WIDTH = 595.28;
const HEIGHT = 841.89;
const LEFT = 46;
const TOP = 46;
const BOTTOM = HEIGHT - 54;
const ROOM = WIDTH - 2 * LEFT;

const FACES = { plain: 'Helvetica', bold: 'Helvetica-Bold', mono: 'Courier' } as const;
type Face = keyof typeof FACES;

/** What Windows-1252 has beyond Latin-1, which is all that the faces every PDF reader brings can draw. */
const BEYOND_LATIN = '€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ';

/** Text with every character that can't be drawn told by its number: ‹U+4E2D›. */
export function drawable(text: string): string {
  let out = '';
  for (const char of text) {
    const code = char.codePointAt(0) ?? 0;
    const known =
      (code >= 0x20 && code < 0x7f) ||
      (code >= 0xa0 && code <= 0xff && code !== 0xad) ||
      BEYOND_LATIN.includes(char);
    out += known
      ? char
      : code === 0x0a || code === 0x09
        ? ' '
        : `‹U+${code.toString(16).toUpperCase().padStart(4, '0')}›`;
  }
  return out;
}

/**
 * Writes report.pdf. Laid out twice, the first time to learn how many pages there are: what is in memory is a page,
 * not the report. Ends `out`, and resolves when it took everything.
 */
export async function renderPdf(model: ReportModel, out: Writable): Promise<void> {
  const counting = newDocument(model);
  counting.resume();
  const pages = await layOut(model, counting, 0);
  const doc = newDocument(model);
  const written = finished(out, { readable: false });
  doc.pipe(out);
  await Promise.all([written, layOut(model, doc, pages)]);
}

function newDocument({ project, log, asOf }: ReportModel): PDFKit.PDFDocument {
  return new PDFDocument({
    size: 'A4',
    margin: 0,
    autoFirstPage: false,
    pdfVersion: '1.7',
    lang: 'en',
    tagged: true,
    displayTitle: true,
    info: {
      Title: drawable(`Evidence report: ${project.name}`),
      Subject: drawable(`Log ${log.origin} as of ${counted(asOf.size, 'entry', 'entries')}`),
      Producer: 'belay',
      Creator: 'belay',
      CreationDate: new Date(asOf.time),
    },
  });
}

/** Returns how many pages there are. Lets what was drawn flow out page by page. */
async function layOut(model: ReportModel, doc: PDFKit.PDFDocument, pages: number): Promise<number> {
  const pen = new Pen(doc, footer(model), pages);
  for (const block of reportBlocks(model)) {
    if (block.block !== 'table') {
      pen.draw(block);
      continue;
    }
    pen.tableHead(block);
    for (const row of block.rows) {
      pen.row(block, row);
      if (doc.readableLength > doc.readableHighWaterMark) await new Promise((flowed) => setImmediate(flowed));
    }
    pen.tableEnd();
  }
  const count = pen.end();
  doc.end();
  return count;
}

const footer = ({ project, log, asOf }: ReportModel): string =>
  drawable(
    `${project.name} · ${log.origin} · as of ${counted(asOf.size, 'entry', 'entries')}, ${timeText(asOf.time)}`,
  );

type Element = PDFKit.PDFStructureElement;
type Table = Extract<Block, { readonly block: 'table' }>;

/** A line of a cell. */
interface Line {
  readonly text: string;
  readonly face: Face;
  readonly size: number;
  readonly ink: string;
  readonly height: number;
  readonly badge?: Mark;
}

const TABLE_SIZE = 7.8;
const LEADING = 1.28;
const CELL_GAP = 7;
const ROW_PAD = 3.5;
/** Texts up to this many characters are measured once. */
const WORD = 40;
const WIDTHS_KEPT = 4_096;
/** Between two sentences of a cell. */
const LINE_GAP = 1.4;

class Pen {
  readonly #doc: PDFKit.PDFDocument;
  readonly #footer: string;
  readonly #pages: number;
  readonly #root: Element;
  #section: Element;
  #table: Element | undefined;
  #chapter: PDFKit.PDFOutline | undefined;
  #page = 0;
  #y = TOP;
  /** Widths of short texts, most of which come again, by face, at size 1,000. */
  readonly #widths = new Map<string, number>();

  constructor(doc: PDFKit.PDFDocument, footerText: string, pages: number) {
    this.#doc = doc;
    this.#footer = footerText;
    this.#pages = pages;
    this.#root = doc.struct('Document');
    doc.addStructure(this.#root);
    this.#section = doc.struct('Sect');
    this.#root.add(this.#section);
    this.#newPage();
  }

  draw(block: Exclude<Block, Table>): void {
    switch (block.block) {
      case 'title':
        return this.#title(block.kind, block.text, block.below);
      case 'heading':
        return this.#heading(block.text, block.level, block.page === true);
      case 'text':
        this.#paragraph(block.text, block.lead === true ? 11 : 9.5);
        this.#y += block.lead === true ? 8 : 4;
        return;
      case 'notice':
        return this.#notice(block.mark, block.text, block.items);
      case 'list':
        return this.#list(block.items, 9);
      case 'marks':
        return this.#marks(block.items);
      case 'facts':
        return this.#facts(block.rows);
      case 'picture':
        return this.#picture(block.picture);
    }
  }

  end(): number {
    this.#section.end();
    this.#root.end();
    return this.#page;
  }

  #newPage(): void {
    const doc = this.#doc;
    doc.addPage();
    this.#page += 1;
    this.#y = TOP;
    doc.markContent('Artifact', { type: 'Pagination' });
    const y = HEIGHT - 30;
    this.#rule(LEFT, y - 12, LEFT + ROOM, INKS.line, 0.6);
    const number = this.#pages === 0 ? `Page ${this.#page}` : `Page ${this.#page} of ${this.#pages}`;
    const width = this.#width(number, 'plain', 7.5);
    this.#text(number, LEFT + ROOM - width, y, 'plain', 7.5, INKS.soft);
    this.#text(this.#cut(this.#footer, 'plain', 7.5, ROOM - 90), LEFT, y, 'plain', 7.5, INKS.soft);
    doc.endMarkedContent();
  }

  /** Goes to a new page when less than `height` is left. */
  #room(height: number): void {
    if (this.#y + height > BOTTOM && this.#y > TOP) this.#newPage();
  }

  /** Draws as a tagged part of `parent`, which may get several such parts when it goes over pages. */
  #tagged(parent: Element, type: string, draw: () => void, options: { readonly alt?: string } = {}): void {
    const element = this.#doc.struct(type, options);
    parent.add(element);
    this.#part(element, type, draw);
    element.end();
  }

  #part(element: Element, type: string, draw: () => void): void {
    const content = this.#doc.markStructureContent(type);
    draw();
    this.#doc.endMarkedContent();
    element.add(content);
  }

  #artifact(draw: () => void): void {
    this.#doc.markContent('Artifact', { type: 'Layout' });
    draw();
    this.#doc.endMarkedContent();
  }

  // --- text

  #width(text: string, face: Face, size: number): number {
    const key = `${face} ${text}`;
    let width = this.#widths.get(key);
    if (width === undefined) {
      width = this.#doc.font(FACES[face]).fontSize(1_000).widthOfString(text);
      if (this.#widths.size >= WIDTHS_KEPT) this.#widths.clear();
      if (text.length <= WORD) this.#widths.set(key, width);
    }
    return (width * size) / 1_000;
  }

  /** `y` is that of the baseline; `text` is drawable. */
  #text(text: string, x: number, y: number, face: Face, size: number, ink: string): void {
    this.#doc
      .font(FACES[face])
      .fontSize(size)
      .fillColor(ink)
      .text(text, x, y, { lineBreak: false, baseline: 'alphabetic' });
  }

  #rule(x1: number, y: number, x2: number, ink: string, width: number): void {
    this.#doc.moveTo(x1, y).lineTo(x2, y).lineWidth(width).strokeColor(ink).stroke();
  }

  #cut(text: string, face: Face, size: number, width: number): string {
    if (this.#width(text, face, size) <= width) return text;
    const chars = Array.from(text);
    let low = 0;
    let high = chars.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#width(`${chars.slice(0, middle).join('')}…`, face, size) <= width) low = middle;
      else high = middle - 1;
    }
    return `${chars.slice(0, low).join('')}…`;
  }

  /** Lines no wider than `width`; a word that is longer is broken. */
  #wrap(text: string, face: Face, size: number, width: number): string[] {
    const lines: string[] = [];
    const space = this.#width(' ', face, size);
    let line = '';
    // Of its words and spaces, each measured once. Kerning between them only makes a line narrower.
    let used = 0;
    for (const word of drawable(text).split(' ')) {
      const wide = this.#width(word, face, size);
      if (line !== '' && used + space + wide <= width) {
        line = `${line} ${word}`;
        used += space + wide;
        continue;
      }
      if (line !== '') lines.push(line);
      line = word;
      used = wide;
      while (used > width) {
        const part = this.#prefix(line, face, size, width);
        lines.push(part);
        line = line.slice(part.length);
        used = this.#width(line, face, size);
      }
    }
    lines.push(line);
    return lines;
  }

  /** As much of a word as fits, at least a character; broken after a sign where there is one in its second half. */
  #prefix(word: string, face: Face, size: number, width: number): string {
    let low = 1;
    // No character is narrower than a sixth of its size.
    let high = Math.min(word.length, Math.ceil((width * 6) / size));
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#width(word.slice(0, middle), face, size) <= width) low = middle;
      else high = middle - 1;
    }
    const sign = Math.max(...['/', ':', '-', '_', '.'].map((each) => word.lastIndexOf(each, low - 1)));
    return word.slice(0, sign > low / 2 ? sign + 1 : low);
  }

  // --- blocks

  #title(kind: string, title: string, below: string): void {
    this.#tagged(this.#section, 'H1', () => {
      this.#text(kind.toUpperCase(), LEFT, this.#y + 8, 'bold', 8.5, INKS.soft);
      this.#y += 14;
      for (const line of atMost(this.#wrap(title, 'bold', 21, ROOM), 3)) {
        this.#text(line, LEFT, this.#y + 18, 'bold', 21, INKS.ink);
        this.#y += 25;
      }
    });
    this.#tagged(this.#section, 'P', () => {
      this.#text(this.#cut(drawable(below), 'plain', 9, ROOM), LEFT, this.#y + 9, 'plain', 9, INKS.soft);
    });
    this.#y += 16;
    this.#artifact(() => this.#rule(LEFT, this.#y, LEFT + ROOM, INKS.ink, 1.6));
    this.#y += 10;
  }

  #heading(text: string, level: 2 | 3, page: boolean): void {
    const size = level === 2 ? 14 : 10.5;
    if (page && this.#y > TOP) this.#newPage();
    // With the first lines of what it is about.
    this.#room(size + 70);
    if (level === 2) {
      this.#section.end();
      this.#section = this.#doc.struct('Sect');
      this.#root.add(this.#section);
    }
    const words = drawable(text);
    if (level === 2) this.#chapter = this.#doc.outline.addItem(words, { expanded: true });
    else (this.#chapter ?? this.#doc.outline).addItem(words);
    this.#y += this.#y > TOP ? (level === 2 ? 14 : 8) : 0;
    this.#tagged(this.#section, level === 2 ? 'H2' : 'H3', () => {
      this.#text(words, LEFT, this.#y + size, 'bold', size, INKS.ink);
    });
    this.#y += size + 8;
  }

  #paragraph(text: string, size: number, left = LEFT, face: Face = 'plain', parent = this.#section): void {
    const lines = this.#wrap(text, face, size, LEFT + ROOM - left);
    const step = size * 1.36;
    const element = this.#doc.struct('P');
    parent.add(element);
    for (const line of lines) {
      this.#room(step);
      this.#part(element, 'P', () => this.#text(line, left, this.#y + size, face, size, INKS.ink));
      this.#y += step;
    }
    element.end();
  }

  #list(items: readonly string[], size: number, left = LEFT): void {
    for (const item of items) {
      this.#room(size * 2.8);
      const y = this.#y;
      this.#artifact(() => this.#text('•', left + 2, y + size, 'plain', size, INKS.ink));
      this.#paragraph(item, size, left + 13);
      this.#y += 2.5;
    }
    this.#y += 3;
  }

  #notice(mark: Mark, text: string, items: readonly string[]): void {
    const { strong, pale } = TONES[mark.tone];
    const inner = ROOM - 40;
    const heads = this.#wrap(text, 'bold', 9.5, inner);
    const lines = items.map((item) => atMost(this.#wrap(item, 'plain', 8.8, inner - 12), 5));
    const height =
      14 +
      heads.length * 13 +
      lines.reduce((sum, each) => sum + each.length * 11.6 + 2, 0) +
      (items.length > 0 ? 4 : 0);
    this.#y += 5;
    this.#room(height + 4);
    const top = this.#y;
    this.#artifact(() => {
      this.#doc.rect(LEFT, top, ROOM, height).fillColor(pale).fill();
      this.#doc.rect(LEFT, top, ROOM, height).lineWidth(0.8).strokeColor(strong);
      if (mark.hatch === 'solid') this.#doc.stroke();
      else this.#doc.dash(2.5, { space: 2 }).stroke().undash();
      this.#doc.rect(LEFT, top, 5, height).fillColor(strong).fill();
      this.#sign(mark.sign, LEFT + 14, top + 9, 9, strong);
    });
    this.#y += 8;
    for (const line of heads) {
      this.#tagged(this.#section, 'P', () => this.#text(line, LEFT + 28, this.#y + 9, 'bold', 9.5, INKS.ink));
      this.#y += 13;
    }
    this.#y += items.length > 0 ? 4 : 0;
    for (const each of lines) {
      this.#artifact(() => this.#text('•', LEFT + 28, this.#y + 8.5, 'plain', 8.8, INKS.ink));
      for (const line of each) {
        this.#tagged(this.#section, 'P', () =>
          this.#text(line, LEFT + 40, this.#y + 8.5, 'plain', 8.8, INKS.ink),
        );
        this.#y += 11.6;
      }
      this.#y += 2;
    }
    this.#y = top + height + 6;
  }

  #marks(items: readonly (Badge & { readonly says: string })[]): void {
    for (const { mark, word, says } of items) {
      const lines = this.#wrap(says, 'plain', 8.5, ROOM - 104);
      this.#room(lines.length * 11.5 + 4);
      this.#tagged(this.#section, 'P', () => {
        this.#badge(mark, word, LEFT, this.#y + 1, 7.8);
        for (const [i, line] of lines.entries()) {
          this.#text(line, LEFT + 104, this.#y + 9 + i * 11.5, 'plain', 8.5, INKS.ink);
        }
      });
      this.#y += lines.length * 11.5 + 4;
    }
    this.#y += 6;
  }

  #facts(rows: Extract<Block, { readonly block: 'facts' }>['rows']): void {
    const left = 14 + Math.max(...rows.map(({ term }) => this.#width(drawable(term), 'plain', 9.3)));
    for (const { term, value, mono } of rows) {
      const face = mono === true ? 'mono' : 'plain';
      const size = mono === true ? 8.6 : 9.3;
      const lines = this.#wrap(value, face, size, ROOM - left);
      const element = this.#doc.struct('P');
      this.#section.add(element);
      for (const [i, line] of lines.entries()) {
        this.#room(12.6);
        this.#part(element, 'P', () => {
          if (i === 0) this.#text(drawable(term), LEFT, this.#y + 9.3, 'plain', 9.3, INKS.soft);
          this.#text(line, LEFT + left, this.#y + 9.3, face, size, INKS.ink);
        });
        this.#y += 12.6;
      }
      element.end();
      this.#y += 1;
    }
    this.#y += 4;
  }

  // --- tables

  tableHead(table: Table): void {
    this.#y += 6;
    this.#room(96);
    this.#table = this.#doc.struct('Table');
    this.#section.add(this.#table);
    for (const line of this.#wrap(table.caption, 'bold', 9.5, ROOM)) {
      this.#tagged(this.#table, 'Caption', () =>
        this.#text(line, LEFT, this.#y + 9.5, 'bold', 9.5, INKS.ink),
      );
      this.#y += 13;
    }
    this.#y += 2;
    this.#heads(table, this.#table);
  }

  tableEnd(): void {
    this.#table?.end();
    this.#table = undefined;
    this.#y += 8;
  }

  /** Above every page of a table; for a reader by ear, only once. */
  #heads({ columns }: Table, parent: Element | undefined): void {
    const cells = columns.map(({ head, share }) =>
      this.#wrap(head, 'bold', TABLE_SIZE, share * ROOM - CELL_GAP),
    );
    const step = TABLE_SIZE * LEADING;
    const height = Math.max(...cells.map((lines) => lines.length)) * step;
    const row = parent === undefined ? undefined : this.#doc.struct('TR');
    if (row !== undefined) parent?.add(row);
    let x = LEFT;
    for (const [i, { share, right }] of columns.entries()) {
      const lines = cells[i] ?? [];
      const draw = (): void => {
        for (const [j, line] of lines.entries()) {
          const y = this.#y + height - (lines.length - j) * step + TABLE_SIZE;
          const width = this.#width(line, 'bold', TABLE_SIZE);
          const at = right === true ? x + share * ROOM - this.#gap(i, columns.length) - width : x;
          this.#text(line, at, y, 'bold', TABLE_SIZE, INKS.ink);
        }
      };
      if (row === undefined) this.#artifact(draw);
      else this.#tagged(row, 'TH', draw);
      x += share * ROOM;
    }
    row?.end();
    this.#y += height + 3;
    this.#artifact(() => this.#rule(LEFT, this.#y, LEFT + ROOM, INKS.ink, 1));
    this.#y += ROW_PAD;
  }

  /** Between a number at the right and what follows is more room. */
  #gap(column: number, columns: number): number {
    return column === columns - 1 ? 0 : CELL_GAP + 5;
  }

  row(table: Table, cells: readonly Cell[]): void {
    const { columns } = table;
    const laid = columns.map(({ share }, i) => this.#cellLines(cells[i] ?? {}, share * ROOM - CELL_GAP));
    const heights = laid.map((lines) => lines.reduce((sum, { height }) => sum + height, 0));
    const height = Math.max(...heights, TABLE_SIZE);
    // A row stays whole unless a page can't hold it.
    if (this.#y + height + ROW_PAD > BOTTOM && height < BOTTOM - TOP - 40) {
      this.#newPage();
      this.#heads(table, undefined);
    }
    const row = this.#doc.struct('TR');
    this.#table?.add(row);
    const elements = columns.map((_, i) => {
      const element = this.#doc.struct(i === 0 ? 'TH' : 'TD');
      row.add(element);
      return element;
    });
    let left = laid.map((lines) => [...lines]);
    while (left.some((lines) => lines.length > 0)) {
      const room = BOTTOM - this.#y - ROW_PAD;
      let deepest = 0;
      let x = LEFT;
      const rest: Line[][] = [];
      for (const [i, { share, right }] of columns.entries()) {
        const lines = left[i] ?? [];
        let used = 0;
        let fits = 0;
        for (const { height: each } of lines) {
          if (used + each > room && used > 0) break;
          used += each;
          fits += 1;
        }
        const element = elements[i];
        if (fits > 0 && element !== undefined) {
          const edge = right === true ? x + share * ROOM - this.#gap(i, columns.length) : undefined;
          this.#part(element, i === 0 ? 'TH' : 'TD', () => this.#lines(lines.slice(0, fits), x, edge));
        }
        rest.push(lines.slice(fits));
        deepest = Math.max(deepest, used);
        x += share * ROOM;
      }
      left = rest;
      this.#y += deepest;
      if (left.some((lines) => lines.length > 0)) {
        this.#newPage();
        this.#heads(table, undefined);
      }
    }
    for (const element of elements) element.end();
    row.end();
    this.#y += ROW_PAD;
    this.#artifact(() => this.#rule(LEFT, this.#y, LEFT + ROOM, INKS.line, 0.5));
    this.#y += ROW_PAD;
  }

  #cellLines({ badge, lines = [], notes = [], mono }: Cell, width: number): Line[] {
    const face: Face = mono === true ? 'mono' : 'plain';
    const size = mono === true ? TABLE_SIZE - 0.4 : TABLE_SIZE;
    return [
      ...(badge === undefined
        ? []
        : [
            {
              text: drawable(badge.word),
              face: 'bold' as const,
              size: 7.2,
              ink: TONES[badge.mark.tone].strong,
              height: 13.5,
              badge: badge.mark,
            },
          ]),
      ...lines.flatMap((line) =>
        this.#wrap(line, face, size, width).map((text, i, all) => ({
          text,
          face,
          size,
          ink: INKS.ink,
          height: size * LEADING + (i === all.length - 1 ? LINE_GAP : 0),
        })),
      ),
      ...notes.flatMap((note) =>
        this.#wrap(note, 'plain', 6.8, width).map((text) => ({
          text,
          face: 'plain' as const,
          size: 6.8,
          ink: INKS.soft,
          height: 6.8 * LEADING,
        })),
      ),
    ];
  }

  #lines(lines: readonly Line[], x: number, edge: number | undefined): void {
    let y = this.#y;
    for (const { text, face, size, ink, height, badge } of lines) {
      if (badge !== undefined) this.#badge(badge, text, x, y - 1, size);
      else {
        const at = edge === undefined ? x : edge - this.#width(text, face, size);
        this.#text(text, at, y + size * 0.92, face, size, ink);
      }
      y += height;
    }
  }

  #badge({ tone, hatch, sign }: Mark, word: string, x: number, y: number, size: number): void {
    const { strong, pale } = TONES[tone];
    const width = this.#width(word, 'bold', size) + size + 12;
    const height = size + 4.4;
    const doc = this.#doc;
    if (hatch === 'solid') doc.roundedRect(x, y, width, height, 2).fillColor(pale).fill();
    doc.roundedRect(x, y, width, height, 2).lineWidth(0.7).strokeColor(strong);
    if (hatch === 'solid') doc.stroke();
    else if (tone === 'bad') {
      doc.stroke();
      doc
        .roundedRect(x + 1.5, y + 1.5, width - 3, height - 3, 1.5)
        .lineWidth(0.5)
        .stroke();
    } else doc.dash(1.8, { space: 1.4 }).stroke().undash();
    this.#sign(sign, x + 4.5, y + 2.6, size - 0.8, strong);
    this.#text(word, x + size + 7, y + size * 0.5 + height * 0.5 - size * 0.15, 'bold', size, strong);
  }

  // --- pictures

  #picture(picture: Picture): void {
    const most = BOTTOM - TOP - 60;
    const scale = Math.min(ROOM / picture.width, most / picture.height);
    const height = picture.height * scale;
    this.#room(height + 6);
    const alt = `${picture.title}. ${picture.description}`;
    this.#tagged(
      this.#section,
      'Figure',
      () => {
        this.#doc.save().translate(LEFT, this.#y).scale(scale);
        for (const shape of picture.shapes) this.#shape(shape);
        this.#doc.restore();
      },
      { alt },
    );
    this.#y += height + 8;
  }

  #shape(shape: Shape): void {
    const doc = this.#doc;
    switch (shape.shape) {
      case 'box':
        this.#box(shape);
        return;
      case 'notch': {
        const { x, y, width, height } = shape;
        doc.rect(x, y, width, height).fillColor(INKS.page).fill();
        for (const edge of [x, x + width]) {
          doc.moveTo(edge, y).lineTo(edge, y + height);
        }
        doc.lineWidth(1.1).strokeColor(INKS.ink).stroke();
        return;
      }
      case 'line': {
        const { x1, y1, x2, y2, ink, dashed } = shape;
        doc.moveTo(x1, y1).lineTo(x2, y2).lineWidth(0.8).strokeColor(INKS[ink]);
        if (dashed === true) doc.dash(2, { space: 3 }).stroke().undash();
        else doc.stroke();
        return;
      }
      case 'sign':
        this.#sign(shape.mark.sign, shape.x, shape.y, shape.size, TONES[shape.mark.tone].strong);
        return;
      case 'text': {
        const { x, y, text, size, ink, anchor, bold } = shape;
        const face: Face = bold === true ? 'bold' : 'plain';
        const words = drawable(text);
        const width = this.#width(words, face, size);
        const at = anchor === 'end' ? x - width : anchor === 'middle' ? x - width / 2 : x;
        this.#text(words, at, y, face, size, INKS[ink]);
      }
    }
  }

  #box({ x, y, width, height, mark }: Extract<Shape, { readonly shape: 'box' }>): void {
    const { strong, pale } = TONES[mark.tone];
    const doc = this.#doc;
    const inside = mark.hatch === 'solid' ? strong : mark.hatch === 'hollow' ? INKS.page : pale;
    doc.rect(x, y, width, height).fillColor(inside).fill();
    if (mark.hatch !== 'solid' && mark.hatch !== 'hollow') {
      doc.save().rect(x, y, width, height).clip();
      hatching(doc, mark.hatch, x, y, width, height);
      doc.strokeColor(strong).stroke().restore();
    }
    doc
      .rect(x, y, width, height)
      .lineWidth(mark.hatch === 'hollow' ? 1.4 : 0.8)
      .strokeColor(strong)
      .stroke();
  }

  #sign(sign: Sign, x: number, y: number, size: number, ink: string): void {
    const { lines, dots } = SIGNS[sign];
    const doc = this.#doc;
    const scale = size / 10;
    for (const line of lines) {
      for (const [i, [px, py]] of line.entries()) {
        if (i === 0) doc.moveTo(x + px * scale, y + py * scale);
        else doc.lineTo(x + px * scale, y + py * scale);
      }
    }
    if (lines.length > 0) {
      doc
        .lineWidth(1.7 * scale)
        .lineCap('round')
        .lineJoin('round')
        .strokeColor(ink)
        .stroke()
        .lineCap('butt')
        .lineJoin('miter');
    }
    for (const [px, py] of dots ?? []) {
      doc.circle(x + px * scale, y + py * scale, 0.95 * scale);
    }
    if ((dots ?? []).length > 0) doc.fillColor(ink).fill();
  }
}

/** The first lines, and where there are more a sign that there are. */
const atMost = (lines: readonly string[], most: number): readonly string[] =>
  lines.length <= most ? lines : [...lines.slice(0, most - 1), `${lines[most - 1] ?? ''}…`];

/** Strokes over a box, as the page's patterns have them. Not drawn yet. */
function hatching(
  doc: PDFKit.PDFDocument,
  hatch: Exclude<Hatch, 'solid' | 'hollow'>,
  x: number,
  y: number,
  width: number,
  height: number,
): void {
  doc.lineWidth(1.2);
  const slanted = (up: boolean): void => {
    for (let at = -height; at < width; at += 6) {
      doc.moveTo(x + at, up ? y + height : y).lineTo(x + at + height, up ? y : y + height);
    }
  };
  switch (hatch) {
    case 'cross':
      slanted(true);
      slanted(false);
      return;
    case 'diagonal':
      return slanted(true);
    case 'back':
      return slanted(false);
    case 'vertical':
      for (let at = 1; at < width; at += 4) doc.moveTo(x + at, y).lineTo(x + at, y + height);
      return;
    case 'horizontal':
      for (let at = 1.5; at < height; at += 4) doc.moveTo(x, y + at).lineTo(x + width, y + at);
      return;
    case 'dots':
      for (let row = 0; row * 2 + 1 < height; row += 1) {
        const dy = y + row * 2 + 1;
        for (let at = row % 2 === 0 ? 1 : 3; at < width; at += 4)
          doc.moveTo(x + at, dy).lineTo(x + at + 1.1, dy);
      }
  }
}
