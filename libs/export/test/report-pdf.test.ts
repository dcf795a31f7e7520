import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { Writable } from 'node:stream';
import { cleanModel, derived, hostileModel, sampleFacts, sampleModel } from '@belay/testkit/report';
import { describe, expect, it } from 'vitest';
import type { ReportModel } from '../src/report-model.js';
import { drawable, renderPdf } from '../src/report-pdf.js';

async function pdfOf(model: ReportModel): Promise<Buffer> {
  const chunks: Buffer[] = [];
  await renderPdf(
    model,
    new Writable({
      write(chunk: Buffer, _encoding, done) {
        chunks.push(chunk);
        done();
      },
    }),
  );
  return Buffer.concat(chunks);
}

/** Text as a reader that is not ours takes it from the pages, spaces as one. */
function textOf(pdf: Buffer): string {
  const { status, stdout, stderr } = spawnSync('pdftotext', ['-enc', 'UTF-8', '-raw', '-', '-'], {
    input: pdf,
  });
  expect(stderr.toString()).toBe('');
  expect(status).toBe(0);
  return stdout.toString().replaceAll(/\s+/g, ' ');
}

function infoOf(pdf: Buffer): Record<string, string> {
  const { status, stdout } = spawnSync('pdfinfo', ['-isodates', '-'], { input: pdf });
  expect(status).toBe(0);
  return Object.fromEntries(
    stdout
      .toString()
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]),
  );
}

describe('the PDF', () => {
  it('is the same bytes for the same model, at any time', async () => {
    const first = await pdfOf(sampleModel());
    const second = await pdfOf(structuredClone(sampleModel()));
    expect(createHash('sha256').update(second).digest('hex')).toBe(
      createHash('sha256').update(first).digest('hex'),
    );
    expect((await pdfOf(cleanModel())).equals(first)).toBe(false);
  });

  it('is a tagged document with a title and the time of the model, and asks for nothing', async () => {
    const pdf = await pdfOf(sampleModel());
    const info = infoOf(pdf);
    expect(info['Title']).toBe('Evidence report: Agents of Acme');
    expect(info['CreationDate']).toMatch(/^2026-11-30T06:15:00/);
    expect(info['Tagged']).toBe('yes');
    expect(info['JavaScript']).toBe('no');
    expect(info['Page size']).toContain('A4');
    expect(pdf.includes('/URI')).toBe(false);
    expect(pdf.includes('/Outlines')).toBe(true);
  });

  it('says what the page says, in text that can be selected, and numbers its pages', async () => {
    const model = sampleModel();
    const pdf = await pdfOf(model);
    const text = textOf(pdf);
    const pages = Number(infoOf(pdf)['Pages']);
    expect(pages).toBeGreaterThan(8);
    for (const words of [
      '19,104 entries, 741 left out',
      '17-18, nothing says why',
      '88-94, filtered out by policy, said by the sink',
      '1 fork: two runs follow the same one',
      'What this does not prove',
      'That what the entries say is true.',
      'inconclusive',
      'unverified',
      'CC8.1 / IPE',
      `Page 1 of ${pages}`,
      `Page ${pages} of ${pages}`,
    ]) {
      expect(text, words).toContain(words);
    }
    expect(text.indexOf('What this does not prove')).toBeLessThan(text.indexOf(`Page 2 of ${pages}`) + 5_000);
    const unspaced = text.replaceAll(' ', '');
    for (const { session } of model.sessions) expect(unspaced).toContain(session);
  });

  it('tells characters that it can not draw, and swallows none', async () => {
    expect(drawable('Zürich – 10 €')).toBe('Zürich – 10 €');
    expect(drawable('中\u202e\u0000🙂')).toBe('‹U+4E2D›‹U+202E›‹U+0000›‹U+1F642›');
    expect(drawable('a\nb\ud800')).toBe('a b‹U+D800›');
    const text = textOf(await pdfOf(hostileModel('中文-agent (\\) <b>')));
    expect(text).toContain('‹U+4E2D›‹U+6587›-agent (\\) <b>');
  });

  it('lays out words that are longer than a line and cells that are longer than a page', async () => {
    const long = 'x'.repeat(6_000);
    const facts = sampleFacts(2);
    const [first, ...others] = facts.sessions;
    if (first === undefined) throw new Error('no session');
    const reasons = Array.from({ length: 20 }, (_, i) => `reason ${i} ${'word '.repeat(80)}`);
    const pdf = await pdfOf(
      derived({ ...facts, scope: long, sessions: [{ ...first, session: long, reasons }, ...others] }),
    );
    const unspaced = textOf(pdf).replaceAll(/\s/g, '');
    expect(unspaced.match(/x/g)?.length).toBeGreaterThanOrEqual(12_000);
    expect(unspaced).toContain('reason19word');
  });

  it('lets 500 sessions flow out as they are drawn', async () => {
    let most = 0;
    let bytes = 0;
    const model = sampleModel(500);
    await renderPdf(
      model,
      new Writable({
        highWaterMark: 16_384,
        write(chunk: Buffer, _encoding, done) {
          bytes += chunk.length;
          most = Math.max(most, this.writableLength);
          setImmediate(done);
        },
      }),
    );
    expect(bytes).toBeGreaterThan(400_000);
    expect(most).toBeLessThan(bytes / 4);
  });

  it('says so when it can not be written', async () => {
    const full = new Writable({
      write(_chunk, _encoding, done) {
        done(new Error('no space left'));
      },
    });
    await expect(renderPdf(sampleModel(), full)).rejects.toThrow('no space left');
  });
});
