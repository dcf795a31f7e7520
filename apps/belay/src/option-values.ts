/** Values that options of more than one command take. */

import { InvalidArgumentError } from 'commander';

const SINK_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

export function seconds(text: string): number {
  const value = Number(text);
  if (!/^\d+(\.\d+)?$/.test(text) || value > 3600) throw new InvalidArgumentError('seconds, 0 to 3600.');
  return value;
}

export function sinkName(text: string): string {
  if (!SINK_NAME.test(text)) {
    throw new InvalidArgumentError('a letter or digit, then up to 63 of A-Z a-z 0-9 . _ -');
  }
  return text;
}
