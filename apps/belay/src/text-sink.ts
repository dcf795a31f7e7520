import { open, rename, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** Text is gathered up to this many characters before it is written. */
const PIECE = 64 * 1024;

/** Where a long document is written piece by piece, so that it never has to be in memory. */
export interface TextSink {
  write(text: string): Promise<void>;
  /** The reader left early (`| head`): nothing more is wanted. */
  readonly gone: boolean;
}

class Gathered implements TextSink {
  readonly #to: (text: string) => Promise<void>;
  readonly #isGone: () => boolean;
  #parts: string[] = [];
  #length = 0;

  constructor(to: (text: string) => Promise<void>, isGone: () => boolean) {
    this.#to = to;
    this.#isGone = isGone;
  }

  get gone(): boolean {
    return this.#isGone();
  }

  async write(text: string): Promise<void> {
    this.#parts.push(text);
    this.#length += text.length;
    if (this.#length >= PIECE) await this.flush();
  }

  async flush(): Promise<void> {
    const text = this.#parts.join('');
    this.#parts = [];
    this.#length = 0;
    if (text !== '' && !this.gone) await this.#to(text);
  }
}

/** Runs `work` with standard output. */
export async function toStandardOutput(work: (sink: TextSink) => Promise<void>): Promise<void> {
  let gone = false;
  const onError = (error: NodeJS.ErrnoException): void => {
    gone = true;
    if (error.code !== 'EPIPE') throw error;
  };
  process.stdout.on('error', onError);
  const sink = new Gathered(
    (text) => new Promise((resolve) => process.stdout.write(text, () => resolve())),
    () => gone,
  );
  try {
    await work(sink);
    await sink.flush();
  } finally {
    process.stdout.off('error', onError);
  }
}

/**
 * Runs `work` with a new file, which takes the place of `path` when it is whole. 0600: what comes out of a trace is as
 * private as the trace.
 */
export async function toFile(path: string, work: (sink: TextSink) => Promise<void>): Promise<void> {
  const fresh = join(dirname(path), `.${process.pid}.belay.new`);
  const handle = await open(fresh, 'wx', 0o600);
  try {
    const sink = new Gathered(
      (text) => handle.writeFile(text, 'utf8'),
      () => false,
    );
    await work(sink);
    await sink.flush();
    await handle.close();
    await rename(fresh, path);
  } catch (error) {
    await handle.close().catch(() => undefined);
    await unlink(fresh).catch(() => undefined);
    throw error;
  }
}
