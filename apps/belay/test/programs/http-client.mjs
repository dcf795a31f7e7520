// http-client.mjs MODE URL: a day in the life of an MCP client. Prints what it was told, without what differs from run
// to run.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [mode, url] = process.argv.slice(2);
const Transport = mode === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport;
const transport = new Transport(new URL(url));
const client = new Client({ name: 'test', version: '1' }, { capabilities: { sampling: {} } });
client.setRequestHandler(CreateMessageRequestSchema, () => ({
  model: 'none',
  role: 'assistant',
  content: { type: 'text', text: 'sampled' },
}));
await client.connect(transport);
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const progress = [];
const told = [
  await client.listTools(),
  await call('echo', { message: 'é😀\u2028 "x"' }),
  await call('get-tiny-image', {}),
  await call(
    'trigger-long-running-operation',
    { duration: 1, steps: 4 },
    { onprogress: (step) => progress.push(step) },
  ),
  await call('trigger-sampling-request', { prompt: 'p', maxTokens: 5 }),
  await client.listPrompts(),
  await client.listResources(),
  await call('no-such-tool', {}).catch((error) => error.message),
];
if (mode !== 'sse') await transport.terminateSession();
await client.close();
process.stdout.write(JSON.stringify([...told, progress]));
