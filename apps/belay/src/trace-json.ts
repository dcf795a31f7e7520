/**
 * A trace as one JSON document, an item a line. Messages stand in it as they were sent, digit for digit: they are put
 * in as text, not read and printed anew.
 */

import { isUtf8 } from 'node:buffer';
import { readTrace, recordData } from '@belay/trace';
import type { TextSink } from './text-sink.js';
import type { Shown, TraceContent } from './trace-content.js';
import { Tally, took } from './trace-format.js';
import { type CheckedTrace, factsOf } from './trace-report.js';
import { type Place, readTurns, type TraceItem } from './turns.js';

/** A place without its offset, which is of no use outside; with the content, where there is any. */
function placeJson({ offset: _offset, oversize, ...place }: Place, shown: Shown | undefined): string {
  const head = JSON.stringify({ ...place, ...(oversize ? { oversize } : {}) });
  if (shown === undefined) return head;
  const [name, value] = shown.json
    ? ['message', shown.text]
    : [shown.encoding === 'utf8' ? 'text' : 'data', JSON.stringify(shown.text)];
  const cut = shown.cut === 0 ? '' : `,"cut":${shown.cut}`;
  return `${head.slice(0, -1)},"${name}":${value}${cut}}`;
}

/** Writes one item; of several messages only one is in memory at a time. */
async function writeItem(item: TraceItem, content: TraceContent, sink: TextSink): Promise<void> {
  const write = async (
    members: object,
    ...places: readonly (readonly [string, Place | undefined])[]
  ): Promise<void> => {
    await sink.write(JSON.stringify(members).slice(0, -1));
    for (const [name, place] of places) {
      if (place === undefined) continue;
      await sink.write(`,"${name}":${placeJson(place, content.at(place))}`);
    }
    await sink.write('}');
  };
  switch (item.type) {
    case 'turn': {
      const { request, answer, ...members } = item;
      const us = took(item);
      const ms = us === undefined ? {} : { ms: us / 1000 };
      return await write({ ...members, ...ms }, ['request', request], ['answer', answer]);
    }
    case 'late_answer': {
      const { answer, call, outcome, error } = item.turn;
      const ms = (took(item.turn) ?? 0) / 1000;
      return await write({ type: item.type, call, outcome, error, ms }, ['answer', answer]);
    }
    case 'asides': {
      const { places, first, last, ...members } = item;
      const head = JSON.stringify({ ...members, first: first.n, last: last.n }).slice(0, -1);
      await sink.write(`${head},"places":[`);
      let separator = '';
      for (const { kind, ...place } of places) {
        const text = placeJson(place, content.at(place));
        await sink.write(`${separator}${text.slice(0, -1)},"kind":${JSON.stringify(kind)}}`);
        separator = ',';
      }
      return await sink.write(']}');
    }
    case 'stray': {
      const { place, ...members } = item;
      return await write(members, ['answer', place]);
    }
    case 'damage':
      return await sink.write(JSON.stringify(item));
    default: {
      const { prev: _prev, ...record } = item.record;
      const shown = item.type === 'claim' || item.type === 'hook' ? content.at(item.place) : undefined;
      return await sink.write(
        JSON.stringify({ ...record, ...(shown === undefined ? {} : { text: shown.text }) }),
      );
    }
  }
}

/** Writes the turns of a trace. */
export async function writeTurnsJson(
  trace: CheckedTrace,
  content: TraceContent,
  sink: TextSink,
): Promise<void> {
  const tally = new Tally();
  await sink.write(`{"trace":${JSON.stringify(factsOf(trace))},\n"items":[`);
  let separator = '\n';
  for await (const item of readTurns(readTrace(trace.path))) {
    if (sink.gone) return;
    tally.add(item);
    if (item.type === 'open' || item.type === 'close') continue;
    await sink.write(separator);
    await writeItem(item, content, sink);
    separator = ',\n';
  }
  const { turns, outcomes, notifications, strays, until } = tally;
  const totals = { turns, outcomes, notifications, strays, ms: until / 1000 };
  await sink.write(`\n],\n"totals":${JSON.stringify(totals)}}\n`);
}

/** Writes the frames of a trace and what the server said on stderr, each as text, or in base64 where it is none. */
export async function writeFramesJson(trace: CheckedTrace, sink: TextSink): Promise<void> {
  await sink.write(`{"trace":${JSON.stringify(factsOf(trace))},\n"frames":[`);
  let separator = '\n';
  for await (const line of readTrace(trace.path)) {
    if (sink.gone) return;
    if ('error' in line || (line.record.type !== 'frame' && line.record.type !== 'stderr')) continue;
    const { prev: _prev, data: _data, ...record } = line.record;
    const bytes = recordData(line.record);
    const content =
      bytes === undefined
        ? {}
        : isUtf8(bytes)
          ? { text: bytes.toString('utf8') }
          : { data: bytes.toString('base64') };
    await sink.write(`${separator}${JSON.stringify({ ...record, intact: line.intact, ...content })}`);
    separator = ',\n';
  }
  await sink.write('\n]}\n');
}
