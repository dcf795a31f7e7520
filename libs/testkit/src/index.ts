/** Fakes that keep the contract and fail on both sides. Imported by tests only. */
export { MemoryAnchor } from './memory-anchor.js';
export { type Fault, InjectedFault, MemoryLogStore } from './memory-log-store.js';
export {
  ADMIN,
  AUDITOR,
  closing,
  epoch,
  line,
  mustBeSound,
  PROJECT,
  request,
  setUp,
  type Setup,
  TENANT,
  TOKEN,
  value,
  verifyAck,
} from './log-harness.js';
export { keyed, type LogSink, SessionLog } from './session-log.js';
export { problem, SmallCollector } from './small-collector.js';
