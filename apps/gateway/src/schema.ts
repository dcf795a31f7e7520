import { applyDecorators, type ArgumentMetadata, type PipeTransform } from '@nestjs/common';
import {
  ApiBearerAuth,
  ApiBody,
  ApiConsumes,
  ApiHeader,
  ApiOperation,
  ApiParam,
  ApiQuery,
  ApiResponse,
} from '@nestjs/swagger';
import { problem } from '@belay/contracts/http';
import { z } from 'zod';
import { ProblemError } from './problem.js';

/** Checks a JSON body against its schema; the first thing wrong is named with its path. */
export class Checked<Schema extends z.ZodType> implements PipeTransform<unknown, z.output<Schema>> {
  readonly #schema: Schema;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  transform(value: unknown, _metadata: ArgumentMetadata): z.output<Schema> {
    const result = this.#schema.safeParse(value ?? {});
    if (result.success) return result.data;
    const [issue] = result.error.issues;
    const field = issue?.code === 'unrecognized_keys' ? issue.keys[0] : issue?.path.join('.');
    throw new ProblemError('invalid', issue?.message ?? 'The body is not what is taken here.', { field });
  }
}

interface Description {
  readonly summary: string;
  readonly body?: z.ZodType;
  /** A body that is no JSON, by its media type. */
  readonly raw?: string;
  readonly status?: number;
  /** A schema for JSON, or the media types of anything else. */
  readonly answer?: z.ZodType | readonly string[];
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** Callable without a credential. */
  readonly open?: boolean;
}

const schemaOf = (schema: z.ZodType, io: 'input' | 'output') => {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io });
  return rest as Record<string, unknown>;
};

const PROBLEM = { 'application/problem+json': { schema: schemaOf(problem, 'output') } };

/** One operation in the OpenAPI document. */
export function Describe(operation: Description): MethodDecorator {
  const {
    summary,
    body,
    raw,
    status = 200,
    answer,
    params = {},
    query = {},
    headers = {},
    open = false,
  } = operation;
  const content =
    answer === undefined
      ? undefined
      : answer instanceof z.ZodType
        ? { 'application/json': { schema: schemaOf(answer, 'output') } }
        : Object.fromEntries(answer.map((type) => [type, { schema: { type: 'string' } }]));
  return applyDecorators(
    ApiOperation({ summary }),
    ...(open ? [] : [ApiBearerAuth()]),
    ...(body ? [ApiBody({ schema: schemaOf(body, 'input') })] : []),
    ...(raw ? [ApiConsumes(raw), ApiBody({ schema: { type: 'string' } })] : []),
    ...Object.entries(params).map(([name, description]) =>
      ApiParam({ name, description, schema: { type: 'string' } }),
    ),
    ...Object.entries(query).map(([name, description]) =>
      ApiQuery({ name, description, required: false, schema: { type: 'string' } }),
    ),
    ...Object.entries(headers).map(([name, description]) =>
      ApiHeader({ name, description, required: false, schema: { type: 'string' } }),
    ),
    ApiResponse({ status, description: 'As asked.', ...(content && { content }) }),
    ApiResponse({ status: 'default', description: 'Problem details (RFC 9457).', content: PROBLEM }),
  );
}
