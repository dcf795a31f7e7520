// A server with one tool of each habit. Answers by line; `later` answers after the next call was answered.
import { createInterface } from 'node:readline';

let count = 0;
let asked = 0;
const held = [];
const awaited = new Map();
const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const text = (id, value) => say({ id, result: { content: [{ type: 'text', text: String(value) }] } });

const tools = {
  echo: (id, { value }) => text(id, value),
  count: (id) => text(id, ++count),
  later: (id, { value }) => held.push(() => text(id, value)),
  silent: () => undefined,
  die: () => process.exit(3),
  flood: () => {
    const line = `${'x'.repeat(64 * 1024)}\n`;
    const write = () => {
      while (process.stdout.write(line));
      process.stdout.once('drain', write);
    };
    write();
  },
  ask: (id, { prompt }) => {
    const request = `ask-${process.pid}-${++asked}`;
    awaited.set(request, (answer) => text(id, JSON.stringify(answer)));
    say({
      id: request,
      method: 'sampling/createMessage',
      params: { prompt, _meta: { progressToken: process.pid } },
    });
  },
};

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params, result, error } = JSON.parse(line);
  if (method === undefined) awaited.get(id)?.(result ?? error);
  else if (method === 'initialize') say({ id, result: { serverInfo: { name: 'habits', version: '1' } } });
  else if (method === 'tools/list')
    say({ id, result: { tools: Object.keys(tools).map((name) => ({ name })) } });
  else if (method === 'tools/call') {
    tools[params.name](id, params.arguments ?? {});
    if (params.name !== 'later') for (const answer of held.splice(0)) answer();
  }
});
