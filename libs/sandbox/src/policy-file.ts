/** A policy as people write it: the `sandbox` section of a YAML or JSON file. */

import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import type { Document, Node } from 'yaml';
import { SandboxError } from './error.js';
import type { Limits, Network, SandboxPolicy } from './policy.js';
import { POLICY_SCHEMA, type Schema } from './policy-schema.js';

/** A larger file is no policy. */
const MAX_BYTES = 1024 * 1024;

export interface PolicyFileOptions {
  /** Path of the file: what is relative in it is relative to its folder. */
  readonly file: string;
  /** What `~` stands for. */
  readonly home: string;
  /** Names of sections that belong to somebody else. */
  readonly others: readonly string[];
}

type Path = readonly (string | number)[];

/**
 * What the file says; what it does not say is absent. Throws SandboxError POLICY_INVALID with the line of the first
 * thing that is wrong. JSON is YAML, so one reader reads both.
 */
export function readPolicyFile(
  text: string,
  { file, home, others }: PolicyFileOptions,
): Partial<SandboxPolicy> {
  if (text.length > MAX_BYTES) throw invalid('the file is too large for a policy', 1);
  // Loaded here only: most runs have no policy file, and all start faster without it.
  const yaml = createRequire(import.meta.url)('yaml') as typeof import('yaml');
  const { LineCounter, parseDocument } = yaml;
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true, maxAliasCount: 0 } as never);
  const [fault] = document.errors;
  if (fault !== undefined) throw invalid(firstLine(fault.message), lines.linePos(fault.pos[0]).line);
  const lineOf = (path: Path): number => lines.linePos(offsetOf(yaml, document, path)).line;
  let value: unknown;
  try {
    value = document.toJS({ maxAliasCount: 0 });
  } catch (error) {
    throw invalid(`aliases are not understood here (${(error as Error).message})`, 1);
  }
  const [wrong] = faultsOf(value, fileSchema(others), []);
  if (wrong !== undefined) throw invalid(`${nameOf(wrong.path)}${wrong.message}`, lineOf(wrong.path));
  const section = (value as { readonly sandbox?: Section }).sandbox ?? {};
  if (section.network !== 'ports' && section.ports !== undefined)
    throw invalid('ports: only with network: ports', lineOf(['sandbox', 'ports']));
  if (section.network === 'ports' && section.ports === undefined)
    throw invalid('network: ports needs ports', lineOf(['sandbox', 'network']));
  return policyOf(section, (path) =>
    path === '~' || path.startsWith('~/') ? join(home, path.slice(1)) : resolve(dirname(file), path),
  );
}

/** A section that the schema has let through. */
interface Section {
  readonly backend?: SandboxPolicy['backend'];
  readonly profile?: SandboxPolicy['profile'];
  readonly roots?: readonly string[];
  readonly binds?: SandboxPolicy['binds'];
  readonly hide?: readonly string[];
  readonly show?: readonly string[];
  readonly network?: Network['mode'];
  readonly ports?: readonly number[];
  readonly limits?: Readonly<Record<keyof Limits, number | string | undefined>>;
  readonly denials?: SandboxPolicy['denials'];
}

function policyOf(section: Section, place: (path: string) => string): Partial<SandboxPolicy> {
  const { backend, profile, roots, binds, hide, show, network, ports = [], limits, denials } = section;
  const said = {
    backend,
    profile,
    roots: roots?.map(place),
    binds: binds?.map(({ from, to }) => ({ from: place(from), to: place(to) })),
    hide: hide?.map(place),
    show: show?.map(place),
    network: network === 'ports' ? { mode: network, ports } : network && { mode: network },
    limits: limits && {
      memory: sizeOf(limits.memory),
      processes: sizeOf(limits.processes),
      cpu: sizeOf(limits.cpu),
      fileSize: sizeOf(limits.fileSize),
    },
    denials,
  };
  return Object.fromEntries(Object.entries(said).filter(([, value]) => value !== undefined));
}

const UNITS: Readonly<Record<string, number>> = { KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

function sizeOf(value: number | string | undefined): number | undefined {
  if (typeof value !== 'string') return value;
  const [, count, unit] = /^(\d+)([KMG]iB)$/.exec(value) as unknown as [string, string, string];
  return Number(count) * (UNITS[unit] as number);
}

/** `version` says how to read it; each other member is a section of somebody's. */
function fileSchema(others: readonly string[]): Schema {
  return {
    type: 'object',
    additionalProperties: false,
    required: ['version'],
    properties: {
      version: { enum: [1] },
      ...Object.fromEntries(others.map((name) => [name, {}])),
      sandbox: POLICY_SCHEMA,
    },
  };
}

interface Fault {
  readonly path: Path;
  readonly message: string;
}

/** What of `value` is not as the schema says, from the top. */
function faultsOf(value: unknown, schema: Schema, path: Path): Fault[] {
  const wrong = (message: string, at: Path = path): Fault[] => [{ path: at, message }];
  if (schema.anyOf !== undefined) {
    return schema.anyOf.some((each) => faultsOf(value, each, path).length === 0)
      ? []
      : wrong(schema.description ?? 'is of no form that is known');
  }
  if (schema.enum !== undefined && !schema.enum.includes(value as string | number))
    return wrong(`one of ${schema.enum.join(', ')}`);
  switch (schema.type) {
    case 'string':
      if (typeof value !== 'string') return wrong('a text is wanted');
      if (value.length < (schema.minLength ?? 0)) return wrong('may not be empty');
      return schema.pattern !== undefined && !new RegExp(schema.pattern).test(value)
        ? wrong(`is not like ${schema.pattern}`)
        : [];
    case 'integer':
      if (!Number.isSafeInteger(value)) return wrong('a whole number is wanted');
      if ((value as number) < (schema.minimum ?? -Infinity)) return wrong(`at least ${schema.minimum}`);
      return (value as number) > (schema.maximum ?? Infinity) ? wrong(`at most ${schema.maximum}`) : [];
    case 'array': {
      if (!Array.isArray(value)) return wrong('a list is wanted');
      if (value.length < (schema.minItems ?? 0)) return wrong(`at least ${schema.minItems} entries`);
      if (value.length > (schema.maxItems ?? Infinity)) return wrong(`at most ${schema.maxItems} entries`);
      const { items } = schema;
      return items === undefined ? [] : value.flatMap((each, at) => faultsOf(each, items, [...path, at]));
    }
    case 'object': {
      if (typeof value !== 'object' || value === null || Array.isArray(value))
        return wrong('members are wanted');
      const properties = schema.properties ?? {};
      const members = Object.entries(value);
      const missing = (schema.required ?? []).filter((name) => !Object.hasOwn(value, name));
      return [
        ...missing.map((name) => ({ path, message: `${name} is missing` })),
        ...members.flatMap(([name, each]) =>
          Object.hasOwn(properties, name)
            ? faultsOf(each, properties[name] as Schema, [...path, name])
            : wrong('there is no such member', [...path, name]),
        ),
      ];
    }
    default:
      return [];
  }
}

/** Where in the text something stands: a member by its name, an entry by its beginning. */
function offsetOf({ isMap, isPair, isSeq }: typeof import('yaml'), document: Document, path: Path): number {
  let node: unknown = document.contents;
  let offset = document.contents?.range?.[0] ?? 0;
  for (const step of path) {
    if (isMap(node)) {
      const pair: unknown = node.items.find(
        (each) => (each.key as { readonly value?: unknown } | null)?.value === step,
      );
      if (!isPair(pair)) return offset;
      offset = (pair.key as Node | null)?.range?.[0] ?? offset;
      node = pair.value;
    } else if (isSeq(node)) {
      node = node.items[step as number];
      offset = (node as Node | null)?.range?.[0] ?? offset;
    } else return offset;
  }
  return offset;
}

const nameOf = (path: Path): string => (path.length === 0 ? '' : `${path.join('.')}: `);

const firstLine = (text: string): string => (text.split('\n')[0] as string).replace(/ at line \d+.*$/, '');

const invalid = (message: string, line: number): SandboxError =>
  new SandboxError('POLICY_INVALID', message, { line });
