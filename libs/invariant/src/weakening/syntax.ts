/**
 * Syntax trees as plain values. A tree of tree-sitter lives in WebAssembly memory and has to be freed; what leaves this
 * file is a copy that the rest of the library may keep.
 */

import { createRequire } from 'node:module';
import { Language as Grammar, Parser, type TreeCursor } from 'web-tree-sitter';

/** Grammars; `tsx` is the one for TypeScript with JSX in it. */
export type GrammarName = 'python' | 'typescript' | 'tsx' | 'javascript' | 'go' | 'rust' | 'java';

export interface Syntax {
  readonly type: string;
  /** False for punctuation and keywords. */
  readonly named: boolean;
  /** The name of the field of its parent that it is, if it is one. */
  readonly field: string | undefined;
  readonly text: string;
  /** Counted from 1. */
  readonly line: number;
  readonly endLine: number;
  readonly children: readonly Syntax[];
}

/** Why there is no tree. */
export type NoTree = 'too-large' | 'too-slow' | 'too-deep';

export interface Parsed {
  readonly root: Syntax;
  /** Lines on which the text is not of the language. */
  readonly errors: readonly number[];
}

/** Bounds of one parse. Beyond them nothing is guessed: there is no tree. */
export interface ParseLimits {
  /** Characters of one file. */
  readonly size: number;
  /** Steps of the parser, of about 100 tokens each: the same on every machine, unlike time. */
  readonly steps: number;
  readonly depth: number;
  readonly nodes: number;
}

export const PARSE_LIMITS: ParseLimits = { size: 1_000_000, steps: 20_000, depth: 600, nodes: 1_000_000 };

const require = createRequire(import.meta.url);

const FILES: Readonly<Record<GrammarName, () => string>> = {
  python: () => require.resolve('tree-sitter-python/tree-sitter-python.wasm'),
  typescript: () => require.resolve('tree-sitter-typescript/tree-sitter-typescript.wasm'),
  tsx: () => require.resolve('tree-sitter-typescript/tree-sitter-tsx.wasm'),
  javascript: () => require.resolve('tree-sitter-javascript/tree-sitter-javascript.wasm'),
  go: () => require.resolve('tree-sitter-go/tree-sitter-go.wasm'),
  rust: () => require.resolve('tree-sitter-rust/tree-sitter-rust.wasm'),
  java: () => require.resolve('tree-sitter-java/tree-sitter-java.wasm'),
};

let runtime: Promise<void> | undefined;
const parsers = new Map<GrammarName, Promise<Parser>>();

/** The parser of a grammar: loaded when first asked for, once per process. */
export async function parserFor(
  name: GrammarName,
): Promise<(text: string, limits?: ParseLimits) => Parsed | NoTree> {
  runtime ??= Parser.init();
  await runtime;
  let loading = parsers.get(name);
  if (!loading) {
    loading = Grammar.load(FILES[name]()).then((grammar) => new Parser().setLanguage(grammar));
    parsers.set(name, loading);
  }
  const parser = await loading;
  return (text, limits = PARSE_LIMITS) => parse(parser, text, limits);
}

function parse(parser: Parser, text: string, limits: ParseLimits): Parsed | NoTree {
  if (text.length > limits.size) return 'too-large';
  let steps = 0;
  // What a parse that was stopped had begun would be gone on with by the next one.
  parser.reset();
  const tree = parser.parse(text, null, { progressCallback: () => ++steps > limits.steps });
  if (!tree) {
    parser.reset();
    return 'too-slow';
  }
  try {
    return copied(tree.walk(), text, limits);
  } finally {
    tree.delete();
  }
}

class Node implements Syntax {
  readonly type: string;
  readonly named: boolean;
  readonly field: string | undefined;
  readonly line: number;
  readonly endLine: number;
  readonly children: Node[] = [];
  readonly #source: string;
  readonly #start: number;
  readonly #end: number;

  constructor(cursor: TreeCursor, source: string) {
    this.type = cursor.nodeType;
    this.named = cursor.nodeIsNamed;
    this.field = cursor.currentFieldName ?? undefined;
    this.line = cursor.startPosition.row + 1;
    this.endLine = cursor.endPosition.row + 1;
    this.#source = source;
    this.#start = cursor.startIndex;
    this.#end = cursor.endIndex;
  }

  get text(): string {
    return this.#source.slice(this.#start, this.#end);
  }
}

function copied(cursor: TreeCursor, source: string, limits: ParseLimits): Parsed | NoTree {
  try {
    const errors: number[] = [];
    const root = new Node(cursor, source);
    const open = [root];
    let nodes = 1;
    for (;;) {
      const parent = open.at(-1) as Node;
      if (parent.type === 'ERROR' || cursor.nodeIsMissing) errors.push(parent.line);
      if (cursor.gotoFirstChild()) {
        if (open.length > limits.depth) return 'too-deep';
      } else {
        for (;;) {
          open.pop();
          if (open.length === 0) return { root, errors };
          if (cursor.gotoNextSibling()) break;
          cursor.gotoParent();
        }
      }
      if (++nodes > limits.nodes) return 'too-large';
      const node = new Node(cursor, source);
      (open.at(-1) as Node).children.push(node);
      open.push(node);
    }
  } finally {
    cursor.delete();
  }
}

/** The child that is this field. */
export const field = (node: Syntax, name: string): Syntax | undefined =>
  node.children.find((child) => child.field === name);

export const fields = (node: Syntax, name: string): Syntax[] =>
  node.children.filter((child) => child.field === name);

/** Named children, comments left out. */
export const named = (node: Syntax): Syntax[] =>
  node.children.filter((child) => child.named && !isComment(child));

export const ofType = (node: Syntax, ...types: string[]): Syntax[] =>
  node.children.filter((child) => types.includes(child.type));

const isComment = (node: Syntax): boolean => /comment/.test(node.type);
