/** The environment of a server on record: names, and digests that tell whether a value is the same another time. */

import { createHmac } from 'node:crypto';

type Environment = Readonly<Record<string, string | undefined>>;

/** Under the secret of the machine: nobody can try guesses on it. */
export function environmentDigest(secret: Buffer, name: string, value: string): string {
  const digest = createHmac('sha256', secret).update(`belay/env/v1\n${name}\n${value}`).digest('hex');
  return `hmac-sha256:${digest}`;
}

/** By name, in the order of the names. */
export function environmentDigests(secret: Buffer, env: Environment): Record<string, string> {
  const digests: Record<string, string> = {};
  for (const name of Object.keys(env).sort())
    digests[name] = environmentDigest(secret, name, env[name] ?? '');
  return digests;
}
