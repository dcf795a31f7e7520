/**
 * The state of roots by the plainest reading of FORMAT.md: everything listed, everything read, nothing remembered.
 * Shares no code with the library; slow on purpose.
 */

import { createHash } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import koffi from 'koffi';

const libc = koffi.load(null);
const llistxattr = libc.func('long llistxattr(const void *, void *, size_t)');
const lgetxattr = libc.func('long lgetxattr(const void *, const void *, void *, size_t)');

const H = (...parts: (Uint8Array | readonly number[])[]): Buffer => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(Buffer.from(part));
  return hash.digest();
};

const be = (bytes: number, value: number | bigint): Buffer => {
  const out = Buffer.alloc(bytes);
  let rest = BigInt.asUintN(bytes * 8, BigInt(value));
  for (let i = bytes - 1; i >= 0; i--, rest >>= 8n) out[i] = Number(rest & 255n);
  return out;
};
const sized = (bytes: Buffer): Buffer => Buffer.concat([be(4, bytes.length), bytes]);

const join = (dir: Buffer, name: Buffer): Buffer => Buffer.concat([dir, Buffer.from('/'), name]);

interface Found {
  readonly path: Buffer;
  readonly name: Buffer;
  readonly stat: import('node:fs').BigIntStats;
  readonly children: Found[];
}

/** Either the digest, or what makes the roots unfit for one. */
export type Verdict = { readonly digest: string } | { readonly unfit: ReadonlySet<string> };

export function oracle(
  roots: readonly string[],
  ignored: readonly string[] = [],
  moreGaps: readonly string[] = [],
): Verdict {
  const unfit = new Set<string>();
  let outside = false;
  const trees = [...roots].map((root) => {
    const inodes = new Map<string, Buffer[]>();
    const walk = (path: Buffer, relative: Buffer, name: Buffer): Found => {
      const stat = lstatSync(path, { bigint: true });
      const found: Found = { path: relative, name, stat, children: [] };
      if (stat.isFIFO()) unfit.add('fifo');
      else if (stat.isSocket()) unfit.add('socket');
      else if (stat.isBlockDevice() || stat.isCharacterDevice()) unfit.add('device');
      if (!stat.isDirectory()) {
        const key = `${stat.dev}:${stat.ino}`;
        inodes.set(key, [...(inodes.get(key) ?? []), relative]);
        return found;
      }
      for (const child of readdirSync(path, { encoding: 'buffer' })) {
        if (ignored.includes(child.toString('latin1'))) continue;
        const below = relative.length === 0 ? child : join(relative, child);
        found.children.push(walk(join(path, child), below, child));
      }
      return found;
    };
    const absolute = Buffer.from(root);
    const tree = walk(absolute, Buffer.alloc(0), Buffer.alloc(0));

    const digest = ({ path, stat, children }: Found): Buffer => {
      const at = path.length === 0 ? absolute : join(absolute, path);
      const type = stat.isDirectory() ? 2 : stat.isSymbolicLink() ? 3 : 1;
      const names = type === 2 ? [] : (inodes.get(`${stat.dev}:${stat.ino}`) ?? []);
      if (type !== 2 && Number(stat.nlink) > names.length) outside = true;
      const group = names.length > 1 ? [...names].sort((a, b) => Buffer.compare(a, b))[0] : undefined;
      const attributes = xattrs(at).map(([name, value]) =>
        Buffer.concat([be(2, name.length), name, sized(value)]),
      );
      const parts = [
        be(1, type),
        be(2, Number(stat.mode) & 0o7777),
        be(4, stat.uid),
        be(4, stat.gid),
        be(8, stat.mtimeNs),
        be(2, attributes.length),
        ...attributes,
        sized(group ?? Buffer.alloc(0)),
      ];
      if (type === 1) {
        const content = readFileSync(at);
        parts.push(be(8, content.length), H(content));
      } else if (type === 3) {
        parts.push(sized(readlinkSync(at, { encoding: 'buffer' })));
      } else {
        parts.push(
          set(
            children.map((child) => H([1], child.name, digest(child))),
            0,
          ),
        );
      }
      return H([0], ...parts);
    };
    return unfit.size > 0 ? undefined : { path: absolute, digest: digest(tree) };
  });
  if (unfit.size > 0) return { unfit };

  const gaps = ['atime', 'birthtime', 'ctime', 'inode', ...moreGaps];
  if (outside) gaps.push('outside-links');
  if (process.getuid?.() !== 0) gaps.push('ownership');
  const whole = trees.filter((tree) => tree !== undefined).sort((a, b) => Buffer.compare(a.path, b.path));
  const digest = H(
    [4],
    be(4, whole.length),
    ...whole.flatMap((tree) => [sized(tree.path), tree.digest]),
    be(4, ignored.length),
    ...[...ignored].sort().map((rule) => sized(Buffer.from(rule))),
    be(4, gaps.length),
    ...gaps.sort().map((gap) => sized(Buffer.from(gap))),
  );
  return { digest: `sha256:${digest.toString('hex')}` };
}

function set(leaves: readonly Buffer[], depth: number): Buffer {
  if (leaves.length <= 64) return H([2], ...[...leaves].sort((a, b) => Buffer.compare(a, b)));
  const parts = Array.from({ length: 16 }, (_, i) =>
    set(
      leaves.filter((leaf) => Number.parseInt(leaf.toString('hex')[depth] as string, 16) === i),
      depth + 1,
    ),
  );
  return H([3], ...parts);
}

function xattrs(path: Buffer): [Buffer, Buffer][] {
  const c = Buffer.concat([path, Buffer.alloc(1)]);
  const list = Buffer.alloc(65536);
  const length = Number(llistxattr(c, list, list.length));
  if (length <= 0) return [];
  const names = list.toString('latin1', 0, length).split('\0').slice(0, -1);
  return names.sort().map((name) => {
    const value = Buffer.alloc(65536);
    const size = Number(lgetxattr(c, Buffer.from(`${name}\0`, 'latin1'), value, value.length));
    return [Buffer.from(name, 'latin1'), value.subarray(0, size)];
  });
}
