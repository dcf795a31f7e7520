import { z } from 'zod';

/** BullMQ queue of the worker. Its jobs are nudges: what is due is seen from the database. */
export const PUBLISH_QUEUE = 'publish';
/** Looks for logs that are due. Carries nothing. */
export const SWEEP_JOB = 'sweep';

/** Publish a checkpoint of this log, `log_...`, if it has grown. Members are only ever added, and optional. */
export const publishJob = z.object({ log: z.string().max(64) });
export type PublishJob = z.infer<typeof publishJob>;
