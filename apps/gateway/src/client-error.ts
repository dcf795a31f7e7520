import type { ConnectionError } from 'fastify';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { PROBLEM_TYPE, ProblemError } from './problem.js';

/** Answers what Node could not read as a request, in the form in which everything else is refused. */
export function refuseUnreadable(error: ConnectionError, socket: Socket): void {
  const { code } = error as { code?: string };
  // On a connection that has carried answers before, another one may be half written: ours would end up inside it.
  if (code === 'ECONNRESET' || !socket.writable || socket.bytesWritten > 0) {
    socket.destroy();
    return;
  }
  const problem =
    code === 'HPE_HEADER_OVERFLOW'
      ? new ProblemError('headers_too_large', 'The header fields are too large.')
      : code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new ProblemError('request_timeout', 'The request took too long to arrive.')
        : new ProblemError('invalid', 'This can not be read as an HTTP request.');
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
