import { isOutside } from '@belay/process';
import { isIP } from 'node:net';
import { ProblemError } from './problem.js';

/** How a service is told that webhooks may stay inside. */
const PRIVATE = '`belay serve --webhook-private`, or WEBHOOK_PRIVATE=1 for gateway and worker';

/** Whether a URL's host is one that every resolver takes for the machine itself, or an address inside. */
function isInside(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$|\.$/g, '').toLowerCase();
  return isIP(host) === 0 ? host === 'localhost' || host.endsWith('.localhost') : !isOutside(host);
}

/**
 * The URL of a webhook as it will be asked, without a fragment. Throws ProblemError `invalid`. An address is looked at
 * here; where a name leads, by the worker, each time it connects: one that is harmless now may lead elsewhere then.
 */
export function parseTarget(text: string, isPrivate: boolean): string {
  const wrong = (detail: string) => new ProblemError('invalid', detail, { field: 'url' });
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const right = isPrivate ? 'an http:// or https:// URL' : 'an https:// URL';
  if (url === undefined) throw wrong(`url is ${right}`);
  if (url.protocol !== 'https:' && !(isPrivate && url.protocol === 'http:')) {
    throw wrong(`url is ${right}${url.protocol === 'http:' ? `; plain HTTP goes with ${PRIVATE}` : ''}`);
  }
  if (!isPrivate && isInside(url.hostname)) {
    throw wrong(
      `url leads to an address that is private or of the service's own machine; that goes with ${PRIVATE}`,
    );
  }
  if (url.username !== '' || url.password !== '') {
    throw wrong('a URL that others may see holds no credentials; the signature tells who sends');
  }
  if (url.hash !== '') throw wrong('url has no fragment: nobody would see it');
  return url.href;
}
