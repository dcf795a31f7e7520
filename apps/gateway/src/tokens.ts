/** Injection tokens. Classes are wired by these and `useFactory`, so none has to know the framework. */
export const COLLECTOR = Symbol('Collector');
export const READER = Symbol('Reader');
export const PLACES = Symbol('Places');
export const ISSUER = Symbol('Issuer');
export const ADMISSION = Symbol('Admission');
export const CONFIG = Symbol('GatewayConfig');
export const METRICS = Symbol('Metrics');
export const READY = Symbol('ready');
export const WAITING = Symbol('Waiting');
export const DOWNLOADS = Symbol('Downloads');
export const SOURCE = Symbol('Source');
