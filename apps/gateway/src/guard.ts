import { type CanActivate, createParamDecorator, type ExecutionContext, SetMetadata } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { admit, type Allowed, type Authenticator, type Principal } from './access.js';

const ALLOWED = 'belay:allowed';
const PRINCIPAL = Symbol('principal');

type Caller = FastifyRequest & { [PRINCIPAL]?: Principal | undefined };

/** Who may call a route. A route without it answers nobody. */
export const Allow = (...kinds: Allowed[]) => SetMetadata(ALLOWED, kinds);

/** The caller as the guard found it; undefined where `anyone` may call and nobody introduced himself. */
export const Who = createParamDecorator(
  (_: unknown, context: ExecutionContext) => context.switchToHttp().getRequest<Caller>()[PRINCIPAL],
);

export class AccessGuard implements CanActivate {
  readonly #authenticator: Authenticator;

  constructor(authenticator: Authenticator) {
    this.#authenticator = authenticator;
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const allowed = Reflect.getMetadata(ALLOWED, context.getHandler()) as Allowed[] | undefined;
    if (!allowed)
      throw new Error(`${context.getClass().name}.${context.getHandler().name} says not whom it is for`);
    const request = context.switchToHttp().getRequest<Caller>();
    request[PRINCIPAL] = await admit(this.#authenticator, request.headers.authorization, allowed);
    return true;
  }
}
