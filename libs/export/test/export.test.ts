import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ExaminedExport, verifyExport } from '@belay/export';
import { EXAMPLE_SESSIONS, exampleLog } from '@belay/testkit/export';
import { afterAll, describe, expect, test } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'belay-export-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const path = join(folder, 'export.zip');
const wrong = ({ report }: ExaminedExport): unknown => report.checks.filter(({ status }) => status !== 'ok');

const world = await exampleLog();
const pins = { key: world.signer.vkey };

describe('an export', () => {
  test('of everything is made and verified, and says what its sessions came to', async () => {
    const built = await world.export(path, { oscal: true });
    const examined = await verifyExport(path, pins);
    expect(wrong(examined)).toEqual([]);
    expect(examined.report.verdict).toBe('VALID');
    expect(examined.model).toEqual(built.model);
    const { model } = built;
    expect(
      Object.fromEntries(model.sessions.map(({ session, disposition }) => [session, disposition])),
    ).toEqual({
      [EXAMPLE_SESSIONS.affirmed]: 'affirmed',
      [EXAMPLE_SESSIONS.violated]: 'violated',
      [EXAMPLE_SESSIONS.incomplete]: 'incomplete',
      [EXAMPLE_SESSIONS.contested]: 'contested',
      [EXAMPLE_SESSIONS.late]: 'affirmed',
      [EXAMPLE_SESSIONS.labelled]: 'affirmed',
      [EXAMPLE_SESSIONS.open]: 'incomplete',
    });
  });

  test.each([
    ['sessions', { sessions: [EXAMPLE_SESSIONS.violated, EXAMPLE_SESSIONS.late].sort() }],
    ['a period', { period: { from: '2026-01-01T00:00:20.000Z', to: '2026-01-01T00:01:10.000Z' } }],
  ])('of %s', async (_, request) => {
    const built = await world.export(path, request);
    const examined = await verifyExport(path, pins);
    expect(wrong(examined)).toEqual([]);
    expect(examined.report.verdict).toBe('VALID');
    expect(examined.model).toEqual(built.model);
    expect(built.manifest.counts).toEqual({});
  });
});
