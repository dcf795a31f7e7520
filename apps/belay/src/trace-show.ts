/** A trace as a table for a terminal. Everything that client or server wrote is made printable first. */

import { basename } from 'node:path';
import { isUtf8 } from 'node:buffer';
import { readTrace, recordData, type TraceRecord } from '@belay/trace';
import { columns, printable, type Style } from './output.js';
import type { TextSink } from './text-sink.js';
import type { TraceContent } from './trace-content.js';
import {
  asidesText,
  bytes,
  closeText,
  duration,
  eventText,
  isTrouble,
  lateText,
  outcomeText,
  remarks,
  seconds,
  strayText,
  Tally,
  title,
  took,
} from './trace-format.js';
import { type CheckedTrace, LOCAL_ONLY } from './trace-report.js';
import { clip, readTurns, type TraceItem, type Turn } from './turns.js';

const TITLE = 42;
/** Of a frame shown raw. Characters. */
const MAX_FRAME = 4_000;

export function verdictText(trace: CheckedTrace, style: Style): string {
  const paint = { INTACT: style.good, INCOMPLETE: style.warn, DAMAGED: style.bad }[trace.verdict];
  return style.bold(paint(trace.verdict));
}

/** Whose trace it is: who recorded what, when. */
function headText({ open, path }: CheckedTrace, style: Style): string {
  const facts: (readonly [string, string | undefined])[] = [
    ['recorded', open && `${open.time} as ${open.sink}, session ${open.session}, by ${open.recorder}`],
    ['command', open?.command?.argv.join(' ')],
    ['server', open?.upstream],
    ['in', open?.command?.cwd],
    ['workspace', open?.workspace?.join(' ')],
    ['log', open?.log],
    ['imported', open?.imported && `from ${open.imported.file} (${open.imported.format})`],
  ];
  const known = facts.flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[style.dim(name.padEnd(9)), clip(printable(value), 160)]],
  );
  return `${style.bold(basename(path))}\n${columns(known, '  ')}\n`;
}

/** Prints the turns of a trace. */
export async function showTurns(
  trace: CheckedTrace,
  content: TraceContent,
  options: { readonly style: Style; readonly trouble: boolean },
  sink: TextSink,
): Promise<void> {
  const { style, trouble } = options;
  const tally = new Tally();
  await sink.write(headText(trace, style));
  const heads = ['#', 'at s', 'call', 'took', 'sent', 'received', 'outcome'] as const;
  await sink.write(style.dim(row(heads)));
  for await (const item of readTurns(readTrace(trace.path))) {
    if (sink.gone) return;
    tally.add(item);
    if (trouble && !isTrouble(item)) continue;
    await sink.write(itemText(item, content, style));
  }
  const more = [
    tally.notifications > 0
      ? tally.notifications === 1
        ? '1 notification'
        : `${tally.notifications} notifications`
      : undefined,
    tally.stderrBytes > 0 ? `${bytes(tally.stderrBytes)} on stderr` : undefined,
    trace.close === undefined ? 'no close' : closeText({ ...trace.close }),
  ].filter((each) => each !== undefined);
  await sink.write(`\n${tally.text()}; ${more.join('; ')}; ${duration(tally.until)}\n`);
  await sink.write(`${verdictText(trace, style)}${problemSummary(trace)}. ${LOCAL_ONLY}\n`);
}

function problemSummary({ problems, gaps }: CheckedTrace): string {
  const parts = [
    ...new Set<string>(problems.map(({ code }) => code)),
    ...(gaps.length === 0 ? [] : [gaps.length === 1 ? '1 gap' : `${gaps.length} gaps`]),
  ];
  return parts.length === 0 ? '' : `: ${parts.join(', ')}`;
}

function row(cells: readonly [string, string, string, string, string, string, string]): string {
  const [number, at, what, time, sent, received, outcome] = cells;
  return `${[
    number.padStart(5),
    at.padStart(9),
    what.padEnd(TITLE),
    time.padStart(9),
    sent.padStart(8),
    received.padStart(8),
    outcome,
  ].join(' ')}\n`;
}

function itemText(item: TraceItem, content: TraceContent, style: Style): string {
  const aside = (at: number, text: string, paint: (text: string) => string): string =>
    `${' '.repeat(6)}${style.dim(seconds(at).padStart(9))} ${paint(printable(text))}\n`;
  switch (item.type) {
    case 'turn':
      return turnText(item, style);
    case 'asides':
      return aside(item.first.at, `· ${asidesText(item)}`, item.findings.length > 0 ? style.warn : style.dim);
    case 'stray':
      return aside(item.place.at, `! ${strayText(item)}`, style.warn);
    case 'late_answer':
      return aside(item.turn.answer?.at ?? 0, `· ${lateText(item)}`, style.dim);
    case 'damage':
      return `${' '.repeat(16)}${style.bad(printable(`! line ${item.line}: ${item.code}: ${item.message}`))}\n`;
    case 'open':
    case 'close':
      return '';
    case 'claim': {
      const said = content.at(item.place)?.text ?? '';
      return aside(item.place.at, `» ${eventText(item)}: ${clip(said, 120)}`, style.bold);
    }
    case 'gap':
    case 'denial':
    case 'http':
      return aside(item.place.at, `! ${eventText(item)}`, style.warn);
    default:
      return aside(item.place.at, `· ${eventText(item)}`, style.dim);
  }
}

function turnText(turn: Turn, style: Style): string {
  const { outcome, request, answer } = turn;
  const paint =
    outcome === 'ok' || outcome === 'input_required'
      ? style.good
      : outcome === 'error' || outcome === 'unanswered'
        ? style.bad
        : style.warn;
  const time = took(turn);
  const about = remarks(turn).map((each) => `  ${printable(each)}`);
  const odd = turn.findings.map((each) => `  ${style.warn(printable(each))}`);
  const cells = [
    String(turn.call),
    seconds(request.at),
    clip(printable(title(turn)), TITLE),
    time === undefined ? '-' : duration(time),
    bytes(request.size),
    answer === undefined ? '-' : bytes(answer.size),
    paint(printable(outcomeText(turn))) + about.join('') + odd.join(''),
  ] as const;
  return row(cells);
}

/** Prints every frame and piece of stderr as it was, one after another. */
export async function showFrames(trace: CheckedTrace, style: Style, sink: TextSink): Promise<void> {
  await sink.write(headText(trace, style));
  for await (const line of readTrace(trace.path)) {
    if (sink.gone) return;
    if ('error' in line) {
      await sink.write(style.bad(`! line ${line.line}: ${printable(line.error.message)}\n`));
      continue;
    }
    const text = frameText(line.record, style);
    if (text !== undefined)
      await sink.write(
        line.intact ? text : `${style.bad(line.missing ? '! content missing' : '! content changed')} ${text}`,
      );
  }
  await sink.write(`\n${verdictText(trace, style)}${problemSummary(trace)}. ${LOCAL_ONLY}\n`);
}

function frameText(record: TraceRecord, style: Style): string | undefined {
  if (record.type !== 'frame' && record.type !== 'stderr') return undefined;
  const who = record.type === 'stderr' ? 'stderr' : record.dir === 'c2s' ? 'client →' : 'server ←';
  const findings = record.type === 'frame' && record.findings !== undefined ? record.findings.join(' ') : '';
  const head = `${String(record.n).padStart(6)} ${seconds(record.at).padStart(9)} ${who.padEnd(8)} ${bytes(record.size).padStart(7)}`;
  const data = recordData(record);
  const body =
    data === undefined
      ? style.dim(
          `${record.type === 'frame' && record.beside !== undefined ? 'not in the file beside the trace' : 'too large to keep'}; sha256 ${record.sha256}`,
        )
      : clip(
          printable(isUtf8(data) ? data.toString('utf8').replace(/\r?\n$/, '') : data.toString('latin1')),
          MAX_FRAME,
        );
  return `${style.dim(head)}  ${body}${findings === '' ? '' : `  ${style.warn(findings)}`}\n`;
}
