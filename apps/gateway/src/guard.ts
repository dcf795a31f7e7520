import { type CanActivate, createParamDecorator, type ExecutionContext, SetMetadata } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import { admit, type Allowed, type Authenticator, type Other, type Principal } from './access.js';
import type { Holder } from './admission.js';

const ALLOWED = 'belay:allowed';
const PRINCIPAL = Symbol('principal');

type Asking = { [PRINCIPAL]?: Principal | Other | undefined };
type Request = FastifyRequest & Asking;

/** Who may call a route. A route without it answers nobody. */
export const Allow = (...kinds: Allowed[]) => SetMetadata(ALLOWED, kinds);

/** The caller as the guard found it; undefined where `anyone` may call and nobody introduced himself. */
export const Who = createParamDecorator(
  (_: unknown, context: ExecutionContext) => context.switchToHttp().getRequest<Request>()[PRINCIPAL],
);

/** In whose share the answer to a request is held until it is read; strangers share one. */
export function holderOf(request: Asking): Holder {
  const who = request[PRINCIPAL];
  if (who?.kind === 'append' || who?.kind === 'auditor') return who.log;
  const name = who?.kind === 'admin' ? who.tenant : 'anyone';
  return { tenant: name, project: `of ${name}` };
}

export class AccessGuard implements CanActivate {
  readonly #authenticator: Authenticator;

  constructor(authenticator: Authenticator) {
    this.#authenticator = authenticator;
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const allowed = Reflect.getMetadata(ALLOWED, context.getHandler()) as Allowed[] | undefined;
    if (!allowed)
      throw new Error(`${context.getClass().name}.${context.getHandler().name} says not whom it is for`);
    const request = context.switchToHttp().getRequest<Request>();
    request[PRINCIPAL] = await admit(this.#authenticator, request.headers.authorization, allowed);
    return true;
  }
}
