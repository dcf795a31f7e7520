// A process that is told by its standard input what to do with a file, one JSON per line, and answers each with a line:
// writing through shared mappings and open descriptors, and in the background, as a server may.
import { closeSync, ftruncateSync, openSync, readdirSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import koffi from 'koffi';

const libc = koffi.load(null);
const mmap = libc.func('void *mmap(void *, size_t, int, int, int, long)');
const munmap = libc.func('int munmap(void *, size_t)');
const memcpy = libc.func('void *memcpy(void *, const void *, size_t)');
const [READ, WRITE, SHARED] = [1, 2, 1];

const maps = new Map();
const fds = new Map();
const path = (text) => Buffer.from(text, 'latin1');
let noise;
let chained;

const does = {
  /** Maps a file, and closes it unless it is to stay open. */
  map({ key, file, keep }) {
    const fd = openSync(path(file), 'r+');
    let { size } = statSync(path(file));
    if (size === 0) ftruncateSync(fd, (size = 4096));
    maps.set(key, { at: mmap(null, size, READ | WRITE, SHARED, fd, 0), size });
    if (keep) fds.set(key, fd);
    else closeSync(fd);
  },
  write({ key, text }) {
    const { at, size } = maps.get(key);
    const bytes = Buffer.from(text).subarray(0, size);
    memcpy(at, bytes, bytes.length);
  },
  unmap({ key }) {
    const { at, size } = maps.get(key);
    munmap(at, size);
    maps.delete(key);
  },
  open({ key, file }) {
    fds.set(key, openSync(path(file), 'r+'));
  },
  pwrite({ key, text }) {
    writeSync(fds.get(key), text, 0);
  },
  close({ key }) {
    if (fds.has(key)) closeSync(fds.get(key));
    fds.delete(key);
  },
  /** Counts in ten files, always from the first to the last, in place. */
  chain({ dir, on }) {
    clearInterval(chained);
    if (!on) return;
    const fds = Array.from({ length: 10 }, (_, i) => openSync(`${dir}/chain-${i}`, 'w'));
    let n = 0;
    const step = () => {
      for (let i = 0; i < 20; i++, n++) for (const fd of fds) writeSync(fd, String(n).padStart(12, '0'), 0);
    };
    step();
    chained = setInterval(step, 1);
  },
  /** Writes files of a directory all the time until told not to; `busy`: without a pause. */
  noise({ dir, on, busy }) {
    clearInterval(noise);
    clearImmediate(noise);
    let n = 0;
    const step = () => {
      for (let i = 0; i < 20; i++) writeFileSync(`${dir}/noise-${n % 7}`, `${n++} ${'x'.repeat(n % 3000)}`);
      if (busy) noise = setImmediate(step);
    };
    if (on) noise = busy ? setImmediate(step) : setInterval(step, 1);
    else for (const name of readdirSync(dir)) statSync(`${dir}/${name}`);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { what, ...rest } = JSON.parse(line);
  try {
    does[what](rest);
    console.log('done');
  } catch (error) {
    console.log(`failed ${error.message}`);
  }
}
// Whoever told it what to do is gone, whatever it was doing.
process.exit();
