/** The `sandbox` section of a policy file, as JSON Schema; the reader checks files against this very object. */

/** What of JSON Schema is used here, and no more. */
export interface Schema {
  readonly $schema?: string;
  readonly title?: string;
  readonly description?: string;
  readonly type?: 'object' | 'array' | 'string' | 'integer';
  readonly enum?: readonly (string | number)[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: false;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly pattern?: string;
  readonly anyOf?: readonly Schema[];
}

const PATH: Schema = {
  type: 'string',
  minLength: 1,
  description: 'absolute, ~/..., or relative to the file',
};
const PATHS: Schema = { type: 'array', items: PATH, maxItems: 1024 };
const SIZE: Schema = {
  anyOf: [
    { type: 'integer', minimum: 1 },
    { type: 'string', pattern: '^[1-9][0-9]{0,12}(KiB|MiB|GiB)$' },
  ],
  description: 'bytes, or such as 512MiB',
};

export const POLICY_SCHEMA = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Belay sandbox policy',
  type: 'object',
  additionalProperties: false,
  properties: {
    backend: { enum: ['auto', 'bwrap', 'landlock', 'seatbelt', 'none'], description: 'what enforces' },
    profile: { enum: ['default', 'strict'], description: 'strict also refuses unix sockets' },
    roots: { ...PATHS, description: 'folders that may be written' },
    binds: {
      type: 'array',
      maxItems: 64,
      items: {
        type: 'object',
        additionalProperties: false,
        required: ['from', 'to'],
        properties: { from: PATH, to: PATH },
      },
    },
    hide: { ...PATHS, description: 'can be neither read nor written' },
    show: { ...PATHS, description: 'of what is hidden anyway: to be seen after all' },
    network: { enum: ['deny', 'loopback', 'ports', 'allow'] },
    ports: {
      type: 'array',
      minItems: 1,
      maxItems: 64,
      items: { type: 'integer', minimum: 1, maximum: 65_535 },
      description: "with network: ports - TCP ports of this machine's loopback",
    },
    limits: {
      type: 'object',
      additionalProperties: false,
      properties: {
        memory: SIZE,
        processes: { type: 'integer', minimum: 1 },
        cpu: { type: 'integer', minimum: 1, description: 'seconds of processor time' },
        fileSize: SIZE,
      },
    },
    denials: { enum: ['named', 'off'] },
  },
} as const satisfies Schema;
