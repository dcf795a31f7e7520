/** What every process of the service has: its log without secrets, and its health on the loopback address. */
export { serveHealth } from './health.js';
export { asNestLogger, createLogger } from './logger.js';
