import { join } from 'node:path';
import { ed25519Verifier, formatVkey, NoteError, openCheckpoint, parseBase64 } from '@belay/note';
import { type SignedHead, verifyGrowth } from './ack.js';
import type { AppendTarget } from './append.js';
import { ClientError } from './error.js';
import type { HeadStore } from './head.js';
import type { Answer } from './http.js';
import { logDir, readJson, writeJson } from './state.js';

/** The largest checkpoint of a log that this machine saw published, and verified. */
export interface Published {
  readonly size: number;
  /** Base64. */
  readonly root: string;
  /** The checkpoint as it was published: a signed note. */
  readonly note: string;
  /** When it was read, RFC 3339. */
  readonly seen: string;
}

/** `published.json` of a log's folder. */
export class PublishedStore {
  readonly #path: string;
  readonly #origin: string;

  constructor(state: string, origin: string) {
    this.#path = join(logDir(state, origin), 'published.json');
    this.#origin = origin;
  }

  /** Undefined before the first one, and when the file is none: it can be read again at any time. */
  read(): Published | undefined {
    let stored: (Published & { readonly v: 1; readonly log: string }) | undefined;
    try {
      stored = readJson(this.#path) as typeof stored;
    } catch {
      return undefined;
    }
    if (stored?.v !== 1 || stored.log !== this.#origin || !Number.isSafeInteger(stored.size))
      return undefined;
    const { size, root, note, seen } = stored;
    return { size, root, note, seen };
  }

  write(published: Published): void {
    writeJson(this.#path, { v: 1, log: this.#origin, ...published });
  }
}

/**
 * Reads the checkpoint that the log publishes now, under the append token (which may read heads, and nothing else of a
 * log), and verifies it: signed by the pinned key, and of one history with the head that this machine holds. Returns
 * the largest checkpoint known then; undefined when none is published yet. Throws ClientError, of action `accuse` when
 * log key signed what can't both be true.
 */
export async function readPublished(
  target: AppendTarget,
  heads: HeadStore,
  store: PublishedStore,
  now: Date,
): Promise<Published | undefined> {
  const { credential } = target;
  const { origin } = credential;
  const vkey = formatVkey(origin, credential.publicKey);
  const answer = await ask(target, 'checkpoint');
  if (answer === undefined) return store.read();
  const note = answer.body.toString('utf8');
  const shown = openPublished(note, vkey, now);
  const held = heads.read();
  const before = store.read();
  for (const known of [held, before && { ...before, signature: before.note }]) {
    if (known !== undefined) await verifyOneHistory(target, vkey, known, { ...shown, signature: note });
  }
  // What is served may be a little older than what was: that is no fault, and what is covered stays covered.
  if (before !== undefined && before.size >= shown.size) return before;
  store.write(shown);
  return shown;
}

function openPublished(note: string, vkey: string, now: Date): Published {
  try {
    const { size, root } = openCheckpoint(note, ed25519Verifier(vkey));
    if (size > BigInt(Number.MAX_SAFE_INTEGER)) throw new NoteError('checkpoint', 'a size that no log has');
    return { size: Number(size), root: root.toString('base64'), note, seen: now.toISOString() };
  } catch (error) {
    if (!(error instanceof NoteError)) throw error;
    throw new ClientError(
      'give_up',
      'bad_signature',
      'the published checkpoint is not signed by the key that the token names',
      { cause: error },
    );
  }
}

async function verifyOneHistory(
  target: AppendTarget,
  vkey: string,
  known: SignedHead,
  shown: SignedHead,
): Promise<void> {
  const { origin } = target.credential;
  const [before, after] = known.size <= shown.size ? [known, shown] : [shown, known];
  if (before.size === after.size) {
    verifyGrowth({ origin, vkey, before, after, consistency: undefined });
    return;
  }
  const answer = await ask(target, `proof?from=${before.size}&size=${after.size}`);
  const hashes = answer === undefined ? undefined : hashesIn(answer);
  verifyGrowth({ origin, vkey, before, after, consistency: hashes ?? [] });
}

/** Undefined where the service says that there is no such thing. */
async function ask(target: AppendTarget, path: string): Promise<Answer | undefined> {
  const { origin } = target.credential;
  // An origin ends in the log's public identifier.
  const log = origin.slice(origin.lastIndexOf('/') + 1);
  const answer = await target.transport.get(`/v1/logs/${log}/${path}`, {
    authorization: `Bearer ${target.token}`,
    accept: path === 'checkpoint' ? 'text/plain, application/problem+json' : 'application/json',
  });
  if (answer.status === 200) return answer;
  if (answer.status === 404 || answer.status === 409) return undefined;
  throw new ClientError('retry', 'busy', `the service answered ${answer.status} to a question for its head`);
}

function hashesIn(answer: Answer): string[] {
  try {
    const { hashes } = JSON.parse(answer.body.toString('utf8')) as { hashes: string[] };
    hashes.forEach((hash) => parseBase64(hash));
    return hashes;
  } catch (error) {
    throw new ClientError('retry', 'answer_malformed', 'the answer is no proof of consistency', {
      cause: error,
    });
  }
}
