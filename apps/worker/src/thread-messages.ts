import type { Connection } from '@belay/db';
import type { WorkerCollector } from './nats-collector.js';
import type { WorkerOptions } from './schedules.js';

/** What the thread of a worker starts with. */
export interface ThreadData {
  readonly connection: Connection;
  /** Connections of each of its two pools. */
  readonly pool: number;
  readonly options: WorkerOptions;
  readonly logLevel: string;
}

/** From the thread: something to ask the collector, or a line for the log. */
export type FromThread =
  | { readonly ask: number; readonly verb: keyof WorkerCollector; readonly request: unknown }
  | { readonly line: string };

/** To the thread: an answer, or that it is to end. */
export type ToThread =
  | { readonly answer: number; readonly outcome: unknown }
  | { readonly failed: number; readonly message: string }
  | { readonly stop: true };
