/** Where NATS is and how one says who one is, as its client takes them. */
export interface NatsServers {
  readonly servers: string[];
  readonly user?: string;
  readonly pass?: string;
  readonly token?: string;
}

/**
 * Reads comma-separated `nats://` and `tls://` URLs. `user:password@` or `token@` may stand in the first, or in all of
 * them alike: the client says the same to every server. Throws TypeError, with nothing of the credentials in it.
 */
export function parseNatsUrl(text: string): NatsServers {
  const parts = text.split(',').map((part) => part.trim());
  const urls = parts.map((part) => {
    const url = URL.canParse(part) ? new URL(part) : undefined;
    if (!url || !/^(?:nats|tls):$/.test(url.protocol) || url.host === '') {
      throw new TypeError('is not a list of nats:// or tls:// URLs');
    }
    return url;
  });
  const [first] = urls as [URL];
  const { username, password } = first;
  if (urls.some((url) => url.username !== '' && (url.username !== username || url.password !== password))) {
    throw new TypeError('has other credentials for one server than for the first');
  }
  return {
    servers: urls.map(({ protocol, host }) => `${protocol}//${host}`),
    ...(username !== '' &&
      (password === ''
        ? { token: decodeURIComponent(username) }
        : { user: decodeURIComponent(username), pass: decodeURIComponent(password) })),
  };
}
