import type { FastifyInstance } from 'fastify';

/** What methods there are at a path: told to those who come with another one. */
export class Routes {
  readonly #patterns = new Map<string, { readonly matches: RegExp; readonly methods: Set<string> }>();

  /** Has to be called before the routes are added. */
  listen(fastify: FastifyInstance): void {
    fastify.addHook('onRoute', ({ url, method }) => {
      const known = this.#patterns.get(url) ?? { matches: toExpression(url), methods: new Set<string>() };
      this.#patterns.set(url, known);
      for (const one of [method].flat()) known.methods.add(one);
    });
  }

  /** Empty where there is nothing. */
  methodsAt(url: string): string[] {
    const [path = ''] = url.split('?');
    const found = [...this.#patterns.values()].filter(({ matches }) => matches.test(path));
    return [...new Set(found.flatMap(({ methods }) => [...methods]))].sort();
  }
}

/** Of a router's pattern, in which `:name` is one segment and a last `*` is everything. */
function toExpression(pattern: string): RegExp {
  const parts = pattern.split(/(:\w+|\*)/).map((part) => {
    if (part === '*') return '.*';
    return part.startsWith(':') ? '[^/]+' : part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  });
  return new RegExp(`^${parts.join('')}$`);
}
