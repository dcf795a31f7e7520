/** A checker of the report's page: strict where a browser forgives, and no part of what wrote the page. */

const VOID = new Set(['meta']);
/** All that the page is made of. What is not here, such as `script` or `img`, is a fault. */
const KNOWN = new Set(
  'html head meta title style body svg defs pattern rect path symbol use g text desc main header footer nav section h1 h2 h3 p ol ul li a dl dt dd div span figure table caption thead tbody tr th td'.split(
    ' ',
  ),
);
const ATTRIBUTE = /\s+([a-zA-Z][a-zA-Z-]*)="([^"<]*)"/y;

export interface Markup {
  /** Text between tags, entities decoded, style left out. */
  readonly text: string;
  readonly ids: readonly string[];
  readonly count: (tag: string) => number;
}

/** Throws on anything but well-formed markup of known elements, none of which asks for anything from elsewhere. */
export function readMarkup(html: string): Markup {
  const start = '<!doctype html>\n';
  if (!html.startsWith(start)) throw new Error('no doctype');
  const open: string[] = [];
  const ids: string[] = [];
  const targets: string[] = [];
  const counts = new Map<string, number>();
  const text: string[] = [];
  let at = start.length;
  while (at < html.length) {
    const next = html.indexOf('<', at);
    const between = html.slice(at, next < 0 ? html.length : next);
    if (open.at(-1) === 'style') {
      if (/url\(|@import|<|expression/i.test(between)) throw new Error('style asks for something');
    } else {
      if (/&(?!amp;|lt;|gt;|quot;|#39;)/.test(between))
        throw new Error(`a bare & in ${between.slice(0, 80)}`);
      if (between.includes('>')) throw new Error(`a bare > in ${between.slice(0, 80)}`);
      text.push(decoded(between));
    }
    if (next < 0) break;
    const closing = /<\/([a-z0-9]+)>/y;
    closing.lastIndex = next;
    const close = closing.exec(html);
    if (close !== null) {
      const opened = open.pop();
      if (opened !== close[1])
        throw new Error(`</${close[1] ?? ''}> closes <${opened ?? 'nothing'}> at ${next}`);
      at = closing.lastIndex;
      continue;
    }
    const opening = /<([a-z0-9]+)/y;
    opening.lastIndex = next;
    const tag = opening.exec(html)?.[1];
    if (tag === undefined || !KNOWN.has(tag))
      throw new Error(`not an element: ${html.slice(next, next + 60)}`);
    at = opening.lastIndex;
    for (;;) {
      ATTRIBUTE.lastIndex = at;
      const attribute = ATTRIBUTE.exec(html);
      if (attribute === null) break;
      const [whole, name = '', value = ''] = attribute;
      if (/^on|^style$|^src/i.test(name)) throw new Error(`attribute ${name}`);
      if (name === 'id') ids.push(value);
      if (name === 'href') {
        if (!value.startsWith('#')) throw new Error(`href ${value}`);
        targets.push(value.slice(1));
      }
      const pattern = /^url\(#([a-z-]+)\)$/.exec(value)?.[1];
      if (pattern !== undefined) targets.push(pattern);
      else if (value.includes('url(')) throw new Error(value);
      at += whole.length;
    }
    const end = /^\s*(\/?)>/.exec(html.slice(at, at + 4));
    if (end === null) throw new Error(`broken tag: ${html.slice(next, next + 120)}`);
    at += end[0].length;
    counts.set(tag, (counts.get(tag) ?? 0) + 1);
    if (end[1] !== '/' && !VOID.has(tag)) open.push(tag);
  }
  if (open.length > 0) throw new Error(`not closed: ${open.join(' ')}`);
  if (new Set(ids).size !== ids.length) throw new Error('an id twice');
  for (const target of targets) if (!ids.includes(target)) throw new Error(`nothing is #${target}`);
  return { text: text.join(' '), ids, count: (tag) => counts.get(tag) ?? 0 };
}

const decoded = (text: string): string =>
  text
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&');
