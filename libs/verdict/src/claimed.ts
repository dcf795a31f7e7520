/** What an answer of a known shape says is there now. */

/**
 * Lines by which servers tell that they put something at an absolute path. Whole lines only: a path that a text speaks
 * of in passing is no claim.
 */
const SHAPES: readonly RegExp[] = [
  /^(?:Successfully )?(?:wrote|written|saved|created|updated)(?: \d+ (?:bytes|characters|lines))?(?: to)?(?: (?:the )?(?:new )?(?:file|directory|folder))?:? ["'`]?(?<path>\/[^"'`]+?)["'`]?\.?$/i,
  /^(?:The )?(?:file|directory|folder) ["'`]?(?<path>\/[^"'`]+?)["'`]? (?:was |has been )?(?:successfully )?(?:written|saved|created|updated)(?: successfully)?\.?$/i,
  /^(?:Successfully )?(?:moved|renamed|copied) ["'`]?\/[^"'`]+?["'`]? to ["'`]?(?<path>\/[^"'`]+?)["'`]?\.?$/i,
];

/** Longer lines are no short word of success. */
const MAX_LINE = 5_000;
const MAX_LINES = 100;

interface ToolResult {
  readonly isError?: unknown;
  readonly content?: unknown;
}

/** Absolute paths that a successful answer says it wrote, made or moved something to; `answer` has `result` or `error`. */
export function claimedPaths(answer: unknown): readonly string[] {
  const { result } = (answer ?? {}) as { readonly result?: ToolResult | null };
  if (result === undefined || result === null || result.isError === true || !Array.isArray(result.content))
    return [];
  return (result.content as readonly { readonly text?: unknown }[]).flatMap(({ text }) =>
    typeof text !== 'string'
      ? []
      : text
          .split('\n', MAX_LINES)
          .filter((line) => line.length <= MAX_LINE)
          .flatMap((line) => {
            const found = SHAPES.map((shape) => shape.exec(line.trim())?.groups?.['path']);
            return found.find((path) => path !== undefined) ?? [];
          }),
  );
}
