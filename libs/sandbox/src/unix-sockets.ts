/** Sockets of this machine that have a path: a network name space does not keep anybody from connecting to them. */

import { lstatSync, readFileSync } from 'node:fs';

/** State and type of a socket that takes what others send: a listener, or a datagram socket with a name. */
const LISTENS = 0x00010000;
const DATAGRAM = 2;

/** Paths in `text`, which is that of /proc/net/unix: of sockets that can be connected or sent to. */
export function listeningPaths(text: string): string[] {
  const paths = new Set<string>();
  for (const line of text.split('\n').slice(1)) {
    // Num RefCount Protocol Flags Type St Inode Path; a path may have spaces in it.
    const [, flags, type, path] =
      /^[0-9a-f]+: [0-9A-F]+ [0-9A-F]+ ([0-9A-F]+) ([0-9A-F]+) [0-9A-F]+ +\d+ (\/.*)$/.exec(line) ?? [];
    if (path === undefined || flags === undefined || type === undefined) continue;
    if ((Number.parseInt(flags, 16) & LISTENS) !== 0 || Number.parseInt(type, 16) === DATAGRAM) {
      paths.add(path);
    }
  }
  return [...paths].sort();
}

/** Those of this machine that are still at their path. */
export function hostSockets(): string[] {
  let text: string;
  try {
    text = readFileSync('/proc/net/unix', 'latin1');
  } catch {
    return [];
  }
  return listeningPaths(text).filter((path) => {
    try {
      return lstatSync(path).isSocket();
    } catch {
      return false;
    }
  });
}
