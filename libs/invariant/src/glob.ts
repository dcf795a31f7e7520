import picomatch from 'picomatch';

type Matcher = (path: string) => boolean;

/** Lists of globs are compiled once: a policy is held against every turn of a trace. */
const compiled = new WeakMap<readonly string[], Matcher>();

/** Whether a path (relative, `/` between its parts) is one of `globs`. Names with a dot in front are names. */
export function matcher(globs: readonly string[]): Matcher {
  let known = compiled.get(globs);
  if (!known) {
    known = globs.length === 0 ? (): boolean => false : picomatch([...globs], { dot: true, nonegate: true });
    compiled.set(globs, known);
  }
  return known;
}

/** Whether a path is one of `paths` and none of `except`. */
export function scope(paths: readonly string[], except: readonly string[]): Matcher {
  const [wanted, left] = [matcher(paths), matcher(except)];
  return (path) => wanted(path) && !left(path);
}
