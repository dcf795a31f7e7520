import picomatch from 'picomatch';

/** Whether a path (relative, `/` between its parts) is one of `paths` and none of `except`. Names with a dot in front are names. */
export function scope(paths: readonly string[], except: readonly string[]): (path: string) => boolean {
  const options = { dot: true, nonegate: true };
  const wanted = picomatch([...paths], options);
  const left = except.length === 0 ? (): boolean => false : picomatch([...except], options);
  return (path) => wanted(path) && !left(path);
}
