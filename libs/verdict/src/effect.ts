/** Whether a change of the workspace was reproduced: the recorded delta against those of several replays. */

import { inflateSync } from 'node:zlib';
import { type Comparison, compare, type Difference, type Runs, type VolatileToken } from './compare.js';
import { sameName } from './volatile.js';

/** What a path was changed to. Times of files are not effects: they are left out before this is made. */
export interface PathChange {
  /** Relative to the workspace, `/` between segments. */
  readonly path: string;
  readonly what: 'created' | 'deleted' | 'modified' | 'metadata' | 'type';
  /** Absent when it is gone. */
  readonly after?: PathState;
  readonly before?: PathState;
}

export interface PathState {
  readonly type: 'file' | 'dir' | 'link';
  readonly mode: number;
  /** SHA-256 of a file's content, hex. */
  readonly content?: string;
  readonly target?: string;
  /** Digest of extended attributes, where there are any. */
  readonly xattrs?: string;
}

export type Delta = readonly PathChange[];

/** Gives a file's content by its SHA-256, or undefined where it is not at hand or too large to compare. */
export type ContentOf = (sha256: string) => Buffer | undefined;

/** Folders whose content tools keep for themselves; a list that operators may replace. */
export const CACHE_FOLDERS: readonly string[] = [
  '__pycache__',
  '.pytest_cache',
  '.mypy_cache',
  '.ruff_cache',
  '.cache',
  '.tox',
  '.nyc_output',
  '.eslintcache',
  '.tsbuildinfo',
  '.gradle',
  '.DS_Store',
];

/**
 * Whether any segment of the path is a cache. In one of Python only what it compiled is: it also imports source from
 * there, and compiled modules from anywhere else.
 */
export function isCache(path: string, caches: readonly string[] = CACHE_FOLDERS): boolean {
  const segments = path.split('/');
  if (!segments.some((segment) => caches.includes(segment))) return false;
  const inside = segments.indexOf('__pycache__') + 1;
  return inside === 0 || inside === segments.length || /\.pyc(?:\.\d+)?$/.test(path);
}

const MAX_TEXT = 4 * 1024 * 1024;

/**
 * Compares deltas as `compare` does answers. Contents that are text are compared by tokens; a random name pairs with
 * another of its shape; objects of git pair where they say the same but for time and the hashes of what they name.
 */
export function compareDeltas(
  recorded: Delta,
  replayed: readonly Delta[],
  runs: Runs,
  contentOf: ContentOf,
  caches: readonly string[] = CACHE_FOLDERS,
): Comparison {
  const deltas = aligned([recorded, ...replayed], runs, contentOf);
  const paths = new Set(deltas.flatMap((delta) => [...delta.keys()]));
  const volatile: VolatileToken[] = [];
  const reordered: Difference[] = [];
  const unstable: Difference[] = [];
  const different: Difference[] = [];
  for (const path of [...paths].sort()) {
    const changes = deltas.map((delta) => delta.get(path));
    const found = comparePath(path, changes, runs, contentOf);
    if (found === undefined) continue;
    if (isCache(path, caches)) {
      const [first] = [...found.different, ...found.unstable, ...found.reordered];
      if (first !== undefined) volatile.push({ ...first, class: 'cache' });
      else volatile.push(...found.volatile);
      continue;
    }
    volatile.push(...found.volatile);
    reordered.push(...found.reordered);
    unstable.push(...found.unstable);
    different.push(...found.different);
  }
  for (const { renamed } of deltas) {
    for (const { path, as, kind } of renamed)
      volatile.push({ path, class: kind, recorded: path, replayed: as });
  }
  const outcome =
    different.length > 0
      ? 'different'
      : unstable.length > 0
        ? 'unstable'
        : reordered.length > 0
          ? 'reordered'
          : volatile.length > 0
            ? 'volatile'
            : 'reproduced';
  return { outcome, volatile, reordered, unstable, different };
}

function comparePath(
  path: string,
  changes: readonly (PathChange | undefined)[],
  runs: Runs,
  contentOf: ContentOf,
): Comparison | undefined {
  const shapes = changes.map(shape);
  const content = changes.map((change) => change?.after?.content);
  if (new Set(shapes).size === 1 && new Set(content).size === 1) return undefined;
  const [recorded, ...replayed] = changes.map((change, i) =>
    comparable(path, shapes[i] as string, change, contentOf),
  ) as [unknown, ...unknown[]];
  const found = compare(recorded, replayed, runs);
  if (found.outcome === 'reproduced') return undefined;
  const named = <T extends Difference>(each: T): T => ({
    ...each,
    path: path + each.path.replace(/^\/text/, ''),
  });
  return {
    outcome: found.outcome,
    volatile: found.volatile.map(named),
    reordered: found.reordered.map(named),
    unstable: found.unstable.map(named),
    different: found.different.map(named),
  };
}

/** All of a change but a file's content. */
function shape(change: PathChange | undefined): string {
  if (change === undefined) return 'unchanged';
  const { what, after } = change;
  if (after === undefined) return what;
  return [what, after.type, after.mode.toString(8), after.target, after.xattrs]
    .filter((each) => each !== undefined)
    .join(' ');
}

function comparable(
  path: string,
  summary: string,
  change: PathChange | undefined,
  contentOf: ContentOf,
): unknown {
  const sha256 = change?.after?.content;
  if (sha256 === undefined) return { change: summary };
  const bytes = contentOf(sha256);
  const text = bytes === undefined ? undefined : readable(path, bytes);
  return text === undefined ? { change: summary, sha256 } : { change: summary, text };
}

const INDEX = /(?:^|\/)\.git(?:\/.*)?\/index$/;

/**
 * Whether an index of git was only refreshed: it lists what it listed, with other times and inodes beside it. Any look at
 * a repository may do that, and in a copy it does; it is no change.
 */
export function isRefresh({ path, what, before, after }: PathChange, contentOf: ContentOf): boolean {
  if (what !== 'modified' || !INDEX.test(path)) return false;
  const [old, now] = [before, after].map((side) => {
    const bytes = side?.content === undefined ? undefined : contentOf(side.content);
    return bytes === undefined ? undefined : gitIndex(bytes);
  });
  return old !== undefined && old === now;
}

/** A form in which contents can be compared by tokens, or undefined. */
function readable(path: string, bytes: Buffer): string | undefined {
  if (INDEX.test(path)) return gitIndex(bytes);
  const raw = /(?:^|\/)\.git(?:\/.*)?\/objects\/[0-9a-f]{2}\/[0-9a-f]{38,62}$/.test(path)
    ? inflated(bytes)
    : bytes;
  if (raw === undefined || raw.length > MAX_TEXT) return undefined;
  const text = raw.toString('utf8');
  return Buffer.from(text, 'utf8').equals(raw) ? text : undefined;
}

function inflated(bytes: Buffer): Buffer | undefined {
  try {
    return inflateSync(bytes, { maxOutputLength: MAX_TEXT });
  } catch {
    return undefined;
  }
}

/**
 * What an index of git lists (versions 2 and 3): mode, object, stage, flags and path of each entry, without the times, inodes
 * and sizes that git keeps beside them for its own speed.
 */
function gitIndex(bytes: Buffer): string | undefined {
  if (bytes.length < 12 || bytes.toString('latin1', 0, 4) !== 'DIRC') return undefined;
  const version = bytes.readUInt32BE(4);
  if (version !== 2 && version !== 3) return undefined;
  const count = bytes.readUInt32BE(8);
  const lines: string[] = [];
  let at = 12;
  for (let i = 0; i < count; i++) {
    if (at + 62 > bytes.length) return undefined;
    const mode = bytes.readUInt32BE(at + 24).toString(8);
    const object = bytes.toString('hex', at + 40, at + 60);
    const flags = bytes.readUInt16BE(at + 60);
    const name = at + 62 + (version === 3 && (flags & 0x4000) !== 0 ? 2 : 0);
    const end = bytes.indexOf(0, name);
    if (end < 0) return undefined;
    // What git was told to look away from is no matter of speed.
    const unseen = (flags & 0x8000) | (name === at + 64 ? bytes.readUInt16BE(at + 62) : 0);
    lines.push(`${mode} ${object} ${(flags >> 12) & 3} ${unseen} ${bytes.toString('latin1', name, end)}`);
    at += Math.ceil((end + 1 - at) / 8) * 8;
  }
  return lines.join('\n');
}

interface Pair {
  readonly path: string;
  /** What the replay called it. */
  readonly as: string;
  readonly kind: 'temp-name' | 'commit';
}

type Aligned = Map<string, PathChange> & { readonly renamed: Pair[] };

/** Beyond this many candidates nothing is paired: each pair may have to be read. */
const MAX_CANDIDATES = 1_000_000;

/** The deltas by path, paths of one run that only it has being read as the path they pair with in the recording. */
function aligned(deltas: readonly Delta[], runs: Runs, contentOf: ContentOf): Aligned[] {
  const maps = deltas.map((delta) =>
    Object.assign(
      new Map(
        delta
          .filter((change) => !isFanOut(change) && !isRefresh(change, contentOf))
          .map((change) => [change.path, change]),
      ),
      {
        renamed: [] as Aligned['renamed'],
      },
    ),
  );
  const [recorded, ...replayed] = maps as [Aligned, ...Aligned[]];
  for (const [j, replay] of replayed.entries()) {
    const only = [...replay.values()].filter(({ path }) => !recorded.has(path));
    const left = new Set([...recorded.keys()].filter((path) => !replay.has(path)));
    if (only.length * left.size > MAX_CANDIDATES) continue;
    for (const change of only) {
      for (const path of left) {
        const kind = pairs(recorded.get(path) as PathChange, change, runs, j, contentOf);
        if (kind === undefined) continue;
        left.delete(path);
        replay.delete(change.path);
        replay.set(path, { ...change, path });
        replay.renamed.push({ path, as: change.path, kind });
        break;
      }
    }
  }
  for (const path of recorded.keys()) separate(path, replayed);
  return maps;
}

/** A name that all replays give alike is no random one. */
function separate(path: string, replayed: readonly Aligned[]): void {
  const pairs = replayed.map((replay) => replay.renamed.find((pair) => pair.path === path));
  const [first] = pairs;
  if (first?.kind !== 'temp-name' || pairs.length < 2 || pairs.some((pair) => pair?.as !== first.as)) return;
  for (const replay of replayed) {
    const change = replay.get(path) as PathChange;
    replay.delete(path);
    replay.set(first.as, { ...change, path: first.as });
    replay.renamed.splice(
      replay.renamed.findIndex((pair) => pair.path === path),
      1,
    );
  }
}

/** Which of these are made along with an object depends on its hash, and follows from it. */
const FAN_OUT = /(?:^|\/)\.git(?:\/.*)?\/objects\/[0-9a-f]{2}$/;
const isFanOut = ({ path, what, before, after }: PathChange): boolean =>
  FAN_OUT.test(path) &&
  what !== 'metadata' &&
  [before, after].every((side) => (side?.type ?? 'dir') === 'dir');
const OBJECT = /(?:^|\/)\.git(?:\/.*)?\/objects\/[0-9a-f]{2}\/[0-9a-f]{38,62}$/;

function pairs(
  recorded: PathChange,
  replayed: PathChange,
  runs: Runs,
  replay: number,
  contentOf: ContentOf,
): 'temp-name' | 'commit' | undefined {
  if (shape(recorded) !== shape(replayed)) return undefined;
  const [left, right] = [OBJECT.test(recorded.path), OBJECT.test(replayed.path)];
  if (!left && !right) return sameName(recorded.path, replayed.path) ? 'temp-name' : undefined;
  if (left !== right) return undefined;
  const [a, b] = [recorded, replayed].map(({ path, after }) => {
    const bytes = after?.content === undefined ? undefined : contentOf(after.content);
    return bytes === undefined ? undefined : readable(path, bytes);
  });
  if (a === undefined || b === undefined) return undefined;
  const { outcome } = compare(a, [b], {
    recorded: runs.recorded,
    replays: [runs.replays[replay] as Runs['recorded']],
  });
  return outcome === 'reproduced' || outcome === 'volatile' ? 'commit' : undefined;
}
