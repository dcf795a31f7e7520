import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PAGES_VERSION } from '@belay/export';
import { ExportLog, exampleLog, resigned } from '@belay/testkit/export';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { belay } from './command.js';

const scratch = mkdtempSync(join(tmpdir(), 'belay-export-verify-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

let world: ExportLog;
const file = join(scratch, 'export.zip');
const root = join(scratch, 'root.pem');
beforeAll(async () => {
  world = await exampleLog();
  await world.export(file);
  writeFileSync(root, world.rootPem);
});

describe('belay receipt verify, of an export', () => {
  it('names each check, ends in VALID, and says what the sessions came to', async () => {
    const { code, stdout, stderr } = await belay('receipt', 'verify', file, '--key', world.signer.vkey);
    expect(code).toBe(0);
    expect(stderr).toBe('');
    expect(stdout).toMatch(/^VALID$/m);
    for (const check of ['archive', 'entries', 'tree', 'statements', 'sessions', 'tables', 'report']) {
      expect(stdout).toMatch(new RegExp(`ok +${check} `));
    }
    expect(stdout).toMatch(/sessions +1 contested, 1 violated, 2 incomplete, 3 affirmed/);
    expect(stdout).toMatch(/entries +\d+ included, 0 left out/);
  });

  it('with pages of another version says in the end that they were not made again', async () => {
    const target = join(scratch, 'newer.zip');
    await resigned(file, target, world, (opened) => {
      opened.manifest = { ...opened.manifest, pages: PAGES_VERSION + 1 };
    });
    const { code, stdout } = await belay('receipt', 'verify', target, '--key', world.signer.vkey);
    expect(code).toBe(0);
    expect(stdout).toMatch(new RegExp(`^pages +made by version ${PAGES_VERSION + 1}, not made again`, 'm'));
  });

  it('against the root, and as one JSON document', async () => {
    const { code, json } = await belay('receipt', 'verify', file, '--root', root, '--json');
    expect(code).toBe(0);
    expect(json).toMatchObject({
      verdict: 'VALID',
      export: { counts: { sessions: 7 }, dispositions: { affirmed: 3, violated: 1 }, request: {} },
    });
    expect((json as { checks: unknown[] }).checks).toHaveLength(18);
  });

  it('is INDETERMINATE without a pin, INVALID with one byte changed or another key, bad input with a pin that is none', async () => {
    expect(await belay('receipt', 'verify', file)).toMatchObject({ code: 2 });
    const other = await ExportLog.create({ key: 0x77 });
    expect(await belay('receipt', 'verify', file, '--key', other.signer.vkey)).toMatchObject({ code: 1 });
    const bytes = readFileSync(file);
    for (const at of [0, 3, 1_000, bytes.length - 22, bytes.length - 1]) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] as number) ^ 1;
      const copy = join(scratch, 'changed');
      writeFileSync(copy, changed);
      const { code, stdout } = await belay('receipt', 'verify', copy, '--key', world.signer.vkey);
      expect({ at, code }).toEqual({ at, code: 1 });
      expect(stdout).toMatch(/FAILED +archive|FAILED +files/);
    }
    writeFileSync(join(scratch, 'cut'), bytes.subarray(0, bytes.length / 2));
    const { stdout: cut } = await belay(
      'receipt',
      'verify',
      join(scratch, 'cut'),
      '--key',
      world.signer.vkey,
    );
    expect(cut).toMatch(/FAILED +archive [^]*cut\s+off[^]*SHA-256\s+with\s+the\s+sender/);
    expect(cut.match(/undecided/g)).toHaveLength(1);
    expect(await belay('receipt', 'verify', file, '--key', 'nonsense', '--json')).toMatchObject({
      code: 65,
      json: { error: { code: 'pin' } },
    });
  });
});
