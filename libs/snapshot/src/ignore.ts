import { SnapshotError } from './error.js';

const SLASH = 0x2f;

/** Ignore rules (`FORMAT.md`): an absolute path with all below it, or a name with `*`. */
export class IgnoreRules {
  /** As given. */
  readonly rules: readonly string[];
  /** Absolute paths by their last name, both with each byte a character. */
  readonly #paths = new Map<string, Set<string>>();
  readonly #names = new Set<string>();
  readonly #patterns: RegExp[] = [];

  constructor(rules: readonly string[]) {
    this.rules = rules;
    for (const rule of rules) {
      const bytes = Buffer.from(rule).toString('latin1');
      if (bytes.startsWith('/')) {
        const name = bytes.slice(bytes.lastIndexOf('/') + 1);
        if (name === '') throw new SnapshotError('arguments', `ignore rule without a name: ${rule}`);
        const paths = this.#paths.get(name) ?? new Set();
        this.#paths.set(name, paths.add(bytes));
      } else if (bytes === '' || bytes.includes('/')) {
        throw new SnapshotError('arguments', `an ignore rule is an absolute path or one name: ${rule}`);
      } else if (bytes.includes('*')) {
        const escaped = bytes.split(/\*+/).map((part) => part.replace(/[\\^$.|?+()[\]{}]/g, '\\$&'));
        this.#patterns.push(new RegExp(`^${escaped.join('.*')}$`, 's'));
      } else {
        this.#names.add(bytes);
      }
    }
  }

  get none(): boolean {
    return this.rules.length === 0;
  }

  /** Whether `name` in the directory is left out; `directory` gives its absolute path, and is asked only when needed. */
  ignores(name: Buffer, directory: () => Buffer): boolean {
    const text = name.toString('latin1');
    if (this.#names.has(text) || this.#patterns.some((pattern) => pattern.test(text))) return true;
    const paths = this.#paths.get(text);
    return paths !== undefined && paths.has(joinPath(directory(), name).toString('latin1'));
  }
}

/** A relative path that is empty stands for the directory itself. */
export function joinPath(directory: Buffer, relative: Buffer): Buffer {
  if (relative.length === 0) return directory;
  const path = Buffer.allocUnsafe(directory.length + 1 + relative.length);
  directory.copy(path);
  path[directory.length] = SLASH;
  relative.copy(path, directory.length + 1);
  return path;
}
