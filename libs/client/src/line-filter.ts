import type { EnvelopeKind } from '@belay/envelope';

/** Kinds that a policy may keep from being sent. What opens, closes, counts or speaks of a gap is not among them. */
const MAY_BE_LEFT_OUT = /^(?:call|result|claim|x\.\*|x\.[a-z][a-z0-9_.-]{0,40}|\*)$/;
const SINK = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/**
 * Lines that are numbered, counted by the sink's tree and spoken of by a `gap` line of reason `filtered`, and not sent.
 * Rules are `KIND`, or `SINK/KIND` for the lines of one sink; KIND is one of `call`, `result`, `claim`, `x.NAME`, `x.*`
 * for all of these names, or `*` for all that may be left out.
 */
export type LineFilter = readonly string[];

/** Whether a text is a rule of a `LineFilter`. */
export function isFilterRule(text: string): boolean {
  const [first = '', second, ...more] = text.split('/');
  if (more.length > 0) return false;
  return second === undefined
    ? MAY_BE_LEFT_OUT.test(first)
    : SINK.test(first) && MAY_BE_LEFT_OUT.test(second);
}

/** What a filter says of the lines of a sink; undefined when it lets all of them pass. */
export function filterOf(
  rules: LineFilter | undefined,
  sink: string,
): ((kind: EnvelopeKind) => boolean) | undefined {
  const kinds = (rules ?? [])
    .filter((rule) => isFilterRule(rule))
    .map((rule) => rule.split('/'))
    .flatMap(([first, second]) => (second === undefined ? first : first === sink ? second : undefined) ?? []);
  if (kinds.length === 0) return undefined;
  return (kind) =>
    MAY_BE_LEFT_OUT.test(kind) &&
    kinds.some((rule) => rule === '*' || rule === kind || (rule === 'x.*' && kind.startsWith('x.')));
}
