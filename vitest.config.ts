import { defineConfig } from 'vitest/config';
import CountsReporter from './infra/scripts/counts-reporter.mjs';

// Packages export their TypeScript under the `source` condition, so tests run what is on disk and need no build.
// (What a test starts as a process of its own, such as `bin/belay.js`, is the compiled form: `pretest` sees to that.)
const resolveSource = {
  resolve: { conditions: ['source'] },
  ssr: { resolve: { conditions: ['source', 'node'] } },
};

// Debian puts servers in /usr/sbin, which an ordinary user's PATH leaves out and `infra/scripts/requirements.mjs` finds.
const env = { PATH: `${process.env.PATH ?? ''}:/usr/local/sbin:/usr/sbin:/sbin` };

const notTests = ['**/node_modules/**', '**/dist/**'];

export default defineConfig({
  ...resolveSource,
  test: {
    reporters: ['default', new CountsReporter()],
    projects: [
      {
        ...resolveSource,
        test: {
          name: 'unit',
          include: ['libs/*/test/**/*.test.ts', 'apps/*/test/**/*.test.ts'],
          exclude: notTests,
          env,
          testTimeout: 30_000,
          // What is polled for comes within moments; a machine busy with other tests is not a failure.
          expect: { poll: { timeout: 10_000 } },
          hookTimeout: 60_000,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        ...resolveSource,
        test: {
          name: 'service',
          include: ['test/**/*.test.ts'],
          exclude: notTests,
          env,
          // Each of these files may start a PostgreSQL, a NATS, a Redis and three processes; two at a time is what
          // two cores bear without the timeouts becoming the thing that is tested.
          testTimeout: 120_000,
          hookTimeout: 180_000,
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
