import { Body, Controller, Inject, Post } from '@nestjs/common';
import { ApiTags } from '@nestjs/swagger';
import type { Collector } from './collector.js';
import { createTenantBody, type TenantCreated, tenantCreated } from '@belay/contracts/http';
import type { z } from 'zod';
import type { Operator } from './access.js';
import { Allow, Who } from './guard.js';
import type { Issuer } from './issue.js';
import { valueOf } from './problem.js';
import { Checked, Describe } from './schema.js';
import { COLLECTOR, ISSUER } from './tokens.js';

@ApiTags('tenants')
@Controller('v1/tenants')
export class TenantsController {
  readonly #collector: Collector;
  readonly #issuer: Issuer;

  constructor(@Inject(COLLECTOR) collector: Collector, @Inject(ISSUER) issuer: Issuer) {
    this.#collector = collector;
    this.#issuer = issuer;
  }

  @Post()
  @Allow('operator')
  @Describe({
    summary: 'Create a tenant and its first admin key',
    body: createTenantBody,
    status: 201,
    answer: tenantCreated,
  })
  async create(
    @Who() operator: Operator,
    @Body(new Checked(createTenantBody)) { name }: z.output<typeof createTenantBody>,
  ): Promise<TenantCreated> {
    const tenant = this.#issuer.id('ten');
    const admin = this.#issuer.admin();
    valueOf(
      await this.#collector.change({
        kind: 'tenant.create',
        tenant,
        name,
        admin: admin.id,
        secretHash: admin.secretHash,
        by: operator.id,
      }),
    );
    return { tenant, name, admin: { id: admin.id, credential: admin.text } };
  }
}
