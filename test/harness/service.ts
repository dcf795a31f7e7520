/** What a test of the service needs of it, whichever way it is wired. */
export interface Service {
  readonly url: string;
  /** Of the first operator. */
  readonly operatorKey: string;
  /** Everything its processes logged so far, at the finest level. */
  readonly logs: () => string;
  /** Leaves no process and no file. */
  readonly close: () => Promise<void>;
}
