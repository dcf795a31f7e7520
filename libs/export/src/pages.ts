import type { ExportFile } from './manifest.js';

/**
 * Version of what is written in the pages and which columns the tables have. Every manifest says with which one its
 * export was made; a verifier that makes another one can't compare its own bytes, and says so. To be raised with every
 * change that reaches a byte of them: otherwise exports that were made before are INVALID to whoever upgrades.
 */
export const PAGES_VERSION = 1;

/** The pages, `oscal.json` only where it was asked for; `events.csv` and `sessions.csv` go with them. */
export const PAGES: readonly ExportFile[] = [
  'README.md',
  'LIMITATIONS.md',
  'controls.json',
  'controls.csv',
  'report.html',
  'oscal.json',
];

/** Why pages are not compared, or undefined where they are. */
export function otherPages(version: number): string | undefined {
  if (version === PAGES_VERSION) return undefined;
  const maker =
    version > PAGES_VERSION ? 'a newer maker than this verifier' : 'an older maker than this verifier';
  return `of version ${version}, by ${maker}, which makes version ${PAGES_VERSION}`;
}
