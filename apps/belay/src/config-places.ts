import { posix, win32 } from 'node:path';

/** Clients whose configuration files we know the places of. */
export const CLIENTS = ['claude-code', 'claude-desktop', 'cursor', 'vscode', 'plain'] as const;
export type Client = (typeof CLIENTS)[number];

/** Where this user's programs keep their settings. */
export interface Surroundings {
  readonly platform: NodeJS.Platform;
  readonly home: string;
  /** The project's folder. */
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Every place where a client looks for its MCP servers, the project's before the user's, whether there is a file or not. */
export function configPlaces({
  platform,
  home,
  cwd,
  environment,
}: Surroundings): { readonly client: Client; readonly path: string }[] {
  const system = platform === 'win32' ? win32 : posix;
  const join = (...parts: readonly string[]): string => system.join(...parts);
  const settings =
    platform === 'win32'
      ? environment['APPDATA'] || join(home, 'AppData', 'Roaming')
      : platform === 'darwin'
        ? join(home, 'Library', 'Application Support')
        : environment['XDG_CONFIG_HOME'] || join(home, '.config');
  return [
    { client: 'claude-code', path: join(cwd, '.mcp.json') },
    { client: 'claude-code', path: join(environment['CLAUDE_CONFIG_DIR'] || home, '.claude.json') },
    { client: 'claude-desktop', path: join(settings, 'Claude', 'claude_desktop_config.json') },
    { client: 'cursor', path: join(cwd, '.cursor', 'mcp.json') },
    { client: 'cursor', path: join(home, '.cursor', 'mcp.json') },
    { client: 'vscode', path: join(cwd, '.vscode', 'mcp.json') },
    { client: 'vscode', path: join(settings, 'Code', 'User', 'mcp.json') },
    { client: 'plain', path: join(cwd, 'mcp.json') },
  ];
}
