import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  Epoch,
  Forwarder,
  Transport,
  type EpochOptions,
  type ForwardEvent,
  type ForwarderOptions,
} from '@belay/client';
import type { SmallCollector } from '@belay/testkit';

export const freshState = (): string => join(mkdtempSync(join(tmpdir(), 'belay-client-')), 'state');

export function openEpoch(
  state: string,
  collector: SmallCollector,
  more: Partial<EpochOptions> = {},
): Promise<Epoch> {
  return Epoch.open({ state, log: collector.origin, sink: 'proxy', sinkKind: 'proxy', ...more });
}

export function forwarder(
  state: string,
  url: string,
  collector: SmallCollector,
  more: Partial<ForwarderOptions> = {},
): { forwarder: Forwarder; events: ForwardEvent[] } {
  const events: ForwardEvent[] = [];
  return {
    events,
    forwarder: new Forwarder({
      state,
      transport: new Transport(url),
      token: collector.token,
      credential: collector.credential,
      keyOf: () => Promise.resolve(undefined),
      onEvent: (event) => events.push(event),
      random: () => 0,
      ...more,
    }),
  };
}

/** Appends `count` lines of content and closes the epoch. */
export function fill(epoch: Epoch, count: number): void {
  for (let i = 0; i < count; i++) {
    epoch.append({ kind: 'x.event', content: Buffer.from(`event ${i}`), attrs: { bytes: 8 } });
  }
  epoch.close();
}
