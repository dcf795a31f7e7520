import { parseEnvelope, type Envelope } from '@belay/envelope';

/** A valid envelope as an object that tests change one member of. */
export function sample(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    v: 1,
    log: 'belay.example/acme/agents',
    sink: 'proxy',
    epoch: '01K6B3YB80041061050R3GG28A',
    seq: 1,
    kind: 'call',
    time: '2026-01-01T00:00:00.123Z',
    ...changes,
  };
}

export const bytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value), 'utf8');
export const parse = (changes: Record<string, unknown> = {}): Envelope =>
  parseEnvelope(bytes(sample(changes)));
