import { spawn } from 'node:child_process';
import { cpSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { BELAY, freePort, Machine } from './belay-process.js';

/** What the person who runs the service meets when something is lost, taken, full or mixed up. */

const machine = new Machine();
afterAll(() => machine.close());

const OPERATOR = /belay_operator_[A-Za-z0-9_-]+/;
const ends = async (output: Promise<{ code: number | null; stderr: string }>) => {
  const { code, stderr } = await output;
  return { code, said: stderr };
};

describe('an operator key', () => {
  let url = '';
  const create = async (key: string) =>
    await machine.belay(['tenant', 'create', '--name', 'acme', '--url', url, '--json'], {
      BELAY_OPERATOR_KEY: key,
    });

  it('is not lost to a start that fails', async () => {
    const port = await freePort();
    const taken = createServer().listen(port, '127.0.0.1');
    await new Promise((resolve) => taken.once('listening', resolve));
    const failed = await machine.belay(['serve', '--data', machine.data, '--port', String(port)]);
    taken.close();
    expect([failed.code, OPERATOR.test(failed.stdout)]).toEqual([69, false]);
    const service = await machine.serve(port);
    ({ url } = service);
    const [key = ''] = OPERATOR.exec(service.output()) ?? [];
    expect((await create(key)).code).toBe(0);
    // While the service runs, its embedded database is nobody else's.
    expect(await ends(machine.belay(['operator', 'reissue', '--data', machine.data]))).toMatchObject({
      code: 69,
    });
    expect((await machine.stop(service.process)).code).toBe(0);
    const reissued = await machine.belay(['operator', 'reissue', '--data', machine.data]);
    expect([reissued.code, reissued.stdout]).toEqual([
      0,
      expect.stringContaining('takes the place of 1 earlier'),
    ]);
    const [next = ''] = OPERATOR.exec(reissued.stdout) ?? [];
    const again = await machine.serve(port);
    expect(again.output()).not.toMatch(OPERATOR);
    expect((await create(key)).code).toBe(65);
    const made = await create(next);
    expect(made.code).toBe(0);
    const { admin } = JSON.parse(made.stdout) as { admin: { credential: string } };
    await machine.json(['project', 'register', '--name', 'p', '--no-login', '--url', url], {
      BELAY_ADMIN_KEY: admin.credential,
    });
    expect((await machine.stop(again.process)).code).toBe(0);
  });
});

describe('belay log fsck', () => {
  const fsck = async (...more: string[]) => {
    const { code, stdout } = await machine.belay(['log', 'fsck', '--json', ...more]);
    return { code, report: JSON.parse(stdout) as { verdict: string; logs: { findings: object[] }[] } };
  };
  const anchor = () => join(machine.data, 'anchor', 'anchor');

  it('writes nothing, and finds a log that was signed for and is gone', async () => {
    const before = readFileSync(anchor(), 'utf8');
    // A torn last line: opening the anchor to write would cut it off.
    writeFileSync(anchor(), `${before}belay.local/log_gone 3 ${'ab'.repeat(32)}\ntorn`);
    const at = statSync(anchor()).mtimeMs;
    const { code, report } = await fsck('--data', machine.data);
    expect([code, report.verdict]).toEqual([1, 'FAULTS']);
    expect(report.logs).toMatchObject([{ findings: [] }, { findings: [{ code: 'missing' }] }]);
    expect(statSync(anchor()).mtimeMs).toBe(at);
    writeFileSync(anchor(), before);
    expect((await fsck('--data', machine.data)).code).toBe(0);
  });

  it('makes no database where there is none', async () => {
    const { code } = await machine.belay(['log', 'fsck', '--data', machine.root]);
    expect(code).toBe(65);
    expect(readdirSync(machine.root).filter((name) => name === 'pg')).toEqual([]);
  });
});

describe('a start', () => {
  const start = (...more: string[]) =>
    ends(machine.belay(['serve', '--data', machine.data, '--port', '0', ...more]));
  const anchorDir = () => join(machine.data, 'anchor');

  it('is refused with other keys or another prefix than the database was first used with', async () => {
    expect(await start('--origin-prefix', 'other.example')).toEqual({
      code: 65,
      said: expect.stringContaining('begin with belay.local, not with other.example') as string,
    });
    const keys = join(machine.data, 'keys');
    renameSync(keys, `${keys}.away`);
    const { code, said } = await start();
    expect([code, said]).toEqual([65, expect.stringMatching(/key/)]);
    rmSync(keys, { recursive: true });
    renameSync(`${keys}.away`, keys);
  });

  it('says what is wrong with a damaged anchor and an empty key file', async () => {
    const anchor = join(anchorDir(), 'anchor');
    const before = readFileSync(anchor);
    writeFileSync(anchor, 'garbled\n');
    expect(await start()).toMatchObject({ code: 65 });
    expect(await ends(machine.belay(['log', 'fsck', '--data', machine.data]))).toMatchObject({ code: 65 });
    writeFileSync(anchor, before);
    const key = join(machine.data, 'keys', 'log.key');
    cpSync(key, `${key}.away`);
    writeFileSync(key, '');
    expect(await start()).toMatchObject({ code: 65, said: expect.stringContaining('log.key') as string });
    cpSync(`${key}.away`, key);
  });

  it('warns, where a person looks, of an anchor that is not there', async () => {
    renameSync(anchorDir(), `${anchorDir()}.away`);
    const service = await machine.serve(await freePort());
    expect(service.output()).toMatch(/WARNING: the anchor in .* is empty and the database has 1 log:/);
    await machine.stop(service.process);
    rmSync(anchorDir(), { recursive: true });
    renameSync(`${anchorDir()}.away`, anchorDir());
  });

  it.each([
    ['nobody listens', 'postgres://belay:x@127.0.0.1:1/belay'],
    ['no such host', 'postgres://belay:x@no-such-host.invalid/belay'],
  ])('says that the database can not be used: %s', async (_, DATABASE_URL) => {
    for (const args of [
      ['serve', '--data', join(machine.root, 'other'), '--port', '0'],
      ['log', 'fsck'],
      ['operator', 'reissue'],
    ]) {
      const { code, stderr } = await machine.belay(args, { DATABASE_URL });
      expect([args[0], code, stderr]).toEqual([args[0], 69, expect.stringContaining('DATABASE_URL')]);
    }
  });
});

describe('the command line', () => {
  it('answers for help on serve without what serve runs', async () => {
    const hook = `export async function resolve(name, context, next) {
      const found = await next(name, context);
      if (/@nestjs|node_modules\\/pg\\//.test(found.url)) process._rawDebug('HEAVY ' + found.url);
      return found;
    }`;
    const module = (text: string) => `data:text/javascript,${encodeURIComponent(text)}`;
    const register = module(
      `import { register } from 'node:module'; register(${JSON.stringify(module(hook))});`,
    );
    const env = { NODE_OPTIONS: `--import=${register}` };
    const help = await machine.belay(['serve', '--help'], env);
    expect([help.code, help.stdout]).toEqual([0, expect.stringContaining('--origin-prefix')]);
    expect(help.stderr).not.toContain('HEAVY');
    // That the hook sees what is heavy.
    expect((await machine.belay(['serve', '--data', '/dev/null/x'], env)).stderr).toContain('HEAVY');
  });

  it('says that a folder is no receipt', async () => {
    const { code, stderr } = await machine.belay(['receipt', 'verify', machine.root]);
    expect([code, stderr]).toEqual([65, expect.stringContaining('is a folder')]);
  });

  it('ends in silence when the reader of its output leaves', async () => {
    const child = spawn('bash', [
      '-c',
      `"${process.execPath}" "${BELAY}" --help | sh -c 'exec <&-; sleep 2'; echo "\${PIPESTATUS[0]}"`,
    ]);
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk));
    await new Promise((resolve) => child.once('close', resolve));
    expect([stderr, stdout.trim()]).toEqual(['', expect.stringMatching(/^(?:0|64)$/)]);
  });
});
