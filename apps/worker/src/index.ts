/** The worker: checkpoints, the account of sessions, exports and webhooks, inside another process or as its own. */
export { Accountant, type AccountantParts } from './accountant.js';
export { Evaluator, type EvaluatorParts } from './evaluator.js';
export type { WorkerCollector } from './nats-collector.js';
export { startWorker, type StartedWorker } from './own-thread.js';
export { Publisher, type Published, type PublisherParts } from './publisher.js';
export type { WorkerOptions } from './schedules.js';
