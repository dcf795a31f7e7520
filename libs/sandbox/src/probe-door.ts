/** A boundary proven by trying it: a door of its own, so that running something inside loads none of the tables. */
export {
  checkBoundary,
  placeOutside,
  type BoundaryReport,
  type BoundaryVerdict,
  type CheckOptions,
} from './probe.js';
export { ProbeError } from './probe-run.js';
export { type Group as ProbeGroup, PROBE_GROUPS, PROBE_ROWS } from './probe-rows.js';
export type { Mark, RowResult } from './probe-verdict.js';
