import type { Ack } from '@belay/contracts';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Admission } from './admission.js';
import type { Downloads } from './downloads.js';
import type { Waiting } from './waiting.js';

/** Counts without names: no tenant, project or token becomes a label. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #seconds: Histogram<'method' | 'route' | 'status'>;
  readonly #lines: Counter<'disposition'>;

  constructor(admission: Admission, waiting: Waiting, downloads: Downloads) {
    const registers = [this.#registry];
    this.#seconds = new Histogram({
      name: 'belay_http_request_seconds',
      help: 'Time from the first byte of a request to the last of its answer',
      labelNames: ['method', 'route', 'status'],
      buckets: [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30],
      registers,
    });
    this.#lines = new Counter({
      name: 'belay_append_lines_total',
      help: 'Lines of appends, by what became of them',
      labelNames: ['disposition'],
      registers,
    });
    const inFlight: Gauge = new Gauge({
      name: 'belay_appends_in_flight',
      help: 'Appends whose body is there and whose answer is not',
      registers,
      collect: () => inFlight.set(admission.requests),
    });
    const arriving: Gauge = new Gauge({
      name: 'belay_appends_arriving',
      help: 'Appends whose body is still arriving',
      registers,
      collect: () => arriving.set(admission.arriving),
    });
    const waiters: Gauge = new Gauge({
      name: 'belay_requests_waiting',
      help: 'Requests that wait for a session to settle or a receipt to be made',
      registers,
      collect: () => waiters.set(waiting.count),
    });
    const read: Gauge = new Gauge({
      name: 'belay_exports_being_read',
      help: 'Files of exports that somebody is reading',
      registers,
      collect: () => read.set(downloads.count),
    });
  }

  /** What Node itself has to say; for a process of its own. */
  addProcess(): void {
    collectDefaultMetrics({ register: this.#registry });
  }

  answered(method: string, route: string, status: number, seconds: number): void {
    this.#seconds.observe({ method, route, status: String(status) }, seconds);
  }

  appended(ack: Ack): void {
    for (const { disposition, lines } of ack.runs) this.#lines.inc({ disposition }, lines[1] - lines[0]);
    this.#lines.inc({ disposition: 'refused' }, ack.refused.length);
  }

  get type(): string {
    return this.#registry.contentType;
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }
}
