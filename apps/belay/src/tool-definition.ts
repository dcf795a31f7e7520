import { createHmac } from 'node:crypto';
import { canonical } from '@belay/envelope';

/**
 * Digest of a tool's definition (an element of `tools` in an answer to `tools/list`), keyed by the machine's secret: equal
 * definitions are equal in every session of the machine, and can't be guessed elsewhere. It is HMAC-SHA256 over
 * `belay/tooldef/v1`, LF and the definition's canonical form; undefined where there is none (a lone surrogate, too deep).
 */
export function toolDefinitionDigest(machineSecret: Buffer, definition: unknown): string | undefined {
  try {
    const mac = createHmac('sha256', machineSecret).update('belay/tooldef/v1\n');
    return `hmac-sha256:${mac.update(canonical(definition)).digest('hex')}`;
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}
