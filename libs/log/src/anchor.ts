import {
  closeSync,
  fdatasync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Hash } from '@belay/merkle';

/**
 * What the log key has signed, kept outside the database, so that a database put back to an older state can't make
 * the collector sign a second tree for a size it signed before.
 *
 * `record` resolves once (size, root) is durable; only then may a head be signed. It refuses, with
 * `AnchorConflict`, a size below the last one recorded and another root for the same size.
 */
export interface Anchor {
  last(origin: string): AnchorPoint | null;
  /** Every log that something was recorded of. */
  origins(): string[];
  /** Why nothing can be recorded at present; null when it can, as far as is known. */
  readonly trouble: Error | null;
  record(origin: string, size: number, root: Hash): Promise<void>;
}

export interface AnchorPoint {
  readonly size: number;
  readonly root: Hash;
}

/** Signing would show two trees for one size, or a smaller tree than the one signed last. The log must stop. */
export class AnchorConflict extends Error {
  readonly origin: string;
  readonly anchored: AnchorPoint;
  readonly offered: AnchorPoint;
  constructor(origin: string, anchored: AnchorPoint, offered: AnchorPoint) {
    super(
      `${origin}: signed at size ${anchored.size} with root ${anchored.root.toString('hex')}; ` +
        `refusing to sign size ${offered.size} with root ${offered.root.toString('hex')}`,
    );
    this.name = 'AnchorConflict';
    this.origin = origin;
    this.anchored = anchored;
    this.offered = offered;
  }
}

/** An anchor file that can't be read for what it says. Never repaired by guessing: it is evidence. */
export class AnchorDamaged extends Error {
  constructor(path: string, line: number) {
    super(
      `${path}: line ${line} is not an anchor record; restore the file from its copy, or ask who changed it`,
    );
    this.name = 'AnchorDamaged';
  }
}

/** Refuses what may not follow `last`; false when there is nothing to write. */
export function mayFollow(origin: string, last: AnchorPoint | null, size: number, root: Hash): boolean {
  if (last === null || size > last.size) return true;
  if (size === last.size && last.root.equals(root)) return false;
  throw new AnchorConflict(origin, last, { size, root });
}

const NAME = 'anchor';
/** Rewritten at start only, when it holds more than this many superseded lines. */
const COMPACT_AT = 10_000;

interface Waiter {
  readonly origin: string;
  readonly point: AnchorPoint | null;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/**
 * Append-only text, one line a record: `<origin> <size> <root hex>`, the last line of an origin counts. A torn last
 * line was never synced, hence nothing was signed for it: it is cut. One process at a time (the directory's lock is
 * the caller's). Appends of many logs share one fdatasync: what arrives while a sync runs goes with the next.
 *
 * When a write or a sync fails, nobody knows what is on the disk. What was durable before is known: it is written to
 * a new file, synced and renamed before anything else is recorded, so a full disk costs refusals while it is full and
 * nothing afterwards.
 */
export class FileAnchor implements Anchor {
  readonly #dir: string;
  #fd: number;
  /** On the disk for certain. */
  readonly #durable: Map<string, AnchorPoint>;
  /** Accepted, perhaps not yet durable: what the next record of the same log is checked against. */
  #accepted: Map<string, AnchorPoint>;
  #waiting: Waiter[] = [];
  #syncing = false;
  #failed: Error | null = null;

  private constructor(dir: string, fd: number, points: Map<string, AnchorPoint>) {
    this.#dir = dir;
    this.#fd = fd;
    this.#durable = points;
    this.#accepted = new Map(points);
  }

  /** Opens or creates `<dir>/anchor`; `dir` is created 0700 when it is missing. */
  static open(dir: string): FileAnchor {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    const { points, lines, torn } = readAnchor(dir);
    if (torn || lines > points.size + COMPACT_AT) return new FileAnchor(dir, rewrite(dir, points), points);
    const fd = openSync(join(dir, NAME), 'a', 0o600);
    // The name itself has to survive a crash before the first record relies on it.
    syncDirectory(dir);
    return new FileAnchor(dir, fd, points);
  }

  /** What the anchor in `dir` says, without touching it; empty when there is none. */
  static read(dir: string): Pick<Anchor, 'last' | 'origins'> {
    const { points } = readAnchor(dir);
    return { last: (origin) => points.get(origin) ?? null, origins: () => [...points.keys()] };
  }

  get trouble(): Error | null {
    return this.#failed;
  }

  last(origin: string): AnchorPoint | null {
    return this.#accepted.get(origin) ?? null;
  }

  origins(): string[] {
    return [...this.#accepted.keys()];
  }

  async record(origin: string, size: number, root: Hash): Promise<void> {
    if (this.#failed) this.#recover();
    if (!mayFollow(origin, this.last(origin), size, root)) {
      // The same point may still be on its way to the disk with an earlier call.
      if (this.#syncing || this.#waiting.length > 0) await this.#enqueue(origin, null);
      return;
    }
    const point = { size, root };
    this.#accepted.set(origin, point);
    await this.#enqueue(origin, point);
  }

  close(): void {
    closeSync(this.#fd);
  }

  #enqueue(origin: string, point: AnchorPoint | null): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ origin, point, resolve, reject });
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#syncing || this.#waiting.length === 0) return;
    this.#syncing = true;
    const group = this.#waiting;
    this.#waiting = [];
    const done = (error: Error | null): void => {
      this.#syncing = false;
      if (error) {
        this.#fail(error, group);
        return;
      }
      for (const { origin, point, resolve } of group) {
        if (point) this.#durable.set(origin, point);
        resolve();
      }
      this.#flush();
    };
    try {
      const text = group.map(({ origin, point }) => (point ? record(origin, point) : '')).join('');
      const bytes = Buffer.from(text);
      for (let at = 0; at < bytes.length;) at += writeSync(this.#fd, bytes, at);
    } catch (error) {
      done(error as Error);
      return;
    }
    fdatasync(this.#fd, done);
  }

  /** Nothing of the group, nor of what waited behind it, was recorded: it is forgotten and told so. */
  #fail(error: Error, group: readonly Waiter[]): void {
    this.#failed = error;
    this.#accepted = new Map(this.#durable);
    for (const waiter of [...group, ...this.#waiting.splice(0)]) waiter.reject(error);
  }

  /** Throws what is still in the way. */
  #recover(): void {
    try {
      const fd = rewrite(this.#dir, this.#durable);
      closeSync(this.#fd);
      this.#fd = fd;
      this.#failed = null;
    } catch (error) {
      this.#failed = error as Error;
      throw error;
    }
  }
}

function readAnchor(dir: string): { points: Map<string, AnchorPoint>; lines: number; torn: boolean } {
  const path = join(dir, NAME);
  const points = new Map<string, AnchorPoint>();
  let text = '';
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const whole = text.slice(0, text.lastIndexOf('\n') + 1);
  const lines = whole.split('\n').slice(0, -1);
  lines.forEach((line, at) => {
    const match = /^(\S{1,255}) (0|[1-9]\d{0,15}) ([0-9a-f]{64})$/.exec(line);
    if (!match) throw new AnchorDamaged(path, at + 1);
    const [, origin, size, root] = match as unknown as [string, string, string, string];
    const point = { size: Number(size), root: Buffer.from(root, 'hex') };
    if (mayFollow(origin, points.get(origin) ?? null, point.size, point.root)) points.set(origin, point);
  });
  return { points, lines: lines.length, torn: whole.length !== text.length };
}

/** Puts a file with these points in place of the anchor, durably, and returns it open for appending. */
function rewrite(dir: string, points: ReadonlyMap<string, AnchorPoint>): number {
  const path = join(dir, NAME);
  const fresh = openSync(`${path}.new`, 'w', 0o600);
  try {
    const bytes = Buffer.from([...points].map(([origin, point]) => record(origin, point)).join(''));
    for (let at = 0; at < bytes.length;) at += writeSync(fresh, bytes, at);
    fsyncSync(fresh);
  } finally {
    closeSync(fresh);
  }
  renameSync(`${path}.new`, path);
  syncDirectory(dir);
  return openSync(path, 'a', 0o600);
}

function syncDirectory(dir: string): void {
  const directory = openSync(dir, 'r');
  fsyncSync(directory);
  closeSync(directory);
}

function record(origin: string, point: AnchorPoint): string {
  return `${origin} ${point.size} ${point.root.toString('hex')}\n`;
}
