/** What the probe is told, and what it answers: the words between the inside of a boundary and the outside. */

import type { Limits } from './policy.js';

/** Where the host's listeners for a row wait. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** A process outside that a row works on. */
export interface Victim {
  readonly pid: number;
  /** A word in its command line, by which it is told from another process that has its number inside. */
  readonly mark: string;
  /** A writable address of its memory; undefined where that could not be read. */
  readonly address: number | undefined;
  /** A descriptor that it has open. */
  readonly fd: number;
}

/** All paths absolute. Goes to the probe as one JSON text on its command line. */
export interface ProbePlan {
  /** `escape-write`, `life-pty` ... in the order in which they are tried. */
  readonly rows: readonly string[];
  /** Without a boundary, to see that the attempts work at all. */
  readonly control: boolean;
  /** Writable inside; each row makes a folder of its own in it. */
  readonly workspace: string;
  /** Each row that writes outside has `<outside>/<row>/victim` there. */
  readonly outside: string;
  /** The same in the host's temporary folder and shared memory. */
  readonly outsideTmp: string;
  readonly outsideShm: string | undefined;
  /** Something is mounted on a row's folder when the probe has begun. */
  readonly mountsLate: boolean;
  /** A folder of secrets and a file of one, hidden by the policy. */
  readonly hiddenFolder: string;
  readonly hiddenFile: string;
  /** Hidden too, and replaced by another when the probe has begun. */
  readonly hiddenReplaced: string;
  /** What is hidden by default and there on this machine, readable by this user. */
  readonly credentials: readonly string[];
  /** This machine's own listening sockets of a kind that gives power. */
  readonly realSockets: readonly string[];
  readonly listeners: Readonly<Record<string, Address>>;
  /** Paths of unix sockets, `@name` for abstract ones. */
  readonly sockets: Readonly<Record<string, string>>;
  readonly victims: Readonly<Record<string, Victim>>;
  /** Hex of a `struct file_handle` for a row's victim. */
  readonly handles: Readonly<Record<string, string>>;
  /** `/proc/self/ns/mnt` of the host: equal inside means that mounts are shared. */
  readonly mountNamespace: string;
  /** The disk under `/`. */
  readonly disk: { readonly major: number; readonly minor: number } | undefined;
  /** `/dev/pts/N` of a terminal of ours. */
  readonly terminal: string | undefined;
  /** Description of a key in the session keyring. */
  readonly key: string | undefined;
  readonly shmKey: number | undefined;
  readonly queue: string | undefined;
  /** A folder in the workspace that belongs to another user; undefined where we can't make one. */
  readonly foreign: string | undefined;
  readonly home: string;
  readonly limits: Limits;
}

/** `did`: it worked; `proof` is a digest of a secret that was read. */
export interface Did {
  readonly row: string;
  readonly did: string;
  readonly proof?: string;
}

/** The kernel (or Node, in its words) said no. */
export interface Refused {
  readonly row: string;
  readonly refused: string;
  readonly syscall: string;
}

/** It could not be tried here, which says nothing about the boundary. */
export interface Absent {
  readonly row: string;
  readonly absent: string;
}

export type Answer = Did | Refused | Absent;

/** One line of the probe's standard output: it begins a row, or ends it. `at`: Unix time in milliseconds. */
export type ProbeLine = ({ readonly begin: string } | Answer) & { readonly at: number };
