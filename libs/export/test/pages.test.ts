import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PAGES_VERSION, verifyExport } from '@belay/export';
import { exampleLog, openExport, resigned } from '@belay/testkit/export';
import { cleanModel, derived, hostileModel, sampleFacts, sampleModel } from '@belay/testkit/report';
import { afterAll, describe, expect, test } from 'vitest';
import { documentsOf } from '../src/documents.js';
import { PAGES } from '../src/pages.js';

const folder = mkdtempSync(join(tmpdir(), 'belay-pages-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const path = join(folder, 'export.zip');
const target = join(folder, 'other.zip');
const world = await exampleLog();
await world.export(path, { oscal: true });
const pins = { key: world.signer.vkey };

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** What the sample has not: lines without a signature, a sink that is silent altogether, calls that nobody judged. */
function bareModel(): ReturnType<typeof derived> {
  const facts = sampleFacts();
  return derived({
    ...facts,
    found: { ...facts.found, laterLines: 1, missing: { undisclosed: 0, dropped: 0, filtered: 0 } },
    sinks: facts.sinks.map((sink, i) => ({
      ...sink,
      required: true,
      epochs: i === 0 ? [] : sink.epochs.map((epoch) => ({ ...epoch, unsigned: i })),
    })),
  });
}

/** Every file that is made of templates, of an export of everything and of reports with all that can be in them. */
async function made(): Promise<Record<string, string>> {
  const { files } = await openExport(path);
  const digests: Record<string, string> = {};
  for (const name of [...PAGES, 'events.csv', 'sessions.csv']) {
    digests[`export/${name}`] = sha256(files.get(name) as Buffer);
  }
  const models = {
    sample: sampleModel(),
    clean: cleanModel(),
    bare: bareModel(),
    hostile: hostileModel('=<b>&|"\u202e'),
  };
  for (const [report, model] of Object.entries(models)) {
    for (const [name, bytes] of documentsOf(model, { oscal: true }))
      digests[`${report}/${name}`] = sha256(bytes);
  }
  return digests;
}

describe('the version of pages', () => {
  // After the version was raised, pages.json is written anew: it is what the failed run says that it received.
  test('is another one when a byte of a page is', async () => {
    const list = JSON.parse(readFileSync(new URL('pages.json', import.meta.url), 'utf8')) as unknown;
    expect(
      { version: PAGES_VERSION, sha256: await made() },
      'templates changed: raise PAGES_VERSION',
    ).toEqual(list);
  });

  test('is held to its own bytes', async () => {
    await resigned(path, target, world, ({ files }) => files.set('README.md', Buffer.from('all is well\n')));
    const { report } = await verifyExport(target, pins);
    expect(report.verdict).toBe('INVALID');
    expect(report.checks.filter(({ status }) => status !== 'ok').map(({ name }) => name)).toEqual(['report']);
  });

  test.each([PAGES_VERSION + 1, PAGES_VERSION + 1_000_000])(
    'that is another one (%i) is not compared, and named',
    async (pages) => {
      await resigned(path, target, world, (opened) => {
        opened.manifest = { ...opened.manifest, pages };
        opened.files.set('README.md', Buffer.from('what is new\n'));
        opened.files.set('events.csv', Buffer.from('index,new\r\n'));
      });
      const { report, manifest } = await verifyExport(target, pins);
      expect(report.verdict).toBe('VALID');
      expect(manifest?.pages).toBe(pages);
      const detailOf = (check: string): string =>
        report.checks.find(({ name }) => name === check)?.detail ?? '';
      expect(detailOf('report')).toContain(
        `README.md, LIMITATIONS.md, controls.json, controls.csv, report.html, oscal.json are of version ${pages}, by a newer maker than this verifier, which makes version ${PAGES_VERSION}: not made again`,
      );
      expect(detailOf('tables')).toContain(`events.csv and sessions.csv are of version ${pages}`);
    },
  );

  test('does not excuse a file that was changed after it was signed, nor a table of keys', async () => {
    await resigned(path, target, world, (opened) => {
      opened.manifest = { ...opened.manifest, pages: PAGES_VERSION + 1 };
      opened.files.set('keys.json', Buffer.from('{}'));
    });
    const { report } = await verifyExport(target, pins);
    expect(report.checks.filter(({ status }) => status === 'failed').map(({ name }) => name)).toEqual([
      'tables',
    ]);
  });

  test.each([0, -1, 1.5])('is not %d', async (pages) => {
    await expect(
      resigned(path, target, world, (opened) => {
        opened.manifest = { ...opened.manifest, pages };
      }),
    ).resolves.toBeInstanceOf(Buffer);
    expect((await verifyExport(target, pins)).report.checks[1]).toMatchObject({
      name: 'manifest',
      status: 'failed',
    });
  });
});
