// modern-server.mjs stdio | http: a server of the official library that speaks revision 2026-07-28 (and, where it is
// asked, earlier ones). Over HTTP its port is the first line of its stderr.
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { acceptedContent, createMcpHandler, inputRequired, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const text = (value) => ({ content: [{ type: 'text', text: value }] });

let announce = () => undefined;

function make() {
  const server = new McpServer(
    { name: 'modern', version: '1' },
    { capabilities: { tools: { listChanged: true } } },
  );
  server.registerTool('echo', { inputSchema: z.object({ message: z.string() }) }, ({ message }) =>
    text(message),
  );
  server.registerTool(
    'sum',
    { inputSchema: z.object({ a: z.number(), b: z.number() }), outputSchema: z.object({ sum: z.number() }) },
    ({ a, b }) => ({
      ...text(String(a + b)),
      structuredContent: { sum: a + b },
    }),
  );
  server.registerTool(
    'steps',
    { inputSchema: z.object({ steps: z.number() }) },
    async ({ steps }, { mcpReq }) => {
      const { _meta: { progressToken } = {} } = mcpReq;
      for (let progress = 1; progress <= steps && progressToken !== undefined; progress++)
        await mcpReq.notify({
          method: 'notifications/progress',
          params: { progressToken, progress, total: steps },
        });
      return text('done');
    },
  );
  const confirmation = z.object({ confirm: z.boolean() });
  server.registerTool('delete', { inputSchema: z.object({ path: z.string() }) }, ({ path }, { mcpReq }) => {
    const answer = acceptedContent(mcpReq.inputResponses, 'sure', confirmation);
    if (answer !== undefined) return text(answer.confirm ? `deleted ${path}` : 'kept');
    return inputRequired({
      inputRequests: {
        sure: inputRequired.elicit({ message: `Delete ${path}?`, requestedSchema: confirmation }),
      },
      requestState: 'state-of-the-server',
    });
  });
  server.registerTool('grow', { inputSchema: z.object({}) }, () => {
    announce();
    return text('grown');
  });
  return server;
}

if (process.argv[2] === 'stdio') {
  serveStdio(() => {
    const server = make();
    announce = () => server.sendToolListChanged();
    return server;
  });
} else {
  const handler = createMcpHandler(() => make());
  announce = () => handler.notify.toolsChanged();
  const http = createServer((request, response) => {
    const { method, url, headers } = request;
    const body = method === 'POST' ? Readable.toWeb(request) : undefined;
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const asked = new Request(`http://127.0.0.1${url}`, {
      method,
      headers,
      body,
      duplex: 'half',
      signal: gone.signal,
    });
    void handler.fetch(asked).then((answer) => {
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      if (answer.body === null) response.end();
      else
        Readable.fromWeb(answer.body)
          .on('error', () => response.destroy())
          .pipe(response);
    });
  });
  http.listen(0, '127.0.0.1', () => console.error(http.address().port));
}
