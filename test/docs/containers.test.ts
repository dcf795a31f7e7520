import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Script } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';

const root = fileURLToPath(new URL('../..', import.meta.url));
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const PROCESSES = ['gateway', 'collector', 'worker'] as const;

interface Instruction {
  readonly name: string;
  readonly value: string;
  readonly line: number;
}

/** Docker's own list; anything else would be a typo that only `docker build` finds. */
const KNOWN =
  'ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL ONBUILD RUN SHELL STOPSIGNAL USER VOLUME WORKDIR'.split(
    ' ',
  );

/** A strict reader of the part of the Dockerfile syntax we use: one instruction per logical line, known names. */
function parseDockerfile(text: string): Instruction[] {
  const instructions: Instruction[] = [];
  const lines = text.split('\n');
  for (let i = 0; i < lines.length; i++) {
    const line = i + 1;
    let logical = (lines[i] ?? '').trim();
    if (logical === '' || logical.startsWith('#')) continue;
    while (logical.endsWith('\\')) {
      i++;
      const next = lines[i]?.trim();
      if (next === undefined || next === '')
        throw new Error(`line ${line}: continued by nothing: ${logical}`);
      logical = `${logical.slice(0, -1).trimEnd()} ${next}`;
    }
    const [, name = '', value = ''] = /^(\S+)\s*(.*)$/.exec(logical) ?? [];
    if (!KNOWN.includes(name)) throw new Error(`line ${line}: no instruction ${name}`);
    if (value === '') throw new Error(`line ${line}: ${name} of nothing`);
    instructions.push({ name, value, line });
  }
  if (instructions[0]?.name !== 'FROM' && instructions[0]?.name !== 'ARG')
    throw new Error('starts without FROM');
  return instructions;
}

/** Instructions of the last stage, the one that is run. */
const finalStage = (all: Instruction[]): Instruction[] =>
  all.slice(all.map(({ name }) => name).lastIndexOf('FROM'));

function execForm(value: string): string[] {
  const parsed: unknown = JSON.parse(value);
  if (!Array.isArray(parsed) || !parsed.every((each) => typeof each === 'string')) {
    throw new Error(`not in exec form: ${value}`);
  }
  return parsed;
}

describe.each(PROCESSES)('infra/Dockerfile.%s', (app) => {
  const all = parseDockerfile(read(`infra/Dockerfile.${app}`));
  const last = finalStage(all);
  const one = (name: string): string => {
    const found = last.filter((each) => each.name === name);
    expect(found, `exactly one ${name} in the final stage`).toHaveLength(1);
    return found[0]?.value ?? '';
  };

  it('is built in stages, each copied from by the name it has', () => {
    const stages = all.flatMap(({ name, value }) =>
      name === 'FROM' ? [/ AS (\S+)$/.exec(value)?.[1] ?? ''] : [],
    );
    expect(stages.length).toBeGreaterThan(1);
    const copiedFrom = all.flatMap(({ name, value }) =>
      name === 'COPY' ? [...value.matchAll(/--from=(\S+)/g)].map((match) => match[1] ?? '') : [],
    );
    for (const stage of copiedFrom) expect(stages).toContain(stage);
  });

  it('copies only what the repository has', () => {
    for (const { name, value } of all) {
      if (name !== 'COPY' || value.includes('--from=')) continue;
      for (const path of value.split(/\s+/).slice(0, -1))
        expect(existsSync(join(root, path)), path).toBe(true);
    }
  });

  it('runs as an ordinary user, chosen after everything that needs root', () => {
    expect(one('USER')).toBe('node');
    const user = last.findIndex(({ name }) => name === 'USER');
    expect(last.slice(user).map(({ name }) => name)).not.toContain('RUN');
  });

  it('is run and checked without a shell', () => {
    expect(execForm(one('CMD'))).toEqual(['node', `apps/${app}/dist/main.js`]);
    expect(existsSync(join(root, `apps/${app}/src/main.ts`))).toBe(true);
    const [options = '', command = ''] = one('HEALTHCHECK').split(/ CMD /);
    expect(options).toMatch(/--interval=\S+ --timeout=\S+ --start-period=\S+ --retries=\d+/);
    const probe = execForm(command);
    expect(probe.slice(0, 2)).toEqual(['node', '-e']);
    // Node itself judges whether the probe is a program.
    expect(() => new Script(probe[2] ?? '')).not.toThrow();
  });

  it('carries no secret', () => {
    for (const { name, value } of all) {
      if (name === 'ENV' || name === 'ARG') expect(value).not.toMatch(/pass|secret|token|key/i);
    }
  });
});

it('the checker of Dockerfiles refuses what Docker would', () => {
  expect(() => parseDockerfile('FROM a\nRUNN b\n')).toThrow(/no instruction RUNN/);
  expect(() => parseDockerfile('FROM a\nRUN b \\\n\n')).toThrow(/continued by nothing/);
  expect(() => parseDockerfile('RUN b\n')).toThrow(/without FROM/);
  expect(() => parseDockerfile('FROM a\nUSER\n')).toThrow(/USER of nothing/);
  expect(() => execForm('node main.js')).toThrow();
});

interface Service {
  image?: string;
  build?: { context: string; dockerfile: string };
  environment?: Record<string, string>;
  command?: string[];
  volumes?: string[];
  tmpfs?: string[];
  ports?: string[];
  networks: string[];
  read_only?: boolean;
  cap_drop?: string[];
  security_opt?: string[];
  healthcheck?: { test: string[]; interval: string; timeout: string; retries: number };
  depends_on?: Record<string, { condition: string }>;
}

interface Compose {
  services: Record<string, Service>;
  networks: Record<string, { internal?: boolean }>;
  volumes: Record<string, unknown>;
}

describe('docker-compose.yml', () => {
  const text = read('docker-compose.yml');
  const compose = parse(text, { merge: true, strict: true }) as Compose;
  const services = Object.entries(compose.services);

  it('has the three processes and what they stand on', () => {
    expect(Object.keys(compose.services).sort()).toEqual(['postgres', 'redis', 'nats', ...PROCESSES].sort());
  });

  it.each(services)('%s is checked for health, runs on a read-only file system', (name, service) => {
    // The processes have their HEALTHCHECK in the image.
    if (!service.build) expect(service.healthcheck?.test[0]).toBe('CMD');
    expect(service.read_only).toBe(true);
    expect(Boolean(service.image) !== Boolean(service.build)).toBe(true);
    if (service.build) {
      expect(existsSync(join(root, service.build.context, service.build.dockerfile))).toBe(true);
      expect(service.build.dockerfile).toBe(`infra/Dockerfile.${name}`);
      expect(service.cap_drop).toEqual(['ALL']);
      expect(service.security_opt).toEqual(['no-new-privileges:true']);
    } else expect(service.image).toMatch(/:.+/);
  });

  it('refers only to services, networks and volumes it has; waits for health, not for start', () => {
    for (const [, service] of services) {
      for (const network of service.networks) expect(compose.networks).toHaveProperty(network);
      for (const volume of service.volumes ?? []) {
        const [source = ''] = volume.split(':');
        if (source.startsWith('.')) expect(existsSync(join(root, source))).toBe(true);
        else expect(compose.volumes).toHaveProperty(source);
      }
      for (const [needed, { condition }] of Object.entries(service.depends_on ?? {})) {
        expect(compose.services).toHaveProperty(needed);
        expect(condition).toBe('service_healthy');
      }
    }
    const used = services.flatMap(([, { volumes = [] }]) => volumes.map((each) => each.split(':')[0]));
    for (const volume of Object.keys(compose.volumes)) expect(used).toContain(volume);
  });

  it('has one folder of exports, which the worker writes and the gateway reads', () => {
    const { gateway, worker } = Object.fromEntries(services);
    expect(gateway?.environment?.['EXPORT_DIR']).toBe(worker?.environment?.['EXPORT_DIR']);
    expect(gateway?.volumes).toEqual(['exports:/exports:ro']);
    expect(worker?.volumes).toEqual(['exports:/exports']);
  });

  it('lets only the gateway be reached, and only from this host; only the worker goes out beside it', () => {
    for (const [name, service] of services) {
      if (name === 'gateway') {
        expect(service.ports?.every((port) => port.startsWith('127.0.0.1:'))).toBe(true);
      } else {
        expect(service.ports).toBeUndefined();
        expect(service.networks).toEqual(name === 'worker' ? ['inner', 'edge'] : ['inner']);
      }
    }
    expect(compose.networks.inner).toEqual({ internal: true });
  });

  it('holds no secret: every password is a variable that must be set', () => {
    for (const [name, value] of services.flatMap(([, { environment = {} }]) => Object.entries(environment))) {
      if (/PASSWORD|SECRET|PASSPHRASE|TOKEN/.test(name)) expect(value).toMatch(/^\$\{[A-Z_]+:?[?-]/);
      const inUrl = /:\/\/[^:@/]+:(.*)@/.exec(value)?.[1];
      if (inUrl !== undefined) expect(inUrl).toMatch(/^\$\{[A-Z_]+:\?/);
    }
    expect(text).not.toMatch(/belay_(operator|admin|append|auditor)_/);
  });
});

describe('infra/nats.conf', () => {
  it('takes payloads of 8 MB and is what compose mounts', () => {
    const settings = new Map(
      read('infra/nats.conf')
        .split('\n')
        .filter((line) => line.trim() !== '' && !line.startsWith('#'))
        .map((line) => {
          const [, name, value] = /^([a-z_]+): (.+)$/.exec(line) ?? [];
          if (name === undefined || value === undefined) throw new Error(`not a setting: ${line}`);
          return [name, value] as const;
        }),
    );
    expect(settings.get('max_payload')).toBe('8MB');
    expect(read('docker-compose.yml')).toContain('./infra/nats.conf:');
  });

  it('is accepted by the real nats-server', () => {
    const { status, stderr } = spawnSync('nats-server', ['-t', '-c', join(root, 'infra/nats.conf')], {
      encoding: 'utf8',
    });
    expect({ status, stderr }).toMatchObject({ status: 0 });
  });
});

it('every file in infra is looked at by some test or is a script', () => {
  const files = readdirSync(join(root, 'infra'));
  expect(files.sort()).toEqual(
    // The second verifier is held to the first one in test/conformance.
    ['nats.conf', 'scripts', 'verifier', ...PROCESSES.map((app) => `Dockerfile.${app}`)].sort(),
  );
});
