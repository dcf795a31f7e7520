/** What happened to a workspace between two states, as the judge is told of it. */

/** One side of a changed file. */
export interface Content {
  /** Bytes. */
  readonly size: number;
  /** Called only where a rule has to look inside. What it throws makes that rule undecided for the path. */
  readonly read: () => Uint8Array | Promise<Uint8Array>;
}

export interface Change {
  /** Relative to the root of the workspace, `/` between its parts, without `./`. */
  readonly path: string;
  /** The path before, where it was renamed. A renaming told as one file deleted and one created is judged alike. */
  readonly from?: string;
  /** `type`: a file became a link or a folder, or the other way round. `metadata`: content is as it was. */
  readonly what: 'created' | 'modified' | 'deleted' | 'renamed' | 'metadata' | 'type';
  /** Of files; absent for folders, links, and on the side where there is nothing. */
  readonly before?: Content;
  readonly after?: Content;
}

/** Connections: `host:port` or an address as it was seen. */
export interface Egress {
  readonly reached: readonly string[];
  readonly denied: readonly string[];
}

/** What a session did that matters to `suite-before-claim`, in order. */
export type HistoryEvent =
  | {
      readonly kind: 'command';
      readonly text: string;
      /** Absent: how it ended was not seen. */ readonly ok?: boolean;
    }
  | { readonly kind: 'write'; readonly path: string }
  | { readonly kind: 'claim'; readonly text: string };

export interface Effect {
  /** `session`: the net change from its first state to its last, judged besides every turn and drift interval. */
  readonly scope: 'turn' | 'drift' | 'session';
  /** Absent: nobody knows what changed. */
  readonly changes?: readonly Change[];
  /** Absent: nobody looked. */
  readonly egress?: Egress;
  /** Absent: nobody looked. Only a session is judged by it. */
  readonly history?: readonly HistoryEvent[];
}
