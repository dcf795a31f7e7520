/** Injection tokens; classes are wired by `useFactory` and know no framework. */
export const COLLECTOR = Symbol('CollectorApi');
export const IN_FLIGHT = Symbol('InFlight');
export const LOG = Symbol('Logger');
