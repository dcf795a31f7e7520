import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeEach, describe, expect, test } from 'vitest';
import { installedEvents, planInstall, planUninstall } from '../src/hook-settings.js';
import { parseJsonc } from '../src/jsonc.js';
import { belay } from './command.js';
import { freshFolder } from './proxied.js';

const COMMAND = "/usr/bin/node '/opt/with space/belay.js' hook";

const theirs = {
  matcher: 'Edit|Write',
  hooks: [{ type: 'command', command: '/home/ann/bin/format.sh' }],
};
const texts: Readonly<Record<string, string>> = {
  'an empty object': '{}',
  'an empty object and a line end': '{}\n',
  'an object with blanks': '{\n}\n',
  'other settings': '{\n  "model": "opus",\n  "permissions": { "allow": ["Bash(ls:*)"] }\n}\n',
  'other settings, four blanks': '{\n    "model": "opus"\n}',
  'other settings, tabs and CRLF': '{\r\n\t"model": "opus"\r\n}\r\n',
  'one line': '{"model":"opus","hooks":{}}',
  'hooks of others': JSON.stringify({ hooks: { PreToolUse: [theirs], Stop: [] }, model: 'opus' }, null, 2),
  'empty hooks': '{\n  "hooks": {\n  }\n}\n',
  'comments and trailing commas':
    '{\n  // mine\n  "hooks": {\n    /* before */ "PreToolUse": [\n      {"matcher": "Bash", "hooks": [{"type": "command", "command": "x"},]}, // last\n    ],\n  },\n}\n',
  'a byte order mark': '\ufeff{\n  "model": "opus"\n}\n',
};

describe('edits', () => {
  test.each(Object.entries(texts))('%s: put in, and taken out again', (_, text) => {
    const plan = planInstall(text, COMMAND);
    expect(installedEvents(plan.text)).toHaveLength(11);
    expect(planInstall(plan.text, COMMAND)).toMatchObject({ text: plan.text, events: [] });
    const back = planUninstall(plan.text, plan.made).text;
    const blanks = (each: string): string => each.replaceAll(/\s+/g, '');
    expect(blanks(back)).toBe(blanks(text));
    expect(installedEvents(back)).toEqual([]);
  });

  test('what others put beside ours meanwhile stays', () => {
    const plan = planInstall(texts['other settings'] as string, COMMAND);
    const theirCommand = '{"type": "command", "command": "theirs"}';
    const changed = plan.text
      .replace('"Stop": [{"hooks":[{', `"Stop": [{"hooks":[${theirCommand}, {`)
      .replace('"SessionEnd": [', '"SessionEnd": [{"hooks": [{"type": "command", "command": "bye"}]}, ');
    const { text } = planUninstall(changed, plan.made);
    expect(JSON.parse(text)).toEqual({
      model: 'opus',
      permissions: { allow: ['Bash(ls:*)'] },
      hooks: {
        Stop: [{ hooks: [{ type: 'command', command: 'theirs' }] }],
        SessionEnd: [{ hooks: [{ type: 'command', command: 'bye' }] }],
      },
    });
  });

  test('any settings', () => {
    const names = fc.constantFrom('PreToolUse', 'Stop', 'Other', 'SessionStart');
    const entry = fc.record({
      hooks: fc.array(fc.record({ type: fc.constant('command'), command: fc.string() })),
    });
    const settings = fc.record(
      {
        model: fc.string(),
        hooks: fc.dictionary(names, fc.array(entry, { maxLength: 3 })),
        z: fc.jsonValue(),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(settings, fc.constantFrom(undefined, 2, '\t'), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        fc.pre(installedEvents(text).length === 0);
        const plan = planInstall(text, COMMAND);
        expect(() => parseJsonc(plan.text)).not.toThrow();
        expect(installedEvents(plan.text).length).toBeGreaterThanOrEqual(11);
        expect(JSON.parse(planUninstall(plan.text, plan.made).text)).toEqual(JSON.parse(text));
      }),
    );
  });

  test.each([
    ['[]', 'the document is not an object'],
    ['{"hooks": []}', '`hooks` is not an object'],
    ['{"hooks": {"Stop": {}}}', '`hooks.Stop` is not a list'],
    ['{"hooks": {}, "hooks": {}}', '`hooks` stands there twice'],
  ])('%s is left alone', (text, message) => {
    expect(() => planInstall(text, COMMAND)).toThrow(message);
  });
});

describe('the command', () => {
  let folder: string;
  let file: string;
  let state: string;
  beforeEach(() => {
    folder = freshFolder();
    file = join(folder, '.claude', 'settings.json');
    state = join(folder, 'state');
  });
  const install = (...more: string[]): ReturnType<typeof belay> =>
    belay('hook', 'install', file, '--state', state, '--json', ...more);
  const uninstall = (...more: string[]): ReturnType<typeof belay> =>
    belay('hook', 'uninstall', file, '--state', state, '--json', ...more);
  const write = (text: string, mode = 0o644): void => {
    mkdirSync(join(folder, '.claude'));
    writeFileSync(file, text, { mode });
  };

  test.each(Object.entries(texts))(
    '%s: installed twice, uninstalled, byte for byte what it was',
    async (_, text) => {
      write(text, 0o640);
      expect(await install()).toMatchObject({ code: 0, json: { changed: true } });
      expect(await install()).toMatchObject({ code: 0, json: { changed: false, events: [] } });
      expect(statSync(file).mode & 0o777).toBe(0o640);
      expect(await uninstall()).toMatchObject({ code: 0, json: { restored: 'exact' } });
      expect(readFileSync(file, 'utf8')).toBe(text);
      expect(await uninstall()).toMatchObject({ code: 0, json: { changed: false } });
    },
  );

  test('a file that was not there goes again', async () => {
    expect(await install()).toMatchObject({ code: 0 });
    expect(installedEvents(readFileSync(file, 'utf8'))).toHaveLength(11);
    expect(await uninstall()).toMatchObject({ code: 0, json: { restored: 'exact' } });
    expect(existsSync(file)).toBe(false);
  });

  test('changed meanwhile: only what is ours is taken out', async () => {
    write(texts['other settings'] as string);
    await install();
    const changed = readFileSync(file, 'utf8').replace('"opus"', '"sonnet"');
    writeFileSync(file, changed);
    expect(await uninstall()).toMatchObject({ code: 0, json: { restored: 'edits' } });
    expect(readFileSync(file, 'utf8')).toBe(
      (texts['other settings'] as string).replace('"opus"', '"sonnet"'),
    );
  });

  test('a dry run changes nothing and shows what would change', async () => {
    const text = texts['other settings'] as string;
    write(text);
    const { json } = await install('--dry-run');
    expect((json as { diff: string }).diff).toContain('+  "hooks": {');
    expect(readFileSync(file, 'utf8')).toBe(text);
    expect(existsSync(state)).toBe(false);
  });

  test('a file that is not JSON is told and left', async () => {
    write('{"hooks": ');
    const { code, stdout } = await install();
    expect(code).toBe(65);
    expect(stdout).toContain('line 1');
    expect(readFileSync(file, 'utf8')).toBe('{"hooks": ');
  });

  test('options of the hook are written with it', async () => {
    await install('--privacy', 'strict', '--sink', 'agent', '--weak-ids');
    const command = (
      JSON.parse(readFileSync(file, 'utf8')) as { hooks: { Stop: { hooks: { command: string }[] }[] } }
    ).hooks.Stop[0]?.hooks[0]?.command;
    expect(command).toMatch(/belay\.js hook --sink agent --state \S+ --privacy strict --weak-ids$/);
  });
});
