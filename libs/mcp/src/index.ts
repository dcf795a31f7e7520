/**
 * MCP on the wire, by bytes: frames of a newline-framed stream and events of an event
 * stream as they were received, what JSON-RPC says in them, and
 * which answer belongs to which request. No model of the conversation beyond that. Pure: no I/O, no clock.
 */
export { Correlator, type Call, type Correlated, type Direction } from './correlate.js';
export { EventStream, type StreamEvent } from './event-stream.js';
export { Framer, type Frame } from './frame.js';
export { Gatherer, OBSERVATION_LIMIT, type Gathered, type Place } from './gather.js';
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
export { ToolList, type ToolFinding } from './tool-list.js';
