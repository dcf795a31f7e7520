import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';

const sha256 = (bytes: Buffer | string): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** What that recorder calls canonical: keys sorted at every depth, no blanks. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((each) => sorted(each));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, each]) => [key, sorted(each)]),
  );
}

/** Lines of a trace of the Python Belay, version 1, written after its published description. */
export class V1Trace {
  readonly lines: string[] = [];
  #seq = 0;
  #us = Date.UTC(2026, 7, 20, 10, 11, 12) * 1000 + 123_456;

  record(kind: string, members: object, point = 'proxy'): this {
    this.#us += 1_500;
    const iso = new Date(Math.floor(this.#us / 1000)).toISOString().slice(0, -1);
    const t_in = `${iso}${String(this.#us % 1000).padStart(3, '0')}+00:00`;
    this.lines.push(
      JSON.stringify({ v: 1, kind, seq: this.#seq++, t_in, observation_point: point, ...members }),
    );
    return this;
  }

  open(): this {
    return this.record('connection_window', { phase: 'open' }).record('network_policy', {
      policy: 'deny-all',
      ports: [],
    });
  }

  frame(dir: 'c2s' | 's2c', content: unknown, more: object = {}): this {
    const raw = Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content));
    let canonical: string | null = null;
    try {
      canonical = sha256(JSON.stringify(sorted(JSON.parse(raw.toString('utf8')))));
    } catch {
      canonical = null;
    }
    return this.record('frame', {
      dir,
      raw: raw.toString('base64'),
      hash_raw: sha256(raw),
      hash_canonical: canonical,
      canonical_form: canonical === null ? null : 'belay/jcs-v1',
      truncated: false,
      state_handle: { status: 'absent' },
      ...more,
    });
  }

  close(): this {
    return this.record('connection_window', { phase: 'close' });
  }

  claim(text?: string): this {
    return this.record('claim', text === undefined ? {} : { text }, 'session');
  }

  write(path: string, change: (lines: string[]) => string[] = (lines) => lines): string {
    writeFileSync(path, `${change(this.lines).join('\n')}\n`);
    return path;
  }
}

export const present = {
  status: 'present',
  handle: '3f2504e04f8941d39a0c0305e82c3301',
  backend: 'copy-fidelity',
  capabilities: ['hardlinks', 'special-modes', 'dir-mtimes', 'symlinks', 'xattrs-os-native'],
  fidelity_gaps: [
    'UNRESTORABLE_ATIME',
    'UNRESTORABLE_CTIME',
    'UNRESTORABLE_BIRTHTIME',
    'UNRESTORABLE_INODE_IDENTITY',
  ],
};
export const unrestorable = {
  status: 'unrestorable',
  cause: 'UNRESTORABLE_CONCURRENT_TURN',
  detail: 'another tools/call is in flight',
  source: 'turn-gate',
};
