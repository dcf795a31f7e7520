// tap.mjs PREFIX COMMAND...: runs a command with its standard streams passed through, and keeps what went in and out
// in PREFIX.in and PREFIX.out. Synchronous on purpose: what is in the files is what passed.
import { spawn } from 'node:child_process';
import { appendFileSync, writeFileSync } from 'node:fs';

const [prefix, command, ...args] = process.argv.slice(2);
for (const end of ['in', 'out']) writeFileSync(`${prefix}.${end}`, '');
const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
process.stdin.on('data', (chunk) => {
  appendFileSync(`${prefix}.in`, chunk);
  child.stdin.write(chunk);
});
process.stdin.on('end', () => child.stdin.end());
child.stdin.on('error', () => {});
child.stdout.on('data', (chunk) => {
  appendFileSync(`${prefix}.out`, chunk);
  process.stdout.write(chunk);
});
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('close', (code, signal) => {
  process.exitCode = signal ? 1 : code;
});
