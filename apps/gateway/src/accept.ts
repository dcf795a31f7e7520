import { ProblemError } from './problem.js';

/** Our name first; the others are what readers of either format may ask for. */
export const DSSE = 'application/vnd.dsse.envelope.v1+json';
export const TLOG_PROOF = 'application/vnd.belay.tlog-proof';
const KINDS: Readonly<Record<string, 'dsse' | 'tlog-proof'>> = {
  [DSSE]: 'dsse',
  'application/json': 'dsse',
  'application/*': 'dsse',
  '*/*': 'dsse',
  [TLOG_PROOF]: 'tlog-proof',
  'text/x.tlog-proof': 'tlog-proof',
};

export interface Accepted {
  readonly kind: 'dsse' | 'tlog-proof';
  /** Media type to answer with. */
  readonly type: string;
}

/** The receipt format an `Accept` header asks for most. Throws `not_acceptable`. */
export function accepted(header: string | undefined): Accepted {
  if (header === undefined || header.trim() === '') return { kind: 'dsse', type: DSSE };
  const wishes = header
    .split(',')
    .map((wish) => {
      const [type = '', ...parameters] = wish.split(';').map((part) => part.trim().toLowerCase());
      const quality = parameters.find((parameter) => parameter.startsWith('q='));
      return { type, quality: quality === undefined ? 1 : Number(quality.slice(2)) };
    })
    .filter(({ type, quality }) => quality > 0 && Object.hasOwn(KINDS, type))
    .sort((a, b) => b.quality - a.quality);
  const [first] = wishes;
  const kind = first && KINDS[first.type];
  if (!kind) {
    throw new ProblemError('not_acceptable', `A receipt comes as ${DSSE} or ${TLOG_PROOF}.`, {
      field: 'Accept',
    });
  }
  return { kind, type: first.type.includes('*') ? DSSE : first.type };
}
