import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

type Members = Record<string, unknown>;

const sha256 = (bytes: Buffer | string): string => createHash('sha256').update(bytes).digest('hex');

/**
 * What the owner of a trace can do: changes its records and chains them anew, numbers, hashes and close included, so
 * that the file by itself is as good as before. By FORMAT.md, not by the code that is tested.
 */
export function chainAnew(path: string, change: (records: Members[]) => Members[]): void {
  const records = change(
    readFileSync(path, 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Members),
  );
  let prev = '0'.repeat(64);
  const lines = records.map((record, n) => {
    const { type, time, at, n: _n, prev: _prev, data, ...members } = record;
    const closing = type === 'close' ? { count: n, head: prev } : {};
    const head = JSON.stringify({ n, type, time, at, ...members, ...closing, prev });
    prev = sha256(head);
    return data === undefined ? head : `${head.slice(0, -1)},"data":"${data as string}"}`;
  });
  writeFileSync(path, `${lines.join('\n')}\n`);
}

/** A record with other content, its own hash and size to match. */
export function withContent(record: Members, content: string): Members {
  const bytes = Buffer.from(content);
  return { ...record, size: bytes.length, sha256: sha256(bytes), data: bytes.toString('base64') };
}

export const textOf = (record: Members): string =>
  Buffer.from((record['data'] as string | undefined) ?? '', 'base64').toString();
