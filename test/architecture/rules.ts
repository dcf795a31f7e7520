/**
 * Who may import whom. The table is the one in libs/README.md; a new package is refused until it has a row here.
 * Each rule returns its violations as lines a person can act on: `path:line: what is wrong`.
 */

import { existsSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { join, posix } from 'node:path';
import type { Import, Module, Package, Tree } from './tree.js';

/** Our own packages that each library's `src` may import. */
const LIBRARY_MAY_IMPORT: Readonly<Record<string, readonly string[] | 'any lib'>> = {
  merkle: [],
  trace: [],
  mcp: [],
  sandbox: [],
  snapshot: [],
  invariant: [],
  verdict: [],
  replay: ['envelope', 'trace', 'mcp', 'snapshot', 'sandbox'],
  dirlock: [],
  process: ['contracts'],
  note: ['merkle'],
  envelope: ['merkle'],
  otlp: ['envelope'],
  coverage: ['envelope', 'merkle'],
  keys: ['note'],
  receipt: ['merkle', 'note', 'envelope', 'coverage'],
  log: ['merkle', 'note', 'envelope'],
  export: ['merkle', 'note', 'envelope', 'coverage', 'receipt'],
  contracts: ['merkle', 'note', 'envelope', 'coverage', 'receipt'],
  db: ['log', 'merkle', 'note', 'envelope', 'coverage', 'receipt', 'contracts', 'dirlock'],
  client: ['envelope', 'merkle', 'note', 'receipt', 'contracts', 'dirlock'],
  testkit: 'any lib',
};

/** Packages of which only types may be taken: nothing of them is loaded. */
const LIBRARY_MAY_IMPORT_TYPES: Readonly<Record<string, readonly string[]>> = {
  // The sequencer answers in the words that cross the process; it has no others.
  log: ['contracts'],
};

/** Libraries without time, randomness or I/O of their own: those come in as arguments. */
const PURE = ['merkle', 'note', 'envelope', 'otlp', 'verdict', 'receipt', 'contracts'];
const IMPURE_BUILTINS =
  /^node:(fs|net|http|https|http2|tls|dns|dgram|child_process|worker_threads|os|timers|readline|cluster|vm)(\/|$)/;

const APPS = ['gateway', 'collector', 'worker', 'belay'];
const SERVICE_APPS = /^apps\/(gateway|collector|worker)\//;
const SERVE = 'apps/belay/src/serve.ts';
/** Run from a clone with the development dependencies; nothing that ships imports it. */
const DEMO = 'apps/belay/src/demo.ts';

/** Foreign packages that have one home; the pattern says where. */
const HOMES: readonly { readonly packages: RegExp; readonly home: RegExp }[] = [
  { packages: /^@nestjs\//, home: /^apps\/(gateway|collector|worker)\/|^apps\/belay\/src\/serve\.ts$/ },
  { packages: /^(bullmq|ioredis)$/, home: /^apps\/(gateway|collector|worker)\// },
  { packages: /^@nats-io\//, home: SERVICE_APPS },
  { packages: /^(kysely|pg|pg-[a-z-]+|@types\/pg)$/, home: /^libs\/db\// },
  { packages: /^@peculiar\//, home: /^libs\/keys\/(src\/x509\.ts|test\/)/ },
  {
    packages: /^reflect-metadata$/,
    home: /^libs\/keys\/src\/x509\.ts$|^apps\/(gateway|collector|worker)\/|^apps\/belay\/src\/serve\.ts$/,
  },
  { packages: /^koffi$/, home: /^libs\/(snapshot|sandbox)\// },
  { packages: /^(web-tree-sitter|tree-sitter-[a-z]+|picomatch)$/, home: /^libs\/invariant\// },
  { packages: /^commander$/, home: /^apps\/belay\// },
  { packages: /^pdfkit$/, home: /^libs\/export\// },
];

/** Names that only the process which signs may take from another package. */
const SIGNING_NAMES = ['deriveLogSeed'];
const MAY_SIGN = /^(apps\/collector\/|libs\/keys\/)/;

const owner = (path: string): string | undefined => /^((?:libs|apps)\/[^/]+)\//.exec(path)?.[1];
const isSource = (path: string): boolean => /^(libs|apps)\/[^/]+\/(src|bin)\//.test(path);

/** `@belay/keys/x509` -> `@belay/keys`; `pg` -> `pg`. */
function packageName(specifier: string): string {
  const parts = specifier.split('/');
  return specifier.startsWith('@') ? parts.slice(0, 2).join('/') : (parts[0] ?? specifier);
}

const isBuiltin = (specifier: string): boolean =>
  specifier.startsWith('node:') || builtinModules.includes(packageName(specifier));
const isRelative = (specifier: string): boolean => specifier.startsWith('.');

/** The file an import loads, from the top; undefined for foreign packages and built-ins. */
function resolve(tree: Tree, from: Module, { specifier }: Import): string | undefined {
  if (isRelative(specifier)) {
    const target = posix.normalize(posix.join(posix.dirname(from.path), specifier));
    for (const candidate of [
      target.replace(/\.js$/, '.ts'),
      target.replace(/\.js$/, '.tsx'),
      target,
      // `bin/` runs the compiled form of `src/`.
      target.replace(/\/dist\/(.*)\.js$/, '/src/$1.ts'),
    ]) {
      if (tree.modules.has(candidate)) return candidate;
    }
    return undefined;
  }
  const target = tree.packages.get(packageName(specifier));
  if (!target) return undefined;
  const door = target.manifest.exports?.[`.${specifier.slice(target.manifest.name.length)}`];
  return door && posix.join(target.folder, door.source);
}

function* eachImport(tree: Tree, keep: (module: Module) => boolean): Generator<[Module, Import]> {
  for (const module of tree.modules.values()) {
    if (keep(module)) for (const each of module.imports) yield [module, each];
  }
}

const at = (module: Module, each: { line: number }): string => `${module.path}:${each.line}`;

/**
 * Direction: no lib imports an app, no app another app (but `serve`, which is itself only ever loaded lazily), and
 * libs only by the table.
 */
export function direction(tree: Tree): string[] {
  const wrong: string[] = [];
  for (const [, { folder }] of tree.packages) {
    const [group, name = ''] = folder.split('/');
    const known = group === 'libs' ? name in LIBRARY_MAY_IMPORT : APPS.includes(name);
    if (!known) wrong.push(`${folder}: no row in the table of who may import whom`);
  }
  for (const [module, each] of eachImport(tree, (m) => isSource(m.path))) {
    if (resolve(tree, module, each) === SERVE && !each.lazy) {
      wrong.push(`${at(module, each)}: loads the service eagerly`);
    }
    const target = tree.packages.get(packageName(each.specifier));
    if (!target) continue;
    const from = owner(module.path);
    const [group, name = ''] = (from ?? '').split('/');
    const [targetGroup, targetName = ''] = target.folder.split('/');
    if (target.folder === from) wrong.push(`${at(module, each)}: imports its own package by name`);
    else if (targetName === 'testkit') wrong.push(`${at(module, each)}: testkit is for tests only`);
    else if (targetGroup === 'apps' && module.path !== SERVE) {
      wrong.push(`${at(module, each)}: imports the app ${targetName}; only ${SERVE} may`);
    } else if (group === 'libs') {
      const allowed = LIBRARY_MAY_IMPORT[name];
      const typesOf = each.typeOnly ? (LIBRARY_MAY_IMPORT_TYPES[name] ?? []) : [];
      if (allowed !== 'any lib' && ![...(allowed ?? []), ...typesOf].includes(targetName)) {
        wrong.push(`${at(module, each)}: ${name} may not import ${targetName}`);
      }
    }
  }
  return wrong;
}

/** Doors: a package is entered by its `exports`, never by path; relative imports stay inside their package. */
export function doors(tree: Tree): string[] {
  const wrong: string[] = [];
  for (const [module, each] of eachImport(tree, () => true)) {
    const target = tree.packages.get(packageName(each.specifier));
    if (target && packageName(each.specifier) !== each.specifier) {
      if (!resolve(tree, module, each)) wrong.push(`${at(module, each)}: deep import ${each.specifier}`);
    } else if (target && target.manifest.exports?.['.'] === undefined) {
      wrong.push(`${at(module, each)}: ${each.specifier} has no door`);
    }
    if (!isRelative(each.specifier)) continue;
    const to = posix.normalize(posix.join(posix.dirname(module.path), each.specifier));
    const from = owner(module.path);
    if (to.startsWith('..')) wrong.push(`${at(module, each)}: leaves the repository`);
    else if (owner(to) !== undefined && owner(to) !== from) {
      wrong.push(`${at(module, each)}: reaches into ${owner(to)} past its exports`);
    } else if (isSource(module.path) && owner(to) !== from) {
      wrong.push(`${at(module, each)}: leaves its package`);
    } else if (!resolve(tree, module, each) && !/\.(json|sql|md)$/.test(to)) {
      wrong.push(`${at(module, each)}: no such module ${each.specifier}`);
    }
  }
  return wrong;
}

/** No barrels: no `export *`, and inside a package nobody imports the door. */
export function barrels(tree: Tree): string[] {
  const wrong: string[] = [];
  for (const module of tree.modules.values()) {
    for (const line of module.starExports) wrong.push(`${module.path}:${line}: export *`);
    if (/(^|\/)(utils?|helpers?|common|misc)(\/|\.[cm]?[jt]s$)/.test(module.path)) {
      wrong.push(`${module.path}: named after nothing in the field`);
    }
    if (!isSource(module.path)) continue;
    for (const each of module.imports) {
      if (isRelative(each.specifier) && /(^|\/)index\.js$/.test(each.specifier)) {
        wrong.push(`${at(module, each)}: imports a door from inside`);
      }
    }
  }
  return wrong;
}

/** Foreign packages with one home stay there; only the signer takes signing names. */
export function homes(tree: Tree): string[] {
  const wrong: string[] = [];
  for (const [module, each] of eachImport(tree, (m) => /^(libs|apps)\//.test(m.path))) {
    const name = packageName(each.specifier);
    for (const { packages, home } of HOMES) {
      const inItsTests = new RegExp(`^(apps|libs)/[^/]+/test/`).test(module.path);
      if (packages.test(name) && !home.test(module.path) && !inItsTests) {
        wrong.push(`${at(module, each)}: ${name} does not belong here`);
      }
    }
    for (const taken of each.names) {
      if (SIGNING_NAMES.includes(taken) && isSource(module.path) && !MAY_SIGN.test(module.path)) {
        wrong.push(`${at(module, each)}: takes ${taken}; only the collector holds log keys`);
      }
    }
  }
  return wrong;
}

/** Pure libraries: no clock, no randomness, no I/O. Everywhere: no eval, no shell, no `process.env` but in config. */
export function effects(tree: Tree): string[] {
  const wrong: string[] = [];
  for (const module of tree.modules.values()) {
    if (!isSource(module.path)) continue;
    const [group, name = ''] = (owner(module.path) ?? '').split('/');
    const pure = group === 'libs' && PURE.includes(name);
    for (const each of module.globals) {
      const config = /^apps\/[^/]+\/src\/config\.ts$/.test(module.path);
      if (each.name === 'process.env' && !config) {
        wrong.push(`${at(module, each)}: reads process.env outside config.ts`);
      } else if (['eval', 'new Function'].includes(each.name))
        wrong.push(`${at(module, each)}: ${each.name}`);
      else if (pure && each.name !== 'process.env')
        wrong.push(`${at(module, each)}: ${each.name} in a pure lib`);
    }
    for (const line of module.shells) wrong.push(`${module.path}:${line}: runs a shell`);
    for (const each of module.imports) {
      if (pure && IMPURE_BUILTINS.test(each.specifier)) {
        wrong.push(`${at(module, each)}: ${each.specifier} in a pure lib`);
      }
      if (pure && each.names.some((taken) => /^(random|generateKey)/.test(taken))) {
        wrong.push(`${at(module, each)}: randomness in a pure lib`);
      }
      if (
        /^(node:)?child_process$/.test(each.specifier) &&
        each.names.some((taken) => /^exec(Sync)?$/.test(taken))
      ) {
        wrong.push(`${at(module, each)}: exec takes a shell string`);
      }
    }
  }
  return wrong;
}

/** No cycles between modules, type-only imports included. Each cycle is reported once, from its first member. */
export function cycles(tree: Tree): string[] {
  const wrong: string[] = [];
  const state = new Map<string, 'open' | 'done'>();
  const path: string[] = [];
  const visit = (name: string): void => {
    state.set(name, 'open');
    path.push(name);
    const module = tree.modules.get(name);
    for (const each of module?.imports ?? []) {
      const target = module && resolve(tree, module, each);
      if (!target) continue;
      if (state.get(target) === 'open') {
        wrong.push([...path.slice(path.indexOf(target)), target].join(' -> '));
      } else if (!state.has(target)) visit(target);
    }
    path.pop();
    state.set(name, 'done');
  };
  for (const name of tree.modules.keys()) if (!state.has(name)) visit(name);
  return wrong;
}

/** What a package declares is what its sources import, and its tsconfig refers to the same packages of ours. */
export function manifests(tree: Tree, root: string): string[] {
  const wrong: string[] = [];
  for (const each of tree.packages.values()) {
    const { folder, manifest } = each;
    const runtime = new Set<string>();
    const erased = new Set<string>();
    const development = new Set(Object.keys(manifest.devDependencies ?? {}));
    for (const [module, imported] of eachImport(tree, (m) => isSource(m.path) && owner(m.path) === folder)) {
      const { specifier } = imported;
      if (isRelative(specifier) || isBuiltin(specifier)) continue;
      if (module.path === DEMO && development.has(packageName(specifier))) continue;
      (imported.typeOnly ? erased : runtime).add(packageName(specifier));
    }
    const declared = new Set(Object.keys(manifest.dependencies ?? {}));
    const optional = new Set(Object.keys(manifest.optionalDependencies ?? {}));
    for (const name of runtime) {
      if (!declared.has(name) && !optional.has(name)) {
        wrong.push(`${folder}: imports ${name} without declaring it`);
      }
    }
    for (const name of erased) {
      const anywhere = declared.has(name) || optional.has(name) || development.has(name);
      if (!anywhere && !development.has(`@types/${name}`))
        wrong.push(`${folder}: needs types of ${name} undeclared`);
    }
    const peers = peersOf(root, folder, declared);
    for (const name of declared) {
      if (!runtime.has(name) && !erased.has(name) && !peers.has(name) && !name.startsWith('@types/')) {
        wrong.push(`${folder}: declares ${name} and never imports it`);
      }
    }
    wrong.push(...references(tree, each, declared));
  }
  return wrong;
}

function references(tree: Tree, { folder, references }: Package, declared: ReadonlySet<string>): string[] {
  const ours = [...declared].flatMap((name) => tree.packages.get(name)?.folder ?? []);
  const missing = ours.filter((each) => !references.includes(each));
  const extra = references.filter((each) => !ours.includes(each));
  return [
    ...missing.map((each) => `${folder}/tsconfig.json: does not refer to ${each}, which it depends on`),
    ...extra.map((each) => `${folder}/tsconfig.json: refers to ${each}, which it does not depend on`),
  ];
}

/** Packages that a declared dependency wants beside it: declared for its sake, though no source imports them. */
function peersOf(root: string, folder: string, declared: ReadonlySet<string>): Set<string> {
  const peers = new Set<string>();
  for (const name of declared) {
    const manifest = [folder, '.']
      .map((base) => join(root, base, 'node_modules', name, 'package.json'))
      .find((candidate) => existsSync(candidate));
    if (!manifest) continue;
    const { peerDependencies } = JSON.parse(readFileSync(manifest, 'utf8')) as {
      peerDependencies?: Record<string, string>;
    };
    for (const peer of Object.keys(peerDependencies ?? {})) peers.add(peer);
  }
  return peers;
}

/** Every package's doors: modules that are entered from outside, whose exports may have users we can't see. */
function doorsOf(tree: Tree): Set<string> {
  const found = new Set<string>();
  for (const { folder, manifest } of tree.packages.values()) {
    for (const { source } of Object.values(manifest.exports ?? {})) found.add(posix.join(folder, source));
  }
  return found;
}

/** Exports behind the doors that no module imports: code that nothing runs, or a word that needn't be exported. */
export function unused(tree: Tree): string[] {
  const taken = new Map<string, Set<string>>();
  for (const [module, each] of eachImport(tree, () => true)) {
    const target = resolve(tree, module, each);
    if (!target) continue;
    const names = taken.get(target) ?? new Set();
    for (const name of each.names) names.add(name);
    taken.set(target, names);
  }
  const entries = doorsOf(tree);
  const wrong: string[] = [];
  for (const module of tree.modules.values()) {
    if (!isSource(module.path) || entries.has(module.path)) continue;
    const names = taken.get(module.path) ?? new Set();
    if (names.has('*')) continue;
    for (const each of module.exports) {
      if (!names.has(each.name)) wrong.push(`${at(module, each)}: nobody imports ${each.name}`);
    }
  }
  return wrong;
}

/**
 * Foreign packages that running `entry` loads. Lazy imports are followed only when `lazily`; type-only never.
 * This is how "`belay proxy` loads neither Nest nor PostgreSQL" is held.
 */
export function loads(tree: Tree, entry: string, lazily = false): Set<string> {
  const foreign = new Set<string>();
  const seen = new Set<string>();
  const visit = (name: string): void => {
    if (seen.has(name)) return;
    seen.add(name);
    const module = tree.modules.get(name);
    for (const each of module?.imports ?? []) {
      if (each.typeOnly || (each.lazy && !lazily)) continue;
      const target = module && resolve(tree, module, each);
      if (target) visit(target);
      else if (!isRelative(each.specifier) && !isBuiltin(each.specifier))
        foreign.add(packageName(each.specifier));
    }
  };
  visit(entry);
  return foreign;
}
