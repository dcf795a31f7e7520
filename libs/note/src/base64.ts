import { NoteError } from './error.js';

/**
 * Reads standard padded base64 in its one canonical encoding: what does not re-encode to the same text (other
 * alphabet, missing padding, bits set under the padding, whitespace) is refused as `malformed`.
 */
export function parseBase64(text: string): Buffer {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.toString('base64') !== text) throw new NoteError('malformed', 'not canonical base64');
  return bytes;
}
