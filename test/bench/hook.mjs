// What one `belay hook` costs an agent beyond the start of Node, which it can't avoid: both started in turn, in one
// run. Nothing listens where the events would be sent, so that only the hook itself is measured: it records, and who
// sends is another process.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { median, quantile, table } from './measure.mjs';

const CLI = fileURLToPath(new URL('../../apps/belay/bin/belay.js', import.meta.url));
const EVENT = JSON.stringify({
  hook_event_name: 'PostToolUse',
  session_id: 'bench',
  tool_name: 'Bash',
  tool_input: { command: 'true' },
  tool_response: { stdout: '', stderr: '' },
});

export async function run({ scale }) {
  const dir = mkdtempSync(join(tmpdir(), 'belay-bench-hook-'));
  try {
    // Records alone: without a URL nothing is started that would send.
    const env = { PATH: process.env.PATH, HOME: dir, BELAY_STATE: join(dir, 'state') };
    const time = (args) => {
      const began = performance.now();
      const { status, stderr } = spawnSync(process.execPath, args, { input: EVENT, env });
      if (status !== 0) throw new Error(`${args.join(' ')} ended with ${status}: ${stderr.toString()}`);
      return performance.now() - began;
    };
    time([CLI, 'hook']);
    const [bare, hooked] = [[], []];
    for (let i = 0; i < Math.max(5, Math.round(60 * scale)); i++) {
      bare.push(time(['-e', '0']));
      hooked.push(time([CLI, 'hook']));
    }
    const figures = {
      node: median(bare),
      hook: median(hooked),
      more: median(hooked) - median(bare),
      ratio: median(hooked) / median(bare),
      p95: quantile(hooked, 0.95),
    };
    console.log(table([Object.fromEntries(Object.entries(figures).map(([k, v]) => [k, v.toFixed(2)]))]));
    return figures;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
