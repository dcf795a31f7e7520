/** What tools a server had in earlier runs on this machine, by keyed digests: so that one that has changed since is found. */

import { createHmac } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RecordBody } from '@belay/trace';

type Opening = Partial<Extract<RecordBody, { readonly type: 'open' }>>;

/** Tools of one server that are remembered, the latest ones. */
const MAX_TOOLS = 16_384;

interface Stored {
  readonly v: 1;
  /** Digest of the definition, by keyed digest of the name. */
  readonly tools: Readonly<Record<string, string>>;
}

/**
 * One server is what was run: the program and script as files, with the arguments; over HTTP, the address. The file is
 * of the machine alone (0600), replaced whole at the end of a run; of two runs at once, the last one's word stays.
 */
export class KnownTools {
  readonly #secret: Buffer;
  readonly #folder: string;
  readonly #path: string;
  readonly #before: ReadonlyMap<string, string>;
  readonly #now: Map<string, string>;
  readonly #judged = new Set<string>();

  constructor(state: string, secret: Buffer, opening: Opening) {
    const { command, upstream } = opening;
    const server = upstream ?? [
      command?.executable?.path,
      command?.script?.path,
      ...(command?.started ?? command?.argv ?? []),
    ];
    this.#secret = secret;
    this.#folder = join(state, 'tools');
    this.#path = join(
      this.#folder,
      `${this.#keyed('belay/server/v1', JSON.stringify(server)).slice(0, 32)}.json`,
    );
    this.#before = read(this.#path);
    this.#now = new Map(this.#before);
  }

  /** Takes a definition as it is listed; true when it is the first of its tool in this run and not that of an earlier one. */
  changed(tool: string, digest: string): boolean {
    const key = this.#keyed('belay/tool-name/v1', tool);
    const first = !this.#judged.has(key);
    this.#judged.add(key);
    this.#now.delete(key);
    this.#now.set(key, digest);
    const before = this.#before.get(key);
    return first && before !== undefined && before !== digest;
  }

  /** Throws what the disk says. */
  save(): void {
    if (this.#judged.size === 0) return;
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    const fresh = `${this.#path}.${process.pid}.new`;
    const tools = Object.fromEntries([...this.#now].slice(-MAX_TOOLS));
    try {
      writeFileSync(fresh, `${JSON.stringify({ v: 1, tools } satisfies Stored)}\n`, { mode: 0o600 });
      renameSync(fresh, this.#path);
    } catch (error) {
      rmSync(fresh, { force: true });
      throw error;
    }
  }

  #keyed(domain: string, text: string): string {
    return createHmac('sha256', this.#secret).update(`${domain}\n`).update(text).digest('hex');
  }
}

/** Nothing is known where there is no file, or one that is none. */
function read(path: string): Map<string, string> {
  try {
    const { v, tools } = JSON.parse(readFileSync(path, 'utf8')) as Stored;
    const entries = v === 1 ? Object.entries(tools) : [];
    return new Map(entries.filter(([, digest]) => typeof digest === 'string'));
  } catch {
    return new Map();
  }
}
