/** What the checks of a receipt come to, for the commands that make them. */

import {
  type CheckResult,
  NOT_REACHED,
  type Pins,
  ReceiptError,
  type Report,
  type Verdict,
  verifyReceipt,
  verifyTlogProof,
} from '@belay/receipt';
import { badInput, EXIT, type ExitCode } from './exit.js';
import type { Style } from './output.js';

export const EXIT_OF: Readonly<Record<Verdict, ExitCode>> = {
  VALID: EXIT.good,
  INVALID: EXIT.bad,
  INDETERMINATE: EXIT.undecided,
};

/** How a tlog-proof begins; a receipt begins with a brace. */
const TLOG_PROOF = 'c2sp.org/tlog-proof@';

function verifyAny(bytes: Buffer, pins: Pins): Report {
  return bytes.subarray(0, TLOG_PROOF.length).toString('latin1') === TLOG_PROOF
    ? verifyTlogProof(bytes, pins)
    : verifyReceipt(bytes, pins);
}

/** Throws CliError for what is no receipt. */
export function checked(bytes: Buffer, pins: Pins): Report {
  try {
    return verifyAny(bytes, pins);
  } catch (error) {
    if (!(error instanceof ReceiptError)) throw error;
    throw badInput(error.code, error.message, undefined, error);
  }
}

/** The checks with those that were not made as one: what they are and that they were not is all there is to say. */
export function folded(checks: readonly CheckResult[]): readonly CheckResult[] {
  const unreached = checks.filter(({ detail }) => detail === NOT_REACHED);
  if (unreached.length < 2) return checks;
  const names = unreached.map(({ name }) => name).join(', ');
  return [
    ...checks.filter((check) => !unreached.includes(check)),
    { name: `${unreached.length} more`, status: 'undecided', detail: `${NOT_REACHED}: ${names}` },
  ];
}

/** As it is shown to a person. */
export function verdictOf(verdict: Verdict, style: Style): string {
  const paint = { VALID: style.good, INVALID: style.bad, INDETERMINATE: style.warn }[verdict];
  return style.bold(paint(verdict));
}
