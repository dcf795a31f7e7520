import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildGoReader, type GoReader, goReaderAbsent } from '../conformance/go-reader.js';
import { type ServeService, startServe } from '../harness/serve.js';
import { Tenant } from '../harness/tenant.js';

// A reader that shares no line with us: Go's sumdb/note opens our checkpoint, sumdb/tlog proves every entry through
// the tiles that the gateway serves.
describe.skipIf(goReaderAbsent)(
  `a log reader that is not ours${goReaderAbsent ? ` (${goReaderAbsent})` : ''}`,
  () => {
    let service: ServeService;
    let reader: GoReader;
    let folder: string;

    beforeAll(async () => {
      [service, reader] = await Promise.all([startServe(), buildGoReader()]);
      folder = mkdtempSync(join(tmpdir(), 'belay-go-'));
    });
    afterAll(async () => {
      await service?.close();
      await reader?.close();
      rmSync(folder, { recursive: true, force: true });
    });

    /** The published checkpoint, once it covers `size` entries. */
    async function published(tenant: Tenant, size: number): Promise<string> {
      for (let tries = 0; tries < 200; tries++) {
        const { text } = await tenant.asAuditor('get', `/v1/logs/${tenant.project.log}/checkpoint`);
        if (Number(text.split('\n')[1]) >= size) return text;
        await sleep(50);
      }
      throw new Error(`no checkpoint of ${size} entries`);
    }

    it('proves every entry of a live log, and that it grew from the size kept before', async () => {
      const tenant = await Tenant.create(service, 'go');
      const sink = tenant.sink('shell');
      const first = await tenant.append(sink.lines(700));
      const kept = join(folder, 'kept');
      writeFileSync(kept, await published(tenant, first.size));
      const later = await tenant.append(sink.lines(900));
      await published(tenant, later.size);
      const base = `${service.url}/v1/logs/${tenant.project.log}`;
      const auth = `Bearer ${tenant.project.auditor.credential}`;
      const outcome = await reader.read(base, tenant.project.vkey, { auth, old: kept });
      expect(outcome).toMatchObject({
        ok: true,
        report: {
          origin: tenant.project.origin,
          size: later.size,
          included: later.size,
          consistent: [first.size],
        },
      });
      const stranger = await Tenant.create(service, 'other');
      expect(await reader.read(base, stranger.project.vkey, { auth })).toMatchObject({ ok: false });
      expect(await reader.read(base, tenant.project.vkey)).toMatchObject({ ok: false });
    });
  },
);
