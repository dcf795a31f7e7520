import { z } from 'zod';

/** BullMQ queue of the worker. Its jobs are nudges: what is due is seen from the database. */
export const PUBLISH_QUEUE = 'publish';
/** Looks for logs that are due. Carries nothing. */
export const SWEEP_JOB = 'sweep';

/** Publish a checkpoint of this log, `log_...`, if it has grown. Members are only ever added, and optional. */
export const publishJob = z.object({ log: z.string().max(64) });
export type PublishJob = z.infer<typeof publishJob>;

/** BullMQ queue of what takes longer. Its jobs are nudges too, and carry nothing; their names are the members. */
export const ACCOUNT_QUEUE = 'account';
export const ACCOUNT_JOBS = [
  /** Take in what logs have got, and look at their sessions. */
  'account',
  /** Claim and run the work that somebody asked for. */
  'work',
  /** Send what webhooks are to hear of. */
  'deliver',
] as const;
export type AccountJob = (typeof ACCOUNT_JOBS)[number];
