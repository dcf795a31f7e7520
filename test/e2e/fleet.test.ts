import { startFleet } from '../harness/fleet.js';
import { describeService } from './service-suite.js';

describeService('as three processes over NATS and Redis', startFleet);
