/** Which folders a server works in, as far as states are kept of them, and what in them is not the workspace's. */

import { realpathSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve, sep } from 'node:path';
import { gitCommonDirectory } from '@belay/snapshot';
import type { CliConfig } from './config.js';

export interface WorkspaceScope {
  /** Absolute and resolved, none in another. */
  readonly roots: readonly string[];
  /** Ignore rules: what was asked for, and our own folders where they lie in a root. */
  readonly ignore: readonly string[];
  /** Where states are kept; several servers may share it, at once and one after the other. */
  readonly store: string;
}

export interface WorkspaceOptions {
  readonly workspace?: readonly string[];
  readonly ignore?: readonly string[];
  /** Folder of states; false: none are kept. */
  readonly snapshots?: string | boolean;
  readonly state?: string;
  readonly trace?: string;
}

/**
 * What `--workspace` says, else `BELAY_SANDBOX_SCOPE`; undefined where nobody says anything or states are not wanted.
 * A folder that is the home directory or holds it, or is one of ours, is not taken: `refused` is told why, once for each.
 */
export function workspaceScope(
  options: WorkspaceOptions,
  config: CliConfig,
  cwd: string,
  refused: (folder: string, reason: string) => void,
): WorkspaceScope | undefined {
  if (options.snapshots === false) return undefined;
  const said = options.workspace ?? (config.sandboxScope === undefined ? [] : [config.sandboxScope]);
  const state = resolve(cwd, options.state ?? config.state);
  const store =
    typeof options.snapshots === 'string'
      ? resolve(cwd, options.snapshots)
      : resolve(cwd, config.snapshotDir ?? join(state, 'snapshots'));
  const own = [
    state,
    store,
    resolve(cwd, options.trace ?? config.traceDir ?? join(state, 'traces')),
    dirname(resolve(cwd, config.credentials)),
  ].map(resolvedPath);
  const home = resolvedPath(homedir());
  const found = new Set<string>();
  for (const folder of said) {
    const root = resolvedPath(resolve(cwd, folder));
    if (!isFolder(root)) refused(folder, 'is no folder');
    else if (isWithin(home, root)) refused(folder, 'is the home directory or holds it: name a folder in it');
    else if (own.includes(root)) refused(folder, 'is where this program keeps its own files');
    else {
      found.add(root);
      // A linked worktree is not whole without the repository that it belongs to.
      const common = gitCommonDirectory(root);
      if (common !== undefined && !isWithin(home, common)) found.add(common);
    }
  }
  const roots = [...found].filter(
    (root) => ![...found].some((other) => other !== root && isWithin(root, other)),
  );
  if (roots.length === 0) return undefined;
  const inside = own.filter((folder) => roots.some((root) => folder !== root && isWithin(folder, root)));
  return { roots: roots.sort(), ignore: [...new Set([...(options.ignore ?? []), ...inside])], store };
}

/** Without links, as far as the path is there. */
function resolvedPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(resolvedPath(parent), path.slice(parent.length));
  }
}

/** Whether a path is a folder or lies in it. */
export const isWithin = (path: string, folder: string): boolean =>
  path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);

const isFolder = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
