/**
 * Does the work of every item, at most `limit` at once, and gives what they came to in the order of the items. The first
 * that fails ends the others by their signal, and is thrown once all have ended: nothing of them goes on behind.
 */
export async function pooled<T, R>(
  items: readonly T[],
  limit: number,
  signal: AbortSignal,
  work: (item: T, index: number, signal: AbortSignal) => Promise<R>,
): Promise<R[]> {
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  const results: { readonly index: number; readonly result: R }[] = [];
  const failures: unknown[] = [];
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length && !both.aborted) {
      const index = next++;
      try {
        results.push({ index, result: await work(items[index] as T, index, both) });
      } catch (error) {
        failures.push(error);
        stop.abort();
      }
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(limit, items.length)) }, worker));
  if (failures.length > 0) throw failures[0];
  return results.toSorted((a, b) => a.index - b.index).map(({ result }) => result);
}
