/**
 * MCP on the wire, by bytes: frames of a newline-framed stream as they were received, what JSON-RPC says in them, and
 * which answer belongs to which request. No model of the conversation beyond that. Pure: no I/O, no clock.
 */
export { Correlator, type Call, type Correlated, type Direction } from './correlate.js';
export { Framer, OBSERVATION_LIMIT, type Frame } from './frame.js';
export {
  readFrame,
  type Content,
  type Finding,
  type IdKey,
  type Message,
  type Notification,
  type Request,
  type Response,
} from './message.js';
