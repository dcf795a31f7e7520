import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** `/healthz` on the loopback address, for a container's health check. Answers 503 while `problem` says why. */
export async function serveHealth(
  port: number,
  problem: () => string | undefined,
): Promise<{ port: number; close(): Promise<void> }> {
  const server: Server = createServer((request, response) => {
    const wrong = problem();
    const status = request.url !== '/healthz' ? 404 : wrong === undefined ? 200 : 503;
    response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' });
    response.end(JSON.stringify({ status: wrong ?? 'ok' }));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, '127.0.0.1', resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
