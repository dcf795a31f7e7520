/**
 * Whether a written time can be one that a program read off its clock. A time that it read somewhere else is content
 * like any other, and is not excused.
 */

/** When a run was: milliseconds since 1970. */
export interface Span {
  /** When the call was made. */
  readonly now: number;
  /** When the world of the run began: its server was started, its workspace made. As `now` where it is not known. */
  readonly since?: number;
  /** When the call was answered. As `now` where it is not known. */
  readonly until?: number;
}

/** A moment as it was written; what the writing leaves open is open here. */
interface Moment {
  /** Midnights of the days it may mean, as though it was written in UTC; undefined for a time of day alone. */
  readonly days: readonly number[] | undefined;
  /** Milliseconds of the day; undefined for a date alone. */
  readonly clock: number | undefined;
  /** Milliseconds that it stands for: it was read at any of them. */
  readonly grain: number;
  /** Milliseconds east of UTC; undefined where it is not said, or by a name only. */
  readonly zone: number | undefined;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;
/** Offsets of time zones are multiples of this, and none is farther from UTC than so many of them. */
const QUARTER = 15 * MINUTE;
const QUARTERS = 56;
/** Clocks of file systems and processes are not read at one instant. */
const SLACK = MINUTE;
/** Processor time of several cores counts as often as there are cores; more are not excused. */
const CORES = 4;
const WAIT = 5 * SECOND;

const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];

/**
 * Whether `replayed` is the time of its run, and `recorded` may have been that of its own: of the run or, as with files
 * that were there before it, from before. Or both are as far from their runs: when something will expire.
 */
export function areMoments(recorded: string, replayed: string, record: Span, replay: Span): boolean {
  const [then, again] = [readMoment(recorded, record), readMoment(replayed, replay)];
  if (then === undefined || again === undefined) return false;
  return (isOf(again, replay) && !isAfter(then, record)) || isAsFar(then, again, record, replay);
}

/** The same of a number, of seconds to nanoseconds since 1970 by its size. */
export function areClocks(recorded: number, replayed: number, record: Span, replay: Span): boolean {
  const [then, again] = [recorded, replayed].map(instant);
  if (then === undefined || again === undefined) return false;
  return (isOf(again, replay) && !isAfter(then, record)) || isAsFar(then, again, record, replay);
}

/** Whether both may have been measured: no longer than their runs were, or by as much more as time went by between. */
export function areDurations(recorded: number, replayed: number, record: Span, replay: Span): boolean {
  const fits = (ms: number, { since, now, until = now }: Span): boolean =>
    ms >= 0 && ms <= CORES * (until - (since ?? now)) + WAIT;
  if (fits(recorded, record) && fits(replayed, replay)) return true;
  const slack = Math.min(recorded, replayed) < MINUTE ? WAIT : SLACK;
  return Math.abs(replayed - recorded - (replay.now - record.now)) <= slack;
}

const UNITS: readonly (readonly [RegExp, number])[] = [
  [/(\d+(?:\.\d+)?)\s?(?:ns|nanoseconds?)\b/, 1e-6],
  [/(\d+(?:\.\d+)?)\s?(?:µs|μs|us|microseconds?)\b/, 1e-3],
  [/(\d+(?:\.\d+)?)\s?(?:ms|milliseconds?)\b/, 1],
  [/(\d+(?:\.\d+)?)\s?(?:s|secs?|seconds?)\b/, SECOND],
  [/(\d+(?:\.\d+)?)\s?(?:m|mins?|minutes?)(?=\s|\d|$)/, MINUTE],
  [/(\d+(?:\.\d+)?)\s?(?:h|hrs?|hours?)(?=\s|\d|$)/, 60 * MINUTE],
];

/** Milliseconds of a written duration. */
export function readDuration(text: string): number {
  let ms = 0;
  for (const [pattern, unit] of UNITS) {
    const [, value] = pattern.exec(text) ?? [];
    if (value !== undefined) ms += Number(value) * unit;
  }
  return ms;
}

function instant(value: number): Moment | undefined {
  for (const [limit, unit] of [
    [1e11, SECOND],
    [1e14, 1],
    [1e17, 1e-3],
    [1e20, 1e-6],
  ] as const) {
    if (value >= 0 && value < limit)
      return { days: [value * unit], clock: undefined, grain: Math.max(1, unit), zone: 0 };
  }
  return undefined;
}

function readMoment(text: string, { now }: Span): Moment | undefined {
  if (/^\d+(?:\.\d+)?$/.test(text)) {
    const [whole = '', fraction = ''] = text.split('.');
    return instant(Number(`${whole}.${fraction || '0'}`));
  }
  const time = /(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:\s?([AaPp])[Mm])?/.exec(text);
  const date =
    time === null ? text : `${text.slice(0, time.index)} ${text.slice(time.index + time[0].length)}`;
  const days = daysOf(date, now);
  if (days?.length === 0 || (days === undefined && time === null)) return undefined;
  return {
    days,
    clock: time === null ? undefined : clockOf(time),
    grain: time === null ? DAY : time[3] === undefined ? MINUTE : SECOND,
    zone: time === null ? undefined : zoneOf(text.slice(time.index + time[0].length)),
  };
}

function clockOf([, hour, minute, second = '0', fraction = '0', half]: RegExpExecArray): number {
  const hours =
    half === undefined ? Number(hour) : (Number(hour) % 12) + (half.toLowerCase() === 'p' ? 12 : 0);
  return ((hours * 60 + Number(minute)) * 60 + Number(second)) * SECOND + Number(`0.${fraction}`) * SECOND;
}

function zoneOf(rest: string): number | undefined {
  const [, sign, hours, minutes] = /([+-])(\d{2}):?(\d{2})/.exec(rest) ?? [];
  if (sign !== undefined) return (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * MINUTE;
  return /^\s?(?:Z|UTC|GMT)/.test(rest) ? 0 : undefined;
}

/** Undefined where there is no date in it. */
function daysOf(text: string, now: number): number[] | undefined {
  const named = /(?:(\d{1,2})\s+)?([A-Z][a-z]{2})[a-z]*(?:\s+(\d{1,2})(?!\d))?/;
  const iso = /(\d{4})-(\d{2})-(\d{2})/.exec(text);
  if (iso !== null) return valid([[iso[1], iso[2], iso[3]]]);
  const slashed = /(\d{1,4})\/(\d{1,2})\/(\d{1,4})/.exec(text);
  if (slashed !== null) {
    const [, a, b, c] = slashed;
    return valid([
      [a, b, c],
      [c, a, b],
      [c, b, a],
    ]);
  }
  const bare = text.replace(/\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?/, '');
  const [, before, month = '', after] = named.exec(bare) ?? [];
  const number = MONTHS.indexOf(month.toLowerCase()) + 1;
  if (number === 0) return undefined;
  const [written] = /\b\d{4}\b(?!\))/.exec(bare.replaceAll(/[+-]\d{4}/g, '')) ?? [];
  const year = new Date(now).getUTCFullYear();
  const years = written === undefined ? [year - 1, year, year + 1] : [Number(written)];
  return valid(years.map((each) => [String(each), String(number), before ?? after]));
}

/** Midnights of those that are dates. */
function valid(dates: readonly (readonly (string | undefined)[])[]): number[] {
  return dates.flatMap(([year, month, day]) => {
    const [y, m, d] = [Number(year), Number(month), Number(day)];
    if (!(m >= 1 && m <= 12 && d >= 1 && d <= 31)) return [];
    return Date.UTC(y < 100 ? 2000 + y : y, m - 1, d);
  });
}

/** When it may have begun, of all that it may mean near a moment. */
function beginnings({ days, clock = 0, zone }: Moment, near: number): number[] {
  const midnight = Math.floor(near / DAY) * DAY;
  const written = (days ?? [midnight - DAY, midnight, midnight + DAY]).map((day) => day + clock);
  if (zone !== undefined) return written.map((each) => each - zone);
  const quarters = Array.from({ length: 2 * QUARTERS + 1 }, (_, i) => (i - QUARTERS) * QUARTER);
  return written.flatMap((each) => quarters.map((quarter) => each + quarter));
}

/** Whether it may be a moment of the run. */
function isOf(moment: Moment, { now, since = now, until = now }: Span): boolean {
  return beginnings(moment, now).some(
    (each) => each + moment.grain >= since - SLACK && each <= until + SLACK,
  );
}

function isAfter(moment: Moment, { now, until = now }: Span): boolean {
  return beginnings(moment, now).every((each) => each > until + SLACK);
}

/** Whether both are as far from their calls, or from the beginnings of their runs. */
function isAsFar(recorded: Moment, replayed: Moment, record: Span, replay: Span): boolean {
  if ((recorded.days === undefined) !== (replayed.days === undefined)) return false;
  const plain = ({ days, clock = 0 }: Moment): number[] => (days ?? [0]).map((day) => day + clock);
  const slack = SLACK + Math.max(recorded.grain, replayed.grain);
  const anchors = [replay.now - record.now, (replay.since ?? replay.now) - (record.since ?? record.now)];
  return plain(recorded).some((then) =>
    plain(replayed).some((again) =>
      anchors.some((apart) => {
        const off = Math.abs(again - then - apart);
        return (recorded.days === undefined ? Math.min(off % DAY, DAY - (off % DAY)) : off) <= slack;
      }),
    ),
  );
}
