import { describe, expect, test } from 'vitest';
import { windowsCommand } from '../src/windows-command.js';

const NODE = 'C:\\Program Files\\nodejs';
const SHIMS = 'C:\\Users\\ann\\AppData\\Roaming\\npm';
const FILES: Readonly<Record<string, string>> = {
  [`${NODE}\\node.exe`]: '',
  [`${NODE}\\npx.cmd`]: [
    '@ECHO OFF',
    'SET "NODE_EXE=%~dp0\\node.exe"',
    'SET "NPM_PREFIX_JS=%~dp0\\node_modules\\npm\\bin\\npm-prefix.js"',
    'SET "NPX_CLI_JS=%~dp0\\node_modules\\npm\\bin\\npx-cli.js"',
    '"%NODE_EXE%" "%NPX_CLI_JS%" %*',
  ].join('\r\n'),
  [`${SHIMS}\\server.cmd`]: '@ECHO off\r\n"%_prog%"  "%dp0%\\node_modules\\server\\dist\\cli.mjs" %*\r\n',
  [`${SHIMS}\\other.bat`]: 'echo %*\r\n',
  [`${SHIMS}\\tool.exe`]: '',
  [`${SHIMS}\\tool.cmd`]: '"%dp0%\\tool.js" %*',
};
const byName = new Map(Object.keys(FILES).map((path) => [path.toLowerCase(), path]));
const files = {
  isFile: (path: string): boolean => byName.has(path.toLowerCase()),
  read: (path: string): string => FILES[byName.get(path.toLowerCase()) as string] as string,
};
const env = { PATH: `${NODE};${SHIMS}` };
const resolve = (command: string, ...args: string[]) => windowsCommand(command, args, env, files);

describe('case 27: starting npx on Windows', () => {
  test.each(['npx', 'npx.cmd', 'NPX.CMD'])('%s is its script, arguments intact', (command) => {
    expect(resolve(command, '-y', 'two words', 'q"uote', '%PATH%', '&', '')).toEqual([
      `${NODE}\\node.exe`,
      `${NODE}\\node_modules\\npm\\bin\\npx-cli.js`,
      '-y',
      'two words',
      'q"uote',
      '%PATH%',
      '&',
      '',
    ]);
  });

  test('what npm installs for a package, and by its whole path', () => {
    const argv = ['node.exe', `${SHIMS}\\node_modules\\server\\dist\\cli.mjs`, 'a'];
    expect(resolve('server', 'a')).toEqual(argv);
    expect(resolve(`${SHIMS}\\server.cmd`, 'a')).toEqual(argv);
  });

  test.each(['tool', 'other', 'missing', 'node'])('%s is left to the system', (command) => {
    expect(resolve(command)).toBeUndefined();
  });
});
