import { databaseTrouble, MigrationError, NotDurable, OtherDeployment } from '@belay/db';
import { DirLocked } from '@belay/dirlock';
import { KeysError } from '@belay/keys';
import { AnchorDamaged, LogBehindAnchor } from '@belay/log';
import { ConfigError } from './config.js';
import { WrongLogKey } from './keyring.js';
import { NatsUnfit } from './nats-server.js';

const BAD_INPUT = [MigrationError, NotDurable, OtherDeployment, KeysError, AnchorDamaged, WrongLogKey];

/** How a collector that can not start ends, as every command of `belay` does; 70 is for what nobody foresaw. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof ConfigError) return 64;
  if (error instanceof LogBehindAnchor) return 1;
  if (BAD_INPUT.some((kind) => error instanceof kind)) return 65;
  if (error instanceof DirLocked || error instanceof NatsUnfit) return 69;
  switch (databaseTrouble(error)) {
    case 'away':
      return 69;
    case 'rights':
    case 'schema':
      return 65;
    case undefined:
      return 70;
  }
}
