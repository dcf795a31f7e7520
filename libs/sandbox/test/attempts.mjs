/** Attempts, one by one, from inside a boundary; prints what became of each. Arguments: what to attempt, as JSON. */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';

const done =
  (act) =>
  async (...given) => {
    try {
      return { ok: (await act(...given)) ?? true };
    } catch (error) {
      return { code: error.code ?? String(error) };
    }
  };

const ACTS = {
  read: done((path) => fs.readFileSync(path, 'utf8')),
  list: done((path) => fs.readdirSync(path).length),
  write: done((path) => fs.writeFileSync(path, 'changed\n')),
  append: done((path) => fs.appendFileSync(path, 'changed\n')),
  chmod: done((path) => fs.chmodSync(path, 0o777)),
  rename: done((from, to) => fs.renameSync(from, to)),
  mkdir: done((path) => fs.mkdirSync(path)),
  connect: done(
    (to) =>
      new Promise((resolve, reject) => {
        const socket = net.connect(to, () => {
          socket.destroy();
          resolve();
        });
        socket.on('error', reject);
      }),
  ),
  converse: done(
    (to) =>
      new Promise((resolve, reject) => {
        let text = '';
        const socket = net.connect(to);
        socket.on('data', (chunk) => (text += chunk));
        socket.on('end', () => resolve(text));
        socket.on('error', reject);
        socket.end('ping');
      }),
  ),
  listen: done(
    (at) =>
      new Promise((resolve, reject) => {
        const server = net.createServer((socket) => socket.end('own'));
        server.on('error', reject);
        server.listen(at, () => {
          const socket = net.connect(typeof at === 'string' ? at : server.address().port);
          socket.on('error', reject);
          socket.on('data', (chunk) => {
            server.close();
            resolve(String(chunk));
          });
        });
      }),
  ),
  spawn: done((program, args) =>
    execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
  ),
  fill: done((megabytes) => Buffer.alloc(megabytes * 1024 * 1024, 1).length),
  spin: done(() => {
    for (;;);
  }),
  say: done((text) => void process.stderr.write(text)),
};

const results = [];
for (const [act, ...given] of JSON.parse(process.argv[2])) results.push(await ACTS[act](...given));
process.stdout.write(JSON.stringify(results));
