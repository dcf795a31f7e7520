/**
 * Inside a boundary whose loopback is its own: listens at the named TCP ports of it, hands each connection to a socket
 * that somebody outside listens on, and runs the command. Arguments: folder of the sockets, ports, `--`, the command.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { constants } from 'node:os';
import { join } from 'node:path';

const [folder, list, , program, ...args] = process.argv.slice(2);

for (const port of list.split(',')) {
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ path: join(folder, `${port}.sock`), allowHalfOpen: true });
    near.pipe(far);
    far.pipe(near);
    near.on('error', () => far.destroy());
    far.on('error', () => near.destroy());
  });
  server.listen(Number(port), '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch (error) {
    process.stderr.write(`belay: port ${port} can not be forwarded: ${error.message}\n`);
    process.exit(70);
  }
  server.unref();
}

// Whoever signals the command signals all processes in here; this one ends when the command does.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {});
const child = spawn(program, args, { stdio: 'inherit' });
child.on('error', (error) => {
  process.stderr.write(`belay: cannot start ${program}: ${error.message}\n`);
  process.exit(error.code === 'ENOENT' ? 127 : 126);
});
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
