import { vi } from 'vitest';
import { run } from '../src/main.js';

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** Standard output as JSON, or undefined when it is not. */
  readonly json: unknown;
}

/**
 * Runs a command line in this process, from the sources, and keeps what it wrote. The end-to-end tests start the
 * compiled program instead.
 */
export async function belay(...args: string[]): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  type Write = typeof process.stdout.write;
  const keep =
    (to: (text: string) => void): Write =>
    (text: string | Uint8Array, ...rest: unknown[]) => {
      to(String(text));
      for (const each of rest) if (typeof each === 'function') (each as () => void)();
      return true;
    };
  const out = vi.spyOn(process.stdout, 'write').mockImplementation(keep((text) => (stdout += text)));
  const err = vi.spyOn(process.stderr, 'write').mockImplementation(keep((text) => (stderr += text)));
  const before = process.exitCode;
  process.exitCode = undefined;
  try {
    const code = await run(args);
    let json: unknown;
    try {
      json = JSON.parse(stdout);
    } catch {
      json = undefined;
    }
    return { code, stdout, stderr, json };
  } finally {
    out.mockRestore();
    err.mockRestore();
    process.exitCode = before;
  }
}
