// What a run of the suite came to, in two forms.
//
// For a person: every skipped test by name with the reason it gave. Three things may be absent from a machine without
// the suite failing, because none is ours: a Go toolchain (the foreign log reader), Chromium (which looks at reports),
// and the folder of published Merkle vectors beside the repository. A test skipped for any other reason fails the run: a requirement that silently
// went missing would otherwise look like success.
//
// For `.ci/run`: a JSON file of counts at the path in BELAY_TEST_COUNTS, when that is set.

import { relative } from 'node:path';
import { writeFileSync } from 'node:fs';

/** Test files that may skip, and the word their reason has to contain. */
const MAY_BE_ABSENT = [
  { file: /^test\/conformance\/.*go[^/]*\.test\.ts$/i, reason: /\bgo\b/i },
  { file: /^test\/e2e\/report\.test\.ts$/, reason: /\bChromium\b/ },
  { file: /^(test\/conformance|libs\/merkle\/test)\/.*\.test\.ts$/, reason: /\.\.\/shared\/vectors/ },
];

export default class CountsReporter {
  /** @param {import('vitest/node').Vitest} vitest */
  onInit(vitest) {
    this.root = vitest.config.root;
    this.filtered = vitest.config.testNamePattern !== undefined;
  }

  /**
   * @param {ReadonlyArray<import('vitest/node').TestModule>} modules
   * @param {ReadonlyArray<unknown>} unhandled
   * @param {'passed' | 'failed' | 'interrupted'} reason
   */
  onTestRunEnd(modules, unhandled, reason) {
    const counts = { passed: 0, failed: unhandled.length, skipped: 0 };
    const absent = [];
    const unexplained = [];
    for (const module of modules) {
      const file = relative(this.root, module.moduleId);
      // A file that failed to load, or whose beforeAll threw, has failed even though no test of it ran.
      if (!module.ok() && ![...module.children.allTests('failed')].length) counts.failed += 1;
      for (const test of module.children.allTests()) {
        const result = test.result();
        if (result.state === 'passed') counts.passed += 1;
        else if (result.state === 'failed') counts.failed += 1;
        else {
          counts.skipped += 1;
          const note = result.note ?? '';
          const line = `${file} > ${test.fullName}: ${note || 'no reason given'}`;
          const allowed = MAY_BE_ABSENT.some((each) => each.file.test(file) && each.reason.test(note));
          (allowed ? absent : unexplained).push(line);
        }
      }
    }
    if (reason === 'interrupted') counts.failed += 1;
    // With a name filter, everything it leaves out counts as skipped; that says nothing of the machine.
    if (!this.filtered) {
      this.#print('Absent here, so not tested (allowed):', absent);
      const hadFailures = counts.failed > 0;
      if (unexplained.length > 0 && !hadFailures) {
        this.#print('Skipped without being allowed to; this fails the run:', unexplained);
        counts.failed += unexplained.length;
        counts.skipped -= unexplained.length;
        process.exitCode = 1;
      }
    }
    if (reason !== 'passed' && counts.failed === 0) counts.failed = 1;
    const out = process.env.BELAY_TEST_COUNTS;
    if (out) writeFileSync(out, JSON.stringify(counts));
  }

  #print(title, lines) {
    if (lines.length === 0) return;
    console.log(`\n${title}`);
    for (const line of lines) console.log(`  - ${line}`);
  }
}
