import { createHmac, randomBytes } from 'node:crypto';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import type { Ack } from '@belay/contracts';
import type {
  ConsistencyProofReply,
  CoverageReply,
  DeliveryList,
  EventList,
  ExportJob,
  ExportList,
  InclusionProofReply,
  LabelList,
  LabelSet,
  LogKeys,
  PolicySet,
  Problem,
  SessionDetail,
  SessionList,
  TokenList,
  WebhookCreated,
} from '@belay/contracts/http';
import { exportJob, problem, sessionDetail } from '@belay/contracts/http';
import { parseStatement, policyDigest } from '@belay/coverage';
import { parseEntry } from '@belay/envelope';
import {
  decompose,
  leafHash,
  parseEntryBundle,
  rangeRoot,
  verifyConsistency,
  verifyInclusion,
} from '@belay/merkle';
import { ed25519Verifier, openCheckpoint, privateKeyObject, rawPublicKey } from '@belay/note';
import { openReceipt, parseAnyReceipt, verifyReceipt, verifyTlogProof } from '@belay/receipt';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Service } from '../harness/service.js';
import { StatingSink } from '../harness/stating-sink.js';
import { as, decode, sha256, signBatch, Tenant, ulid, verifyGrowth } from '../harness/tenant.js';

/** How long something that comes by itself may take on a machine that is busy. */
const SOON = { timeout: 30_000 };

/** Bytes and not text, whatever the type: supertest decodes only what it knows. */
function bytes(test: request.Test): request.Test {
  return test.buffer(true).parse((response, done) => {
    const chunks: Buffer[] = [];
    response.on('data', (chunk: Buffer) => chunks.push(chunk));
    response.on('end', () => done(null, Buffer.concat(chunks)));
  });
}

/** Asks again while the answer is `not_published`: checkpoints come on a timer. */
async function published(make: () => request.Test): Promise<request.Response> {
  for (let tries = 0; tries < 100; tries++) {
    const response = await make();
    if (response.status !== 409) return response;
    expect(response.headers['retry-after']).toBe('1');
    await sleep(50);
  }
  throw new Error('never published');
}

async function refusal(test: request.Test, status: number, code: string, field?: string): Promise<Problem> {
  const response = await test;
  expect({ status: response.status, code: (response.body as Problem).code }).toEqual({ status, code });
  expect(response.headers['content-type']).toMatch(/^application\/problem\+json/);
  const body = problem.strict().parse(response.body);
  expect(body.type).toBe(`urn:belay:problem:${code}`);
  expect(body.status).toBe(status);
  if (field !== undefined) expect(body.field).toBe(field);
  return body;
}

/** The same for every wiring: what the service promises over HTTP. */
export function describeService(wiring: string, start: () => Promise<Service>): void {
  describe(`the service, ${wiring}`, () => {
    let service: Service;
    let acme: Tenant;

    beforeAll(async () => {
      service = await start();
      acme = await Tenant.create(service, 'acme');
    });

    afterAll(async () => {
      await service?.close();
    });

    describe('appending', () => {
      it('acks with a proof of every line, in order of sending, and finds what is sent again', async () => {
        const lines = acme.sink('shell').lines(7);
        const first = await acme.append(lines);
        expect(first.runs).toMatchObject([{ disposition: 'appended', lines: [0, 7], role: 'sink' }]);
        const again = await acme.append(lines, undefined, { 'belay-head': String(first.size) });
        expect(again.runs).toMatchObject([
          { disposition: 'duplicate', lines: [0, 7], index: first.runs[0]?.index },
        ]);
        expect(again.size).toBe(first.size);
        verifyGrowth(first, again);
      });

      it('proves that each head continues the last one', async () => {
        const sink = acme.sink('growing');
        let last = await acme.append(sink.lines(1));
        for (const count of [3, 1, 40]) {
          const next = await acme.append(sink.lines(count), undefined, { 'belay-head': String(last.size) });
          verifyGrowth(last, next);
          last = next;
        }
        await refusal(acme.post(sink.line()).set('belay-head', String(last.size + 1000)), 409, 'head_ahead');
      });

      it('keeps both stories when one number is told twice', async () => {
        const sink = acme.sink('twice');
        const [one = '', two = ''] = sink.lines(2);
        await acme.append([one, two]);
        const other = two.replace('2026-01-01T00:00:00Z', '2026-01-01T00:00:01Z');
        const ack = await acme.append([one, other]);
        expect(ack.runs.map((run) => run.disposition)).toEqual(['duplicate', 'conflict']);
        expect(ack.runs[1]?.conflict).toBe((ack.runs[0]?.index ?? 0) + 1);
        const again = await acme.append([other]);
        expect(again.runs.map((run) => run.disposition)).not.toContain('appended');
      });

      it('refuses a line without spoiling its neighbours, and says which and why', async () => {
        const sink = acme.sink('mixed');
        const good = [sink.line(), sink.line()];
        const elsewhere = sink.line({ log: 'elsewhere/log' });
        const stranger = sink.line({ sink: 'stranger' });
        const later = sink.line({ epoch: ulid() });
        const unknown = sink.line({ text: 'free' });
        const body = [good[0], '{', elsewhere, stranger, later, unknown, good[1], ''].join('\n');
        const { body: ack } = (await acme.post(body).expect(200)) as { body: Ack };
        expect(ack.runs.map((run) => run.lines)).toEqual([
          [0, 1],
          [6, 7],
        ]);
        expect(ack.refused).toMatchObject([
          { line: 1, code: 'invalid_json' },
          { line: 2, code: 'wrong_log', field: 'log' },
          { line: 3, code: 'wrong_sink', field: 'sink' },
          { line: 4, code: 'mixed_epoch', field: 'epoch' },
          { line: 5, code: 'unknown_field', field: 'text' },
        ]);
        const none = await refusal(acme.post('{\n[]\n'), 422, 'no_valid_line');
        expect(none.refused?.map(({ line, code }) => [line, code])).toEqual([
          [0, 'invalid_json'],
          [1, 'not_an_object'],
        ]);
      });

      it('takes the sink from the header, the token, or the first valid line', async () => {
        const narrow = await acme.token({ sinks: ['only'] });
        const wide = await acme.token({ sinks: ['a', 'b'] });
        const only = acme.sink('only');
        await acme.append([only.line()], narrow.credential);
        await refusal(
          acme.post(only.line(), narrow.credential).set('belay-sink', 'other'),
          403,
          'sink_not_allowed',
        );
        const b = acme.sink('b');
        await acme.append([b.line()], wide.credential, { 'belay-sink': 'b' });
        await acme.append([b.line()], wide.credential);
        await refusal(acme.post(acme.sink('c').line(), wide.credential), 403, 'sink_not_allowed');
        const { refused } = (await acme.post(acme.sink('a').line() + '\n' + b.line(), wide.credential))
          .body as Ack;
        expect(refused).toMatchObject([{ line: 1, code: 'wrong_sink' }]);
        await refusal(acme.post(b.line()).set('belay-sink', '../b'), 400, 'invalid', 'Belay-Sink');
      });

      it('orders what many send at once, densely and without mixing requests', async () => {
        const senders = Array.from({ length: 12 }, (_, i) => acme.sink(`many-${i}`));
        const acks = await Promise.all(senders.map((sink) => acme.append(sink.lines(25))));
        const first = acks.map((ack) => ack.runs[0]?.index ?? -1).sort((a, b) => a - b);
        for (const [i, index] of first.entries()) {
          if (i > 0) expect(index - (first[i - 1] ?? 0)).toBeGreaterThanOrEqual(25);
        }
        expect(acks.every((ack) => ack.runs.length === 1)).toBe(true);
      });

      it('takes gzip', async () => {
        const lines = acme.sink('packed').lines(200);
        const answer = await acme
          .post(gzipSync(lines.join('\n')))
          .set('content-encoding', 'gzip')
          .expect(200);
        expect((answer.body as Ack).runs).toMatchObject([{ disposition: 'appended', lines: [0, 200] }]);
      });
    });

    describe('keyed sinks', () => {
      it('take only what their key has signed, and their entries are observed', async () => {
        const seed = randomBytes(32);
        const key = rawPublicKey(privateKeyObject(seed)).toString('base64');
        await acme
          .asAdmin('put', acme.path('/sinks/keyed'))
          .send({ kind: 'proxy', key, domain: 'host-1', required: true })
          .expect(200);
        const sink = acme.sink('keyed');
        const lines = sink.lines(3);
        await refusal(acme.post(lines.join('\n')), 403, 'signature_required');
        const wrong = signBatch(sink, 1, lines, randomBytes(32));
        await refusal(acme.post(lines.join('\n')).set('belay-signature', wrong), 403, 'signature_invalid');
        await refusal(
          acme.post(lines.join('\n')).set('belay-signature', 'AAAA'),
          400,
          'invalid',
          'Belay-Signature',
        );
        const right = signBatch(sink, 1, lines, seed);
        const ack = await acme.append(lines, undefined, { 'belay-signature': right });
        expect(ack.runs).toMatchObject([{ disposition: 'appended', lines: [0, 3] }]);
        expect(ack.runs[0]?.signed).toMatch(/^[0-9a-f]{16}$/);
        const index = ack.runs[0]?.index ?? 0;
        const receipt = await published(() =>
          bytes(acme.asAuditor('get', acme.path(`/receipts?range=${index}..${index + 2}`))),
        );
        const opened = openReceipt(receipt.body as Buffer, { key: acme.project.vkey });
        expect(opened.authority.level).toBe('observed');
        expect(opened.authority.by).toMatchObject([{ sink: 'keyed', domain: 'host-1' }]);
      });
    });

    describe('limits', () => {
      it('are told as problems, whatever is too much', async () => {
        const sink = acme.sink('much');
        await refusal(acme.post('\n\n'), 400, 'empty');
        await refusal(acme.post(sink.lines(2001).join('\n')), 413, 'too_many_lines');
        await refusal(acme.post(Buffer.alloc(4 * 1024 * 1024 + 1, 0x61)), 413, 'body_too_large');
        const packed = (body: Buffer) => acme.post(body).set('content-encoding', 'gzip');
        await refusal(packed(randomBytes(1024 * 1024 + 1)), 413, 'body_too_large');
        await refusal(packed(gzipSync(Buffer.alloc(64 * 1024 * 1024))), 413, 'body_too_large');
        await refusal(packed(Buffer.from('not gzip')), 400, 'invalid', 'Content-Encoding');
        await refusal(acme.post(sink.line()).set('content-encoding', 'br'), 415, 'unsupported_encoding');
        await refusal(
          acme.post(sink.line()).set('content-type', 'application/json'),
          415,
          'unsupported_media_type',
        );
        await refusal(
          acme.post(sink.line()).set('content-type', 'text/plain'),
          415,
          'unsupported_media_type',
        );
        const long = sink.line({ attrs: { tool: 'x'.repeat(4200) } });
        const { refused } = (await acme.post(`${sink.line()}\n${long}`).expect(200)).body as Ack;
        expect(refused).toMatchObject([{ line: 1, code: 'too_long' }]);
        await refusal(
          acme.asAdmin('post', '/v1/projects').send({ name: 'x'.repeat(100_000) }),
          413,
          'body_too_large',
        );
      });

      it('of a token’s rate hold, and what is sent again costs nothing', async () => {
        const slow = await acme.token({ rate: 30 });
        const sink = acme.sink('slow');
        const lines = sink.lines(40);
        await acme.append(lines, slow.credential);
        for (let i = 0; i < 3; i++) await acme.append(lines, slow.credential);
        const answer = await acme.post(sink.lines(40).join('\n'), slow.credential);
        expect(answer.status).toBe(429);
        expect((answer.body as Problem).code).toBe('rate_limited');
        expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
      });
    });

    describe('credentials', () => {
      it('are refused alike when unknown, wrong, cut or of another service', async () => {
        const unknown = acme.project.token.credential;
        const cut = unknown.slice(0, -3);
        const path = acme.path('/events');
        const none = await refusal(as(service, undefined, 'get', path), 401, 'unauthenticated');
        for (const credential of [
          'x',
          'belay_append_',
          `belay_auditor_${Buffer.alloc(100).toString('base64url')}`,
          cut,
        ]) {
          await refusal(as(service, credential, 'get', path), 401, 'unauthenticated');
        }
        expect(none.detail).not.toContain('belay_append_A');
        const answer = await as(service, undefined, 'get', path);
        expect(answer.headers['www-authenticate']).toMatch(/^Bearer/);
      });

      it('do what their kind may and nothing else', async () => {
        const { token, auditor } = acme.project;
        const kinds = {
          operator: service.operatorKey,
          admin: acme.admin,
          append: token.credential,
          auditor: auditor.credential,
        };
        const routes: readonly (readonly [keyof typeof kinds, 'get' | 'post', string, object?])[] = [
          ['operator', 'post', '/v1/tenants', { name: 'one more' }],
          ['admin', 'get', acme.path('/tokens')],
          ['auditor', 'get', acme.path('/events')],
        ];
        for (const [allowed, method, path, body] of routes) {
          for (const [kind, credential] of Object.entries(kinds)) {
            const answer = await as(service, credential, method, path).send(body);
            expect([kind, path, answer.status < 300]).toEqual([kind, path, kind === allowed]);
            if (kind !== allowed) expect((answer.body as Problem).code).toBe('forbidden');
          }
        }
        await refusal(acme.post(acme.sink('x').line(), auditor.credential), 403, 'forbidden');
      });

      it('end by revocation or by time, and the log says so', async () => {
        const { credential, id } = await acme.token({ role: 'agent', expires: '2100-01-01T00:00:00Z' });
        const sink = acme.sink('leaving');
        const ack = await acme.append([sink.line()], credential);
        expect(ack.runs[0]?.role).toBe('agent');
        const { body } = await acme.asAdmin('delete', acme.path(`/tokens/${id}`)).expect(200);
        await refusal(acme.post(sink.line(), credential), 401, 'token_revoked');
        const revocation = body as { id: string; index: number };
        const { events } = (
          await acme.asAuditor('get', acme.path(`/events?from=${revocation.index}&limit=1`)).expect(200)
        ).body as EventList;
        expect(parseEntry(Buffer.from(events[0]?.entry ?? ''))).toMatchObject({
          by: 'collector',
          statement: { kind: 'token.revoked', token: id },
        });
        await refusal(
          acme.asAdmin('post', acme.path('/tokens')).send({ expires: '2020-01-01T00:00:00Z' }),
          400,
          'invalid',
          'expires',
        );
        const soon = await acme.token({ expires: new Date(Date.now() + 1000).toISOString() });
        await sleep(1100);
        await refusal(acme.post(sink.line(), soon.credential), 401, 'token_expired');

        const second = (await acme.asAdmin('post', acme.path('/auditors')).send({}).expect(201)).body as {
          id: string;
          credential: string;
        };
        await as(service, second.credential, 'get', acme.path('/events')).expect(200);
        await acme.asAdmin('delete', acme.path(`/auditors/${second.id}`)).expect(200);
        await refusal(as(service, second.credential, 'get', acme.path('/events')), 401, 'token_revoked');
      });

      it('say of themselves what they are', async () => {
        const { project, log, origin, vkey, token, auditor } = acme.project;
        const place = { project, log, origin, vkey };
        const of = async (credential: string) =>
          (await as(service, credential, 'get', '/v1/token').expect(200)).body as object;
        expect(await of(service.operatorKey)).toMatchObject({ kind: 'operator' });
        expect(await of(acme.admin)).toMatchObject({ kind: 'admin', tenant: acme.id });
        expect(await of(token.credential)).toMatchObject({
          kind: 'append',
          id: token.id,
          role: 'sink',
          ...place,
        });
        expect(await of(auditor.credential)).toMatchObject({ kind: 'auditor', id: auditor.id, ...place });
      });

      it('are listed in pages, without their secrets', async () => {
        const other = await Tenant.create(service, 'lister');
        const made = [other.project.token.id];
        for (let i = 0; i < 4; i++) made.push((await other.token({ role: 'agent', domain: 'lab' })).id);
        const seen: string[] = [];
        let cursor = '';
        do {
          const path = other.path(`/tokens?limit=2${cursor && `&cursor=${cursor}`}`);
          const page = (await other.asAdmin('get', path).expect(200)).body as TokenList;
          expect(JSON.stringify(page)).not.toContain('belay_append');
          seen.push(...page.tokens.map((token) => token.id));
          cursor = page.next ?? '';
        } while (cursor);
        expect(seen.sort()).toEqual(made.sort());
        await refusal(other.asAdmin('get', other.path('/tokens?cursor=made-up')), 400, 'invalid', 'cursor');
        await refusal(other.asAdmin('get', other.path('/tokens?limit=0')), 400, 'invalid', 'limit');
      });

      it('are not given for a body with a misspelt restriction', async () => {
        for (const [body, field] of [
          [{ sink: ['a'] }, 'sink'],
          [{ role: 'root' }, 'role'],
          [{ sinks: [] }, 'sinks'],
          [{ rate: 0 }, 'rate'],
          [{ expires: 'tomorrow' }, 'expires'],
        ] as const) {
          await refusal(acme.asAdmin('post', acme.path('/tokens')).send(body), 400, 'invalid', field);
        }
        await refusal(
          acme.asAdmin('post', '/v1/projects').set('content-type', 'application/json').send('{'),
          400,
          'invalid_json',
        );
      });
    });

    describe('reading', () => {
      it('gives the entries in pages, by sink, epoch and session', async () => {
        const reader = await Tenant.create(service, 'reader');
        const one = reader.sink('one');
        const two = reader.sink('two');
        await reader.append(one.lines(5, { session: 's-1' }));
        await reader.append(two.lines(3, { session: 's-2' }));
        await reader.append(one.lines(2, { session: 's-2' }));
        const all = async (query: string) => {
          const found: EventList['events'] = [];
          let cursor = '';
          do {
            const path = reader.path(`/events?limit=2${query}${cursor && `&cursor=${cursor}`}`);
            const page = (await reader.asAuditor('get', path).expect(200)).body as EventList;
            found.push(...page.events);
            cursor = page.next ?? '';
          } while (cursor);
          return found;
        };
        const entries = await all('');
        expect(entries.map(({ index }) => index)).toEqual(entries.map((_, i) => i));
        expect(parseEntry(Buffer.from(entries[0]?.entry ?? ''))).toMatchObject({
          statement: { kind: 'log.genesis' },
        });
        expect(await all('&sink=one')).toHaveLength(7);
        expect(await all(`&epoch=${two.epoch}`)).toHaveLength(3);
        expect(await all('&session=s-2')).toHaveLength(5);
        expect(await all('&sink=one&session=s-2')).toHaveLength(2);
        expect(await all('&sink=nobody')).toEqual([]);
        await refusal(reader.asAuditor('get', reader.path('/events?epoch=x')), 400, 'invalid', 'epoch');
        await refusal(reader.asAuditor('get', reader.path('/events?from=-1')), 400, 'invalid', 'from');
      });

      it('gives a stranger all it takes to recompute the log from its tiles', async () => {
        const big = await Tenant.create(service, 'big', { public: true });
        const log = `/v1/logs/${big.project.log}`;
        const stranger = (path: string) => as(service, undefined, 'get', log + path);
        const sink = big.sink('bulk');
        const ack = await big.append(sink.lines(600));
        const note = async () => {
          const text = (await published(() => stranger('/checkpoint'))).text;
          return openCheckpoint(text, ed25519Verifier(big.project.vkey));
        };
        let checkpoint = await note();
        while (checkpoint.size < BigInt(ack.size)) {
          await sleep(50);
          checkpoint = await note();
        }
        const size = Number(checkpoint.size);
        expect(checkpoint.root).toEqual(decode(ack.root));
        const leaves: Buffer[] = [];
        for (let n = 0; n * 256 < size; n++) {
          const width = Math.min(256, size - n * 256);
          const name = `${String(n).padStart(3, '0')}${width === 256 ? '' : `.p/${width}`}`;
          const bundle = await bytes(stranger(`/tile/entries/${name}`)).expect(200);
          const tile = await bytes(stranger(`/tile/0/${name}`)).expect(200);
          const hashes = parseEntryBundle(bundle.body as Buffer).map((entry) => leafHash(entry));
          expect(tile.body).toEqual(Buffer.concat(hashes));
          expect(tile.headers['cache-control']).toBe('public, max-age=31536000, immutable');
          leaves.push(...hashes);
        }
        expect(leaves).toHaveLength(size);
        expect(rangeRoot({ index: 0n, size: checkpoint.size, leaves, left: [], right: [] })).toEqual(
          checkpoint.root,
        );
        const above = await bytes(stranger(`/tile/1/000.p/2`)).expect(200);
        expect(above.body).toHaveLength(64);

        for (const index of [0, 255, 256, size - 1]) {
          const proof = (await stranger(`/proof?index=${index}&size=${size}`).expect(200))
            .body as InclusionProofReply;
          verifyInclusion({
            index: BigInt(index),
            size: checkpoint.size,
            leaf: leaves[index] as Buffer,
            proof: proof.hashes.map(decode),
            root: checkpoint.root,
          });
        }
        for (const from of [0, 1, 3, 256, 300, size]) {
          const proof = (await stranger(`/proof?from=${from}`).expect(200)).body as ConsistencyProofReply;
          verifyConsistency({
            size1: BigInt(from),
            size2: BigInt(proof.size),
            root1: decode(proof.fromRoot),
            root2: decode(proof.root),
            proof: proof.hashes.map(decode),
          });
        }
        const keys = (await stranger('/keys').expect(200)).body as LogKeys;
        expect(keys).toMatchObject({ origin: big.project.origin, vkey: big.project.vkey });
        expect(keys.x5c).toHaveLength(3);
        for (const path of [
          '/tile/0/000.p/0',
          '/tile/0/0',
          '/tile/0/x000/000',
          '/tile/9/000',
          '/tile/0/900',
          '/tile/63/x999/x999/x999/x999/x999/999',
          `/tile/entries/002.p/${size - 512 + 1}`,
          '/tile/entries/..%2f..%2f000',
          `/proof?index=${size}&size=${size}`,
          `/proof?index=0&size=${size + 1000}`,
        ]) {
          await refusal(stranger(path), 404, 'not_found');
        }
        await refusal(stranger('/proof'), 400, 'invalid');
        await refusal(stranger('/proof?index=0&from=0'), 400, 'invalid');
        await refusal(stranger(`/proof?from=${size}&size=1`), 400, 'invalid', 'from');
        expect(decompose(0n, checkpoint.size).length).toBeGreaterThan(1);

        await big.asAdmin('put', big.path('/policy')).send({ public: false }).expect(200);
        await refusal(stranger('/checkpoint'), 401, 'unauthenticated');
        await big.asAuditor('get', `${log}/checkpoint`).expect(200);
        const sender = big.project.token.credential;
        await as(service, sender, 'get', `${log}/checkpoint`).expect(200);
        await as(service, sender, 'get', `${log}/proof?from=1`).expect(200);
        await refusal(as(service, sender, 'get', `${log}/proof?index=1`), 403, 'forbidden');
        await refusal(as(service, sender, 'get', `${log}/tile/0/000`), 403, 'forbidden');
      });
    });

    describe('receipts', () => {
      it('of ranges and events verify offline, and are the same bytes every time', async () => {
        const ack = await acme.append(acme.sink('proven').lines(4));
        const first = ack.runs[0]?.index ?? 0;
        const range = acme.path(`/receipts?range=${first}..${first + 3}`);
        const answer = await published(() => bytes(acme.asAuditor('get', range)));
        expect(answer.status).toBe(200);
        expect(answer.headers['content-type']).toMatch(/^application\/vnd\.dsse\.envelope\.v1\+json/);
        const receipt = answer.body as Buffer;
        expect(verifyReceipt(receipt, { key: acme.project.vkey }).verdict).toBe('VALID');
        const again = await bytes(acme.asAuditor('get', range)).expect(200);
        expect(sha256(again.body as Buffer)).toBe(sha256(receipt));
        const id = answer.headers['belay-receipt-id'] as string;
        const byId = await bytes(acme.asAuditor('get', `/v1/receipts/${id}`)).expect(200);
        expect(sha256(byId.body as Buffer)).toBe(sha256(receipt));

        const event = acme.path(`/receipts?event=${first + 1}`);
        const single = await published(() =>
          bytes(acme.asAuditor('get', event).set('accept', 'application/json')),
        );
        expect(single.headers['content-type']).toMatch(/^application\/json/);
        expect(verifyReceipt(single.body as Buffer, { key: acme.project.vkey }).verdict).toBe('VALID');
        const proof = await published(() =>
          bytes(acme.asAuditor('get', event).set('accept', 'application/vnd.belay.tlog-proof')),
        );
        expect(proof.status).toBe(200);
        expect(verifyTlogProof(proof.body as Buffer, { key: acme.project.vkey }).verdict).toBe('VALID');
        const issued = single.headers['belay-receipt-id'] as string;
        const other = await bytes(
          acme.asAuditor('get', `/v1/receipts/${issued}`).set('accept', 'text/x.tlog-proof'),
        );
        expect(verifyTlogProof(other.body as Buffer, { key: acme.project.vkey }).verdict).toBe('VALID');
      });

      it('are refused for what they can not be of', async () => {
        const get = (query: string) => acme.asAuditor('get', acme.path(`/receipts${query}`));
        await refusal(get(''), 400, 'invalid');
        await refusal(get('?event=0&range=0..1'), 400, 'invalid');
        await refusal(get('?event=x'), 400, 'invalid', 'event');
        await refusal(get('?range=3..2'), 400, 'invalid', 'range');
        await refusal(get('?range=3'), 400, 'invalid', 'range');
        await refusal(get('?range=0..20000'), 413, 'range_too_large', 'range');
        await refusal(get('?event=99999999'), 404, 'not_found');
        await refusal(get('?event=0').set('accept', 'image/png'), 406, 'not_acceptable', 'Accept');
        await refusal(get('?range=0..1').set('accept', 'text/x.tlog-proof'), 406, 'not_acceptable');
        await refusal(acme.asAuditor('get', '/v1/receipts/rcp_00000000000000000000000000'), 404, 'not_found');
      });
    });

    describe('the policy', () => {
      it('is set whole, read by admins and auditors, and in force from its entry on', async () => {
        const other = await Tenant.create(service, 'ruler');
        const get = async (test: request.Test) => (await test.expect(200)).body as PolicySet;
        const first = await get(other.asAuditor('get', other.path('/policy')));
        expect(first).toMatchObject({ index: 0, policy: { public: false, heartbeat: 60, lateness: 120 } });
        const rule = { kind: 'coding', opens: ['proxy'], required: ['proxy', 'hook'] };
        const set = (
          await other
            .asAdmin('put', other.path('/policy'))
            .send({ lateness: 5, sessions: [rule], retention: 90 })
            .expect(200)
        ).body as PolicySet;
        expect(set.policy).toEqual({
          v: 1,
          public: false,
          sessions: [rule],
          heartbeat: 60,
          lateness: 5,
          closeTimeout: 3600,
          retention: 90,
          attrs: 'minimal',
        });
        expect(set.digest).toBe(policyDigest(set.policy));
        expect(await get(other.asAdmin('get', other.path('/policy')))).toEqual(set);
        // What is left out is not kept from before.
        const again = (await other.asAdmin('put', other.path('/policy')).send({}).expect(200))
          .body as PolicySet;
        expect(again.digest).toBe(first.digest);
        expect(await get(other.asAuditor('get', other.path(`/policy?at=${set.index}`)))).toEqual(first);
        expect(await get(other.asAuditor('get', other.path(`/policy?at=${again.index}`)))).toEqual(set);
        const { events } = (
          await other.asAuditor('get', other.path(`/events?from=${set.index}&limit=1`)).expect(200)
        ).body as EventList;
        expect(parseEntry(Buffer.from(events[0]?.entry ?? ''))).toMatchObject({
          statement: { kind: 'policy.set', policy: set.policy },
        });
      });

      it('opens the log to anyone, and closes it', async () => {
        const other = await Tenant.create(service, 'open');
        const checkpoint = () => as(service, undefined, 'get', `/v1/logs/${other.project.log}/keys`);
        await refusal(checkpoint(), 401, 'unauthenticated');
        await other.asAdmin('put', other.path('/policy')).send({ public: true }).expect(200);
        await checkpoint().expect(200);
        await other.asAdmin('put', other.path('/policy')).send({}).expect(200);
        await refusal(checkpoint(), 401, 'unauthenticated');
      });
    });

    describe('sessions', () => {
      const session = 'run-1';
      const call = (name: string) => `hmac-sha256:${sha256(name)}`;
      let other: Tenant;
      let proxy: StatingSink;
      let detail: SessionDetail;

      beforeAll(async () => {
        other = await Tenant.create(service, 'judged');
        await other.asAdmin('put', other.path('/policy')).send({ lateness: 1, closeTimeout: 2 }).expect(200);
        proxy = await StatingSink.declare(other, 'proxy');
      });

      it('settle, and whoever waits is told', async () => {
        const waiting = other
          .asAuditor('get', other.path(`/sessions/${session}?wait=60`))
          .then(({ body }) => body as SessionDetail);
        const said = { session, call: call('a'), match: call('b') };
        proxy.open().say('session.open', { session }).say('call', said).say('result', said);
        proxy.stated('session.close', { session }).stated('epoch.close');
        await proxy.send();
        detail = sessionDetail.parse(await waiting);
        expect(detail).toMatchObject({
          session,
          settled: true,
          closed: true,
          coverage: 'complete',
          disposition: 'unverified',
          calls: 1,
          levels: { observed: 1 },
        });
        expect(detail.receipts.map(({ id }) => id)).toEqual([detail.receipt?.id]);
        const list = (await other.asAuditor('get', other.path('/sessions')).expect(200)).body as SessionList;
        expect(list.sessions).toMatchObject([{ session, settled: true, receipt: detail.receipt }]);
        expect(
          ((await other.asAuditor('get', other.path('/sessions?disposition=violated'))).body as SessionList)
            .sessions,
        ).toEqual([]);
      });

      it('have receipts, which come by session and by identifier', async () => {
        const answer = await bytes(other.asAuditor('get', other.path(`/receipts?session=${session}`))).expect(
          200,
        );
        expect(answer.headers['belay-receipt-id']).toBe(detail.receipt?.id);
        expect(`sha256:${sha256(answer.body as Buffer)}`).toBe(detail.receipt?.digest);
        const { checks } = verifyReceipt(answer.body as Buffer, { key: other.project.vkey });
        expect(checks.filter(({ status }) => status !== 'ok').map(({ name }) => name)).toEqual(['evidence']);
        const same = await bytes(other.asAuditor('get', `/v1/receipts/${detail.receipt?.id}`)).expect(200);
        expect((answer.body as Buffer).equals(same.body as Buffer)).toBe(true);
      });

      it('have coverage, now and as it was stated', async () => {
        const get = async (query: string) =>
          (await other.asAuditor('get', other.path(`/coverage${query}`)).expect(200)).body as CoverageReply;
        const sinks = await get('');
        expect(sinks.statements).toMatchObject([
          {
            type: 'sink',
            sink: 'proxy',
            status: 'complete',
            epochs: [{ epoch: proxy.epoch, status: 'complete' }],
          },
        ]);
        expect(sinks.reconciled).toBeLessThanOrEqual(sinks.size);
        expect((await get('?sink=proxy')).statements).toMatchObject([{ type: 'sink', sink: 'proxy' }]);
        expect((await get(`?sink=proxy&epoch=${proxy.epoch}`)).statements).toMatchObject([
          { type: 'epoch', epoch: proxy.epoch, lines: 6, ending: { by: 'close', compared: true } },
        ]);
        const [now] = (await get(`?session=${session}`)).statements;
        const stated = await bytes(
          other.asAuditor('get', other.path(`/statements/${detail.statement}`)),
        ).expect(200);
        expect(`sha256:${sha256(stated.body as Buffer)}`).toBe(detail.statement);
        const statement = parseStatement(stated.body as Buffer);
        // The same but for when it was looked at.
        expect({ ...now, asOf: statement.asOf }).toEqual(statement);
      });

      it('are found again in the events', async () => {
        const { events } = (
          await other.asAuditor('get', other.path(`/events?session=${session}`)).expect(200)
        ).body as EventList;
        expect(events.map(({ entry }) => parseEntry(Buffer.from(entry)))).toMatchObject([
          { envelope: { session, kind: 'session.open' } },
          { envelope: { session, kind: 'call' } },
          { envelope: { session, kind: 'result' } },
          { envelope: { session, kind: 'session.close' } },
        ]);
        const page = (
          await other
            .asAuditor('get', other.path(`/events?session=${session}&limit=3&sink=proxy`))
            .expect(200)
        ).body as EventList;
        expect(page.events).toHaveLength(3);
        const rest = (
          await other
            .asAuditor('get', other.path(`/events?session=${session}&limit=3&cursor=${page.next}`))
            .expect(200)
        ).body as EventList;
        expect(rest.events.map(({ index }) => index)).toEqual(events.slice(3).map(({ index }) => index));
      });

      it('that take turns in a log are each read in their order, entry by entry as the log has them', async () => {
        const mixed = other.sink('mixed');
        const twice = mixed.line({ session: 'm-0' });
        const lines = Array.from({ length: 30 }, (_, i) => mixed.line({ session: `m-${i % 3}` }));
        await other.append([twice, ...lines]);
        // A second story about one number, and another sink in between.
        await other.append([twice.replace('T00:00:00Z', 'T00:00:01Z')]);
        await other.append(other.sink('another').lines(2, { session: 'm-1' }));
        const { events } = (await other.asAuditor('get', other.path('/events?limit=1000')).expect(200))
          .body as EventList;
        const { size } = (await other.asAuditor('get', other.path('/sessions')).expect(200))
          .body as SessionList;
        await expect
          .poll(async () => {
            const answer = await other.asAuditor('get', other.path('/sessions?limit=1'));
            return (answer.body as SessionList).reconciled;
          }, SOON)
          .toBeGreaterThanOrEqual(size);
        for (const name of ['m-0', 'm-1', 'm-2']) {
          const own = events.filter(({ entry }) => {
            const parsed = parseEntry(Buffer.from(entry));
            return parsed.by === 'sender' && parsed.envelope.session === name;
          });
          expect(own.length).toBeGreaterThanOrEqual(10);
          const found: EventList['events'] = [];
          let cursor = '';
          do {
            const path = other.path(`/events?session=${name}&limit=4${cursor && `&cursor=${cursor}`}`);
            const page = (await other.asAuditor('get', path).expect(200)).body as EventList;
            found.push(...page.events);
            cursor = page.next ?? '';
          } while (cursor);
          expect(found).toEqual(own);
        }
      });

      it('turn with what auditors say of them', async () => {
        const { index } = (
          await other.asAuditor('post', other.path('/labels')).send({ session, says: 'violated' }).expect(201)
        ).body as LabelSet;
        const turned = (await other.asAuditor('get', other.path(`/sessions/${session}?wait=60`)).expect(200))
          .body as SessionDetail;
        expect(turned).toMatchObject({ settled: true, disposition: 'violated' });
        expect(turned.receipts.map(({ disposition }) => disposition)).toEqual(['violated', 'unverified']);
        expect(turned.receipts[0]?.supersedes).toBe(detail.receipt?.digest);
        const labels = async (query: string) =>
          ((await other.asAuditor('get', other.path(`/labels${query}`)).expect(200)).body as LabelList)
            .labels;
        expect(await labels('')).toEqual([
          { index, session, says: 'violated', by: other.project.auditor.id },
        ]);
        expect(await labels('?session=another')).toEqual([]);
      });

      it('are told of to webhooks, signed', async () => {
        const listener = createServer();
        const heard = new Promise<{ headers: IncomingHttpHeaders; body: string }>((resolve) => {
          listener.on('request', (asking: IncomingMessage, answer: ServerResponse) => {
            let body = '';
            asking.on('data', (piece: Buffer) => (body += piece.toString()));
            asking.on('end', () => {
              answer.writeHead(204).end();
              resolve({ headers: asking.headers, body });
            });
          });
        });
        await new Promise<void>((done) => listener.listen(0, '127.0.0.1', done));
        try {
          const { port } = listener.address() as AddressInfo;
          const webhook = (
            await other
              .asAdmin('post', other.path('/webhooks'))
              .send({ url: `http://127.0.0.1:${port}/hook`, events: ['session.incomplete'] })
              .expect(201)
          ).body as WebhookCreated;
          const lossy = 'run-2';
          proxy.open().say('session.open', { session: lossy });
          proxy.say('denial', { session: lossy }, true).stated('session.close', { session: lossy });
          await proxy.send();
          const { headers, body } = await heard;
          const id = String(headers['webhook-id']);
          const timestamp = String(headers['webhook-timestamp']);
          const key = decode(webhook.secret.slice('whsec_'.length));
          expect(headers['webhook-signature']).toBe(
            `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`,
          );
          const told = (await other.asAuditor('get', other.path(`/sessions/${lossy}?wait=60`)).expect(200))
            .body as SessionDetail;
          const { id: receipt, digest } = told.receipt ?? {};
          expect(JSON.parse(body)).toMatchObject({
            type: 'session.incomplete',
            data: {
              project: other.project.project,
              session: lossy,
              disposition: 'incomplete',
              receipt: { id: receipt, digest },
            },
          });
          const path = other.path(`/webhooks/${webhook.id}/deliveries`);
          await expect
            .poll(async () => ((await other.asAdmin('get', path)).body as DeliveryList).deliveries, {
              timeout: 10_000,
            })
            .toMatchObject([{ id, event: 'session.incomplete', body, attempts: 1, status: 204 }]);
          await other.asAdmin('delete', other.path(`/webhooks/${webhook.id}`)).expect(200);
        } finally {
          listener.close();
        }
      });

      it('of a period have a receipt together', async () => {
        const hour = 3_600_000;
        const [from, to] = [-hour, hour].map((ms) => new Date(Date.now() + ms).toISOString());
        const path = other.path(`/receipts?period=${from}..${to}&wait=60`);
        const answer = await bytes(other.asAuditor('get', path)).expect(200);
        const { checks } = verifyReceipt(answer.body as Buffer, { key: other.project.vkey });
        expect(checks.filter(({ status }) => status !== 'ok').map(({ name }) => name)).toEqual(['evidence']);
        const opened = parseAnyReceipt(answer.body as Buffer);
        expect(opened).toMatchObject({ type: 'period', receipt: { scope: { type: 'period', from, to } } });
        const again = await bytes(other.asAuditor('get', path)).expect(200);
        expect(again.headers['belay-receipt-id']).toBe(answer.headers['belay-receipt-id']);
      });

      it('go into an export, which is read whole or in parts, and removed', async () => {
        const made = (
          await other
            .asAuditor('post', other.path('/exports'))
            .send({ sessions: [session] })
            .expect(202)
        ).body as ExportJob;
        expect(exportJob.parse(made)).toMatchObject({ request: { sessions: [session] } });
        const path = other.path(`/exports/${made.id}`);
        const look = async () => (await other.asAuditor('get', path).expect(200)).body as ExportJob;
        await expect.poll(async () => (await look()).state, SOON).toMatch(/done|failed/);
        const job = await look();
        expect(job).toMatchObject({ state: 'done' });
        expect(job.error).toBeUndefined();
        const file = () => bytes(other.asAuditor('get', `${path}/file`));
        const whole = (await file().expect(200)).body as Buffer;
        expect([whole.length, sha256(whole)]).toEqual([job.bytes, job.sha256]);
        const half = Math.floor(whole.length / 2);
        const etag = `"${job.sha256}"`;
        const first = await file()
          .set('range', `bytes=0-${half - 1}`)
          .expect(206);
        const rest = await file().set('range', `bytes=${half}-`).set('if-range', etag).expect(206);
        expect(Buffer.concat([first.body as Buffer, rest.body as Buffer]).equals(whole)).toBe(true);
        await other.asAuditor('delete', path).expect(200);
        await expect.poll(async () => (await file()).status, SOON).toBe(404);
      });

      it('that no entry names get no label and no export; those that were named just now do', async () => {
        const label = (name: string) =>
          other.asAuditor('post', other.path('/labels')).send({ session: name, says: 'violated' });
        const refused = await label(session.slice(0, -1)).expect(404);
        expect(refused.body).toMatchObject({ code: 'not_found', field: 'session' });
        const jobs = async () =>
          ((await other.asAuditor('get', other.path('/exports')).expect(200)).body as ExportList).exports
            .length;
        const before = await jobs();
        const asked = await other
          .asAuditor('post', other.path('/exports'))
          .send({ sessions: [session, 'run-none'] })
          .expect(404);
        expect(asked.body).toMatchObject({ code: 'not_found', field: 'sessions.1' });
        expect((asked.body as { detail: string }).detail).toContain('run-none');
        expect(await jobs()).toBe(before);
        // Whether or not the worker has seen it yet.
        await other.append([other.sink('late').line({ session: 'just-now' })]);
        await label('just-now').expect(201);
        const period = { from: '2025-01-01T00:00:00.000Z', to: '2025-01-02T00:00:00.000Z' };
        const empty = await other.asAuditor('post', other.path('/exports')).send({ period }).expect(202);
        expect(exportJob.parse(empty.body)).toMatchObject({ sessions: 0 });
        await other.asAuditor('delete', other.path(`/exports/${(empty.body as ExportJob).id}`)).expect(200);
      });

      it('are no matter of anybody else', async () => {
        const stranger = await Tenant.create(service, 'stranger');
        const receipt = detail.receipt?.id ?? '';
        for (const path of [
          `/sessions/${session}`,
          `/receipts?session=${session}`,
          `/coverage?session=${session}`,
          `/coverage?sink=proxy`,
          `/coverage?sink=proxy&epoch=${proxy.epoch}`,
          `/statements/${detail.statement}`,
        ]) {
          const answer = await stranger.asAuditor('get', stranger.path(path));
          expect([path, [404, 409].includes(answer.status)]).toEqual([path, true]);
          await refusal(stranger.asAuditor('get', other.path(path)), 404, 'not_found');
        }
        await refusal(stranger.asAuditor('get', `/v1/receipts/${receipt}`), 404, 'not_found');
        for (const path of ['/sessions', '/coverage', '/labels', '/exports', `/events?session=${session}`]) {
          expect(
            JSON.stringify((await stranger.asAuditor('get', stranger.path(path)).expect(200)).body),
          ).not.toContain(session);
        }
      });
    });

    describe('what can not be meant', () => {
      const from = '2026-01-01T00:00:00Z';
      const CALL = `hmac-sha256:${'0'.repeat(64)}`;
      const queries: readonly (readonly ['admin' | 'auditor', string, string])[] = [
        ['auditor', '/policy?at=-1', 'at'],
        ['auditor', '/policy?when=1', 'when'],
        ['auditor', '/labels?session=a%20b', 'session'],
        ['auditor', '/labels?cursor=x', 'cursor'],
        ['auditor', '/sessions?disposition=good', 'disposition'],
        ['auditor', '/sessions?from=yesterday', 'from'],
        ['auditor', '/sessions?to=2026-01-01', 'to'],
        ['auditor', '/sessions?limit=1001', 'limit'],
        ['auditor', '/sessions?cursor=ZXZlbnRzOjE', 'cursor'],
        ['auditor', '/sessions?dispositon=open', 'dispositon'],
        ['auditor', '/sessions/run-1?wait=61', 'wait'],
        ['auditor', '/sessions/run-1?wait=-1', 'wait'],
        ['auditor', '/sessions/run-1?wait=x', 'wait'],
        ['auditor', '/coverage?epoch=01M8Q5AE9560W1TH896N8MPP90', 'sink'],
        ['auditor', '/coverage?sink=a&epoch=1', 'epoch'],
        ['auditor', '/coverage?sink=..%2f', 'sink'],
        ['auditor', '/coverage?session=run-1&sink=a', 'session'],
        ['auditor', '/coverage?session=', 'session'],
        ['auditor', '/coverage?limit=51', 'limit'],
        ['auditor', '/receipts?session=a/b', 'session'],
        ['auditor', '/receipts?session=run-1&asOf=3', 'asOf'],
        ['auditor', '/receipts?session=run-1&event=3', 'event'],
        ['auditor', '/receipts?event=3&wait=3', 'wait'],
        ['auditor', `/receipts?period=${from}`, 'period'],
        ['auditor', `/receipts?period=${from}..${from}`, 'period'],
        ['auditor', `/receipts?period=${from}..soon`, 'period'],
        ['auditor', '/exports?limit=0', 'limit'],
        ['admin', '/webhooks?cursor=%00', 'cursor'],
        ['auditor', '/events?session=%00', 'session'],
      ];
      it.each(queries)('of %s: %s, is refused by the name of the field', async (who, path, field) => {
        const asked =
          who === 'admin' ? acme.asAdmin('get', acme.path(path)) : acme.asAuditor('get', acme.path(path));
        await refusal(asked, 400, 'invalid', field);
      });

      const bodies: readonly (readonly ['put' | 'post', string, object, string])[] = [
        ['put', '/policy', { public: 'yes' }, 'public'],
        ['put', '/policy', { lateness: -1 }, 'lateness'],
        ['put', '/policy', { heartbeat: 86_401 }, 'heartbeat'],
        ['put', '/policy', { closeTimeout: 0 }, 'closeTimeout'],
        ['put', '/policy', { closetimeout: 10 }, 'closetimeout'],
        ['put', '/policy', { sessions: [{ kind: 'a', opens: ['x'] }] }, 'sessions.0.required'],
        ['put', '/policy', { sessions: [{ kind: 'a', opens: ['x y'], required: [] }] }, 'sessions.0.opens.0'],
        [
          'put',
          '/policy',
          { sessions: ['a', 'a'].map((kind) => ({ kind, opens: ['x'], required: [] })) },
          'sessions',
        ],
        ['post', '/labels', {}, 'session'],
        ['post', '/labels', { session: 'a', says: 'maybe' }, 'says'],
        ['post', '/labels', { session: 'a', says: 'violated', call: 'x' }, 'call'],
        ['post', '/labels', { session: 'a', says: 'violated', cal: CALL }, 'cal'],
        ['post', '/exports', { sessions: [] }, 'sessions'],
        ['post', '/exports', { sessions: ['../x'] }, 'sessions.0'],
        ['post', '/exports', { period: { from, to: from } }, 'period.to'],
        ['post', '/exports', { period: { from: 'x', to: from } }, 'period.from'],
        ['post', '/exports', { session: ['a'] }, 'session'],
        ['post', '/webhooks', { url: 'https://a.example', events: [] }, 'events'],
        ['post', '/webhooks', { url: 'https://a.example', events: ['all'] }, 'events.0'],
        ['post', '/webhooks', { events: ['session.settled'] }, 'url'],
        ['post', '/webhooks', { url: 'example.org', events: ['session.settled'] }, 'url'],
        ['post', '/webhooks', { url: 'ftp://a.example', events: ['session.settled'] }, 'url'],
        ['post', '/webhooks', { url: 'https://u:p@a.example', events: ['session.settled'] }, 'url'],
        ['post', '/webhooks', { url: 'https://a.example/#x', events: ['session.settled'] }, 'url'],
        [
          'post',
          '/webhooks',
          { url: `https://a.example/${'x'.repeat(2048)}`, events: ['session.settled'] },
          'url',
        ],
      ];
      it.each(bodies)('%s %s %j, is refused by the name of the field', async (method, path, body, field) => {
        const isAdmins = path === '/policy' || path === '/webhooks';
        const asked = isAdmins
          ? acme.asAdmin(method, acme.path(path))
          : acme.asAuditor(method, acme.path(path));
        await refusal(asked.send(body), 400, 'invalid', field);
      });

      it('names nothing', async () => {
        for (const path of [
          '/sessions/nobody',
          '/sessions/a%2fb',
          '/statements/sha256:0',
          `/statements/sha256:${'0'.repeat(64)}`,
          '/coverage?sink=nobody',
          '/coverage?session=nobody',
          '/exports/exp_x',
          '/exports/exp_01jd0000000000000000000000/file',
        ]) {
          await refusal(acme.asAuditor('get', acme.path(path)), 404, 'not_found');
        }
        await refusal(acme.asAdmin('delete', acme.path('/webhooks/whk_x')), 404, 'not_found');
        await refusal(acme.asAdmin('get', acme.path('/webhooks/whk_x/deliveries')), 404, 'not_found');
      });
    });

    describe('the process', () => {
      it('is healthy, ready, measured and documented', async () => {
        const open = (path: string) => as(service, undefined, 'get', path);
        expect((await open('/healthz').expect(200)).body).toEqual({ status: 'ok' });
        expect((await open('/readyz').expect(200)).body).toEqual({ status: 'ok' });
        expect((await open('/.well-known/belay').expect(200)).body).toMatchObject({
          service: 'belay',
          api: ['v1'],
        });
        const metrics = (await open('/metrics').expect(200)).text;
        expect(metrics).toMatch(/belay_append_lines_total\{disposition="appended"\} [1-9]/);
        expect(metrics).not.toMatch(/(ten|prj|tok|log)_[0-9a-z]{26}/);
        expect((await open('/docs').expect(200)).text).toContain('swagger');
        expect((await open('/docs-json').expect(200)).body).toMatchObject({ openapi: '3.1.0' });
        await refusal(open('/v1/nothing'), 404, 'not_found');
        await refusal(open('/%'), 400, 'invalid');
      });

      it('logs every request and no secret', async () => {
        const { token, auditor } = acme.project;
        const secrets = [service.operatorKey, acme.admin, token.credential, auditor.credential];
        for (const secret of secrets) {
          await as(service, secret, 'get', `/v1/receipts/${secret}`);
          await as(service, undefined, 'get', `/v1/${secret}?token=${secret}`);
          await as(service, secret, 'post', '/v1/projects')
            .set('content-type', 'application/json')
            .send(`{"${secret}`);
        }
        const logs = service.logs();
        expect(logs.split('\n').filter((line) => line.includes('"msg":"request"')).length).toBeGreaterThan(
          50,
        );
        for (const secret of secrets) expect(logs).not.toContain(secret.slice(-40));
        expect(logs).not.toMatch(/belay_(operator|admin|append|auditor)_[A-Za-z0-9]{8}/);
      });
    });
  });
}
