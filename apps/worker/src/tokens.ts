/** Injection tokens; classes are wired by `useFactory` and know no framework. */
export const PUBLISHER = Symbol('Publisher');
export const SCHEDULES = Symbol('Schedules');
/** Milliseconds between sweeps. */
export const INTERVAL = Symbol('Interval');
export const LOG = Symbol('Logger');
