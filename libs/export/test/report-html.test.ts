import { cleanModel, derived, hostileModel, sampleFacts, sampleModel } from '@belay/testkit/report';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { renderReport } from '../src/report-html.js';
import {
  ABSENCE_MARKS,
  CONTROL_MARKS,
  COVERAGE_MARKS,
  DISPOSITION_MARKS,
  LEVEL_MARKS,
  type Mark,
  TONES,
  VERDICT_MARKS,
} from '../src/report-picture.js';
import { readMarkup } from './markup.js';

const ATTACKS = [
  '</td></table><script>alert(1)</script>',
  '"><img src=https://example.com/x onerror=alert(1)>',
  "' onmouseover='alert(1)",
  '<!--',
  ']]></style></title></svg><svg onload=alert(1)>',
  '&lt;script&gt; &amp;amp; &#x3c;',
  'a\u202egnp.exe\u2066 \u200b\ufeff \u0000\u001b[31m\u0085',
  '\ud800 lone \udc00',
  '{contents} ${x} %s \\',
  'x'.repeat(5_000),
];

describe('the page', () => {
  it('is the same bytes for the same model', () => {
    expect(renderReport(sampleModel())).toBe(renderReport(sampleModel()));
    expect(renderReport(structuredClone(sampleModel()))).toBe(renderReport(sampleModel()));
  });

  it('is well-formed, names nothing outside of itself, and runs nothing', () => {
    for (const model of [
      sampleModel(),
      cleanModel(),
      derived({ ...sampleFacts(0), sinks: [], tokens: [] }),
    ]) {
      const html = renderReport(model);
      const page = readMarkup(html);
      expect(page.count('svg')).toBeGreaterThan(4);
      expect(html).not.toMatch(/https?:|\/\/[a-z]/i);
      expect(html).toContain(`content="default-src 'none'; style-src 'sha256-`);
    }
  });

  it('has what a reader by ear needs: captions, heads of rows and columns, titles of pictures', () => {
    const page = readMarkup(renderReport(sampleModel()));
    const tables = page.count('table');
    expect(tables).toBeGreaterThanOrEqual(7);
    expect(page.count('caption')).toBe(tables);
    expect(page.count('thead')).toBe(tables);
    expect(page.count('h1')).toBe(1);
    for (const id of [
      'dispositions-t',
      'dispositions-d',
      'coverage1-t',
      'coverage1-d',
      'verdicts-d',
      'levels-d',
    ]) {
      expect(page.ids).toContain(id);
    }
  });

  it('says the exact numbers', () => {
    const model = sampleModel();
    const { text } = readMarkup(renderReport(model));
    for (const words of [
      'sessions that began from 2026-09-01 to 2026-11-30',
      '2026-11-30 06:15:00 UTC, 19,845 entries in the log',
      '19,104 entries, 741 left out',
      '17-18, nothing says why',
      '402-430, dropped when its spool was full, said by the sink',
      '1,211, nothing says why',
      '88-94, filtered out by policy, said by the sink',
      '1 fork: two runs follow the same one',
      '1 run of which nothing was received',
      `${model.dispositions.affirmed} affirmed`,
      `${model.verdicts.UNVERIFIED} UNVERIFIED`,
      'What this does not prove',
      model.log.vkey,
      model.log.rootFingerprint,
      model.policy.digest,
    ]) {
      expect(text, words).toContain(words);
    }
    for (const { session } of model.sessions) expect(text).toContain(session);
    for (const sentence of model.limitations) expect(text).toContain(sentence);
    for (const { control, limits } of model.controls) {
      expect(text).toContain(control);
      expect(text).toContain(limits);
    }
  });

  it('has page one before everything else, the limits next', () => {
    const { text } = readMarkup(renderReport(sampleModel()));
    const places = [
      'Agents of Acme',
      'This report shows',
      'As of',
      'What the sessions came to',
      'Coverage has gaps',
      'That what the entries say is true.',
      'Each sink numbers its lines',
    ].map((words) => text.lastIndexOf(words));
    expect(places).toEqual([...places].sort((a, b) => a - b));
  });

  it('stays text, whatever the names are', () => {
    for (const attack of ATTACKS) {
      const html = renderReport(hostileModel(attack));
      const { text } = readMarkup(html);
      expect(html).not.toMatch(/(?!\n)[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Cf}]/u);
      expect(Buffer.from(html, 'utf8').toString('utf8')).toBe(html);
      if (/^[\x20-\x7e]+$/.test(attack)) expect(text).toContain(attack);
    }
  });

  it('stays well-formed for any text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 30 }), (text) => {
        readMarkup(renderReport(hostileModel(text)));
      }),
      { numRuns: 12 },
    );
  });

  it('would be found out if it were not', () => {
    for (const broken of [
      '<p><div></p></div>',
      '<p>',
      '</p>',
      '<script></script>',
      '<p onclick="x"></p>',
      '<a href="https://example.com"></a>',
      '<p>a & b</p>',
      '<a href="#nowhere"></a>',
      '<p style="color: red"></p>',
    ]) {
      expect(() => readMarkup(`<!doctype html>\n${broken}`), broken).toThrow();
    }
  });

  it('holds 500 sessions and 100 sinks', () => {
    const facts = sampleFacts(500);
    const sinks = Array.from({ length: 100 }, (_, i) => {
      const sink = facts.sinks[i % facts.sinks.length];
      if (sink === undefined) throw new Error('no sink');
      return { ...sink, sink: `sink-${i}` };
    });
    const page = readMarkup(renderReport(derived({ ...facts, sinks })));
    expect(page.count('tr')).toBeGreaterThan(600);
    expect(page.ids).toContain('coverage13-t');
  });
});

describe('marks', () => {
  const tables = {
    coverage: [COVERAGE_MARKS, ['complete']],
    dispositions: [DISPOSITION_MARKS, ['affirmed']],
    verdicts: [VERDICT_MARKS, ['PASS']],
    absence: [ABSENCE_MARKS, ['none']],
    controls: [CONTROL_MARKS, ['shown']],
    levels: [LEVEL_MARKS, []],
  } as const satisfies Record<string, readonly [Readonly<Record<string, Mark>>, readonly string[]]>;

  it('only what is good is green or solid, and nothing looks like anything else in its table', () => {
    for (const [name, [marks, good]] of Object.entries(tables)) {
      const all = Object.entries(marks);
      for (const [word, { tone, hatch }] of all) {
        const isGood = (good as readonly string[]).includes(word);
        expect([name, word, tone === 'good', hatch === 'solid']).toEqual([name, word, isGood, isGood]);
      }
      // In grey, and to who can't tell colours: hatching and sign alone tell them apart.
      expect(new Set(all.map(([, { sign }]) => sign)).size).toBe(all.length);
      expect(new Set(all.map(([, { hatch }]) => hatch)).size).toBe(all.length);
    }
  });

  it('every disposition has its sign and its word in the page, none of them in the place of another', () => {
    const html = renderReport(sampleModel());
    for (const [word, { tone, hatch, sign }] of Object.entries(DISPOSITION_MARKS)) {
      expect(html).toContain(`<span class="badge ${tone} ${hatch}">`);
      expect(html).toContain(`href="#s-${sign}"/></svg>${word}</span>`);
    }
    expect(html).toContain('href="#s-question"/></svg>inconclusive</span>');
    expect(html).not.toContain('</svg>none</span>');
    expect(renderReport(cleanModel())).toContain('href="#s-zero"/></svg>none</span>');
    expect(renderReport(cleanModel())).not.toContain('</svg>inconclusive</span>');
  });

  it('words are readable on white and on their own pale ground', () => {
    for (const { strong, pale } of Object.values(TONES)) {
      expect(contrast(strong, '#ffffff')).toBeGreaterThan(4.5);
      expect(contrast(strong, pale)).toBeGreaterThan(4.5);
    }
  });
});

/** WCAG 2.2, contrast ratio. */
function contrast(a: string, b: string): number {
  const [dark = 0, light = 0] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
