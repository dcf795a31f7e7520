/** Recorded expectations: snapshot files of jest and vitest, syrupy and insta, golden and approved files. */

export type SnapshotCause = 'snapshot-changed' | 'snapshot-removed';

export interface SnapshotFinding {
  readonly cause: SnapshotCause;
  readonly weight: 'broken';
  readonly path: string;
  readonly test: string;
  readonly before: number;
  readonly after?: number;
}

export const isSnapshot = (path: string): boolean =>
  /\.(snap|snap\.new|ambr|golden|approved(\.\w+)?|snapshot|expected)$|(^|\/)(__snapshots__|__image_snapshots__|golden|goldens)\//.test(
    path,
  );

interface Recorded {
  readonly name: string;
  readonly value: string;
  readonly line: number;
}

/** What is recorded under another name or in another file is still recorded. */
export function judgeSnapshots(
  files: readonly { readonly path: string; readonly before?: string; readonly after?: string }[],
): SnapshotFinding[] {
  const found: SnapshotFinding[] = [];
  const after = files.map((file) => ({
    file,
    recorded: file.after === undefined ? [] : recordedIn(file.path, file.after),
  }));
  const left = new Map<string, number>();
  for (const { recorded } of after)
    for (const { value } of recorded) left.set(value, (left.get(value) ?? 0) + 1);
  for (const { file, recorded } of after) {
    if (file.before === undefined) continue;
    const known = new Map(recorded.map((each) => [each.name, each]));
    for (const old of recordedIn(file.path, file.before)) {
      const now = known.get(old.name);
      if (now?.value === old.value) continue;
      const elsewhere = left.get(old.value) ?? 0;
      if (elsewhere > 0 && !now) {
        left.set(old.value, elsewhere - 1);
        continue;
      }
      found.push({
        cause: now ? 'snapshot-changed' : 'snapshot-removed',
        weight: 'broken',
        path: file.path,
        test: old.name,
        before: old.line,
        ...(now ? { after: now.line } : {}),
      });
    }
  }
  return found;
}

function recordedIn(path: string, text: string): Recorded[] {
  const lineAt = (index: number): number => text.slice(0, index).split('\n').length;
  if (/^exports\[/m.test(text)) {
    return [...text.matchAll(/^exports\[`((?:[^`\\]|\\.)*)`\] = `((?:[^`\\]|\\.)*)`;/gm)].map((match) => ({
      name: match[1] ?? '',
      value: match[2] ?? '',
      line: lineAt(match.index),
    }));
  }
  if (path.endsWith('.ambr')) {
    return text.split(/^(?=# name: )/m).flatMap((each): Recorded[] => {
      const [, name] = /^# name: (.*)$/m.exec(each) ?? [];
      return name === undefined
        ? []
        : [{ name, value: each.replace(/^# name: .*$/m, ''), line: lineAt(text.indexOf(each)) }];
    });
  }
  // insta says where a snapshot is from before it says what it is.
  const value = path.endsWith('.snap') ? text.replace(/^---\n[\s\S]*?\n---\n/, '') : text;
  return [{ name: '', value, line: 1 }];
}
