// `npm run soak`: the tests that the suite runs scaled down, in full. Their figures are printed by the tests.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { status } = spawnSync(
  process.execPath,
  [
    'node_modules/vitest/vitest.mjs',
    'run',
    'test/fault',
    'libs/log',
    'libs/coverage',
    'libs/export',
    'libs/db/test/log-store.test.ts',
    'apps/worker/test/lane.test.ts',
    'libs/snapshot/test/capture-oracle.test.ts',
    'libs/snapshot/test/store.test.ts',
    'libs/snapshot/test/scratch.test.ts',
    'libs/snapshot/test/gc.test.ts',
    '--testTimeout',
    '1800000',
  ],
  {
    cwd: root,
    stdio: 'inherit',
    env: { BELAY_KILLS: '20', BELAY_RUNS: '2000', BELAY_STEPS: '5000', ...process.env },
  },
);
process.exit(status ?? 70);
