import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ServeService, startServe } from '../../../test/harness/serve.js';
import { StatingSink } from '../../../test/harness/stating-sink.js';
import { Tenant } from '../../../test/harness/tenant.js';

let service: ServeService;
beforeAll(async () => {
  service = await startServe();
});
afterAll(async () => service?.close());

const CALL = `hmac-sha256:${'a'.repeat(64)}`;

describe('a session', () => {
  it('gets a receipt a moment after its last required sink closed it', async () => {
    const tenant = await Tenant.create(service, 'acme');
    const proxy = await StatingSink.declare(tenant, 'proxy');
    const session = 'run-1';
    proxy
      .open()
      .say('session.open', { session })
      .say('call', { session, call: CALL, match: CALL, attrs: { tool: 'a' } });
    proxy.say('result', { session, call: CALL, match: CALL }).stated('session.close', { session });
    await proxy.send();
    const started = Date.now();
    const answer = await tenant.asAuditor('get', tenant.path(`/sessions/${session}?wait=10`));
    console.log(Date.now() - started, JSON.stringify(answer.body, undefined, 1));
    console.log(
      service
        .logs()
        .split('\n')
        .filter((l) => /"level":(4|5|6)0/.test(l))
        .slice(0, 5)
        .join('\n'),
    );
    expect(answer.body).toMatchObject({ settled: true, disposition: 'unverified', coverage: 'complete' });
  });
});
