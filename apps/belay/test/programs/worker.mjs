// A server that does what it is told, in JSON-RPC: reads, writes, connects, says what it sees. SIGTERM ends it in order.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import { createInterface } from 'node:readline';

const tools = {
  read: ({ path }) => fs.readFileSync(path, 'utf8'),
  list: ({ path }) => fs.readdirSync(path).join(' '),
  write: ({ path, text = 'written\n' }) => fs.writeFileSync(path, text),
  run: ({ program, args = [] }) => execFileSync(program, args, { encoding: 'utf8' }),
  connect: (to) =>
    new Promise((resolve, reject) => {
      let text = '';
      const socket = net.connect(to);
      socket.on('data', (chunk) => (text += chunk));
      socket.on('error', reject);
      socket.on('end', () => resolve(text));
    }),
};

process.on('SIGTERM', () => {
  if (process.argv[2] !== undefined) fs.writeFileSync(process.argv[2], 'in order\n');
  process.exit(3);
});
process.stderr.write('up\n');
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  let result = {};
  if (method === 'tools/call') {
    try {
      const text = (await tools[params.name](params.arguments ?? {})) ?? 'done';
      result = { content: [{ type: 'text', text }] };
    } catch (error) {
      result = { content: [{ type: 'text', text: error.code ?? String(error) }], isError: true };
    }
  }
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);
}
