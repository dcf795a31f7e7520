/**
 * Batch files (`npx.cmd`) can't be started without a command interpreter, which takes arguments apart again. Those that
 * npm makes only start a script: we start that, and arguments arrive as they are. Not measured on Windows.
 */

import { win32 } from 'node:path';

/** What is asked of the system, so that the rules can be tested elsewhere. */
export interface WindowsFiles {
  readonly isFile: (path: string) => boolean;
  readonly read: (path: string) => string;
}

const SCRIPT = /%~?dp0%?\\?([^"%\r\n]+\.[cm]?js)\b/gi;

/** What to start in place of a command; undefined where it is no batch file, or one that is not understood. */
export function windowsCommand(
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  files: WindowsFiles,
): [string, ...string[]] | undefined {
  const file = findProgram(command, env, files);
  if (file === undefined || !/\.(?:cmd|bat)$/i.test(file)) return undefined;
  const folder = win32.dirname(file);
  const script = [...files.read(file).matchAll(SCRIPT)].at(-1)?.[1];
  if (script === undefined) return undefined;
  const beside = win32.join(folder, 'node.exe');
  return [files.isFile(beside) ? beside : 'node.exe', win32.join(folder, script), ...args];
}

/** As the system searches: the folders of PATH in turn, in each the extensions of PATHEXT. */
function findProgram(
  command: string,
  env: Readonly<Record<string, string | undefined>>,
  { isFile }: WindowsFiles,
): string | undefined {
  const known = (env['PATHEXT'] ?? '.COM;.EXE;.BAT;.CMD').toLowerCase().split(';');
  const extensions = known.includes(win32.extname(command).toLowerCase()) ? [''] : known;
  const folders = /[\\/]/.test(command) ? [''] : (env['PATH'] ?? env['Path'] ?? '').split(';');
  for (const folder of folders) {
    for (const extension of extensions) {
      const candidate = win32.join(folder, `${command}${extension}`);
      if (isFile(candidate)) return candidate;
    }
  }
  return undefined;
}
