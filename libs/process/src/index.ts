/**
 * What every process of the service has: its log without secrets, its health on the loopback address, and which
 * addresses nothing is sent to.
 */
export { serveHealth } from './health.js';
export { asNestLogger, createLogger } from './logger.js';
export { InsideAddress, isOutside, outsideLookup } from './outside-address.js';
