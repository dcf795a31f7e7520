/** The outer half of the forwarder: named ports of this machine's loopback, each behind a socket that has a path. */

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The inner half. */
export const PORTS_SCRIPT = fileURLToPath(new URL('../bin/ports-inside.mjs', import.meta.url));

export class PortForwarder {
  /** Where the sockets are: `PORT.sock`. */
  readonly folder: string;
  readonly #servers: readonly Server[];
  readonly #sockets: ReadonlySet<Socket>;

  private constructor(folder: string, servers: readonly Server[], sockets: ReadonlySet<Socket>) {
    this.folder = folder;
    this.#servers = servers;
    this.#sockets = sockets;
  }

  static async open(scratch: string, ports: readonly number[]): Promise<PortForwarder> {
    const folder = mkdtempSync(join(scratch, 'belay-ports-'));
    const sockets = new Set<Socket>();
    const keep = (socket: Socket): void => {
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
    };
    const servers: Server[] = [];
    for (const port of ports) {
      const server = createServer({ allowHalfOpen: true }, (near) => {
        const far = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
        keep(near);
        keep(far);
        near.pipe(far);
        far.pipe(near);
        near.on('error', () => far.destroy());
        far.on('error', () => near.destroy());
      });
      server.listen(join(folder, `${port}.sock`));
      await once(server, 'listening');
      server.unref();
      servers.push(server);
    }
    return new PortForwarder(folder, servers, sockets);
  }

  close(): void {
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
