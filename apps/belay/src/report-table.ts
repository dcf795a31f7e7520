import type { Style } from './output.js';
import type { Verification } from './verification.js';

export function showVerification(found: Verification, style: Style): string {
  const lines = found.parts.map((part) => {
    const { status, cause, judgements } = part.verdict;
    const name = part.type === 'turn' ? `turn ${part.turn} ${part.tool ?? ''}` : part.type;
    const word =
      status === 'PASS' ? style.good(status) : status === 'FAIL' ? style.bad(status) : style.warn(status);
    return `  ${name}: ${word} ${cause ?? ''} ${judgements.map((each) => `${each.kind}=${each.status}`).join(' ')}\n`;
  });
  return `${found.trace}\n${lines.join('')}${found.tally.status}\n`;
}
