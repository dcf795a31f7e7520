/**
 * A trace as HTTP Archive 1.2, for the viewers that read it. MCP over stdio is no HTTP: a request stands for a POST to
 * `mcp://SINK/METHOD`, an answer for its response, with status 200 for a result, 500 for a JSON-RPC error and 0 for no
 * answer. A notification is a request that no answer is due to: status 202. What has no place in HAR is in members that
 * begin with `_`.
 */

import { readTrace } from '@belay/trace';
import type { TextSink } from './text-sink.js';
import type { Shown, TraceContent } from './trace-content.js';
import { outcomeText, title, took } from './trace-format.js';
import { type CheckedTrace, factsOf } from './trace-report.js';
import { type Asides, type LateAnswer, type Place, readTurns, type Turn } from './turns.js';

const MIME = 'application/json';
const JSON_RPC_ERROR = 500;

const NO_ANSWER_DUE = 202;

function url(sink: string, { method, subject }: Pick<Turn, 'method' | 'subject'>): string {
  const path = method
    .split('/')
    .map((part) => encodeURIComponent(wellFormed(part)))
    .join('/');
  return `mcp://${sink}/${path}${subject === undefined ? '' : `?name=${encodeURIComponent(wellFormed(subject))}`}`;
}

/** Half of a surrogate pair has no place in a URL. */
const wellFormed = (text: string): string => Buffer.from(text, 'utf8').toString('utf8');

function contentJson(place: Place | undefined, shown: Shown | undefined): Record<string, unknown> {
  return {
    size: place?.size ?? 0,
    mimeType: MIME,
    ...(shown === undefined ? {} : { text: shown.text }),
    ...(shown?.encoding === 'base64' ? { encoding: 'base64' } : {}),
    ...(shown !== undefined && shown.cut > 0 ? { comment: `${shown.cut} bytes more` } : {}),
    ...(place?.oversize === true ? { comment: `too large to keep; sha256 ${place.sha256}` } : {}),
  };
}

/** What every entry has. */
function entryOf(
  about: { readonly url: string; readonly subject: string | undefined; readonly ms: number },
  request: Place,
  answer: { readonly place: Place | undefined; readonly status: number; readonly statusText: string },
  content: TraceContent,
): object {
  const { subject, ms } = about;
  const sent = content.at(request);
  return {
    pageref: 'session',
    startedDateTime: request.time,
    time: ms,
    request: {
      method: 'POST',
      url: about.url,
      httpVersion: 'MCP/stdio',
      cookies: [],
      headers: [],
      queryString: subject === undefined ? [] : [{ name: 'name', value: subject }],
      ...(sent === undefined || sent.encoding === 'base64'
        ? {}
        : { postData: { mimeType: MIME, params: [], text: sent.text } }),
      headersSize: -1,
      bodySize: request.size,
    },
    response: {
      status: answer.status,
      statusText: answer.statusText,
      httpVersion: 'MCP/stdio',
      cookies: [],
      headers: [],
      content: contentJson(answer.place, content.at(answer.place)),
      redirectURL: '',
      headersSize: -1,
      bodySize: answer.place?.size ?? 0,
    },
    cache: {},
    timings: { send: 0, wait: ms, receive: 0 },
  };
}

function notification(place: Asides['places'][number], sink: string, content: TraceContent): string {
  const { kind: method, notified, ...request } = place;
  const about = { url: url(sink, { method, subject: undefined }), subject: undefined, ms: 0 };
  const answer = { place: undefined, status: NO_ANSWER_DUE, statusText: 'no answer is due' };
  return JSON.stringify({
    ...entryOf(about, request, answer, content),
    comment: method,
    _notified: notified === 'c2s' ? 'client' : 'server',
    _records: { request: request.n },
  });
}

function entry(turn: Turn, sink: string, content: TraceContent): string {
  const { request, answer, outcome, dir, subject } = turn;
  const ms = (took(turn) ?? 0) / 1000;
  const status = answer === undefined ? 0 : outcome === 'error' ? JSON_RPC_ERROR : 200;
  const answered = { place: answer, status, statusText: outcomeText(turn) };
  return JSON.stringify({
    ...entryOf({ url: url(sink, turn), subject, ms }, request, answered, content),
    comment: title(turn),
    _call: turn.call,
    _asked: dir === 'c2s' ? 'client' : 'server',
    _outcome: outcome,
    ...(turn.findings.length === 0 ? {} : { _findings: turn.findings }),
    _records: { request: request.n, ...(answer === undefined ? {} : { answer: answer.n }) },
  });
}

export async function writeTurnsHar(
  trace: CheckedTrace,
  content: TraceContent,
  version: string,
  sink: TextSink,
): Promise<void> {
  const { open } = trace;
  const started = open?.time ?? new Date(0).toISOString();
  const name = open?.command?.argv.join(' ') ?? open?.sink ?? 'a trace';
  const host = encodeURIComponent(wellFormed(open?.sink ?? 'sink'));
  const pages = [{ startedDateTime: started, id: 'session', title: name, pageTimings: {} }];
  const creator = { name: 'belay', version };
  await sink.write(
    `{"log":{"version":"1.2","creator":${JSON.stringify(creator)},"pages":${JSON.stringify(pages)},` +
      `"_trace":${JSON.stringify(factsOf(trace))},\n"entries":[`,
  );
  let separator = '\n';
  const late: LateAnswer[] = [];
  let leftOut = 0;
  for await (const item of readTurns(readTrace(trace.path))) {
    if (sink.gone) return;
    if (item.type === 'late_answer' && late.length < 1000) late.push(item);
    if (item.type === 'asides') {
      const shown = item.places.filter(({ notified }) => notified !== undefined);
      leftOut += item.notices.reduce((sum, { count }) => sum + count, 0) - shown.length;
      for (const place of shown) {
        await sink.write(`${separator}${notification(place, host, content)}`);
        separator = ',\n';
      }
    }
    if (item.type !== 'turn') continue;
    await sink.write(`${separator}${entry(item, host, content)}`);
    separator = ',\n';
  }
  const answers = late.map(({ turn }) => ({
    call: turn.call,
    outcome: turn.outcome,
    record: turn.answer?.n,
  }));
  const lateAnswers = answers.length === 0 ? '' : `,"_lateAnswers":${JSON.stringify(answers)}`;
  const rest = leftOut === 0 ? '' : `,"_notificationsLeftOut":${leftOut}`;
  await sink.write(`\n]${lateAnswers}${rest}}}\n`);
}
