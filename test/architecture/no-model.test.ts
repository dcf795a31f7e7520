import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { loads } from './rules.js';
import { readTree } from './tree.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const tree = readTree(root);

/** Libraries that run a model, or ask a service that does. */
const INFERENCE =
  /^(?:openai|ollama|llamaindex|langchain|ai|replicate|groq-sdk|cohere-ai|together-ai|gpt-tokenizer|tiktoken|js-tiktoken|node-llama-cpp|brain\.js|natural|compromise|@anthropic-ai\/|@google\/gen|@google-ai\/|@google-cloud\/vertexai|@langchain\/|@llamaindex\/|@huggingface\/|@xenova\/|@mistralai\/|@ai-sdk\/|@aws-sdk\/client-bedrock|@azure\/openai|@azure-rest\/ai-|@modelcontextprotocol\/|@tensorflow|onnxruntime|@mlc-ai\/|llamafile|llm)/;

interface Lock {
  readonly packages: Readonly<
    Record<
      string,
      {
        readonly dependencies?: Record<string, string>;
        readonly optionalDependencies?: Record<string, string>;
      }
    >
  >;
}
const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as Lock;

/** Packages that a package brings along, itself among them; by name, wherever they are installed. */
function closure(names: Iterable<string>): Set<string> {
  const found = new Set<string>();
  const waiting = [...names];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (found.has(name)) continue;
    found.add(name);
    for (const [path, each] of Object.entries(lock.packages)) {
      if (!path.endsWith(`node_modules/${name}`)) continue;
      waiting.push(...Object.keys({ ...each.dependencies, ...each.optionalDependencies }));
    }
  }
  return found;
}

const foreign = (entry: string): Set<string> =>
  closure([...loads(tree, entry, true)].filter((name) => !name.startsWith('node:')));

describe('no model is asked', () => {
  it.each([
    'apps/belay/src/verify.ts',
    'libs/verdict/src/index.ts',
    'libs/replay/src/index.ts',
    'libs/invariant/src/index.ts',
    'libs/snapshot/src/index.ts',
    'libs/sandbox/src/index.ts',
  ])('%s reaches no library that could, lazily or not', (entry) => {
    expect(tree.modules.has(entry)).toBe(true);
    expect([...foreign(entry)].filter((name) => INFERENCE.test(name))).toEqual([]);
  });

  it('the list would tell: it knows such libraries, and the walk sees what is reached', () => {
    for (const name of [
      'openai',
      '@anthropic-ai/sdk',
      '@langchain/core',
      'onnxruntime-node',
      '@huggingface/transformers',
    ]) {
      expect(name).toMatch(INFERENCE);
    }
    expect([...foreign('apps/belay/src/verify.ts')]).toEqual(
      expect.arrayContaining(['commander', 'koffi', 'web-tree-sitter', 'yaml']),
    );
  });
});
