import type { CollectorApi } from '@belay/contracts';

/** What a gateway asks of the collector. Checkpoints, session receipts and exports are signed for the worker only. */
export type Collector = Pick<CollectorApi, 'append' | 'change' | 'receipt'>;
