// modern-client.mjs VERSION (http URL | stdio COMMAND...): a session of the official client of revision 2026-07-28.
// VERSION is a revision to insist on, or `auto`. Prints what it was told, without what differs from run to run: not how
// much of the progress came in before its answer.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

// The library asks a server of its own transport which revision it speaks in a process that it starts for that alone.
class OneProcess extends StdioClientTransport {}

const [version, kind, ...rest] = process.argv.slice(2);
const transport =
  kind === 'http'
    ? new StreamableHTTPClientTransport(new URL(rest[0]))
    : new OneProcess({ command: rest[0], args: rest.slice(1), env: process.env, stderr: 'ignore' });
let heard;
const changed = new Promise((resolve) => (heard = resolve));
const client = new Client(
  { name: 'test', version: '1' },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: version === 'auto' ? 'auto' : { pin: version } },
    listChanged: { tools: { onChanged: (error, tools) => heard(error?.message ?? tools.length) } },
  },
);
client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { confirm: true } }));
await client.connect(transport);
const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
const { tools } = await client.listTools();
const names = tools.map(({ name }) => name);
const told = [names, await call('echo', { message: 'é😀\u2028 "x"' })];
if (names.includes('steps')) {
  told.push(
    await call('sum', { a: 1, b: 2 }),
    await call('steps', { steps: 3 }, { onprogress: () => undefined }),
    await call('delete', { path: '/w/a' }),
    await call('grow', {}),
    await changed,
  );
}
told.push(await call('no-such-tool', {}).catch((error) => error.message));
await client.close();
process.stdout.write(JSON.stringify(told));
