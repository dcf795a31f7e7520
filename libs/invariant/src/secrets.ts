/** Secrets by their form. */

export interface Secret {
  readonly kind: string;
  readonly line: number;
  /** The line with the secret left out. */
  readonly text: string;
  /** Only a name and a value that looks drawn at random say so. */
  readonly likely: boolean;
  readonly value: string;
}

const FORMS: readonly (readonly [kind: string, pattern: RegExp])[] = [
  ['private key', /-----BEGIN (?:[A-Z]+ )?PRIVATE KEY(?: BLOCK)?-----/g],
  ['AWS access key', /\b(?:AKIA|ASIA)[0-9A-Z]{16}\b/g],
  ['GitHub token', /\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})\b/g],
  ['GitLab token', /\bglpat-[A-Za-z0-9_-]{20,}\b/g],
  ['Slack token', /\bxox[abeoprs]-[A-Za-z0-9-]{10,}\b/g],
  ['Google key', /\bAIza[0-9A-Za-z_-]{35}\b/g],
  ['Stripe key', /\b[rs]k_live_[0-9A-Za-z]{20,}\b/g],
  ['API key', /\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}\b/g],
  ['npm token', /\bnpm_[A-Za-z0-9]{36}\b/g],
  ['PyPI token', /\bpypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}\b/g],
  ['JSON web token', /\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}\b/g],
  ['URL with a password', /\b[a-z][a-z0-9+.-]{2,15}:\/\/[^\s:/@'"<>]{1,64}:[^\s:/@'"<>{}$]{6,128}@[\w.-]+/g],
];
const NAMED =
  /\b[\w.-]*(?:password|passwd|secret|token|api_?key|access_?key|private_?key)[\w.-]*["']?\s*[:=]\s*["']([^"'\s]{16,256})["']/gi;

const MAX_FOUND = 100;
/** Longer lines were written by no person, and names in them are anything. */
const MAX_NAMED = 4_000;

export function secretsIn(source: string): Secret[] {
  const found: Secret[] = [];
  const lines = source.split('\n');
  for (const [at, line] of lines.entries()) {
    if (found.length >= MAX_FOUND) break;
    if (line.length > 20_000) continue;
    for (const [kind, pattern] of FORMS) {
      for (const [value] of line.matchAll(pattern))
        found.push({ kind, line: at + 1, value, likely: false, text: hidden(line, value) });
    }
    for (const [, value] of line.length > MAX_NAMED ? [] : line.matchAll(NAMED)) {
      if (
        value === undefined ||
        entropy(value) < 3.5 ||
        /^[\w.-]*(example|placeholder|changeme|dummy|xxxx|your|test)/i.test(value) ||
        /^\$\{|^<|^%|process\.env|os\.environ/.test(value)
      )
        continue;
      if (!found.some((each) => each.value.includes(value) || value.includes(each.value)))
        found.push({ kind: 'named secret', line: at + 1, value, likely: true, text: hidden(line, value) });
    }
  }
  return found;
}

const hidden = (line: string, value: string): string =>
  line.trim().replaceAll(value, `[${value.length} characters]`).slice(0, 200);

/** Bits per character. */
function entropy(value: string): number {
  const counts = new Map<string, number>();
  for (const each of value) counts.set(each, (counts.get(each) ?? 0) + 1);
  let bits = 0;
  for (const count of counts.values()) bits -= (count / value.length) * Math.log2(count / value.length);
  return bits;
}
