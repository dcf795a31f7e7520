/**
 * Runs a command inside a boundary as whoever runs this; prints, as JSON, how it ended and what was refused.
 * Arguments: policy (over the default one), host, command line, all JSON.
 */
import { spawn } from 'node:child_process';
import { DEFAULT_POLICY, prepare } from '../dist/index.js';

const [policy, host, argv] = process.argv.slice(2).map((text) => JSON.parse(text));
const whole = { ...DEFAULT_POLICY, ...policy };
try {
  const prepared = await prepare(whole, { argv, cwd: whole.roots[0] ?? '/', env: process.env }, host);
  const denials = [];
  prepared.onDenial((denial) => denials.push(denial));
  const [program, ...args] = prepared.argv;
  const child = spawn(program, args, {
    cwd: prepared.cwd,
    env: prepared.env,
    stdio: ['inherit', 'pipe', 'pipe', ...prepared.fds],
    detached: true,
  });
  prepared.started(child.pid);
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name].on('data', (chunk) => (output[name] += chunk));
  if (host.announce) {
    // For whoever means to kill this process: who lives inside, once somebody does.
    const announce = () => {
      const inside = prepared.live();
      if (output.stdout.includes('ready'))
        process.stdout.write(`${JSON.stringify([child.pid, ...inside])}\n`);
      else setTimeout(announce, 10);
    };
    announce();
  }
  child.once('close', (code, signal) => {
    prepared.drain();
    void prepared.dispose();
    process.stdout.write(JSON.stringify({ code, signal, ...output, denials, record: prepared.record }));
  });
} catch (error) {
  process.stdout.write(JSON.stringify({ error: error.code ?? String(error), message: error.message }));
}
