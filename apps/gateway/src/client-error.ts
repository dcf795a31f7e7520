import type { ConnectionError } from 'fastify';
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { PROBLEM_TYPE, ProblemError } from './problem.js';

/** Answers what Node could not read as a request, in the form in which everything else is refused. */
export class Unreadable {
  readonly #answering = new WeakMap<Socket, ServerResponse>();

  listen(server: Server): void {
    server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
      this.#answering.set(socket, response);
      response.once('close', () => this.#answering.delete(socket));
    });
  }

  refuse(error: ConnectionError, socket: Socket): void {
    const { code } = error as { code?: string };
    const before = this.#answering.get(socket);
    if (before && socket.writable && code !== 'ECONNRESET') {
      // What can't be read came behind a request that could: that one is answered, and nothing after it.
      before.once('close', () => socket.destroy());
      return;
    }
    if (code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const problem = problemOf(code);
    const body = JSON.stringify(problem.body());
    const head = [
      `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status] ?? ''}`,
      `Content-Type: ${PROBLEM_TYPE}`,
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Cache-Control: no-store',
      'Connection: close',
    ];
    socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
  }
}

function problemOf(code: string | undefined): ProblemError {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return new ProblemError('headers_too_large', 'The header fields are too large.');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ProblemError('request_timeout', 'The request took too long to arrive.');
    default:
      return new ProblemError('invalid', 'This can not be read as an HTTP request.');
  }
}
