import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { formatVkey } from '@belay/note';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tamperings } from '../src/tamper.js';
import { belay } from './command.js';
import { madeReceipt, madeTlogProof } from './made.js';

const scratch = mkdtempSync(join(tmpdir(), 'belay-receipt-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

let made: Awaited<ReturnType<typeof madeReceipt>>;
const file = join(scratch, 'receipt.json');
const root = join(scratch, 'root.pem');
beforeAll(async () => {
  made = await madeReceipt(2, 5, 9);
  writeFileSync(file, made.bytes);
  writeFileSync(root, made.rootPem);
});

interface Report {
  verdict: string;
  checks: { name: string; status: string; detail: string }[];
}
const failing = (report: Report): string[] =>
  report.checks.filter(({ status }) => status === 'failed').map(({ name }) => name);

describe('belay receipt verify', () => {
  it('VALID against the pinned key, and says what it checked', async () => {
    const { code, stdout } = await belay('receipt', 'verify', file, '--key', made.vkey);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^VALID$/m);
    for (const check of ['signature', 'checkpoint', 'proof', 'chain', 'subject']) {
      expect(stdout).toMatch(new RegExp(`ok +${check}`));
    }
  });

  it('VALID against the pinned root', async () => {
    expect(await belay('receipt', 'verify', file, '--root', root)).toMatchObject({ code: 0 });
  });

  it('INDETERMINATE when nothing is pinned', async () => {
    const { code, json } = await belay('receipt', 'verify', file, '--json');
    expect({ code, verdict: (json as Report).verdict }).toEqual({ code: 2, verdict: 'INDETERMINATE' });
  });

  it('refuses each tampering by the check that is there for it', async () => {
    for (const { what, refusedBy, bytes } of tamperings(made.bytes)) {
      const copy = join(scratch, 'copy.json');
      writeFileSync(copy, bytes);
      const { code, json } = await belay('receipt', 'verify', copy, '--key', made.vkey, '--json');
      expect({ what, code }).toEqual({ what, code: 1 });
      expect(failing(json as Report), what).toContain(refusedBy);
    }
  });

  it('a tlog-proof too', async () => {
    const proof = join(scratch, 'entry.tlog-proof');
    const bytes = madeTlogProof();
    writeFileSync(proof, bytes);
    expect(await belay('receipt', 'verify', proof, '--key', made.vkey)).toMatchObject({ code: 0 });
    writeFileSync(proof, Buffer.from(bytes.toString('utf8').replace('index 0', 'index 1')));
    expect(await belay('receipt', 'verify', proof, '--key', made.vkey)).toMatchObject({ code: 1 });
  });

  it('a file that is no receipt is INVALID, one that is not there is bad input', async () => {
    writeFileSync(join(scratch, 'not.json'), '{"a":1}');
    expect(await belay('receipt', 'verify', join(scratch, 'not.json'), '--key', made.vkey)).toMatchObject({
      code: 1,
    });
    const missing = await belay('receipt', 'verify', join(scratch, 'nowhere'), '--key', made.vkey);
    expect(missing).toMatchObject({ code: 65 });
    expect(missing.stderr).toMatch(/no such file/);
  });

  it('what was never one is bad input, and says what it is', async () => {
    const wrong = join(scratch, 'wrong');
    const run = async (command: string, content: string) => {
      writeFileSync(wrong, content);
      const { code, stderr } = await belay('receipt', command, wrong);
      expect(code).toBe(65);
      return stderr;
    };
    for (const command of ['verify', 'show']) {
      expect(await run(command, '')).toMatch(/wrong is empty/);
      expect(await run(command, '# Evidence from a log\n')).toMatch(
        /neither a receipt nor an export: it begins with "# Evidence from "/,
      );
    }
    expect(await run('show', 'PK\u0003\u0004 and more')).toMatch(
      /an export, not a receipt[^]*belay receipt verify/,
    );
  });

  it('with its first byte changed is INVALID, as with any other', async () => {
    const copy = join(scratch, 'first.json');
    const bytes = Buffer.from(made.bytes);
    bytes[0] = (bytes[0] as number) ^ 1;
    writeFileSync(copy, bytes);
    const { code, stdout } = await belay('receipt', 'verify', copy, '--key', made.vkey);
    expect(code).toBe(1);
    expect(stdout).toMatch(/undecided {2}\d+ more +not reached[^]*subject/);
  });

  it('under the key of another log says whose it is', async () => {
    const name = made.vkey.slice(0, made.vkey.indexOf('+'));
    const run = async (origin: string) =>
      (await belay('receipt', 'verify', file, '--key', formatVkey(origin, Buffer.alloc(32, 9)))).stdout;
    expect(await run('other.example/log')).toMatch(/FAILED +trust [^]*of another log,\s+other\.example\/log/);
    expect(await run(name)).toMatch(/FAILED +trust [^]*both have the same\s+name/);
  });

  it('a key that is none is bad input, and is told how one looks and how a file is named', async () => {
    for (const key of [
      'nonsense',
      file,
      made.vkey.replace(/\+[0-9a-f]/, (at) => (at === '+0' ? '+1' : '+0')),
    ]) {
      const { code, json } = await belay('receipt', 'verify', file, '--key', key, '--json');
      expect({ code, json }).toMatchObject({ code: 65, json: { error: { code: 'pin' } } });
      const { stderr } = await belay('receipt', 'verify', file, '--key', key);
      expect(stderr).toMatch(/NAME\+8\s+hex\s+digits\+base64/);
      expect(stderr).toContain('--key @FILE');
    }
  });
});

describe('belay receipt show', () => {
  it('reads as a page, and never claims what it did not check', async () => {
    const { code, stdout } = await belay('receipt', 'show', file);
    expect(code).toBe(0);
    expect(stdout).toContain('Receipt for entries 2 to 5 (4)');
    expect(stdout).toContain('NOT CHECKED');
    expect(stdout).toContain('Nothing on this page was checked');
    expect(stdout).not.toMatch(/\bVALID\b/);
    expect(stdout).toMatch(/observed: a sink with a declared key/);
    expect(stdout).toMatch(/unverified: it judges nothing: a verdict in it is the word of its/);
    expect(stdout).toMatch(/ 3 .* proxy +result\s+tool read_file, ok true, ms 3 +sha256:/);
    expect(stdout).toContain('What this does not prove');
    for (const line of stdout.split('\n')) {
      expect(line).not.toMatch(/\s$/);
      expect(line.length).toBeLessThanOrEqual(80);
    }
  });

  it('with a key, says the verdict and exits with it', async () => {
    expect(await belay('receipt', 'show', file, '--key', made.vkey)).toMatchObject({ code: 0 });
    const copy = join(scratch, 'shown.json');
    writeFileSync(copy, tamperings(made.bytes)[0]?.bytes ?? '');
    const { code, stdout } = await belay('receipt', 'show', copy, '--key', made.vkey);
    expect(code).toBe(1);
    expect(stdout).toMatch(/INVALID/);
    expect(stdout).toMatch(/failed {2}subject/);
  });

  it('as JSON, the predicate and the verdict', async () => {
    const { json } = await belay('receipt', 'show', file, '--json');
    expect(json).toMatchObject({ verdict: 'NOT CHECKED', scope: { type: 'range', first: 2, count: 4 } });
  });
});
