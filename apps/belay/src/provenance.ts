/** What is run, as far as files on this machine can say: which program, which script, of which package. */

import { createHash } from 'node:crypto';
import {
  createReadStream,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { type Package, readPackage } from './package-runner.js';

/** A file by its path and, where it was taken, SHA-256 over its bytes (64 hex digits). */
export interface FileIdentity {
  readonly path: string;
  readonly sha256?: string | undefined;
  /** Where the digest was not taken: what changes on this machine whenever the file's content may have. */
  readonly stat?: string | undefined;
}

export interface Provenance {
  readonly executable: FileIdentity;
  readonly script?: FileIdentity | undefined;
  readonly package?: Package | undefined;
}

/** Up to this size a digest is taken before the server is started: some 20 ms. Bytes. */
const AT_ONCE = 32 * 1024 * 1024;
/** Digests of larger files are remembered. */
const MAX_REMEMBERED = 64;
/** Interpreters whose first argument that is no option is the program. */
const INTERPRETER = /^(?:node|nodejs|bun|deno|python[0-9.]*|ruby|perl|sh|bash)$/;

/**
 * Digests of files by what stat(2) says of them, in a file of the state directory. Whoever can write there can write
 * traces too. Losing it, or an update of it, costs another reading.
 */
export class DigestCache {
  readonly #path: string;
  #known: Map<string, string>;

  constructor(path: string) {
    this.#path = path;
    this.#known = new Map();
    try {
      const read = JSON.parse(readFileSync(path, 'utf8')) as unknown;
      if (Array.isArray(read)) {
        const pairs = read.filter(
          (pair): pair is [string, string] =>
            Array.isArray(pair) && typeof pair[0] === 'string' && /^[0-9a-f]{64}$/.test(String(pair[1])),
        );
        this.#known = new Map(pairs);
      }
    } catch {
      // None yet, or none that can be used.
    }
  }

  /** The digest if it can be said at once: because it is remembered, or the file is small. Never throws. */
  now(path: string): string | undefined {
    try {
      const key = keyOf(path);
      const known = this.#known.get(key);
      if (known !== undefined || statSync(path).size > AT_ONCE) return known;
      return createHash('sha256').update(readFileSync(path)).digest('hex');
    } catch {
      return undefined;
    }
  }

  /** Reads the file in the background and remembers its digest; undefined when it changed meanwhile or can't be read. */
  async later(path: string, signal: AbortSignal): Promise<string | undefined> {
    try {
      const key = keyOf(path);
      const hash = createHash('sha256');
      for await (const piece of createReadStream(path, { highWaterMark: 256 * 1024, signal })) {
        hash.update(piece as Buffer);
      }
      if (keyOf(path) !== key) return undefined;
      const digest = hash.digest('hex');
      this.#known.set(key, digest);
      this.#store();
      return digest;
    } catch {
      return undefined;
    }
  }

  #store(): void {
    const pairs = [...this.#known].slice(-MAX_REMEMBERED);
    const temporary = `${this.#path}.${process.pid}`;
    mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 });
    writeFileSync(temporary, JSON.stringify(pairs), { mode: 0o600 });
    renameSync(temporary, this.#path);
  }
}

/** As `FileIdentity` has it; undefined for a file that can't be looked at. */
export function statKey(path: string): string | undefined {
  try {
    return keyOf(path);
  } catch {
    return undefined;
  }
}

/** Changes whenever the file's content may have. */
function keyOf(path: string): string {
  const { dev, ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
  return [dev, ino, size, mtimeNs, ctimeNs].join(':');
}

/** Identifies what a command line runs; `executable` is the file that its first word was found to be. */
export function identify(
  executable: string,
  args: readonly string[],
  cwd: string,
  digests: DigestCache,
): Provenance {
  const script = INTERPRETER.test(basename(executable)) ? scriptOf(args, cwd) : undefined;
  const identity = (path: string): FileIdentity => {
    const sha256 = digests.now(path);
    return sha256 === undefined ? { path, stat: statKey(path) } : { path, sha256 };
  };
  return {
    executable: identity(executable),
    script: script === undefined ? undefined : identity(script),
    package: packageOf(script ?? executable),
  };
}

function scriptOf(args: readonly string[], cwd: string): string | undefined {
  for (const word of args) {
    // What is given on the command line itself, or as a module's name, is no file.
    if (/^(?:-[cemp]|--eval|--print)$/.test(word)) return undefined;
    if (word.startsWith('-')) continue;
    try {
      const path = resolve(cwd, word);
      if (statSync(path).isFile()) return path;
    } catch {
      // The value of an option, perhaps.
    }
  }
  return undefined;
}

/** The nearest package around a file, links resolved; for the file of a system there is none. */
function packageOf(file: string): Package | undefined {
  try {
    for (let folder = dirname(realpathSync(file)); folder !== dirname(folder); folder = dirname(folder)) {
      const found = readPackage(folder);
      if (found !== undefined) return { name: found.name, version: found.version };
      if (basename(dirname(folder)) === 'node_modules') return undefined;
    }
  } catch {
    // Nothing there.
  }
  return undefined;
}

/** Where digests are remembered in a state directory. */
export const digestsPath = (state: string): string => join(state, 'digests.json');
