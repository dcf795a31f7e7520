import { createHash } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Framer } from '@belay/mcp';
import { TraceWriter } from '@belay/trace';

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** A trace written step by step, each a millisecond after the one before unless told otherwise. */
export class MadeTrace {
  readonly path: string;
  readonly writer: TraceWriter;
  #us = 0;

  constructor(
    folder = mkdtempSync(join(tmpdir(), 'belay-made-')),
    name = 'proxy-01K6B3YB80041061050R3GG28A',
  ) {
    this.path = join(folder, `${name}.jsonl`);
    const started = Date.UTC(2026, 0, 1);
    this.writer = TraceWriter.create(
      this.path,
      {
        type: 'open',
        v: 1,
        epoch: '01K6B3YB80041061050R3GG28A',
        sink: 'proxy',
        session: 'made-1',
        recorder: 'belay/0.1.0',
        command: {
          argv: ['server-made', '--x', '<b>&"'],
          cwd: '/home/ann',
          env: { SECRET_NAME: 'hmac-sha256:00' },
        },
      },
      {
        wall: () => new Date(started + Math.floor(this.#us / 1000)).toISOString(),
        monotonic: () => this.#us,
      },
    );
  }

  after(ms: number): this {
    this.#us += ms * 1000;
    return this;
  }

  /** One frame, its LF included; an object is printed. */
  frame(dir: 'c2s' | 's2c', content: unknown, findings?: readonly string[], more: object = {}): this {
    const data = Buffer.isBuffer(content)
      ? content
      : Buffer.from(`${typeof content === 'string' ? content : JSON.stringify(content)}\n`);
    this.after(1).writer.append(
      { type: 'frame', dir, size: data.length, sha256: sha256(data), findings, ...more },
      data,
    );
    return this;
  }

  c2s(content: unknown): this {
    return this.frame('c2s', content);
  }

  s2c(content: unknown): this {
    return this.frame('s2c', content);
  }

  /** A frame that was too large to keep, as it would be recorded. */
  oversize(dir: 'c2s' | 's2c', content: unknown): this {
    const data = Buffer.from(`${JSON.stringify(content)}\n`);
    new Framer(0).push(data, (frame) => {
      const skimmed = Object.fromEntries(frame.skimmed?.scalars ?? []);
      this.after(1).writer.append({
        type: 'frame',
        dir,
        size: data.length,
        sha256: frame.sha256,
        oversize: true,
        skimmed,
      });
    });
    return this;
  }

  stderr(text: string): this {
    const data = Buffer.from(text);
    this.after(1).writer.append({ type: 'stderr', size: data.length, sha256: sha256(data) }, data);
    return this;
  }

  claim(text: string): this {
    const data = Buffer.from(text);
    this.after(1).writer.append({ type: 'claim', size: data.length, sha256: sha256(data) }, data);
    return this;
  }

  close(exit = 0): string {
    this.after(1).writer.close({ exit });
    return this.path;
  }
}

export const call = (id: unknown, name: string, args: unknown = {}, more: object = {}): object => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: args, ...more },
});
export const result = (id: unknown, more: object = {}): object => ({
  jsonrpc: '2.0',
  id,
  result: { content: [{ type: 'text', text: 'done' }], ...more },
});
export const notice = (method: string, params: object = {}): object => ({ jsonrpc: '2.0', method, params });
