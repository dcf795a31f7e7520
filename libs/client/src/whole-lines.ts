import { closeSync, constants, fstatSync, ftruncateSync, openSync, readSync } from 'node:fs';

/** A line of our own notes is shorter than this, unless it was never one. Bytes. */
const TAIL = 256 * 1024;

/** Opens a file of lines for appending; what a killed writer left of a last line is cut off, so that none is spoiled by it. */
export function openWhole(path: string): number {
  const fd = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_APPEND, 0o600);
  try {
    const { size } = fstatSync(fd);
    const tail = Buffer.alloc(Math.min(TAIL, size));
    const read = readSync(fd, tail, 0, tail.length, size - tail.length);
    const whole = tail.subarray(0, read).lastIndexOf(0x0a) + 1;
    if (whole < read) ftruncateSync(fd, size - read + whole);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
