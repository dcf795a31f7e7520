/** Which processes of this machine live inside a boundary. */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** Children of all threads of a process; none where it is gone. */
function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1')
        .split(' ')
        .filter((text) => text !== '')
        .map(Number),
    );
  } catch {
    return [];
  }
}

function* descendantsOf(pid: number): Generator<number> {
  for (const child of childrenOf(pid)) {
    yield child;
    yield* descendantsOf(child);
  }
}

const nameSpaceOf = (pid: number): string | undefined => {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return undefined;
  }
};

/**
 * Descendants of `pid` in a process name space of their own, without its first process, which is the boundary's. Orphans
 * stay children of that one, so none is missed.
 */
export function processesInside(pid: number): number[] {
  const outside = nameSpaceOf(process.pid);
  const inside = [...descendantsOf(pid)].filter((each) => {
    const own = nameSpaceOf(each);
    return own !== undefined && own !== outside;
  });
  return inside.slice(1);
}

/** `pid` and its descendants. An orphan's parent is the machine's first process: it is missed. */
export function processTree(pid: number): number[] {
  return [pid, ...descendantsOf(pid)];
}
