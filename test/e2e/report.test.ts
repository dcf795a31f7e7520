import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { renderReport } from '@belay/export';
import { cleanModel, hostileModel, sampleModel } from '@belay/testkit/report';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Chromium, chromiumAbsent } from '../harness/chromium.js';
import { makeScratch } from '../harness/scratch.js';

// What an auditor opens first, in the browser that most of them have.
describe('the report of an export in a browser', () => {
  const scratch = makeScratch('report');
  let browser: Chromium;

  beforeAll(async () => {
    if (chromiumAbsent === undefined) browser = await Chromium.start();
  });
  beforeEach(({ skip }) => skip(chromiumAbsent !== undefined, chromiumAbsent));
  afterAll(async () => {
    await browser?.close();
    scratch.remove();
  });

  const pages = [
    ['sample', sampleModel()],
    ['clean', cleanModel()],
    [
      'hostile',
      hostileModel(`"><script>document.title='owned'</script><img src=x onerror=alert(1)>${'w'.repeat(300)}`),
    ],
  ] as const;
  const views = [
    ['a desk', { width: 1280, height: 900 }],
    ['a phone in the dark', { width: 390, height: 844, dark: true }],
    ['paper', { width: 720, height: 1000, print: true }],
  ] as const;

  for (const [name, model] of pages) {
    for (const [where, view] of views) {
      it(`${name} on ${where}: asks for nothing, complains of nothing, is no wider than the view`, async () => {
        const file = join(scratch.dir, `${name}.html`);
        writeFileSync(file, renderReport(model));
        const url = pathToFileURL(file).href;
        browser.requests.length = 0;
        await browser.open(url, view);
        expect(browser.requests).toEqual([url]);
        expect(browser.complaints).toEqual([]);
        expect(await browser.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(
          view.width,
        );
        expect(await browser.evaluate('document.title')).toContain('Evidence report: ');
        expect(
          await browser.evaluate(
            "document.querySelectorAll('script, img, iframe, object, embed, link, form, input').length",
          ),
        ).toBe(0);
        // What is drawn has a place and a colour: patterns and signs are found, the style was let in.
        const drawn = (await browser.evaluate(`(() => {
            const unseen = [...document.querySelectorAll('figure svg .box, figure svg .sign, svg.sign')].filter((each) => {
              const { width, height } = each.getBoundingClientRect();
              return width === 0 && height === 0;
            });
            const fills = new Set([...document.querySelectorAll('#outcome + figure .box')].map((each) => getComputedStyle(each).fill));
            return { unseen: unseen.length, fills: fills.size, font: getComputedStyle(document.body).fontSize };
          })()`)) as { unseen: number; fills: number; font: string };
        expect(drawn.unseen).toBe(0);
        expect(drawn.fills).toBe(Object.values(model.dispositions).filter((count) => count > 0).length);
        expect(drawn.font).not.toBe('16px');
        expect((await browser.screenshot()).length).toBeGreaterThan(5_000);
      });
    }
  }

  it('prints with the limits on page one or two, and the heads of a table on each of its pages', async () => {
    const file = join(scratch.dir, 'print.html');
    writeFileSync(file, renderReport(sampleModel()));
    await browser.open(pathToFileURL(file).href, { width: 1280, height: 900 });
    const { status, stdout } = spawnSync('pdftotext', ['-raw', '-', '-'], { input: await browser.pdf() });
    expect(status).toBe(0);
    const sheets = stdout.toString().split('\f');
    expect(sheets.length).toBeGreaterThan(8);
    expect(sheets[0]).toContain('What the sessions came to');
    expect(sheets[0]).toContain('Coverage has gaps.');
    expect(sheets.slice(0, 2).join(' ')).toContain('What this does not prove');
    // A table that goes on has its heads again.
    expect(sheets.filter((sheet) => sheet.includes('Disposition')).length).toBeGreaterThan(2);
  });
});
