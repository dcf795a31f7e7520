/**
 * Reads every TypeScript and JavaScript module of the repository and says what each imports and which globals it
 * touches, by the syntax tree TypeScript itself builds. The rules in `rules.ts` work on this and on nothing else, so
 * a fixture can put one wrong line into an otherwise real tree and see it caught.
 */

import { readFileSync, readdirSync } from 'node:fs';
import { join, posix } from 'node:path';
import ts from 'typescript';

export interface Import {
  /** As written: `./tree.js`, `node:fs`, `@belay/merkle`, `pg`. */
  readonly specifier: string;
  /** Erased at run time (`import type`, or only `type` members). */
  readonly typeOnly: boolean;
  /** `import()` or `createRequire`-style `require()`: not loaded until reached. */
  readonly lazy: boolean;
  /** Names taken; `*` for `import * as` and `import()`; empty for `import 'x'`. */
  readonly names: readonly string[];
  readonly line: number;
}

export interface Module {
  /** From the repository's top, with forward slashes. */
  readonly path: string;
  readonly imports: readonly Import[];
  /** Lines with `export * from`. */
  readonly starExports: readonly number[];
  /**
   * Values declared here and exported, with their lines. What is passed on from another module is an import; types
   * are left out, since one that only signatures name is still a word for the reader.
   */
  readonly exports: readonly { readonly name: string; readonly line: number }[];
  /** Dotted global expressions of interest: `process.env`, `Date.now`, `Math.random`, `new Date()`, `eval`, `new Function`. */
  readonly globals: readonly { readonly name: string; readonly line: number }[];
  /** Lines on which a property `shell` is set to something other than `false`. */
  readonly shells: readonly number[];
}

export interface Manifest {
  readonly name: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly exports?: Readonly<Record<string, { source: string; types: string; default: string }>>;
}

export interface Package {
  /** `libs/merkle`, `apps/belay`. */
  readonly folder: string;
  readonly manifest: Manifest;
  /** Folders its tsconfig.json refers to, from the top: `libs/note`. */
  readonly references: readonly string[];
}

export interface Tree {
  readonly modules: ReadonlyMap<string, Module>;
  readonly packages: ReadonlyMap<string, Package>;
}

const SKIPPED = new Set(['node_modules', 'dist', '.git', '.belay']);
export const MODULE_FILE = /\.(ts|tsx|mts|mjs|js)$/;

/** Every module file below `root`, sorted, as paths from `root`. */
export function moduleFiles(root: string): string[] {
  const found: string[] = [];
  const walk = (folder: string): void => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (entry.isDirectory()) {
        if (!SKIPPED.has(entry.name)) walk(path);
      } else if (MODULE_FILE.test(entry.name)) found.push(path);
    }
  };
  walk('');
  return found.sort();
}

/** What one module imports and touches. `text` is its source; nothing is read from disk. */
export function parseModule(path: string, text: string): Module {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const imports: Import[] = [];
  const starExports: number[] = [];
  const exports: { name: string; line: number }[] = [];
  const globals: { name: string; line: number }[] = [];
  const shells: number[] = [];
  const lineOf = (node: ts.Node): number =>
    source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;

  const add = (specifier: ts.Expression, rest: Omit<Import, 'specifier' | 'line'>): void => {
    if (ts.isStringLiteralLike(specifier)) {
      imports.push({ specifier: specifier.text, line: lineOf(specifier), ...rest });
    }
  };

  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) {
      const clause = node.importClause;
      const bindings = clause?.namedBindings;
      const named = bindings && ts.isNamedImports(bindings) ? [...bindings.elements] : [];
      const onlyTypes = named.length > 0 && named.every((each) => each.isTypeOnly) && !clause?.name;
      add(node.moduleSpecifier, {
        typeOnly: clause?.phaseModifier === ts.SyntaxKind.TypeKeyword || onlyTypes,
        lazy: false,
        names: [
          ...named.map((each) => (each.propertyName ?? each.name).text),
          ...(clause?.name ? ['default'] : []),
          ...(bindings && ts.isNamespaceImport(bindings) ? ['*'] : []),
        ],
      });
    } else if (ts.isExportDeclaration(node) && node.moduleSpecifier) {
      const clause = node.exportClause;
      if (!clause) starExports.push(lineOf(node));
      const named = clause && ts.isNamedExports(clause) ? [...clause.elements] : [];
      add(node.moduleSpecifier, {
        typeOnly: node.isTypeOnly || (named.length > 0 && named.every((each) => each.isTypeOnly)),
        lazy: false,
        names: named.map((each) => (each.propertyName ?? each.name).text),
      });
    } else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
      add(node.argument.literal, { typeOnly: true, lazy: false, names: ['*'] });
    } else if (ts.isCallExpression(node)) {
      const [first] = node.arguments;
      const called = node.expression;
      const imported = called.kind === ts.SyntaxKind.ImportKeyword;
      // `require.resolve` finds a file of a package without running it: that is needing it, too.
      const required =
        (ts.isIdentifier(called) && called.text === 'require') ||
        (ts.isPropertyAccessExpression(called) &&
          called.name.text === 'resolve' &&
          ts.isIdentifier(called.expression) &&
          called.expression.text === 'require');
      if (first && (imported || required)) add(first, { typeOnly: false, lazy: true, names: ['*'] });
      if (ts.isIdentifier(called) && called.text === 'eval')
        globals.push({ name: 'eval', line: lineOf(node) });
    } else if (ts.isNewExpression(node) && ts.isIdentifier(node.expression)) {
      if (node.expression.text === 'Function') globals.push({ name: 'new Function', line: lineOf(node) });
      if (node.expression.text === 'Date' && !node.arguments?.length) {
        globals.push({ name: 'new Date()', line: lineOf(node) });
      }
    } else if (ts.isPropertyAccessExpression(node) && ts.isIdentifier(node.expression)) {
      const name = `${node.expression.text}.${node.name.text}`;
      if (['process.env', 'Date.now', 'Math.random'].includes(name)) {
        globals.push({ name, line: lineOf(node) });
      }
    } else if (ts.isPropertyAssignment(node) && node.name.getText(source) === 'shell') {
      if (node.initializer.kind !== ts.SyntaxKind.FalseKeyword) shells.push(lineOf(node));
    }
    exports.push(...exportedBy(node).map((name) => ({ name, line: lineOf(node) })));
    ts.forEachChild(node, visit);
  };
  visit(source);
  return { path, imports, starExports, exports, globals, shells };
}

/** Values that a statement declares and exports. */
function exportedBy(node: ts.Node): string[] {
  if (ts.isExportDeclaration(node) && !node.moduleSpecifier && node.exportClause) {
    if (!ts.isNamedExports(node.exportClause) || node.isTypeOnly) return [];
    return node.exportClause.elements.flatMap((each) => (each.isTypeOnly ? [] : each.name.text));
  }
  if (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return [];
  const modifiers = ts.canHaveModifiers(node) ? (ts.getModifiers(node) ?? []) : [];
  if (!modifiers.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)) return [];
  if (modifiers.some(({ kind }) => kind === ts.SyntaxKind.DefaultKeyword)) return ['default'];
  if (ts.isVariableStatement(node)) {
    return node.declarationList.declarations.flatMap(({ name }) =>
      ts.isIdentifier(name) ? [name.text] : [],
    );
  }
  const { name } = node as ts.DeclarationStatement;
  return name && ts.isIdentifier(name) ? [name.text] : [];
}

function readPackage(root: string, folder: string): Package {
  const manifest = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')) as Manifest;
  const config = JSON.parse(readFileSync(join(root, folder, 'tsconfig.json'), 'utf8')) as {
    references?: { path: string }[];
  };
  const references = (config.references ?? []).map((each) => posix.join(folder, each.path));
  return { folder, manifest, references };
}

export function readTree(root: string): Tree {
  const modules = new Map<string, Module>();
  for (const path of moduleFiles(root)) {
    modules.set(path, parseModule(path, readFileSync(join(root, path), 'utf8')));
  }
  const packages = new Map<string, Package>();
  for (const group of ['libs', 'apps']) {
    for (const entry of readdirSync(join(root, group), { withFileTypes: true })) {
      if (!entry.isDirectory()) continue;
      const each = readPackage(root, `${group}/${entry.name}`);
      packages.set(each.manifest.name, each);
    }
  }
  return { modules, packages };
}

/** The same tree with some files' texts put in place of what is on disk, or added. */
export function withFiles(tree: Tree, files: Readonly<Record<string, string>>): Tree {
  const modules = new Map(tree.modules);
  for (const [path, text] of Object.entries(files)) modules.set(path, parseModule(path, text));
  return { ...tree, modules };
}
