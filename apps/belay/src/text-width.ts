/** What fits on a line of a terminal. */

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
// oxlint-disable-next-line eslint/no-control-regex -- these are what is looked for
const COLOURS = /\u001b\[\d+m/g;
const ZERO = /^[\p{Mn}\p{Me}]$/u;

/** Columns of a terminal that a printable text takes, painted or not. */
export function columnsOf(text: string): number {
  let width = 0;
  for (const character of text.replace(COLOURS, ''))
    width += ZERO.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
  return width;
}

/** As much of a text as has room, with a sign that there is more. */
export function fitted(text: string, width: number): string {
  if (columnsOf(text) <= width) return text;
  let [used, kept] = [0, ''];
  for (const character of text) {
    used += columnsOf(character);
    if (used > width - 1) break;
    kept += character;
  }
  return width < 1 ? '' : `${kept}…`;
}

export const padded = (text: string, width: number): string =>
  text + ' '.repeat(Math.max(0, width - columnsOf(text)));

/** Broken at spaces, words that are too long anywhere; every line indented. */
export function wrapped(text: string, width: number, indent: string): string {
  const room = Math.max(16, width - indent.length);
  const lines: string[] = [];
  let line = '';
  const put = (): void => {
    if (line !== '') lines.push(line);
    line = '';
  };
  for (const word of text.split(' ')) {
    if (line !== '' && columnsOf(line) + 1 + columnsOf(word) > room) put();
    line = line === '' ? word : `${line} ${word}`;
    while (columnsOf(line) > room) {
      let head = '';
      for (const character of line) {
        if (columnsOf(head) + columnsOf(character) > room) break;
        head += character;
      }
      lines.push(head);
      line = line.slice(head.length);
    }
  }
  put();
  return lines.map((each) => `${indent}${each}\n`).join('');
}

/** Columns to write for: the terminal's, and where there is none those that every terminal has. */
export const pageWidth = (): number => Math.max(60, process.stdout.columns ?? 80);
