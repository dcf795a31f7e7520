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

/**
 * Append-only text, one line a record: `<origin> <size> <root hex>`, the last line of an origin counts. A torn last
 * line was never synced, hence nothing was signed for it: it is cut. One process at a time (the directory's lock is
 * the caller's). Appends of many logs share one fdatasync: what arrives while a sync runs goes with the next.
 */
export class FileAnchor implements Anchor {
  readonly #fd: number;
  readonly #points: Map<string, AnchorPoint>;
  /** Accepted, perhaps not yet durable: what the next record of the same log is checked against. */
  #waiting: { text: string; resolve: () => void; reject: (error: Error) => void }[] = [];
  #syncing = false;
  #failed: Error | null = null;

  private constructor(fd: number, points: Map<string, AnchorPoint>) {
    this.#fd = fd;
    this.#points = points;
  }

  /** Opens or creates `<dir>/anchor`; `dir` is created 0700 when it is missing. */
  static open(dir: string): FileAnchor {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
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
      const point = { size: Number(match[2]), root: Buffer.from(match[3] as string, 'hex') };
      if (!mayFollow(match[1] as string, points.get(match[1] as string) ?? null, point.size, point.root))
        return;
      points.set(match[1] as string, point);
    });
    if (whole.length !== text.length || lines.length > points.size + COMPACT_AT) {
      const fresh = openSync(`${path}.new`, 'w', 0o600);
      writeSync(fresh, [...points].map(([origin, point]) => record(origin, point.size, point.root)).join(''));
      fsyncSync(fresh);
      closeSync(fresh);
      renameSync(`${path}.new`, path);
    }
    const fd = openSync(path, 'a', 0o600);
    // The name itself has to survive a crash before the first record relies on it.
    const directory = openSync(dir, 'r');
    fsyncSync(directory);
    closeSync(directory);
    return new FileAnchor(fd, points);
  }

  last(origin: string): AnchorPoint | null {
    return this.#points.get(origin) ?? null;
  }

  async record(origin: string, size: number, root: Hash): Promise<void> {
    if (this.#failed) throw this.#failed;
    if (!mayFollow(origin, this.last(origin), size, root)) {
      // The same point may still be on its way to the disk with an earlier call.
      if (this.#syncing || this.#waiting.length > 0) await this.#enqueue('');
      return;
    }
    this.#points.set(origin, { size, root });
    await this.#enqueue(record(origin, size, root));
  }

  close(): void {
    closeSync(this.#fd);
  }

  #enqueue(text: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ text, resolve, reject });
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
      // After a failed write or sync nobody knows what is on the disk: no more signatures from this process.
      if (error) this.#failed = error;
      for (const waiter of group) {
        if (error) waiter.reject(error);
        else waiter.resolve();
      }
      if (error) {
        for (const waiter of this.#waiting.splice(0)) waiter.reject(error);
      } else this.#flush();
    };
    try {
      const bytes = Buffer.from(group.map((waiter) => waiter.text).join(''));
      for (let at = 0; at < bytes.length;) at += writeSync(this.#fd, bytes, at);
    } catch (error) {
      done(error as Error);
      return;
    }
    fdatasync(this.#fd, done);
  }
}

function record(origin: string, size: number, root: Hash): string {
  return `${origin} ${size} ${root.toString('hex')}\n`;
}
