import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Observable, mergeMap } from 'rxjs';
import type { AccessGuard } from './guard.js';

/**
 * Asks again who is there before a request that waited is answered: a credential may have been revoked meanwhile, and
 * the wait may be a minute long. A request without `wait` is answered on what the guard found.
 */
export class StillAllowed implements NestInterceptor {
  readonly #guard: AccessGuard;

  constructor(guard: AccessGuard) {
    this.#guard = guard;
  }

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const http = context.switchToHttp();
    const { wait } = http.getRequest<FastifyRequest<{ Querystring: { wait?: unknown } }>>().query;
    if (wait === undefined) return next.handle();
    return next.handle().pipe(
      mergeMap(async (answer: unknown) => {
        try {
          await this.#guard.canActivate(context);
        } catch (error) {
          // Already set for the answer that is not given.
          http.getResponse<FastifyReply>().removeHeader('belay-receipt-id');
          throw error;
        }
        return answer;
      }),
    );
  }
}
