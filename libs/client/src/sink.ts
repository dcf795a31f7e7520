/**
 * What a process needs that only writes to a sink: no network, nothing of acks. A hook is started once per event and
 * pays for every module it loads.
 */
export { acquireBriefly } from './brief-lock.js';
export { isFilterRule, type LineFilter } from './line-filter.js';
export type { Draft } from './line-writer.js';
export { SHARED_TIMES, SharedEpoch, type SharedTimes } from './shared-epoch.js';
export { Slots } from './slots.js';
export { SPOOL_LIMITS, type SpoolLimits } from './spool-room.js';
export { logDir, machineSecret, sinkDir } from './state.js';
