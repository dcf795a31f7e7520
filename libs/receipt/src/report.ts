/** VALID: every check is ok. INVALID: one failed. INDETERMINATE: none failed, and one could not be decided. */
export type Verdict = 'VALID' | 'INVALID' | 'INDETERMINATE';

export type CheckStatus = 'ok' | 'failed' | 'undecided';

/** One thing that was looked at. `detail` is a sentence for a person. */
export interface CheckResult<Name extends string = string> {
  readonly name: Name;
  readonly status: CheckStatus;
  readonly detail: string;
}

/** The outcome of a verification. Every check is in it, also those that could not be reached. */
export interface Report<Name extends string = string> {
  readonly verdict: Verdict;
  readonly checks: readonly CheckResult<Name>[];
}

/** Detail of a check that was not made. */
export const NOT_REACHED = 'not reached: something it needs failed';

/** Runs named checks in order and keeps what each came to. */
export class Checks<Name extends string> {
  #names: readonly Name[];
  #results = new Map<Name, CheckResult<Name>>();

  constructor(names: readonly Name[]) {
    this.#names = names;
  }

  /** What the checks are, once it is known what is looked at. Those that were run already are among them. */
  rename(names: readonly Name[]): void {
    this.#names = names;
  }

  /** Runs one check: a thrown error fails it, with the error's message as the detail. */
  run(name: Name, check: () => Omit<CheckResult, 'name'> | string): void {
    let result: Omit<CheckResult, 'name'>;
    try {
      const said = check();
      result = typeof said === 'string' ? { status: 'ok', detail: said } : said;
    } catch (error) {
      result = { status: 'failed', detail: error instanceof Error ? error.message : String(error) };
    }
    this.#results.set(name, { name, ...result });
  }

  report(): Report<Name> {
    const checks = this.#names.map(
      (name): CheckResult<Name> =>
        this.#results.get(name) ?? {
          name,
          status: 'undecided',
          detail: NOT_REACHED,
        },
    );
    return { verdict: verdictOf(checks), checks };
  }
}

/** The report with one check come to something else: what its file alone could not decide, and more evidence did. */
export function decided<Name extends string>(
  report: Report<Name>,
  name: Name,
  result: Omit<CheckResult, 'name'>,
): Report<Name> {
  const checks = report.checks.map((check) => (check.name === name ? { name, ...result } : check));
  return { verdict: verdictOf(checks), checks };
}

function verdictOf(checks: readonly CheckResult[]): Verdict {
  if (checks.some(({ status }) => status === 'failed')) return 'INVALID';
  return checks.every(({ status }) => status === 'ok') ? 'VALID' : 'INDETERMINATE';
}
