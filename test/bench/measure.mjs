import { readFileSync } from 'node:fs';

/** The value below which `share` of the numbers lie; the numbers may come in any order. */
export function quantile(numbers, share) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

export const median = (numbers) => quantile(numbers, 0.5);

/** Microseconds of processor time a process and its children (those still alive) have used. Linux only. */
export function cpuOf(pid) {
  const tick = 1e6 / 100;
  let sum = 0;
  for (const one of [pid, ...childrenOf(pid)]) {
    try {
      const fields = readFileSync(`/proc/${one}/stat`, 'utf8').split(') ')[1].split(' ');
      sum += (Number(fields[11]) + Number(fields[12])) * tick;
    } catch {
      // Ended meanwhile.
    }
  }
  return sum;
}

function childrenOf(pid) {
  try {
    const direct = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
      .trim()
      .split(' ')
      .filter(Boolean)
      .map(Number);
    return direct.flatMap((child) => [child, ...childrenOf(child)]);
  } catch {
    return [];
  }
}

/** A table with its columns aligned: rows are objects with the same keys. */
export function table(rows) {
  const keys = Object.keys(rows[0]);
  const width = keys.map((key) => Math.max(key.length, ...rows.map((row) => String(row[key]).length)));
  const line = (cells) => cells.map((cell, at) => String(cell).padStart(width[at])).join('  ');
  return [line(keys), ...rows.map((row) => line(keys.map((key) => row[key])))].join('\n');
}
