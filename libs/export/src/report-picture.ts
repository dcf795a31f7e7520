/**
 * The pictures of the report as shapes, drawn the same way in the page and in the PDF. Units are CSS pixels, y grows
 * downwards. A mark is told by its hatching and its sign as well as by its colour; only what is good is drawn solid.
 */

import type { CoverageStatus } from '@belay/coverage';
import { CALL_AUTHORITY_LEVELS, type CallAuthorityLevel, SESSION_DISPOSITIONS } from '@belay/receipt';
import { requiredSinks, unsignedLines } from './absence.js';
import type {
  AbsenceRow,
  ControlRow,
  DispositionStatus,
  ReportEpoch,
  ReportFacts,
  ReportSink,
} from './report-model.js';
import type { Sign } from './report-sign.js';
import { counted, COVERAGE_ORDER, figure, missingText, VERDICT_ORDER } from './report-words.js';

export type Tone = 'good' | 'bad' | 'warn' | 'gap' | 'quiet' | 'open' | 'unsure' | 'level';
export type Hatch = 'solid' | 'cross' | 'diagonal' | 'back' | 'vertical' | 'horizontal' | 'dots' | 'hollow';
/** On white paper: of strokes and words, and of what is behind a hatching. Contrast of words is above 4.5 to 1. */
export const TONES: Readonly<Record<Tone, { readonly strong: string; readonly pale: string }>> = {
  good: { strong: '#1f7a4a', pale: '#e3f3ea' },
  bad: { strong: '#b3202a', pale: '#fbe6e7' },
  warn: { strong: '#8a5a00', pale: '#fbf0d5' },
  gap: { strong: '#a84300', pale: '#fdeadd' },
  quiet: { strong: '#555c64', pale: '#eceef0' },
  open: { strong: '#1d57b8', pale: '#e6effb' },
  unsure: { strong: '#6f36a8', pale: '#f0e7f9' },
  level: { strong: '#2f5c7f', pale: '#e3ecf3' },
};

/** The same of what has no tone. */
export const INKS: Readonly<Record<Ink, string>> = {
  ink: '#1b1f24',
  soft: '#555c64',
  line: '#d9dde2',
  page: '#ffffff',
};

/** How one status looks, everywhere in the report. */
export interface Mark {
  readonly tone: Tone;
  readonly hatch: Hatch;
  readonly sign: Sign;
}

const mark = (tone: Tone, hatch: Hatch, sign: Sign): Mark => ({ tone, hatch, sign });

export const COVERAGE_MARKS: Readonly<Record<CoverageStatus, Mark>> = {
  conflict: mark('bad', 'cross', 'unequal'),
  gap: mark('gap', 'diagonal', 'broken'),
  unclosed: mark('warn', 'horizontal', 'bracket'),
  silent: mark('quiet', 'dots', 'dots'),
  open: mark('open', 'hollow', 'circle'),
  complete: mark('good', 'solid', 'check'),
};

export const DISPOSITION_MARKS: Readonly<Record<DispositionStatus, Mark>> = {
  contested: mark('bad', 'cross', 'unequal'),
  violated: mark('bad', 'vertical', 'times'),
  incomplete: mark('gap', 'diagonal', 'broken'),
  open: mark('open', 'hollow', 'circle'),
  unverified: mark('unsure', 'back', 'question'),
  affirmed: mark('good', 'solid', 'check'),
};

export const VERDICT_MARKS: Readonly<Record<(typeof VERDICT_ORDER)[number], Mark>> = {
  FAIL: mark('bad', 'vertical', 'times'),
  UNVERIFIED: mark('unsure', 'back', 'question'),
  WARN: mark('warn', 'horizontal', 'bang'),
  PASS: mark('good', 'solid', 'check'),
};

export const LEVEL_MARKS: Readonly<Record<CallAuthorityLevel, Mark>> = {
  asserted: mark('level', 'hollow', 'steps1'),
  observed: mark('level', 'dots', 'steps2'),
  corroborated: mark('level', 'back', 'steps3'),
  replayed: mark('level', 'horizontal', 'steps4'),
  adjudicated: mark('level', 'vertical', 'steps5'),
};

export const ABSENCE_MARKS: Readonly<Record<AbsenceRow['result'], Mark>> = {
  none: mark('good', 'solid', 'zero'),
  found: mark('gap', 'diagonal', 'bang'),
  inconclusive: mark('unsure', 'back', 'question'),
};

export const CONTROL_MARKS: Readonly<Record<ControlRow['result'], Mark>> = {
  shown: mark('good', 'solid', 'check'),
  partly: mark('warn', 'horizontal', 'half'),
  inconclusive: mark('unsure', 'back', 'question'),
  not_shown: mark('quiet', 'hollow', 'dash'),
};

export type Ink = 'ink' | 'soft' | 'line' | 'page';

export type Shape =
  | {
      readonly shape: 'box';
      readonly x: number;
      readonly y: number;
      readonly width: number;
      readonly height: number;
      readonly mark: Mark;
      /** What a pointer that rests on it is told. */
      readonly title?: string;
    }
  /** Cut out of a box: the page shows through, between two lines. */
  | {
      readonly shape: 'notch';
      readonly x: number;
      readonly y: number;
      readonly width: number;
      readonly height: number;
      readonly title?: string;
    }
  | {
      readonly shape: 'line';
      readonly x1: number;
      readonly y1: number;
      readonly x2: number;
      readonly y2: number;
      readonly ink: Ink;
      readonly dashed?: boolean;
    }
  | {
      readonly shape: 'sign';
      readonly x: number;
      readonly y: number;
      readonly size: number;
      readonly mark: Mark;
    }
  | {
      readonly shape: 'text';
      readonly x: number;
      /** Of the baseline. */
      readonly y: number;
      readonly text: string;
      readonly size: number;
      readonly ink: Ink;
      readonly anchor?: 'middle' | 'end';
      readonly bold?: boolean;
    };

export interface Picture {
  /** A word that is unique in the report. */
  readonly id: string;
  readonly width: number;
  readonly height: number;
  readonly title: string;
  /** All that the picture says, for whoever can't see it. */
  readonly description: string;
  readonly shapes: readonly Shape[];
}

const WIDTH = 720;
/** Width of a character in ems that no face we meet exceeds on average. */
const EM = 0.58;

/** Cut to what fits in `width`, the cut shown. */
function fit(text: string, width: number, size: number): string {
  const most = Math.max(4, Math.floor(width / (size * EM)));
  const chars = Array.from(text);
  return chars.length <= most ? text : `${chars.slice(0, most - 1).join('')}…`;
}

const round = (value: number): number => Math.round(value * 100) / 100;

interface Bar {
  readonly word: string;
  readonly count: number;
  readonly mark: Mark;
}

const ROW = 22;

/** One row for each word: its sign, a bar as long as its share, and the number. Zero is a row too. */
function bars(id: string, title: string, rows: readonly Bar[]): Picture {
  const from = 128;
  const most = Math.max(1, ...rows.map(({ count }) => count));
  const whole = rows.reduce((sum, { count }) => sum + count, 0);
  const room = WIDTH - from - 110;
  const shapes = rows.flatMap(({ word, count, mark: look }, i): Shape[] => {
    const y = 4 + i * ROW;
    const width = count === 0 ? 0 : Math.max(6, round((count / most) * room));
    const share = whole === 0 ? '' : ` (${percent(count, whole)})`;
    return [
      { shape: 'sign', x: 4, y: y + 3, size: 11, mark: look },
      { shape: 'text', x: 24, y: y + 13, text: word, size: 12, ink: 'ink', bold: count > 0 },
      { shape: 'line', x1: from, y1: y, x2: from, y2: y + ROW - 3, ink: 'line' },
      ...(width > 0
        ? [
            {
              shape: 'box' as const,
              x: from,
              y: y + 1,
              width,
              height: 15,
              mark: look,
              title: `${figure(count)} ${word}`,
            },
          ]
        : []),
      {
        shape: 'text',
        x: from + width + 7,
        y: y + 13,
        text: `${figure(count)}${count === 0 ? '' : share}`,
        size: 12,
        ink: count === 0 ? 'soft' : 'ink',
      },
    ];
  });
  return {
    id,
    width: WIDTH,
    height: 4 + rows.length * ROW,
    title,
    description: rows.map(({ word, count }) => `${figure(count)} ${word}`).join(', '),
    shapes,
  };
}

/** Never 0 % of something, nor 100 % of what is not all. */
function percent(part: number, whole: number): string {
  if (part === 0) return '0%';
  if (part === whole) return '100%';
  const value = Math.round((part / whole) * 100);
  return value === 0 ? 'under 1%' : value === 100 ? 'over 99%' : `${value}%`;
}

export const dispositionPicture = ({ dispositions }: ReportFacts): Picture =>
  bars(
    'dispositions',
    'Sessions by disposition, the worst first',
    SESSION_DISPOSITIONS.map((word) => ({
      word,
      count: dispositions[word],
      mark: DISPOSITION_MARKS[word],
    })),
  );

export const verdictPicture = ({ verdicts }: ReportFacts): Picture =>
  bars(
    'verdicts',
    'Verdicts by status',
    VERDICT_ORDER.map((word) => ({ word, count: verdicts[word], mark: VERDICT_MARKS[word] })),
  );

export const levelPicture = ({ levels }: ReportFacts): Picture =>
  bars(
    'levels',
    'Calls by what statements about them rest on, the weakest first',
    CALL_AUTHORITY_LEVELS.map((word) => ({ word, count: levels[word], mark: LEVEL_MARKS[word] })),
  );

/** Swatch, sign and word of every status of coverage. */
export function coverageLegend(): Picture {
  const step = WIDTH / COVERAGE_ORDER.length;
  return {
    id: 'legend',
    width: WIDTH,
    height: 20,
    title: 'Legend',
    description: `Each status has a hatching, a sign and a colour: ${COVERAGE_ORDER.join(', ')}`,
    shapes: COVERAGE_ORDER.flatMap((status, i): Shape[] => [
      { shape: 'box', x: i * step, y: 4, width: 24, height: 12, mark: COVERAGE_MARKS[status] },
      { shape: 'sign', x: i * step + 30, y: 5, size: 10, mark: COVERAGE_MARKS[status] },
      { shape: 'text', x: i * step + 44, y: 14, text: status, size: 11, ink: 'ink' },
    ]),
  };
}

const LEFT = 166;
const RIGHT = 8;
const LANE = 17;
const BAR = 13;
const NOTE = 14;
/** Pictures with more sinks than this would not fit on a page. */
const SINKS_A_PICTURE = 8;
const NOTES_A_SINK = 8;
const MOST_LANES = 6;

/** A lane for each sink, a bar for each of its runs, from its first line to its last, and what is missing as notches. */
export function coveragePictures(facts: ReportFacts): readonly Picture[] {
  const scale = timeScale(facts);
  const required = new Set(requiredSinks(facts).map(({ sink }) => sink));
  const pictures: Picture[] = [];
  for (let i = 0; i < facts.sinks.length; i += SINKS_A_PICTURE) {
    const sinks = facts.sinks.slice(i, i + SINKS_A_PICTURE);
    pictures.push(coveragePicture(`coverage${pictures.length + 1}`, sinks, scale, required));
  }
  return pictures;
}

function coveragePicture(
  id: string,
  sinks: readonly ReportSink[],
  scale: TimeScale,
  required: ReadonlySet<string>,
): Picture {
  const lanes: Shape[] = [];
  let y = 24;
  for (const sink of sinks) {
    lanes.push({ shape: 'line', x1: 0, y1: y, x2: WIDTH, y2: y, ink: 'line' });
    const drawn = sinkShapes(sink, y + 7, scale, required.has(sink.sink));
    lanes.push(...drawn.shapes);
    y += 7 + drawn.height;
  }
  const ticks = scale.ticks.flatMap(({ x, text }, i): Shape[] => [
    { shape: 'line', x1: x, y1: 18, x2: x, y2: y, ink: 'line', dashed: true },
    {
      shape: 'text',
      x,
      y: 12,
      text,
      size: 10,
      ink: 'soft',
      ...(x > WIDTH - 40
        ? { anchor: 'end' as const }
        : i === 0 && x < LEFT + 24
          ? {}
          : { anchor: 'middle' as const }),
    },
  ]);
  return {
    id,
    width: WIDTH,
    height: y + 2,
    title: 'Coverage of the sinks over time',
    description: sinks
      .map(
        (sink) =>
          `${sink.sink}: ${sink.status}, ${counted(sink.epochs.length + sink.epochsOmitted, 'run')}${sinkNotes(
            sink,
          )
            .map((note) => `; ${note}`)
            .join('')}`,
      )
      .join('. '),
    shapes: [...ticks, ...lanes],
  };
}

function sinkShapes(
  sink: ReportSink,
  top: number,
  scale: TimeScale,
  isRequired: boolean,
): { readonly shapes: readonly Shape[]; readonly height: number } {
  const small = [
    `${sink.status}; ${isRequired ? 'required' : 'not required'}`,
    `${sink.kind ?? 'kind not declared'}, ${sink.keyed ? (unsignedLines(sink) > 0 ? 'some unsigned' : 'keyed') : 'no key'}`,
  ];
  const shapes: Shape[] = [
    { shape: 'sign', x: 2, y: top + 2, size: 10, mark: COVERAGE_MARKS[sink.status] },
    {
      shape: 'text',
      x: 18,
      y: top + 11,
      text: fit(sink.sink, LEFT - 24, 12),
      size: 12,
      ink: 'ink',
      bold: true,
    },
    ...small.map((text, i): Shape => ({
      shape: 'text',
      x: 18,
      y: top + 23 + i * 11,
      text: fit(text, LEFT - 20, 9),
      size: 9,
      ink: 'soft',
    })),
  ];
  const rows = laneRows(sink.epochs, scale);
  for (const [row, epochs] of rows.entries()) {
    const y = top + row * LANE;
    for (const each of epochs) shapes.push(...epochShapes(each, y, scale));
  }
  if (sink.epochs.length === 0) {
    shapes.push({ shape: 'text', x: LEFT, y: top + 11, text: 'nothing was received', size: 11, ink: 'soft' });
  }
  const notes = sinkNotes(sink);
  const below = top + Math.max(1, rows.length) * LANE;
  const shown =
    notes.length <= NOTES_A_SINK
      ? notes
      : [
          ...notes.slice(0, NOTES_A_SINK - 1),
          `and ${counted(notes.length - NOTES_A_SINK + 1, 'more note')}: see the table of runs`,
        ];
  for (const [i, note] of shown.entries()) {
    shapes.push({
      shape: 'text',
      x: LEFT,
      y: below + 10 + i * NOTE,
      text: fit(note, WIDTH - LEFT - RIGHT, 10.5),
      size: 10.5,
      ink: 'ink',
    });
  }
  return {
    shapes,
    height: Math.max(40, Math.max(1, rows.length) * LANE + shown.length * NOTE + (shown.length > 0 ? 6 : 2)),
  };
}

/** What is missing or contradicted, named exactly. */
function sinkNotes(sink: ReportSink): readonly string[] {
  return [
    ...sink.epochs.flatMap((epoch) => [
      ...epoch.missing.map((each) => `${missingText(each)} (epoch ${tail(epoch.epoch)})`),
      ...(epoch.missingOmitted > 0
        ? [`${counted(epoch.missingOmitted, 'more gap')} (epoch ${tail(epoch.epoch)})`]
        : []),
      ...(epoch.conflicts > 0
        ? [`${counted(epoch.conflicts, 'conflict')} (epoch ${tail(epoch.epoch)})`]
        : []),
    ]),
    ...(sink.branches > 0 ? [`${counted(sink.branches, 'fork')}: two runs follow the same one`] : []),
    ...(sink.miscounted > 0 ? [`${counted(sink.miscounted, 'run')} whose counter does not follow`] : []),
    ...(sink.lost > 0 ? [`${counted(sink.lost, 'run')} of which nothing was received`] : []),
    ...(sink.epochsOmitted > 0 ? [`${counted(sink.epochsOmitted, 'more run')} than are drawn`] : []),
  ];
}

/** An epoch's name begins with its time: its middle is what tells it from its neighbours. */
const tail = (epoch: string): string => (epoch.length <= 12 ? epoch : `${epoch.slice(0, 10)}…`);

/** Runs that overlap in time go below each other. */
function laneRows(epochs: readonly ReportEpoch[], scale: TimeScale): readonly (readonly ReportEpoch[])[] {
  const rows: ReportEpoch[][] = [];
  const ends: number[] = [];
  const inTime = epochs
    .map((epoch) => ({ epoch, ...scale.span(epoch) }))
    .sort((a, b) => a.x - b.x || (a.epoch.epoch < b.epoch.epoch ? -1 : 1));
  for (const { epoch, x, width } of inTime) {
    const free = ends.findIndex((end) => end <= x);
    const row = free >= 0 ? free : Math.min(ends.length, MOST_LANES - 1);
    (rows[row] ??= []).push(epoch);
    ends[row] = Math.max(ends[row] ?? 0, x + width + 0.5);
  }
  return rows;
}

/** A notch narrower than this can't be seen. */
const NOTCH = 3;

function epochShapes(epoch: ReportEpoch, y: number, scale: TimeScale): Shape[] {
  const { x, width } = scale.span(epoch);
  const numbers = Math.max(1, epoch.next - 1);
  const notches = epoch.missing.map((each): Shape => {
    const wide = Math.min(width, Math.max(NOTCH, round(((each.to - each.from) / numbers) * width)));
    const place = x + ((each.from - 1) / numbers) * width;
    return {
      shape: 'notch',
      x: round(Math.min(Math.max(x, place), x + width - wide)),
      y: y - 2,
      width: wide,
      height: BAR + 4,
      title: missingText(each),
    };
  });
  return [
    {
      shape: 'box',
      x,
      y,
      width,
      height: BAR,
      mark: COVERAGE_MARKS[epoch.status],
      title: `epoch ${epoch.epoch}: ${epoch.status}, ${figure(epoch.lines)} of ${counted(numbers, 'line')}`,
    },
    ...notches,
  ];
}

interface TimeScale {
  readonly ticks: readonly { readonly x: number; readonly text: string }[];
  span(epoch: ReportEpoch): { readonly x: number; readonly width: number };
}

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  SECOND,
  5 * SECOND,
  15 * SECOND,
  MINUTE,
  5 * MINUTE,
  15 * MINUTE,
  HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
  14 * DAY,
  28 * DAY,
  91 * DAY,
  182 * DAY,
  365 * DAY,
  3_650 * DAY,
];
const MOST_TICKS = 8;
const NARROWEST = 4;

/** Milliseconds of an RFC 3339 time in UTC; undefined for what is none. */
function instant(time: string | undefined): number | undefined {
  if (time === undefined) return undefined;
  const value = Date.parse(time);
  return Number.isFinite(value) ? value : undefined;
}

function timeScale({ sinks }: ReportFacts): TimeScale {
  const times = sinks.flatMap(({ epochs }) =>
    epochs.flatMap(({ first, last }) => [instant(first), instant(last)]),
  );
  let from = Infinity;
  let to = -Infinity;
  for (const time of times) {
    if (time === undefined) continue;
    from = Math.min(from, time);
    to = Math.max(to, time);
  }
  if (from > to) [from, to] = [0, 0];
  const room = WIDTH - LEFT - RIGHT;
  const whole = Math.max(1, to - from);
  const place = (time: number): number => round(LEFT + ((time - from) / whole) * room);
  const step = STEPS.find((each) => whole / each <= MOST_TICKS) ?? whole;
  const ticks = [];
  if (to > 0) {
    for (let time = Math.ceil(from / step) * step; time <= to && ticks.length <= MOST_TICKS; time += step) {
      const text = new Date(time).toISOString();
      ticks.push({
        x: place(time),
        text:
          step >= DAY
            ? text.slice(0, 10)
            : step >= MINUTE
              ? text.slice(5, 16).replace('T', ' ')
              : text.slice(11, 19),
      });
    }
  }
  return {
    ticks,
    span({ first, last }) {
      const start = instant(first) ?? from;
      const end = Math.max(start, instant(last) ?? start);
      const width = Math.max(NARROWEST, place(end) - place(start));
      return { x: Math.min(place(start), WIDTH - RIGHT - width), width: round(width) };
    },
  };
}
