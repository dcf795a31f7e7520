import type { Frame } from '@belay/mcp';

/** What JSON-RPC needs of a message, and whom a reader has to know it by (libs/trace/FORMAT.md, section 6). */
const PATHS = [
  'jsonrpc',
  'id',
  'method',
  'params.name',
  'params.uri',
  'result',
  'error',
  'error.code',
  'result.isError',
];

/** What a trace keeps of a frame that was too large to keep; undefined for one that is kept whole. */
export function skimmedOf({ skimmed }: Frame): Readonly<Record<string, string>> | undefined {
  if (skimmed === undefined || skimmed.isArray) return undefined;
  const { scalars } = skimmed;
  return Object.fromEntries(
    PATHS.flatMap((path) => (scalars.has(path) ? [[path, scalars.get(path) ?? '']] : [])),
  );
}
