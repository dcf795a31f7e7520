// A server whose every byte is said by its arguments: server.mjs STEP..., each run in turn.
//   say:TEXT      writes TEXT, with \n, \r and \xHH for bytes
//   err:N         writes N bytes to stderr and waits until they are taken
//   big:N         writes a line of N bytes, its LF included
//   echo          writes every line that comes, until the end of input
//   answer        answers every request with its own params, until the end of input
//   wait:MS       waits
//   hang          ignores SIGTERM and the end of input
//   child         starts a grandchild that ignores SIGTERM and keeps our output open; its pid goes to stderr
//   exit:N        exits with N;  kill:SIG  kills itself
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const out = (bytes) => new Promise((done) => process.stdout.write(bytes, done));
const bytesOf = (text) =>
  Buffer.concat(
    text.split(/(\\n|\\r|\\x[0-9a-f]{2})/).map((part) => {
      if (part === '\\n') return Buffer.from('\n');
      if (part === '\\r') return Buffer.from('\r');
      return part.startsWith('\\x') ? Buffer.from(part.slice(2), 'hex') : Buffer.from(part);
    }),
  );

// From the beginning, so that a step before it can say that it is so.
if (process.argv.includes('hang')) process.on('SIGTERM', () => {});

for (const step of process.argv.slice(2)) {
  const [verb, ...rest] = step.split(':');
  const value = rest.join(':');
  if (verb === 'say') await out(bytesOf(value));
  if (verb === 'err') await new Promise((done) => process.stderr.write('e'.repeat(Number(value)), done));
  if (verb === 'big') await out(Buffer.concat([Buffer.alloc(Number(value) - 1, 'b'), Buffer.from('\n')]));
  if (verb === 'wait') await sleep(Number(value));
  if (verb === 'echo') for await (const chunk of process.stdin) await out(chunk);
  if (verb === 'answer') {
    for await (const line of createInterface({ input: process.stdin })) {
      const { id, method, params } = JSON.parse(line);
      if (id === undefined) continue;
      const result =
        method === 'tools/call' ? { content: [{ type: 'text', text: JSON.stringify(params) }] } : {};
      await out(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);
    }
  }
  if (verb === 'hang') {
    setInterval(() => {}, 1000);
    await new Promise(() => {});
  }
  if (verb === 'child') {
    const script =
      "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000); console.error('pid', process.pid)";
    const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'inherit', 'pipe'] });
    await new Promise((told) =>
      child.stderr.once('data', (text) => {
        process.stderr.write(text);
        told();
      }),
    );
    child.stderr.destroy();
    child.unref();
  }
  if (verb === 'exit') process.exit(Number(value));
  if (verb === 'kill') process.kill(process.pid, value);
}
process.exit(0);
