// A server that does to its working directory what it is told. Tools:
//   write {path, text}   writes a file
//   read {}              does nothing
//   seen {}              answers with what it has received so far, in order: `method` or `method:tool`
//   later {path}         does nothing, and writes the file when the client says so (`notifications/now`)
//   open {}              is answered by the next call of `close`, before that one
//   child {path, when}   starts a process that writes the file when the other one is there
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const WRITER = `const { existsSync, writeFileSync } = require('node:fs');
const [path, when] = process.argv.slice(1);
setInterval(() => { if (existsSync(when)) writeFileSync(path, 'child'); }, 5);`;

const say = (id, text) =>
  process.stdout.write(
    `${JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text }] } })}\n`,
  );
const seen = [];
const due = [];
let open;
for await (const line of createInterface({ input: process.stdin })) {
  for (const { id, method, params } of [JSON.parse(line)].flat()) {
    seen.push(method === 'tools/call' ? `${method}:${params.name}` : method);
    if (method === 'notifications/now') for (const path of due.splice(0)) writeFileSync(path, 'late');
    if (id === undefined) continue;
    if (method !== 'tools/call') {
      say(id, 'done');
      continue;
    }
    const { path, text, when } = params.arguments ?? {};
    if (params.name === 'write') writeFileSync(path, text);
    if (params.name === 'later') due.push(path);
    else if (params.name === 'open') open = id;
    else {
      if (params.name === 'close') say(open, 'closed');
      if (params.name === 'child') {
        const child = spawn(process.execPath, ['-e', WRITER, path, when], { stdio: 'ignore' });
        await new Promise((started) => child.once('spawn', started));
      }
      say(id, params.name === 'seen' ? seen.join(' ') : 'done');
    }
  }
}
process.exit(0);
