import { startServe } from '../harness/serve.js';
import { describeService } from './service-suite.js';

describeService('in one process', startServe);
