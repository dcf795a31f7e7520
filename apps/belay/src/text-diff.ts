/** Lines of unchanged text shown around a change. */
const CONTEXT = 3;
/** More changed lines than this are shown as one block out, one block in: the search for less costs their square. */
const MAX_CHANGES = 2_000;

type Step = readonly [mark: ' ' | '-' | '+', line: string];

/** A unified diff of two texts, empty when they are equal. A line end that is not LF is shown by name. */
export function unifiedDiff(name: string, before: string, after: string): string {
  if (before === after) return '';
  const steps = lineSteps(linesOf(before), linesOf(after));
  const hunks: string[] = [];
  let [oldLine, newLine] = [1, 1];
  let at = 0;
  while (at < steps.length) {
    const next = steps.findIndex(([mark], i) => i >= at && mark !== ' ');
    if (next < 0) break;
    const start = Math.max(at, next - CONTEXT);
    const end = hunkEnd(steps, next);
    oldLine += start - at;
    newLine += start - at;
    const hunk = steps.slice(start, end);
    const olds = hunk.filter(([mark]) => mark !== '+').length;
    const news = hunk.filter(([mark]) => mark !== '-').length;
    hunks.push(
      `@@ -${olds === 0 ? oldLine - 1 : oldLine},${olds} +${news === 0 ? newLine - 1 : newLine},${news} @@\n`,
      ...hunk.map(([mark, line]) => `${mark}${line}\n`),
    );
    oldLine += olds;
    newLine += news;
    at = end;
  }
  return `--- ${name}\n+++ ${name}\n${hunks.join('')}`;
}

const linesOf = (text: string): string[] => {
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  else lines.push(`${lines.pop() ?? ''} (no line end)`);
  return lines.map((line) => (line.endsWith('\r') ? `${line.slice(0, -1)}␍` : line));
};

function hunkEnd(steps: readonly Step[], from: number): number {
  let end = from + 1;
  for (let i = from + 1; i < steps.length && i - end < 2 * CONTEXT; i++) {
    if (steps[i]?.[0] !== ' ') end = i + 1;
  }
  return Math.min(steps.length, end + CONTEXT);
}

function lineSteps(before: readonly string[], after: readonly string[]): Step[] {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (
    tail < Math.min(before.length, after.length) - head &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  ) {
    tail++;
  }
  const same = (line: string): Step => [' ', line];
  return [
    ...before.slice(0, head).map(same),
    ...shortestSteps(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...before.slice(before.length - tail).map(same),
  ];
}

/** The shortest way from one list to the other (Myers 1986, the greedy form). */
function shortestSteps(before: readonly string[], after: readonly string[]): Step[] {
  const most = before.length + after.length;
  if (most > MAX_CHANGES) {
    return [...before.map((line): Step => ['-', line]), ...after.map((line): Step => ['+', line])];
  }
  /** Per number of changes: how far in `before` each diagonal gets. */
  const rounds: Map<number, number>[] = [];
  let furthest = new Map([[1, 0]]);
  for (let d = 0; d <= most; d++) {
    rounds.push(new Map(furthest));
    const reached = new Map<number, number>();
    for (let k = -d; k <= d; k += 2) {
      let x = down(furthest, k, d) ? (furthest.get(k + 1) ?? 0) : (furthest.get(k - 1) ?? 0) + 1;
      while (x < before.length && x - k < after.length && before[x] === after[x - k]) x++;
      reached.set(k, x);
      if (x >= before.length && x - k >= after.length) return walkBack(rounds, before, after);
    }
    furthest = new Map([...furthest, ...reached]);
  }
  return [];
}

const down = (furthest: ReadonlyMap<number, number>, k: number, d: number): boolean =>
  k === -d || (k !== d && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));

function walkBack(
  rounds: readonly ReadonlyMap<number, number>[],
  before: readonly string[],
  after: readonly string[],
): Step[] {
  const steps: Step[] = [];
  let [x, y] = [before.length, after.length];
  for (let d = rounds.length - 1; d >= 0; d--) {
    const furthest = rounds[d] as ReadonlyMap<number, number>;
    const k = x - y;
    const from = down(furthest, k, d) ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : (furthest.get(from) ?? 0);
    const fromY = d === 0 ? 0 : fromX - from;
    while (x > fromX && y > fromY) {
      steps.push([' ', before[--x] as string]);
      y--;
    }
    if (d === 0) break;
    if (x > fromX) steps.push(['-', before[--x] as string]);
    else steps.push(['+', after[--y] as string]);
  }
  return steps.reverse();
}
